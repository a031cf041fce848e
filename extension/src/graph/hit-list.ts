// The hits of a search as a list over the picture: it moves nothing, and goes with the focus.

import { h, replace, uniqueId } from '../view/dom';
import { __, _n } from '../text';

export interface Hit {
  id: string;
  title: string;
  /** Shape, class or what else tells it from others of its name. */
  detail: string;
}

/** Rows that are listed; of more the number is said. */
const LISTED = 200;

export class HitList {
  readonly element: HTMLElement;
  readonly id = uniqueId('hits');

  constructor(private readonly onChoose: (index: number) => void) {
    this.list = h('div', { class: 'hl-hit-rows', role: 'listbox', id: this.id, 'aria-label': __('Hits') });
    this.problem = h('p', { class: 'hl-hit-problem', role: 'status' });
    this.more = h('p', { class: 'hl-hit-more' });
    this.element = h('div', { class: 'hl-hit-list' }, this.problem, this.list, this.more);
    // The field keeps the focus; a click reaches the row all the same.
    this.element.addEventListener('pointerdown', event => event.preventDefault());
    this.element.hidden = true;
  }

  /** The id of the element of a hit, where it is listed. */
  rowId(index: number): string | null {
    return index >= 0 && index < Math.min(this.count, LISTED) ? `${this.id}-${index}` : null;
  }

  /** `count`: of all hits; `hits`: those that are listed. */
  show(hits: readonly Hit[], count: number, problem: string): void {
    this.count = count;
    this.problem.textContent = problem;
    this.problem.hidden = problem === '';
    replace(
      this.list,
      ...hits.map((hit, index) =>
        h(
          'div',
          {
            class: 'hl-hit-row',
            role: 'option',
            id: this.rowId(index) ?? undefined,
            'aria-selected': 'false',
            title: [hit.title, hit.detail].filter(text => text !== '').join('\n'),
            onclick: () => this.onChoose(index)
          },
          h('span', { class: 'hl-hit-title' }, hit.title),
          h('span', { class: 'hl-hit-detail' }, hit.detail)
        )
      )
    );
    this.list.hidden = hits.length === 0;
    this.more.textContent =
      count > hits.length
        ? __('and %1: the arrow keys reach them', _n('%1 more hit', '%1 more hits', count - hits.length))
        : '';
    this.more.hidden = this.more.textContent === '';
    this.isEmpty = hits.length === 0 && problem === '';
    this.element.hidden ||= this.isEmpty;
  }

  open(): void {
    this.element.hidden = this.isEmpty;
  }

  close(): void {
    this.element.hidden = true;
  }

  get isOpen(): boolean {
    return !this.element.hidden;
  }

  /** Mark the hit that is selected. */
  mark(index: number): void {
    [...this.list.children].forEach((row, i) => row.setAttribute('aria-selected', String(i === index)));
    this.list.children[index]?.scrollIntoView({ block: 'nearest' });
  }

  /** The hits that are listed, of all. */
  static listed<T>(hits: readonly T[]): readonly T[] {
    return hits.slice(0, LISTED);
  }

  private readonly list: HTMLElement;
  private readonly problem: HTMLElement;
  private readonly more: HTMLElement;
  private count = 0;
  private isEmpty = true;
}
