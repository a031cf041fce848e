// The list of kept runs, and the charts that compare those that are chosen.

import { mount } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Requester } from '../src/protocol/channel';
import type { Curve, KeptRunRow, RunsReply } from '../src/protocol/messages';
import { KeptRuns } from '../src/view/kept-runs';

function row(number: number): KeptRunRow {
  return {
    number,
    label: `run ${number} <b>lr=0.1</b>`,
    started: 1.7e9,
    place: 'a.ipynb, cell 5',
    state: 'done',
    model: 'net: Dense, 15 weights',
    steps: 300,
    time: '3.2 s',
    last: 'loss 0.12',
    details: ['parameters: optimizer=SGD', 'notes: <i>']
  };
}

function curve(name: string): Curve {
  const values = [3, 2, 1];
  return {
    name,
    unit: '',
    count: 3,
    starts: values,
    steps: [1, 2, 3],
    counts: [1, 1, 1],
    means: values,
    lows: values,
    highs: values,
    firsts: values,
    lasts: values,
    last: 1,
    last_step: 3,
    bad: [],
    bad_count: 0,
    bad_text: '',
    latest: '1',
    note: '',
    text: `${name} in words`
  };
}

class Kernel {
  asked: number[][] = [];
  problem = '';
  constructor(public numbers: number[]) {}

  readonly requester = {
    request: (_: string, body: { numbers: number[] }): Promise<RunsReply> => {
      this.asked.push(body.numbers);
      const curves = body.numbers.map(number => ({ number, curves: [curve('loss'), curve('acc')] }));
      const runs = this.problem === '' ? this.numbers.map(row) : [];
      return Promise.resolve({ file: 'runs', problem: this.problem, runs, curves });
    }
  } as unknown as Requester;
}

const settled = (): Promise<void> => new Promise(resolve => setTimeout(resolve, 0));

async function shown(kernel: Kernel): Promise<{ view: KeptRuns; offers: () => number }> {
  let offers = 0;
  const view = new KeptRuns(() => offers++);
  mount(view.element);
  view.connect(kernel.requester);
  await settled();
  return { view, offers: () => offers };
}

const boxes = (view: KeptRuns): HTMLInputElement[] => [...view.element.querySelectorAll('input')];
const charts = (view: KeptRuns): Element[] => [...view.element.querySelectorAll('svg[role=img]')];

async function click(box: HTMLInputElement | undefined): Promise<void> {
  box?.click();
  await settled();
}

test('without kept runs nothing is offered', async () => {
  const { view, offers } = await shown(new Kernel([]));
  assert.deepEqual([view.element.hidden, offers()], [true, 0]);
});

test('runs are listed as text, and those that are chosen share a chart for each curve', async () => {
  const kernel = new Kernel([2, 1]);
  const { view, offers } = await shown(kernel);
  assert.deepEqual([view.element.hidden, offers(), charts(view).length], [false, 1, 0]);
  assert.equal(view.element.querySelector('summary')?.textContent, '2 kept runs');
  const first = view.element.querySelector('tbody tr');
  assert.match(first?.textContent ?? '', /run 2 <b>lr=0.1<\/b>loss 0.12done/);
  assert.equal(first?.getAttribute('title'), 'parameters: optimizer=SGD\nnotes: <i>');
  assert.equal(view.element.querySelector('b, i'), null);
  await click(boxes(view)[0]);
  await click(boxes(view)[1]);
  assert.deepEqual(kernel.asked, [[], [2], [1]]); // the curves of a run are asked for once
  assert.equal(charts(view).length, 2);
  assert.equal(
    charts(view)[0]?.getAttribute('aria-label'),
    'loss: run 1 <b>lr=0.1</b>, loss in words; run 2 <b>lr=0.1</b>, loss in words. The arrow keys left and right read values.'
  );
  assert.equal(charts(view)[0]?.querySelectorAll('path.hl-line').length, 2);
  await click(boxes(view)[0]);
  assert.equal(charts(view)[0]?.querySelectorAll('path.hl-line').length, 1);
  await click(boxes(view)[1]);
  assert.equal(charts(view).length, 0);
});

test('a choice keeps its focus; of more than eight the first is dropped; later colours are dashed', async () => {
  const { view } = await shown(new Kernel([1, 2, 3, 4, 5, 6, 7, 8, 9]));
  for (let i = 0; i < 9; i++) {
    boxes(view)[i]?.focus();
    await click(boxes(view)[i]);
    assert.equal(document.activeElement, boxes(view)[i]);
  }
  assert.deepEqual(
    boxes(view).map(box => box.checked),
    [false, true, true, true, true, true, true, true, true]
  );
  assert.equal(charts(view)[0]?.querySelectorAll('path.hl-line.hl-line-again').length, 4);
});

test('a run that is gone is no longer drawn, another kernel forgets the choice, a problem is said', async () => {
  const kernel = new Kernel([2, 1]);
  const { view } = await shown(kernel);
  await click(boxes(view)[0]);
  kernel.numbers = [1];
  await view.refresh();
  assert.equal(charts(view).length, 0);
  await click(boxes(view)[0]);
  const other = new Kernel([1]);
  view.connect(other.requester);
  await settled();
  assert.deepEqual([charts(view).length, boxes(view)[0]?.checked], [0, false]);
  other.problem = 'the file is damaged';
  await view.refresh();
  assert.match(view.element.textContent ?? '', /the file is damaged/);
  assert.equal(view.element.hidden, false);
  view.connect(null);
  assert.equal(view.element.hidden, true);
});
