// One model: its tree, the graph and details of the selected Block, findings, and the report. Panel and widget share it.

import { GraphPane } from '../graph/graph-pane';
import type { Layout } from '../graph/worker';
import { Requester, RequestError, asRequestError } from '../protocol/channel';
import type { BlockNode, GraphBox, GraphReply, Location, Parameter, TreeReply } from '../protocol/messages';
import { first } from './block-index';
import { BlockTree } from './block-tree';
import { Details } from './details';
import { GraphMark, markedNodes } from './diff-view';
import { h, replace } from './dom';
import { FindingsList, ListedFinding } from './findings-list';
import { numbersOf } from './numbers';
import { Overlays } from './overlays';
import { Tabs } from './tabs';
import { parametersText, plural } from './words';

export interface ModelViewOptions {
  layout: Layout;
  /** The model is in a file, where nothing runs and nothing can be measured. */
  isFile?: boolean;
  /** Go to a place in a cell. */
  onLocation?(location: Location): void;
  /** The Block the user selected. */
  onSelect?(path: string): void;
  /** A picture was drawn: cleaned SVG, for the static fallback. */
  onPicture?(svg: string, path: string): void;
}

/** What the user looks at: names of model, Block and opened boxes, the program, and the scale of the picture. */
export interface Looked {
  model: string;
  block: string;
  program: string;
  open: string[];
  scale: number;
}

/** Names of opened boxes that are remembered. */
const OPEN = 100;

/** Milliseconds the selection must rest before its graph is asked for (arrow keys run through the tree). */
const REST = 120;

export class ModelView {
  readonly element: HTMLElement;
  /** Whether the user has picked this model among others. */
  isPicked = false;
  /** The contents of the tab of findings. */
  readonly findingsPart = h('div', {});

  constructor(private readonly options: ModelViewOptions) {
    this.tree = new BlockTree({
      onSelect: node => this.onSelect(node),
      onOpen: () => this.tabs.show(0)
    });
    this.graph = new GraphPane(options.layout, {
      onNode: node => {
        this.showsNode = true;
        this.details.showNode(node, this.framesOf(node.box), this.name);
        this.details.add('Measured', this.overlays.textOf(node.id));
      },
      onBox: box => {
        this.showsNode = true;
        this.details.showBox(box, this.framesOf(box.parent), this.operatorsIn(box), this.name);
        this.details.add('Measured', this.overlays.textOf(box.id));
      },
      onNothing: () => {
        this.showsNode = false;
        const selected = this.selectedNode();
        if (selected) {
          this.details.showBlock(selected, this.name);
        }
      },
      onProgram: program => {
        this.isChosen = true;
        this.program = program;
        this.drawnKey = '';
        void this.draw();
      },
      onLocation: options.onLocation,
      ...(options.onPicture && {
        onPicture: (svg: string) => options.onPicture?.(svg, this.tree.selected ?? '')
      })
    });
    this.details = new Details({
      onLocation: options.onLocation,
      onBlock: path => this.select(path),
      onBox: id => void this.graph.select(id),
      ...(!options.isFile && {
        onNumbers: (path: string, parameter: Parameter) => void this.showNumbers(path, parameter)
      })
    });
    this.overlays = new Overlays(this.graph, blocks => this.tree.measure(blocks));
    this.findings = new FindingsList();
    this.others = new FindingsList();
    this.othersSection = h(
      'section',
      { class: 'hl-others' },
      h('p', { class: 'hl-title' }, 'Also in the cells of this notebook'),
      this.others.element
    );
    this.findingsPart.append(this.findings.element, this.othersSection);
    this.report = h('pre', { class: 'hl-report', tabindex: 0, 'aria-label': 'Report' });
    this.tabs = new Tabs(
      'About the model',
      [
        {
          name: 'Graph',
          content: h(
            'div',
            { class: 'hl-tab-graph' },
            this.overlays.element,
            this.graph.element,
            this.details.element
          )
        },
        { name: 'Findings', content: this.findingsPart },
        { name: 'Report', content: h('div', {}, this.report) }
      ],
      index => this.onTab(index)
    );
    this.headline = h('div', { class: 'hl-headline' });
    this.element = h(
      'div',
      { class: 'hl-model' },
      this.headline,
      h('div', { class: 'hl-model-parts' }, this.tree.element, this.tabs.element)
    );
    this.findings.show([], 'No findings.');
    this.othersSection.hidden = true;
  }

  connect(requester: Requester | null): void {
    if (requester !== this.requester) {
      this.graph.warm();
      this.requester = requester;
      this.overlays.connect(this.options.isFile ? null : requester);
      this.drawnKey = '';
      void this.draw();
      this.onTab(this.tabs.current);
    }
  }

  /** What the user looks at; null while nothing was chosen. */
  get looked(): Looked | null {
    const { open, scale } = this.graph.looked;
    const block = this.tree.selected;
    return (this.isChosen || this.isPicked) && block !== null
      ? { model: this.name, block, program: this.program, open: open.slice(0, OPEN), scale }
      : null;
  }

  /** Go back to what was looked at earlier, when a model of that name is shown anew. */
  recall(looked: Looked): void {
    this.recalled = looked;
  }

  /** Show a model's tree; `graph` saves the first request where it is already at hand. */
  showTree(reply: TreeReply, graph: GraphReply | null = null): void {
    const { model, root } = reply;
    const isNew = model.id !== this.current?.model.id;
    this.current = reply;
    replace(
      this.headline,
      h('strong', {}, model.name),
      h('span', { class: 'hl-row-class' }, model.class),
      h(
        'span',
        { class: 'hl-summary' },
        [plural(model.blocks, 'Block'), parametersText(model.parameters)].join(', ')
      ),
      h('div', { class: 'hl-summary' }, model.summary || model.engine)
    );
    this.tree.show(root, model.id);
    if (isNew) {
      this.isChosen = false;
      this.program = '';
      this.drawnKey = '';
      this.graph.deselect();
    }
    const { recalled } = this;
    if (isNew && recalled?.model === model.name && this.tree.select(recalled.block)) {
      this.recalled = null;
      this.isChosen = true;
      this.program = recalled.program;
      this.graph.recall(recalled);
    }
    let moved = isNew;
    if (!this.isChosen) {
      // A plain Block on top has no graph: start where there is something to see, and go where a graph appears.
      const start =
        (graph && this.tree.node(graph.path)) ??
        first(root, node => node.graphs > 0) ??
        first(root, node => node.hybrid) ??
        root;
      if (isNew || start.path !== this.tree.selected) {
        moved = true;
        this.tree.select(start.path);
      }
    }
    const selected = this.selectedNode();
    if (selected && (moved || !this.showsNode)) {
      this.showsNode = false;
      this.details.showBlock(selected, model.name);
    }
    if (graph && graph.path === selected?.path) {
      this.present(graph);
    } else {
      void this.draw();
    }
    this.onTab(this.tabs.current);
  }

  /** The tab counts the model's own `findings`, as the tree does; `others` are listed below them. */
  showFindings(findings: readonly ListedFinding[], others: readonly ListedFinding[] = []): void {
    this.findings.show(findings, 'No findings: all of this code can become part of a graph.');
    this.others.show(others, 'None.');
    this.othersSection.hidden = others.length === 0;
    this.tabs.rename(1, findings.length > 0 ? `Findings (${findings.length})` : 'Findings');
  }

  /** Show a picture drawn earlier, where there is no kernel to ask. */
  showPicture(svg: string): void {
    this.graph.showPicture(svg);
  }

  select(path: string, focus = false): void {
    if (path !== this.tree.selected && this.tree.select(path, focus)) {
      const node = this.selectedNode();
      if (node) {
        this.onSelect(node);
      }
    }
  }

  /** Show the traced graph of a Block, with the operators marked that differ from another graph. */
  showDifference(block: string, marks: readonly GraphMark[]): void {
    this.marked = { block, marks };
    this.program = 'traced';
    this.tabs.show(0);
    if (block === this.tree.selected) {
      this.drawnKey = '';
      void this.draw();
    } else {
      this.select(block);
    }
  }

  private onSelect(node: BlockNode): void {
    this.isChosen = true;
    this.showsNode = false;
    if (this.program !== 'traced') {
      this.program = ''; // another Block has other programs
    }
    this.details.showBlock(node, this.name);
    this.options.onSelect?.(node.path);
    clearTimeout(this.resting);
    this.resting = setTimeout(() => void this.draw(), REST);
  }

  private async draw(): Promise<void> {
    const { requester, current } = this;
    const node = this.selectedNode();
    if (!requester || !current || !node) {
      return;
    }
    const key = `${current.model.id}|${current.model.revision}|${node.path}|${this.program}`;
    if (key === this.drawnKey) {
      return;
    }
    this.drawnKey = key;
    try {
      const graph = await requester.request('graph', {
        model: current.model.id,
        path: node.path,
        program: this.program
      });
      if (key === this.drawnKey) {
        this.present(graph);
      }
    } catch (error) {
      if (key === this.drawnKey) {
        this.drawnKey = '';
        this.graph.message(sentence(asRequestError(error)), true);
      }
    }
  }

  /** The kernels, sessions and other frames around what lies in a box, innermost first. */
  private framesOf(box: string): GraphBox[] {
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
  private operatorsIn(box: GraphBox): string[] {
    const inside = new Set([box.id]);
    this.shown?.boxes.forEach(item => inside.has(item.parent) && inside.add(item.id)); // parents come first
    return (
      this.shown?.nodes.filter(node => node.op !== '' && inside.has(node.box)).map(node => node.op) ?? []
    );
  }

  private present(graph: GraphReply): void {
    const { current } = this;
    this.shown = graph;
    this.details.locations = graph.locations;
    if (current) {
      this.drawnKey = `${current.model.id}|${current.model.revision}|${graph.path}|${this.program}`;
    }
    const drawn = this.graph.show(graph);
    this.overlays.show(current?.model.id ?? '', graph);
    const { marked } = this;
    if (marked && graph.path === marked.block && graph.program.startsWith('traced')) {
      this.marked = null;
      void drawn.then(() => this.overlays.mark(markedNodes(graph, marked.marks)));
    }
  }

  /** The numbers of a parameter, and of its gradient. */
  private async showNumbers(path: string, parameter: Parameter): Promise<void> {
    const { requester, current } = this;
    if (!requester || !current) {
      return;
    }
    const kinds = parameter.grad_req === 'null' ? (['data'] as const) : (['data', 'grad'] as const);
    try {
      const replies = await Promise.all(
        kinds.map(what =>
          requester.request('values', { model: current.model.id, path, name: parameter.name, what })
        )
      );
      if (path === this.tree.selected && !this.showsNode) {
        this.details.showNumbers(...replies.map(numbersOf));
      }
    } catch (error) {
      this.details.showNumbers(h('p', { class: 'hl-alert' }, sentence(asRequestError(error))));
    }
  }

  private onTab(index: number): void {
    if (index === 2) {
      void this.loadReport();
    }
  }

  private async loadReport(): Promise<void> {
    const { requester, current } = this;
    if (!requester || !current) {
      this.report.textContent = 'The report needs a running kernel.';
      return;
    }
    try {
      this.report.textContent = (await requester.request('explain', { model: current.model.id })).text;
    } catch (error) {
      this.report.textContent = sentence(asRequestError(error));
    }
  }

  private selectedNode(): BlockNode | null {
    return this.tree.selected === null ? null : this.tree.node(this.tree.selected);
  }

  private get name(): string {
    return this.current?.model.name ?? '';
  }

  private readonly tree: BlockTree;
  private readonly graph: GraphPane;
  private readonly details: Details;
  private readonly overlays: Overlays;
  /** What is to be marked as soon as the graph of this Block is shown. */
  private marked: { block: string; marks: readonly GraphMark[] } | null = null;
  private readonly findings: FindingsList;
  private readonly others: FindingsList;
  private readonly othersSection: HTMLElement;
  private readonly report: HTMLElement;
  private readonly tabs: Tabs;
  private readonly headline: HTMLElement;
  private requester: Requester | null = null;
  private current: TreeReply | null = null;
  private shown: GraphReply | null = null;
  /** Id of the chosen program; "" is the best one. */
  private program = '';
  /** Whether the user has selected a Block of this model. */
  private isChosen = false;
  private recalled: Looked | null = null;
  private drawnKey = '';
  private showsNode = false;
  private resting: ReturnType<typeof setTimeout> | undefined;
}

/** An error in one line. */
function sentence(error: RequestError): string {
  return [error.message, error.next].filter(text => text !== '').join(' ');
}
