// What stands below the short traceback of an error of hybrid_lab: links to its Block and its lines, and the whole, folded.

import type { NotebookPanel } from '@jupyterlab/notebook';
import { Widget } from '@lumino/widgets';
import type { CellError, Location } from '../protocol/messages';
import { cellError } from '../protocol/messages';
import type { Child } from '../view/dom';
import { button, h, replace } from '../view/dom';
import { __ } from '../text';

/** The type of the output, see hybrid_lab/lab/messages/errors.py; and of the HTML beside it. */
const ERROR = 'application/vnd.hybrid-lab.error+json';
const HTML = 'text/html';

type RenderMime = NotebookPanel['content']['rendermime'];
type Renderer = ReturnType<RenderMime['createRenderer']>;
type MimeModel = Parameters<Renderer['renderModel']>[0];

export interface ErrorOutputOptions {
  rendermime: RenderMime;
  /** Show a Block of a model: its id, path, and name with that of the model. */
  onBlock: (model: string, path: string, name: string) => void;
  onLocation: (location: Location) => void;
}

/** Show the errors in the outputs of this notebook. */
export function registerErrorOutput(options: ErrorOutputOptions): void {
  options.rendermime.addFactory(
    { safe: true, mimeTypes: [ERROR], createRenderer: () => new ErrorOutput(options) },
    -20 // before the HTML alone
  );
}

export class ErrorOutput extends Widget {
  constructor(private readonly options: ErrorOutputOptions) {
    super();
    this.addClass('hl-error-output');
    this.links = h('div', { class: 'hl-root hl-error-links' });
    this.whole = h('div', { class: 'hl-error-whole' });
    this.node.append(this.links, this.whole);
  }

  async renderModel(model: MimeModel): Promise<void> {
    try {
      replace(this.links, ...this.linksOf(cellError(model.data[ERROR], 'error')));
    } catch {
      replace(this.links); // written by another version: the whole traceback is there all the same
    }
    this.renderer?.dispose();
    const renderer = this.options.rendermime.createRenderer(HTML);
    this.renderer = renderer;
    await renderer.renderModel(model);
    this.whole.replaceChildren(renderer.node);
  }

  override dispose(): void {
    this.renderer?.dispose();
    super.dispose();
  }

  private linksOf({ model, block, name, places }: CellError): Child[] {
    const items: Child[] = places
      .filter(place => place.cell_id !== '' || place.cell !== null)
      .map(place =>
        button(place.label, () => this.options.onLocation(place), {
          class: 'hl-link',
          title: __('Go to this line')
        })
      );
    if (block !== null) {
      const title = __('Show the Block in the Hybrid Lab panel');
      items.unshift(
        h(
          'span',
          {},
          __('Block '),
          button(name, () => this.options.onBlock(model, block, name), { class: 'hl-link', title })
        )
      );
    }
    return items.flatMap((item, index) => (index > 0 ? [' · ', item] : [item]));
  }

  private readonly links: HTMLElement;
  private readonly whole: HTMLElement;
  private renderer: Renderer | null = null;
}
