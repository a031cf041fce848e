// The histograms of a parameter over the saves of a file: rows, numbers, keys, and what can be done with a save.

import { buttonOf, click, mount, settle } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Histogram, HistogramsReply, SavedValues } from '../src/protocol/messages';
import { SavedValuesPart } from '../src/view/saved-values';
import { TableKernel, model } from './records';

const histogram = (changes: Partial<Histogram> = {}): Histogram => ({
  size: 1280,
  looked: 1280,
  zeros: 0,
  nans: 0,
  infinities: 0,
  minimum: -1,
  maximum: 1,
  mean: 0.012345,
  std: 0.5,
  bins: [320, 640, 320],
  ...changes
});
const save = (changes: Partial<SavedValues> = {}): SavedValues => ({
  file: 'net.hlab',
  modified: Date.now() / 1000 - 90,
  step: null,
  loss: null,
  loss_name: '',
  note: '',
  problem: '',
  recorded: true,
  values: histogram(),
  gradient: null,
  ...changes
});
const reply = (changes: Partial<HistogramsReply> = {}): HistogramsReply => ({
  parameters: ['weight', 'bias', '0.<img src=x>'],
  name: 'weight',
  saves: [
    save({
      file: '.hybrid_lab_history/net.1.hlab',
      step: 1200,
      loss: 0.5,
      note: '<b>warm</b>',
      gradient: histogram()
    }),
    save({ file: '.hybrid_lab_history/net.2.hlab', problem: 'damaged archive', values: null }),
    save({ values: histogram({ nans: 3, maximum: 4, looked: 640 }) })
  ],
  live: histogram({ bins: [1280], minimum: 0, maximum: 0, zeros: 1280 }),
  live_gradient: null,
  ...changes
});

async function shown(answer: HistogramsReply = reply(), now: () => HistogramsReply = () => answer) {
  const asked: object[] = [];
  const kernel = new TableKernel({
    histograms: body => {
      asked.push(body);
      return { ...now(), name: body.name || answer.name };
    }
  });
  const done: string[] = [];
  const part = new SavedValuesPart({
    file: () => 'net.hlab',
    onCompare: file => done.push(`compare ${file}`),
    onReload: file => done.push(`reload ${file}`)
  });
  const place = document.createElement('div');
  place.append(part.element);
  mount(place);
  part.show(kernel, model(), '0');
  await settle();
  const panel = () =>
    part.element.querySelector<HTMLElement>('[role="tabpanel"]:not([hidden])') as HTMLElement;
  const rows = () => [...panel().querySelectorAll<HTMLElement>('.hl-ridge-row')];
  const readout = () => panel().querySelector('.hl-readout')?.textContent ?? '';
  return { part, panel, rows, readout, done, asked };
}

test('a row for each save, the oldest first, and one for the live model', async () => {
  const { part, rows, asked } = await shown();
  assert.deepEqual(asked, [{ model: 'm1', file: 'net.hlab', path: '0', name: '' }]);
  assert.deepEqual(
    rows().map(row => [...row.querySelectorAll('.hl-ridge-name span')].map(span => span.textContent)),
    [['step 1,200', '<b>warm</b>'], ['1 min ago'], ['1 min ago'], ['now', 'live']]
  );
  assert.match(rows()[1]?.textContent ?? '', /damaged archive/);
  assert.match(rows()[2]?.textContent ?? '', /NaN 3/);
  assert.equal(part.element.querySelectorAll('img, b').length, 0);
  assert.equal(part.element.querySelectorAll('.hl-ridge-shape').length, 3);
});

test('nothing is shown without a save', async () => {
  assert.equal((await shown(reply({ saves: [] }))).part.element.hidden, true);
});

test('arrow keys choose a save, whose numbers are said and which can be compared and reloaded', async () => {
  const { panel, rows, readout, done, part } = await shown();
  const press = (key: string): void => {
    panel()
      .querySelector('.hl-ridges')
      ?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
  };
  assert.equal(buttonOf(part.element, 'Reload').disabled, true);
  press('Home');
  assert.deepEqual(
    rows().map(row => [row.getAttribute('aria-selected'), row.tabIndex]),
    [
      ['true', 0],
      ['false', -1],
      ['false', -1],
      ['false', -1]
    ]
  );
  assert.match(readout(), /step 1,200: min -1 · max 1 · mean 0\.0123 · std 0\.5 · 1,280 values/);
  click(buttonOf(panel(), 'Compare'));
  click(buttonOf(panel(), 'Reload'));
  assert.deepEqual(done, ['compare .hybrid_lab_history/net.1.hlab', 'reload .hybrid_lab_history/net.1.hlab']);
  press('ArrowDown');
  assert.equal(buttonOf(panel(), 'Compare').disabled, true, 'a damaged file');
  press('ArrowDown');
  assert.match(readout(), /NaN 3 · sample of 640 of 1,280 values/);
  press('End');
  assert.match(readout(), /now: .*100% zeros/);
  assert.equal(document.activeElement, rows()[3]);
});

test('the tabs show gradients, the list another parameter, the table the same numbers', async () => {
  const { part, panel, rows, asked } = await shown();
  part.element.querySelectorAll<HTMLElement>('[role="tab"]')[1]?.click();
  assert.deepEqual(
    rows().map(row => row.querySelector('.hl-empty')?.textContent ?? 'drawn'),
    ['drawn', 'damaged archive', 'no gradient', 'no gradient']
  );
  part.element.querySelectorAll<HTMLElement>('[role="tab"]')[0]?.click();
  assert.deepEqual(
    [...panel().querySelectorAll('tbody tr')].map(row => row.children.length),
    [9, 2, 9, 9]
  );
  part.choose('bias');
  await settle();
  assert.deepEqual(asked[1], { model: 'm1', file: 'net.hlab', path: '0', name: 'bias' });
});

test('without any gradient it says where one comes from', async () => {
  const { part, panel } = await shown(reply({ saves: [save()] }));
  part.element.querySelectorAll<HTMLElement>('[role="tab"]')[1]?.click();
  assert.match(panel().textContent ?? '', /where a backward pass wrote it/);
});

test('each row is drawn on one scale or on its own', async () => {
  const { part, rows, panel } = await shown();
  const path = () => rows()[0]?.querySelector('.hl-ridge-shape')?.getAttribute('d') ?? '';
  assert.match(path(), /L400\.0 100Z$/);
  assert.match(panel().querySelector('.hl-ridge-axis')?.textContent ?? '', /-1.*4/);
  const box = part.element.querySelector<HTMLInputElement>('input[type="checkbox"]') as HTMLInputElement;
  box.checked = true;
  box.dispatchEvent(new Event('change'));
  assert.match(path(), /L1000\.0 100Z$/);
  assert.equal(panel().querySelector('.hl-ridge-axis'), null);
});

test('the scale of one value that all rows have is that value alone, without 0', async () => {
  const ones = histogram({ minimum: 1, maximum: 1, bins: [64] });
  const { panel } = await shown(reply({ saves: [save({ values: ones })], live: ones }));
  assert.equal(panel().querySelector('.hl-ridge-axis')?.textContent, '1');
  assert.equal(panel().querySelectorAll('.hl-ridge-zero-line').length, 0);
});

test('what is said of the age of a save is true when the values are asked for again', async () => {
  const { part, rows } = await shown(reply({ saves: [save()] }));
  assert.match(rows()[0]?.textContent ?? '', /1 min ago/);
  const { now } = Date;
  Date.now = () => now() + 600_000;
  try {
    await part.load();
    assert.match(rows()[0]?.textContent ?? '', /11 min ago/);
  } finally {
    Date.now = now;
  }
});

test('what a resting pointer reads stays when the rows are drawn again', async () => {
  let answer = reply();
  const { part, rows, readout } = await shown(answer, () => answer);
  const at = (row: Element | undefined, type: string): void =>
    void row?.dispatchEvent(new MouseEvent(type, { bubbles: type !== 'pointerleave', clientX: 10 }));
  at(rows()[3], 'pointermove');
  assert.match(readout(), /^now: 0: 1,280 of 1,280 values/);
  const before = rows()[3];
  answer = reply({ live: histogram({ bins: [640, 640], looked: 1280 }) });
  await part.load();
  assert.notEqual(rows()[3], before, 'it was drawn again');
  assert.match(readout(), /^now: min -1 · max 1/);
  at(before, 'pointerleave'); // of what is in the page no longer
  assert.match(readout(), /^now: /);
  at(rows()[3], 'pointerleave');
  assert.match(readout(), /^Point at a row/);
});
