// Going to a line of a notebook's cell.

import type { Notebook, NotebookPanel } from '@jupyterlab/notebook';
import type { Location } from '../protocol/messages';

export interface CellPlace {
  cellId: string;
  line: number;
  col: number;
}

/** Milliseconds that a notebook has to scroll to a cell. */
const SCROLL = 600;

/** Scroll to a cell. Before JupyterLab 4.4 a scroll that another one interrupts never says that it ended. */
export async function scrolledTo(notebook: Notebook, index: number): Promise<void> {
  const scrolled = notebook.scrollToItem(index, 'smart').catch(() => undefined);
  await Promise.race([scrolled, new Promise(resolve => setTimeout(resolve, SCROLL))]);
}

/** Show the cell, put the cursor on the line (from 1) and character (from 0), and focus it. */
export async function jumpToCell(panel: NotebookPanel, place: CellPlace): Promise<boolean> {
  const notebook = panel.content;
  const index = notebook.widgets.findIndex(widget => widget.model.id === place.cellId);
  if (index < 0) {
    return false;
  }
  notebook.activeCellIndex = index;
  notebook.deselectAll();
  await scrolledTo(notebook, index);
  const cell = notebook.widgets[index];
  if (!cell) {
    return false; // it was deleted while the notebook scrolled
  }
  await cell.ready;
  notebook.mode = 'edit';
  const { editor } = cell;
  if (editor) {
    const line = Math.min(Math.max(place.line - 1, 0), Math.max(editor.lineCount - 1, 0));
    const text = [...(editor.getLine(line) ?? '')];
    const column = text.slice(0, place.col).join('').length;
    editor.setCursorPosition({ line, column });
    editor.revealPosition({ line, column });
    editor.focus();
  }
  return true;
}

/** The id of the cell a location of the kernel names: by id, else by its execution number. */
export function cellIdOf(panel: NotebookPanel, location: Location): string | null {
  const cells = panel.content.widgets.map(widget => widget.model);
  const cell =
    cells.find(model => location.cell_id !== '' && model.id === location.cell_id) ??
    cells.find(
      model =>
        location.cell !== null &&
        (model as Partial<{ executionCount: number | null }>).executionCount === location.cell
    );
  return cell?.id ?? null;
}
