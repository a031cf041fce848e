// Finding things in a graph: expressions in linear time, fields, the list of hits, and boxes opened to a depth.

import { mount, press, settle } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GraphPane } from '../src/graph/graph-pane';
import { depthOf, openedTo } from '../src/graph/opening';
import { PatternError, pattern } from '../src/graph/pattern';
import { Scene } from '../src/graph/scene';
import { query, search } from '../src/graph/search';
import type { GraphReply } from '../src/protocol/messages';
import { deep, ids } from './layouts';
import { box, graph, noLayout, node } from './records';

/** Expressions that the browser's own matcher understands in the same way. */
const SAME = [
  'conv',
  'conv|pool',
  '^(conv|pool)$',
  'stage[34]\\.',
  '[^a-c]x',
  'a.c',
  'a*b',
  '(ab)+c',
  'x{2}',
  'x{2,}y',
  'x{1,3}$',
  '(?:a|b)?c',
  '\\d+\\s\\w',
  '\\D\\W\\S',
  '\\bin\\b',
  'n\\Bo',
  '[\\d-]+z',
  '[]a]',
  'a??b',
  '',
  '(a*)*b',
  '(|a)b'
];
const TEXTS = [
  'conv',
  'Conv2d',
  'maxpool',
  'stage3.conv1',
  'abc',
  'ababc',
  'xxxy',
  'xx',
  'a c',
  '12 x',
  'in',
  'no in no',
  'b',
  ']',
  'z-9',
  'aaab',
  ''
];

test('expressions match as the browser matches them', () => {
  for (const source of SAME) {
    // A ] that comes first in a set stands for itself here, as in most other languages.
    const own = new RegExp(source === '[]a]' ? '[\\]a]' : source, 'i');
    for (const text of TEXTS) {
      assert.equal(pattern(source).test(text), own.test(text), `${source} in ${text}`);
    }
  }
});

test('what is no expression is said', () => {
  for (const source of [
    '(',
    ')',
    'a**',
    '+',
    '[a',
    'a\\',
    '(?=a)',
    '(a)\\1',
    'x{3,1}',
    'x{5000}',
    'a'.repeat(300),
    '((((x{99}){99}){99}){99})'
  ]) {
    assert.throws(() => pattern(source), PatternError, source);
  }
});

test('no expression freezes the page: the browser would need years for these', () => {
  const long = 'a'.repeat(20_000);
  for (const source of [
    '(a+)+$',
    '(a|aa)+b',
    '(a*)*b',
    '(.*)(.*)(.*)(.*)x',
    '(a?){50}a{50}b',
    '([a-z]+)*[0-9]'
  ]) {
    assert.equal(pattern(source).test(`${long}!`), false);
  }
});

const typed = (): GraphReply =>
  graph({
    boxes: [
      box('b0', { label: 'stage1', class: 'Stage', block: 'stage1' }),
      box('b1', { label: 'stage2', class: 'Stage', block: 'stage2' })
    ],
    nodes: [
      {
        ...node('n1', { box: 'b0', op: 'Convolution', label: 'conv' }),
        block: 'stage1.conv',
        outputs: [{ shape: [2, 64, 28, 28], dtype: 'float32' }]
      },
      {
        ...node('n2', { box: 'b0', op: 'Pooling', label: 'pool', reads: ['n1'] }),
        block: 'stage1.pool',
        outputs: [{ shape: [2, 640, 14, 14], dtype: 'float16' }]
      },
      {
        ...node('n3', { box: 'b1', op: 'Convolution', label: 'conv', reads: ['n2'] }),
        block: 'stage2.conv',
        outputs: [{ shape: [2, 640], dtype: 'float16' }]
      },
      {
        ...node('n4', { box: 'b1', op: 'relu', label: 'relu', reads: ['n3'] }),
        block: 'stage2',
        outputs: [{ shape: null, dtype: 'float32' }]
      }
    ]
  });

test('words, fields and expressions find nodes and boxes', () => {
  const scene = new Scene(typed());
  const state = (path: string): string => (path.startsWith('stage2') ? 'failed' : 'hybrid');
  const cases: [string, string[]][] = [
    ['conv', ['n1', 'n3']],
    ['op:conv', ['n1', 'n3']],
    ['op:^conv stage2', ['n3']],
    ['op:conv|pool', ['n1', 'n2', 'n3']],
    ['shape:64', ['n1']],
    ['shape:64,28', ['n1']],
    ['shape:(64,28,28)', ['n1']],
    ['shape:64x28', ['n1']],
    ['shape:^2,6\\d+$', ['n3']],
    ['shape:?', ['n4']],
    ['dtype:float16', ['n2', 'n3']],
    ['state:failed', ['b1', 'n3', 'n4']],
    ['state:failed op:relu', ['n4']],
    ['class:stage', ['b0', 'b1']],
    ['block:stage[12]\\.conv', ['n1', 'n3']],
    ['64', []],
    ['"stage1.conv"', ['n1']],
    ['nosuch:conv', []],
    ['OP:RELU', ['n4']],
    ['', []]
  ];
  for (const [text, expected] of cases) {
    assert.deepEqual(ids(search(scene, text, state).hits), expected, text);
  }
});

test('an invalid expression is looked for as text, and said', () => {
  const scene = new Scene(
    graph({ nodes: [node('n1', { label: 'conv', attributes: { kernel: '(5, 5)' } })], boxes: [] })
  );
  const { hits, problem } = search(scene, 'kernel=(5, 5)');
  assert.deepEqual(hits, ['n1']);
  assert.match(
    problem,
    /kernel=\(5, is no regular expression \(a \( without its \)\), so it is searched for as text/
  );
  assert.equal(query('plain words').problem, '');
});

test('hits are a list over the picture: keys go from one to the next, a click goes to one', async () => {
  const told: string[] = [];
  const view = new GraphPane(noLayout, {
    onNode: item => told.push(item.id),
    onBox: item => told.push(item.id),
    onProgram: () => undefined
  });
  mount(view.element);
  await view.show(typed());
  const field = view.element.querySelector<HTMLInputElement>('input[type=search]')!;
  const rows = (): HTMLElement[] => [...view.element.querySelectorAll<HTMLElement>('.hl-hit-row')];
  const list = view.element.querySelector<HTMLElement>('.hl-hit-list')!;
  field.focus();
  assert.equal(list.hidden, true);
  field.value = 'op:conv';
  field.dispatchEvent(new Event('input', { bubbles: true }));
  await settle(120);
  assert.equal(list.hidden, false);
  assert.deepEqual(
    rows().map(row => row.textContent),
    ['stage1.conv convConvolution float32 (2, 64, 28, 28)', 'stage2.conv convConvolution float16 (2, 640)']
  );
  press(field, 'ArrowDown');
  await settle(20);
  assert.equal(told.at(-1), 'n1');
  press(field, 'Enter');
  await settle(20);
  assert.equal(told.at(-1), 'n3');
  assert.equal(field.getAttribute('aria-activedescendant'), rows()[1]!.id);
  assert.equal(rows()[1]!.getAttribute('aria-selected'), 'true');
  press(field, 'ArrowUp');
  await settle(20);
  assert.equal(told.at(-1), 'n1');
  rows()[1]!.click();
  await settle(20);
  assert.equal(told.at(-1), 'n3');
  press(field, 'Escape');
  assert.equal(list.hidden, true);
  assert.equal(field.value, 'op:conv');
  press(field, 'Escape');
  assert.equal(field.value, '');
});

test('very many hits are listed in part, and all of them counted', async () => {
  const nodes = Array.from({ length: 1000 }, (_, i) =>
    node(`n${i}`, { label: `relu${i}`, reads: i ? [`n${i - 1}`] : [] })
  );
  const view = new GraphPane(noLayout, {
    onNode: () => undefined,
    onBox: () => undefined,
    onProgram: () => undefined
  });
  mount(view.element);
  await view.show(graph({ nodes, boxes: [] }));
  const field = view.element.querySelector<HTMLInputElement>('input[type=search]')!;
  field.value = 'relu';
  press(field, 'Enter');
  await settle(20);
  assert.equal(view.element.querySelectorAll('.hl-hit-row').length, 200);
  assert.match(view.element.querySelector('.hl-hit-more')!.textContent!, /800 more hits/);
});

test('boxes open to a depth, the outer ones first, within what can be drawn', () => {
  const scene = new Scene(deep());
  assert.equal(depthOf(scene), 2, 'the session and a cell: a fold is no depth of its own');
  assert.deepEqual(ids(openedTo(scene, 1).open), ['s']);
  const all = openedTo(scene, Infinity);
  assert.deepEqual([all.open.size, all.boxes], [8, 8]);
  const few = openedTo(scene, Infinity, 12);
  assert.equal(few.boxes, 8);
  assert.ok(few.open.size < 8 && few.drawn <= 12);
  for (const id of few.open) {
    assert.ok(scene.above(id).every(box => few.open.has(box)));
  }
});

test('the bar offers depths and says how many boxes are open', async () => {
  const view = new GraphPane(noLayout, {
    onNode: () => undefined,
    onBox: () => undefined,
    onProgram: () => undefined
  });
  mount(view.element);
  await view.show(deep());
  const depths = view.element.querySelector<HTMLSelectElement>('.hl-depths')!;
  assert.deepEqual(
    [...depths.options].map(option => option.textContent),
    ['Open …', 'Depth 1: 1 box', 'Depth 2: 8 boxes', 'All: 8 boxes']
  );
  depths.value = 'Infinity';
  depths.dispatchEvent(new Event('change'));
  await settle(20);
  assert.equal(view.element.querySelector('.hl-graph-told')!.textContent, '8 boxes are open');
  assert.equal(depths.value, '');
  assert.ok(view.element.querySelector('[data-id="n0_0"]'));
});
