// The legend of an overlay: its scales with their ends, and what it was measured on. Where there is little room it is one
// line, which unfolds.

import { button, h, replace, uniqueId } from '../view/dom';
import type { Measured, Scale } from './measured';
import { LEVELS } from './measured';
import { __ } from '../text';

export class Legend {
  readonly element: HTMLElement;

  constructor() {
    const id = uniqueId('legend');
    this.whole = h('div', { class: 'hl-g-legend-whole', id });
    this.line = button('', () => this.setOpen(!this.isOpen), {
      class: 'hl-g-legend-line',
      'aria-controls': id
    });
    this.element = h(
      'div',
      { class: 'hl-g-legend', role: 'note', 'aria-label': __('Legend') },
      this.line,
      this.whole
    );
    this.element.hidden = true;
    this.setOpen(false);
  }

  show(measured: Measured | null): void {
    const { title = '', scales = [], caution = '' } = measured ?? {};
    this.element.hidden = scales.length === 0 && caution === '';
    const [first] = scales;
    replace(
      this.line,
      h('span', { class: 'hl-g-legend-title' }, title),
      first && h('span', {}, first.low),
      first && steps(),
      first && h('span', {}, first.high),
      caution !== '' && h('span', { class: 'hl-g-legend-caution' }, __('random'))
    );
    this.line.title = [
      title,
      ...scales.map(({ name, low, high }) => __('%1: %2 to %3', name, low, high)),
      caution && __('Measured on %1', caution)
    ]
      .filter(text => text !== '')
      .join('\n');
    replace(
      this.whole,
      h('div', { class: 'hl-g-legend-title' }, title),
      scales.length > 0 && h('div', { class: 'hl-g-legend-scales' }, ...scales.flatMap(row)),
      scales.length > 0 && h('div', { class: 'hl-g-legend-bar' }, __('bar: part of the largest')),
      caution !== '' && h('div', { class: 'hl-g-legend-caution' }, __('Measured on %1', caution))
    );
  }

  private setOpen(isOpen: boolean): void {
    this.isOpen = isOpen;
    this.element.classList.toggle('hl-open', isOpen);
    this.line.setAttribute('aria-expanded', String(isOpen));
  }

  private readonly whole: HTMLElement;
  private readonly line: HTMLButtonElement;
  private isOpen = false;
}

function row(scale: Scale): HTMLElement[] {
  return [
    h('span', {}, scale.name),
    h('span', { class: 'hl-g-legend-low' }, scale.low),
    steps(),
    h('span', {}, scale.high)
  ];
}

function steps(): HTMLElement {
  const each = Array.from({ length: LEVELS }, (_, i) => h('i', { 'data-heat': i + 1 }));
  return h('span', { class: 'hl-g-legend-steps', 'aria-hidden': 'true' }, ...each);
}
