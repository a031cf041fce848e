// An overlay on the elements of a graph: how strong their colour is, what is wrong, and the number beside the name.

import type { OverlayItem } from '../protocol/messages';

/** Show what was measured on the element of a node or box of this width, or nothing any more. */
export function showMeasured(element: SVGElement, item: OverlayItem | undefined, width: number): void {
  element.querySelector(':scope > .hl-g-measure')?.remove();
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
  const text = document.createElementNS('http://www.w3.org/2000/svg', 'text');
  text.setAttribute('class', 'hl-g-measure');
  text.setAttribute('x', String(width));
  text.setAttribute('y', '-4');
  text.setAttribute('text-anchor', 'end');
  text.setAttribute('font-size', '10');
  text.textContent = shortText(item);
  element.append(text);
}

/** What has room beside a node: the range of its first output, or the words up to the first comma or semicolon. */
export function shortText(item: OverlayItem): string {
  if (item.bad) {
    return 'NaN or infinite';
  }
  const [, low, high] = /: min (\S+), max ([^\s;]+?)(?:[,;] |$)/.exec(item.text) ?? [];
  const first = high === undefined ? (item.text.split(/[,;] /)[0] ?? '') : `${low} to ${high}`;
  return first.length > 28 ? `${first.slice(0, 27)}…` : first;
}
