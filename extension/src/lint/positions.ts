// Places in a cell: Python's lines and characters against the editor's UTF-16 offsets. Everything is clamped.

import type { Diagnostic, Edit } from '../protocol/messages';

/** The part of CodeMirror's Text that is needed here. */
export interface Lines {
  readonly lines: number;
  readonly length: number;
  line: (n: number) => { from: number; to: number; text: string };
}

/** Offset of a place: `line` counts from 1, `col` counts Unicode characters from 0. */
export function offsetAt(doc: Lines, line: number, col: number): number {
  if (line < 1) {
    return 0;
  }
  if (line > doc.lines) {
    return doc.length;
  }
  const { from, text } = doc.line(line);
  let units = 0;
  let left = col;
  for (const character of text) {
    if (left-- <= 0) {
      break;
    }
    units += character.length;
  }
  return from + units;
}

/** Where a diagnostic stands; never empty where its line has text, so that there is something to underline. */
export function rangeOf(
  doc: Lines,
  place: Pick<Diagnostic, 'line' | 'col' | 'end_line' | 'end_col'>
): { from: number; to: number } {
  let from = offsetAt(doc, place.line, place.col);
  let to = offsetAt(doc, place.end_line, place.end_col);
  if (to <= from) {
    const { from: start, to: end } = doc.line(Math.min(Math.max(place.line, 1), doc.lines));
    from = Math.min(Math.max(from, start), end);
    to = end;
    if (to <= from) {
      from = start;
    }
  }
  return { from, to };
}

/** A fix's edits as changes of a text; an insertion stays empty. Null where the text is not the one that was checked. */
export function changesOf(
  checked: Lines,
  now: Lines,
  edits: readonly Edit[]
): { from: number; to: number; insert: string }[] | null {
  const changes: { from: number; to: number; insert: string }[] = [];
  for (const edit of edits) {
    for (let line = edit.line; line <= edit.end_line; line++) {
      if (line > now.lines || line > checked.lines || now.line(line).text !== checked.line(line).text) {
        return null;
      }
    }
    const from = offsetAt(now, edit.line, edit.col);
    changes.push({ from, to: Math.max(from, offsetAt(now, edit.end_line, edit.end_col)), insert: edit.text });
  }
  return changes;
}
