// Small DOM builders: text always as text nodes, never as HTML.

export type Child = Node | string | null | undefined | false;

/** Attributes by name; `on...` entries are listeners; false and undefined are left out, true is an empty attribute. */
export type Attributes = Record<string, string | number | boolean | undefined | ((event: Event) => void)>;

/** Make an element. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') {
      element.addEventListener(name.slice(2), value);
    } else if (value === true) {
      element.setAttribute(name, '');
    } else if (value !== false && value !== undefined) {
      element.setAttribute(name, String(value));
    }
  }
  append(element, children);
  return element;
}

export function append(element: Element, children: readonly Child[]): void {
  element.append(...children.filter((child): child is Node | string => !!child || child === ''));
}

export function replace(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}

/** A push button with a text label; `title` says more on hover. */
export function button(label: string, onclick: () => void, attributes: Attributes = {}): HTMLButtonElement {
  return h('button', { type: 'button', class: 'hl-button', ...attributes, onclick }, label);
}

let counter = 0;
/** An id that is unique on the page, for labels and ARIA references. */
export function uniqueId(stem: string): string {
  return `hl-${stem}-${++counter}`;
}

/** Keep focus on the element with the same data-key while `render` rebuilds `root`. */
export function keepFocus(root: Element, render: () => void): void {
  const active = root.ownerDocument.activeElement;
  const key = active && root.contains(active) ? active.getAttribute('data-key') : null;
  render();
  if (key !== null) {
    const target = [...root.querySelectorAll<HTMLElement>('[data-key]')].find(
      element => element.getAttribute('data-key') === key
    );
    target?.focus();
  }
}

/** Give texts that are cut, with an ellipsis, a title that has all of them when the pointer comes to them. */
export function tellWhatIsCut(root: HTMLElement): void {
  root.addEventListener('pointerover', event => {
    const element = event.target;
    if (!(element instanceof HTMLElement) || element.children.length > 0) {
      return;
    }
    const text = element.textContent ?? '';
    const own = (element.dataset.title ??= element.title);
    const isCut = element.scrollWidth > element.clientWidth && !own.includes(text);
    element.title = isCut ? [text, own].filter(part => part !== '').join('\n') : own;
  });
}
