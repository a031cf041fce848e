// Marks of findings in an editor: squiggles, gutter, hover texts, and the fix that Alt+Enter applies.

import type { Action, Diagnostic as EditorDiagnostic } from '@codemirror/lint';
import { forEachDiagnostic, lintGutter, linter, setDiagnostics } from '@codemirror/lint';
import type { Extension } from '@codemirror/state';
import { Compartment, Text } from '@codemirror/state';
import type { ViewUpdate } from '@codemirror/view';
import { EditorView, ViewPlugin } from '@codemirror/view';
import type { CellDiagnostics } from '../lint/lint-client';
import { changesOf, offsetAt, rangeOf } from '../lint/positions';
import type { Diagnostic, Fix } from '../protocol/messages';
import { button, h } from '../view/dom';
import type { ListedPlace } from '../view/findings-list';
import { fixLabel, fixTitle } from '../view/findings-list';
import { inline, renderMarkdown } from '../view/markdown';
import { __ } from '../text';

/** A mark in an editor. `finding`: of a call that leads to a finding in the function called, where that finding is. */
export interface Mark {
  diagnostic: Diagnostic;
  finding?: ListedPlace;
}

/** The marks of calls that lead to findings, by the id of the cell with the call. */
export function callMarks(
  cells: CellDiagnostics,
  placeOf: (cellId: string, at: Diagnostic) => ListedPlace
): Record<string, Mark[]> {
  const marks: Record<string, Mark[]> = {};
  for (const [id, diagnostics] of Object.entries(cells)) {
    for (const diagnostic of diagnostics) {
      for (const { message, location } of diagnostic.calls) {
        const { line, col, end_line, end_col, cell_id: cell } = location;
        const place = { message, line, col, end_line, end_col };
        const mark: Diagnostic = { ...diagnostic, ...place, rewrite: '', fix: null, calls: [] };
        (marks[cell] ??= []).push({ diagnostic: mark, finding: placeOf(id, diagnostic) });
      }
    }
  }
  return marks;
}

/** An editor that can show marks. */
export class MarkedEditor {
  constructor(
    readonly view: EditorView,
    private readonly gutter: Compartment
  ) {}

  /** Show these marks in `source`. `hasGutter`: whether this editor's code is checked at all. */
  show(marks: readonly Mark[], hasGutter: boolean, source: string): void {
    const wanted = hasGutter ? GUTTER : NO_GUTTER;
    if (this.gutter.get(this.view.state) !== wanted) {
      this.view.dispatch({ effects: this.gutter.reconfigure(wanted) });
    }
    const checked = Text.of(source.split('\n'));
    const shown = marks.map(mark => forEditor(this.view, mark, checked));
    this.view.dispatch(setDiagnostics(this.view.state, shown));
  }

  /** Put the cursor at a line (from 1) and character (from 0). */
  goTo(line: number, col: number): void {
    const anchor = offsetAt(this.view.state.doc, line, col);
    this.view.dispatch({ selection: { anchor }, scrollIntoView: true });
    this.view.focus();
  }
}

/** The editor extension: `attach` is told of a new editor, `detach` of one that is gone, `edited` of every change. */
export function marksExtension(
  attach: (editor: MarkedEditor) => void,
  detach: (editor: MarkedEditor) => void,
  edited: () => void
): Extension {
  const gutter = new Compartment();
  const plugin = ViewPlugin.fromClass(
    class {
      readonly editor: MarkedEditor;
      constructor(view: EditorView) {
        this.editor = new MarkedEditor(view, gutter);
        attach(this.editor);
      }
      update(update: ViewUpdate): void {
        if (update.docChanged) {
          edited();
        }
      }
      destroy(): void {
        detach(this.editor);
      }
    }
  );
  // The class is what the shortcut's selector asks for: elsewhere Alt+Enter runs the cell, as ever.
  const here = EditorView.contentAttributes.of(view =>
    fixAt(view) === null ? null : { class: 'hl-fix-here' }
  );
  return [plugin, gutter.of(NO_GUTTER), linter(null), here];
}

/** Apply the fix of the finding at the cursor; false where there is none. */
export function applyFixAt(view: EditorView): boolean {
  const found = fixAt(view);
  found?.action.apply(view, found.from, found.to);
  return found !== null;
}

/**
 * Put the cursor on the finding after it, or on the first one; false where there are none. CodeMirror's own command needs
 * a newer @codemirror/view than JupyterLab 4.6.0 has.
 */
export function goToNextFinding(view: EditorView): boolean {
  const { head } = view.state.selection.main;
  const places: number[] = [];
  forEachDiagnostic(view.state, (_, from) => places.push(from));
  const place = places.find(from => from > head) ?? places[0];
  if (place === undefined) {
    return false;
  }
  view.dispatch({ selection: { anchor: place }, scrollIntoView: true });
  return true;
}

function fixAt(view: EditorView): { action: Action; from: number; to: number } | null {
  const { head } = view.state.selection.main;
  let found: { action: Action; from: number; to: number } | null = null;
  forEachDiagnostic(view.state, (diagnostic, from, to) => {
    const action = diagnostic.actions?.[0];
    if (action && from <= head && head <= to) {
      found ??= { action, from, to };
    }
  });
  return found;
}

const GUTTER = lintGutter();
const NO_GUTTER: Extension = [];

const SEVERITY = { error: 'error', warning: 'warning', note: 'info' } as const;

/** CodeMirror's form of a diagnostic. */
function forEditor(view: EditorView, mark: Mark, checked: Text): EditorDiagnostic {
  const { diagnostic } = mark;
  const { fix } = diagnostic;
  return {
    ...rangeOf(view.state.doc, diagnostic),
    severity: SEVERITY[diagnostic.severity],
    source: `hybrid_lab ${diagnostic.code}`,
    message: diagnostic.message,
    markClass: `hl-lint hl-lint-${diagnostic.severity}`,
    renderMessage: () => hoverText(mark),
    actions: fix ? [fixAction(fix, checked)] : []
  };
}

/** The rule's text, as shown on hover. */
function hoverText({ diagnostic, finding }: Mark): HTMLElement {
  return h(
    'div',
    { class: 'hl-hover' },
    h('p', {}, h('strong', {}, `${diagnostic.code} `), ...inline(diagnostic.message)),
    finding &&
      h(
        'p',
        {},
        button(__('Go to %1', finding.place), () => finding.jump?.(), { class: 'hl-link' })
      ),
    diagnostic.rewrite !== '' && h('p', {}, __('Instead: '), h('code', {}, diagnostic.rewrite)),
    diagnostic.help !== '' && renderMarkdown(diagnostic.help)
  );
}

function fixAction(fix: Fix, checked: Text): Action {
  return {
    name: `${fixLabel({ title: fixTitle(fix), safe: fix.safe })} (Alt+Enter)`,
    apply: view => {
      const changes = changesOf(checked, view.state.doc, fix.edits);
      if (changes) {
        view.dispatch({ changes, userEvent: 'input.fix' });
      }
      view.focus(); // so that Ctrl+Z undoes it
    }
  };
}
