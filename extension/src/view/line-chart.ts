// A line chart of one or a few curves: SVG of our own, a readout for pointer and arrow keys.

import type { Curve, NotFinite } from '../protocol/messages';
import { h, replace } from './dom';
import { __ } from '../text';

const WIDTH = 300;
const HEIGHT = 150;
const LEFT = 46;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 18;
/** One bucket in RARE may be left outside, where the range of all values is FAR times that of the others. */
const RARE = 50;
const FAR = 30;
/** Most curves whose values are all read out; of more it is one. */
const FEW = 4;
/** Pixels beyond the border at which a line goes on where it leaves the chart. */
const OUTSIDE = 1000;
/** Between these, differences and quotients of values are numbers. */
const LARGEST = 7e307;
const SMALLEST = 1e-300;

/** One chart; its element stays the same while its curves grow. */
export class LineChart {
  readonly element: HTMLElement;

  /** `heading`: stands above the names of the curves; `colors`: how many there are before they begin again, dashed. */
  constructor(
    private readonly heading = '',
    private readonly colors = 4
  ) {
    this.title = h('div', { class: 'hl-chart-title' });
    this.below = h('div', { class: 'hl-chart-below' });
    this.readout = h('div', { class: 'hl-chart-readout', role: 'status' });
    this.drawing = s('svg', {
      class: 'hl-chart',
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: 'img',
      tabindex: 0
    });
    this.drawing.addEventListener('pointermove', event => this.onPointer(event));
    this.drawing.addEventListener('pointerleave', () => this.point(null));
    this.drawing.addEventListener('blur', () => this.point(null));
    this.drawing.addEventListener('keydown', event => this.onKey(event));
    this.element = h(
      'div',
      { class: 'hl-chart-part' },
      this.title,
      this.drawing,
      h('div', { class: 'hl-chart-foot' }, this.below, this.readout)
    );
  }

  /** `earlier`: curves of runs before, drawn as faint lines. */
  show(curves: readonly Curve[], earlier: readonly Curve[]): void {
    this.curves = curves;
    this.read = curves.length > FEW && this.read < curves.length ? this.read : 0;
    this.range = rangeOf(curves);
    replace(
      this.title,
      this.heading !== '' && h('div', { class: 'hl-chart-heading' }, this.heading),
      ...curves.map((curve, index) =>
        h(
          'span',
          { class: 'hl-chart-name' },
          h('strong', { class: this.series(index) }, curve.name),
          curves.length > FEW ? '' : ` ${curve.latest} `
        )
      )
    );
    this.drawing.setAttribute(
      'aria-label',
      __(
        '%1%2. The arrow keys left and right read values%3.',
        this.heading === '' ? '' : `${this.heading}: `,
        curves.map(curve => curve.text).join('; '),
        curves.length > FEW ? __(', those up and down choose the curve') : ''
      )
    );
    const inner = s('svg', {
      x: LEFT,
      y: TOP,
      width: WIDTH - LEFT - RIGHT,
      height: HEIGHT - TOP - BOTTOM,
      viewBox: `${LEFT} ${TOP} ${WIDTH - LEFT - RIGHT} ${HEIGHT - TOP - BOTTOM}`
    });
    for (const curve of earlier) {
      inner.append(s('path', { class: 'hl-line-earlier', d: this.path(curve) }));
    }
    curves.forEach((curve, index) => {
      if (curve.highs.some((high, i) => high !== curve.lows[i])) {
        inner.append(s('path', { class: `hl-band ${this.series(index)}`, d: this.band(curve) }));
      }
      inner.append(s('path', { class: `hl-line ${this.series(index)}`, d: this.path(curve) }));
      if (curve.steps.length === 1) {
        const [x, y] = this.place(curve, 0);
        inner.append(s('circle', { class: `hl-dot ${this.series(index)}`, cx: x, cy: y, r: 2.5 }));
      }
      inner.append(...this.outside(curve, index), ...curve.bad.map(span => this.notFinite(span)));
    });
    this.cursor = s('path', { class: 'hl-line-cursor' });
    this.drawing.replaceChildren(this.axes(), inner, this.cursor);
    this.below.textContent = curves
      .map(badInShort)
      .concat(curves.map(curve => curve.note))
      .filter(text => text !== '')
      .join('; ');
    this.point(this.pointed);
  }

  /** Marks at the border, where values are far away from all others. */
  private outside(curve: Curve, index: number): SVGElement[] {
    const { low, high } = this.range;
    const mark = (step: number, y: number, height: number): SVGElement =>
      s('path', {
        class: `hl-outside ${this.series(index)}`,
        d: `M${this.x(step) - 3} ${y}h6l-3 ${height}Z`
      });
    return curve.steps.flatMap((step, i) => [
      ...((curve.highs[i] ?? high) > high ? [mark(step, TOP + 5, -5)] : []),
      ...((curve.lows[i] ?? low) < low ? [mark(step, HEIGHT - BOTTOM - 5, 5)] : [])
    ]);
  }

  /** A dashed line where a value was not finite; a band from the first to the last one where there are more. */
  private notFinite(span: NotFinite): SVGElement {
    const [left, right] = [this.x(span.first), this.x(span.last)];
    const title = s('title', {});
    title.textContent = spanText(span);
    const line = s('path', { class: 'hl-line-bad', d: `M${left} ${TOP}V${HEIGHT - BOTTOM}` });
    const band = s('path', {
      class: 'hl-band-bad',
      d: `M${left} ${TOP}H${right}V${HEIGHT - BOTTOM}H${left}Z`
    });
    return s('g', {}, title, line, ...(right > left ? [band] : []));
  }

  private axes(): SVGElement {
    const { low, high, first, last } = this.range;
    const bottom = HEIGHT - BOTTOM;
    const label = (x: number, y: number, text: string, anchor: string): SVGElement => {
      const element = s('text', { x, y, 'text-anchor': anchor });
      element.textContent = text;
      return element;
    };
    const marks = ticks(low, high);
    return s(
      'g',
      { class: 'hl-axes' },
      s('path', {
        class: 'hl-grid',
        d: marks.map(tick => `M${LEFT} ${this.y(tick)}H${WIDTH - RIGHT}`).join('')
      }),
      s('path', { d: `M${LEFT} ${TOP}V${bottom}H${WIDTH - RIGHT}` }),
      ...marks.map(tick => label(LEFT - 4, this.y(tick) + 3.5, shortNumber(tick), 'end')),
      label(LEFT, bottom + 13, __('step %1', first), 'start'),
      label(WIDTH - RIGHT, bottom + 13, String(last), 'end')
    );
  }

  private onPointer(event: PointerEvent): void {
    const box = this.drawing.getBoundingClientRect();
    const x = ((event.clientX - box.left) / (box.width || 1)) * WIDTH;
    const { first, last } = this.range;
    const step = first + ((x - LEFT) / (WIDTH - LEFT - RIGHT)) * (last - first);
    if (this.curves.length > FEW) {
      const y = ((event.clientY - box.top) / (box.height || 1)) * HEIGHT;
      const away = this.curves.map(curve => {
        const mean = curve.means[nearest(curve.steps, step)];
        return mean === undefined ? Infinity : Math.abs(this.y(mean) - y);
      });
      this.read = away.indexOf(Math.min(...away));
    }
    this.point(step);
  }

  private onKey(event: KeyboardEvent): void {
    const { length } = this.curves;
    const way = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (length > FEW && way !== undefined) {
      event.preventDefault();
      this.read = (this.read + way + length) % length;
      this.point(this.pointed ?? this.range.last);
      return;
    }
    const steps = this.curves[this.read]?.steps ?? [];
    const at = this.pointed === null ? steps.length : nearest(steps, this.pointed);
    const target = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: steps.length - 1 }[event.key];
    if (target !== undefined && steps.length > 0) {
      event.preventDefault();
      this.point(steps[Math.min(Math.max(target, 0), steps.length - 1)] ?? null);
    }
  }

  /** Show the values at a step; null: none. */
  private point(step: number | null): void {
    this.pointed = step;
    this.below.hidden = step !== null;
    if (step === null) {
      this.cursor?.setAttribute('d', '');
      this.readout.textContent = '';
      return;
    }
    const read = this.curves.length > FEW ? this.curves.slice(this.read, this.read + 1) : this.curves;
    const texts = read.flatMap(curve => {
      const i = nearest(curve.steps, step);
      const [at, mean, low, high] = [curve.steps[i], curve.means[i], curve.lows[i], curve.highs[i]];
      const bad = curve.bad
        .filter(span => this.isNear(span, step))
        .map(span => `${curve.name} ${spanText(span)}`);
      if (at === undefined || mean === undefined || low === undefined || high === undefined) {
        return bad;
      }
      this.cursor?.setAttribute('d', `M${this.x(at)} ${TOP}V${HEIGHT - BOTTOM}`);
      const start = curve.starts[i] ?? at;
      const spread = low === high ? '' : __(' (%1 to %2)', shortNumber(low), shortNumber(high));
      const place = start === at ? __('step %1', at) : __('steps %1 to %2', start, at);
      return [`${place}: ${curve.name} ${shortNumber(mean)} ${curve.unit}`.trimEnd() + spread, ...bad];
    });
    this.readout.textContent = texts.join(', ');
  }

  /** The classes of a curve: its colour, and dashes where the colours begin again. */
  private series(index: number): string {
    return `hl-line-${index % this.colors}${index >= this.colors ? ' hl-line-again' : ''}`;
  }

  /** Whether a span is within two pixels of a step. */
  private isNear(span: NotFinite, step: number): boolean {
    const x = this.x(step);
    return this.x(span.first) - 2 <= x && x <= this.x(span.last) + 2;
  }

  private x(step: number): number {
    const { first, last } = this.range;
    return tenth(LEFT + ((step - first) / (last - first)) * (WIDTH - LEFT - RIGHT));
  }

  private y(value: number): number {
    const { low, high } = this.range;
    const place = TOP + ((high - value) / (high - low)) * (HEIGHT - TOP - BOTTOM);
    return tenth(Math.min(Math.max(place, TOP - OUTSIDE), HEIGHT - BOTTOM + OUTSIDE));
  }

  private place(curve: Curve, index: number): [number, number] {
    return [this.x(curve.steps[index] ?? 0), this.y(curve.means[index] ?? 0)];
  }

  private path(curve: Curve): string {
    return curve.steps.map((_, i) => `${i === 0 ? 'M' : 'L'}${this.place(curve, i).join(' ')}`).join('');
  }

  private band(curve: Curve): string {
    const edge = (values: readonly number[]): string[] =>
      curve.steps.map((step, i) => `${this.x(step)} ${this.y(values[i] ?? 0)}`);
    return `M${[...edge(curve.highs), ...edge(curve.lows).reverse()].join('L')}Z`;
  }

  private readonly title: HTMLElement;
  private readonly below: HTMLElement;
  private readonly readout: HTMLElement;
  private readonly drawing: SVGElement;
  private cursor: SVGElement | null = null;
  private curves: readonly Curve[] = [];
  private range = { low: 0, high: 1, first: 0, last: 1 };
  private pointed: number | null = null;
  /** Index of the curve whose value the readout shows. */
  private read = 0;
}

/** Curves that share a chart: those whose names end with the same word, such as `loss` and `val_loss`. */
export function grouped(curves: readonly Curve[]): Map<string, Curve[]> {
  const groups = new Map<string, Curve[]>();
  for (const curve of curves) {
    const name = curve.name.trim();
    const word = name.split(/[_/.-]+/).pop() ?? '';
    const key = word === '' || curve.unit !== '' || name.includes(' ') ? name : word.toLowerCase();
    groups.set(key, [...(groups.get(key) ?? []), curve]);
  }
  return groups;
}

/** Two to five round numbers within a range. */
export function ticks(low: number, high: number): number[] {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(size => size >= rough) ?? rough;
  const first = Math.ceil(low / step);
  const count = Math.min(Math.max(Math.floor(high / step) - first + 1, 0), 10);
  return Array.from({ length: count }, (_, i) => (first + i) * step);
}

/** A number in few characters: `0.25`, `1.2e-5`, `940`. */
export function shortNumber(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) {
    return Number(value.toPrecision(3)).toExponential();
  }
  return String(Number(value.toPrecision(3)));
}

/** What the chart spans. A few values far away from all others do not press the rest into a line. */
export function rangeOf(curves: readonly Curve[]): {
  low: number;
  high: number;
  first: number;
  last: number;
} {
  const lows = curves.flatMap(curve => curve.lows).sort((a, b) => a - b);
  const highs = curves.flatMap(curve => curve.highs).sort((a, b) => a - b);
  let [low, high] = [lows[0] ?? 0, highs[highs.length - 1] ?? 1];
  const rare = Math.floor(lows.length / RARE);
  const [innerLow, innerHigh] = [lows[rare] ?? low, highs[highs.length - 1 - rare] ?? high];
  const span = innerHigh - innerLow;
  if (span > 0 && span < high / FAR - low / FAR) {
    [low, high] = [Math.max(low, innerLow - span), Math.min(high, innerHigh + span)];
  }
  [low, high] = [bounded(low), bounded(high)];
  const room = Math.max((high - low) * 0.04 || Math.abs(high) * 0.1 || 1, SMALLEST);
  const starts = curves.flatMap(curve => curve.starts.slice(0, 1));
  const first = starts.length > 0 ? Math.min(...starts) : 0;
  const last = Math.max(first + 1, ...curves.map(curve => curve.last_step));
  return { low: low - room, high: high + room, first, last };
}

function bounded(value: number): number {
  return Math.min(Math.max(value, -LARGEST), LARGEST);
}

/** `NaN at step 57 to 59 (3 values)`. */
function spanText(span: NotFinite): string {
  const place = span.first === span.last ? '' : __(' to %1', span.last);
  return __(
    '%1 at step %2%3%4',
    span.what,
    span.first,
    place,
    span.count > 1 ? __(' (%1 values)', span.count) : ''
  );
}

/** `NaN at step 57 to 59`, or `5 not finite, first at step 57`; "" where all values are finite. */
function badInShort(curve: Curve): string {
  const [first, second] = curve.bad;
  return second === undefined || first === undefined
    ? curve.bad_text
    : __('%1 not finite, first at step %2', curve.bad_count, first.first);
}

function nearest(steps: readonly number[], step: number): number {
  let best = 0;
  steps.forEach((candidate, i) => {
    if (Math.abs(candidate - step) < Math.abs((steps[best] ?? 0) - step)) {
      best = i;
    }
  });
  return best;
}

function tenth(value: number): number {
  return Math.round(value * 10) / 10;
}

function s(tag: string, attributes: Record<string, string | number>, ...children: Node[]): SVGElement {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, String(value));
  }
  element.append(...children);
  return element;
}
