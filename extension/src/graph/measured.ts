// An overlay on the elements of a graph: how strong their colour is, what is wrong, and the number on them.

import type { OverlayItem } from '../protocol/messages';

/** Show what was measured on the element of a node or box, or nothing any more; its card has the number. */
export function showMeasured(element: SVGElement, item: OverlayItem | undefined): void {
  element.classList.toggle('hl-g-measured', item !== undefined);
  element.classList.toggle('hl-g-bad', item?.bad ?? false);
  const name = element.dataset['name'] ?? element.getAttribute('aria-label') ?? '';
  element.dataset['name'] = name;
  element.setAttribute('aria-label', item ? `${name}, ${item.text}` : name);
  if (!item) {
    element.style.removeProperty('--hl-share');
    return;
  }
  element.style.setProperty('--hl-share', item.share.toFixed(3));
}

/** The part of an overlay's text that fits on a node: the range of its first output, or all before the first comma or semicolon. */
export function shortText(item: OverlayItem): string {
  if (item.bad) {
    return 'NaN or infinite';
  }
  const [, low, high] = /: min (\S+), max ([^\s;]+?)(?:[,;] |$)/.exec(item.text) ?? [];
  const first = high === undefined ? (item.text.split(/[,;] /)[0] ?? '') : `${low} to ${high}`;
  return first.length > 28 ? `${first.slice(0, 27)}…` : first;
}
