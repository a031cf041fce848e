// Lines of an editor that belong to what is selected in the graph, softly marked; and where the cursor stands.

import type { Extension } from '@codemirror/state';
import { StateEffect, StateField } from '@codemirror/state';
import type { DecorationSet } from '@codemirror/view';
import { Decoration, EditorView } from '@codemirror/view';

/** Lines from 1, both included. */
export interface Lines {
  first: number;
  last: number;
}

const setLines = StateEffect.define<Lines | null>();
const LINE = Decoration.line({ class: 'hl-code-line' });

const marked = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update: (lines, transaction) => {
    let now = lines.map(transaction.changes);
    for (const effect of transaction.effects) {
      if (effect.is(setLines)) {
        const { doc } = transaction.state;
        const { first, last } = effect.value ?? { first: 1, last: 0 };
        const places = [];
        for (let line = Math.max(first, 1); line <= Math.min(last, doc.lines); line++) {
          places.push(LINE.range(doc.line(line).from));
        }
        now = Decoration.set(places);
      }
    }
    return now;
  },
  provide: field => EditorView.decorations.from(field)
});

/** `onCursor`: the user has put the cursor on other lines; it is told of no other changes. */
export function lineMarks(onCursor: (lines: Lines) => void): Extension {
  const listener = EditorView.updateListener.of(update => {
    if (update.selectionSet && update.view.hasFocus && !update.docChanged) {
      const { doc, selection } = update.state;
      const { from, to } = selection.main;
      onCursor({ first: doc.lineAt(from).number, last: doc.lineAt(to).number });
    }
  });
  return [marked, listener];
}

/** Mark these lines and no others; neither the cursor nor the focus moves. */
export function markLines(view: EditorView, lines: Lines | null): void {
  if (lines !== null || view.state.field(marked, false)?.size) {
    view.dispatch({ effects: setLines.of(lines) });
  }
}

/** Scroll a line into view within whatever scrolls around the editor, where it is not in view. */
export function showLine(view: EditorView, line: number): void {
  const { doc } = view.state;
  const place = doc.line(Math.min(Math.max(line, 1), doc.lines)).from;
  const node = view.domAtPos(place).node;
  const element = node instanceof Element ? node : node.parentElement;
  const { scrollLeft } = view.scrollDOM;
  (element?.closest('.cm-line') ?? view.dom).scrollIntoView({ block: 'nearest' });
  view.scrollDOM.scrollLeft = scrollLeft; // a line that is wider than its cell stays where it is
}
