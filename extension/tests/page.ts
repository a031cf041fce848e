// A page for tests of views: jsdom's window, made global before anything else is imported.

import { JSDOM } from 'jsdom';

const { window } = new JSDOM('<!doctype html><body></body>', { pretendToBeVisual: true });
window.HTMLCanvasElement.prototype.getContext = () => null; // jsdom has none and would complain
window.Element.prototype.scrollIntoView = () => undefined; // jsdom has no layout

for (const name of [
  'window',
  'document',
  'Node',
  'Element',
  'HTMLElement',
  'Event',
  'KeyboardEvent',
  'MouseEvent',
  'DOMParser',
  'XMLSerializer'
]) {
  Object.defineProperty(globalThis, name, {
    value: window[name as keyof typeof window] as unknown,
    configurable: true
  });
}

/** Put the parts of a view on the page, beside each other; gives the view with what is around them. */
export function mountParts<V extends object>(view: V, ...parts: HTMLElement[]): V & { element: HTMLElement } {
  const element = document.createElement('div');
  element.append(...parts);
  mount(element);
  return Object.assign(view, { element });
}

/** Put an element on the page, so that it can have focus. */
export function mount<E extends HTMLElement>(element: E): E {
  document.body.replaceChildren(element);
  return element;
}

export function press(element: Element, key: string): void {
  element.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
}

export function click(element: Element | null | undefined): void {
  element?.dispatchEvent(new MouseEvent('click', { bubbles: true }));
}

/** Let promises and short timers run. */
export function settle(milliseconds = 0): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, milliseconds));
}

/** The button with this label. */
export function buttonOf(root: Element, label: string): HTMLButtonElement {
  const found = [...root.querySelectorAll('button')].find(button => button.textContent === label);
  if (!found) {
    throw new Error(`no button ${label}`);
  }
  return found;
}
