// What is measured of the nodes of a graph: the choice, the whole in one line, links to the largest, and the arena.

import { svg } from '../graph/draw';
import type { KeepInputsReply, OverlayReply, StepMoment } from '../protocol/messages';
import { button, h, replace } from './dom';
import { bytesText } from './words';
import { __, _n } from '../text';

export type OverlayKind = OverlayReply['kind'];

export interface OverlayBarEvents {
  /** Another overlay; null: none. `data` has names of variables. */
  onKind: (kind: OverlayKind | null, data: string) => void;
  /** Select a node or box of the graph. */
  onMarked: (id: string) => void;
  /** Watch the model for NaN, or no longer. */
  onWatch: (isOn: boolean) => void;
  /** Keep the inputs of the next calls, or give back what is kept. */
  onKeep: (isOn: boolean) => void;
}

const KINDS: readonly [OverlayKind | '', string][] = [
  ['', __('No overlay')],
  ['time', __('Time')],
  ['memory', __('Memory')],
  ['values', __('Values')],
  ['gradients', __('Gradients')],
  ['engine', __('Engines')]
];

/** What the links lead to. */
const MARKED: Record<OverlayKind, string> = {
  time: __('Slowest:'),
  memory: __('At the peak:'),
  values: __('First NaN or infinity:'),
  gradients: __('Largest:'),
  engine: ''
};

const TIMELINE = { width: 240, height: 28 } as const;

export class OverlayBar {
  /** What was measured in words, over the picture. */
  readonly element: HTMLElement;
  /** The choice of the overlay, for the bar above the picture. */
  readonly choice: HTMLElement;
  /** The switch of the watch for NaN, for a menu. */
  readonly watchLabel: HTMLElement;

  constructor(private readonly events: OverlayBarEvents) {
    this.kinds = h(
      'select',
      { class: 'hl-input hl-overlay-kind', 'aria-label': __('Overlay'), onchange: () => this.ask() },
      ...KINDS.map(([value, name]) => h('option', { value }, name))
    );
    this.data = h('input', {
      class: 'hl-input hl-overlay-data',
      type: 'text',
      placeholder: __('inputs: x'),
      title: __(
        'Variables with the inputs to run the program on, as x or x, y; empty takes the kept inputs, else random numbers'
      ),
      'aria-label': __('Variables with the inputs; empty takes the kept inputs, else random numbers'),
      onkeydown: event => (event as KeyboardEvent).key === 'Enter' && this.ask()
    });
    this.again = button(__('Measure'), () => this.ask(), { title: __('Measure again') });
    this.watch = h('input', { type: 'checkbox', onchange: () => events.onWatch(this.watch.checked) });
    this.keep = h('input', { type: 'checkbox', onchange: () => events.onKeep(this.keep.checked) });
    this.keptText = h('span', { class: 'hl-soft' });
    this.keepPart = h(
      'label',
      {
        class: 'hl-check',
        title:
          __(
            'Copy the inputs of the next call of each shape, to measure on them instead of random numbers. '
          ) + __('The copies are deleted when you switch this off, or with the model')
      },
      this.keep,
      __('Keep inputs'),
      this.keptText
    );
    this.headline = h('span', { class: 'hl-summary', role: 'status' });
    this.marked = h('span', { class: 'hl-overlay-marked' });
    this.timeline = h('div', { class: 'hl-overlay-timeline' });
    this.choice = h('span', { class: 'hl-overlay-choice' }, this.kinds);
    this.watchLabel = h(
      'label',
      {
        class: 'hl-check',
        title: __('Stop calls and backward() at the first NaN or infinity, and name the operator')
      },
      this.watch,
      __(' Stop at NaN')
    );
    this.fold = button('▾', () => this.foldOrUnfold(), {
      class: 'hl-button hl-overlay-fold',
      'aria-label': __('Fold the card of the overlay'),
      title: __('Fold this to one line, or unfold it')
    });
    this.measuring = h('div', { class: 'hl-overlay-ask' }, this.fold, this.data, this.again, this.keepPart);
    this.element = h(
      'div',
      { class: 'hl-overlay-bar' },
      this.measuring,
      this.headline,
      this.marked,
      this.timeline
    );
    this.setFolded(false);
    this.clear();
  }

  get kind(): OverlayKind | null {
    return this.kinds.hidden || this.kinds.value === '' ? null : (this.kinds.value as OverlayKind);
  }

  /** Choose an overlay, without asking for it. */
  choose(kind: OverlayKind): void {
    this.kinds.value = kind;
  }

  get inputs(): string {
    return this.data.value.trim();
  }

  /** `nameOf`: what a node or box is called; it may not be drawn. */
  show(reply: OverlayReply, nameOf: (id: string) => string): void {
    this.headline.classList.remove('hl-alert');
    this.headline.textContent = reply.missing || reply.headline;
    this.headline.title = this.headline.textContent;
    const items = new Map(reply.items.map(item => [item.id, item]));
    replace(
      this.marked,
      reply.marked.length > 0 && h('span', {}, linksTo(reply)),
      ...reply.marked.map(id => {
        const item = items.get(id);
        const link = button(nameOf(id), () => this.events.onMarked(id), {
          class: 'hl-link',
          title: item?.text ?? ''
        });
        return h('span', { class: 'hl-overlay-link' }, item && h('b', {}, item.short), link);
      })
    );
    const isWhole = reply.step.length > 2;
    replace(
      this.timeline,
      isWhole ? stepDrawing(reply.step) : reply.timeline.length > 1 && this.drawing(reply, nameOf)
    );
  }

  /** While the kernel measures, and where it could not. */
  say(text: string, isError = false): void {
    this.headline.textContent = text;
    this.headline.title = text;
    this.headline.classList.toggle('hl-alert', isError);
    replace(this.marked);
    replace(this.timeline);
  }

  setWatch(isOn: boolean): void {
    this.watch.checked = isOn;
  }

  /** Whether inputs are kept, and how much room they take. */
  setKept(reply: KeepInputsReply): void {
    this.keep.checked = reply.on;
    const bytes = reply.calls.reduce((sum, call) => sum + call.bytes, 0);
    const words =
      reply.calls.length === 0
        ? __('run the model')
        : `${_n('%1 call', '%1 calls', reply.calls.length)}, ${bytesText(bytes)}`;
    this.keptText.textContent = reply.on ? `(${words})` : '';
    this.keptText.title = reply.calls
      .map(call => `${call.path || __('the model')}: ${call.inputs}`)
      .join('\n');
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
    this.measuring.hidden = kind === null;
    this.keepPart.hidden = this.data.hidden;
  }

  /** Where the picture is small the card is one line at first. What the user has folded or unfolded stays so. */
  setSmall(isSmall: boolean): void {
    if (!this.isFoldedByUser) {
      this.setFolded(isSmall);
    }
  }

  /** Folded, the card is one line. */
  private setFolded(isFolded: boolean): void {
    this.element.classList.toggle('hl-folded', isFolded);
    this.fold.setAttribute('aria-expanded', String(!isFolded));
    this.fold.textContent = isFolded ? '▸' : '▾';
  }

  private foldOrUnfold(): void {
    this.isFoldedByUser = true;
    this.setFolded(!this.element.classList.contains('hl-folded'));
  }

  private ask(): void {
    this.clear();
    this.events.onKind(this.kind, this.inputs);
  }

  /** How full the arena is in each step, as columns; the highest is the peak. */
  private drawing(reply: OverlayReply, nameOf: (id: string) => string): Element {
    const sizes = reply.timeline.map(moment => moment.bytes);
    const peak = reply.timeline[sizes.indexOf(Math.max(...sizes))];
    const label = __('The arena over %1 steps; it is fullest at %2', sizes.length, nameOf(peak?.id ?? ''));
    return columns([sizes], label);
  }

  private readonly kinds: HTMLSelectElement;
  private readonly data: HTMLInputElement;
  private readonly again: HTMLButtonElement;
  private readonly watch: HTMLInputElement;
  private readonly measuring: HTMLElement;
  private readonly fold: HTMLButtonElement;
  private readonly keep: HTMLInputElement;
  private readonly keptText: HTMLElement;
  private readonly keepPart: HTMLElement;
  private readonly headline: HTMLElement;
  private readonly marked: HTMLElement;
  private readonly timeline: HTMLElement;
  private isFoldedByUser = false;
}

/** What the links lead to. A NaN of random inputs says nothing of the user's data. */
function linksTo(reply: OverlayReply): string {
  const isByChance = reply.kind === 'values' && reply.measured_on === 'random';
  return isByChance ? __('First NaN or infinity with random numbers:') : MARKED[reply.kind];
}

/** Sizes over time as columns without gaps, one area for each list; the first list has the largest. */
function columns(areas: readonly (readonly number[])[], label: string): SVGElement {
  const { width, height } = TIMELINE;
  const most = Math.max(1, ...(areas[0] ?? []));
  const path = (sizes: readonly number[]): string => {
    const step = width / sizes.length;
    const points = sizes.map((size, i) => {
      const y = (height * (1 - size / most)).toFixed(1);
      return `L${(i * step).toFixed(1)} ${y}L${((i + 1) * step).toFixed(1)} ${y}`;
    });
    return `M0 ${height}${points.join('')}L${width} ${height}Z`;
  };
  return svg(
    'svg',
    { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label },
    ...areas.map(sizes => svg('path', { d: path(sizes) }))
  );
}

/** The arena in the steps of forward and backward, with what the forward keeps for the backward in a darker shade. */
function stepDrawing(moments: readonly StepMoment[]): HTMLElement {
  const sizes = moments.map(moment => moment.bytes);
  const fullest = sizes.indexOf(Math.max(...sizes));
  const half = moments[fullest]?.half ?? 'forward';
  const first = moments.filter(moment => moment.half === 'forward').length;
  const label =
    __('The arena over %1 steps of the forward and %2 of the backward; ', first, moments.length - first) +
    (half === 'forward'
      ? __('it is fullest in the forward, at step %1', fullest + 1)
      : __('it is fullest in the backward, at step %1', fullest - first + 1));
  const drawn = columns([sizes, moments.map(moment => moment.kept)], label);
  const x = (TIMELINE.width * first) / moments.length;
  drawn.append(svg('line', { x1: x, x2: x, y1: 0, y2: TIMELINE.height }));
  const halves = h(
    'figcaption',
    { style: `--hl-first: ${(100 * first) / moments.length}%` },
    h('span', {}, __('forward')),
    h('span', {}, __('backward'))
  );
  const kept = h('span', { class: 'hl-overlay-kept' }, __('kept for the backward'));
  return h('figure', { class: 'hl-overlay-step' }, h('div', {}, drawn, halves), kept);
}
