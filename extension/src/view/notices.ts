// Sentences about what happened, over the view for some seconds; the newest stay in a list.

import { button, h, replace } from './dom';
import { __ } from '../text';

/** Milliseconds that a sentence stays over the view. */
const STAY = 10_000;
/** Sentences over the view at a time, and in the list. */
const SHOWN = 3;
const KEPT = 20;

export class Notices {
  /** What lies over the view. */
  readonly element: HTMLElement;
  /** The list of the newest. */
  readonly list: HTMLElement;

  constructor() {
    this.texts = h('div', {});
    this.element = h(
      'div',
      { class: 'hl-notes', role: 'status' },
      this.texts,
      button('×', () => this.dismiss(), { class: 'hl-link', 'aria-label': __('Dismiss the notes') })
    );
    this.items = h('ul', {});
    this.list = h(
      'section',
      { class: 'hl-kept-notes' },
      h('p', { class: 'hl-title' }, __('Notes')),
      this.items
    );
    this.clear();
  }

  /** Say a sentence; one that is still there is not said again. */
  say(text: string): void {
    if (!this.now.includes(text)) {
      this.now = [...this.now, text].slice(-SHOWN);
      this.kept = [text, ...this.kept.filter(other => other !== text)].slice(0, KEPT);
      this.show();
    }
    clearTimeout(this.leaving);
    this.leaving = setTimeout(() => this.dismiss(), STAY);
  }

  /** Forget all: another kernel. */
  clear(): void {
    this.kept = [];
    this.dismiss();
  }

  private dismiss(): void {
    clearTimeout(this.leaving);
    this.now = [];
    this.show();
  }

  private show(): void {
    this.element.hidden = this.now.length === 0;
    replace(this.texts, ...this.now.map(text => h('p', { title: text }, text)));
    this.list.hidden = this.kept.length === 0;
    replace(this.items, ...this.kept.map(text => h('li', {}, text)));
  }

  private readonly texts: HTMLElement;
  private readonly items: HTMLElement;
  private now: string[] = [];
  private kept: string[] = [];
  private leaving: ReturnType<typeof setTimeout> | undefined;
}
