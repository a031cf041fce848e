// Long work of the running cell: what it is, which part is done now, how long it has taken, and how much is done.

import type { WorkPush, WorkRow } from '../protocol/messages';
import { h, replace } from './dom';
import { __ } from '../text';

export class WorkRows {
  /** What lies over the view; hidden while there is no such work. */
  readonly element = h('div', {
    class: 'hl-works',
    role: 'region',
    'aria-label': __('Work of the running cell')
  });

  constructor() {
    this.element.hidden = true;
  }

  /** Show what a push told; its seconds go on from now. */
  show(push: WorkPush | null): void {
    if (push === this.push) {
      return;
    }
    this.push = push;
    const works = push?.works ?? [];
    const now = Date.now();
    this.began = new Map(works.map(work => [work.id, this.began.get(work.id) ?? now - work.seconds * 1000]));
    this.works = works;
    this.element.hidden = works.length === 0;
    clearInterval(this.ticking);
    if (works.length > 0) {
      this.ticking = setInterval(() => this.tick(), 1000);
    }
    replace(this.element, ...works.map(work => this.row(work)));
    this.tick();
  }

  private row(work: WorkRow): HTMLElement {
    const isCounted = work.total > 0;
    const amount = isCounted ? __('%1 of %2 %3', work.done, work.total, work.unit).trim() : '';
    return h(
      'div',
      { class: 'hl-work', title: [work.title, work.part].filter(text => text !== '').join(': ') },
      h(
        'div',
        { class: 'hl-work-line' },
        h('strong', {}, work.title),
        h('span', { class: 'hl-work-part' }, work.part),
        h('span', { class: 'hl-work-amount' }, amount),
        h('span', { class: 'hl-work-time' })
      ),
      h(
        'div',
        {
          class: isCounted ? 'hl-work-bar' : 'hl-work-bar hl-work-open',
          role: 'progressbar',
          'aria-label': work.title,
          ...(isCounted && { 'aria-valuemin': 0, 'aria-valuemax': work.total, 'aria-valuenow': work.done }),
          ...(isCounted && { style: `--hl-part: ${Math.min(1, work.done / work.total).toFixed(4)}` })
        },
        h('div', {})
      )
    );
  }

  private tick(): void {
    const times = this.element.querySelectorAll('.hl-work-time');
    this.works.forEach((work, place) => {
      const seconds = Math.round((Date.now() - (this.began.get(work.id) ?? Date.now())) / 1000);
      const time = times[place];
      if (time) {
        time.textContent = `${seconds} s`;
      }
    });
  }

  private push: WorkPush | null = null;
  private works: readonly WorkRow[] = [];
  /** By id, when the work began: milliseconds since 1970. */
  private began = new Map<number, number>();
  private ticking: ReturnType<typeof setInterval> | undefined;
}
