// What is measured of the nodes of a graph: the choice, the whole in one line, links to the largest, and the arena.

import { shortText } from '../graph/measured';
import type { OverlayReply } from '../protocol/messages';
import { button, h, replace } from './dom';

export type OverlayKind = OverlayReply['kind'];

export interface OverlayBarEvents {
  /** Another overlay; null: none. `data` has names of variables. */
  onKind(kind: OverlayKind | null, data: string): void;
  /** Select a node or box of the graph. */
  onMarked(id: string): void;
  /** Watch the model for NaN, or no longer. */
  onWatch(isOn: boolean): void;
}

const KINDS: readonly [OverlayKind | '', string][] = [
  ['', 'No overlay'],
  ['time', 'Time'],
  ['memory', 'Memory'],
  ['values', 'Values'],
  ['gradients', 'Gradients'],
  ['engine', 'Engines']
];

/** What the links lead to. */
const MARKED: Record<OverlayKind, string> = {
  time: 'Slowest:',
  memory: 'At the peak:',
  values: 'First:',
  gradients: 'Largest:',
  engine: ''
};

const TIMELINE = { width: 240, height: 28 } as const;

export class OverlayBar {
  readonly element: HTMLElement;

  constructor(private readonly events: OverlayBarEvents) {
    this.kinds = h(
      'select',
      { class: 'hl-input hl-overlay-kind', 'aria-label': 'Overlay', onchange: () => this.ask() },
      ...KINDS.map(([value, name]) => h('option', { value }, name))
    );
    this.data = h('input', {
      class: 'hl-input hl-overlay-data',
      type: 'text',
      placeholder: 'inputs: x',
      title: 'Variables with the inputs to run the program on, as x or x, y; empty takes random numbers',
      'aria-label': 'Variables with the inputs; empty takes random numbers',
      onkeydown: event => (event as KeyboardEvent).key === 'Enter' && this.ask()
    });
    this.again = button('Measure', () => this.ask(), { title: 'Measure again' });
    this.watch = h('input', { type: 'checkbox', onchange: () => events.onWatch(this.watch.checked) });
    this.headline = h('span', { class: 'hl-summary', role: 'status' });
    this.marked = h('span', { class: 'hl-overlay-marked' });
    this.timeline = h('div', { class: 'hl-overlay-timeline' });
    this.element = h(
      'div',
      { class: 'hl-overlay-bar' },
      this.kinds,
      this.data,
      this.again,
      h(
        'label',
        {
          class: 'hl-check',
          title: 'Stop calls and backward() at the first NaN or infinity, and name the operator'
        },
        this.watch,
        'Stop at NaN'
      ),
      this.headline,
      this.marked,
      this.timeline
    );
    this.clear();
  }

  get kind(): OverlayKind | null {
    return this.kinds.hidden || this.kinds.value === '' ? null : (this.kinds.value as OverlayKind);
  }

  get inputs(): string {
    return this.data.value.trim();
  }

  /** `nameOf`: what a node or box is called; it may not be drawn. */
  show(reply: OverlayReply, nameOf: (id: string) => string): void {
    this.headline.classList.remove('hl-alert');
    this.headline.textContent = reply.missing || reply.headline;
    const items = new Map(reply.items.map(item => [item.id, item]));
    replace(
      this.marked,
      reply.marked.length > 0 && h('span', {}, MARKED[reply.kind]),
      ...reply.marked.map(id => {
        const item = items.get(id);
        const link = button(nameOf(id), () => this.events.onMarked(id), {
          class: 'hl-link',
          title: item?.text ?? ''
        });
        return h('span', {}, link, item && ` ${shortText(item)}`);
      })
    );
    replace(this.timeline, reply.timeline.length > 1 && this.drawing(reply, nameOf));
  }

  /** While the kernel measures, and where it could not. */
  say(text: string, isError = false): void {
    this.headline.textContent = text;
    this.headline.classList.toggle('hl-alert', isError);
    replace(this.marked);
    replace(this.timeline);
  }

  setWatch(isOn: boolean): void {
    this.watch.checked = isOn;
  }

  /** Of a Block without a graph only the watch for NaN can be switched. */
  setEmpty(isEmpty: boolean): void {
    if (isEmpty !== this.kinds.hidden) {
      this.kinds.hidden = isEmpty;
      this.clear();
    }
  }

  clear(): void {
    this.say('');
    const { kind } = this;
    this.again.hidden = kind === null;
    this.data.hidden = kind !== 'time' && kind !== 'values';
  }

  private ask(): void {
    this.clear();
    this.events.onKind(this.kind, this.inputs);
  }

  /** How full the arena is in each step, as columns; the highest is the peak. */
  private drawing(reply: OverlayReply, nameOf: (id: string) => string): Element {
    const { width, height } = TIMELINE;
    const most = Math.max(1, ...reply.timeline.map(moment => moment.bytes));
    const peak = reply.timeline.find(moment => moment.bytes === most);
    const step = width / reply.timeline.length;
    const points = reply.timeline.map(({ bytes }, i) => {
      const y = (height * (1 - bytes / most)).toFixed(1);
      return `L${(i * step).toFixed(1)} ${y}L${((i + 1) * step).toFixed(1)} ${y}`;
    });
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    svg.setAttribute('role', 'img');
    svg.setAttribute(
      'aria-label',
      `The arena over ${reply.timeline.length} steps; it is fullest at ${nameOf(peak?.id ?? '')}`
    );
    const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
    path.setAttribute('d', `M0 ${height}${points.join('')}L${width} ${height}Z`);
    svg.append(path);
    return svg;
  }

  private readonly kinds: HTMLSelectElement;
  private readonly data: HTMLInputElement;
  private readonly again: HTMLButtonElement;
  private readonly watch: HTMLInputElement;
  private readonly headline: HTMLElement;
  private readonly marked: HTMLElement;
  private readonly timeline: HTMLElement;
}
