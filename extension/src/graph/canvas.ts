// The picture on the page: only what the pane shows is in the document, and a camera says which part that is.

import { h, uniqueId } from '../view/dom';
import type { Camera, Size } from './camera';
import {
  SCALES,
  centred,
  cleared,
  contains,
  fitted,
  intersects,
  kept,
  panned,
  revealed,
  started,
  visible,
  zoomed
} from './camera';
import { HEADER } from './card';
import type { DrawnItem, DrawnLayer, Picture, Rect } from './compose';
import type { Change } from './draw';
import { edgeElement, farElement, itemElement, pathOf, portElement, showChange, svg } from './draw';
import { DETAIL, besideCovers, hides } from './covers';
import type { ClickEvents } from './gestures';
import { followGestures } from './gestures';
import type { Point } from './layer';
import { Legend } from './legend';
import type { Measured } from './measured';
import { showMeasured } from './measured';
import { Minimap } from './minimap';
import type { Scene } from './scene';
import { portKey } from './scene';
import { __ } from '../text';

export interface CanvasEvents extends ClickEvents {
  onKey: (event: KeyboardEvent) => void;
  /** The picture was moved or zoomed; `at`: the point of the pane under the pointer, null where none did it. */
  onLook?: (at: Point | null) => void;
}

/** The ids of the marked nodes and boxes, and the keys of the marked edges. */
export interface Marks {
  selected: string | null;
  up: ReadonlySet<string>;
  down: ReadonlySet<string>;
  upEdges: ReadonlySet<string>;
  downEdges: ReadonlySet<string>;
  /** Whether everything else steps back. */
  isTracing: boolean;
  hits: ReadonlySet<string>;
  /** The nodes of the code line that has the cursor. */
  code: ReadonlySet<string>;
}

export const NO_MARKS: Marks = {
  selected: null,
  up: new Set(),
  down: new Set(),
  upEdges: new Set(),
  downEdges: new Set(),
  isTracing: false,
  hits: new Set(),
  code: new Set()
};

/** Scales below which details, and all text, are too small to be read. */
const READABLE = { detail: DETAIL, title: SCALES.legible } as const;
/** Pixels around the pane that are drawn ahead. */
const AHEAD = 240;
const SIDES = ['x', 'y', 'width', 'height'] as const;

/** Pixels of the pane that something lies over. */
export interface Covered {
  right: number;
  bottom: number;
}

/** The elements of one layer that are in the document. */
interface Shown {
  layer: DrawnLayer;
  group: SVGGElement;
  edges: SVGGElement;
  items: SVGGElement;
  elements: Map<string, SVGElement>;
}

export class Canvas {
  readonly element: HTMLElement;
  readonly root: SVGSVGElement;
  camera: Camera = { x: 0, y: 0, scale: 1 };
  /** Elements that cover parts of the picture. */
  readonly over: HTMLElement[];

  constructor(private readonly events: CanvasEvents) {
    const prefix = uniqueId('graph');
    this.idOf = id => `${prefix}-${id}`;
    this.world = svg('g');
    this.root = svg(
      'svg',
      {
        class: 'hl-g',
        tabindex: 0,
        role: 'application',
        'aria-roledescription': __('graph'),
        'aria-label': __(
          'Graph. Arrow keys follow the edges, Enter opens a box, Escape closes it, T shows the paths, F fits all.'
        )
      },
      this.world
    );
    this.map = new Minimap(middle => {
      const { width, height } = this.free;
      const { scale } = this.camera;
      this.look({ scale, x: width / 2 - middle.x * scale, y: height / 2 - middle.y * scale });
    });
    this.over = [this.map.element, this.legend.element];
    this.element = h('div', { class: 'hl-canvas' }, this.root, this.legend.element, this.map.element);
    followGestures(this, events);
    this.root.addEventListener('keydown', event => this.events.onKey(event));
    if (typeof ResizeObserver !== 'undefined') {
      new ResizeObserver(() => this.onResize()).observe(this.element);
    }
  }

  /** `keep`: the camera stays; else the picture starts with `first` in view, at the scale `chosen` if there is one. */
  show(
    picture: Picture,
    scene: Scene,
    first: string | null,
    keep: boolean,
    chosen: number | null = null
  ): void {
    this.picture = picture;
    this.scene = scene;
    this.first = first;
    this.world.replaceChildren();
    this.layers = picture.layers.map(layer => {
      const edges = svg('g');
      const items = svg('g');
      const group = svg('g', { class: 'hl-g-layer' }, edges, items);
      return { layer, group, edges, items, elements: new Map<string, SVGElement>() };
    });
    this.world.append(...this.layers.map(shown => shown.group));
    this.drawn = null;
    this.map.show(picture, this.pane);
    if (keep) {
      this.moved ||= this.element.clientWidth > 0;
      this.look(this.camera);
    } else {
      this.chosen = chosen;
      this.start();
    }
  }

  clear(): void {
    this.picture = null;
    this.layers = [];
    this.world.replaceChildren();
    this.map.element.hidden = true;
  }

  mark(marks: Marks): void {
    this.marks = marks;
    this.root.classList.toggle('hl-g-tracing', marks.isTracing);
    this.draw(true);
    for (const shown of this.layers) {
      for (const [key, element] of shown.elements) {
        this.markElement(element, key);
      }
    }
    const { selected } = marks;
    if (selected !== null && this.picture?.items.has(selected)) {
      this.root.setAttribute('aria-activedescendant', this.idOf(selected));
    } else {
      this.root.removeAttribute('aria-activedescendant');
    }
  }

  /** Show what was measured of nodes and boxes, by id; it stays on what is drawn later. */
  measure(measured: Measured | null): void {
    this.measured = measured;
    this.legend.show(measured);
    for (const shown of this.layers) {
      for (const [key, element] of shown.elements) {
        this.measureElement(element, key);
      }
    }
  }

  /** How nodes and boxes differ from those of another picture, by id; null where nothing is compared. */
  paint(changes: ReadonlyMap<string, Change> | null): void {
    this.changes = changes;
    this.root.classList.toggle('hl-g-compared', changes !== null);
    for (const shown of this.layers) {
      for (const [key, element] of shown.elements) {
        this.paintElement(element, key);
      }
    }
  }

  /** Show the same part as another canvas, wherever that is in this picture. */
  follow(camera: Camera): void {
    this.moved = true;
    this.set(camera);
  }

  /** Size of the picture; null while there is none. */
  get extent(): Size | null {
    return this.picture;
  }

  /** What the picture consists of; null while there is none. */
  get items(): ReadonlyMap<string, DrawnItem> | null {
    return this.picture?.items ?? null;
  }

  /** Size of the pane; a usual one where the page has no layout. */
  get pane(): Size {
    const { clientWidth, clientHeight } = this.element;
    return { width: clientWidth || 640, height: clientHeight || 360 };
  }

  /** Pixels of the pane at its right and its lower edge that something lies over. */
  get covered(): Readonly<Covered> {
    return this.edges;
  }

  /**
   * Something lies over an edge of the pane, or no longer. What is selected comes out from under it, and goes back when
   * it has gone; else the picture stays where it is.
   */
  cover(covered: Readonly<Covered>): void {
    const { right, bottom } = this.edges;
    if (covered.right === right && covered.bottom === bottom) {
      return;
    }
    this.edges = covered;
    const { uncovered } = this;
    this.uncovered = null;
    if (!this.picture || this.element.clientWidth === 0) {
      return;
    }
    if (uncovered?.camera === this.camera) {
      this.look(uncovered.before);
    }
    this.uncover();
  }

  /** Bring what is selected out from under what lies over it. */
  uncover(): void {
    const item = this.picture?.items.get(this.marks.selected ?? '');
    if (!item || !intersects(item, visible(this.camera, this.pane))) {
      return;
    }
    const { free, pane, camera: before } = this;
    const { x, y, scale } = before;
    const isUnder =
      (free.width < pane.width && x + (item.x + item.width) * scale > free.width) ||
      (free.height < pane.height && y + (item.y + item.height) * scale > free.height);
    this.look(this.freed(isUnder ? revealed(before, item, free) : before, item));
    if (this.camera.x !== before.x || this.camera.y !== before.y) {
      this.uncovered = { before, camera: this.camera };
    }
  }

  /** The camera, moved where the item would be under something else. */
  private freed(camera: Camera, item: DrawnItem): Camera {
    const { picture } = this;
    if (!picture) {
      return camera;
    }
    this.map.follow(camera, this.pane); // which is hidden, or not, by what the pane shows
    return cleared(camera, item.isOpen ? { ...item, height: HEADER } : item, this.free, this.rectsOver());
  }

  /** Where things lie over the pane. */
  private rectsOver(): Rect[] {
    const ground = this.element.getBoundingClientRect();
    const rects = this.over
      .map(element => element.getBoundingClientRect())
      .filter(({ width, height }) => width > 0 && height > 0)
      .map(({ left, top, width, height }) => ({ x: left - ground.left, y: top - ground.top, width, height }));
    return this.card ? [...rects, this.card] : rects;
  }

  /** The part of the pane that is seen. */
  private get free(): Size {
    const { width, height } = this.pane;
    const { right, bottom } = this.covered;
    return { width: Math.max(width - right, width / 4), height: Math.max(height - bottom, height / 4) };
  }

  /** The element that covers the upper edge of the pane, or null. The graph starts beside or below it. */
  setCard(card: Rect | null): void {
    const isSame =
      card !== null && this.card !== null && SIDES.every(side => card[side] === this.card?.[side]);
    if (isSame || card === this.card) {
      return;
    }
    this.card = card;
    const { picture, pushed } = this;
    this.pushed = null;
    if (!picture || this.element.clientWidth === 0) {
      return;
    }
    if (!this.moved) {
      this.start();
      return;
    }
    if (pushed?.camera === this.camera) {
      this.look(panned(this.camera, 0, -pushed.by));
    }
    const top = this.camera.y;
    if (card && top >= 0 && hides(card, this.camera, picture)) {
      const by = card.y + card.height - top;
      this.look(panned(this.camera, 0, by));
      this.pushed = { camera: this.camera, by };
    }
  }

  /** Whether the picture stands elsewhere than at its start; the scale of that which the user chose, null for none. */
  get isMoved(): boolean {
    return this.moved;
  }

  get chosenScale(): number | null {
    return this.chosen;
  }

  start(): void {
    const { picture } = this;
    if (picture) {
      const [first] = picture.items.values();
      const rect = picture.items.get(this.first ?? '') ??
        first ?? { x: 0, y: 0, width: picture.width, height: 0 };
      this.moved = false;
      this.look(this.beside(picture, room => started(picture, rect, room, this.chosen)));
      this.uncover();
    }
  }

  fit(): void {
    const { picture } = this;
    if (picture) {
      const whole = { x: 0, y: 0, width: picture.width, height: picture.height };
      this.move(this.beside(picture, room => fitted(whole, room)));
    }
  }

  private beside(picture: Picture, place: (room: Size) => Camera): Camera {
    return besideCovers(picture, place, this.free, this.card, this.rectsOver());
  }

  zoom(factor: number, at: Point = { x: this.free.width / 2, y: this.free.height / 2 }): void {
    this.move(zoomed(this.camera, factor, at), at);
  }

  /** The closed member nearest to the middle of the pane. */
  get middle(): string | null {
    const { width, height } = this.free;
    const { x, y, scale } = this.camera;
    const middle = { x: (width / 2 - x) / scale, y: (height / 2 - y) / scale };
    let nearest: string | null = null;
    let least = Infinity;
    for (const item of this.picture?.items.values() ?? []) {
      const away = Math.hypot(item.x + item.width / 2 - middle.x, item.y + item.height / 2 - middle.y);
      if (!item.isOpen && away < least) {
        least = away;
        nearest = item.id;
      }
    }
    return nearest;
  }

  reveal(id: string): void {
    const item = this.picture?.items.get(id);
    if (item) {
      this.move(this.freed(revealed(this.camera, item, this.free), item));
    }
  }

  /** Bring a node or box into the middle of the pane. */
  centre(id: string): void {
    const item = this.picture?.items.get(id);
    if (item) {
      this.move(this.freed(centred(this.camera, item, this.free), item));
    }
  }

  /** Whether a node or box, or some of it, is in view. */
  shows(id: string): boolean {
    const item = this.picture?.items.get(id);
    return item !== undefined && intersects(item, visible(this.camera, this.pane));
  }

  /** Look elsewhere because the user wants to; `at`: the point of the pane under the pointer. */
  move(camera: Camera, at: Point | null = null): void {
    this.moved = true;
    this.look(camera, at);
  }

  look(camera: Camera, at: Point | null = null): void {
    this.set(this.picture ? kept(camera, this.picture, this.pane) : camera);
    this.events.onLook?.(at);
  }

  private set(camera: Camera): void {
    this.camera = camera;
    const { x, y, scale } = this.camera;
    this.world.setAttribute(
      'transform',
      `translate(${x.toFixed(2)} ${y.toFixed(2)}) scale(${scale.toFixed(4)})`
    );
    this.draw(false);
    this.map.follow(this.camera, this.pane);
  }

  /** Put what is in view into the document, and take out what has left it. */
  private draw(always: boolean): void {
    const { scale } = this.camera;
    const isFar = scale < READABLE.title;
    const needed = visible(this.camera, this.pane);
    if (!always && this.drawn?.isFar === isFar && contains(this.drawn.rect, needed)) {
      this.levels(scale);
      return;
    }
    const rect = visible(this.camera, this.pane, AHEAD);
    if (this.drawn?.isFar !== isFar) {
      for (const shown of this.layers) {
        shown.edges.replaceChildren();
        shown.items.replaceChildren();
        shown.elements.clear();
      }
    }
    this.drawn = { rect, isFar };
    this.levels(scale);
    const { scene } = this;
    if (scene) {
      for (const shown of this.layers) {
        this.drawLayer(shown, scene, rect, isFar);
      }
    }
  }

  private levels(scale: number): void {
    this.root.classList.toggle('hl-g-small', scale < READABLE.detail);
    this.root.classList.toggle('hl-g-far', scale < READABLE.title);
  }

  private drawLayer(shown: Shown, scene: Scene, rect: Rect, isFar: boolean): void {
    const { layer, elements } = shown;
    if (!intersects(layer, rect)) {
      if (elements.size > 0) {
        shown.edges.replaceChildren();
        shown.items.replaceChildren();
        elements.clear();
      }
      return;
    }
    const put = (key: string, isIn: boolean, parent: Element, make: () => SVGElement): void => {
      const element = elements.get(key);
      if (isIn && !element) {
        const made = make();
        elements.set(key, made);
        this.markElement(made, key);
        this.measureElement(made, key);
        this.paintElement(made, key);
        parent.append(made);
      } else if (!isIn && element) {
        element.remove();
        elements.delete(key);
      }
    };
    if (isFar) {
      // One path for all edges of a layer: there may be thousands in view.
      put('edges', true, shown.edges, () =>
        svg('path', {
          class: 'hl-g-line',
          fill: 'none',
          d: layer.edges.map(edge => pathOf(edge.points)).join('')
        })
      );
    }
    for (const edge of layer.edges) {
      const isMarked = this.marks.upEdges.has(edge.key) || this.marks.downEdges.has(edge.key);
      put(edge.key, (!isFar || isMarked) && intersects(edge.bounds, rect), shown.edges, () =>
        edgeElement(edge, scene)
      );
    }
    for (const port of layer.ports) {
      const isIn = !isFar && intersects({ x: port.x, y: port.y, width: 0, height: 0 }, rect);
      put(portKey(layer.box, port.value, port.side), isIn, shown.edges, () => portElement(port));
    }
    for (const item of layer.items) {
      const isIn = intersects(withStrip(item), rect) || item.id === this.marks.selected;
      put(item.id, isIn, shown.items, () =>
        isFar ? farElement(item, scene, this.idOf) : itemElement(item, scene, this.idOf)
      );
    }
  }

  private markElement(element: SVGElement, key: string): void {
    const { marks } = this;
    const classes = element.classList;
    classes.toggle('hl-g-selected', key === marks.selected);
    classes.toggle('hl-g-up', marks.up.has(key) || marks.upEdges.has(key));
    classes.toggle('hl-g-down', marks.down.has(key) || marks.downEdges.has(key));
    classes.toggle('hl-g-hit', marks.hits.has(key));
    classes.toggle('hl-g-code', marks.code.has(key));
  }

  private measureElement(element: SVGElement, key: string): void {
    if (this.picture?.items.has(key)) {
      showMeasured(element, this.measured?.items.get(key), this.measured?.heat.get(key));
    }
  }

  private paintElement(element: SVGElement, key: string): void {
    if (this.changes && this.picture?.items.has(key)) {
      showChange(element, this.changes.get(key));
    }
  }

  private onResize(): void {
    if (this.element.clientWidth === 0) {
      return;
    }
    const { pane, size } = this;
    this.size = pane;
    if (this.picture && this.moved && size.width > 0) {
      // What was in the middle stays there.
      const camera = panned(this.camera, (pane.width - size.width) / 2, (pane.height - size.height) / 2);
      this.set(kept(camera, this.picture, pane));
    } else if (this.picture) {
      this.start(); // it was drawn in a tab that was hidden, or nobody has moved it yet
    }
  }

  private readonly world: SVGGElement;
  private readonly map: Minimap;
  private readonly idOf: (id: string) => string;
  private picture: Picture | null = null;
  private scene: Scene | null = null;
  private layers: Shown[] = [];
  private marks: Marks = NO_MARKS;
  private measured: Measured | null = null;
  private changes: ReadonlyMap<string, Change> | null = null;
  private readonly legend = new Legend();
  private drawn: { rect: Rect; isFar: boolean } | null = null;
  private first: string | null = null;
  private moved = false;
  /** Of the pane when it was resized last. */
  private size: Size = { width: 0, height: 0 };
  private chosen: number | null = null;
  private card: Rect | null = null;
  private edges: Readonly<Covered> = { right: 0, bottom: 0 };
  /** Where the camera was before what is selected came out from under something, and where it is since then. */
  private uncovered: { before: Camera; camera: Camera } | null = null;
  /** How far the card has moved the picture, and where the camera was then. */
  private pushed: { camera: Camera; by: number } | null = null;
}

function withStrip(item: DrawnItem): Rect {
  return { x: item.x - 60, y: item.y - 6, width: item.width + 120, height: item.height + 30 };
}
