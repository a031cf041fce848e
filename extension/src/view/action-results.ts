// What came of the actions on one model, in place: progress, questions, results and errors.

import type { RequestError } from '../protocol/channel';
import type { Progress } from '../protocol/messages';
import type { Child } from './dom';
import { append, button, h, replace } from './dom';
import { __ } from '../text';

export class ActionResults {
  readonly element: HTMLElement;

  /**
   * @param onBusy Called when an action begins or ends.
   * @param onShown Called when there is something to be seen.
   */
  constructor(
    private readonly onBusy: () => void = () => undefined,
    private readonly onShown: () => void = () => undefined
  ) {
    this.results = h('div', { class: 'hl-results', role: 'status', 'aria-live': 'polite' });
    this.alerts = h('div', { class: 'hl-results', role: 'alert' });
    this.element = h('div', { class: 'hl-outcome' }, this.results, this.alerts);
  }

  /** An action is under way, or waits for an answer. */
  get busy(): boolean {
    return this.isBusy;
  }

  /** Whether a question waits for an answer. */
  get asks(): boolean {
    return this.answer !== null;
  }

  get isEmpty(): boolean {
    return !this.results.hasChildNodes() && !this.alerts.hasChildNodes();
  }

  /** Forget what is shown, unless an action is under way. */
  clear(): void {
    if (!this.isBusy) {
      replace(this.results);
      replace(this.alerts);
    }
  }

  /** The model or its kernel is gone: a question that waits is answered with no, and nothing is shown any more. */
  discard(): void {
    this.isGone = true;
    clearTimeout(this.patience);
    this.element.remove();
    this.answer?.(false);
  }

  begin(text: string): void {
    this.isBusy = true;
    this.doing = text;
    this.onBusy();
    replace(this.alerts);
    replace(this.results, h('p', {}, text));
    this.show();
    // A kernel without subshells, or one that waits for a step boundary: say so instead of seeming dead.
    clearTimeout(this.patience);
    this.patience = setTimeout(
      () =>
        append(this.results, [h('p', { class: 'hl-empty' }, __('The kernel is busy; the request waits.'))]),
      3000
    );
  }

  finish(lines: Child[]): void {
    clearTimeout(this.patience);
    this.isBusy = false;
    const dismiss = button(__('Dismiss'), () => this.clear(), { class: 'hl-link hl-dismiss' });
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
    this.show();
  }

  /** Ask in place; resolves with the answer, which is no when the model or its kernel goes. */
  confirm(question: string | Child[], yes: string): Promise<boolean> {
    clearTimeout(this.patience);
    return new Promise(resolve => {
      if (this.isGone) {
        resolve(false);
        return;
      }
      this.answer = agreed => {
        this.answer = null;
        replace(this.results, h('p', {}, this.doing));
        resolve(agreed);
      };
      const go = button(yes, () => this.answer?.(true), { class: 'hl-button hl-primary' });
      const children = typeof question === 'string' ? [h('p', {}, question)] : question;
      replace(
        this.results,
        h(
          'div',
          { class: 'hl-confirm', role: 'group', 'aria-label': __('Please confirm') },
          ...children,
          h(
            'div',
            { class: 'hl-buttons' },
            go,
            button(__('Cancel'), () => this.answer?.(false))
          )
        )
      );
      this.show();
      go.focus({ preventScroll: true }); // the question is read from its start
    });
  }

  private show(): void {
    if (!this.isGone) {
      this.onShown();
    }
  }

  private readonly results: HTMLElement;
  private readonly alerts: HTMLElement;
  private isBusy = false;
  private isGone = false;
  private doing = '';
  private answer: ((agreed: boolean) => void) | null = null;
  private patience: ReturnType<typeof setTimeout> | undefined;
}

/** Lines of a list that are seen at first. */
const SEEN = 5;

/** The first lines of a list; the rest unfolds. */
export function shortList(lines: readonly string[]): Child[] {
  const items = (some: readonly string[]): HTMLElement[] => some.map(line => h('li', {}, line));
  if (lines.length <= SEEN + 1) {
    return lines.length > 0 ? [h('ul', {}, ...items(lines))] : [];
  }
  const more = lines.slice(SEEN);
  return [
    h('ul', {}, ...items(lines.slice(0, SEEN))),
    h(
      'details',
      { class: 'hl-more' },
      h('summary', {}, __('and %1 more', more.length)),
      h('ul', {}, ...items(more))
    )
  ];
}

/** An error as the user reads it: what, everything that differs, what to do next. */
export function failure(error: RequestError): Child[] {
  return [
    h('p', {}, error.message),
    ...shortList(error.details),
    error.next !== '' && h('p', { class: 'hl-next' }, error.next)
  ];
}
