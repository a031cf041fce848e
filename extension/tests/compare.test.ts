// Two graphs side by side: which nodes belong together, what is counted, one camera, keys, and both sides' facts.

import { buttonOf, click, mount, press, settle } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Pairing } from '../src/graph/pairing';
import { Scene } from '../src/graph/scene';
import { aligned } from '../src/graph/shared-camera';
import type { ComparedItem, GraphReply } from '../src/protocol/messages';
import { CompareView } from '../src/view/compare-view';
import { graphviz } from './layouts';
import { box, graph, node } from './records';

const chain = (...ops: string[]): Partial<GraphReply> => ({
  boxes: [box('b0', { block: 'body', label: 'body', class: 'Sequential', operators: ops.length })],
  nodes: ops.map((op, i) =>
    node(`n${i}`, { box: 'b0', op, label: op, reads: i > 0 ? [`n${i - 1}`] : [], attributes: { size: op } })
  )
});

const item = (
  first: string | null,
  second: string | null,
  kind: ComparedItem['kind'] = 'same',
  changes: string[] = []
): ComparedItem => ({ first, second, kind, changes, block: 'body' });

/** dense, relu, dense; and dense, drop, relu, other. */
const before = graph(chain('dense', 'relu', 'dense'));
const after = graph(chain('dense', 'drop', 'relu', 'other'));
const items = [
  item('b0', 'b0'),
  item('n0', 'n0'),
  item(null, 'n1', 'added'),
  item('n1', 'n2', 'values', ['weight differs']),
  item('n2', 'n3', 'changed', ['dense became other'])
];

function pairing(more: ComparedItem[] = []): Pairing {
  return new Pairing([...items, ...more], [new Scene(before), new Scene(after)]);
}

test('differences are counted in the order of reading, and boxes say how many are inside', () => {
  const pairs = pairing();
  assert.deepEqual(
    pairs.differences.map(pair => [pair.kind, ...pair.ids]),
    [
      ['added', undefined, 'n1'],
      ['values', 'n1', 'n2'],
      ['changed', 'n2', 'n3']
    ]
  );
  assert.deepEqual(pairs.changes(1).get('b0'), { kind: 'changed', count: 3 });
  assert.deepEqual(pairs.changes(0).get('b0'), { kind: 'changed', count: 2 });
  assert.deepEqual(pairs.changes(0).get('n0'), { kind: 'same', count: 0 });
  assert.equal(pairs.partner(0, 'n2'), 'n3');
  assert.equal(pairs.partner(1, 'n1'), undefined);
});

test('what is in an added Block is a part of that difference', () => {
  const all = after.nodes.map(({ id }) => item(null, id, 'added'));
  const pairs = new Pairing([item(null, 'b0', 'added'), ...all], [new Scene(before), new Scene(after)]);
  assert.deepEqual(
    pairs.differences.map(pair => pair.ids[1]),
    ['b0']
  );
});

test('the same boxes open; one without a partner stays as it is', () => {
  const pairs = pairing();
  assert.deepEqual([...pairs.openedLike(0, new Set(['b0']), new Set())], ['b0']);
  assert.deepEqual([...pairs.openedLike(0, new Set(), new Set(['b0']))], []);
  const alone = new Pairing([item(null, 'b0', 'added')], [new Scene(before), new Scene(after)]);
  assert.deepEqual([...alone.openedLike(0, new Set(), new Set(['b0']))], ['b0']);
});

test('a box of one operator and the operator are one difference', () => {
  const single = graph({
    boxes: [box('b0', { block: '2', class: 'Dropout', operators: 1 })],
    nodes: [node('n0', { box: 'b0', op: 'Dropout' })]
  });
  const pairs = new Pairing(
    [item(null, 'b0', 'added'), item(null, 'n0', 'added')],
    [new Scene(graph({ boxes: [], nodes: [] })), new Scene(single)]
  );
  assert.deepEqual(
    pairs.differences.map(pair => pair.ids),
    [[undefined, 'n0']]
  );
});

test('a layer that was replaced by another is one difference', () => {
  const single = (op: string): Scene =>
    new Scene(
      graph({
        boxes: [box('b0', { block: '2', class: op, operators: 1 })],
        nodes: [node('n0', { box: 'b0', op })]
      })
    );
  const pairs = new Pairing(
    [
      item('b0', 'b0', 'changed', ['class: A became B']),
      item('n0', null, 'removed'),
      item(null, 'n0', 'added')
    ],
    [single('A'), single('B')]
  );
  assert.deepEqual(
    pairs.differences.map(pair => [pair.kind, ...pair.ids]),
    [['changed', 'n0', 'n0']]
  );
});

test('the other picture shows the middle of an item where the first one does', () => {
  const place = { width: 40, height: 20 };
  const [one, two] = [
    { ...place, x: 100, y: 50 },
    { ...place, x: 10, y: 250 }
  ];
  const camera = { x: 7, y: -3, scale: 0.5 };
  const there = aligned(camera, [one, two] as never);
  assert.equal(there.scale, 0.5);
  assert.equal(camera.x + 120 * 0.5, there.x + 30 * 0.5);
  assert.equal(camera.y + 60 * 0.5, there.y + 260 * 0.5);
});

async function compared(): Promise<{ view: CompareView; asked: string[][]; closed: number[] }> {
  const asked: string[][] = [];
  const closed: number[] = [];
  const view = new CompareView({
    layout: graphviz().layout,
    onClose: () => closed.push(1),
    onList: () => undefined
  });
  mount(view.element);
  await view.show({
    graphs: { first: before, second: after, items },
    names: ['<b>old</b>', 'net now'],
    summary: '1 operator added',
    values: async (first, second) => {
      asked.push([first, second]);
      return { first: null, second: null };
    }
  });
  await settle(5);
  return { view, asked, closed };
}

test('both graphs are drawn with signs, and the keys go through the differences', async () => {
  const { view, closed } = await compared();
  const text = (selector: string): string => view.element.querySelector(selector)?.textContent ?? '';
  assert.equal(text('.hl-compare-count'), '1 of 3');
  assert.equal(view.element.querySelectorAll('svg.hl-g').length, 2);
  assert.equal(view.element.querySelectorAll('[data-change="added"] .hl-g-sign').length, 1);
  assert.deepEqual(
    [...view.element.querySelectorAll('.hl-compare-kind')].map(each => each.textContent),
    ['1 added', '0 removed', '1 changed', '1 in numbers only']
  );
  const label = view.element.querySelector('[data-change="added"]')?.getAttribute('aria-label') ?? '';
  assert.match(label, /^added: operator drop/);
  press(view.element, 'n');
  await settle(5);
  assert.equal(text('.hl-compare-count'), '2 of 3');
  assert.match(text('.hl-compare-details'), /weight differs/);
  assert.equal(view.element.querySelectorAll('.hl-g-selected').length, 2);
  press(view.element, 'p');
  press(view.element, 'p');
  await settle(5);
  click(buttonOf(view.element, '1 changed'));
  await settle(5);
  assert.equal(text('.hl-compare-count'), '3 of 3');
  assert.equal(view.element.querySelectorAll('.hl-compare-differs').length, 2);
  assert.equal(view.element.querySelector('b b'), null);
  press(view.element, 'Escape');
  assert.ok(!view.isOpen && closed.length === 1);
});

test('two graphs that are not compared are shown with what is missing', async () => {
  const view = new CompareView({ layout: graphviz().layout });
  mount(view.element);
  await view.show({
    graphs: { first: graph({ nodes: [], boxes: [], missing: 'It has no graph.' }), second: after, items: [] },
    names: ['a', 'b'],
    summary: '',
    values: () => Promise.reject(new Error('no'))
  });
  assert.match(view.element.textContent ?? '', /It has no graph\./);
  assert.equal(view.element.querySelector('.hl-compare-count')?.textContent, 'not compared');
  press(view.element, 'n');
  assert.ok(view.isOpen);
});
