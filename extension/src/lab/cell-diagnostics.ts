// Checks the code cells of Python notebooks while they are typed, and marks the findings in their editors.

import type { ICellModel } from '@jupyterlab/cells';
import type { CodeEditor } from '@jupyterlab/codeeditor';
import type { IEditorExtensionRegistry } from '@jupyterlab/codemirror';
import { EditorExtensionRegistry } from '@jupyterlab/codemirror';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Extension } from '@codemirror/state';
import { Text } from '@codemirror/state';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';
import type { CellDiagnostics, LintSources, LintTarget } from '../lint/lint-client';
import { LintClient } from '../lint/lint-client';
import { changesOf } from '../lint/positions';
import type { Diagnostic, Fix } from '../protocol/messages';
import type { ListedFinding, ListedFix, ListedPlace } from '../view/findings-list';
import { fixTitle } from '../view/findings-list';
import type { MarkedEditor } from './editor-marks';
import { callMarks, marksExtension } from './editor-marks';
import type { Lines } from './line-marks';
import { lineMarks, markLines, showLine } from './line-marks';
import { mentionsHybridLab } from './link';
import { jumpToCell, scrolledTo } from './jump';
import { __ } from '../text';

export interface CellDiagnosticsSettings {
  enabled: boolean;
  /** Milliseconds after the last key before a notebook is checked. */
  delay: number;
  /** `mxnet`: also what MXNet itself cannot do. */
  target: LintTarget;
}

/** Lines of a cell, from 1, both included. */
export interface CellLines extends Lines {
  cellId: string;
}

/** Where the user has put the cursor. */
export interface Cursor extends CellLines {
  panel: NotebookPanel;
  /** The execution number of the cell. */
  cell: number | null;
}

/** Milliseconds that the cursor must rest before it is told of. */
const CURSOR_REST = 150;

interface NotebookState {
  client: LintClient;
  cells: CellDiagnostics;
  /** The text of each cell when it was checked. */
  sources: Record<string, string>;
}

export class CellDiagnosticsService {
  constructor(
    private readonly tracker: INotebookTracker,
    private readonly sources: (panel: NotebookPanel) => LintSources
  ) {}

  /** Emitted with a notebook whose findings changed. */
  get changed(): ISignal<this, NotebookPanel> {
    return this._changed;
  }

  /** Emitted when the user has put the cursor on other lines of a cell. */
  get cursorMoved(): ISignal<this, Cursor> {
    return this._cursorMoved;
  }

  /** Mark lines of one cell softly, and no others, and scroll to them; neither cursor nor focus moves. */
  async mark(panel: NotebookPanel, lines: CellLines | null): Promise<void> {
    this.marked = lines && { panel, lines };
    const index = panel.content.widgets.findIndex(widget => widget.model.id === lines?.cellId);
    const cell = panel.content.widgets[index];
    this.showMarked();
    if (lines === null || !cell) {
      return;
    }
    if (!cell.editor || !cell.inViewport) {
      await scrolledTo(panel.content, index);
      await cell.ready;
      this.showMarked();
    }
    const editor = [...this.editors].find(([, model]) => model === cell.model)?.[0];
    if (editor && this.marked?.lines === lines) {
      showLine(editor.view, lines.first);
    }
  }

  private showMarked(): void {
    for (const [editor, model] of this.editors) {
      const isThere = this.marked !== null && (model as Partial<ICellModel>).id === this.marked.lines.cellId;
      markLines(editor.view, isThere && this.marked ? this.marked.lines : null);
    }
  }

  private moved(model: CodeEditor.IModel, lines: Lines): void {
    clearTimeout(this.cursorTimer);
    this.cursorTimer = setTimeout(() => {
      const panel = this.tracker.currentWidget;
      const cell = [...(panel?.content.model?.cells ?? [])].find(each => each === model);
      if (panel && cell) {
        this._cursorMoved.emit({ panel, cellId: cell.id, cell: executionCount(cell), ...lines });
      }
    }, CURSOR_REST);
  }

  configure(settings: CellDiagnosticsSettings): void {
    const { enabled, target } = this.settings;
    this.settings = settings;
    if (settings.enabled !== enabled || settings.target !== target) {
      this.tracker.forEach(panel => {
        if (settings.enabled) {
          void this.check(panel);
        } else {
          this.publish(panel, {});
        }
      });
    }
  }

  /** Make every code cell's editor known to this service. */
  register(registry: IEditorExtensionRegistry): void {
    registry.addExtension({
      name: 'hybrid-lab:diagnostics',
      factory: ({ model }) =>
        // What language the notebook has is not known yet here; that is asked when it is checked.
        (model as Partial<ICellModel>).type === 'code'
          ? EditorExtensionRegistry.createImmutableExtension(this.extension(model))
          : null
    });
  }

  /** Check a notebook now; resolves with the number of findings, or null where nobody could check it. */
  async check(panel: NotebookPanel): Promise<number | null> {
    const { isDisposed } = panel; // asked again after the answer
    if (isDisposed || !panel.content.model || !this.settings.enabled || !this.applies(panel)) {
      return isDisposed || !this.settings.enabled ? null : 0;
    }
    const cells = [...panel.content.model.cells]
      .filter(cell => cell.type === 'code')
      .map(cell => ({ id: cell.id, source: cell.sharedModel.getSource() }));
    const found = await this.stateOf(panel).client.lint(cells, this.settings.target);
    if (!found || panel.isDisposed) {
      return null;
    }
    const known = new Set(cells.map(cell => cell.id));
    const kept = Object.fromEntries(Object.entries(found).filter(([id]) => known.has(id)));
    this.stateOf(panel).sources = Object.fromEntries(cells.map(({ id, source }) => [id, source]));
    this.publish(panel, kept);
    return Object.values(kept).reduce((total, diagnostics) => total + diagnostics.length, 0);
  }

  /** Check again, with answers forgotten: another kernel, or rules that may have changed. */
  recheck(panel: NotebookPanel): void {
    this.states.get(panel)?.client.forget();
    void this.check(panel);
  }

  /** The findings of a notebook as the panel lists them, in the order of the cells. */
  findings(panel: NotebookPanel): ListedFinding[] {
    const { cells, sources } = this.stateOf(panel);
    const placeOf = placesIn(panel);
    return [...(panel.content.model?.cells ?? [])].flatMap((cell, index) =>
      (cells[cell.id] ?? []).map(diagnostic => ({
        diagnostic: { ...diagnostic, location: placeIn(cell, index, diagnostic) },
        ...placeOf(cell.id, diagnostic),
        calls: diagnostic.calls.map(({ location }) => placeOf(location.cell_id, location)),
        fix: diagnostic.fix && fixOf(panel, cell, diagnostic, diagnostic.fix, sources[cell.id] ?? '')
      }))
    );
  }

  /** Go to the mark after the cursor, or to the first one; false where there are none. */
  next(panel: NotebookPanel): boolean {
    const notebook = panel.content;
    const { activeCellIndex, activeCell } = notebook;
    const cursor = activeCell?.editor?.getCursorPosition() ?? { line: 0, column: -1 };
    const { cells } = this.stateOf(panel);
    const calls = callMarks(cells, placesIn(panel));
    const places = [...(notebook.model?.cells ?? [])].flatMap(({ id }, index) =>
      [...(cells[id] ?? []), ...(calls[id] ?? []).map(({ diagnostic }) => diagnostic)]
        .sort((a, b) => a.line - b.line || a.col - b.col)
        .map(({ line, col }) => ({ index, cellId: id, line, col }))
    );
    const isAfter = ({ index, line, col }: (typeof places)[number]): boolean =>
      (index - activeCellIndex || line - 1 - cursor.line || col - cursor.column) > 0;
    const target = places.find(isAfter) ?? places[0];
    if (target) {
      void jumpToCell(panel, target);
    }
    return target !== undefined;
  }

  private extension(model: CodeEditor.IModel): Extension {
    const marks = marksExtension(
      editor => {
        this.editors.set(editor, model);
        this.touch(model);
      },
      editor => this.editors.delete(editor),
      () => this.touch(model)
    );
    return [marks, lineMarks(lines => this.moved(model, lines))];
  }

  /** Note that a cell is new or edited; its notebook is checked when the typing rests. */
  private touch(model: CodeEditor.IModel): void {
    this.touched.add(model);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const models = this.touched;
      this.touched = new Set();
      this.tracker.forEach(panel => {
        const cells: Iterable<CodeEditor.IModel> = panel.content.model?.cells ?? [];
        if ([...cells].some(cell => models.has(cell))) {
          // A cell that came into view has its findings already; one that was edited needs new ones.
          this.show(panel, this.stateOf(panel).cells);
          void this.check(panel);
        }
      });
    }, this.settings.delay);
  }

  /** Only Python notebooks that have to do with hybrid_lab (or with MXNet, whose code runs here) are checked. */
  private applies(panel: NotebookPanel): boolean {
    return (
      panel.content.codeMimetype.includes('python') &&
      [...(panel.content.model?.cells ?? [])].some(
        cell => cell.type === 'code' && mentionsHybridLab(cell.sharedModel.getSource())
      )
    );
  }

  private publish(panel: NotebookPanel, cells: CellDiagnostics): void {
    this.stateOf(panel).cells = cells;
    this.show(panel, cells);
    this._changed.emit(panel);
  }

  /** Put diagnostics into all editors of a notebook, in other cells than the edited one, too. */
  private show(panel: NotebookPanel, cells: CellDiagnostics): void {
    const ids = new Map<CodeEditor.IModel, string>();
    for (const cell of panel.content.model?.cells ?? []) {
      ids.set(cell, cell.id);
    }
    const checked = this.settings.enabled && this.applies(panel);
    const calls = callMarks(cells, placesIn(panel));
    for (const [editor, model] of this.editors) {
      const id = ids.get(model);
      if (id !== undefined) {
        const findings = (cells[id] ?? []).map(diagnostic => ({ diagnostic }));
        editor.show([...findings, ...(calls[id] ?? [])], checked, this.stateOf(panel).sources[id] ?? '');
      }
    }
  }

  private stateOf(panel: NotebookPanel): NotebookState {
    let state = this.states.get(panel);
    if (!state) {
      state = { client: new LintClient(() => this.sources(panel)), cells: {}, sources: {} };
      this.states.set(panel, state);
    }
    return state;
  }

  private settings: CellDiagnosticsSettings = { enabled: true, delay: 400, target: '' };
  private readonly editors = new Map<MarkedEditor, CodeEditor.IModel>();
  private readonly states = new WeakMap<NotebookPanel, NotebookState>();
  private touched = new Set<CodeEditor.IModel>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly _changed = new Signal<this, NotebookPanel>(this);
  private readonly _cursorMoved = new Signal<this, Cursor>(this);
  private marked: { panel: NotebookPanel; lines: CellLines } | null = null;
  private cursorTimer: ReturnType<typeof setTimeout> | undefined;
}

/** Gives places in the cells of a notebook, as the list shows them. */
function placesIn(panel: NotebookPanel): (cellId: string, at: { line: number; col: number }) => ListedPlace {
  const cells = [...(panel.content.model?.cells ?? [])];
  const names = new Map(cells.map((cell, index) => [cell.id, cellName(cell, index)]));
  return (cellId, { line, col }) => ({
    place: __('%1, line %2', names.get(cellId) ?? __('a cell'), line),
    jump: () => void jumpToCell(panel, { cellId, line, col })
  });
}

/** The fix of a finding, for the list: it changes the cell's text, whether its editor is on the page or not. */
function fixOf(
  panel: NotebookPanel,
  cell: ICellModel,
  diagnostic: Diagnostic,
  fix: Fix,
  source: string
): ListedFix {
  const checked = Text.of(source.split('\n'));
  return {
    title: fixTitle(fix),
    safe: fix.safe,
    apply: focus => {
      const now = Text.of(cell.sharedModel.getSource().split('\n'));
      const changes = changesOf(checked, now, fix.edits) ?? [];
      cell.sharedModel.transact(() => {
        // From the end, so that no change moves the place of another.
        [...changes]
          .sort((a, b) => b.from - a.from)
          .forEach(({ from, to, insert }) => cell.sharedModel.updateSource(from, to, insert));
      });
      if (focus) {
        void jumpToCell(panel, { cellId: cell.id, ...diagnostic });
      }
    }
  };
}

function executionCount(cell: ICellModel): number | null {
  const count = (cell as Partial<{ executionCount: number | null }>).executionCount;
  return count ?? null;
}

/** `cell 3` by its execution number; a cell that did not run yet goes by its position. */
function cellName(cell: ICellModel, index: number): string {
  const count = executionCount(cell);
  return count === null ? __('cell at position %1', index + 1) : __('cell %1', count);
}

function placeIn(cell: ICellModel, index: number, diagnostic: Diagnostic): Diagnostic['location'] {
  const { line, col, end_line, end_col } = diagnostic;
  const label = __('%1, line %2', cellName(cell, index), line);
  return { file: '', label, cell: executionCount(cell), cell_id: cell.id, line, col, end_line, end_col };
}
