// The trainings of the notebook: bars of the loops, curves of the values, a table of them. Earlier runs are faint lines.

import type { Curve, Loop, TrainingRun } from '../protocol/messages';
import { h, replace } from './dom';
import { LineChart, grouped, shortNumber } from './line-chart';
import { __ } from '../text';
import { runStateText } from './words';

/** As many runs as the kernel keeps. */
const KEPT = 6;

export class CurvesView {
  readonly element: HTMLDetailsElement;

  /** `onEnd`: a run ended. */
  constructor(private readonly onEnd: () => void = () => undefined) {
    this.headline = h('summary', {});
    this.loops = h('div', { class: 'hl-loops' });
    this.charts = h('div', { class: 'hl-charts' });
    this.table = h('tbody', {});
    this.values = h(
      'details',
      { class: 'hl-curve-values' },
      h('summary', {}, __('Values')),
      h(
        'table',
        {},
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            ...[
              __('Curve'),
              __('last'),
              __('at step'),
              __('smallest'),
              __('largest'),
              __('values'),
              __('not finite')
            ].map(name => h('th', { scope: 'col' }, name))
          )
        ),
        this.table
      )
    );
    this.element = h(
      'details',
      { class: 'hl-training', open: true },
      this.headline,
      this.loops,
      this.charts,
      this.values
    );
    this.clear();
  }

  /** Forget all runs: another kernel. */
  clear(): void {
    this.runs.clear();
    this.shown.clear();
    this.charts.replaceChildren();
    this.element.hidden = true;
  }

  /** Take the runs of a reply or a push. */
  update(runs: readonly TrainingRun[]): void {
    for (const run of runs) {
      if (run.state !== 'running' && this.runs.get(run.number)?.state === 'running') {
        this.onEnd();
      }
      this.runs.set(run.number, run);
    }
    const order = [...this.runs.values()].sort((a, b) => a.number - b.number);
    order.slice(0, -KEPT).forEach(run => this.runs.delete(run.number));
    const run = order[order.length - 1];
    this.element.hidden = run === undefined;
    if (run) {
      this.show(run, order.slice(-KEPT, -1));
    }
  }

  private show(run: TrainingRun, earlier: readonly TrainingRun[]): void {
    const place = run.label === '' ? __('Training') : __('Training in %1', run.label);
    this.headline.textContent = `${place}: ${run.ended || runStateText(run.state)}`;
    replace(
      this.loops,
      run.earlier_loops > 0 && h('div', {}, __('%1 earlier loops', run.earlier_loops)),
      ...run.loops.map(bar),
      run.note !== '' && h('div', {}, run.note)
    );
    const groups = grouped(run.curves);
    for (const [key, chart] of this.shown) {
      if (!groups.has(key)) {
        chart.element.remove();
        this.shown.delete(key);
      }
    }
    for (const [key, curves] of groups) {
      let chart = this.shown.get(key);
      if (!chart) {
        chart = new LineChart();
        this.shown.set(key, chart);
      }
      const names = new Set(curves.map(curve => curve.name));
      chart.show(
        curves,
        earlier.flatMap(other => other.curves.filter(curve => names.has(curve.name)))
      );
    }
    // In the order of the kernel; moving an element that is in its place would take its focus.
    const elements = [...groups.keys()].flatMap(key => this.shown.get(key)?.element ?? []);
    if (elements.some((element, i) => this.charts.children[i] !== element)) {
      this.charts.replaceChildren(...elements);
    }
    this.values.hidden = run.curves.length === 0;
    replace(this.table, ...run.curves.map(row));
  }

  private readonly headline: HTMLElement;
  private readonly loops: HTMLElement;
  private readonly charts: HTMLElement;
  private readonly table: HTMLElement;
  private readonly values: HTMLElement;
  private readonly runs = new Map<number, TrainingRun>();
  private readonly shown = new Map<string, LineChart>();
}

function bar(loop: Loop): HTMLElement {
  const name = loop.title || 'loop';
  return h(
    'div',
    { class: `hl-loop hl-loop-${loop.state}`, style: `--hl-level: ${loop.depth}` },
    loop.title !== '' && h('span', { class: 'hl-loop-title' }, loop.title),
    loop.total !== null &&
      h('progress', {
        max: Math.max(loop.total, 1),
        value: loop.done,
        'aria-label': __('Progress of %1', name)
      }),
    h('span', { class: 'hl-loop-text' }, loop.text)
  );
}

function row(curve: Curve): HTMLElement {
  const extremes = curve.lows.length > 0 ? [Math.min(...curve.lows), Math.max(...curve.highs)] : [];
  return h(
    'tr',
    {},
    h('th', { scope: 'row' }, curve.name),
    h('td', {}, curve.latest),
    h('td', {}, String(curve.last_step)),
    ...[0, 1].map(i => h('td', {}, extremes[i] === undefined ? '' : shortNumber(extremes[i]))),
    h('td', {}, curve.note === '' ? String(curve.count) : curve.note),
    h('td', {}, curve.bad_text)
  );
}
