// The trainings in the panel: bars, charts, readout, table.

import { mount, press } from './page';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Curve, TrainingRun } from '../src/protocol/messages';
import { CurvesView } from '../src/view/curves';
import { grouped, rangeOf, shortNumber, ticks } from '../src/view/line-chart';

function curve(name: string, means: number[], changes: Partial<Curve> = {}): Curve {
  return {
    name,
    unit: '',
    count: means.length,
    starts: means.map((_, i) => 10 * (i + 1)),
    steps: means.map((_, i) => 10 * (i + 1)),
    counts: means.map(() => 1),
    means,
    lows: means,
    highs: means,
    firsts: means,
    lasts: means,
    last: means[means.length - 1] ?? null,
    last_step: 10 * means.length,
    bad: [],
    bad_count: 0,
    bad_text: '',
    latest: String(means[means.length - 1]),
    note: '',
    text: `${name} in words`,
    ...changes
  };
}

/** One NaN at each of these steps. */
function bad(...steps: number[]): Partial<Curve> {
  return {
    bad: steps.map(step => ({ what: 'NaN', first: step, last: step, count: 1 })),
    bad_count: steps.length,
    bad_text: `NaN at step ${steps.join(', ')}`
  };
}

function training(number: number, changes: Partial<TrainingRun> = {}): TrainingRun {
  return {
    number,
    label: `cell ${number}`,
    state: 'running',
    ended: '',
    seconds: 1,
    overhead: 0,
    note: '',
    earlier_loops: 0,
    loops: [],
    curves: [curve('loss', [3, 2, 1])],
    ...changes
  };
}

test('a run shows its loops, its curves and a table', () => {
  const view = new CurvesView();
  mount(view.element);
  assert.equal(view.element.hidden, true);
  view.update([
    training(1, {
      loops: [
        {
          title: '<b>train</b>',
          unit: 'step',
          depth: 0,
          done: 5,
          total: 10,
          seconds: 1,
          rate: 5,
          left: 1,
          state: 'running',
          text: '5 of 10, 5.0 steps/s'
        }
      ],
      curves: [curve('loss', [3, 2, 1]), curve('val_loss', [2, 2, 2]), curve('acc', [0.5], { ...bad(7) })]
    })
  ]);
  assert.equal(view.element.hidden, false);
  const bar = view.element.querySelector('progress');
  assert.deepEqual([bar?.value, bar?.max], [5, 10]);
  assert.match(
    view.element.textContent ?? '',
    /Training in cell 1: running<b>train<\/b>5 of 10, 5\.0 steps\/s/
  );
  const charts = [...view.element.querySelectorAll('svg[role=img]')];
  assert.deepEqual(
    charts.map(chart => chart.getAttribute('aria-label')),
    [
      'loss in words; val_loss in words. The arrow keys left and right read values.',
      'acc in words. The arrow keys left and right read values.'
    ]
  );
  const rows = [...view.element.querySelectorAll('tbody tr')].map(row =>
    [...row.children].map(cell => cell.textContent)
  );
  assert.deepEqual(rows[0], ['loss', '1', '30', '1', '3', '3', '']);
  assert.deepEqual(rows[2]?.slice(5), ['1', 'NaN at step 7']);
});

test('earlier runs are faint lines, and a push changes its run alone', () => {
  const view = new CurvesView();
  mount(view.element);
  view.update([training(1, { state: 'done' }), training(2)]);
  assert.equal(view.element.querySelectorAll('.hl-line-earlier').length, 1);
  view.update([training(2, { state: 'failed', ended: 'failed: ValueError' })]);
  assert.match(view.element.textContent ?? '', /Training in cell 2: failed: ValueError/);
  for (let number = 3; number < 12; number++) {
    view.update([training(number)]);
  }
  assert.equal(view.element.querySelectorAll('.hl-line-earlier').length, 5);
});

test('arrow keys read the values of a chart, which keeps its focus while it grows', () => {
  const view = new CurvesView();
  mount(view.element);
  view.update([training(1)]);
  const chart = view.element.querySelector<SVGElement>('svg[role=img]');
  assert.ok(chart);
  chart.focus();
  const readout = (): string => view.element.querySelector('.hl-chart-readout')?.textContent ?? '';
  press(chart, 'ArrowLeft');
  assert.equal(readout(), 'step 30: loss 1');
  press(chart, 'Home');
  assert.equal(readout(), 'step 10: loss 3');
  view.update([training(1, { curves: [curve('loss', [3, 2, 1, 0.5])] })]);
  assert.equal(document.activeElement, chart);
  assert.equal(readout(), 'step 10: loss 3');
});

test('names that end alike share a chart; those of a Trainer have one each', () => {
  const curves = ['loss', 'val_loss', 'train/acc', 'val/acc', 'gradient norm'].map(name => curve(name, [1]));
  assert.deepEqual(
    [...grouped([...curves, curve('step time', [1], { unit: 'ms' })]).keys()],
    ['loss', 'acc', 'gradient norm', 'step time']
  );
});

test('axes have round numbers', () => {
  assert.deepEqual(ticks(0, 1), [0, 0.5, 1]);
  assert.deepEqual(ticks(-3, 8), [0, 5]);
  assert.deepEqual([0.123456, 1e-7, 123456789, 0].map(shortNumber), ['0.123', '1e-7', '1.23e+8', '0']);
});

test('a curve without finite values has no line', () => {
  const view = new CurvesView();
  view.update([
    training(1, { curves: [curve('loss', [], { last: null, last_step: 3, latest: 'NaN', ...bad(1) })] })
  ]);
  for (const path of view.element.querySelectorAll('path')) {
    assert.doesNotMatch(path.getAttribute('d') ?? '', /NaN|Infinity/);
  }
});

test('a curve without a finite value has the axis that the picture under the cell has', () => {
  const view = new CurvesView();
  mount(view.element);
  const empty = curve('loss', [], { last: null, last_step: 7, latest: 'NaN', ...bad(1) });
  view.update([training(1, { curves: [empty] })]);
  const labels = [...view.element.querySelectorAll('.hl-axes text')].map(label => label.textContent);
  assert.deepEqual(labels.slice(-2), ['step 0', '7']);
});

test('every value that is not finite is marked with its step', () => {
  const view = new CurvesView();
  mount(view.element);
  const span = { what: 'inf' as const, first: 25, last: 28, count: 4 };
  const curves = [curve('loss', [3, 2, 1], { ...bad(7, 12), bad_count: 6 })];
  curves[0]?.bad.push(span);
  view.update([training(1, { curves })]);
  const titles = [...view.element.querySelectorAll('title')].map(title => title.textContent);
  assert.deepEqual(titles, ['NaN at step 7', 'NaN at step 12', 'inf at step 25 to 28 (4 values)']);
  assert.equal(view.element.querySelectorAll('.hl-band-bad').length, 1);
  assert.equal(view.element.querySelector('.hl-chart-below')?.textContent, '6 not finite, first at step 7');
});

test('a bucket is read with its steps, its smallest and its largest value', () => {
  const view = new CurvesView();
  mount(view.element);
  const bucket = curve('loss', [2], { starts: [1], steps: [50], counts: [50], lows: [0.5], highs: [9] });
  view.update([training(1, { curves: [bucket] })]);
  const chart = view.element.querySelector<SVGElement>('svg[role=img]');
  assert.ok(chart && view.element.querySelector('.hl-band'));
  press(chart, 'Home');
  assert.equal(
    view.element.querySelector('.hl-chart-readout')?.textContent,
    'steps 1 to 50: loss 2 (0.5 to 9)'
  );
});

test('a spike far away from all other values is marked at the border', () => {
  const values = Array.from({ length: 100 }, (_, i) => 1 + 0.1 * Math.sin(i));
  const spike = curve('loss', values, { highs: values.map((value, i) => (i === 40 ? 1e6 : value)) });
  assert.ok(rangeOf([spike]).high < 2);
  const view = new CurvesView();
  view.update([training(1, { curves: [spike] })]);
  assert.equal(view.element.querySelectorAll('.hl-outside').length, 1);
  assert.ok(rangeOf([curve('loss', [1, 1e6])]).high > 1e6);
});

test('values of any size have a range', () => {
  for (const values of [[1.7e308, -1.7e308], [1.7e308], [5e-324], [0], []]) {
    const view = new CurvesView();
    view.update([training(1, { curves: [curve('loss', values)] })]);
    assert.doesNotMatch(view.element.innerHTML, /NaN|Infinity/);
  }
});
