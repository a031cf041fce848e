// What came of an action, in place: progress, questions, results and errors.

import { RequestError } from '../protocol/channel';
import type { Progress } from '../protocol/messages';
import { Child, append, button, h, replace } from './dom';

export class ActionResults {
  readonly element: HTMLElement;
  /** Called when an action begins or ends. */
  onBusy: () => void = () => undefined;
  /** Called when there is something to be seen. */
  onShown: () => void = () => undefined;

  constructor() {
    this.results = h('div', { class: 'hl-results', role: 'status', 'aria-live': 'polite' });
    this.alerts = h('div', { class: 'hl-results', role: 'alert' });
    this.element = h('div', { class: 'hl-outcome' }, this.results, this.alerts);
  }

  get busy(): boolean {
    return this.isBusy;
  }

  /** Forget what is shown, unless an action is under way. */
  clear(): void {
    if (!this.isBusy) {
      replace(this.results);
      replace(this.alerts);
    }
  }

  begin(text: string): void {
    this.isBusy = true;
    this.onBusy();
    replace(this.alerts);
    replace(this.results, h('p', {}, text));
    this.onShown();
    // A kernel without subshells, or one that waits for a step boundary: say so instead of seeming dead.
    clearTimeout(this.patience);
    this.patience = setTimeout(
      () => append(this.results, [h('p', { class: 'hl-empty' }, 'The kernel is busy; the request waits.')]),
      3000
    );
  }

  finish(lines: Child[]): void {
    clearTimeout(this.patience);
    this.isBusy = false;
    const dismiss = button('Dismiss', () => this.clear(), { class: 'hl-link hl-dismiss' });
    replace(this.results, ...lines, lines.length > 0 && dismiss);
    this.onBusy();
  }

  showProgress(progress: Progress): void {
    clearTimeout(this.patience);
    const known = progress.total > 0;
    replace(
      this.results,
      h('p', {}, progress.text),
      h('progress', known ? { max: progress.total, value: progress.done } : {})
    );
  }

  fail(error: RequestError): void {
    append(this.alerts, [h('div', { class: 'hl-alert' }, ...failure(error))]);
    this.onShown();
  }

  /** Ask in place; resolves with the answer. */
  confirm(question: string | Child[], yes: string): Promise<boolean> {
    clearTimeout(this.patience);
    return new Promise(resolve => {
      const go = button(yes, () => resolve(true), { class: 'hl-button hl-primary' });
      const children = typeof question === 'string' ? [h('p', {}, question)] : question;
      replace(
        this.results,
        h(
          'div',
          { class: 'hl-confirm', role: 'group', 'aria-label': 'Please confirm' },
          ...children,
          h(
            'div',
            { class: 'hl-buttons' },
            go,
            button('Cancel', () => resolve(false))
          )
        )
      );
      this.onShown();
      go.focus();
    });
  }

  private readonly results: HTMLElement;
  private readonly alerts: HTMLElement;
  private isBusy = false;
  private patience: ReturnType<typeof setTimeout> | undefined;
}

/** An error as the user reads it: what, everything that differs, what to do next. */
export function failure(error: RequestError): Child[] {
  return [
    h('p', {}, error.message),
    error.details.length > 0 && h('ul', {}, ...error.details.map(line => h('li', {}, line))),
    error.next !== '' && h('p', { class: 'hl-next' }, error.next)
  ];
}
