// The output of mx.view(net) in a notebook: the live widget while its kernel has it, else the static HTML beside it,
// which is kept up to date for whoever opens the notebook later.

import type { NotebookPanel } from '@jupyterlab/notebook';
import { Widget } from '@lumino/widgets';
import { h } from '../view/dom';
import { __ } from '../text';

/** The type of the view's output, see hybrid_lab/lab/views/widget.py; and the widget's and the HTML's beside it. */
export const OUTPUT = 'application/vnd.hybrid-lab.view+json';
const WIDGET = 'application/vnd.jupyter.widget-view+json';
const HTML = 'text/html';

/** The event that the widget sends when its picture changed. */
export const PICTURE = 'hybrid-lab-picture';

/** Milliseconds that a widget may take to appear before the static HTML is shown in its place. */
const PATIENCE = 2500;

/** Milliseconds of rest before the static HTML is asked for again. */
const REST = 1000;

type RenderMime = NotebookPanel['content']['rendermime'];
type Renderer = ReturnType<RenderMime['createRenderer']>;
type MimeModel = Parameters<Renderer['renderModel']>[0];

export interface ViewOutputOptions {
  rendermime: RenderMime;
  /** The static HTML of a living view, null while nobody can tell. */
  ask: (view: string) => Promise<string | null>;
  /** Call the listener when a model of the kernel may have changed; returns what ends that. */
  onChange: (listener: () => void) => () => void;
  /** The revision of a model of the kernel, if it is known. */
  revision: (model: string) => number | undefined;
}

/** Show the outputs of views in this notebook. */
export function registerViewOutput(options: ViewOutputOptions): void {
  options.rendermime.addFactory(
    { safe: true, mimeTypes: [OUTPUT], createRenderer: () => new ViewOutput(options) },
    -20 // before the widget alone
  );
}

export class ViewOutput extends Widget {
  constructor(private readonly options: ViewOutputOptions) {
    super();
    this.addClass('hl-view-output');
    this.note = h(
      'div',
      { class: 'hl-view-note', role: 'status' },
      __('Shown as it was when the notebook was saved. Run the cell again to open it.')
    );
    this.saved = h('div', { class: 'hl-view-saved' });
    this.live = h('div', { class: 'hl-view-live' });
    this.node.append(this.note, this.saved, this.live);
    this.showSaved(false);
    this.node.addEventListener(PICTURE, () => this.refreshSoon());
    this.endListening = options.onChange(() => {
      const revision = options.revision(this.modelId);
      if (revision !== undefined && revision !== this.revision) {
        this.revision = revision;
        this.refreshSoon();
      }
    });
  }

  async renderModel(model: MimeModel): Promise<void> {
    this.model = model;
    const { view, model: id } = (model.data[OUTPUT] ?? {}) as { view?: string; model?: string };
    this.modelId = id ?? '';
    const html = model.data[HTML];
    if (html !== this.html) {
      this.html = html;
      await this.renderSaved(model);
    }
    if (view !== undefined && view !== this.view) {
      this.view = view;
      this.renderLive(model);
    }
  }

  override dispose(): void {
    this.endListening();
    clearTimeout(this.patience);
    clearTimeout(this.resting);
    this.observer?.disconnect();
    this.parts.forEach(part => part.dispose());
    super.dispose();
  }

  private async renderSaved(model: MimeModel): Promise<void> {
    const renderer = this.options.rendermime.createRenderer(HTML);
    await renderer.renderModel(model);
    this.saved.replaceChildren(renderer.node);
    this.parts.push(renderer);
  }

  /** The widget, where it may run scripts and its manager knows it. */
  private renderLive(model: MimeModel): void {
    const { rendermime } = this.options;
    this.live.replaceChildren();
    clearTimeout(this.patience);
    this.observer?.disconnect();
    if (!model.trusted || !model.data[WIDGET] || !rendermime.getFactory(WIDGET)) {
      this.showSaved(true);
      return;
    }
    const renderer = rendermime.createRenderer(WIDGET);
    this.parts.push(renderer);
    this.live.append(renderer.node);
    const check = (): void => {
      // The manager writes a text while it looks for the widget, and when there is none.
      const isThere = renderer.node.childElementCount > 0;
      const isMissing = renderer.node.textContent?.startsWith('Error') === true;
      if (isThere) {
        clearTimeout(this.patience);
        this.showSaved(false);
        this.isLive = true;
      } else if (isMissing || this.isLive) {
        this.isLive = false;
        this.showSaved(true);
      }
    };
    this.observer = new MutationObserver(check);
    this.observer.observe(renderer.node, { childList: true, characterData: true, subtree: false });
    this.patience = setTimeout(() => !this.isLive && this.showSaved(true), PATIENCE);
    // A copy: the manager empties the id when the widget is closed.
    const data = { [WIDGET]: { ...(model.data[WIDGET] as object) } } as MimeModel['data'];
    void renderer.renderModel({ trusted: true, data, metadata: {}, setData: () => undefined });
    check();
  }

  private showSaved(saved: boolean): void {
    this.note.hidden = !saved;
    this.saved.hidden = !saved;
    this.live.hidden = saved;
  }

  private refreshSoon(): void {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => void this.refresh(), REST);
  }

  /** Put the view's present static HTML into the notebook. */
  private async refresh(): Promise<void> {
    const { model, view, isDisposed } = this;
    if (!this.isLive || !model || view === undefined || isDisposed) {
      return;
    }
    const html = await this.options.ask(view).catch(() => null);
    if (html !== null && html !== model.data[HTML] && !this.isDisposed && view === this.view) {
      model.setData({ data: { ...model.data, [HTML]: html } });
    }
  }

  private readonly note: HTMLElement;
  private readonly saved: HTMLElement;
  private readonly live: HTMLElement;
  private readonly endListening: () => void;
  private readonly parts: Renderer[] = [];
  private observer: MutationObserver | undefined;
  private model: MimeModel | null = null;
  private view: string | undefined;
  private modelId = '';
  private revision: number | undefined;
  private html: unknown;
  private isLive = false;
  private patience: ReturnType<typeof setTimeout> | undefined;
  private resting: ReturnType<typeof setTimeout> | undefined;
}
