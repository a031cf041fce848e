// The banner: what it says of a model, where each answer leads, when it is quiet, and what it asks the kernel.

import { buttonOf, click, mount, settle } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AnswersReply, BlockNode, Model, NanAnswer, OverlayReply } from '../src/protocol/messages';
import { Banner } from '../src/view/banner';
import { timeText } from '../src/view/words';
import { TableKernel, block, graph, model, network } from './records';

const NOW = Date.now() / 1000;

const nan = (changes: Partial<NanAnswer> = {}): NanAnswer => ({
  source: 'watched',
  path: 'features.0',
  operator: 'log',
  part: 'forward',
  name: 'net.features.0',
  step: null,
  count: 0,
  text: 'log gives 3 NaN',
  location: null,
  ...changes
});

const answers = (changes: Partial<AnswersReply> = {}): AnswersReply => ({
  model: 'm1',
  nan: null,
  change: {
    how: 'saved',
    file_now: 'same',
    file: 'net.hlab',
    path: '/home/net.hlab',
    reachable: true,
    when: NOW,
    changed: 0,
    uncompared: 0,
    unsure: 0,
    parameters: 4,
    structure: false
  },
  measurable: false,
  ...changes
});

const times = (): OverlayReply => ({
  kind: 'time',
  program: 'p1',
  unit: 's',
  measured_on: 'random',
  headline: 'forward: 3 ms, on random numbers',
  missing: '',
  items: [
    { id: 'n1', value: 0.002, share: 0.055, short: '2 ms', text: '2 ms (5.5%)', bad: false },
    { id: 'n2', value: 0.001, share: 0.02, short: '1 ms', text: '1 ms (2%)', bad: false }
  ],
  marked: ['n1', 'n2'],
  timeline: [],
  step: []
});

/** As the banner writes it. */
const today = timeText(NOW, new Date());

function banner(reply: AnswersReply, isSeen = true): { banner: Banner; told: string[]; kernel: TableKernel } {
  const told: string[] = [];
  const kernel = new TableKernel({
    answers: () => reply,
    overlay: () => times(),
    graph: () => graph({ program: 'p1' }),
    watch_nan: () => ({ on: true })
  });
  const made = new Banner(
    {
      onBlock: path => told.push(`block ${path}`),
      onNan: item => told.push(`nan ${item.source}`),
      onSlowest: found =>
        told.push(found ? `slowest ${found.path}|${found.program}|${found.node}` : 'measure'),
      onCompare: file => told.push(`compare ${file}`),
      onModel: (id, path) => told.push(`model ${id} ${path}`),
      onFailed: path => told.push(`failed ${path}`)
    },
    () => isSeen
  );
  made.connect(kernel);
  mount(made.element);
  return { banner: made, told, kernel };
}

const texts = (made: Banner): string[] =>
  [...made.element.querySelectorAll('.hl-answer')].map(item => item.textContent ?? '');
const status = (made: Banner): string => made.element.querySelector('[role=status]')?.textContent ?? '';

function broken(): BlockNode {
  const root = network();
  const [features] = root.children;
  features!.state = root.state = 'failed';
  features!.why = 'HL101: reads x.shape (cell 4, line 12)';
  root.failed_in = 'features';
  root.why = 'its graph failed in features: HL101: reads x.shape (cell 4, line 12)';
  return root;
}

test('a model where all is well has one calm line', async () => {
  const { banner: made, told } = banner(answers());
  made.showTree('m1', network(), '');
  await made.refresh();
  assert.deepEqual(texts(made), ['All 5 Blocks hybrid', 'find the slowest operator', `saved ${today}`]);
  assert.equal(made.element.querySelectorAll('.hl-answer-bad, .hl-answer-note').length, 0);
  assert.equal(status(made), '');
  click(buttonOf(made.element, `saved ${today}`));
  click(buttonOf(made.element, 'find the slowest operator'));
  assert.deepEqual(told, ['compare net.hlab', 'measure']);
});

test('answers that are cut and lead nowhere are scrolled to by keys', async () => {
  const { banner: made } = banner(answers({ change: null }));
  const list = made.element.querySelector<HTMLElement>('ul')!;
  Object.defineProperty(list, 'scrollWidth', { value: 300 });
  made.showTree('m1', block('', { state: 'waiting' }), '');
  await made.refresh();
  assert.deepEqual(texts(made), ['1 Block hybridized, not called yet', 'not saved yet']);
  assert.equal(list.tabIndex, 0);
  made.showTree('m1', network(), '');
  assert.notEqual(list.querySelector('button'), null);
  assert.equal(list.hasAttribute('tabindex'), false);
});

test('Blocks whose calls run eagerly are no failures', async () => {
  const root = network();
  const [features] = root.children;
  features!.state = root.state = 'refused';
  features!.why = 'HL173: keeps a tensor (cell 4, line 12)';
  root.failed_in = 'features';
  const { banner: made, told } = banner(answers());
  made.showTree('m1', root, '');
  await made.refresh();
  assert.equal(texts(made)[0], '1 Block runs eagerly');
  assert.equal(made.element.querySelectorAll('.hl-answer-bad').length, 0);
  click(buttonOf(made.element, '1 Block runs eagerly'));
  assert.deepEqual(told, ['block features']);
});

test('each answer leads to its place', async () => {
  const change = { ...answers().change!, changed: 12 };
  const { banner: made, told } = banner(answers({ nan: nan(), change }));
  made.showTree('m1', broken(), '');
  await made.refresh();
  made.measured('m1', times(), graph({ program: 'p1' }));
  assert.deepEqual(texts(made), [
    '1 Block failed: net.features – HL101: reads x.shape (cell 4, line 12)',
    'NaN first in net.features[0] (log)',
    '12 tensors changed since the save',
    'slowest: Convolution 5.5%'
  ]);
  made.element.querySelectorAll<HTMLElement>('button').forEach(click);
  assert.deepEqual(told, [
    'failed features',
    'block features',
    'nan watched',
    'compare net.hlab',
    'slowest |p1|n1'
  ]);
});

test('a model that is not shown and failed is told too, and one click goes there', async () => {
  const { banner: made, told } = banner(answers({ nan: nan() }));
  made.showTree('m1', network(), '');
  await made.refresh();
  const failing = (id: string, name: string, path = '1', count = 1): Model =>
    model({ id, name, failed: { path, why: 'HL101: reads x.shape', count, code: '' } });
  made.showOthers([
    model({ id: 'm2', name: 'fine' }),
    failing('m3', 'dis', 'body.1'),
    failing('m4', 'gen', '', 2),
    failing('m5', 'top', '')
  ]);
  assert.deepEqual(texts(made).slice(0, 3), [
    '1 Block of dis failed: dis.body[1]',
    '2 Blocks of gen failed: gen',
    'top failed'
  ]);
  assert.match(status(made), /1 Block of dis failed/);
  made.element.querySelectorAll<HTMLElement>('.hl-answer-bad button').forEach(click);
  assert.deepEqual(told.slice(0, 3), ['model m3 body.1', 'model m4 ', 'model m5 ']);
  made.showOthers(['a', 'b', 'c', 'd', 'e'].map(name => failing(name, name)));
  assert.equal(texts(made)[3], '2 more models failed');
  click(buttonOf(made.element, '2 more models failed'));
  assert.equal(told.at(-1), 'model d 1');
  made.showOthers([]);
  assert.equal(texts(made)[0], 'NaN first in net.features[0] (log)');
});

test('the end of an answer, which says where a click leads, is a part of its own', async () => {
  const { banner: made } = banner(
    answers({ nan: nan({ source: 'logged', name: 'validation_loss', step: 57, path: null }) })
  );
  made.showTree('m1', network(), '');
  await made.refresh();
  const link = made.element.querySelector('.hl-answer-long');
  assert.deepEqual(
    [...(link?.children ?? [])].map(part => part.textContent),
    ['validation_loss not finite at step 57', ': find where']
  );
});

test('Blocks that run as Python are counted by their state', async () => {
  const { banner: made } = banner(answers({ change: null }));
  const root = block('', {
    state: 'plain',
    hybrid: false,
    children: [
      block('a', { state: 'eager' }),
      block('b', { state: 'eager' }),
      block('c', { state: 'active', graphs: 1 })
    ]
  });
  made.showTree('m1', root, '');
  await made.refresh();
  assert.deepEqual(texts(made).slice(0, 2), ['2 Blocks not hybridized', '1 Block plain']);
  assert.equal(texts(made).at(-1), 'not saved yet');
  const waiting = block('', { state: 'waiting' });
  made.showTree('m2', waiting, '');
  assert.deepEqual(texts(made), ['1 Block hybridized, not called yet']);
});

test('NaN is told by where it comes from', async () => {
  const cases: [Partial<NanAnswer>, string][] = [
    [{ part: 'backward', path: 'a.b', operator: '' }, 'NaN first in the backward of net.a.b'],
    [{ path: '', operator: 'exp', name: 'net' }, 'NaN first in net (exp)'],
    [{ source: 'parameters', count: 3, name: 'a.weight' }, '3 parameters with NaN: net.a.weight'],
    [{ source: 'logged', name: 'loss', step: 57, path: null }, 'loss not finite at step 57: find where']
  ];
  for (const [changes, text] of cases) {
    const { banner: made } = banner(answers({ nan: nan(changes) }));
    made.showTree('m1', network(), '');
    await made.refresh();
    assert.equal(texts(made)[0], text);
  }
});

test('a logged NaN is found by one click: the watch is on, and the cell is to run again', async () => {
  const { banner: made, kernel } = banner(
    answers({ nan: nan({ source: 'logged', name: 'loss', step: 57, path: null }) })
  );
  made.showTree('m1', network(), '');
  await made.refresh();
  click(buttonOf(made.element, 'loss not finite at step 57: find where'));
  await settle();
  assert.deepEqual(kernel.asked.at(-1), { type: 'watch_nan', body: { model: 'm1', on: true } });
  assert.equal(
    texts(made)[0],
    'loss not finite at step 57: run the cell again, and it stops at the first NaN'
  );
  assert.match(status(made), /Run the cell again/);
});

test('where parameters hold NaN already, the model is to be created again', async () => {
  const { banner: made } = banner(
    answers({ nan: nan({ source: 'logged', name: 'loss', step: 57, path: null, count: 6 }) })
  );
  made.showTree('m1', network(), '');
  await made.refresh();
  click(buttonOf(made.element, 'loss not finite at step 57: find where'));
  await settle();
  assert.equal(
    texts(made)[0],
    'loss not finite at step 57: create net again and train it; the cell then stops at the first NaN'
  );
  assert.match(status(made), /create the model again/);
});

test('a file that was removed or written since the save is no save of the model any more', async () => {
  const reply = answers();
  const { banner: made, told } = banner(reply);
  made.showTree('m1', network(), '');
  reply.change = { ...reply.change!, file_now: 'gone', reachable: false };
  await made.refresh();
  assert.equal(texts(made)[0], 'net.hlab was removed since the save');
  reply.change = { ...reply.change, file_now: 'other', reachable: true };
  await made.refresh();
  click(buttonOf(made.element, 'net.hlab was written by something else since the save'));
  assert.deepEqual(told, ['compare net.hlab']);
});

test('what is said politely is what is new', async () => {
  const reply = answers();
  const { banner: made } = banner(reply);
  made.showTree('m1', network(), '');
  await made.refresh();
  assert.equal(status(made), '');
  reply.nan = nan();
  await made.refresh();
  assert.equal(status(made), 'NaN first in net.features[0] (log)');
  reply.nan = null;
  await made.refresh();
  assert.equal(status(made), 'All is well again.');
});

test('a list or dict that holds Blocks is not counted, and names are code', () => {
  const { banner: made } = banner(answers({ change: null }));
  made.showTree(
    'm1',
    block('', {
      attr: 'zoo',
      class: 'dict',
      state: 'plain',
      group: true,
      codes: [
        ['', '["gen"][0]'],
        ['list(', '.values())[1]']
      ],
      children: [
        block('gen_0', { attr: 'gen[0]', codes: [['', '.body']], children: [block('gen_0.body')] }),
        block('other', { state: 'eager' })
      ]
    }),
    ''
  );
  assert.deepEqual(texts(made), ['1 Block not hybridized']);
  assert.match(buttonOf(made.element, '1 Block not hybridized').title, /^list\(zoo\.values\(\)\)\[1\]:/);
});

test('a Block that failed is told of once', () => {
  const { banner: made, told } = banner(answers());
  made.showTree('m1', broken(), '');
  assert.deepEqual(told.splice(0), ['failed features'], 'it had failed when the model was shown first');
  made.showTree('m1', broken(), '');
  assert.deepEqual(told, []);
  made.showTree('m2', network(), '');
  made.showTree('m2', broken(), '');
  made.showTree('m2', broken(), '');
  assert.deepEqual(told, ['failed features']);
});

test('changes: by hand, of the structure, of files of another kernel', async () => {
  const change = answers().change!;
  const cases: [Partial<typeof change>, string][] = [
    [{ changed: 1 }, '1 tensor changed since the save'],
    [{ changed: 2, how: 'loaded' }, '2 tensors changed since it was loaded'],
    [{ changed: 3, uncompared: 2 }, 'up to 3 tensors changed since the save'],
    [{ changed: 2, structure: true }, 'Blocks or parameters changed since the save'],
    [{ how: 'unknown' }, `net.hlab ${today}: compare`]
  ];
  for (const [changes, text] of cases) {
    const { banner: made } = banner(answers({ change: { ...change, ...changes } }));
    made.showTree('m1', network(), '');
    await made.refresh();
    assert.equal(made.element.querySelector('[data-key=change]')?.textContent, text);
    // What changed is told before what is well: the end of the line is cut in a narrow panel.
    assert.equal(texts(made).indexOf(text), changes.how === 'unknown' ? texts(made).length - 1 : 0);
  }
  const far = banner(answers({ change: { ...change, changed: 1, reachable: false } })).banner;
  far.showTree('m1', network(), '');
  await far.refresh();
  assert.equal(far.element.querySelectorAll('[data-key=change]').length, 0, 'compare would not find it');
});

test('a small model is measured unasked, once, where somebody sees it', async context => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  const { banner: made, kernel } = banner(answers({ measurable: true }));
  made.showTree('m1', network(), 'a');
  await made.refresh();
  context.mock.timers.tick(1000);
  assert.equal(kernel.asked.filter(({ type }) => type === 'overlay').length, 0);
  context.mock.timers.tick(1000);
  for (let i = 0; i < 10; i++) {
    await Promise.resolve();
  }
  assert.equal(kernel.asked.filter(({ type }) => type === 'overlay').length, 1);
  await made.refresh();
  context.mock.timers.tick(5000);
  assert.equal(kernel.asked.filter(({ type }) => type === 'overlay').length, 1);
  assert.ok(texts(made).includes('slowest: Convolution 5.5%'));

  const unseen = banner(answers({ measurable: true }), false);
  unseen.banner.showTree('m1', network(), 'a');
  await unseen.banner.refresh();
  context.mock.timers.tick(5000);
  assert.equal(unseen.kernel.asked.filter(({ type }) => type === 'overlay').length, 0);
});

test('names of models are text, and a kernel without the request is told of its Blocks all the same', async () => {
  const made = new Banner(
    {
      onBlock: () => undefined,
      onNan: () => undefined,
      onSlowest: () => undefined,
      onCompare: () => undefined
    },
    () => false
  );
  made.connect(new TableKernel({}));
  mount(made.element);
  const root = broken();
  root.children[0]!.path = '<img src=x onerror=alert(1)>';
  made.showTree('m1', root, '');
  await made.refresh();
  assert.equal(made.element.querySelector('img'), null);
  assert.match(texts(made)[0]!, /1 Block failed: net\.<img/);
});
