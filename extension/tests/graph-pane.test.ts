// The graph's pane and the model's view around it: keys, pointer, programs, search, messages, static copies.

import { buttonOf, click, mount, press, settle } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { staticSvg, svgText } from '../src/graph/export';
import type { GraphPaneEvents } from '../src/graph/graph-pane';
import { GraphPane } from '../src/graph/graph-pane';
import type { Layout } from '../src/graph/worker';
import { nodesOfLines } from '../src/graph/graph-text';
import { measuredOf } from '../src/graph/measured';
import type { GraphReply, Location, OverlayItem } from '../src/protocol/messages';
import { DrawnGraph } from '../src/view/drawn-graph';
import { ModelView } from '../src/view/model-view';
import { Overlays } from '../src/view/overlays';
import { safeSvg } from '../src/view/safe-svg';
import { deep, pictureOf } from './layouts';
import { TableKernel, graph, kernelBox, model, network, node, noLayout, noPanes } from './records';

// -- overlays ---------------------------------------------------------------------------------------------------------

test('an overlay that comes while the first picture is laid out has its numbers on it', async () => {
  let finish = (): void => undefined;
  const begun = new Promise<void>(resolve => (finish = resolve));
  const pane = new GraphPane(
    async (dot, signal) => (await begun, noLayout(dot, signal)),
    {} as GraphPaneEvents
  );
  mount(pane.element);
  const reply = graph();
  const [first] = reply.nodes.filter(item => item.op !== '');
  assert.ok(first);
  const shown = pane.show(reply);
  await settle(5);
  const measured = pane.measure(
    measuredOf(
      {
        ...{ kind: 'time', program: 'p1', unit: 's', measured_on: 'random', headline: '', missing: '' },
        ...{ marked: [], timeline: [], step: [] },
        items: [{ id: first.id, value: 0.001, share: 0.5, short: '1.0 ms', text: '', bad: false }]
      },
      () => false
    )
  );
  finish();
  await Promise.all([shown, measured]);
  assert.deepEqual(
    [...pane.element.querySelectorAll('.hl-g-measure')].map(number => number.textContent),
    ['1.0 ms']
  );
});

// -- static copies ----------------------------------------------------------------------------------------------------

test('a static copy has its colours in attributes and passes the sanitizer unchanged', async () => {
  const { scene, picture } = await pictureOf(graph(), ['b0']);
  const copy = staticSvg(picture, scene);
  assert.ok(copy);
  const text = svgText(copy);
  assert.doesNotMatch(text, /style=|url\(|data-|var\(/);
  assert.match(text, /stroke="#/);
  const clean = safeSvg(text);
  assert.equal(clean.querySelectorAll('*').length, copy.querySelectorAll('*').length);
  assert.equal(clean.querySelectorAll('rect[fill], path[stroke]').length > 10, true);
  assert.equal(staticSvg(picture, scene, 3), null);
});

test('a static copy has the heat, the bars and the scale of an overlay', async () => {
  const reply = graph();
  const { scene, picture } = await pictureOf(reply, ['b0']);
  const [first, second] = reply.nodes.filter(item => item.op !== '');
  assert.ok(first && second);
  const item = (id: string, value: number, bad = false): OverlayItem => ({
    ...{ id, value, share: 0.5, short: `${value} s`, text: '', bad }
  });
  const measured = measuredOf(
    {
      ...{ kind: 'time', program: 'p1', unit: 's', measured_on: 'random', headline: '', missing: '' },
      ...{ items: [item(first.id, 0.001), item(second.id, 1, true)], marked: [], timeline: [], step: [] }
    },
    () => false
  );
  const plain = staticSvg(picture, scene);
  const copy = staticSvg(picture, scene, undefined, measured);
  assert.ok(plain && copy);
  const text = svgText(copy);
  assert.doesNotMatch(text, /style=|url\(|data-|var\(/);
  const fills = [...copy.querySelectorAll('.hl-g-measured > .hl-g-shape')].map(shape =>
    shape.getAttribute('fill')
  );
  assert.deepEqual(fills.sort(), ['#e9a684', '#f8e3d9'], 'the weakest and the strongest colour');
  assert.equal(copy.querySelectorAll('.hl-g-bar[fill]').length, 2);
  assert.equal(copy.querySelectorAll('.hl-g-bad > .hl-g-shape[stroke="#cf222e"]').length, 1);
  assert.match(copy.textContent ?? '', /operators: ≤ 10 ms.*1 s/);
  assert.ok(Number(copy.getAttribute('height')) > Number(plain.getAttribute('height')));
  const clean = safeSvg(text);
  assert.equal(clean.querySelectorAll('*').length, copy.querySelectorAll('*').length);
});

// -- the pane ---------------------------------------------------------------------------------------------------------

function pane(layout: Layout = noLayout): { pane: GraphPane; told: string[]; pictures: string[] } {
  const told: string[] = [];
  const pictures: string[] = [];
  const events: GraphPaneEvents = {
    onNode: item => told.push(item.id),
    onBox: item => told.push(item.id),
    onProgram: id => told.push(`program ${id}`),
    onLocation: place => told.push(place.label),
    onPicture: svg => pictures.push(svg)
  };
  const made = new GraphPane(layout, events);
  mount(made.element);
  return { pane: made, told, pictures };
}

const found = (root: Element, id: string): Element => {
  const element = root.querySelector(`[data-id="${id}"]`);
  assert.ok(element, `${id} is drawn`);
  return element;
};

/** As a mouse does it. */
function point(element: Element, at: { x: number; y: number } = { x: 5, y: 5 }): void {
  for (const [type, target] of [
    ['pointerdown', element],
    ['pointerup', window]
  ] as const) {
    const event = new MouseEvent(type, { bubbles: true, button: 0, clientX: at.x, clientY: at.y });
    Object.assign(event, { pointerId: 1, pointerType: 'mouse' });
    target.dispatchEvent(event);
  }
}

test('the pane has one tab stop; nodes and boxes are named buttons; a click selects', async () => {
  const { pane: view, told } = pane();
  await view.show(graph());
  const root = view.element.querySelector('svg.hl-g');
  assert.ok(root);
  assert.equal(view.element.querySelectorAll('.hl-canvas [tabindex="0"]').length, 1);
  assert.equal(found(root, 'n1').getAttribute('aria-label'), 'operator Convolution — float32 (?, 10)');
  assert.equal(
    found(root, 'b0').getAttribute('aria-label'),
    'Block features, HybridSequential, 2 operators, open'
  );
  point(found(root, 'n1'));
  assert.ok(found(root, 'n1').classList.contains('hl-g-selected'));
  assert.equal(root.getAttribute('aria-activedescendant'), found(root, 'n1').id);
  assert.deepEqual(told, ['n1']);
});

test('keys open, enter, walk and close; T traces', async () => {
  const { pane: view, told } = pane();
  await view.show(graph());
  const root = view.element.querySelector('svg.hl-g')!;
  const key = async (name: string): Promise<void> => {
    press(root, name);
    await settle();
  };
  await key('ArrowDown');
  await key('ArrowDown');
  assert.equal(told.at(-1), 'n1');
  await key('Escape');
  assert.equal(told.at(-1), 'b0');
  assert.equal(root.querySelector('[data-id="n1"]'), null);
  assert.equal(found(root, 'b0').getAttribute('aria-expanded'), 'false');
  await key('Enter');
  assert.equal(found(root, 'b0').getAttribute('aria-expanded'), 'true');
  await key('Enter');
  assert.equal(told.at(-1), 'n1');
  await key('t');
  assert.ok(
    found(root, 'n2').classList.contains('hl-g-down') && found(root, 'n0').classList.contains('hl-g-up')
  );
  await key('Backspace');
  assert.ok(found(root, 'b0').classList.contains('hl-g-selected'));
});

test('a double-click opens what its first click was on, even if that has moved away', async () => {
  const { pane: view } = pane();
  await view.show(graph());
  const root = view.element.querySelector('svg.hl-g')!;
  point(found(root, 'b0'));
  point(root); // the page moved under the pointer
  await settle();
  assert.equal(found(root, 'b0').getAttribute('aria-expanded'), 'false');
});

test('a drag moves the picture and selects nothing', async () => {
  const { pane: view, told } = pane();
  await view.show(graph());
  const root = view.element.querySelector('svg.hl-g')!;
  const place = (): string | null => root.querySelector('g')!.getAttribute('transform');
  const before = place();
  const send = (target: EventTarget, type: string, x: number): void => {
    const event = new MouseEvent(type, { bubbles: true, button: 0, clientX: x, clientY: 5 });
    target.dispatchEvent(Object.assign(event, { pointerId: 1, pointerType: 'mouse' }));
  };
  send(found(root, 'n1'), 'pointerdown', 5);
  send(window, 'pointermove', 45);
  send(window, 'pointerup', 45);
  assert.notEqual(place(), before);
  assert.deepEqual(told, []);
});

test('the same program keeps what is open; another Block does not keep the selection', async () => {
  const { pane: view } = pane();
  await view.show(graph());
  const root = view.element.querySelector('svg.hl-g')!;
  await view.toggle('b0');
  await view.show(graph({ summary: 'again', text: '' }));
  assert.equal(found(root, 'b0').getAttribute('aria-expanded'), 'false');
  await view.select('n3');
  await view.show(
    graph({ path: 'other', nodes: graph().nodes.map(item => ({ ...item, id: `x${item.id}` })), boxes: [] })
  );
  assert.equal(root.querySelector('.hl-g-selected'), null);
});

test('search selects the next hit and opens the boxes above it', async () => {
  const { pane: view, told } = pane();
  await view.show(deep());
  const field = view.element.querySelector<HTMLInputElement>('input[type=search]')!;
  field.value = 'n4_2';
  press(field, 'Enter');
  await settle(20);
  assert.equal(told.at(-1), 'n4_2');
  assert.ok(found(view.element, 'n4_2').classList.contains('hl-g-selected'));
  const hits = view.element.querySelector('.hl-hits');
  assert.equal(hits?.textContent, '1 of 1');
  await view.show(graph({ path: 'other' }));
  assert.equal(hits.textContent, 'nothing found');
});

test('programs are a list with engine, reason and compile time', async () => {
  const { pane: view, told } = pane();
  const programs = [
    {
      id: 'p1',
      label: 'predict (64, 1, 28, 28)',
      half: 'predict',
      engine: 'onnxruntime',
      reason: 'fastest',
      seconds: 0.21
    },
    { id: 'traced', label: 'traced', half: 'traced', engine: '', reason: '', seconds: 0 }
  ] as GraphReply['programs'];
  await view.show(graph({ program: 'p1', programs }));
  const list = view.element.querySelector('select')!;
  assert.deepEqual(
    [...list.options].map(option => option.textContent),
    ['predict (64, 1, 28, 28)', 'traced']
  );
  assert.match(
    view.element.querySelector('.hl-summary')?.textContent ?? '',
    /4 operators · compiled in 0.21 s/
  );
  assert.equal(view.element.querySelector('.hl-reason')?.textContent, 'onnxruntime: fastest');
  list.value = 'traced';
  list.dispatchEvent(new Event('change'));
  assert.deepEqual(told, ['program traced']);
});

test('a graph that is missing says why; its text does not stay when the next one can be drawn', async () => {
  const { pane: view } = pane();
  await view.show(
    graph({ nodes: [], boxes: [], text: '', missing: 'net is a plain Block: select a child.' })
  );
  assert.match(view.element.textContent ?? '', /select a child/);
  await view.show(graph());
  const text = view.element.querySelector<HTMLElement>('.hl-graph-text')!;
  const canvas = view.element.querySelector<HTMLElement>('.hl-canvas')!;
  assert.deepEqual([text.hidden, canvas.hidden], [true, false]);
  buttonOf(view.element, 'Text').click();
  assert.deepEqual([text.hidden, canvas.hidden], [false, true]);
  await view.show(graph({ path: 'a', text: '' }));
  assert.deepEqual([text.hidden, canvas.hidden], [true, false]);
});

test('a Block leads to its box, and one that is one operator to that', async () => {
  const { pane: view, told } = pane();
  await view.show(deep());
  assert.equal(await view.showBlock('cells.4'), true);
  assert.equal(told.at(-1), 'c4');
  assert.ok(found(view.element, 'c4').classList.contains('hl-g-selected'));
  assert.equal(await view.showBlock('nowhere'), false);
  await view.show(graph({ path: 'other' }));
  assert.equal(await view.showBlock('output'), true);
  assert.equal(told.at(-1), 'n4', 'its box is dissolved');
});

test('lines of code mark their operators, or the closed boxes around them', async () => {
  const { pane: view } = pane();
  const place = (line: number): Location => ({
    ...{ file: '', label: '', cell: 3, cell_id: 'a', line, end_line: line, col: 0, end_col: 4 }
  });
  const reply = graph();
  const nodes = reply.nodes.map(item => ({
    ...item,
    location: item.id === 'n1' ? 0 : item.id === 'n3' ? 1 : null
  }));
  await view.show({ ...reply, nodes, locations: [place(4), place(7)] });
  const marked = (): (string | null)[] =>
    [...view.element.querySelectorAll('.hl-g-code')].map(item => item.getAttribute('data-id'));
  assert.equal(
    view.markCode(location => location.line === 4),
    1
  );
  assert.deepEqual(marked(), ['n1']);
  buttonOf(view.element, 'Close all').click();
  await settle();
  assert.deepEqual(marked(), ['b0'], 'the box that holds it');
  assert.equal(
    view.markCode(location => location.line === 7),
    1
  );
  assert.deepEqual(marked(), ['n3']);
  assert.equal(
    view.markCode(() => false),
    0
  );
  assert.deepEqual(marked(), []);
});

test('a line of the text leads to its node, by click and by keys; the selected node has its line', async () => {
  const { pane: view, told } = pane();
  const text = [
    'graph (%data: f32[2,10]):',
    '  %0: f32[2,10] = Convolution(%data)   # net.features',
    '    body:',
    '      graph (%x: f32[2]):',
    '        %0: f32[2] = relu(%x)',
    '  %1: f32[2,10] = relu(%0)',
    '  %2: f32[2,10] = broadcast_add(%1, %data)',
    '  %3: f32[2,10] = FullyConnected(%2)',
    '  return %3'
  ].join('\n');
  await view.show(graph({ text }));
  assert.deepEqual(nodesOfLines(graph({ text })), [null, 'n1', 'n1', 'n1', 'n1', 'n2', 'n3', 'n4', null]);
  const lines = [...view.element.querySelectorAll<HTMLElement>('.hl-text-line')];
  buttonOf(view.element, 'Text').click();
  lines[4]!.click();
  await settle(20);
  assert.equal(told.at(-1), 'n1');
  assert.equal(lines[1]!.getAttribute('aria-selected'), 'true');
  const whole = view.element.querySelector('.hl-graph-text')!;
  assert.equal(whole.getAttribute('aria-activedescendant'), lines[1]!.id);
  press(whole, 'ArrowDown');
  press(whole, 'ArrowDown');
  press(whole, 'ArrowDown');
  press(whole, 'ArrowDown');
  press(whole, 'Enter');
  await settle(20);
  assert.equal(told.at(-1), 'n2');
});

test('a click on a parameter of an operator asks for its numbers', async () => {
  const told: string[] = [];
  const view = new GraphPane(noLayout, {
    onNode: item => told.push(item.id),
    onBox: () => undefined,
    onProgram: () => undefined,
    onParameter: badge => told.push(badge.path)
  });
  mount(view.element);
  await view.show(graph());
  point(view.element.querySelector('[data-badge]')!);
  assert.deepEqual(told, ['n4', 'output.weight']);
});

test('the partial graph of a failed trace names the line that ended it', async () => {
  const { pane: view, told } = pane();
  const place = {
    file: '',
    label: 'cell 3, line 12',
    cell: 3,
    cell_id: 'c',
    line: 12,
    end_line: 12,
    col: 0,
    end_col: 4
  };
  await view.show(graph({ failed: place }));
  buttonOf(view.element, 'cell 3, line 12').click();
  assert.deepEqual(told, ['cell 3, line 12']);
});

test('only the newest graph is drawn', async () => {
  const waiting: ((plain: string) => void)[] = [];
  const { pane: view } = pane(
    () => new Promise((_, reject) => waiting.push(() => reject(new Error('late'))))
  );
  const older = view.show(graph());
  const newer = view.show(graph({ nodes: [node('n9', { label: 'newer' })], boxes: [] }));
  await settle();
  waiting.forEach(answer => answer(''));
  await Promise.all([older, newer]);
  assert.match(view.element.querySelector('svg.hl-g')?.textContent ?? '', /newer/);
  assert.doesNotMatch(view.element.querySelector('svg.hl-g')?.textContent ?? '', /Convolution/);
});

test('names of the model are text in the picture, never markup', async () => {
  const { pane: view } = pane();
  const evil = '<img src=x onerror=alert(1)>';
  await view.show(graph({ boxes: [], nodes: [node('n0', { label: evil, attributes: { a: evil } })] }));
  assert.equal(view.element.querySelector('img'), null);
  assert.match(view.element.textContent ?? '', /<img src=x/);
});

// -- the model's view ---------------------------------------------------------------------------------------------------

test('details of a kernel have its source, reached from its operators too', async () => {
  const reply = graph({
    program: 'p1',
    boxes: [kernelBox],
    nodes: graph().nodes.map(item => ({ ...item, box: item.id === 'n1' ? 'g0' : '' }))
  });
  const view = new ModelView({ layout: noLayout, panes: noPanes });
  mount(view.element);
  view.showTree({ model: model(), root: network() }, reply);
  view.connect(new TableKernel({ graph: () => reply }));
  await settle(5);
  const root = view.element.querySelector('svg.hl-g')!;
  const source = (): HTMLElement | null => view.element.querySelector<HTMLElement>('.hl-source');
  point(found(root, 'g0'));
  assert.equal(source()?.textContent, kernelBox.text);
  assert.match(view.element.querySelector('.hl-details')?.textContent ?? '', /4 programs.*1 Convolution/);
  point(found(root, 'n1'), { x: 50, y: 50 });
  assert.equal(source(), null);
  buttonOf(view.element, 'fc1_relu').click();
  await settle();
  assert.equal(source()?.textContent, kernelBox.text);
});

test('while nobody has chosen a Block, the root is selected as soon as it has a graph', async () => {
  const plain = network();
  Object.assign(plain, { graphs: 0, state: 'eager' });
  plain.children[1]!.graphs = 1;
  const view = new ModelView({ layout: noLayout, panes: noPanes });
  mount(view.element);
  const selected = (): string | undefined =>
    view.element.querySelector<HTMLElement>('[role=treeitem][aria-selected=true]')?.dataset.path;
  view.showTree({ model: model(), root: plain });
  assert.equal(selected(), 'output');
  view.showTree({ model: model({ revision: 2 }), root: network() });
  assert.equal(selected(), '');
  view.select('features');
  view.showTree({ model: model({ revision: 3 }), root: network() });
  assert.equal(selected(), 'features');
});

test('the parameter and the line of a NaN are shown even if another row is selected at once', async () => {
  const location = { line: 12, col: 0, end_line: 12, end_col: 9, file: '', label: '', cell: 1, cell_id: 'c' };
  const nan = {
    ...{
      source: 'parameters' as const,
      path: 'output',
      operator: '',
      part: 'forward',
      name: 'output.weight'
    },
    ...{ step: null, count: 1, text: '', location }
  };
  const lines: (Location | null)[] = [];
  const view = new ModelView({ layout: noLayout, panes: noPanes, onCode: place => lines.push(place) });
  mount(view.element);
  const kernel = new TableKernel({
    answers: () => ({ model: 'm1', nan, change: null, measurable: false }),
    graph: () => graph()
  });
  view.connect(kernel);
  view.showTree({ model: model(), root: network() }, graph());
  await settle(5);
  const answer = [...view.banner.element.querySelectorAll('button')].find(each =>
    each.textContent?.includes('NaN')
  );
  click(answer);
  view.select('features');
  await settle(5);
  assert.deepEqual(lines, [location]);
});

test('a graph that is replaced while the selection rests is not drawn, and who waits for it goes on', async () => {
  const kernel = new TableKernel({ graph: body => graph({ path: body.path }) });
  const pane = new GraphPane(noLayout, {
    onNode: () => undefined,
    onBox: () => undefined,
    onProgram: () => undefined
  });
  const drawn = new DrawnGraph(
    pane,
    new Overlays(pane, () => undefined),
    () => true,
    () => undefined
  );
  drawn.setModel(model());
  drawn.drawAtRest(() => drawn.drawBlock('features'));
  const first = drawn.drawing;
  drawn.drawAtRest(() => drawn.drawBlock('output'));
  await first;
  assert.deepEqual(kernel.asked, []);
  drawn.connect(kernel);
  await drawn.drawing;
  const paths = (): unknown[] => kernel.asked.map(({ body }) => (body as { path: string }).path);
  assert.deepEqual([drawn.path, drawn.shown?.path, paths()], ['output', 'output', ['', 'output']]);
  drawn.want('', 'traced');
  await drawn.drawBlock('output', '');
  assert.equal(paths().length, 2); // it is drawn already
  await drawn.redraw('output', '');
  assert.equal(paths().length, 3);
});

test('a Block that is chosen while the first graph is on its way is selected in that graph', async () => {
  let finish = (): void => undefined;
  const begun = new Promise<void>(resolve => (finish = resolve));
  const view = new ModelView({ layout: noLayout, panes: noPanes });
  mount(view.element);
  const kernel = new TableKernel({ graph: async body => (await begun, graph({ path: body.path })) });
  view.connect(kernel);
  view.showTree({ model: model(), root: network() }, null);
  await settle(5);
  view.select('features');
  await settle(200); // the selection rests
  finish();
  await settle(20);
  const asked = kernel.asked.filter(({ type }) => type === 'graph').map(({ body }) => body);
  assert.deepEqual(
    asked.map(body => (body as { path: string }).path),
    ['']
  );
  assert.ok(view.element.querySelector('.hl-g-selected'));
});
