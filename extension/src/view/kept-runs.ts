// The runs that are kept in the notebook's folder: a list to choose from, and charts that compare what is chosen.

import type { Requester } from '../protocol/channel';
import { asRequestError } from '../protocol/channel';
import type { Curve, KeptRunRow, RunsReply } from '../protocol/messages';
import { h, keepFocus, replace } from './dom';
import { LineChart } from './line-chart';
import { __ } from '../text';
import { runStateText } from './words';

/** Most runs that are drawn at once. */
const MOST = 8;

export class KeptRuns {
  readonly element: HTMLDetailsElement;

  /** `onOffer`: there are runs to choose from now, or none any more. */
  constructor(private readonly onOffer: () => void) {
    this.headline = h('summary', {});
    this.problem = h('div', { class: 'hl-kept-problem', role: 'status' });
    this.rows = h('tbody', {});
    this.charts = h('div', { class: 'hl-charts' });
    const titles = [__('Run'), __('Last'), __('State'), __('Started'), __('Steps'), __('Time'), __('From')];
    this.table = h(
      'div',
      { class: 'hl-kept-scroll', tabindex: 0, role: 'region', 'aria-label': __('Kept runs') },
      h(
        'table',
        { class: 'hl-kept' },
        h('thead', {}, h('tr', {}, ...titles.map(title => h('th', { scope: 'col' }, title)))),
        this.rows
      )
    );
    this.element = h(
      'details',
      { class: 'hl-kept-runs', ontoggle: () => this.element.open && void this.refresh() },
      this.headline,
      this.problem,
      this.table,
      this.charts
    );
    this.element.hidden = true;
  }

  /** Another kernel, or none. */
  connect(requester: Requester | null): void {
    if (requester !== this.requester) {
      this.requester = requester;
      this.chosen.clear();
      this.curves.clear();
      this.draw({ file: '', problem: '', runs: [], curves: [] });
      void this.refresh();
    }
  }

  /** Ask for the list, and for the curves of chosen runs that are not known. */
  async refresh(): Promise<void> {
    const { requester } = this;
    const numbers = [...this.chosen].filter(number => !this.curves.has(number));
    if (!requester) {
      return;
    }
    try {
      const reply = await requester.request('runs', { numbers });
      if (requester === this.requester) {
        reply.curves.forEach(({ number, curves }) => this.curves.set(number, curves));
        this.draw(reply);
      }
    } catch (error) {
      if (requester === this.requester && !this.element.hidden) {
        this.problem.textContent = asRequestError(error).message;
      }
    }
  }

  private draw(reply: RunsReply): void {
    const { runs } = reply;
    const isHidden = runs.length === 0 && reply.problem === '';
    this.headline.textContent = runs.length === 1 ? __('1 kept run') : __('%1 kept runs', runs.length);
    this.problem.textContent = reply.problem;
    this.table.hidden = runs.length === 0;
    this.listed = runs;
    for (const number of this.chosen) {
      if (!runs.some(run => run.number === number)) {
        this.chosen.delete(number);
      }
    }
    keepFocus(this.rows, () => replace(this.rows, ...runs.map(run => this.row(run))));
    this.drawCharts();
    if (this.element.hidden !== isHidden) {
      this.element.hidden = isHidden;
      this.onOffer();
    }
  }

  private row(run: KeptRunRow): HTMLElement {
    const box = h('input', {
      type: 'checkbox',
      checked: this.chosen.has(run.number),
      'data-key': String(run.number),
      onchange: () => this.choose(run.number, box.checked)
    });
    const cells = [
      run.last,
      runStateText(run.state),
      when(run.started),
      String(run.steps),
      run.time,
      run.place
    ];
    return h(
      'tr',
      { title: run.details.join('\n') },
      h('th', { scope: 'row' }, h('label', {}, box, ` ${run.label}`)),
      ...cells.map(text => h('td', {}, text))
    );
  }

  private choose(number: number, isChosen: boolean): void {
    if (isChosen) {
      this.chosen.add(number);
      const [first] = this.chosen;
      if (this.chosen.size > MOST && first !== undefined) {
        this.chosen.delete(first);
      }
    } else {
      this.chosen.delete(number);
    }
    void this.refresh();
  }

  /** One chart for each name of a curve, those of all chosen runs in it. */
  private drawCharts(): void {
    const groups = new Map<string, Curve[]>();
    for (const run of this.listed.filter(({ number }) => this.chosen.has(number)).reverse()) {
      for (const curve of this.curves.get(run.number) ?? []) {
        const named = { ...curve, name: run.label, text: `${run.label}, ${curve.text}` };
        groups.set(curve.name, [...(groups.get(curve.name) ?? []), named]);
      }
    }
    for (const name of this.shown.keys()) {
      if (!groups.has(name)) {
        this.shown.delete(name);
      }
    }
    for (const [name, curves] of groups) {
      const chart = this.shown.get(name) ?? new LineChart(name);
      this.shown.set(name, chart);
      chart.show(curves, []);
    }
    // Moving a chart that is in its place would take its focus, and what it reads.
    const elements = [...groups.keys()].flatMap(name => this.shown.get(name)?.element ?? []);
    if (
      elements.length !== this.charts.children.length ||
      elements.some((element, i) => this.charts.children[i] !== element)
    ) {
      replace(this.charts, ...elements);
    }
  }

  private requester: Requester | null = null;
  private listed: readonly KeptRunRow[] = [];
  /** Numbers, in the order in which they were chosen. */
  private readonly chosen = new Set<number>();
  private readonly curves = new Map<number, Curve[]>();
  private readonly shown = new Map<string, LineChart>();
  private readonly headline: HTMLElement;
  private readonly problem: HTMLElement;
  private readonly table: HTMLElement;
  private readonly rows: HTMLElement;
  private readonly charts: HTMLElement;
}

/** `Nov 29, 15:38`, in the browser's language. */
function when(seconds: number): string {
  const options = { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit' } as const;
  return new Date(1000 * seconds).toLocaleString(undefined, options);
}
