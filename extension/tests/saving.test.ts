// Saving, comparing and reloading: what is asked, what is shown, and what stays.

import { buttonOf, click, mount, mountParts, settle } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RequestError } from '../src/protocol/channel';
import type {
  Archive,
  Difference,
  GraphBox,
  KeptSave,
  Model,
  ReloadReply,
  SaveReply,
  Saving,
  Target
} from '../src/protocol/messages';
import { ActionBar } from '../src/view/action-bar';
import type { GraphMark } from '../src/view/diff-view';
import { diffView, markedNodes } from '../src/view/diff-view';
import { shortList } from '../src/view/action-results';
import { h } from '../src/view/dom';
import { graphWords } from '../src/view/save-part';
import { TableKernel, box, graph, model, node, saved } from './records';

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
      move: '',
      exchange: '',
      first_path: '',
      second_path: '',
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
      move: '',
      exchange: '',
      first_path: 'extra.<img src=x>',
      second_path: null,
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
          first_name: '',
          exchanged: '',
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
    line: 'cell 1, line 2',
    first_block: ''
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

test('in the picture of a plain Block the operators that differ are marked in each call of the graph', () => {
  const called = (id: string, block: string, parent = ''): GraphBox =>
    box(id, { block, parent, kind: 'block' });
  const picture = graph({
    path: '',
    boxes: [called('b0', 'enc'), called('b1', 'enc.0', 'b0'), called('b2', 'enc'), called('b3', 'head')],
    nodes: [
      node('n0', { block: 'enc.0', box: 'b1' }),
      node('n1', { block: 'enc.0', box: 'b1' }),
      node('n2', { block: '', box: '' }),
      node('n3', { block: 'enc.0', box: 'b2' }),
      node('n4', { block: 'enc.0', box: 'b2' }),
      node('n5', { block: 'head', box: 'b3' })
    ]
  });
  const marks: GraphMark[] = [{ graph: 'enc', block: 'enc.0', place: 1, kind: 'changed' }];
  const ids = (wanted: GraphMark[]): string[] => markedNodes(picture, wanted).map(item => item.id);
  assert.deepEqual(ids(marks), ['n1', 'n4']);
  assert.deepEqual(ids([...marks, { graph: 'head', block: 'head', place: 0, kind: 'added' }]), [
    'n1',
    'n4',
    'n5'
  ]);
  assert.deepEqual(ids([{ graph: 'gone', block: 'gone', place: 0, kind: 'added' }]), []);
});

test('a long list shows its first lines; the rest unfolds and is counted', () => {
  const lines = Array.from({ length: 51 }, (_, i) => `the graph of ${i}`);
  const place = h('div', {}, ...shortList(lines));
  assert.equal(place.querySelectorAll(':scope > ul > li').length, 5);
  assert.equal(place.querySelector('details summary')?.textContent, 'and 46 more');
  assert.equal(place.querySelectorAll('details li').length, 46);
  assert.equal(place.querySelector('details')?.open, false);
  assert.equal(h('div', {}, ...shortList(lines.slice(0, 6))).querySelectorAll('li').length, 6);
  assert.deepEqual(shortList([]), []);
});

test('operators that differ are found in the graph by their place in their Block', () => {
  const nodes = [
    node('n0', { kind: 'input' }),
    node('n1', { block: 'a' }),
    node('n2', { block: 'b' }),
    node('n3', { block: 'a' })
  ];
  const items = markedNodes(graph({ nodes }), [
    { graph: '', block: 'a', place: 1, kind: 'changed' },
    { graph: '', block: 'b', place: 0, kind: 'added' },
    { graph: '', block: 'b', place: 1, kind: 'added' }
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
        { graph: '', block: '', place: 3, kind: 'changed' },
        { graph: '', block: '', place: 3, kind: 'added' }
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

const theirs = new RequestError(
  'exists',
  'net.hlab was saved by another kernel',
  'It is kept among the earlier saves.',
  ['the graph of head']
);

test('a save is one click, and can be undone where its outcome is', async () => {
  const kernel = new TableKernel({
    save: () => ({ ...saved, kept: '.hybrid_lab_history/net.1.hlab' }),
    undo: () => ({ summary: 'net.hlab is as it was before the save' })
  });
  const view = bar(kernel);
  click(buttonOf(view.element, 'Save net'));
  await settle();
  assert.deepEqual(kernel.asked[0], {
    type: 'save',
    body: { model: 'm1', file: 'net.hlab', overwrite: false }
  });
  assert.match(text(view.element), /Saved net.*is among the earlier saves/s);
  click(buttonOf(view.element, 'Undo this save'));
  await settle();
  assert.deepEqual(kernel.asked.find(each => each.type === 'undo')?.body, { model: 'm1', undo: 'u0' });
  assert.match(text(view.element), /as it was before the save/);
});

test('a question says whose file it is and what would be lost, and the version of the file is sent', async () => {
  const kernel = new TableKernel({
    save: body => {
      if (!body.overwrite) {
        throw theirs;
      }
      return saved;
    },
    targets: () => ({ targets: [target()] })
  });
  const view = bar(kernel);
  click(buttonOf(view.element, 'Save net'));
  await settle();
  assert.match(
    text(view.element),
    /Save net\?.*another kernel.*Net, 6 graphs, 61\.7 kB, 2 min ago.*graph of head/s
  );
  click(buttonOf(view.element, 'Cancel'));
  await settle();
  assert.match(text(view.element), /net was not saved/);
  assert.deepEqual(
    kernel.asked.map(each => each.type),
    ['save', 'targets']
  );
  click(buttonOf(view.element, 'Save net'));
  await settle();
  click(buttonOf(view.element, 'Replace it'));
  await settle();
  assert.deepEqual(kernel.asked.filter(each => each.type === 'save').at(-1)?.body, {
    model: 'm1',
    file: 'net.hlab',
    overwrite: true,
    replaces: 'v1'
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

// -- each kernel and each model has its own outcome ---------------------------------------------------------------

/** A kernel whose end can be told. */
class MortalKernel extends TableKernel {
  readonly closed = new Promise<void>(resolve => (this.end = resolve));
  end!: () => void;
}

const asking = (): TableKernel =>
  new TableKernel({
    save: body => {
      if (!body.overwrite) {
        throw theirs;
      }
      return saved;
    },
    targets: () => ({ targets: [target()] })
  });

/** Bring the notebook of a kernel in front. */
function front(view: ActionBar, kernel: TableKernel | null, models: Model[]): void {
  view.connect(kernel, 'none');
  view.setModels(models);
  view.setModel(models[0] ?? null);
}

const outcome = (view: ActionBar): string => text(view.outcome);
const ofA = [model({ id: 'm1.a' })];
const ofB = [model({ id: 'm1.b' })];

test('a question of one notebook is not shown in another, blocks nothing there, and waits', async () => {
  const [a, b] = [asking(), asking()];
  const view = bar(a, ofA);
  front(view, b, ofB);
  click(buttonOf(view.element, 'Save net'));
  await settle();
  assert.match(outcome(view), /another kernel/);
  front(view, a, ofA);
  assert.equal(outcome(view), '');
  assert.throws(() => buttonOf(view.element, 'Replace it'));
  click(buttonOf(view.element, 'Save net'));
  await settle();
  click(buttonOf(view.element, 'Replace it'));
  await settle();
  assert.match(outcome(view), /Saved net/);
  assert.equal(b.asked.filter(each => each.type === 'save').length, 1);
  assert.ok(a.asked.every(each => (each.body as { model?: string }).model !== 'm1.b'));
  front(view, b, ofB);
  click(buttonOf(view.element, 'Replace it'));
  await settle();
  assert.equal(
    (b.asked.filter(each => each.type === 'save').at(-1)?.body as { model: string }).model,
    'm1.b'
  );
  assert.match(outcome(view), /Saved net/);
});

test('a question about one model waits while another one is in front, and blocks nothing there', async () => {
  const kernel = asking();
  const view = bar(kernel, models);
  click(buttonOf(view.element, 'Save net'));
  await settle();
  view.setModel(models[1] as Model);
  assert.equal(outcome(view), '');
  click(buttonOf(view.element, 'Save big'));
  await settle();
  click(buttonOf(view.element, 'Replace it'));
  await settle();
  const last = kernel.asked.filter(each => each.type === 'save').at(-1)?.body as {
    model: string;
    file: string;
  };
  assert.deepEqual([last.model, last.file], ['m2', 'big.hlab']);
  view.setModel(models[0] as Model);
  assert.match(outcome(view), /Save net\?/);
});

test('questions and results vanish with their kernel, and with their model', async () => {
  const kernel = new MortalKernel(asking().answers);
  const view = bar(kernel, models);
  click(buttonOf(view.element, 'Save net'));
  await settle();
  view.setModels(models.slice(1));
  view.setModel(models[1] as Model);
  view.setModels(models);
  view.setModel(models[0] as Model);
  assert.equal(outcome(view), '');
  assert.equal(buttonOf(view.element, 'Save net').disabled, false);
  click(buttonOf(view.element, 'Save net'));
  await settle();
  assert.match(outcome(view), /Save net\?/);
  front(view, null, []);
  kernel.end();
  await settle();
  front(view, new TableKernel({}), ofA);
  assert.equal(outcome(view), '');
  assert.equal(kernel.asked.filter(each => (each.body as { overwrite?: boolean }).overwrite).length, 0);
});

test('what ends behind another notebook shows nothing there and chooses no model', async () => {
  let finish: (reply: SaveReply) => void = () => undefined;
  const slow = new TableKernel({ save: () => new Promise<SaveReply>(resolve => (finish = resolve)) });
  const changed: (Model | null)[] = [];
  let seen = 0;
  const view = new ActionBar({
    withOpen: true,
    onChanged: each => changed.push(each),
    onOutcome: () => seen++
  });
  front(view, slow, ofA);
  const done = view.save();
  front(view, new TableKernel({}), ofB);
  const before = seen;
  finish(saved);
  await done;
  assert.deepEqual(changed, []);
  assert.equal(seen, before);
  assert.equal(view.outcome.textContent, '');
  front(view, slow, ofA);
  assert.match(view.outcome.textContent, /Saved net/);
});

// -- every model --------------------------------------------------------------------------------------------------

const models = [
  model({ id: 'm1', name: 'net', file: 'net.hlab' }),
  model({ id: 'm2', name: 'big', file: 'big.hlab' }),
  model({ id: 'm3', name: 'loss', class: 'L2Loss', file: 'loss.hlab' })
];
const saving = { m1: none, m2: none, m3: { left_out: 'a loss function', autosave: null } };

test('every model is saved by one click; losses are left out, which is said; all saves are undone together', async () => {
  const kernel = new TableKernel({
    save: body => ({ ...saved, file: body.file, undo: `of ${body.model}` }),
    undo: () => ({ summary: 'as it was' })
  });
  const view = bar(kernel, models, saving);
  click(buttonOf(view.element, 'Save every model (2)'));
  await settle();
  assert.deepEqual(
    kernel.asked.filter(each => each.type === 'save').map(each => each.body),
    [
      { model: 'm1', file: 'net.hlab', overwrite: false },
      { model: 'm2', file: 'big.hlab', overwrite: false }
    ]
  );
  assert.match(
    text(view.element),
    /Saved 2 models\..*net\.hlab.*big\.hlab.*Left out: loss \(a loss function\)/s
  );
  click(buttonOf(view.element, 'Undo these saves'));
  await settle();
  assert.deepEqual(
    kernel.asked.filter(each => each.type === 'undo').map(each => each.body),
    [
      { model: 'm1', undo: 'of m1' },
      { model: 'm2', undo: 'of m2' }
    ]
  );
});

test('what needs an answer is asked in one question, after the others are saved; errors name their model', async () => {
  const kernel = new TableKernel({
    save: body => {
      if (body.model === 'm3') {
        throw new RequestError('bad-file-name', 'it is a folder');
      }
      if (body.model !== 'm2' && !body.overwrite) {
        throw theirs;
      }
      return { ...saved, file: body.file };
    },
    targets: () => ({ targets: [target()] })
  });
  const four = [...models, model({ id: 'm4', name: 'gen', file: 'gen.hlab' })];
  const view = bar(kernel, four, { m1: none, m2: none, m3: none, m4: none });
  click(buttonOf(view.element, 'Save every model (4)'));
  await settle();
  const rows = [...view.element.querySelectorAll('.hl-save-row')];
  assert.equal(rows.length, 2);
  assert.match(text(view.element), /2 models not saved yet/);
  rows[1]?.querySelector('input')?.click();
  click(buttonOf(view.element, 'Save these'));
  await settle();
  assert.deepEqual(
    kernel.asked.filter(each => (each.body as { overwrite?: boolean }).overwrite).map(each => each.body),
    [{ model: 'm4', file: 'gen.hlab', overwrite: true, replaces: 'v1' }]
  );
  assert.match(text(view.element), /Saved 2 models.*net was not saved.*loss was not saved.*it is a folder/s);
});

test('all models are reloaded by one click, each from its own file, and that is undone together', async () => {
  const kernel = new TableKernel({
    reload: body => {
      if (body.model === 'm2') {
        throw new RequestError('not-found', 'there is no file big.hlab');
      }
      return reloadReply({ undo: `of ${body.model}` });
    },
    undo: () => ({ summary: 'as it was' })
  });
  const four = [...models, model({ id: 'm4', name: 'gen', file: 'gen.hlab' })];
  const view = bar(kernel, four, { ...saving, m4: none });
  click(buttonOf(view.element, 'Reload all'));
  await settle();
  assert.deepEqual(
    kernel.asked.filter(each => each.type === 'reload').map(each => (each.body as { file: string }).file),
    ['net.hlab', 'big.hlab', 'gen.hlab']
  );
  assert.match(text(view.element), /there is no file big\.hlab/);
  click(buttonOf(view.element, 'Undo these reloads'));
  await settle();
  assert.equal(kernel.asked.filter(each => each.type === 'undo').length, 2);
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
    compare: () => ({ path: '/p/net.hlab', file: 'net.hlab', host: 'h', difference, graphs: null })
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
      difference: { ...difference, equal: true, blocks: [] },
      graphs: null
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
  assert.match(text(view.element), /Saved net\.features\[0\]/);
  click(buttonOf(view.element, 'Reload Block'));
  await settle();
  assert.deepEqual(kernel.asked.at(-1)?.body, { ...body, graphs: 'code' });
  view.setModel(model({ id: 'm2' }));
  assert.throws(() => buttonOf(view.element, 'Save Block'));
});

const kept = (file: string, changes: Partial<KeptSave> = {}): KeptSave => ({
  ...archive,
  file,
  step: null,
  loss: null,
  loss_name: '',
  note: '',
  ...changes
});

/** The saves of an action bar's model, where they are seen. */
async function withHistory(kernel: TableKernel): Promise<HTMLElement> {
  const view = bar(kernel);
  document.body.append(view.saves);
  await view.showSaves();
  return view.saves;
}

test('saves stand in the order of time, and one is compared, reloaded, restored and noted', async () => {
  const old = '.hybrid_lab_history/net.000001.hlab';
  const bad = '.hybrid_lab_history/net.000002.hlab';
  const kernel = new TableKernel({
    history: () => ({
      folder: '/p/.hybrid_lab_history',
      current: kept('net.hlab', { step: 1200, loss: 0.312345, loss_name: 'loss', note: 'good' }),
      saves: [kept(bad, { problem: 'it is cut' }), kept(old, { step: 100, loss: 2.5, loss_name: 'val_loss' })]
    }),
    compare: () => ({ path: '/p/x', file: old, host: 'h', difference, graphs: null }),
    reload: () => reloadReply(),
    restore: () => ({ path: '/p/net.hlab', file: 'net.hlab', host: 'h', summary: 'it is back', undo: 'u2' }),
    note: body => ({ note: body.note })
  });
  const details = await withHistory(kernel);
  const cards = (): HTMLElement[] => [...details.querySelectorAll<HTMLElement>('[role=option]')];
  assert.deepEqual(
    cards().map(card => [...card.querySelectorAll('.hl-save-loss')].map(line => line.textContent)),
    [['step 100', 'val_loss 2.5'], ['damaged'], ['step 1,200', 'loss 0.3123']]
  );
  assert.match(text(cards()[2] as Element), /the file now.*61\.7 kB.*good/s);
  cards()[0]?.click();
  const other = details.querySelector('select');
  assert.ok(other);
  assert.deepEqual(
    [...other.options].map(option => option.value),
    ['', 'net.hlab']
  );
  click(buttonOf(details, 'Compare'));
  await settle();
  other.value = 'net.hlab';
  click(buttonOf(details, 'Compare'));
  await settle();
  assert.deepEqual(
    kernel.asked.filter(each => each.type === 'compare').map(each => each.body),
    [
      { model: 'm1', file: old },
      { model: 'm1', file: old, other: 'net.hlab' }
    ]
  );
  click(buttonOf(details, 'Reload'));
  await settle();
  cards()[0]?.click();
  click(buttonOf(details, 'Restore'));
  await settle();
  assert.deepEqual(kernel.asked.find(each => each.type === 'restore')?.body, { model: 'm1', file: old });
  cards()[0]?.click();
  const note = details.querySelector<HTMLInputElement>('input');
  assert.ok(note);
  note.value = 'before <b>';
  note.dispatchEvent(new Event('change'));
  await settle();
  assert.deepEqual(kernel.asked.find(each => each.type === 'note')?.body, {
    model: 'm1',
    file: old,
    note: 'before <b>'
  });
  assert.equal(details.querySelector('b'), null);
});

test('the strip of saves is one Tab stop with arrow keys; the file itself cannot be restored', async () => {
  const files = ['a.hlab', 'b.hlab', 'c.hlab'];
  const kernel = new TableKernel({
    history: () => ({ folder: '', current: kept('net.hlab'), saves: files.map(file => kept(file)) })
  });
  const details = await withHistory(kernel);
  const stops = (): string[] =>
    [...details.querySelectorAll<HTMLElement>('[role=option]')]
      .filter(card => card.tabIndex === 0)
      .map(card => card.getAttribute('aria-selected') ?? '');
  const press = (key: string): void => {
    details
      .querySelector('[tabindex="0"]')
      ?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  };
  assert.deepEqual(stops(), ['false']);
  press('Enter');
  assert.deepEqual(stops(), ['true']);
  assert.throws(() => buttonOf(details, 'Restore'));
  press('ArrowLeft');
  assert.equal(document.activeElement?.getAttribute('aria-selected'), 'true');
  assert.ok(buttonOf(details, 'Restore'));
  press('Home');
  press('ArrowLeft');
  assert.equal(details.querySelector('[role=option]')?.getAttribute('aria-selected'), 'true');
});

test('a save whose note is changed elsewhere, or that is gone, does not stay chosen', async () => {
  let saves = [kept('a.hlab')];
  const kernel = new TableKernel({ history: () => ({ folder: '', current: null, saves }) });
  const view = bar(kernel);
  document.body.append(view.saves);
  await view.showSaves();
  view.saves.querySelector<HTMLElement>('[role=option]')?.click();
  saves = [];
  await view.showSaves();
  assert.match(text(view.saves), /No saves of net\.hlab yet/);
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
  const unit = [...view.element.querySelectorAll('select')].find(each => text(each).includes('each epoch'));
  assert.ok(unit);
  assert.equal(unit.value, 'off');
  unit.value = 'epoch';
  unit.dispatchEvent(new Event('change'));
  await settle();
  assert.deepEqual(kernel.asked.at(-1)?.body, { model: 'm1', file: '', unit: 'epoch', every: 100 });
  assert.match(text(view.element), /Saves will go to net\.autosave\.hlab/);
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

test('what came of an action is shown with the model that it tells of', async () => {
  const kernel = new TableKernel({ save: () => saved });
  const view = bar(kernel, models, saving);
  await view.save();
  const message = outcome(view);
  assert.match(message, /Saved net/);
  view.setModel(models[1] as Model);
  assert.equal(outcome(view), '');
  view.setModel(models[0] as Model);
  assert.equal(outcome(view), message);
  await view.saveEvery();
  view.setModel(models[2] as Model);
  assert.match(outcome(view), /Saved 2 models/);
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
  const save = kernel.asked.find(each => each.type === 'save');
  assert.equal((save?.body as { file: string }).file, 'net.hlab');
});
