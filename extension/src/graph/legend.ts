// The legend of an overlay: its scales with their ends, and what it was measured on.

import { h, replace } from '../view/dom';
import { LEVELS, Measured, Scale } from './measured';

export class Legend {
  readonly element = h('div', { class: 'hl-g-legend', role: 'note', 'aria-label': 'Legend' });

  constructor() {
    this.element.hidden = true;
  }

  show(measured: Measured | null): void {
    const { title = '', scales = [], caution = '' } = measured ?? {};
    this.element.hidden = scales.length === 0 && caution === '';
    replace(
      this.element,
      h('div', { class: 'hl-g-legend-title' }, title),
      scales.length > 0 && h('div', { class: 'hl-g-legend-scales' }, ...scales.flatMap(row)),
      scales.length > 0 && h('div', { class: 'hl-g-legend-bar' }, 'bar: part of the largest'),
      caution !== '' && h('div', { class: 'hl-g-legend-caution' }, `Measured on ${caution}`)
    );
  }
}

function row(scale: Scale): HTMLElement[] {
  const steps = Array.from({ length: LEVELS }, (_, i) => h('i', { 'data-heat': i + 1 }));
  return [
    h('span', {}, scale.name),
    h('span', { class: 'hl-g-legend-low' }, scale.low),
    h('span', { class: 'hl-g-legend-steps', 'aria-hidden': 'true' }, ...steps),
    h('span', {}, scale.high)
  ];
}
