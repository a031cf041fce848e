// The side panel as a JupyterLab widget: follows the notebook in front.

import { PathExt } from '@jupyterlab/coreutils';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import type { Layout } from '../graph/worker';
import type { Location } from '../protocol/messages';
import type { PaneMemory } from '../view/panes';
import { NO_NOTEBOOK, PanelView } from '../view/panel-view';
import { splitPanes } from '../view/split-panes';
import type { CellDiagnosticsService, Cursor } from './cell-diagnostics';
import { labIcon } from './icon';
import { cellIdOf, jumpToCell } from './jump';
import type { KernelLink } from './link';
import type { ViewMemory } from './memory';

export interface HybridPanelOptions {
  tracker: INotebookTracker;
  diagnostics: CellDiagnosticsService;
  linkOf: (panel: NotebookPanel) => KernelLink;
  layout: Layout;
  memory: ViewMemory;
  /** Where the sizes of the panes are remembered. */
  sizes: PaneMemory;
  /** Whether this is the tab of the main area, and not the side panel. */
  isTab: boolean;
  /** Open the tab; absent where there are no tabs, and in the tab. */
  onTab?: () => void;
}

export class HybridPanel extends Widget {
  readonly view: PanelView;

  constructor(private readonly options: HybridPanelOptions) {
    super();
    this.id = options.isTab ? 'hybrid-lab-tab' : 'hybrid-lab-panel';
    this.addClass('hl-panel');
    this.title.icon = labIcon;
    this.title.caption = 'Hybrid Lab';
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'Hybrid Lab');
    this.view = new PanelView({
      layout: options.layout,
      panes: splitPanes,
      sizes: options.sizes,
      isTab: options.isTab,
      onLocation: location => void this.jump(location),
      onCode: location => void this.mark(location),
      onConnect: () => void this.link?.connect(),
      ...(options.onTab && { onTab: options.onTab }),
      memory: {
        read: () => (this.current ? options.memory.read(this.current.context.path) : undefined),
        write: looked => this.current && options.memory.write(this.current.context.path, looked)
      }
    });
    void options.memory.ready.then(() => this.view.recall());
    this.node.append(this.view.element);
    options.tracker.currentChanged.connect(this.follow, this);
    options.diagnostics.changed.connect(this.onFindings, this);
    options.diagnostics.cursorMoved.connect(this.onCursor, this);
    this.follow();
  }

  /** Ask for the models every so many seconds while a cell runs and the panel is visible; 0: only after cells. */
  set refreshSeconds(seconds: number) {
    this.seconds = seconds;
    clearInterval(this.timer);
    if (seconds > 0) {
      this.timer = setInterval(() => {
        if (this.isVisible && this.link?.state.kind === 'busy' && this.link.answersNow) {
          void this.link.refresh();
        }
      }, seconds * 1000);
    }
  }

  get refreshSeconds(): number {
    return this.seconds;
  }

  /** Resolves when the kernel has told what it did not tell while nobody saw the panel. */
  get upToDate(): Promise<void> {
    return this.looking;
  }

  /** The notebook the panel shows. */
  get notebook(): NotebookPanel | null {
    return this.current;
  }

  override dispose(): void {
    if (this.isDisposed) {
      return;
    }
    clearInterval(this.timer);
    this.link?.changed.disconnect(this.onLink, this);
    void this.link?.setVisible(this, false);
    this.options.tracker.currentChanged.disconnect(this.follow, this);
    this.options.diagnostics.changed.disconnect(this.onFindings, this);
    this.options.diagnostics.cursorMoved.disconnect(this.onCursor, this);
    super.dispose();
  }

  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this.node.querySelector<HTMLElement>('.hl-row[tabindex="0"], button:not(:disabled)')?.focus();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.look();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this.look();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.look();
  }

  /** Tell the connection whether somebody sees this panel. */
  private look(): void {
    this.looking = this.link?.setVisible(this, this.isVisible) ?? Promise.resolve();
  }

  private follow(): void {
    const current = this.options.tracker.currentWidget;
    if (current === this.current) {
      return;
    }
    this.link?.changed.disconnect(this.onLink, this);
    void this.link?.setVisible(this, false);
    this.current = current;
    this.link = current ? this.options.linkOf(current) : null;
    this.link?.changed.connect(this.onLink, this);
    this.look();
    if (!current) {
      this.view.setCellFindings([]);
    }
    this.onLink();
  }

  private onLink(): void {
    const notebook = this.current ? PathExt.basename(this.current.context.path) : '';
    this.view.update({ ...(this.link?.state ?? NO_NOTEBOOK), notebook });
    if (this.current) {
      // A cell that ran has a new number, under which its findings are listed.
      this.view.setCellFindings(this.options.diagnostics.findings(this.current));
    }
  }

  private onFindings(_: unknown, panel: NotebookPanel): void {
    if (panel === this.current) {
      this.view.setCellFindings(this.options.diagnostics.findings(panel));
    }
  }

  /** Mark the line of what is selected in the graph, without going there. */
  private async mark(location: Location | null): Promise<void> {
    const panel = this.current;
    const cellId = panel && location && cellIdOf(panel, location);
    if (panel) {
      const { diagnostics } = this.options;
      const isThere = cellId !== null && location !== null;
      await diagnostics.mark(
        panel,
        isThere ? { cellId, first: location.line, last: location.end_line } : null
      );
    }
  }

  private onCursor(_: unknown, { panel, cellId, cell, first, last }: Cursor): void {
    if (panel === this.current && this.isVisible) {
      this.view.markCode(
        location =>
          (location.cell_id === ''
            ? location.cell !== null && location.cell === cell
            : location.cell_id === cellId) &&
          location.line <= last &&
          location.end_line >= first
      );
    }
  }

  private async jump(location: Location): Promise<void> {
    const panel = this.current;
    const cellId = panel && cellIdOf(panel, location);
    if (panel && cellId !== null) {
      await jumpToCell(panel, { cellId, line: location.line, col: location.col });
    }
  }

  private seconds = 0;
  private current: NotebookPanel | null = null;
  private link: KernelLink | null = null;
  private looking: Promise<void> = Promise.resolve();
  private timer: ReturnType<typeof setInterval> | undefined;
}
