// A button that unfolds a panel over what is below it: nothing moves. Escape, and a click elsewhere, fold it again.

import { button, h, uniqueId } from './dom';

export class Popover {
  readonly button: HTMLButtonElement;
  readonly panel: HTMLElement;

  /** `name`: what a screen reader says of the button and of the panel. */
  constructor(label: string, name: string, ...content: HTMLElement[]) {
    const id = uniqueId('popover');
    this.button = button(label, () => this.toggle(), {
      class: 'hl-button hl-popover-button',
      title: name,
      'aria-label': name,
      'aria-expanded': 'false',
      'aria-controls': id
    });
    this.panel = h('div', { class: 'hl-popover', id, role: 'group', 'aria-label': name }, ...content);
    this.panel.hidden = true;
    this.panel.addEventListener('keydown', event => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        this.close();
        this.button.focus();
      }
    });
    this.button.addEventListener('keydown', event => {
      if (event.key === 'Escape' && !this.panel.hidden) {
        event.stopPropagation();
        this.close();
      } else if (event.key === 'ArrowDown') {
        event.preventDefault();
        this.open();
      }
    });
  }

  get isOpen(): boolean {
    return !this.panel.hidden;
  }

  open(): void {
    this.panel.hidden = false;
    this.button.setAttribute('aria-expanded', 'true');
    this.panel
      .querySelector<HTMLElement>('button:not(:disabled), select:not(:disabled), input:not(:disabled)')
      ?.focus();
    this.button.ownerDocument.addEventListener('pointerdown', this.onOutside, true);
  }

  close(): void {
    this.panel.hidden = true;
    this.button.setAttribute('aria-expanded', 'false');
    this.button.ownerDocument.removeEventListener('pointerdown', this.onOutside, true);
  }

  private toggle(): void {
    if (this.isOpen) {
      this.close();
    } else {
      this.open();
    }
  }

  private readonly onOutside = (event: Event): void => {
    const path = event.composedPath();
    if (!path.includes(this.panel) && !path.includes(this.button)) {
      this.close();
    }
  };
}
