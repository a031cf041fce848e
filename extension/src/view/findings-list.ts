// The list of findings: severity, message, place; a click goes there, the rule's text unfolds.

import type { Diagnostic, Location } from '../protocol/messages';
import { button, h, replace } from './dom';
import { inline, renderMarkdown } from './markdown';

/** A finding and where it is, as the list shows it. */
export interface ListedFinding {
  diagnostic: Diagnostic;
  /** `cell 3, line 12` */
  place: string;
  /** Goes there; null where the place cannot be reached from here. */
  jump: (() => void) | null;
}

const SEVERITY = { error: 'Error', warning: 'Warning', note: 'Note' } as const;
const ORDER = { error: 0, warning: 1, note: 2 } as const;

export class FindingsList {
  readonly element = h('div', { class: 'hl-findings-part' });
  private sorted: readonly ListedFinding[] = [];
  private shown = '';

  /**
   * `emptyText` is shown where there are none. Equal findings keep their elements: a check at the end of a cell must
   * not take a button from under the pointer, nor the focus from the keyboard.
   */
  show(findings: readonly ListedFinding[], emptyText: string): void {
    this.sorted = [...findings].sort((a, b) => ORDER[a.diagnostic.severity] - ORDER[b.diagnostic.severity]);
    const shown = JSON.stringify([
      emptyText,
      this.sorted.map(({ diagnostic, place, jump }) => [diagnostic, place, jump !== null])
    ]);
    if (shown === this.shown) {
      return;
    }
    this.shown = shown;
    const open = new Set(
      [...this.element.querySelectorAll<HTMLDetailsElement>('details[open]')].map(item => item.dataset.key)
    );
    if (findings.length === 0) {
      replace(this.element, h('p', { class: 'hl-empty' }, emptyText));
      return;
    }
    replace(
      this.element,
      h(
        'ul',
        { class: 'hl-findings', 'aria-label': 'Findings' },
        ...this.sorted.map((item, index) => this.item(item, index, open))
      )
    );
  }

  private item(item: ListedFinding, index: number, open: ReadonlySet<string | undefined>): HTMLElement {
    const { diagnostic, place, jump } = item;
    const key = `${place}|${diagnostic.code}|${diagnostic.col}`;
    return h(
      'li',
      { class: `hl-finding hl-severity-${diagnostic.severity}` },
      h(
        'div',
        { class: 'hl-finding-line' },
        h(
          'span',
          { class: 'hl-finding-mark', title: SEVERITY[diagnostic.severity] },
          SEVERITY[diagnostic.severity]
        ),
        h('span', { class: 'hl-finding-code', title: diagnostic.name }, diagnostic.code),
        jump
          ? button(place, () => this.sorted[index]?.jump?.(), {
              class: 'hl-link hl-finding-place',
              title: 'Go to this line'
            })
          : h('span', { class: 'hl-finding-place' }, place)
      ),
      h('div', { class: 'hl-finding-message' }, ...inline(diagnostic.message)),
      diagnostic.rewrite !== '' &&
        h('div', { class: 'hl-finding-rewrite' }, 'Instead: ', h('code', {}, diagnostic.rewrite)),
      diagnostic.help !== '' &&
        h(
          'details',
          { 'data-key': key, open: open.has(key) },
          h('summary', {}, `About ${diagnostic.code} ${diagnostic.name}`),
          renderMarkdown(diagnostic.help)
        )
    );
  }
}

/** Findings of a model as list items; `onLocation` makes those in cells reachable. */
export function listed(
  diagnostics: readonly Diagnostic[],
  onLocation: ((location: Location) => void) | undefined
): ListedFinding[] {
  return diagnostics.map(diagnostic => {
    const { location } = diagnostic;
    const canJump = onLocation && location && (location.cell_id !== '' || location.cell !== null);
    return {
      diagnostic,
      place: location?.label ?? `line ${diagnostic.line}`,
      jump: canJump ? () => onLocation(location) : null
    };
  });
}
