// The workers that train for the notebook: a row for each, and the curves of all in one chart for each name.

import type { Curve, WorkerRow, WorkersReply } from '../protocol/messages';
import { h, replace, tellWhatIsCut } from './dom';
import { LineChart } from './line-chart';
import { __ } from '../text';

/** Colours of ranks before they begin again, dashed. */
const COLORS = 8;

const TITLES = [
  __('Rank'),
  __('State'),
  __('Step'),
  __('Loss'),
  __('Samples/s'),
  __('Memory'),
  __('Device'),
  __('Host'),
  __('Process')
];

export class WorkersView {
  readonly element: HTMLDetailsElement;

  constructor() {
    this.headline = h('summary', {});
    this.rows = h('tbody', {});
    this.problems = h('ul', { class: 'hl-worker-problems hl-worker-failed' });
    this.note = h('div', { class: 'hl-workers-note' });
    this.charts = h('div', { class: 'hl-charts' });
    this.element = h(
      'details',
      { class: 'hl-workers', open: true },
      this.headline,
      h(
        'div',
        { class: 'hl-kept-scroll', tabindex: 0, role: 'region', 'aria-label': __('Workers') },
        h(
          'table',
          { class: 'hl-kept hl-worker-table' },
          h('thead', {}, h('tr', {}, ...TITLES.map(title => h('th', { scope: 'col' }, title)))),
          this.rows
        )
      ),
      this.problems,
      this.note,
      this.charts
    );
    tellWhatIsCut(this.element);
    this.element.hidden = true;
  }

  /** Show what the kernel told; null: nothing is known of workers. */
  show(reply: WorkersReply | null): void {
    if (reply === this.shown) {
      return;
    }
    this.shown = reply;
    const workers = reply?.workers ?? [];
    this.element.hidden = workers.length === 0;
    this.headline.textContent = reply?.headline ?? '';
    this.note.textContent = reply?.note ?? '';
    replace(this.rows, ...workers.map(row));
    replace(
      this.problems,
      ...workers
        .filter(({ problem }) => problem !== '')
        .map(({ rank, problem }) => h('li', {}, __('rank %1: %2', rank, problem)))
    );
    this.drawCharts(reply);
  }

  /** One chart for each name of a curve, those of all ranks in it. */
  private drawCharts(reply: WorkersReply | null): void {
    const groups = new Map<string, Curve[]>();
    for (const { rank, curves } of reply?.curves ?? []) {
      for (const curve of curves) {
        const name = __('rank %1', rank);
        const named = { ...curve, name, text: `${name}, ${curve.text}` };
        groups.set(curve.name, [...(groups.get(curve.name) ?? []), named]);
      }
    }
    for (const name of this.drawn.keys()) {
      if (!groups.has(name)) {
        this.drawn.delete(name);
      }
    }
    for (const [name, curves] of groups) {
      const chart = this.drawn.get(name) ?? new LineChart(name, COLORS);
      this.drawn.set(name, chart);
      chart.show(curves, []);
    }
    // Moving an element that is in its place would take its focus.
    const elements = [...groups.keys()].flatMap(name => this.drawn.get(name)?.element ?? []);
    if (
      elements.length !== this.charts.children.length ||
      elements.some((element, i) => this.charts.children[i] !== element)
    ) {
      this.charts.replaceChildren(...elements);
    }
  }

  private readonly headline: HTMLElement;
  private readonly rows: HTMLElement;
  private readonly problems: HTMLElement;
  private readonly note: HTMLElement;
  private readonly charts: HTMLElement;
  private readonly drawn = new Map<string, LineChart>();
  private shown: WorkersReply | null = null;
}

function row(worker: WorkerRow): HTMLElement {
  const { rank, host, process, device, state, step, loss, rate, memory } = worker;
  const cells = [step > 0 ? step.toLocaleString('en') : '', loss, rate, memory, device];
  return h(
    'tr',
    {},
    h('th', { scope: 'row' }, String(rank)),
    h('td', { class: `hl-worker-${state}` }, state),
    ...cells.map(text => h('td', {}, text)),
    h('td', {}, h('span', { class: 'hl-worker-host' }, host)),
    h('td', {}, String(process))
  );
}
