// Which graph of a model is drawn: of which Block, of which program, and the request for it.

import type { GraphPane } from '../graph/graph-pane';
import type { Requester } from '../protocol/channel';
import { errorText } from '../protocol/channel';
import type { GraphBox, GraphReply, Location, TreeReply } from '../protocol/messages';
import type { GraphMark } from './diff-view';
import { markedNodes } from './diff-view';
import type { Overlays } from './overlays';

export class DrawnGraph {
  /** The Block whose graph is wanted. */
  path = '';
  /** Id of the wanted program; "" is the best one. */
  program = '';
  /** What is drawn. */
  shown: GraphReply | null = null;
  /** Resolves when the wanted graph is drawn. */
  drawing: Promise<void> = Promise.resolve();

  /** `hasBlock`: whether the model has a Block of a path; `onShow`: called before a graph is drawn. */
  constructor(
    private readonly pane: GraphPane,
    private readonly overlays: Overlays,
    private readonly hasBlock: (path: string) => boolean,
    private readonly onShow: (graph: GraphReply) => void
  ) {}

  connect(requester: Requester | null): void {
    this.requester = requester;
    this.drawnKey = '';
    void this.draw();
  }

  /** The graphs of this model are drawn from now on. */
  setModel(model: TreeReply['model']): void {
    this.model = model;
  }

  /** Want a graph of another Block or program: what was drawn is drawn again, even if it is the same. */
  want(path: string, program: string): void {
    this.path = path;
    this.program = program;
    this.drawnKey = '';
  }

  /** Draw the graph of a Block by itself. */
  drawBlock(path: string): void {
    this.path = path;
    this.drawing = this.draw();
  }

  /** Mark operators that differ from another graph, as soon as the traced graph of this Block is shown. */
  mark(block: string, marks: readonly GraphMark[]): void {
    this.marked = { block, marks };
  }

  /** Ask for the wanted graph and draw it, unless it is drawn already. */
  async draw(): Promise<void> {
    const { requester, model, path, program } = this;
    if (!requester || !model || !this.hasBlock(path)) {
      return;
    }
    const key = this.keyOf(path);
    if (key === this.drawnKey) {
      return;
    }
    this.drawnKey = key;
    try {
      const graph = await requester.request('graph', { model: model.id, path, program });
      if (key === this.drawnKey) {
        await this.present(graph);
      }
    } catch (error) {
      if (key === this.drawnKey) {
        this.drawnKey = '';
        this.pane.message(errorText(error), true);
      }
    }
  }

  /** Draw a graph that is at hand. */
  async present(graph: GraphReply): Promise<void> {
    this.shown = graph;
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
        this.path = marked.block; // it was not called, so that the whole does not show it
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

  private requester: Requester | null = null;
  private model: TreeReply['model'] | null = null;
  /** Model, revision, Block and program of the graph that is drawn or asked for; "" if it is to be drawn again. */
  private drawnKey = '';
  private marked: { block: string; marks: readonly GraphMark[] } | null = null;
}
