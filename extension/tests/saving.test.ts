// Saving, comparing and reloading: what is asked, what is shown, and what stays.

import { buttonOf, click, mount, mountParts, settle } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RequestError } from '../src/protocol/channel';
import type { Archive, Difference, Model, ReloadReply, Saving, Target } from '../src/protocol/messages';
import { ActionBar } from '../src/view/action-bar';
import { GraphMark, diffView, markedNodes } from '../src/view/diff-view';
import { graphWords } from '../src/view/save-part';
import { TableKernel, graph, model, node, saved } from './records';

const archive: Archive = {
  file: 'net.hlab',
  bytes: 61_706,
  modified: Date.now() / 1000 - 120,
  class: 'Net',
  blocks: 6,
  graphs: 6,
  problem: '',
  variable: ''
};
const target = (changes: Partial<Target> = {}): Target => ({
  ...archive,
  path: '/p/net.hlab',
  version: 'v1',
  ...changes
});

const difference: Difference = {
  equal: false,
  summary: '2 operators changed, 1 tensor changed',
  first: 'net.hlab',
  second: 'net now',
  others: ['member train/aux.json: the contents differ'],
  notes: ['2 prefixes of names differ'],
  blocks: [
    {
      kind: 'same',
      path: '',
      class_name: 'Net',
      changes: [],
      tensors: [],
      operators: [
        row('changed', "Activation(act_type='relu')", "Activation(act_type='tanh')", [
          "act_type: 'relu' became 'tanh'"
        ]),
        row('same', '12 operators alike', '12 operators alike'),
        row('added', '', 'relu()')
      ]
    },
    {
      kind: 'removed',
      path: 'extra.<img src=x>',
      class_name: 'Dense',
      changes: [],
      operators: [],
      tensors: [
        {
          kind: 'changed',
          name: 'extra.weight',
          first: 'float32[2]',
          second: 'float32[2]',
          values: 2,
          changed: 1,
          largest: 0.5,
          scale: 1,
          text: 'differs by up to 0.5 (largest value 1), 1 of 2 values'
        }
      ]
    }
  ]
};

function row(kind: 'same' | 'added' | 'changed', first: string, second: string, changes: string[] = []) {
  const place = kind === 'same' ? null : 3;
  return {
    kind,
    block: '',
    first,
    second,
    changes,
    first_place: place,
    second_place: place,
    line: 'cell 1, line 2'
  };
}

const reloadReply = (changes: Partial<ReloadReply> = {}): ReloadReply => ({
  path: '/p/net.hlab',
  file: 'net.hlab',
  host: 'h',
  summary: '1 of 4 parameters changed',
  graphs: 1,
  parameters: 4,
  diff: ['fc1.weight: 10 numbers, largest change 0.31'],
  undo: 'u1',
  seconds: 0,
  difference,
  notes: [],
  ...changes
});

function bar(
  kernel: TableKernel,
  models: Model[] = [model()],
  saving: Record<string, Saving> = {}
): ActionBar & { element: HTMLElement } {
  const view = new ActionBar({ withOpen: true, onChanged: () => undefined, onShowInGraph: () => undefined });
  view.connect(kernel);
  view.setModels(models, saving);
  view.setModel(models[0] ?? null);
  return mountParts(view, view.buttons, view.more, view.outcome);
}

const text = (root: Element): string => root.textContent ?? '';
const none: Saving = { left_out: '', autosave: null };

test('operators that differ are found in the graph by their place in their Block', () => {
  const nodes = [
    node('n0', { kind: 'input' }),
    node('n1', { block: 'a' }),
    node('n2', { block: 'b' }),
    node('n3', { block: 'a' })
  ];
  const items = markedNodes(graph({ nodes }), [
    { block: 'a', place: 1, kind: 'changed' },
    { block: 'b', place: 0, kind: 'added' },
    { block: 'b', place: 1, kind: 'added' }
  ]);
  assert.deepEqual(
    items.map(item => [item.id, item.text]),
    [
      ['n2', 'added'],
      ['n3', 'changed']
    ]
  );
});

test('a difference has words for each kind, not colours alone, and names stay text', () => {
  const shown: [string, GraphMark[]][] = [];
  const view = mount(diffView(difference, { onShow: (block, marks) => shown.push([block, marks]) }));
  assert.deepEqual(
    [...view.querySelectorAll('.hl-mark')].map(mark => mark.textContent),
    ['~ changed', '~ changed', '+ added', '− removed', '~ changed']
  );
  assert.equal(view.querySelector('img'), null);
  assert.match(text(view), /extra\.<img src=x>/);
  assert.match(text(view), /differs by up to 0\.5/);
  assert.deepEqual(
    [...view.querySelectorAll('th')].map(th => th.textContent),
    ['net.hlab', 'net now']
  );
  click(buttonOf(view, 'Show in graph'));
  assert.deepEqual(shown, [
    [
      '',
      [
        { block: '', place: 3, kind: 'changed' },
        { block: '', place: 3, kind: 'added' }
      ]
    ]
  ]);
});

test('the tensors that changed most come first, and the order of the tree is there by keyboard', () => {
  const [, block] = difference.blocks;
  const [tensor] = block?.tensors ?? [];
  assert.ok(block && tensor);
  const named = (name: string, changes: Partial<typeof tensor>) => ({ ...tensor, name, ...changes });
  const tensors = [
    named('extra.new', { kind: 'added', largest: null, scale: null }),
    named('body.weight', { largest: 0.1, scale: 0.1 }),
    named('body.bias', { largest: 0.5, scale: 100 }),
    named('body.state', { largest: null, scale: 1 }),
    named('head.weight', { largest: 0.5, scale: 1 })
  ];
  const blocks = [
    { ...block, kind: 'same' as const, path: 'body', tensors: tensors.slice(0, 4) },
    { ...block, kind: 'same' as const, path: 'head', tensors: tensors.slice(4) }
  ];
  const view = mount(diffView({ ...difference, blocks }));
  const names = (): (string | null)[] => [...view.querySelectorAll('li code')].map(code => code.textContent);
  assert.deepEqual(names(), ['body.state', 'body.bias', 'head.weight', 'body.weight', 'extra.new']);
  assert.equal(view.querySelectorAll('details').length, 0); // Blocks that differ in their tensors alone
  const order = view.querySelector('select');
  assert.ok(order);
  assert.equal(order.getAttribute('aria-label'), 'Order of the tensors');
  const choose = (value: string): void => {
    order.value = value;
    order.dispatchEvent(new Event('change'));
  };
  choose('tree');
  assert.deepEqual(
    names(),
    tensors.map(each => each.name)
  );
  choose('part');
  assert.deepEqual(names(), ['body.state', 'body.weight', 'head.weight', 'body.bias', 'extra.new']);
});

test('a long list of tensors is cut, and says by how much', () => {
  const [, block] = difference.blocks;
  assert.ok(block);
  const tensors = Array.from({ length: 1000 }, () => block.tensors[0]!);
  const view = mount(diffView({ ...difference, blocks: [{ ...block, tensors }] }));
  assert.equal(view.querySelectorAll('.hl-diff-tensors li').length, 301);
  assert.match(text(view), /and 700 more tensors/);
});

test('a large difference is cut, and says by how much', () => {
  const block = difference.blocks[0];
  assert.ok(block);
  const view = diffView({ ...difference, blocks: Array.from({ length: 1000 }, () => block) });
  assert.equal(view.querySelectorAll('details').length, 300);
  assert.match(text(view), /and 700 more Blocks/);
});

test('the button names the model, the question says whose file it is, and its version is sent', async () => {
  const kernel = new TableKernel({
    save: body => {
      if (!body.overwrite) {
        throw new RequestError('exists', 'net.hlab exists already');
      }
      return { ...saved, kept: '.hybrid_lab_history/net.1.hlab' };
    },
    targets: () => ({ targets: [target()] })
  });
  const view = bar(kernel);
  click(buttonOf(view.element, 'Save net'));
  await settle();
  assert.match(text(view.element), /net\.hlab exists already: Net, 6 graphs, 61\.7 kB, 2 min ago/);
  click(buttonOf(view.element, 'Replace it'));
  await settle();
  assert.deepEqual(kernel.asked.at(-1)?.body, {
    model: 'm1',
    file: 'net.hlab',
    overwrite: true,
    replaces: 'v1'
  });
  assert.match(text(view.element), /is in the history/);
});

test('graphs that a save would lose are listed before it, and Cancel saves nothing', async () => {
  const kernel = new TableKernel({
    save: body => {
      if (!body.fewer_graphs) {
        throw new RequestError('fewer-graphs', 'these graphs would be lost', '', ['encoder', 'decoder']);
      }
      return saved;
    }
  });
  const view = bar(kernel);
  click(buttonOf(view.element, 'Save net'));
  await settle();
  assert.match(text(view.element), /these graphs would be lost.*encoder.*decoder/s);
  click(buttonOf(view.element, 'Cancel'));
  await settle();
  assert.match(text(view.element), /net was not saved/);
  assert.equal(kernel.asked.length, 1);
  click(buttonOf(view.element, 'Save net'));
  await settle();
  click(buttonOf(view.element, 'Save without them'));
  await settle();
  assert.deepEqual(kernel.asked.at(-1)?.body, {
    model: 'm1',
    file: 'net.hlab',
    overwrite: false,
    fewer_graphs: true
  });
  assert.match(text(view.element), /Saved net/);
});

test('a file that was replaced meanwhile is asked about again', async () => {
  let version = 1;
  const kernel = new TableKernel({
    save: body => {
      if (body.replaces !== 'v2') {
        throw new RequestError('exists', `net.hlab exists (${version})`);
      }
      return saved;
    },
    targets: () => ({ targets: [target({ version: `v${version++}` })] })
  });
  const view = bar(kernel);
  const done = view.save();
  await settle();
  click(buttonOf(view.element, 'Replace it'));
  await settle();
  assert.match(text(view.element), /net\.hlab exists \(2\)/);
  click(buttonOf(view.element, 'Replace it'));
  await done;
  assert.match(text(view.element), /Saved net/);
});

const models = [
  model({ id: 'm1', name: 'net', file: 'net.hlab' }),
  model({ id: 'm2', name: 'big', file: 'big.hlab' }),
  model({ id: 'm3', name: 'loss', class: 'L2Loss', file: 'loss.hlab' })
];
const saving = { m1: none, m2: none, m3: { left_out: 'a loss function', autosave: null } };

test('every model is listed with its file before it is saved; losses are left out unless asked for', async () => {
  const kernel = new TableKernel({
    save: () => saved,
    targets: () => ({
      targets: [
        target(),
        target({ file: 'big.hlab', version: '' }),
        target({ file: 'loss.hlab', version: '' })
      ]
    })
  });
  const view = bar(kernel, models, saving);
  click(buttonOf(view.element, 'Save every model (2)'));
  await settle();
  const rows = [...view.element.querySelectorAll('.hl-save-row')];
  assert.deepEqual(
    rows.map(each => each.textContent?.replace('2 min', 'n min')),
    [
      'net Net → net.hlabreplaces Net, 6 graphs, 61.7 kB, n min ago',
      'big Net → big.hlaba new file',
      'loss L2Loss → loss.hlaba new file (a loss function)'
    ]
  );
  assert.equal(kernel.asked.length, 1);
  const boxes = [...view.element.querySelectorAll<HTMLInputElement>('input[type=checkbox]')];
  assert.deepEqual(
    boxes.map(box => box.checked),
    [true, true, false]
  );
  boxes[1]?.click();
  boxes[2]?.click();
  click(buttonOf(view.element, 'Save 2 models'));
  await settle();
  assert.deepEqual(
    kernel.asked.slice(1).map(each => each.body),
    [
      { model: 'm1', file: 'net.hlab', overwrite: true, replaces: 'v1' },
      { model: 'm3', file: 'loss.hlab', overwrite: false }
    ]
  );
});

test('two models of one file, and names that cannot be written, are problems in the list', async () => {
  const kernel = new TableKernel({
    targets: () => ({ targets: [target(), target(), target({ problem: 'it is a folder' })] })
  });
  const twice = [models[0], { ...models[1], file: 'net.hlab' }, models[2]] as Model[];
  const view = bar(kernel, twice, saving);
  await view.saveEvery();
  const rows = [...view.element.querySelectorAll('.hl-save-row')];
  assert.match(text(rows[1] as Element), /another model has this file/);
  assert.match(text(rows[2] as Element), /it is a folder/);
  assert.deepEqual(
    [...view.element.querySelectorAll<HTMLInputElement>('input[type=checkbox]')].map(box => box.disabled),
    [false, true, true]
  );
  assert.ok(buttonOf(view.element, 'Save 1 model'));
});

test('a reload shows the difference and offers to undo it', async () => {
  const kernel = new TableKernel({
    reload: () => reloadReply(),
    undo: () => ({ summary: '1 parameter restored' })
  });
  const view = bar(kernel);
  await view.reload();
  assert.match(text(view.element), /1 change \(Undo takes them back\)/);
  assert.ok(view.element.querySelector('.hl-diff'));
  click(buttonOf(view.element, 'Undo this reload'));
  await settle();
  assert.match(text(view.element), /1 parameter restored/);
  assert.deepEqual(kernel.asked.at(-1)?.body, { model: 'm1', undo: 'u1' });
});

test('graphs that differ are shown before anything is replaced', async () => {
  const kernel = new TableKernel({
    reload: body => {
      if (body.graphs === 'code') {
        throw new RequestError('differs', 'the file and the model differ in 1 place', '', ['graph: other']);
      }
      return reloadReply();
    },
    compare: () => ({ path: '/p/net.hlab', file: 'net.hlab', host: 'h', difference })
  });
  const view = bar(kernel);
  const done = view.reload();
  await settle();
  assert.ok(view.element.querySelector('.hl-confirm .hl-diff'));
  click(buttonOf(view.element, 'Cancel'));
  await done;
  assert.deepEqual(
    kernel.asked.map(each => each.type),
    ['reload', 'compare']
  );
  assert.match(text(view.element), /net was not changed/);
});

test('Compare shows the difference and asks for nothing else', async () => {
  const kernel = new TableKernel({
    compare: () => ({
      path: '/p/net.hlab',
      file: 'net.hlab',
      host: 'h',
      difference: { ...difference, equal: true, blocks: [] }
    })
  });
  const view = bar(kernel);
  await view.compare();
  assert.match(text(view.element), /Nothing differs\./);
  assert.deepEqual(kernel.asked, [{ type: 'compare', body: { model: 'm1', file: 'net.hlab' } }]);
});

test('the selected Block is saved and reloaded alone', async () => {
  const kernel = new TableKernel({ save: () => saved, reload: () => reloadReply() });
  const view = bar(kernel);
  assert.throws(() => buttonOf(view.element, 'Save Block'));
  view.setBlock('features.0');
  click(buttonOf(view.element, 'Save Block'));
  await settle();
  const body = { model: 'm1', file: 'net.features.0.hlab', path: 'features.0' };
  assert.deepEqual(kernel.asked.at(-1)?.body, { ...body, overwrite: false });
  assert.match(text(view.element), /Saved net\.features\.0/);
  click(buttonOf(view.element, 'Reload Block'));
  await settle();
  assert.deepEqual(kernel.asked.at(-1)?.body, { ...body, graphs: 'code' });
  view.setModel(model({ id: 'm2' }));
  assert.throws(() => buttonOf(view.element, 'Save Block'));
});

test('earlier saves are listed, compared with and reloaded', async () => {
  const file = '.hybrid_lab_history/net.2026-11-23_15-02-11-000000.hlab';
  const kernel = new TableKernel({
    history: () => ({ folder: '/p/.hybrid_lab_history', saves: [{ ...archive, file }] }),
    compare: () => ({ path: '/p/x', file, host: 'h', difference }),
    reload: () => reloadReply()
  });
  const view = bar(kernel);
  const details = [...view.element.querySelectorAll('details')].find(each => /Earlier/.test(text(each)));
  assert.ok(details);
  details.open = true;
  details.dispatchEvent(new Event('toggle'));
  await settle();
  assert.match(text(details), /Net, 6 graphs, 61\.7 kB, 2 min ago/);
  click(buttonOf(details, 'Compare'));
  await settle();
  assert.deepEqual(kernel.asked.at(-1), { type: 'compare', body: { model: 'm1', file } });
  click(buttonOf(details, 'Reload'));
  await settle();
  assert.ok(
    kernel.asked.some(each => each.type === 'reload' && (each.body as { file: string }).file === file)
  );
});

test('the autosave is set here, and its failure is an alert', async () => {
  const autosave = {
    every: 50,
    file: 'net.autosave.hlab',
    saves: 2,
    last: Date.now() / 1000 - 3,
    seconds: 0.21,
    problem: ''
  };
  const kernel = new TableKernel({ autosave: () => ({ autosave: { ...autosave, saves: 0 } }) });
  const view = bar(kernel, [model()], { m1: none });
  const unit = [...view.element.querySelectorAll('select')].find(each => /each epoch/.test(text(each)));
  assert.ok(unit);
  assert.equal(unit.value, 'off');
  unit.value = 'epoch';
  unit.dispatchEvent(new Event('change'));
  await settle();
  assert.deepEqual(kernel.asked.at(-1)?.body, { model: 'm1', file: '', unit: 'epoch', every: 100 });
  assert.match(text(view.element), /Goes to net\.autosave\.hlab/);
  view.setModels([model()], { m1: { left_out: '', autosave } });
  assert.match(text(view.element), /2 saves to net\.autosave\.hlab, the last 3 s ago; it took 0\.21 s/);
  const alert = view.element.querySelector<HTMLElement>('.hl-alert[role=alert]');
  assert.ok(alert);
  assert.equal(alert.hidden, true);
  view.setModels([model()], {
    m1: { left_out: '', autosave: { ...autosave, problem: 'No space left on device' } }
  });
  assert.equal(alert.hidden, false);
  assert.match(text(alert), /The autosave of net failed: No space left on device/);
});

test('graphs are counted as a reader counts them', () => {
  assert.equal(graphWords(['']), '1 graph');
  assert.equal(graphWords(['', 'body', 'body.0', 'head']), '1 graph, and those of 3 Blocks inside it');
  assert.equal(graphWords(['body', 'body.0', 'head']), '2 graphs, and those of 1 Block inside them');
  assert.equal(graphWords(['body', 'bodyguard']), '2 graphs');
  assert.equal(graphWords(['', '']), '2 graphs');
  assert.equal(graphWords([]), '0 graphs');
});

test('Reload has the name of the model that it reloads, as Save has', () => {
  const view = bar(new TableKernel({}), models, saving);
  assert.equal(buttonOf(view.element, 'Reload net').disabled, false);
  view.setModel(models[1] as Model);
  assert.equal(buttonOf(view.element, 'Reload big').disabled, false);
});

test('what came of an action goes when a model is chosen that it does not tell of', async () => {
  const kernel = new TableKernel({ save: () => saved });
  const view = bar(kernel, models, saving);
  const told = (): string => text(view.element.querySelector('.hl-outcome') as Element);
  await view.save();
  const message = told();
  assert.notEqual(message, '');
  view.setModel(models[0] as Model);
  assert.equal(told(), message);
  view.setModel(models[1] as Model);
  assert.equal(told(), '');
  await view.save(models.slice(0, 2));
  view.setModel(models[0] as Model);
  assert.notEqual(told(), '');
  view.setModel(models[2] as Model);
  assert.equal(told(), '');
});

test('an emptied file name shows the name that is used', async () => {
  const kernel = new TableKernel({ save: () => saved });
  const view = bar(kernel, models, saving);
  const input = view.element.querySelector<HTMLInputElement>('.hl-file input');
  assert.ok(input);
  input.value = '';
  input.dispatchEvent(new Event('input'));
  assert.equal(input.placeholder, 'net.hlab');
  await view.save();
  assert.equal((kernel.asked[0]?.body as { file: string }).file, 'net.hlab');
});
