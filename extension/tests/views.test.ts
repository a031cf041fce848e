// The views, without Lab: tree, graph, findings, actions, panel.

import { buttonOf, click, mount, mountParts, press, settle } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RequestError } from '../src/protocol/channel';
import type { BlockNode, Location, Model } from '../src/protocol/messages';
import { ActionBar } from '../src/view/action-bar';
import { withChanges } from '../src/view/block-index';
import { BlockTree } from '../src/view/block-tree';
import type { ListedFinding } from '../src/view/findings-list';
import { FindingsList, listed } from '../src/view/findings-list';
import { renderMarkdown } from '../src/view/markdown';
import type { KernelState } from '../src/view/panel-view';
import { PanelView } from '../src/view/panel-view';
import { safeSvg } from '../src/view/safe-svg';
import { accessPath, countText, shapeText } from '../src/view/words';
import { TableKernel, block, diagnostic, graph, model, network, noLayout, noPanes, saved } from './records';

const rows = (root: Element): string[] =>
  [...root.querySelectorAll('[role=treeitem]')].map(row => row.getAttribute('data-path') ?? '');
const focused = (): string | null => document.activeElement?.getAttribute('data-path') ?? null;

function tree(): { tree: BlockTree; selected: string[]; opened: string[] } {
  const selected: string[] = [];
  const opened: string[] = [];
  const view = new BlockTree({
    onSelect: node => selected.push(node.path),
    onOpen: node => opened.push(node.path)
  });
  mount(view.element);
  view.show(network(), 'm1');
  return { tree: view, selected, opened };
}

const item = (root: Element, path: string): HTMLElement => {
  const found = [...root.querySelectorAll<HTMLElement>('[role=treeitem]')].find(
    row => row.dataset.path === path
  );
  assert.ok(found, `row ${path}`);
  return found;
};

test('of 10,000 Blocks only the rows in view are there, and a key in the filter is quick', async () => {
  const groups = Array.from({ length: 100 }, (_, g) =>
    block(`g${g}`, {
      class: 'HybridSequential',
      children: Array.from({ length: 99 }, (__, i) =>
        block(`g${g}.${i}`, { state: i === 98 ? 'eager' : 'inlined', class: i % 2 ? 'Dense' : 'Conv2D' })
      )
    })
  );
  const selected: string[] = [];
  const view = new BlockTree({ onSelect: node => selected.push(node.path) });
  mount(view.element);
  view.show(block('', { class: 'Net', children: groups }), 'm1');
  const input = view.element.querySelector('input');
  assert.ok(input);
  input.value = 'dense';
  input.dispatchEvent(new Event('input'));
  assert.equal(view.element.querySelector('[role=status]')?.textContent, '4,900 matches');
  assert.ok(rows(view.element).length < 60, `${rows(view.element).length} rows`);
  input.value = 'eager'; // a state
  input.dispatchEvent(new Event('input'));
  assert.equal(view.element.querySelector('[role=status]')?.textContent, '100 matches');

  press(input, 'ArrowDown');
  assert.equal(focused(), '');
  press(item(view.element, ''), 'End');
  assert.deepEqual([focused(), selected], ['g99.98', ['g99.98']]);
  assert.equal(item(view.element, 'g99.98').style.top, `${200 * 24}px`);
  const list = view.element.querySelector('[role=tree]');
  assert.ok(list);
  list.scrollTop = 0;
  list.dispatchEvent(new Event('scroll'));
  assert.equal(focused(), 'g99.98'); // the row with the focus stays
  assert.deepEqual(rows(view.element).slice(0, 3), ['', 'g0', 'g0.98']);
  press(item(view.element, 'g99.98'), 'ArrowUp');
  assert.equal(focused(), 'g99');
});

test('the tree has ARIA levels, positions and one tab stop', () => {
  const { tree: view } = tree();
  assert.deepEqual(rows(view.element), ['', 'features', 'features.0', 'features.1', 'output']);
  const pool = item(view.element, 'features.1');
  const aria = (name: string): string | null => pool.getAttribute(`aria-${name}`);
  assert.deepEqual(['level', 'posinset', 'setsize', 'expanded', 'selected'].map(aria), [
    '3',
    '2',
    '2',
    null,
    'false'
  ]);
  assert.equal(item(view.element, 'features').getAttribute('aria-expanded'), 'true');
  assert.equal(view.element.querySelectorAll('[role=treeitem][tabindex="0"]').length, 1);
  assert.match(item(view.element, 'output').textContent ?? '', /Dense.*\(\?, 10\).*850/);
});

test('arrow keys walk, fold and unfold; Enter opens; letters find', () => {
  const { tree: view, selected, opened } = tree();
  item(view.element, '').focus();
  const key = (name: string): void => press(document.activeElement as Element, name);
  key('ArrowDown');
  assert.equal(focused(), 'features');
  key('ArrowLeft');
  assert.deepEqual(rows(view.element), ['', 'features', 'output']);
  key('ArrowRight');
  key('ArrowRight');
  assert.equal(focused(), 'features.0');
  key('ArrowLeft');
  assert.equal(focused(), 'features');
  key('End');
  assert.equal(focused(), 'output');
  key('Home');
  assert.equal(focused(), '');
  key('o');
  assert.equal(focused(), 'output');
  key('Enter');
  assert.deepEqual(opened, ['output']);
  assert.equal(selected[selected.length - 1], 'output');
});

test('the filter shows matches and what leads to them', () => {
  const big = network();
  big.children.push(block('head', { children: [block('head.0')] }));
  const view = new BlockTree({ onSelect: () => undefined });
  mount(view.element);
  view.show(big, 'm2');
  const search = view.element.querySelector('input');
  assert.ok(search);
  search.value = 'conv';
  search.dispatchEvent(new Event('input'));
  assert.deepEqual(rows(view.element), ['', 'features', 'features.0']);
  assert.equal(view.element.querySelector('[role=status]')?.textContent, '1 match');
});

test('a new snapshot of the same model keeps what was folded and selected', () => {
  const { tree: view } = tree();
  view.select('features.1');
  click(item(view.element, 'features').querySelector('.hl-twisty'));
  view.show(network(), 'm1');
  assert.deepEqual(rows(view.element), ['', 'features', 'output']);
  assert.equal(view.selected, 'features.1');
});

test('names from the model are text, never markup', () => {
  const view = new BlockTree({ onSelect: () => undefined });
  mount(view.element);
  view.show(block('', { attr: '<img src=x onerror=alert(1)>', class: '<b>' }), 'evil');
  assert.equal(view.element.querySelector('img, b'), null);
  assert.match(view.element.textContent ?? '', /<img src=x/);
});

test('SVG loses scripts, links, styles and event attributes', () => {
  const evil =
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" onload="x()" width="9">' +
    '<script>x()</script><style>*{}</style><a xlink:href="javascript:x()"><text onclick="x()">kept</text></a>' +
    '<foreignObject><p xmlns="http://www.w3.org/1999/xhtml">x</p></foreignObject><image href="http://x/"/>' +
    '<path d="M0 0" fill="url(http://x/)"/><use href="#a"/></svg>';
  const clean = new XMLSerializer().serializeToString(safeSvg(evil));
  assert.match(clean, /kept/);
  assert.doesNotMatch(clean, /script|style|href|onload|onclick|foreignObject|image|url\(|<use|<a[ >]/);
  assert.throws(() => safeSvg('<html>'), /SVG/);
});

test('attributes that CSS reads hold no function, escape or comment that could refer to a document', () => {
  const written = (attribute: string, value: string): string => {
    const source = `<svg xmlns="http://www.w3.org/2000/svg"><rect ${attribute}="${value}"/></svg>`;
    return safeSvg(source).querySelector('rect')?.getAttribute(attribute) ?? '';
  };
  for (const value of [
    ...[
      '\\75rl(http://x)',
      'u\\72 l(http://x)',
      'u/**/rl(http://x)',
      'url (http://x)',
      'URL(x)',
      '&#117;rl(x)'
    ],
    ...[
      'image-set(x)',
      'src(x)',
      'rgb(url(x))',
      'red;behavior:x',
      '-moz-binding:x',
      '@import x',
      'red!important'
    ]
  ]) {
    for (const attribute of ['fill', 'stroke', 'transform', 'd', 'font-family']) {
      assert.equal(written(attribute, value), '', `${attribute}=${value}`);
    }
  }
  assert.equal(written('fill', 'rgb(1, 2, 3)'), 'rgb(1, 2, 3)');
  assert.equal(written('transform', 'translate(1,2) scale(.5)'), 'translate(1,2) scale(.5)');
  assert.equal(written('font-family', "'Segoe UI', sans-serif"), "'Segoe UI', sans-serif");
  assert.equal(written('fill', 'var(--jp-ui, #fff)'), 'var(--jp-ui, #fff)');
});

test('findings are sorted by severity; a place that can be reached is a button', () => {
  const list = new FindingsList();
  const jumps: string[] = [];
  const place = { file: '', cell: 3, cell_id: 'c3', line: 2, col: 4, end_line: 2, end_col: 11 };
  const items = [
    diagnostic({ severity: 'note', code: 'HL131' }),
    diagnostic({ location: { ...place, label: 'cell 3, line 2' } })
  ];
  list.show(
    listed(items, location => jumps.push(location.cell_id)),
    'none'
  );
  const codes = [...list.element.querySelectorAll('.hl-finding-code')].map(code => code.textContent);
  assert.deepEqual(codes, ['HL101', 'HL131']);
  click(buttonOf(list.element, 'cell 3, line 2'));
  assert.deepEqual(jumps, ['c3']);
});

test('equal findings keep their elements and go to the newest place', () => {
  const list = new FindingsList();
  const jumps: string[] = [];
  const show = (cell: string, code = 'HL101'): void =>
    list.show([{ diagnostic: diagnostic({ code }), place: 'line 2', jump: () => jumps.push(cell) }], 'none');
  show('first');
  const place = buttonOf(list.element, 'line 2');
  show('second');
  assert.equal(buttonOf(list.element, 'line 2'), place);
  click(place);
  assert.deepEqual(jumps, ['second']);
  show('second', 'HL102');
  assert.notEqual(buttonOf(list.element, 'line 2'), place);
});

test('rule texts: code, bold, lists; links and HTML stay text', () => {
  const element = renderMarkdown(
    'Why: **no** `shape`, see [it](javascript:x).\n\n- one\n- <b>two</b>\n\nBad:\n    indented\n\n```\nfenced\n```'
  );
  assert.equal(element.querySelectorAll('pre').length, 2);
  assert.equal(element.querySelector('strong')?.textContent, 'no');
  assert.equal(element.querySelector('a, b'), null);
  assert.deepEqual(
    [...element.querySelectorAll('li')].map(li => li.textContent),
    ['one', '<b>two</b>']
  );
});

test('words', () => {
  assert.deepEqual(
    [shapeText([]), shapeText([3]), shapeText([null, 4]), shapeText(null)],
    ['()', '(3,)', '(?, 4)', '?']
  );
  assert.deepEqual(
    [countText(0), countText(61706), countText(2.5e8), countText(null)],
    ['0', '61.7 k', '250 M', '?']
  );
  assert.equal(accessPath('net', 'features.0.body'), 'net.features[0].body');
});

function actionBar(kernel: TableKernel, shown: Model = model()): ActionBar & { element: HTMLElement } {
  const bar = new ActionBar({ withOpen: true, onChanged: () => undefined });
  bar.connect(kernel);
  bar.setModel(shown);
  return mountParts(bar, bar.buttons, bar.more, bar.outcome);
}

test('Save shows the absolute path and the host', async () => {
  const kernel = new TableKernel({ save: () => saved });
  const bar = actionBar(kernel);
  await bar.save();
  assert.deepEqual(kernel.asked[0]?.body, { model: 'm1', file: 'net.hlab', overwrite: false });
  const status = bar.element.querySelector('[role=status].hl-results')?.textContent ?? '';
  assert.match(status, /\/home\/ada\/work\/net\.hlab on lab-host/);
});

test('an existing file is replaced only after a yes', async () => {
  const kernel = new TableKernel({
    save: body => {
      if (!body.overwrite) {
        throw new RequestError('exists', 'net.hlab exists');
      }
      return saved;
    }
  });
  const bar = actionBar(kernel);
  const refused = bar.save();
  await settle();
  click(buttonOf(bar.element, 'Cancel'));
  await refused;
  assert.deepEqual(
    kernel.asked.map(each => each.type),
    ['save', 'targets']
  );
  const accepted = bar.save();
  await settle();
  click(buttonOf(bar.element, 'Replace it'));
  await accepted;
  assert.equal((kernel.asked.at(-1)?.body as { overwrite: boolean }).overwrite, true);
});

test('a file that differs lists everything, and can win', async () => {
  const kernel = new TableKernel({
    reload: body => {
      if (body.graphs === 'code') {
        throw new RequestError('differs', 'net.hlab does not fit net.', '', ['fc1: renamed', 'fc2: missing']);
      }
      return {
        path: '/p/net.hlab',
        file: 'net.hlab',
        host: 'h',
        summary: '',
        graphs: 1,
        parameters: 2,
        diff: [],
        undo: 'u1',
        seconds: 0,
        difference: null,
        notes: []
      };
    },
    undo: () => ({ summary: 'net is back.' })
  });
  const bar = actionBar(kernel);
  const reload = bar.reload();
  await settle();
  assert.deepEqual(
    [...bar.element.querySelectorAll('.hl-confirm li')].map(li => li.textContent),
    ['fc1: renamed', 'fc2: missing']
  );
  click(buttonOf(bar.element, "Use the file's graphs"));
  await reload;
  bar.setModel(model({ undo: 'u1', undoes: 'the reload of net.hlab' }));
  assert.equal(buttonOf(bar.element, 'Undo').disabled, false);
  assert.equal(buttonOf(bar.element, 'Undo').title, 'Undo the reload of net.hlab');
  await bar.undo();
  assert.deepEqual(kernel.asked.at(-1), { type: 'undo', body: { model: 'm1', undo: 'u1' } });
  assert.match(bar.element.textContent ?? '', /net is back/);
});

test('a failed save is an alert with the next step', async () => {
  const kernel = new TableKernel({
    save: () => {
      throw new RequestError('bad-file-name', '../x is not a file name.', 'Give a name without /.');
    }
  });
  const bar = actionBar(kernel);
  await bar.save();
  assert.match(bar.element.querySelector('[role=alert]')?.textContent ?? '', /not a file name\.Give a name/);
  assert.equal(buttonOf(bar.element, 'Save net').disabled, false);
});

test('Open without code lists archives and binds a variable', async () => {
  const archive = { bytes: 10, modified: 0, class: 'Net', blocks: 3, graphs: 1, problem: '', variable: '' };
  const kernel = new TableKernel({
    archives: body => ({
      folder: '/p',
      host: 'h',
      archives: body.path
        ? [{ ...archive, file: 'runs/a/deep.hlab' }]
        : [{ ...archive, file: 'my net.hlab' }],
      folders: body.path ? [] : ['runs']
    }),
    open: body => ({ model: model({ name: body.name }), path: '/p/my net.hlab', summary: '1 graph.' })
  });
  const bar = actionBar(kernel);
  await bar.showOpenForm();
  click(buttonOf(bar.element, 'Open'));
  await settle();
  assert.deepEqual(kernel.asked[1]?.body, { file: 'my net.hlab', name: 'my_net', replace: false });
  assert.match(bar.element.textContent ?? '', /Opened as my_net/);

  // Another folder, or a file in it, is named in a field that proposes folders.
  await bar.showOpenForm();
  const folder = bar.element.querySelector<HTMLInputElement>('[aria-label=Folder]')!;
  assert.deepEqual(
    [...bar.element.querySelectorAll<HTMLOptionElement>('.hl-open-form datalist option')].map(
      item => item.value
    ),
    ['runs']
  );
  folder.value = '/runs/a/deep.hlab';
  folder.dispatchEvent(new Event('input'));
  await settle();
  assert.deepEqual(kernel.asked.at(-1)?.body, { path: 'runs/a' });
  click(buttonOf(bar.element, 'Open'));
  await settle();
  assert.deepEqual(kernel.asked.at(-1)?.body, { file: 'runs/a/deep.hlab', name: 'deep', replace: false });
});

function panelState(kernel: TableKernel | null, models: Model[], root: BlockNode = network()): KernelState {
  if (kernel) {
    kernel.answers.tree ??= body => ({ model: models.find(m => m.id === body.model) ?? model(), root });
    kernel.answers.findings ??= () => ({ findings: [diagnostic()] });
    kernel.answers.graph ??= body => graph({ path: body.path });
  }
  return {
    key: 'k1',
    text: 'hybrid_lab 0.1.0',
    kind: 'ready',
    requester: kernel,
    hello: kernel && {
      kernel: '0.1.0',
      kernel_id: 'k1',
      protocol: 1,
      python: '3.12',
      host: 'h',
      folder: '/p',
      engine: '',
      subshells: true
    },
    models: kernel && { models, busy: false, notes: [], saving: {}, folder: '' },
    curves: null
  };
}

function panel(): PanelView {
  const view = new PanelView({
    layout: noLayout,
    panes: noPanes,
    onLocation: () => undefined,
    onConnect: () => undefined
  });
  mount(view.element);
  return view;
}

test('the panel shows a model: tree, graph and findings', async () => {
  const view = panel();
  view.update(panelState(new TableKernel({}), [model()]));
  await settle(200);
  assert.deepEqual(rows(view.element).length, 5);
  assert.ok(view.element.querySelector('svg .hl-g-node'));
  assert.match(view.element.textContent ?? '', /Findings \(1\)/);
});

test('the panel starts with a model that runs as a graph, and with a loss only while there is nothing else', async () => {
  const loss = model({ id: 'm1', name: 'loss_of', class: 'L2Loss', hybridized: false, graphs: 0 });
  const eager = model({ id: 'm2', name: 'eager', hybridized: false, graphs: 1 });
  const net = model({ id: 'm3', name: 'net' });
  const kernel = new TableKernel({});
  const stateOf = (...models: Model[]): KernelState => {
    const state = panelState(kernel, models);
    const left_out = 'a loss function';
    return {
      ...state,
      models: state.models && { ...state.models, saving: { m1: { left_out, autosave: null } } }
    };
  };
  const shown = (view: PanelView): string | undefined => view.element.querySelector('select')?.value;
  const late = panel();
  late.update(stateOf(loss, eager, net));
  assert.equal(shown(late), 'm3');
  const early = panel();
  early.update(stateOf(loss));
  assert.equal(shown(early), 'm1');
  early.update(stateOf(loss, eager));
  assert.equal(shown(early), 'm2');
  early.update(stateOf(loss, eager, net)); // a model that is no loss stays
  assert.equal(shown(early), 'm2');
  const picker = early.element.querySelector('select');
  assert.ok(picker);
  picker.value = 'm1';
  picker.dispatchEvent(new Event('change'));
  early.update(stateOf(loss, eager, net));
  assert.equal(shown(early), 'm1');
});

test('the panel asks again only when the revision grew', async () => {
  const view = panel();
  const kernel = new TableKernel({});
  const trees = (): number =>
    kernel.asked.filter(request => request.type === 'tree' || request.type === 'changes').length;
  view.update(panelState(kernel, [model()]));
  await settle(20);
  view.update(panelState(kernel, [model()]));
  await settle(20);
  assert.equal(trees(), 1);
  view.update(panelState(kernel, [model({ revision: 2 })]));
  await settle(20);
  assert.equal(trees(), 2);
});

test('of a model that is shown the panel asks for what changed; of another kernel for the whole tree', async () => {
  const { children: _, ...row } = block('features.0', { class: 'Dropout' });
  const { children: __, ...parent } = block('features', { class: 'HybridSequential' });
  const blocks = [
    { ...row, below: [] },
    { ...parent, below: ['features.0'] }
  ];
  const answers = {
    changes: () => ({ model: model({ revision: 2 }), whole: false, blocks })
  };
  const view = panel();
  const kernel = new TableKernel(answers);
  view.update(panelState(kernel, [model()]));
  await settle(20);
  view.update(panelState(kernel, [model({ revision: 2 })]));
  await settle(20);
  assert.deepEqual(rows(view.element), ['', 'features', 'features.0', 'output']);
  assert.match(view.element.querySelector('[data-path="features.0"]')?.textContent ?? '', /Dropout/);
  assert.deepEqual(
    kernel.asked.filter(({ type }) => type === 'changes').map(({ body }) => body),
    [{ model: 'm1', since: 1 }]
  );
  const restarted = new TableKernel(answers);
  view.update({ ...panelState(restarted, [model({ revision: 3 })]), key: 'restarted' });
  await settle(20);
  assert.equal(rows(view.element).length, 5);
  assert.ok(!restarted.asked.some(({ type }) => type === 'changes'));
});

test('changes that do not fit the tree, and a revision of which the kernel knows only the whole, give no tree', () => {
  const { children: _, ...row } = block('', { class: 'Net' });
  const reply = { model: model(), whole: false, blocks: [{ ...row, below: ['unknown'] }] };
  assert.equal(withChanges(network(), reply), null);
  assert.equal(withChanges(network(), { model: model(), whole: true, blocks: [] }), null);
  assert.deepEqual(withChanges(network(), { model: model(), whole: false, blocks: [] }), network());
});

test('without a kernel, without hybrid_lab, without a model: the panel says what to do', () => {
  const view = panel();
  assert.match(view.element.textContent ?? '', /Open a Python notebook/);
  view.update({ ...panelState(null, []), text: 'hybrid_lab is not imported', kind: 'off' });
  assert.equal(buttonOf(view.element, 'Connect').hidden, false);
  view.update(panelState(new TableKernel({}), []));
  assert.match(view.element.querySelector('.hl-hint')?.textContent ?? '', /No model in this kernel yet/);
  assert.equal(buttonOf(view.element, 'Open without code').disabled, false);
  assert.equal(buttonOf(view.element, 'Save').disabled, true);
});

test('a finding of linter and trace at one place is listed once', async () => {
  const view = panel();
  const place = {
    file: '',
    label: 'cell 3, line 2',
    cell: 3,
    cell_id: 'c3',
    line: 2,
    col: 4,
    end_line: 2,
    end_col: 11
  };
  const found = diagnostic({ location: place });
  const kernel = new TableKernel({ findings: () => ({ findings: [found] }) });
  view.update(panelState(kernel, [model()]));
  view.setCellFindings([{ diagnostic: found, place: 'cell 3, line 2', jump: () => undefined }]);
  await settle(20);
  assert.match(view.element.textContent ?? '', /Findings \(1\)/);
});

test('the tab counts the findings of the model; others of the notebook are listed below', async () => {
  const view = panel();
  const place = { file: '', cell: 3, cell_id: 'c3', col: 4, end_col: 11 };
  const at = (line: number): ReturnType<typeof diagnostic> =>
    diagnostic({
      line,
      location: { ...place, line, end_line: line, label: `cell 3, line ${line}` }
    });
  const kernel = new TableKernel({ findings: () => ({ findings: [at(2)] }) });
  view.update(panelState(kernel, [model()]));
  view.setCellFindings(
    [2, 7].map(line => ({ diagnostic: at(line), place: `cell 3, line ${line}`, jump: () => undefined }))
  );
  await settle(20);
  assert.match(view.element.textContent ?? '', /Findings \(1\)/);
  const others = view.element.querySelector<HTMLElement>('.hl-others');
  assert.equal(others?.hidden, false);
  const places = (root: Element): (string | null)[] =>
    [...root.querySelectorAll('.hl-finding-place')].map(found => found.textContent);
  assert.deepEqual(places(others as Element), ['cell 3, line 7']);
  assert.deepEqual(places(others.previousElementSibling as Element), ['cell 3, line 2']);
  view.setCellFindings([]);
  assert.match(view.element.textContent ?? '', /Findings \(1\)/);
  assert.equal(others.hidden, true);
});

test('a finding names its Block and leads to its row, also where the linter reports it', async () => {
  const place: Location = {
    ...{ file: '', cell: 3, cell_id: 'c3', line: 2, col: 4, end_line: 2, end_col: 9 },
    label: 'cell 3, line 2'
  };
  const found = diagnostic({ location: place, block: 'net.features.1' });
  const view = panel();
  const unknown = diagnostic({ code: 'HL102', block: 'other.features', location: { ...place, line: 9 } });
  const kernel = new TableKernel({ findings: () => ({ findings: [found, unknown] }) });
  view.update(panelState(kernel, [model()]));
  view.setCellFindings([
    { diagnostic: diagnostic({ location: place }), place: 'cell 3, line 2', jump: () => undefined }
  ]);
  await settle(20);
  const links = [...view.element.querySelectorAll<HTMLElement>('.hl-finding-block')];
  assert.deepEqual(
    links.map(link => link.textContent),
    ['net.features[1]: MaxPool2D']
  );
  click(links[0]);
  assert.equal(
    view.element.querySelector<HTMLElement>('[role=treeitem][aria-selected=true]')?.dataset.path,
    'features.1'
  );
});

test('a finding lists the calls that lead to it, and a finding at a call is not listed twice', async () => {
  const at = (cell: number, line: number): Location => {
    const place = { file: '', cell, cell_id: `c${cell}`, line, col: 4, end_line: line, end_col: 9 };
    return { ...place, label: `cell ${cell}, line ${line}` };
  };
  const jumps: string[] = [];
  const list = new FindingsList();
  const library: Location = {
    ...at(1, 80),
    cell: null,
    cell_id: '',
    file: 'ops.py',
    label: 'ops.py, line 80'
  };
  const call = { message: 'calls `scale`', location: at(3, 2) };
  const found = diagnostic({ location: library, calls: [call] });
  list.show(
    listed([found], location => jumps.push(location.cell_id)),
    'none'
  );
  click(buttonOf(list.element, 'cell 3, line 2'));
  assert.deepEqual(jumps, ['c3']);
  const view = panel();
  view.update(panelState(new TableKernel({ findings: () => ({ findings: [found] }) }), [model()]));
  view.setCellFindings([
    { diagnostic: diagnostic({ location: at(3, 2) }), place: 'cell 3, line 2', jump: () => undefined }
  ]);
  await settle(20);
  assert.equal(view.element.querySelectorAll('.hl-finding').length, 1);
});

test('findings have a button for their fix, and one for all safe fixes', () => {
  const applied: string[] = [];
  const list = new FindingsList();
  mount(list.element);
  const finding = (line: number, safe: boolean): ListedFinding => ({
    diagnostic: diagnostic({ line }),
    place: `cell 1, line ${line}`,
    jump: null,
    fix: { title: `Write ${line}`, safe, apply: focus => applied.push(`${line} ${focus}`) }
  });
  list.show([finding(1, true), finding(2, false), finding(3, true)], 'None.');
  click(buttonOf(list.element, 'Write 2 (check the result)'));
  click(buttonOf(list.element, 'Apply all 2 safe fixes'));
  assert.deepEqual(applied, ['2 true', '3 false', '1 true']);
});
