// The list of findings: severity, message, place; a click goes there, the rule's text unfolds.

import type { Diagnostic, Fix, Location } from '../protocol/messages';
import { button, h, replace } from './dom';
import { inline, renderMarkdown } from './markdown';
import { __ } from '../text';

export interface ListedPlace {
  /** `cell 3, line 12` */
  place: string;
  /** Goes there; null where the place cannot be reached from here. */
  jump: (() => void) | null;
}

/** A finding and where it is, as the list shows it. */
export interface ListedFinding extends ListedPlace {
  diagnostic: Diagnostic;
  /** The calls that lead to it, where it is in a function that is called. */
  calls?: readonly ListedPlace[];
  /** Repairs it; null where there is no repair, or the code cannot be reached from here. */
  fix?: ListedFix | null;
}

export interface ListedBlock {
  /** `net.stages.0: Dense` */
  name: string;
  show: () => void;
}

export interface ListedFix {
  /** What it changes. */
  title: string;
  /** Whether the repaired code does the same for certain. */
  safe: boolean;
  /** Change the code. `focus`: go there, so that Ctrl+Z undoes it. */
  apply: (focus: boolean) => void;
}

const SEVERITY = { error: __('Error'), warning: __('Warning'), note: __('Note') } as const;
const ORDER = { error: 0, warning: 1, note: 2 } as const;

export class FindingsList {
  readonly element = h('div', { class: 'hl-findings-part' });
  /** The Block of the model that a finding names, with its class, and what shows its row; null: none is known. */
  blockOf: (diagnostic: Diagnostic) => ListedBlock | null = () => null;
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
      this.sorted.map(({ diagnostic, place, jump, calls, fix }) => [
        diagnostic,
        place,
        jump !== null,
        calls?.map(call => call.place),
        !!fix,
        this.blockOf(diagnostic)?.name
      ])
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
    const safe = this.safeFixes().length;
    replace(
      this.element,
      safe > 1 &&
        button(__('Apply all %1 safe fixes', safe), () => this.fixAll(), {
          class: 'hl-button hl-fix-all',
          title: __('Ctrl+Z in a cell undoes the changes of that cell')
        }),
      h(
        'ul',
        { class: 'hl-findings', 'aria-label': __('Findings') },
        ...this.sorted.map((item, index) => this.item(item, index, open))
      )
    );
  }

  /** From the last line of a cell to its first, so that no fix moves the place of another. */
  private safeFixes(): ListedFix[] {
    const below = (a: Diagnostic, b: Diagnostic): number => b.line - a.line || b.col - a.col;
    return [...this.sorted]
      .sort((a, b) => below(a.diagnostic, b.diagnostic))
      .flatMap(({ fix }) => (fix?.safe ? [fix] : []));
  }

  private fixAll(): void {
    const fixes = this.safeFixes();
    fixes.forEach((fix, i) => fix.apply(i === fixes.length - 1));
  }

  private item(item: ListedFinding, index: number, open: ReadonlySet<string | undefined>): HTMLElement {
    const { diagnostic, place, jump, calls = [], fix } = item;
    const key = `${place}|${diagnostic.code}|${diagnostic.col}`;
    const block = this.blockOf(diagnostic);
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
        placeLink(place, jump && (() => this.sorted[index]?.jump?.())),
        block &&
          button(block.name, () => this.blockOf(this.sorted[index]?.diagnostic ?? diagnostic)?.show(), {
            class: 'hl-link hl-finding-block',
            title: __('Show this Block in the tree\n%1', block.name)
          })
      ),
      h('div', { class: 'hl-finding-message' }, ...inline(diagnostic.message)),
      calls.length > 0 &&
        h(
          'div',
          { class: 'hl-finding-calls' },
          __('Called at '),
          ...calls.flatMap((call, i) => [
            i > 0 && '; ',
            placeLink(call.place, call.jump && (() => this.sorted[index]?.calls?.[i]?.jump?.()))
          ])
        ),
      diagnostic.rewrite !== '' &&
        h('div', { class: 'hl-finding-rewrite' }, __('Instead: '), h('code', {}, diagnostic.rewrite)),
      fix &&
        button(fixLabel(fix), () => this.sorted[index]?.fix?.apply(true), {
          class: 'hl-button hl-fix',
          title: __('Changes the cell; Ctrl+Z there undoes it')
        }),
      diagnostic.help !== '' &&
        h(
          'details',
          { 'data-key': key, open: open.has(key) },
          h('summary', {}, __('About %1 %2', diagnostic.code, diagnostic.name)),
          renderMarkdown(diagnostic.help)
        )
    );
  }
}

function placeLink(place: string, jump: (() => void) | null): HTMLElement {
  return jump
    ? button(place, jump, { class: 'hl-link hl-finding-place', title: __('Go to this line') })
    : h('span', { class: 'hl-finding-place' }, place);
}

/** `Write F.relu: the namespace of the mode that runs`: what a fix changes. */
export function fixTitle(fix: Fix): string {
  const texts = [...new Set(fix.edits.map(edit => edit.text.trim()))];
  const [text] = texts;
  if (texts.length !== 1 || text === undefined || text.length > 60 || text.includes('\n')) {
    return fix.title;
  }
  return text === '' ? __('Remove it: %1', fix.title) : __('Write %1: %2', text, fix.title);
}

/** The label of a fix's button. */
export function fixLabel(fix: { title: string; safe: boolean }): string {
  return fix.safe ? fix.title : __('%1 (check the result)', fix.title);
}

/** Findings of a model as list items; `onLocation` makes those in cells reachable. */
export function listed(
  diagnostics: readonly Diagnostic[],
  onLocation: ((location: Location) => void) | undefined
): ListedFinding[] {
  const placeOf = (location: Location): ListedPlace => ({
    place: location.label,
    jump:
      onLocation && (location.cell_id !== '' || location.cell !== null) ? () => onLocation(location) : null
  });
  return diagnostics.map(diagnostic => ({
    diagnostic,
    ...(diagnostic.location
      ? placeOf(diagnostic.location)
      : { place: __('line %1', diagnostic.line), jump: null }),
    calls: diagnostic.calls.map(({ location }) => placeOf(location))
  }));
}
