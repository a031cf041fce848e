// Which graph of a model is drawn: of which Block, of which program, and the request for it.

import type { GraphPane } from '../graph/graph-pane';
import type { Requester } from '../protocol/channel';
import { errorText } from '../protocol/channel';
import type { GraphBox, GraphReply, Location, TreeReply } from '../protocol/messages';
import type { GraphMark } from './diff-view';
import { markedNodes } from './diff-view';
import type { Overlays } from './overlays';

/** Milliseconds the selection must rest before its graph is asked for (arrow keys run through the tree). */
const REST = 120;

export class DrawnGraph {
  /** `hasBlock`: whether the model has a Block of a path; `onShow`: called before a graph is drawn. */
  constructor(
    private readonly pane: GraphPane,
    private readonly overlays: Overlays,
    private readonly hasBlock: (path: string) => boolean,
    private readonly onShow: (graph: GraphReply) => void
  ) {}

  /** Path of the Block whose graph is wanted. */
  get path(): string {
    return this.wantedPath;
  }

  /** Id of the wanted program; "" is the best one. */
  get program(): string {
    return this.wantedProgram;
  }

  /** The graph that was drawn last. */
  get shown(): GraphReply | null {
    return this.drawnGraph;
  }

  /** Resolves when the last `drawBlock`, `redraw` or `drawAtRest` is done, or a newer `drawAtRest` replaces it. */
  get drawing(): Promise<void> {
    return this.pending;
  }

  /** Resolves when no graph is asked for or laid out: `shown` and the pane have the same graph then. */
  async settled(): Promise<void> {
    let last: Promise<void> | null = null;
    while (last !== this.latest) {
      last = this.latest;
      await last.catch(() => undefined);
    }
  }

  connect(requester: Requester | null): void {
    this.requester = requester;
    this.drawnKey = '';
    void this.draw();
  }

  /** Draw the graphs of this model from now on; of another model than before, the best program. */
  setModel(model: TreeReply['model']): void {
    if (model.id !== this.model?.id) {
      this.wantedProgram = '';
      this.drawnKey = '';
    }
    this.model = model;
  }

  /** Choose the Block, and the program, of the next graph. Nothing is drawn before `draw` or `present`. */
  want(path: string, program = this.program): void {
    this.wantedPath = path;
    this.wantedProgram = program;
  }

  /** Choose the graph of a Block, and draw it unless it is drawn already. */
  drawBlock(path: string, program = this.program): Promise<void> {
    this.want(path, program);
    this.pending = this.draw();
    return this.pending;
  }

  /** Choose the graph of a Block, and draw it even if it is drawn already. */
  redraw(path: string, program: string): Promise<void> {
    this.drawnKey = '';
    return this.drawBlock(path, program);
  }

  /** Call `show`, which draws a graph, as soon as no other call has come for a moment. */
  drawAtRest(show: () => Promise<void>): void {
    clearTimeout(this.resting);
    this.endRest();
    this.pending = new Promise(resolve => {
      this.endRest = resolve;
      this.resting = setTimeout(() => void show().finally(resolve), REST);
    });
  }

  /** Mark operators that differ from another graph, as soon as the traced graph of this Block is shown. */
  mark(block: string, marks: readonly GraphMark[]): void {
    this.marked = { block, marks };
  }

  /** Ask for the wanted graph and draw it, unless it is drawn already or asked for. */
  draw(): Promise<void> {
    return this.keyOf(this.path) === this.drawnKey ? Promise.resolve() : (this.latest = this.ask());
  }

  private async ask(): Promise<void> {
    const { requester, model, path, program } = this;
    if (!requester || !model || !this.hasBlock(path)) {
      return;
    }
    const key = this.keyOf(path);
    this.drawnKey = key;
    try {
      const graph = await requester.request('graph', { model: model.id, path, program });
      if (key === this.drawnKey) {
        await this.lay(graph);
      }
    } catch (error) {
      if (key === this.drawnKey) {
        this.drawnKey = '';
        this.pane.message(errorText(error), true);
      }
    }
  }

  /** Draw a graph that is at hand. */
  present(graph: GraphReply): Promise<void> {
    return (this.latest = this.lay(graph));
  }

  private async lay(graph: GraphReply): Promise<void> {
    this.drawnGraph = graph;
    this.onShow(graph);
    if (this.model) {
      this.drawnKey = this.keyOf(graph.path);
    }
    const drawn = this.pane.show(graph);
    this.overlays.show(this.model?.id ?? '', graph);
    const { marked } = this;
    if (marked && graph.path === this.path && graph.program.startsWith('traced')) {
      const nodes = markedNodes(graph, marked.marks);
      if (nodes.length === 0 && graph.path !== marked.block) {
        this.wantedPath = marked.block; // it was not called, so that the whole does not show it
        void drawn.then(() => this.draw());
      } else {
        this.marked = null;
        void drawn.then(() => this.overlays.mark(nodes));
      }
    }
    await drawn;
  }

  /** The place of code with this number in the drawn graph. */
  location(number: number | null): Location | null {
    return number === null ? null : (this.shown?.locations[number] ?? null);
  }

  /** The kernels, sessions and other frames around what lies in a box, innermost first. */
  framesOf(box: string): GraphBox[] {
    const boxes = new Map(this.shown?.boxes.map(item => [item.id, item]));
    const frames: GraphBox[] = [];
    for (let item = boxes.get(box); item; item = boxes.get(item.parent)) {
      if (item.kind === 'kernel' || item.kind === 'session' || item.kind === 'prologue') {
        frames.push(item);
      }
    }
    return frames;
  }

  /** The operators in a kernel or session, in order. */
  operatorsIn(box: GraphBox): string[] {
    const inside = new Set([box.id]);
    this.shown?.boxes.forEach(item => inside.has(item.parent) && inside.add(item.id)); // parents come first
    return (
      this.shown?.nodes.filter(node => node.op !== '' && inside.has(node.box)).map(node => node.op) ?? []
    );
  }

  private keyOf(path: string): string {
    return `${this.model?.id}|${this.model?.revision}|${path}|${this.program}`;
  }

  private wantedPath = '';
  private wantedProgram = '';
  private drawnGraph: GraphReply | null = null;
  private pending: Promise<void> = Promise.resolve();
  /** The last request for a graph with its layout, or the last layout of a graph that was at hand. */
  private latest: Promise<void> = Promise.resolve();
  private resting: ReturnType<typeof setTimeout> | undefined;
  /** Resolves the promise of the last `drawAtRest`. */
  private endRest: () => void = () => undefined;
  private requester: Requester | null = null;
  private model: TreeReply['model'] | null = null;
  /** Model, revision, Block and program of the graph that is drawn or asked for; "" if it is to be drawn again. */
  private drawnKey = '';
  private marked: { block: string; marks: readonly GraphMark[] } | null = null;
}
