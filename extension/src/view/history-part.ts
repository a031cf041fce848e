// The saves of a model's file in the order of time: choose one to compare it with the model or with another save, to
// reload it, or to put it back as the file.

import type { Requester } from '../protocol/channel';
import { asRequestError } from '../protocol/channel';
import type { KeptSave, Model } from '../protocol/messages';
import { button, h, replace } from './dom';
import { facts } from './save-part';
import { agoText, bytesText } from './words';
import { __ } from '../text';

export interface HistoryOptions {
  /** Compare a save with the model, or with another save. */
  onCompare: (file: string, other: string | null) => void;
  onReload: (file: string) => void;
  onRestore: (file: string) => void;
}

export class HistoryPart {
  readonly element: HTMLElement;

  constructor(private readonly options: HistoryOptions) {
    this.strip = h('div', {
      class: 'hl-saves',
      role: 'listbox',
      'aria-orientation': 'horizontal',
      onkeydown: event => this.onKey(event as KeyboardEvent)
    });
    this.chosen = h('div', { class: 'hl-save-chosen' });
    this.element = h('section', { class: 'hl-saves-tab' }, this.strip, this.chosen);
  }

  /** Whose history it is; null for none. */
  show(requester: Requester | null, model: Model | null, file: string): void {
    if (requester !== this.requester || model?.id !== this.model?.id || file !== this.file) {
      this.requester = requester;
      this.file = file;
      this.selected = null;
      this.saves = [];
      this.draw();
      this.model = model;
      void this.load();
    }
    this.model = model;
  }

  /** Ask again, where the strip is seen. */
  async load(): Promise<void> {
    const { requester, model, file } = this;
    const isSeen = this.element.isConnected && !this.element.closest('[hidden]');
    if (!isSeen || !requester || !model) {
      return;
    }
    const isLatest = (): boolean =>
      requester === this.requester && model.id === this.model?.id && file === this.file;
    try {
      const { current, saves } = await requester.request(
        'history',
        { model: model.id, file },
        { timeout: 10_000 }
      );
      if (isLatest()) {
        const before = this.saves.length;
        this.current = current?.file ?? null;
        this.saves = [...[...saves].reverse(), ...(current ? [current] : [])];
        this.draw();
        if (this.saves.length !== before) {
          this.strip.scrollLeft = this.strip.scrollWidth; // the newest is at the end
        }
      }
    } catch (error) {
      if (isLatest()) {
        this.saves = [];
        this.draw(asRequestError(error).message);
      }
    }
  }

  private draw(problem = ''): void {
    const { saves } = this;
    const key = JSON.stringify([this.model?.id, this.file, this.current, saves, this.selected, problem]);
    if (key === this.drawn) {
      return; // what is chosen or typed below the strip stays
    }
    this.drawn = key;
    this.strip.hidden = saves.length === 0;
    this.strip.setAttribute('aria-label', __('Saves of %1', this.file));
    if (!saves.some(save => save.file === this.selected)) {
      this.selected = null;
    }
    const hadFocus = this.strip.contains(document.activeElement);
    const stop = this.selected ?? saves.at(-1)?.file;
    replace(this.strip, ...saves.map(save => this.card(save, save.file === stop)));
    if (hadFocus) {
      this.strip.querySelector<HTMLElement>('[tabindex="0"]')?.focus();
    }
    const save = saves.find(each => each.file === this.selected);
    if (save) {
      this.describe(save);
    } else {
      const hint = this.file === '' ? __('No model.') : __('No saves of %1 yet.', this.file);
      const choose = __(
        'Choose a save to compare it with the model or with another save, to reload it, or to restore it.'
      );
      replace(this.chosen, h('p', { class: 'hl-empty' }, problem || (saves.length > 0 ? choose : hint)));
    }
  }

  private card(save: KeptSave, isStop: boolean): HTMLElement {
    const isCurrent = save.file === this.current;
    return h(
      'div',
      {
        class: 'hl-save-card',
        role: 'option',
        tabindex: isStop ? 0 : -1,
        'aria-selected': save.file === this.selected ? 'true' : 'false',
        title: save.problem || `${whenText(save)}: ${facts(save)}`,
        onclick: () => this.choose(save.file)
      },
      h(
        'span',
        { class: 'hl-save-when' },
        isCurrent ? __('the file now') : agoText(save.modified, Date.now() / 1000)
      ),
      ...(save.problem ? ['damaged'] : trainingTexts(save)).map(text =>
        h('span', { class: 'hl-save-loss' }, text)
      ),
      h('span', { class: 'hl-save-size' }, bytesText(save.bytes)),
      save.note !== '' && h('span', { class: 'hl-save-note' }, save.note)
    );
  }

  private choose(file: string): void {
    this.selected = file;
    this.draw();
    this.strip.querySelector<HTMLElement>('[tabindex="0"]')?.focus();
  }

  private onKey(event: KeyboardEvent): void {
    const files = this.saves.map(save => save.file);
    const at = files.indexOf(this.selected ?? '');
    const last = files.length - 1;
    const to = {
      ArrowLeft: Math.max(0, at < 0 ? last : at - 1),
      ArrowRight: Math.min(last, at < 0 ? last : at + 1),
      Home: 0,
      End: last,
      Enter: at < 0 ? last : at,
      ' ': at < 0 ? last : at
    }[event.key];
    const file = to === undefined ? undefined : files[to];
    if (file !== undefined) {
      event.preventDefault();
      this.choose(file);
    }
  }

  /** What can be done with a save. */
  private describe(save: KeptSave): void {
    const name = this.model?.name ?? __('the model');
    const label = __('the save of %1', whenText(save));
    const disabled = save.problem !== '';
    const others = this.saves.filter(each => each !== save && each.problem === '');
    const other = h(
      'select',
      { class: 'hl-input', 'aria-label': __('Compare with'), disabled },
      h('option', { value: '' }, __('%1 now', name)),
      ...others.map(each =>
        h(
          'option',
          { value: each.file },
          each.file === this.current
            ? __('the file now')
            : [whenText(each), ...trainingTexts(each)].join(', ')
        )
      )
    );
    const note = h('input', {
      class: 'hl-input',
      type: 'text',
      maxlength: 200,
      value: save.note,
      placeholder: __('Note'),
      'aria-label': __('Note on %1', label),
      onchange: () => void this.setNote(save, note.value)
    });
    replace(
      this.chosen,
      h(
        'p',
        { class: 'hl-summary' },
        save.problem || [whenText(save), ...trainingTexts(save), facts(save)].join(', ')
      ),
      note,
      h(
        'div',
        { class: 'hl-buttons' },
        button(__('Compare'), () => this.options.onCompare(save.file, other.value || null), {
          disabled,
          'aria-label': __('Compare %1', label)
        }),
        h('label', { class: 'hl-save-other' }, __('with '), other)
      ),
      h(
        'div',
        { class: 'hl-buttons' },
        button(__('Reload'), () => this.options.onReload(save.file), {
          disabled,
          title: __('Load this save into %1', name),
          'aria-label': __('Reload %1', label)
        }),
        save.file !== this.current &&
          button(__('Restore'), () => this.options.onRestore(save.file), {
            disabled,
            title: __(
              'Make this save the file %1 again; the file that is there now stays among the earlier saves',
              this.file
            ),
            'aria-label': __('Restore %1', label)
          })
      )
    );
  }

  private async setNote(save: KeptSave, note: string): Promise<void> {
    const { requester, model } = this;
    try {
      await requester?.request('note', { model: model?.id ?? '', file: save.file, note });
      await this.load();
    } catch (error) {
      this.draw(asRequestError(error).message);
    }
  }

  private readonly strip: HTMLElement;
  private readonly chosen: HTMLElement;
  private requester: Requester | null = null;
  private model: Model | null = null;
  private file = '';
  private saves: KeptSave[] = [];
  /** Name of the file itself among the saves. */
  private current: string | null = null;
  private selected: string | null = null;
  private drawn = '';
}

/** Date and time. */
export function whenText(save: Pick<KeptSave, 'modified'>): string {
  return new Date(save.modified * 1000).toLocaleString();
}

/** `step 1200` and `loss 0.31`, as far as they are known. */
export function trainingTexts({
  step,
  loss,
  loss_name: name
}: Pick<KeptSave, 'step' | 'loss' | 'loss_name'>): string[] {
  return [
    ...(step !== null ? [__('step %1', step.toLocaleString('en'))] : []),
    ...(loss !== null ? [`${name || 'loss'} ${Number(loss.toPrecision(4))}`] : [])
  ];
}
