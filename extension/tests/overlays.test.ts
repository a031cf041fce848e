// Overlays of a graph, numbers of parameters, and the switch that stops at NaN.

import { wrapped } from '../src/graph/export';
import { buttonOf, mount, press, settle } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { measuredOf } from '../src/graph/measured';
import { RequestError } from '../src/protocol/channel';
import type { OverlayItem, OverlayReply, ValuesReply } from '../src/protocol/messages';
import { ModelView } from '../src/view/model-view';
import { numbersOf } from '../src/view/numbers';
import { TableKernel, graph, model, network, noLayout, noPanes } from './records';

function item(id: string, changes: Partial<OverlayItem> = {}): OverlayItem {
  return {
    id,
    value: 0.001,
    share: 0.5,
    short: '1.0 ms (50.0%)',
    text: '1.0 ms (50.0%), eager 2.0 ms',
    bad: false,
    ...changes
  };
}

function overlay(changes: Partial<OverlayReply> = {}): OverlayReply {
  return {
    kind: 'time',
    program: 'traced',
    unit: 's',
    measured_on: 'random',
    headline: 'forward: 2.0 ms in 4 steps',
    missing: '',
    items: [
      item('n3'),
      item('b0', { value: 0.002, short: '<b>2.0 ms</b>' }),
      item('n4', { value: 0.0001, bad: true })
    ],
    marked: ['n4', 'b0'],
    timeline: [],
    step: [],
    ...changes
  };
}

const NUMBERS: ValuesReply = {
  title: 'weight\u202e',
  type: '10 x 84, float32, cpu(0)',
  facts: [{ name: 'NaN', text: '3' }],
  finite: false,
  bars: [1, 0, 4],
  low: '-1',
  high: '1',
  picture: 'data:image/png;base64,AAAA',
  caption: '0 is clear',
  text: '[<script>]',
  missing: ''
};

async function shown(answers: ConstructorParameters<typeof TableKernel>[0]): Promise<{
  view: ModelView;
  kernel: TableKernel;
  select: HTMLSelectElement;
  choose: (kind: string) => Promise<void>;
  text: (selector: string) => string;
}> {
  const kernel = new TableKernel({
    graph: () => graph(),
    watch_nan: body => ({ on: body.on ?? false }),
    keep_inputs: () => ({ on: false, calls: [] }),
    ...answers
  });
  const view = new ModelView({ layout: noLayout, panes: noPanes });
  mount(view.element);
  view.connect(kernel);
  view.showTree({ model: model(), root: network() });
  await settle(150);
  const select = view.element.querySelector<HTMLSelectElement>('select[aria-label="Overlay"]')!;
  const choose = async (kind: string): Promise<void> => {
    select.value = kind;
    select.dispatchEvent(new Event('change'));
    await settle(5);
  };
  const text = (selector: string): string => view.element.querySelector(selector)?.textContent ?? '';
  return { view, kernel, select, choose, text };
}

test('an overlay colours nodes and boxes, links to the largest, and goes away again', async () => {
  const asked: unknown[] = [];
  const { view, choose, text } = await shown({
    overlay: body => {
      asked.push(body);
      return overlay({ kind: body.kind });
    }
  });
  const element = (id: string): SVGElement => view.element.querySelector<SVGElement>(`[data-id="${id}"]`)!;
  assert.equal(element('n3').classList.contains('hl-g-measured'), false);
  await choose('time');
  assert.deepEqual(asked, [{ model: 'm1', path: '', program: 'traced', kind: 'time', data: '' }]);
  assert.equal(text('.hl-overlay-bar .hl-summary'), 'forward: 2.0 ms in 4 steps');
  assert.equal(element('n3').dataset.heat, '5');
  assert.equal(element('n4').dataset.heat, '1');
  assert.equal(element('n3').querySelector('.hl-g-measure')?.textContent, '1.0 ms (50.0%)');
  assert.match(
    element('n3').getAttribute('aria-label') ?? '',
    /broadcast_add.*1\.0 ms \(50\.0%\), eager 2\.0 ms/
  );
  assert.ok(element('n4').classList.contains('hl-g-bad'));
  assert.equal(text('.hl-overlay-marked'), 'Slowest:1.0 ms (50.0%)FullyConnected<b>2.0 ms</b>features');
  const chips = (): string[] =>
    [...view.element.querySelectorAll('.hl-chip-measured')].map(chip => chip.textContent ?? '');
  assert.deepEqual(chips(), ['<b>2.0 ms</b>']);
  buttonOf(view.element, 'FullyConnected').click();
  await settle(5);
  assert.match(text('.hl-details'), /Measured1\.0 ms \(50\.0%\), eager 2\.0 ms/);
  await choose('');
  assert.equal(element('n3').classList.contains('hl-g-measured'), false);
  assert.equal(element('n3').getAttribute('aria-label')?.includes('eager'), false);
  assert.deepEqual(chips(), []);
  assert.equal(text('.hl-overlay-marked') + text('.hl-overlay-bar .hl-summary'), '');
});

test('inputs are named for times and values only; the memory has a timeline', async () => {
  const { view, kernel, choose } = await shown({
    overlay: body =>
      overlay({
        kind: body.kind,
        timeline: [
          { id: 'n1', bytes: 10 },
          { id: 'n2', bytes: 30 }
        ]
      })
  });
  const field = view.element.querySelector<HTMLInputElement>('.hl-overlay-data')!;
  assert.equal(field.hidden, true);
  await choose('memory');
  assert.equal(field.hidden, true);
  const drawing = view.element.querySelector('.hl-overlay-timeline svg')!;
  assert.match(drawing.getAttribute('aria-label') ?? '', /over 2 steps; it is fullest at relu/);
  await choose('values');
  assert.equal(field.hidden, false);
  field.value = ' x, y ';
  press(field, 'Enter');
  await settle(5);
  assert.deepEqual(kernel.asked.at(-1)?.body, {
    model: 'm1',
    path: '',
    program: 'traced',
    kind: 'values',
    data: 'x, y'
  });
});

test('the memory of a recorded call is one timeline of forward and backward', async () => {
  const { view, choose, text } = await shown({
    overlay: body =>
      overlay({
        kind: body.kind,
        timeline: [
          { id: 'n1', bytes: 10 },
          { id: 'n2', bytes: 30 }
        ],
        step: [
          { half: 'forward', bytes: 10, kept: 10 },
          { half: 'forward', bytes: 30, kept: 20 },
          { half: 'backward', bytes: 40, kept: 20 }
        ]
      })
  });
  await choose('memory');
  const drawing = view.element.querySelector('.hl-overlay-timeline svg')!;
  assert.equal(
    drawing.getAttribute('aria-label'),
    'The arena over 2 steps of the forward and 1 of the backward; it is fullest in the backward, at step 1'
  );
  assert.equal(drawing.querySelectorAll('path').length, 2);
  assert.equal(text('.hl-overlay-step'), 'forwardbackwardkept for the backward');
});

test('what the kernel refuses is said, and what is missing', async () => {
  const { choose, text } = await shown({
    overlay: body => {
      if (body.kind === 'time') {
        throw new RequestError('busy', 'a cell is running', 'Ask again.');
      }
      return overlay({ kind: body.kind, headline: '', missing: 'No gradient yet.' });
    }
  });
  await choose('time');
  assert.equal(text('.hl-overlay-bar .hl-alert'), 'a cell is running Ask again.');
  await choose('gradients');
  assert.equal(text('.hl-overlay-bar .hl-alert'), '');
  assert.equal(text('.hl-overlay-bar .hl-summary'), 'No gradient yet.');
});

test('the switch for NaN shows what the kernel says', async () => {
  const { view, kernel } = await shown({});
  const box = view.element.querySelector<HTMLInputElement>('.hl-check input')!;
  assert.equal(box.checked, false);
  box.checked = true;
  box.dispatchEvent(new Event('change'));
  await settle();
  assert.deepEqual(kernel.asked.at(-1), { type: 'watch_nan', body: { model: 'm1', on: true } });
  assert.equal(box.checked, true);
});

test('of a Block without a graph only the watch for NaN can be switched', async () => {
  const { view, select } = await shown({ graph: () => ({ ...graph(), nodes: [], boxes: [], program: '' }) });
  assert.equal(view.element.querySelector<HTMLElement>('.hl-overlay-bar')?.hidden, false);
  assert.equal(select.hidden, true);
});

test('a model file has no overlays, and no links to numbers', async () => {
  const view = new ModelView({ layout: noLayout, panes: noPanes, isFile: true });
  mount(view.element);
  view.connect(new TableKernel({ graph: () => graph() }));
  view.showTree({ model: model(), root: network() });
  await settle(150);
  assert.equal(view.element.querySelector<HTMLElement>('.hl-overlay-bar')?.hidden, true);
});

test('numbers are text, and a picture only of data', () => {
  const element = numbersOf(NUMBERS);
  assert.equal(element.querySelector('script'), null);
  assert.match(element.textContent ?? '', /10 x 84, float32, cpu\(0\).*NaN3/);
  assert.deepEqual(
    [...element.querySelectorAll<HTMLElement>('.hl-histogram span')].map(bar => bar.style.height),
    ['11px', '0px', '44px']
  );
  assert.equal(element.querySelector('img')?.getAttribute('src'), NUMBERS.picture);
  assert.equal(numbersOf({ ...NUMBERS, picture: 'https://example.org/x.png' }).querySelector('img'), null);
  assert.equal(numbersOf({ ...NUMBERS, missing: 'no values yet' }).textContent, 'no values yet');
});

test('the numbers of a parameter are asked for by its name', async () => {
  const root = network();
  const parameter = { name: 'weight', shape: [3], dtype: 'float32', grad_req: 'write', shared: false };
  root.parameters = [parameter];
  const kernel = new TableKernel({
    graph: () => graph(),
    watch_nan: () => ({ on: false }),
    keep_inputs: () => ({ on: false, calls: [] }),
    values: body => ({ ...NUMBERS, title: body.what })
  });
  const view = new ModelView({ layout: noLayout, panes: noPanes });
  mount(view.element);
  view.connect(kernel);
  view.showTree({ model: model(), root });
  await settle(150);
  buttonOf(view.element, 'weight').click();
  await settle(5);
  const asked = kernel.asked.filter(({ type }) => type === 'values').map(({ body }) => body);
  assert.deepEqual(asked, [
    { model: 'm1', path: '', name: 'weight', what: 'data' },
    { model: 'm1', path: '', name: 'weight', what: 'grad' }
  ]);
  const titles = [...view.element.querySelectorAll('.hl-numbers .hl-title bdi')].map(
    each => each.textContent
  );
  assert.deepEqual(titles, ['data', 'grad']);
});

test('a scale is logarithmic, of operators and boxes apart, and its ends are named', () => {
  const times = [0.0018, 0.0009, 0.000001, 0.0018].map((value, i) => item(`n${i}`, { value }));
  const { heat, scales } = measuredOf(
    overlay({ items: [...times, item('b0', { value: 0.03 }), item('b1', { value: 0.0003 })] }),
    id => id.startsWith('b')
  );
  const levels = ['n0', 'n1', 'n2', 'b0', 'b1'].map(id => heat.get(id)?.level);
  assert.deepEqual(levels, [5, 5, 1, 5, 1]);
  assert.equal(heat.get('n1')?.bar, 0.5);
  assert.deepEqual(scales, [
    { name: 'operators', low: '≤ 18 µs', high: '1.8 ms' },
    { name: 'boxes', low: '300 µs', high: '30 ms' }
  ]);
});

test('values that are alike have no scale, and sizes have binary units', () => {
  const alike = measuredOf(overlay({ items: [item('n0'), item('n1')] }), () => false);
  assert.deepEqual(alike.scales, []);
  assert.equal(alike.heat.get('n0')?.level, 3);
  const sizes = [10, 3 * 1024 ** 2].map((value, i) => item(`n${i}`, { value }));
  const memory = measuredOf(overlay({ kind: 'memory', unit: 'B', items: sizes }), () => false);
  assert.deepEqual(memory.scales, [{ name: 'operators', low: '≤ 30.7 KiB', high: '3 MiB' }]);
  assert.deepEqual(measuredOf(overlay({ items: [] }), () => false).scales, []);
});

test('the picture says that numbers are of random inputs', async () => {
  const { choose, text } = await shown({
    overlay: body => overlay({ kind: body.kind, measured_on: body.data === '' ? 'random' : 'variables' })
  });
  await choose('values');
  assert.match(
    text('.hl-g-legend'),
    /Measured on random numbers of the call's shapes; NaN may come from them/
  );
  assert.match(text('.hl-overlay-marked'), /^First NaN or infinity with random numbers:/);
  await choose('time');
  assert.match(text('.hl-g-legend'), /operators.*Measured on random numbers of the call's shapes$/);
  await choose('memory');
  await choose('');
  assert.equal(text('.hl-g-legend'), '');
});

test('inputs are kept when asked, their size is said, and what was measured on them is measured again', async () => {
  const calls = [{ path: '', inputs: 'f32[2,3]', bytes: 2400 }];
  let on = false;
  const { view, kernel, choose, text } = await shown({
    keep_inputs: body => {
      on = body.on ?? on;
      return { on, calls: on ? calls : [] };
    },
    overlay: body => overlay({ kind: body.kind, measured_on: on ? 'kept' : 'random' })
  });
  await choose('memory');
  const box = view.element.querySelectorAll<HTMLInputElement>('.hl-overlay-bar input[type=checkbox]')[0]!;
  assert.equal(box.closest<HTMLElement>('label')?.hidden, true);
  await choose('values');
  assert.equal(box.closest<HTMLElement>('label')?.hidden, false);
  box.checked = true;
  box.dispatchEvent(new Event('change'));
  await settle(20);
  assert.deepEqual(kernel.asked.filter(({ type }) => type === 'keep_inputs').at(-1)?.body, {
    model: 'm1',
    on: true
  });
  assert.match(text('.hl-overlay-bar'), /Keep inputs\(1 call, 2\.4 kB\)/);
  assert.match(text('.hl-overlay-marked'), /^First NaN or infinity:/);
  box.checked = false;
  box.dispatchEvent(new Event('change'));
  await settle(20);
  assert.match(text('.hl-overlay-marked'), /^First NaN or infinity with random numbers:/);
});

test('the caption of an exported picture is cut between words, into as many lines as it needs', () => {
  const text = "Time, measured on random numbers of the call's shapes";
  assert.deepEqual(wrapped(text, 30), ['Time, measured on random', "numbers of the call's shapes"]);
  assert.deepEqual(wrapped(text, 100), [text]);
  assert.deepEqual(wrapped('', 30), []);
});
