// The setting of a model's autosave, and how its last save went.

import type { Requester, RequestError } from '../protocol/channel';
import { asRequestError } from '../protocol/channel';
import type { AutosaveState, Model } from '../protocol/messages';
import { failure } from './action-results';
import { button, h, replace, uniqueId } from './dom';
import { agoText } from './words';
import { __, _n } from '../text';

const DEFAULT_STEPS = 100;

export class AutosavePart {
  readonly element: HTMLDetailsElement;
  /** A save that failed is an alert that is seen whether the setting is unfolded or not. */
  readonly alert: HTMLElement;

  constructor(private readonly onChanged: (requester: Requester, model: Model) => void) {
    const unitId = uniqueId('autosave');
    this.unit = h(
      'select',
      { class: 'hl-input', id: unitId, onchange: () => void this.set() },
      h('option', { value: 'off' }, __('off')),
      h('option', { value: 'step' }, __('every … steps')),
      h('option', { value: 'epoch' }, __('each epoch'))
    );
    this.every = h('input', {
      class: 'hl-input',
      type: 'number',
      min: 1,
      value: DEFAULT_STEPS,
      'aria-label': __('Steps between two saves'),
      onchange: () => void this.set()
    });
    this.status = h('p', { class: 'hl-summary', role: 'status' });
    this.question = h('div', {});
    this.alert = h('div', { class: 'hl-alert', role: 'alert' });
    this.alert.hidden = true;
    this.element = h(
      'details',
      { class: 'hl-more' },
      h('summary', {}, __('Autosave while training')),
      h('div', { class: 'hl-autosave' }, h('label', { for: unitId }, __('Save')), this.unit, this.every),
      this.status,
      this.question
    );
  }

  /** Show a model's setting; undefined: the kernel does not say, as in a widget or of an older version. */
  show(requester: Requester | null, model: Model | null, state: AutosaveState | null | undefined): void {
    if (requester !== this.requester || model?.id !== this.model?.id) {
      replace(this.question); // it was about another model
    }
    this.requester = requester;
    this.element.hidden = !requester || !model || state === undefined;
    const isOther = model?.id !== this.model?.id;
    this.model = model;
    const isEditing = this.element.contains(document.activeElement) && !isOther;
    if (!isEditing) {
      this.unit.value = !state ? 'off' : state.every > 0 ? 'step' : 'epoch';
      this.every.value = String(state && state.every > 0 ? state.every : DEFAULT_STEPS);
    }
    this.every.hidden = this.unit.value !== 'step';
    this.status.textContent = state ? words(state) : '';
    const problem = state?.problem ?? '';
    if (this.alert.hidden !== (problem === '') || this.alert.textContent !== alertText(model, problem)) {
      this.alert.hidden = problem === '';
      replace(this.alert, alertText(model, problem));
    }
  }

  /** overwrite: the user agreed to replace somebody else's file. */
  private async set(overwrite = false): Promise<void> {
    const { requester, model } = this;
    replace(this.question);
    this.every.hidden = this.unit.value !== 'step';
    if (!requester || !model) {
      return;
    }
    const unit = this.unit.value === 'step' ? 'step' : this.unit.value === 'epoch' ? 'epoch' : 'off';
    const every = Math.max(1, Math.round(Number(this.every.value)) || DEFAULT_STEPS);
    try {
      const body = { model: model.id, file: '', unit, every, ...(overwrite && { overwrite }) } as const;
      const { autosave } = await requester.request('autosave', body);
      if (model.id === this.model?.id) {
        this.status.textContent = autosave ? words(autosave) : __('Autosave is off.');
      }
      this.onChanged(requester, model);
    } catch (caught) {
      const error = asRequestError(caught);
      if (model.id !== this.model?.id) {
        return;
      }
      if (error.code === 'exists') {
        this.ask(error);
      } else {
        this.status.textContent = `${error.message}. ${error.next}`;
      }
    }
  }

  private ask(error: RequestError): void {
    const stop = (): void => {
      this.unit.value = 'off';
      void this.set();
    };
    replace(
      this.question,
      h(
        'div',
        { class: 'hl-confirm', role: 'group', 'aria-label': __('Please confirm') },
        ...failure(error),
        h(
          'div',
          { class: 'hl-buttons' },
          button(__('Replace it'), () => void this.set(true), { class: 'hl-button hl-primary' }),
          button(__('Cancel'), stop)
        )
      )
    );
  }

  private readonly question: HTMLElement;
  private readonly unit: HTMLSelectElement;
  private readonly every: HTMLInputElement;
  private readonly status: HTMLElement;
  private requester: Requester | null = null;
  private model: Model | null = null;
}

function words(state: AutosaveState): string {
  if (state.saves === 0) {
    return __('Saves will go to %1; none was made yet.', state.file);
  }
  const ago = agoText(state.last, Date.now() / 1000);
  return __(
    '%1 to %2, the last %3; it took %4 s.',
    _n('%1 save', '%1 saves', state.saves),
    state.file,
    ago,
    state.seconds.toFixed(2)
  );
}

function alertText(model: Model | null, problem: string): string {
  return problem === ''
    ? ''
    : __('The autosave of %1 failed: %2. The training goes on.', model?.name ?? __('the model'), problem);
}
