// The panes of a model's view as Lumino's SplitPanel: side by side where there is room, else the tree above the graph.

import type { SplitLayout } from '@lumino/widgets';
import { SplitPanel, Widget } from '@lumino/widgets';
import { h } from './dom';
import type { MakePanes, PaneMemory, Panes } from './panes';
import { __ } from '../text';

/** Pixels of width from which tree and graph stand side by side. */
const SIDE_BY_SIDE = 440;
/** How large the tree is at first: a share of the room, between two sizes in pixels. */
const FIRST = {
  horizontal: { share: 0.28, least: 170, most: 360 },
  /** With columns, in a room of at least so many pixels. */
  columns: { share: 0.42, least: 320, most: 560, room: 740 },
  vertical: { share: 0.36, least: 96, most: 420 }
} as const;
/** Pixels that an arrow key moves the bar. */
const STEP = 24;
/** Milliseconds from a move to its being remembered. */
const MOMENT = 100;

export const splitPanes: MakePanes = (tree, graph, memory, hasColumns) =>
  new SplitPanes(tree, graph, memory, hasColumns);

class SplitPanes implements Panes {
  readonly element = h('div', { class: 'hl-panes' });

  constructor(
    tree: HTMLElement,
    graph: HTMLElement,
    private readonly memory: PaneMemory,
    private readonly hasColumns: boolean
  ) {
    this.tree = new Widget({ node: tree });
    this.split = new SplitPanel({ spacing: 5 });
    this.split.addWidget(this.tree);
    const canvas = new Widget({ node: graph });
    this.split.addWidget(canvas);
    SplitPanel.setStretch(this.tree, 0);
    SplitPanel.setStretch(canvas, 1);
    this.split.handleMoved.connect(() => this.rememberSoon());
    this.handle = this.split.handles[0] as HTMLElement;
    this.handle.tabIndex = 0;
    this.handle.setAttribute('role', 'separator');
    this.handle.setAttribute('aria-label', __('Size of the tree'));
    this.handle.setAttribute('aria-valuemin', '0');
    this.handle.setAttribute('aria-valuemax', '100');
    this.handle.addEventListener('keydown', event => this.onKey(event));
    void (memory.ready ?? Promise.resolve()).then(() => {
      this.tree.setHidden(memory.read().isTreeHidden === true);
      this.place();
      this.onTreeShown();
    });
    new ResizeObserver(() => this.onResize()).observe(this.element);
  }

  onTreeShown: () => void = () => undefined;

  get isTreeShown(): boolean {
    return !this.tree.isHidden;
  }

  set isTreeShown(shown: boolean) {
    if (shown !== this.isTreeShown) {
      this.tree.setHidden(!shown);
      this.memory.write({ isTreeHidden: !shown });
      this.place();
      this.onTreeShown();
    }
  }

  /** The view is on the page, has left it, or has another size. */
  private onResize(): void {
    const { clientWidth, clientHeight, isConnected } = this.element;
    if (!isConnected || clientWidth === 0 || clientHeight === 0) {
      return;
    }
    if (!this.split.isAttached) {
      Widget.attach(this.split, this.element);
    }
    const orientation = clientWidth >= SIDE_BY_SIDE ? 'horizontal' : 'vertical';
    if (orientation !== this.orientation) {
      this.orientation = orientation;
      this.split.orientation = orientation;
      this.handle.setAttribute('aria-orientation', orientation === 'horizontal' ? 'vertical' : 'horizontal');
    }
    this.place();
  }

  /** Give the tree the share that it had, or its first one. */
  private place(): void {
    const { orientation } = this;
    if (orientation) {
      const { clientWidth, clientHeight } = this.element;
      const room = orientation === 'horizontal' ? clientWidth : clientHeight;
      const isWide = this.hasColumns && orientation === 'horizontal' && room >= FIRST.columns.room;
      const { share, least, most } = FIRST[isWide ? 'columns' : orientation];
      const first = Math.min(most, Math.max(least, share * room)) / room;
      this.set(this.memory.read()[ROLES[orientation]] ?? first);
    }
  }

  private set(share: number): void {
    this.split.setRelativeSizes([share, 1 - share]);
    this.handle.setAttribute('aria-valuenow', String(Math.round(share * 100)));
  }

  /** Lumino computes the sizes some moments after a move. */
  private rememberSoon(): void {
    clearTimeout(this.moving);
    this.moving = setTimeout(() => this.remember(), MOMENT);
  }

  private remember(): void {
    const [share] = this.split.relativeSizes();
    if (this.orientation && share !== undefined && this.isTreeShown) {
      this.memory.write({ [ROLES[this.orientation]]: share });
      this.handle.setAttribute('aria-valuenow', String(Math.round(share * 100)));
    }
  }

  private onKey(event: KeyboardEvent): void {
    const isHorizontal = this.orientation === 'horizontal';
    const way = {
      [isHorizontal ? 'ArrowRight' : 'ArrowDown']: 1,
      [isHorizontal ? 'ArrowLeft' : 'ArrowUp']: -1
    }[event.key];
    if (way !== undefined) {
      event.preventDefault();
      event.stopPropagation();
      const at = isHorizontal ? this.handle.offsetLeft : this.handle.offsetTop;
      (this.split.layout as SplitLayout).moveHandle(0, at + way * STEP);
      this.rememberSoon();
    }
  }

  private readonly split: SplitPanel;
  private readonly tree: Widget;
  private readonly handle: HTMLElement;
  private moving: ReturnType<typeof setTimeout> | undefined;
  private orientation: 'horizontal' | 'vertical' | null = null;
}

const ROLES = { horizontal: 'beside', vertical: 'above' } as const;
