// Earlier saves of a model's file: compare with one of them, or go back to it.

import { Requester, asRequestError } from '../protocol/channel';
import type { Archive } from '../protocol/messages';
import { button, h, replace } from './dom';
import { facts } from './save-part';

export interface HistoryOptions {
  onCompare(file: string): void;
  onReload(file: string): void;
}

export class HistoryPart {
  readonly element: HTMLDetailsElement;

  constructor(private readonly options: HistoryOptions) {
    this.list = h('div', { class: 'hl-history' });
    this.element = h(
      'details',
      { class: 'hl-more', ontoggle: () => void this.load() },
      h('summary', {}, 'Earlier saves'),
      this.list
    );
  }

  /** Whose history it is; '' for none. */
  show(requester: Requester | null, file: string): void {
    this.element.hidden = requester === null || file === '';
    if (requester !== this.requester || file !== this.file) {
      this.requester = requester;
      this.file = file;
      void this.load();
    }
  }

  /** Ask again, where the list is open. */
  async load(): Promise<void> {
    const { requester, file } = this;
    if (!this.element.open || !requester || file === '') {
      return;
    }
    try {
      const { saves } = await requester.request('history', { file }, { timeout: 10_000 });
      if (file === this.file) {
        replace(
          this.list,
          ...(saves.length > 0
            ? [h('ul', {}, ...saves.map(save => this.row(save)))]
            : [
                h(
                  'p',
                  { class: 'hl-empty' },
                  `No earlier saves of ${file}. A save keeps the file that it replaces.`
                )
              ])
        );
      }
    } catch (error) {
      replace(this.list, h('p', { class: 'hl-empty' }, asRequestError(error).message));
    }
  }

  private row(save: Archive): HTMLElement {
    const what = save.problem || facts(save);
    const label = `the save of ${new Date(save.modified * 1000).toLocaleString()}`;
    const disabled = save.problem !== '';
    return h(
      'li',
      {},
      h('span', { title: label }, what),
      button('Compare', () => this.options.onCompare(save.file), {
        disabled,
        'aria-label': `Compare with ${label}`
      }),
      button('Reload', () => this.options.onReload(save.file), { disabled, 'aria-label': `Reload ${label}` })
    );
  }

  private readonly list: HTMLElement;
  private requester: Requester | null = null;
  private file = '';
}
