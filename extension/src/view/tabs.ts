// Tabs by the ARIA pattern: one tab stop, arrow keys move.

import { button, h, uniqueId } from './dom';

export interface Tab {
  name: string;
  content: HTMLElement;
}

export class Tabs {
  readonly element: HTMLElement;

  constructor(
    label: string,
    private readonly tabs: readonly Tab[],
    private readonly onShow: (index: number) => void = () => undefined
  ) {
    this.buttons = tabs.map((tab, i) => {
      const panelId = uniqueId('panel');
      const element = button(tab.name, () => this.show(i), {
        class: 'hl-tab',
        role: 'tab',
        id: uniqueId('tab'),
        'aria-controls': panelId
      });
      tab.content.id = panelId;
      tab.content.setAttribute('role', 'tabpanel');
      tab.content.setAttribute('aria-labelledby', element.id);
      return element;
    });
    const list = h('div', { class: 'hl-tablist', role: 'tablist', 'aria-label': label }, ...this.buttons);
    list.addEventListener('keydown', event => this.onKey(event));
    this.element = h('div', { class: 'hl-tabs' }, list, ...tabs.map(tab => tab.content));
    this.show(0);
  }

  get current(): number {
    return this.index;
  }

  show(index: number): void {
    this.index = index;
    this.tabs.forEach((tab, i) => (tab.content.hidden = i !== index));
    this.buttons.forEach((element, i) => {
      element.setAttribute('aria-selected', i === index ? 'true' : 'false');
      element.tabIndex = i === index ? 0 : -1;
    });
    this.onShow(index);
  }

  rename(index: number, name: string): void {
    const element = this.buttons[index];
    if (element) {
      element.textContent = name;
    }
  }

  private onKey(event: KeyboardEvent): void {
    const last = this.tabs.length - 1;
    const target = {
      ArrowRight: this.index === last ? 0 : this.index + 1,
      ArrowLeft: this.index === 0 ? last : this.index - 1,
      Home: 0,
      End: last
    }[event.key];
    if (target !== undefined) {
      event.preventDefault();
      this.show(target);
      this.buttons[target]?.focus();
    }
  }

  private readonly buttons: HTMLButtonElement[];
  private index = 0;
}
