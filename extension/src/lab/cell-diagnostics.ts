// Squiggles, gutter marks and hover texts in the code cells of Python notebooks, while typing.

import type { ICellModel } from '@jupyterlab/cells';
import type { CodeEditor } from '@jupyterlab/codeeditor';
import type { IEditorExtensionRegistry } from '@jupyterlab/codemirror';
import { EditorExtensionRegistry } from '@jupyterlab/codemirror';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Action, Diagnostic as EditorDiagnostic, lintGutter, linter, setDiagnostics } from '@codemirror/lint';
import { Compartment, Extension } from '@codemirror/state';
import { EditorView, ViewPlugin, ViewUpdate } from '@codemirror/view';
import { ISignal, Signal } from '@lumino/signaling';
import { CellDiagnostics, LintClient, LintSources } from '../lint/lint-client';
import { rangeOf } from '../lint/positions';
import type { Diagnostic, Fix } from '../protocol/messages';
import { h } from '../view/dom';
import type { ListedFinding } from '../view/findings-list';
import { inline, renderMarkdown } from '../view/markdown';
import { mentionsHybridLab } from './link';
import { jumpToCell } from './jump';

export interface CellDiagnosticsSettings {
  enabled: boolean;
  /** Milliseconds after the last key before a notebook is checked. */
  delay: number;
}

interface Editor {
  view: EditorView;
  model: CodeEditor.IModel;
}

interface NotebookState {
  client: LintClient;
  cells: CellDiagnostics;
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

  configure(settings: CellDiagnosticsSettings): void {
    const wasEnabled = this.settings.enabled;
    this.settings = settings;
    if (settings.enabled !== wasEnabled) {
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
    if (panel.isDisposed || !panel.content.model || !this.settings.enabled || !this.applies(panel)) {
      return panel.isDisposed || !this.settings.enabled ? null : 0;
    }
    const cells = [...panel.content.model.cells]
      .filter(cell => cell.type === 'code')
      .map(cell => ({ id: cell.id, source: cell.sharedModel.getSource() }));
    const found = await this.stateOf(panel).client.lint(cells);
    if (!found || panel.isDisposed) {
      return null;
    }
    const known = new Set(cells.map(cell => cell.id));
    const kept = Object.fromEntries(Object.entries(found).filter(([id]) => known.has(id)));
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
    const { cells } = this.stateOf(panel);
    return [...(panel.content.model?.cells ?? [])].flatMap((cell, index) =>
      (cells[cell.id] ?? []).map(diagnostic => ({
        diagnostic: { ...diagnostic, location: placeIn(cell, index, diagnostic) },
        place: `${cellName(cell, index)}, line ${diagnostic.line}`,
        jump: () => void jumpToCell(panel, { cellId: cell.id, ...diagnostic })
      }))
    );
  }

  private extension(model: CodeEditor.IModel): Extension {
    const gutter = new Compartment();
    const attach = (view: EditorView): Editor => this.attach(view, model, gutter);
    const detach = (editor: Editor): void => void this.editors.delete(editor);
    const edited = (): void => this.touch(model);
    const plugin = ViewPlugin.fromClass(
      class {
        readonly editor: Editor;
        constructor(view: EditorView) {
          this.editor = attach(view);
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
    return [plugin, gutter.of(NO_GUTTER), linter(null)];
  }

  private attach(view: EditorView, model: CodeEditor.IModel, gutter: Compartment): Editor {
    const editor = { view, model };
    this.editors.add(editor);
    this.gutters.set(view, gutter);
    this.touch(model);
    return editor;
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
    for (const { view, model } of this.editors) {
      const id = ids.get(model);
      if (id === undefined) {
        continue;
      }
      const gutter = this.gutters.get(view);
      if (gutter) {
        const wanted = checked ? GUTTER : NO_GUTTER;
        if (gutter.get(view.state) !== wanted) {
          view.dispatch({ effects: gutter.reconfigure(wanted) });
        }
      }
      const diagnostics = (cells[id] ?? []).map(diagnostic => forEditor(view, diagnostic));
      view.dispatch(setDiagnostics(view.state, diagnostics));
    }
  }

  private stateOf(panel: NotebookPanel): NotebookState {
    let state = this.states.get(panel);
    if (!state) {
      state = { client: new LintClient(() => this.sources(panel)), cells: {} };
      this.states.set(panel, state);
    }
    return state;
  }

  private settings: CellDiagnosticsSettings = { enabled: true, delay: 400 };
  private readonly editors = new Set<Editor>();
  private readonly gutters = new WeakMap<EditorView, Compartment>();
  private readonly states = new WeakMap<NotebookPanel, NotebookState>();
  private touched = new Set<CodeEditor.IModel>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly _changed = new Signal<this, NotebookPanel>(this);
}

const GUTTER = lintGutter();
const NO_GUTTER: Extension = [];

const SEVERITY = { error: 'error', warning: 'warning', note: 'info' } as const;

/** CodeMirror's form of a diagnostic. */
function forEditor(view: EditorView, diagnostic: Diagnostic): EditorDiagnostic {
  const { fix } = diagnostic;
  return {
    ...rangeOf(view.state.doc, diagnostic),
    severity: SEVERITY[diagnostic.severity],
    source: `hybrid_lab ${diagnostic.code}`,
    message: diagnostic.message,
    markClass: `hl-lint hl-lint-${diagnostic.severity}`,
    renderMessage: () => hoverText(diagnostic),
    actions: fix ? [fixAction(fix)] : []
  };
}

/** The rule's text, as shown on hover. */
function hoverText(diagnostic: Diagnostic): HTMLElement {
  return h(
    'div',
    { class: 'hl-hover' },
    h('p', {}, h('strong', {}, `${diagnostic.code} `), ...inline(diagnostic.message)),
    diagnostic.rewrite !== '' && h('p', {}, 'Instead: ', h('code', {}, diagnostic.rewrite)),
    diagnostic.help !== '' && renderMarkdown(diagnostic.help)
  );
}

function fixAction(fix: Fix): Action {
  return {
    name: fix.safe ? fix.title : `${fix.title} (check the result)`,
    apply: view => {
      const changes = fix.edits.map(edit => ({ ...rangeOfEdit(view, edit), insert: edit.text }));
      view.dispatch({ changes, userEvent: 'input.fix' });
    }
  };
}

function rangeOfEdit(view: EditorView, edit: Fix['edits'][number]): { from: number; to: number } {
  const isInsertion = edit.line === edit.end_line && edit.col === edit.end_col;
  const { from, to } = rangeOf(view.state.doc, edit);
  return isInsertion ? { from, to: from } : { from, to };
}

function executionCount(cell: ICellModel): number | null {
  const count = (cell as Partial<{ executionCount: number | null }>).executionCount;
  return count ?? null;
}

/** `cell 3` by its execution number; a cell that did not run yet goes by its position. */
function cellName(cell: ICellModel, index: number): string {
  const count = executionCount(cell);
  return count === null ? `cell at position ${index + 1}` : `cell ${count}`;
}

function placeIn(cell: ICellModel, index: number, diagnostic: Diagnostic): Diagnostic['location'] {
  const { line, col, end_line, end_col } = diagnostic;
  const label = `${cellName(cell, index)}, line ${line}`;
  return { file: '', label, cell: executionCount(cell), cell_id: cell.id, line, col, end_line, end_col };
}
