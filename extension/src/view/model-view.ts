// One model: its tree and the graph of the selected Block in two panes, and over the graph a drawer with details, findings
// and what else its host adds. Panel, tab, widget and model files share it. What comes and goes lies over the panes.

import { GraphPane } from '../graph/graph-pane';
import type { Requester } from '../protocol/channel';
import { errorText } from '../protocol/channel';
import { STATES } from '../protocol/messages';
import type { BlockNode, GraphReply, Location, NanAnswer, Parameter, TreeReply } from '../protocol/messages';
import type { Slowest } from './banner';
import { Banner } from './banner';
import { first } from './block-index';
import { BlockTree } from './block-tree';
import { Details } from './details';
import type { SideBySide } from './compare-view';
import { CompareView } from './compare-view';
import type { GraphMark } from './diff-view';
import type { Child } from './dom';
import { button, h, replace, tellWhatIsCut } from './dom';
import { DrawnGraph } from './drawn-graph';
import { Drawer } from './drawer';
import type { ListedBlock, ListedFinding } from './findings-list';
import { FindingsPart } from './findings-part';
import type { ModelViewOptions } from './model-options';
import type { Notices } from './notices';
import { numbersOf } from './numbers';
import { Overlays } from './overlays';
import type { Panes } from './panes';
import { fleetingMemory } from './panes';
import { SavedValuesPart } from './saved-values';
import { Stage } from './stage';
import { TreeColumns } from './tree-columns';
import type { WorkRows } from './work-rows';
import { parametersText, tensorText } from './words';
import { __, _n } from '../text';

/** What the user looks at: names of model, Block and opened boxes, the program, and the scale of the picture. */
export interface Looked {
  model: string;
  block: string;
  /** The Block whose graph is drawn, where that is another one. */
  graph?: string;
  program: string;
  open: string[];
  scale: number;
}

/** Names of opened boxes that are remembered. */
const OPEN = 100;

export class ModelView {
  /** The panes with the drawer over them, and below them its line of tabs. */
  readonly element: HTMLElement;
  /** The model in one line. */
  readonly headline: HTMLElement;
  /** Details, findings, the host's tabs and the report. */
  readonly drawer: Drawer;
  /** Sentences that come and go. */
  readonly notices: Notices;
  /** Work of the running cell that takes long. */
  readonly works: WorkRows;
  /** The four questions, answered in one line. */
  readonly banner: Banner;
  /** Whether the user has picked this model among others. */
  isPicked = false;

  constructor(private readonly options: ModelViewOptions) {
    const sizes = options.sizes ?? fleetingMemory();
    this.columns = options.isFile
      ? null
      : new TreeColumns(sizes, () => this.tree.showColumns(), options.isTab ?? false);
    this.tree = new BlockTree(
      {
        onSelect: node => this.onSelect(node),
        onOpen: node => {
          void this.drawn.drawBlock(node.path);
          this.drawer.open('details');
        }
      },
      this.columns
    );
    this.banner = new Banner(
      {
        onBlock: path => this.reveal(path),
        onNan: nan => void this.showNan(nan),
        onSlowest: slowest => void this.showSlowest(slowest),
        onCompare: file => options.onCompare?.(file),
        onModel: (model, path) => options.onModel?.(model, path),
        onFailed: path => this.showFailed(path)
      },
      () => this.element.getClientRects().length > 0
    );
    this.graph = new GraphPane(options.layout, {
      onNode: node => {
        this.showsNode = true;
        this.peekAt([node.label || node.op, ...node.outputs.map(tensorText)].join(' '));
        this.details.showNode(node, this.drawn.framesOf(node.box));
        this.detailed = node.id;
        this.showMeasured();
        this.follow(node.block, node.location);
      },
      onBox: box => {
        this.showsNode = true;
        this.peekAt([box.label, ...box.outputs.map(tensorText)].join(' '));
        this.details.showBox(box, this.drawn.framesOf(box.parent), this.drawn.operatorsIn(box));
        this.detailed = box.id;
        this.showMeasured();
        this.follow(box.block, box.location);
      },
      onNothing: () => {
        options.onCode?.(null);
        this.showsNode = false;
        this.peekAt('');
        const selected = this.selectedNode();
        if (selected) {
          this.details.showBlock(selected);
        }
      },
      onProgram: program => {
        this.isChosen = true;
        void this.drawn.redraw(this.drawn.path, program);
      },
      onLocation: options.onLocation,
      ...(!options.isFile && {
        onParameter: ({ path }) => void this.showParameter(path)
      }),
      ...(options.onPicture && {
        onPicture: (svg: string) => options.onPicture?.(svg, this.drawn.shown?.path ?? '')
      })
    });
    this.details = new Details(
      {
        onLocation: options.onLocation,
        onBlock: path => this.select(path),
        onBox: id => void this.graph.select(id),
        ...(!options.isFile && {
          onNumbers: (path: string, parameter: Parameter) => void this.showNumbers(path, parameter)
        })
      },
      path => this.nameOf(path)
    );
    if (this.columns) {
      const { columns } = this;
      this.details.workOf = path => columns.facts(path);
      columns.onWork = () => this.details.showWork();
    }
    this.overlays = new Overlays(this.graph, blocks => {
      this.tree.measure(blocks);
      this.showMeasured();
    });
    this.drawn = new DrawnGraph(
      this.graph,
      this.overlays,
      path => this.tree.node(path) !== null,
      graph => (this.details.locations = graph.locations)
    );
    this.overlays.onMeasured = reply => {
      if (this.drawn.shown && this.current) {
        this.banner.measured(this.current.model.id, reply, this.drawn.shown);
      }
    };
    this.graph.stateOf = path => {
      const node = this.tree.node(path);
      return node ? __(STATES[node.state].word) : '';
    };
    this.findings = new FindingsPart(name => this.blockOfFinding(name));
    this.report = h('pre', { class: 'hl-report', tabindex: 0, 'aria-label': __('Report') });
    this.drawer = new Drawer(__('About the model'), sizes, {
      onShow: id => {
        this.onTab(id);
        this.showPeek();
      },
      onCover: covered => {
        this.stage.placeOver(covered);
        this.graph.canvas.cover(covered);
      }
    });
    this.saved = options.saves ? new SavedValuesPart(options.saves) : null;
    this.drawer.add('details', __('Details'), h('div', {}, this.details.element, this.saved?.element));
    this.drawer.add('findings', __('Findings'), this.findings.element);
    options.tabs?.forEach(tab => this.drawer.add(tab.id, tab.name, tab.content));
    this.drawer.add('report', __('Report'), this.report);
    this.headline = h('div', { class: 'hl-headline' });
    this.peek = button('', () => this.drawer.open('details'), {
      class: 'hl-peek',
      title: __('Show its details')
    });
    this.peek.hidden = true;
    this.graph.area.append(this.overlays.element, this.peek);
    const graphPane = h('div', { class: 'hl-graph-pane' }, this.graph.element);
    const treePane = h('div', { class: 'hl-tree-pane' }, this.tree.element);
    tellWhatIsCut(treePane);
    this.panes = options.panes(treePane, graphPane, sizes, options.isTab ?? false);
    this.treeButton = button(__('Tree'), () => (this.panes.isTreeShown = !this.panes.isTreeShown), {
      class: 'hl-button hl-icon hl-icon-tree',
      title: __('Show or hide the tree of Blocks'),
      'aria-pressed': String(this.panes.isTreeShown)
    });
    this.panes.onTreeShown = () =>
      this.treeButton.setAttribute('aria-pressed', String(this.panes.isTreeShown));
    this.graph.addTools(this.treeButton, this.overlays.choice, this.overlays.watchSwitch);
    this.stage = new Stage(
      { panes: this.panes, graphPane, graph: this.graph, drawer: this.drawer, card: this.overlays.element },
      isSmall => (this.overlays.isSmall = isSmall),
      this.columns?.panel
    );
    this.element = this.stage.element;
    this.notices = this.stage.notices;
    this.works = this.stage.works;
    this.graph.canvas.over.push(this.peek, this.works.element);
  }

  /** Show two graphs side by side, over tree and graph, until they are closed or another model is shown. */
  async showSideBySide(shown: SideBySide): Promise<void> {
    this.drawer.close();
    if (!this.comparison) {
      const comparison = new CompareView({
        layout: this.options.layout,
        onClose: () => {
          comparison.element.remove();
          this.comparison = null;
          this.panes.element.toggleAttribute('inert', false);
        },
        ...(this.options.tabs?.some(tab => tab.id === 'results') && {
          onList: () => this.drawer.open('results')
        })
      });
      this.comparison = comparison;
      this.panes.element.after(comparison.element);
      this.panes.element.toggleAttribute('inert', true);
    }
    await this.comparison.show(shown);
  }

  /** Show this in place of tree and graph, while there is no model. */
  showNothing(...children: Child[]): void {
    if (children.length > 0) {
      this.comparison?.close();
    }
    this.stage.showNothing(...children);
  }

  /** Show a sentence about a fault until `complain('')` removes it. */
  complain(text: string): void {
    this.stage.complain(text);
  }

  /** What is selected in the graph, in one line at its edge; the drawer opens where it covers little of the graph. */
  private peekAt(text: string): void {
    this.peek.textContent = text;
    if (text !== '' && this.drawer.isAtRight && !this.drawer.isDismissed && this.drawer.current === null) {
      this.drawer.open('details');
    }
    this.showPeek();
  }

  /** What the overlay says of the node or box whose details are shown. */
  private showMeasured(): void {
    if (this.showsNode) {
      this.details.setMeasured(this.overlays.textOf(this.detailed));
    }
  }

  private showPeek(): void {
    this.peek.hidden = this.peek.textContent === '' || this.drawer.current === 'details';
  }

  /** The code that gives the Block at a path of the model in the notebook. */
  nameOf(path: string): string {
    return this.tree.code(path);
  }

  /** Ask what the values were in the saves: there may be another one, or the values have changed. */
  refreshSaved(): void {
    if (this.saved && this.drawer.current === 'details') {
      this.saved.show(this.requester, this.current?.model ?? null, this.tree.selected ?? '');
    }
  }

  connect(requester: Requester | null): void {
    if (requester !== this.requester) {
      this.comparison?.close();
      this.graph.warm();
      this.requester = requester;
      this.overlays.connect(this.options.isFile ? null : requester);
      this.banner.connect(this.options.isFile ? null : requester);
      this.columns?.connect(requester);
      this.drawn.connect(requester);
      this.onTab(this.drawer.current);
    }
  }

  /** What the user looks at; null while nothing was chosen. */
  get looked(): Looked | null {
    const { open, scale } = this.graph.looked;
    const block = this.tree.selected;
    return (this.isChosen || this.isPicked) && block !== null
      ? {
          ...{ model: this.name, block, program: this.drawn.program, open: open.slice(0, OPEN), scale },
          ...(this.drawn.path !== block && { graph: this.drawn.path })
        }
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
    this.drawn.setModel(model);
    replace(
      this.headline,
      h('strong', {}, model.name),
      h('span', { class: 'hl-row-class' }, model.class),
      h(
        'span',
        { class: 'hl-summary' },
        [
          model.summary || model.engine,
          _n('%1 Block', '%1 Blocks', model.blocks),
          parametersText(model.parameters)
        ]
          .filter(text => text !== '')
          .join(' · ')
      )
    );
    this.headline.title = this.headline.textContent ?? '';
    this.tree.show(root, model.id);
    this.columns?.show(model, root.parameter_count);
    if (isNew) {
      this.comparison?.close();
      this.isChosen = false;
      this.graph.deselect();
    }
    const { recalled } = this;
    if (isNew && recalled?.model === model.name && this.tree.select(recalled.block)) {
      this.recalled = null;
      this.isChosen = true;
      const { block, graph: drawnPath = block, program } = recalled;
      this.drawn.want(this.tree.node(drawnPath) ? drawnPath : block, program);
      this.graph.recall(recalled);
    }
    let moved = isNew;
    if (!this.isChosen) {
      // The picture of a plain Block on top shows all calls; of a HybridBlock without a graph go where one appears.
      const start =
        (graph && this.tree.node(graph.path)) ??
        (root.hybrid ? first(root, node => node.graphs > 0) : null) ??
        root;
      if (isNew || start.path !== this.tree.selected) {
        moved = true;
        this.tree.select(start.path);
      }
      this.drawn.want(start.path);
    }
    const selected = this.selectedNode();
    if (selected && (moved || !this.showsNode)) {
      this.showsNode = false;
      this.peekAt('');
      this.details.showBlock(selected);
    }
    if (!this.tree.node(this.drawn.path)) {
      this.drawn.want(selected?.path ?? '');
    }
    if (graph?.path === this.drawn.path) {
      void this.drawn.present(graph);
    } else {
      void this.drawn.draw();
    }
    this.onTab(this.drawer.current);
    if (!this.options.isFile) {
      this.banner.showTree(model.id, root, model.summary);
      void this.banner.refresh();
    }
  }

  /** The tab counts the model's own `findings`, as the tree does; `others` are listed below them. */
  showFindings(findings: readonly ListedFinding[], others: readonly ListedFinding[] = []): void {
    this.findings.show(findings, others);
    this.drawer.rename(
      'findings',
      findings.length > 0 ? __('Findings (%1)', findings.length) : __('Findings')
    );
  }

  /** The Block that a finding names: `net.stages.0` in the model `net`. */
  private blockOfFinding(name: string): ListedBlock | null {
    const model = this.name;
    const path = name === model ? '' : name.startsWith(`${model}.`) ? name.slice(model.length + 1) : null;
    const node = path === null ? null : this.tree.node(path);
    return node && { name: `${this.nameOf(node.path)}: ${node.class}`, show: () => this.reveal(node.path) };
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
    this.comparison?.close();
    this.drawn.mark(block, marks);
    this.isChosen = true;
    if (this.tree.select(block)) {
      const node = this.selectedNode();
      if (node) {
        this.showsNode = false;
        this.details.showBlock(node);
      }
    }
    // A plain Block on top has a picture of all graphs, which is where a difference of one of them is seen best.
    void this.drawn.redraw(this.current && !this.current.root.hybrid ? '' : block, 'traced');
  }

  /** Mark what a piece of code computes in the graph; returns how many operators that are. */
  markCode(isThere: (location: Location) => boolean): number {
    return this.graph.markCode(isThere);
  }

  /** Show a Block: its row, its box in the graph, and why it is in its state. */
  reveal(path: string): void {
    if (this.tree.select(path)) {
      const node = this.selectedNode();
      if (node) {
        this.onSelect(node);
      }
      this.drawer.open('details');
    }
  }

  /** A Block failed just now: show its row, unless the user is at work here. */
  private showFailed(path: string): void {
    const isInUse = this.element.matches(':hover') || this.element.contains(document.activeElement);
    if (!isInUse && this.tree.select(path)) {
      const node = this.selectedNode();
      if (node) {
        this.onSelect(node);
      }
    }
  }

  /** Show the Block and the operator where NaN came first, and its line. */
  private async showNan(nan: NanAnswer): Promise<void> {
    if (nan.source === 'logged') {
      this.drawer.open('training');
      return;
    }
    if (nan.path !== null) {
      this.reveal(nan.path);
      await this.drawn.drawing;
      const node =
        nan.operator === ''
          ? null
          : this.drawn.shown?.nodes.find(({ block, op }) => block === nan.path && op === nan.operator);
      if (node) {
        await this.graph.select(node.id);
      }
    }
    if (nan.source === 'parameters') {
      await this.showParameter(nan.name);
    }
    if (nan.location) {
      this.options.onCode?.(nan.location);
    }
  }

  /** Show the times of operators, measured now where they are not yet, and the slowest of them. */
  private async showSlowest(slowest: Slowest | null): Promise<void> {
    if (
      slowest &&
      (this.drawn.shown?.path !== slowest.path || this.drawn.shown.program !== slowest.program)
    ) {
      this.isChosen = true;
      await this.drawn.drawBlock(slowest.path, slowest.program);
    }
    const reply = await this.overlays.choose('time');
    const id = slowest?.node ?? reply?.marked[0];
    if (id !== undefined) {
      await this.graph.select(id);
    }
  }

  /** What is selected in the graph has its row in the tree, and its line of code marked. */
  private follow(block: string | null, location: number | null): void {
    if (block !== null && this.tree.node(block) && block !== this.tree.selected) {
      this.isChosen = true;
      this.tree.select(block);
      this.refreshSaved();
      this.options.onSelect?.(block);
    }
    this.options.onCode?.(this.drawn.location(location));
  }

  private onSelect(node: BlockNode): void {
    this.isChosen = true;
    this.showsNode = false;
    this.peekAt('');
    this.details.showBlock(node);
    this.refreshSaved();
    this.options.onSelect?.(node.path);
    this.drawn.drawAtRest(() => this.showInGraph(node));
  }

  /** Show the box of a Block in the graph that is drawn; where it has none there, draw the Block's own graph. */
  private async showInGraph(node: BlockNode): Promise<void> {
    if (node.path === this.drawn.path && this.drawn.shown?.path === node.path) {
      this.graph.deselect();
      return;
    }
    await this.drawn.settled(); // the box may be in a graph that is still on its way
    if (this.tree.selected !== node.path) {
      return;
    }
    const isAround = this.drawn.path === '' || node.path.startsWith(`${this.drawn.path}.`);
    if (isAround && this.drawn.shown?.path === this.drawn.path && (await this.graph.showBlock(node.path))) {
      this.showsNode = false;
      this.peekAt('');
      this.details.showBlock(node);
      return;
    }
    // Another Block has other programs.
    await this.drawn.drawBlock(node.path, this.drawn.program === 'traced' ? 'traced' : '');
  }

  /** The numbers of a parameter of an operator, by its path in the model. */
  private async showParameter(path: string): Promise<void> {
    const parts = path.split('.');
    const name = parts.pop() ?? '';
    const block = parts.join('.');
    const parameter = this.tree.node(block)?.parameters.find(each => each.name === name);
    this.drawer.open('details');
    if (parameter) {
      await this.showNumbers(block, parameter);
    }
  }

  /** The numbers of a parameter, and of its gradient. */
  private async showNumbers(path: string, parameter: Parameter): Promise<void> {
    const { requester, current } = this;
    if (!requester || !current) {
      return;
    }
    const asked = `${path}|${parameter.name}`;
    this.asked = asked;
    if (path === this.tree.selected) {
      this.saved?.choose(parameter.name);
    }
    const before = this.details.element.firstElementChild;
    const kinds = parameter.grad_req === 'null' ? (['data'] as const) : (['data', 'grad'] as const);
    try {
      const replies = await Promise.all(
        kinds.map(what =>
          requester.request('values', { model: current.model.id, path, name: parameter.name, what })
        )
      );
      // Something else may have been selected meanwhile.
      if (asked === this.asked && before === this.details.element.firstElementChild) {
        this.details.showNumbers(...replies.map(numbersOf));
      }
    } catch (error) {
      this.details.showNumbers(h('p', { class: 'hl-alert' }, errorText(error)));
    }
  }

  private onTab(id: string | null): void {
    if (id === 'report') {
      void this.loadReport();
    }
    this.refreshSaved();
    this.options.tabs?.find(tab => tab.id === id)?.onShow?.();
  }

  private async loadReport(): Promise<void> {
    const { requester, current } = this;
    if (!requester || !current) {
      this.report.textContent = __('The report needs a running kernel.');
      return;
    }
    try {
      this.report.textContent = (await requester.request('explain', { model: current.model.id })).text;
    } catch (error) {
      this.report.textContent = errorText(error);
    }
  }

  private selectedNode(): BlockNode | null {
    return this.tree.selected === null ? null : this.tree.node(this.tree.selected);
  }

  private get name(): string {
    return this.current?.model.name ?? '';
  }

  private readonly tree: BlockTree;
  private readonly columns: TreeColumns | null;
  private readonly graph: GraphPane;
  private readonly drawn: DrawnGraph;
  private readonly details: Details;
  private readonly saved: SavedValuesPart | null;
  private readonly overlays: Overlays;
  private readonly findings: FindingsPart;
  private readonly report: HTMLElement;
  private readonly panes: Panes;
  private readonly treeButton: HTMLButtonElement;
  private readonly peek: HTMLButtonElement;
  /** Two graphs side by side, while they are shown. */
  private comparison: CompareView | null = null;
  private readonly stage: Stage;
  private requester: Requester | null = null;
  private current: TreeReply | null = null;
  /** Whether the user has selected a Block of this model. */
  private isChosen = false;
  private recalled: Looked | null = null;
  /** The parameter whose numbers were asked for last. */
  private asked = '';
  private showsNode = false;
  /** Id of the node or box of the graph whose details were shown last. */
  private detailed = '';
}
