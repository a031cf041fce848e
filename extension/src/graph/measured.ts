// What an overlay measured, as a picture shows it: on a scale with a legend, a bar and a number for each node and box.

import type { OverlayItem, OverlayReply } from '../protocol/messages';
import { svg } from './draw';
import { __ } from '../text';

/** Steps of colour. */
export const LEVELS = 5;

/** How many powers of ten a scale has below its largest value. */
const DECADES: Record<OverlayReply['kind'], number> = {
  time: 2,
  memory: 2,
  values: 4,
  gradients: 4,
  engine: 0
};

/** Values whose largest is less than so many times the smallest differ too little for a scale. */
const ALIKE = 1.2;

/** How strong a member is coloured, from 0 to LEVELS, and how long its bar is, from 0 to 1. */
export interface Heat {
  level: number;
  bar: number;
}

/** A logarithmic scale of operators, or of boxes: each colour is as many times the one before. */
export interface Scale {
  name: string;
  low: string;
  high: string;
}

export interface Measured {
  items: ReadonlyMap<string, OverlayItem>;
  heat: ReadonlyMap<string, Heat>;
  scales: readonly Scale[];
  /** What was measured, and on what. */
  title: string;
  caution: string;
}

const TITLES: Record<OverlayReply['kind'], string> = {
  time: __('Time'),
  memory: __('Memory of the values'),
  values: __('Largest absolute value'),
  gradients: __('Norm of the gradient'),
  engine: __('Engines')
};

/** An overlay on scales of its own, one for operators and one for the boxes around them. */
export function measuredOf(reply: OverlayReply, isBox: (id: string) => boolean): Measured {
  const heat = new Map<string, Heat>();
  const scales: Scale[] = [];
  for (const name of ['operators', 'boxes']) {
    const members = reply.items.filter(
      item => isBox(item.id) === (name === 'boxes') && (item.value ?? 0) > 0
    );
    const values = members.map(item => item.value ?? 0);
    const high = values.reduce((most, value) => Math.max(most, value), 0);
    const least = values.reduce((low, value) => Math.min(low, value), Infinity);
    const low = Math.max(least, high / 10 ** DECADES[reply.kind]);
    if (members.length === 0) {
      continue;
    }
    const isScale = high > low * ALIKE;
    for (const item of members) {
      const value = item.value ?? 0;
      const place = isScale ? Math.log(value / low) / Math.log(high / low) : 0.5;
      heat.set(item.id, {
        level: Math.max(1, Math.min(LEVELS, Math.ceil(place * LEVELS))),
        bar: value / high
      });
    }
    if (isScale) {
      const from = quantity(low, reply.unit);
      scales.push({ name, low: low > least ? `≤ ${from}` : from, high: quantity(high, reply.unit) });
    }
  }
  return {
    items: new Map(reply.items.map(item => [item.id, item])),
    heat,
    scales,
    title: TITLES[reply.kind],
    caution: caution(reply)
  };
}

/** Members that are marked, without a scale. */
export function marked(items: readonly OverlayItem[]): Measured {
  return {
    items: new Map(items.map(item => [item.id, item])),
    heat: new Map(items.map(item => [item.id, { level: LEVELS, bar: 0 }])),
    scales: [],
    title: '',
    caution: ''
  };
}

function caution(reply: OverlayReply): string {
  if (reply.measured_on !== 'random') {
    return '';
  }
  const also = reply.kind === 'values' ? __('; NaN may come from them') : '';
  return __("random numbers of the call's shapes%1", also);
}

/** `1.2 ms`, `3.1 MB`, `0.024`: a value with its unit. */
function quantity(value: number, unit: string): string {
  const digits = (number: number): string => String(parseFloat(number.toPrecision(3)));
  if (unit === 's') {
    return value >= 1
      ? `${digits(value)} s`
      : value >= 1e-3
        ? __('%1 ms', digits(value * 1e3))
        : `${digits(value * 1e6)} µs`;
  }
  if (unit === 'B') {
    const power = Math.min(3, Math.max(0, Math.floor(Math.log2(Math.max(value, 1)) / 10)));
    return `${digits(value / 1024 ** power)} ${['B', 'KiB', 'MiB', 'GiB'][power]}`;
  }
  return digits(value);
}

const BAR = { inset: 8, below: 4.5, height: 2.5 } as const;

/** Show what was measured on the element of a node or box, or nothing any more; its card has the number. */
export function showMeasured(
  element: SVGElement,
  item: OverlayItem | undefined,
  heat: Heat | undefined
): void {
  element.classList.toggle('hl-g-measured', item !== undefined);
  element.classList.toggle('hl-g-bad', item?.bad ?? false);
  const name = element.dataset.name ?? element.getAttribute('aria-label') ?? '';
  element.dataset.name = name;
  element.setAttribute('aria-label', item ? `${name}, ${item.text}` : name);
  element.querySelector('.hl-g-bar')?.remove();
  if (!item || !heat) {
    delete element.dataset.heat;
    return;
  }
  element.dataset.heat = String(heat.level);
  const shape = element.querySelector('.hl-g-shape:not(.hl-g-behind)');
  const [width, height] = ['width', 'height'].map(side => parseFloat(shape?.getAttribute(side) ?? ''));
  if (width && height && heat.bar > 0 && !element.classList.contains('hl-g-open')) {
    shape?.after(
      svg('rect', {
        class: 'hl-g-bar',
        x: BAR.inset,
        y: height - BAR.below,
        width: Math.max(1, (width - 2 * BAR.inset) * heat.bar),
        height: BAR.height
      })
    );
  }
}
