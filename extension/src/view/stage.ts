// The stage of a model: the panes of tree and graph, and what lies over them and where - the drawer, sentences, rows of
// work, search hits. What lies over the graph stays off the rows of the tree and off the drawer.

import type { GraphPane } from '../graph/graph-pane';
import type { Child } from './dom';
import { h, replace } from './dom';
import type { Drawer, Room } from './drawer';
import { Notices } from './notices';
import type { Panes } from './panes';
import { WorkRows } from './work-rows';

/** If the graph's room is smaller than this, texts over the graph take one line. */
const SMALL = { width: 480, height: 480 } as const;

/** Pixels of the graph's height from which its map and its buttons stand above the drawer. */
const PICTURE = 220;

/** Pixels of room that a sentence over the graph needs. */
const LINE = 40;

export interface StageParts {
  panes: Panes;
  /** The pane with the graph and its tools. */
  graphPane: HTMLElement;
  graph: GraphPane;
  drawer: Drawer;
  /** The card of the overlay, over a corner of the graph. */
  card: HTMLElement;
}

export class Stage {
  /** The panes with the drawer over them, and below them its line of tabs. */
  readonly element: HTMLElement;
  /** Sentences that come and go. */
  readonly notices = new Notices();
  /** Work of the running cell that takes long. */
  readonly works = new WorkRows();

  /** `onSmall`: whether the graph has little room, after each change of its size; `over`: what else lies over the panes. */
  constructor(
    private readonly parts: StageParts,
    private readonly onSmall: (isSmall: boolean) => void,
    over?: HTMLElement
  ) {
    this.nothing.hidden = true;
    this.complaint.hidden = true;
    this.body = h(
      'div',
      { class: 'hl-stage-body' },
      parts.panes.element,
      this.nothing,
      parts.drawer.element,
      this.complaint,
      this.works.element,
      parts.graph.hits,
      over
    );
    this.element = h('div', { class: 'hl-stage' }, this.body, parts.drawer.strip, this.notices.element);
    this.element.addEventListener('keydown', event => {
      if (event.key === 'Escape') {
        parts.drawer.dismiss();
      }
    });
    if (typeof ResizeObserver !== 'undefined') {
      this.observe();
    }
  }

  /** Show this in place of tree and graph; without children, show tree and graph again. */
  showNothing(...children: Child[]): void {
    this.nothing.hidden = children.length === 0;
    this.parts.panes.element.hidden = children.length > 0;
    replace(this.nothing, ...children);
  }

  /** Show a sentence about a fault until `complain('')` removes it. */
  complain(text: string): void {
    if (this.complaint.textContent !== text) {
      this.complaint.textContent = text;
    }
    this.complaint.hidden = text === '';
  }

  /** Place what lies over the graph, beside what the drawer covers of it. */
  placeOver({ right, bottom } = this.parts.graph.canvas.covered): void {
    const { left, top, width, height } = this.room;
    const hasRoom = height - bottom > LINE;
    const places = {
      ...{ left, top, right: width - right > LINE ? right : 0, bottom: hasRoom ? bottom : 0 },
      // What belongs to the picture rises with the drawer's edge where the picture is still to be seen.
      rise: height - bottom > PICTURE ? bottom : 0
    };
    for (const [side, pixels] of Object.entries(places)) {
      this.element.style.setProperty(`--hl-over-${side}`, `${pixels}px`);
    }
  }

  /** Follow the sizes of the view, of the graph, and of the overlay's card. */
  private observe(): void {
    const { graph, graphPane, card } = this.parts;
    const observer = new ResizeObserver(() => this.place());
    observer.observe(this.body);
    observer.observe(graphPane);
    observer.observe(graph.area);
    const { canvas } = graph;
    new ResizeObserver(() => {
      const { left, top, width, height } = card.getBoundingClientRect();
      const ground = canvas.element.getBoundingClientRect();
      canvas.setCard(width > 0 ? { x: left - ground.left, y: top - ground.top, width, height } : null);
    }).observe(card);
  }

  private place(): void {
    const { drawer, graph } = this.parts;
    const whole = this.body.getBoundingClientRect();
    const area = graph.area.getBoundingClientRect();
    if (whole.width === 0) {
      return;
    }
    const hasGraph = area.width > 0;
    const left = hasGraph ? area.left - whole.left : 0;
    const top = hasGraph ? area.top - whole.top : 0;
    this.room = { width: whole.width - left, height: whole.height - top, left, top };
    drawer.place({
      width: whole.width,
      height: whole.height,
      left,
      top: top < whole.height / 4 ? top : 0,
      graph: { width: area.width, height: area.height }
    });
    const isSmall = area.width < SMALL.width || area.height < SMALL.height;
    graph.area.classList.toggle('hl-small', isSmall);
    this.onSmall(isSmall);
    this.placeOver();
  }

  private readonly body: HTMLElement;
  private readonly nothing = h('div', { class: 'hl-nothing' });
  private readonly complaint = h('div', { class: 'hl-alert', role: 'alert' });
  /** The pixels of the view in which the graph is, and its size. */
  private room: Room = { left: 0, top: 0, width: 0, height: 0 };
}
