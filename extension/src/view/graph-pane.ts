// The picture of one Block's cached graph: pan, zoom, selectable nodes, and the same as text.

import type { Layout } from '../graphviz/layout';
import { cutToNodes } from '../graphviz/measure';
import type { GraphBox, GraphNode, GraphReply } from '../protocol/messages';
import { button, h, replace } from './dom';
import { safeSvg } from './safe-svg';
import { tensorText } from './words';

export interface GraphPaneEvents {
  onNode(node: GraphNode): void;
  /** A kernel, or what else runs as one. */
  onGroup(group: GraphBox): void;
  /** A nested Block was opened. */
  onBlock(path: string): void;
  /** Another program was chosen. */
  onProgram(id: string): void;
  /** The cleaned picture, for the static fallback. */
  onPicture?(svg: string): void;
}

/** Scales at which the graph's text (11 px at scale 1) is pleasant to read. */
const READABLE = { least: 0.95, most: 1.2 };

/** Border and padding of the pane, in pixels. */
const MARGIN = 8;

export class GraphPane {
  readonly element: HTMLElement;

  constructor(
    private readonly layout: Layout,
    private readonly events: GraphPaneEvents
  ) {
    this.forms = h('div', { class: 'hl-toggle', role: 'group', 'aria-label': 'Program' });
    this.summary = h('span', { class: 'hl-summary' });
    this.canvas = h('div', {
      class: 'hl-canvas',
      onwheel: event => this.onWheel(event as WheelEvent),
      onpointerdown: event => this.onPointerDown(event as PointerEvent),
      onkeydown: event => this.onKey(event as KeyboardEvent)
    });
    this.asText = h('pre', { class: 'hl-graph-text', tabindex: 0, 'aria-label': 'The graph as text' });
    this.asText.hidden = true;
    this.textButton = button('Text', () => this.showText(this.asText.hidden), {
      'aria-pressed': 'false',
      title: 'Show the graph as a program'
    });
    this.zoomBar = h(
      'div',
      { class: 'hl-zoom' },
      this.textButton,
      button('−', () => this.zoom(1 / 1.25), { 'aria-label': 'Zoom out', title: 'Zoom out' }),
      button('+', () => this.zoom(1.25), { 'aria-label': 'Zoom in', title: 'Zoom in (or Ctrl + wheel)' }),
      button('Fit', () => this.fit(), { title: 'Fit the graph into the pane' })
    );
    this.element = h(
      'div',
      { class: 'hl-graph-part' },
      h('div', { class: 'hl-graph-bar' }, this.forms, this.zoomBar, this.summary),
      this.canvas,
      this.asText
    );
    this.message('Select a Block to see its graph.');
  }

  /** Draw a graph; an older drawing that is still being laid out is dropped. */
  async show(graph: GraphReply): Promise<void> {
    const turn = ++this.turn;
    this.showBar(graph);
    this.asText.textContent = graph.text;
    this.textButton.disabled = graph.text === '';
    if (graph.text === '') {
      this.showText(false);
    }
    if (graph.dot === '') {
      this.message(graph.missing || 'This Block has no graph yet. Call it once on data.');
      return;
    }
    const picture = JSON.stringify([graph.dot, graph.nodes]);
    if (this.svg && picture === this.picture) {
      return; // the same again, e.g. after a training step
    }
    const view = `${graph.path}|${graph.program}`;
    if (!this.svg) {
      this.message('Drawing the graph …');
    }
    this.element.setAttribute('aria-busy', 'true');
    try {
      const svg = safeSvg(await this.layout(graph.dot));
      if (turn === this.turn) {
        this.place(svg, view === this.view);
        this.picture = picture;
        this.view = view;
        this.events.onPicture?.(new XMLSerializer().serializeToString(svg));
        this.decorate(svg, graph);
      }
    } catch (error) {
      if (turn === this.turn) {
        this.message(error instanceof Error ? error.message : String(error), true);
        this.showText(graph.text !== '');
      }
    } finally {
      if (turn === this.turn) {
        this.element.removeAttribute('aria-busy');
      }
    }
  }

  /** Show a picture that was drawn earlier (a saved widget without a kernel). */
  showPicture(svgText: string): void {
    this.turn++;
    try {
      this.place(safeSvg(svgText));
    } catch (error) {
      this.message(error instanceof Error ? error.message : String(error), true);
    }
  }

  /** A sentence instead of a picture. */
  message(text: string, isError = false): void {
    this.svg = null;
    this.view = '';
    replace(
      this.canvas,
      h('p', { class: isError ? 'hl-alert' : 'hl-empty', role: isError ? 'alert' : 'status' }, text)
    );
    this.zoomButtons(false);
  }

  select(id: string | null): void {
    this.selectedId = id;
    this.canvas.querySelectorAll('.hl-selected').forEach(element => element.classList.remove('hl-selected'));
    if (id !== null && this.svg) {
      this.elementOf(this.svg, id)?.classList.add('hl-selected');
    }
  }

  private showBar(graph: GraphReply): void {
    replace(
      this.forms,
      ...graph.programs.map(program =>
        button(program.label, () => this.events.onProgram(program.id), {
          'aria-pressed': program.id === graph.program ? 'true' : 'false',
          title: program.reason
        })
      )
    );
    const variants = graph.variants > 1 ? `${graph.variants} variants` : '';
    this.summary.textContent = [graph.summary, variants].filter(text => text).join(', ');
  }

  private showText(shown: boolean): void {
    this.asText.hidden = !shown;
    this.canvas.hidden = shown;
    this.textButton.setAttribute('aria-pressed', shown ? 'true' : 'false');
    this.zoomButtons(!shown && this.svg !== null);
  }

  private zoomButtons(enabled: boolean): void {
    this.zoomBar.querySelectorAll('button').forEach(element => {
      if (element !== this.textButton) {
        element.disabled = !enabled;
      }
    });
  }

  /** `keep`: the Block is the one that was shown, so zoom and position stay. */
  private place(svg: SVGSVGElement, keep = false): void {
    const { scale } = this;
    const { scrollLeft, scrollTop } = this.canvas;
    this.size = {
      width: parseFloat(svg.getAttribute('width') ?? '') || 100,
      height: parseFloat(svg.getAttribute('height') ?? '') || 100
    };
    svg.classList.add('hl-graph');
    svg.setAttribute('role', 'group');
    svg.setAttribute('aria-label', 'Cached graph');
    this.svg = svg;
    replace(this.canvas, svg);
    cutToNodes(svg);
    this.zoomButtons(this.asText.hidden);
    if (keep) {
      this.scaleTo(scale);
      this.canvas.scrollTo?.(scrollLeft, scrollTop);
    } else {
      this.start();
    }
  }

  /** Give the nodes and groups names, focus and clicks. */
  private decorate(svg: SVGSVGElement, graph: GraphReply): void {
    for (const box of graph.boxes) {
      const label = [`${box.kind} ${box.label}`, box.class, box.summary].filter(text => text).join(', ');
      const choose = (): void => this.choose(box.id, () => this.events.onGroup(box));
      const enter = (): boolean => this.selectedId === box.id && this.open(box);
      const element = this.enliven(svg, box.id, label, [label, ...box.notes], choose, enter);
      element?.addEventListener('dblclick', () => this.open(box));
    }
    const boxes = new Map(graph.boxes.map(box => [box.id, box.label]));
    for (const node of graph.nodes) {
      const outputs = node.outputs.map(tensorText).join(', ');
      const label = [node.label || node.op, outputs, node.box && `in ${boxes.get(node.box)}`]
        .filter(t => t)
        .join(' — ');
      const attributes = Object.entries(node.attributes).map(([name, value]) => `${name}=${value}`);
      const choose = (): void => this.choose(node.id, () => this.events.onNode(node));
      const hover = [label, attributes.join(', ')];
      const element = this.enliven(svg, node.id, `${node.kind} ${label}`, hover, choose);
      element?.classList.add(`hl-kind-${node.kind}`);
    }
    svg.querySelectorAll('g.edge > title, g.graph > title').forEach(title => title.remove());
    const drawn = [...graph.nodes, ...graph.boxes];
    this.select(drawn.some(item => item.id === this.selectedId) ? this.selectedId : null);
  }

  /** Make a part of the picture a button. `enter`: what Enter does instead of choosing it, where it returns true. */
  private enliven(
    svg: SVGSVGElement,
    id: string,
    label: string,
    hover: string[],
    choose: () => void,
    enter: () => boolean = () => false
  ): Element | null {
    const element = this.elementOf(svg, id);
    if (!element) {
      return null;
    }
    element.setAttribute('tabindex', '0');
    element.setAttribute('role', 'button');
    element.setAttribute('aria-label', label);
    element.setAttribute('data-key', `node:${id}`);
    const title = element.querySelector('title');
    if (title) {
      title.textContent = hover.filter(line => line).join('\n');
    }
    element.addEventListener('click', choose);
    element.addEventListener('keydown', event => {
      const { key } = event as KeyboardEvent;
      if (key === 'Enter' || key === ' ') {
        event.preventDefault();
        event.stopPropagation();
        if (key !== 'Enter' || !enter()) {
          choose();
        }
      }
    });
    return element;
  }

  private choose(id: string, tell: () => void): void {
    if (!this.dragged) {
      this.select(id);
      tell();
    }
  }

  private open(box: GraphBox): boolean {
    if (box.block === null) {
      return false;
    }
    this.events.onBlock(box.block);
    return true;
  }

  /** Ids are safe by the protocol's rule; two panes on one page may both have `n1`, so search inside this picture. */
  private elementOf(svg: SVGSVGElement, id: string): Element | null {
    return svg.querySelector(`g.node[id="${id}"], g.cluster[id="${id}"]`);
  }

  /** The whole graph, small as it may become. */
  private fit(): void {
    const { clientWidth, clientHeight } = this.canvas;
    const wide = clientWidth > 0 ? (clientWidth - MARGIN) / this.size.width : 1;
    const high = clientHeight > 0 ? (clientHeight - MARGIN) / this.size.height : 1;
    this.scaleTo(Math.min(READABLE.most, wide, high));
  }

  /** As much of the graph as can be read: the pane scrolls where that is not all of it. */
  private start(): void {
    const { canvas } = this;
    const wide = canvas.clientWidth > 0 ? (canvas.clientWidth - MARGIN) / this.size.width : 1;
    this.scaleTo(Math.min(READABLE.most, Math.max(READABLE.least, wide)));
    canvas.scrollLeft = (canvas.scrollWidth - canvas.clientWidth) / 2;
    canvas.scrollTop = 0;
  }

  private zoom(factor: number): void {
    const { canvas } = this;
    const x = (canvas.scrollLeft + canvas.clientWidth / 2) / this.scale;
    const y = (canvas.scrollTop + canvas.clientHeight / 2) / this.scale;
    this.scaleTo(this.scale * factor);
    canvas.scrollLeft = x * this.scale - canvas.clientWidth / 2;
    canvas.scrollTop = y * this.scale - canvas.clientHeight / 2;
  }

  private scaleTo(scale: number): void {
    this.scale = Math.min(8, Math.max(0.1, scale));
    this.svg?.setAttribute('width', `${this.size.width * this.scale}`);
    this.svg?.setAttribute('height', `${this.size.height * this.scale}`);
  }

  private onWheel(event: WheelEvent): void {
    if (this.svg && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15);
    }
  }

  private onKey(event: KeyboardEvent): void {
    if (this.svg && !event.ctrlKey && !event.metaKey && !event.altKey) {
      if (event.key === '+' || event.key === '=') {
        this.zoom(1.25);
        event.preventDefault();
      } else if (event.key === '-') {
        this.zoom(1 / 1.25);
        event.preventDefault();
      }
    }
  }

  /** Drag to pan; a drag is not a click on the node where it ends. */
  private onPointerDown(event: PointerEvent): void {
    if (event.button !== 0 || !this.svg) {
      return;
    }
    const { canvas } = this;
    const start = { x: event.clientX, y: event.clientY, left: canvas.scrollLeft, top: canvas.scrollTop };
    this.dragged = false;
    const move = (moved: PointerEvent): void => {
      const dx = moved.clientX - start.x;
      const dy = moved.clientY - start.y;
      if (Math.abs(dx) + Math.abs(dy) > 4) {
        this.dragged = true;
      }
      if (this.dragged) {
        canvas.scrollLeft = start.left - dx;
        canvas.scrollTop = start.top - dy;
      }
    };
    const stop = (): void => {
      window.removeEventListener('pointermove', move);
      window.removeEventListener('pointerup', stop);
      window.removeEventListener('pointercancel', stop);
      setTimeout(() => (this.dragged = false));
    };
    window.addEventListener('pointermove', move);
    window.addEventListener('pointerup', stop);
    window.addEventListener('pointercancel', stop);
  }

  private readonly forms: HTMLElement;
  private readonly summary: HTMLElement;
  private readonly canvas: HTMLElement;
  private readonly asText: HTMLElement;
  private readonly textButton: HTMLButtonElement;
  private readonly zoomBar: HTMLElement;
  private svg: SVGSVGElement | null = null;
  private size = { width: 100, height: 100 };
  private scale = 1;
  /** What is drawn, to tell whether a new reply is the same, and of which Block and form. */
  private picture = '';
  private view = '';
  private turn = 0;
  private dragged = false;
  private selectedId: string | null = null;
}
