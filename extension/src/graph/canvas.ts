// The picture on the page: only what the pane shows is in the document; dragging, wheel and fingers move it.

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
import type { Point } from './layer';
import { Legend } from './legend';
import type { Measured } from './measured';
import { showMeasured } from './measured';
import { Minimap } from './minimap';
import type { Scene } from './scene';
import { portKey } from './scene';
import { __ } from '../text';

export interface CanvasEvents {
  /** A click; null: on the ground. */
  onPick: (id: string | null) => void;
  /** A double-click, or a click on + or -. */
  onToggle: (id: string) => void;
  onKey: (event: KeyboardEvent) => void;
  /** A click on the parameter number `index` of a node, by the order of its badges. */
  onBadge?: (id: string, index: number) => void;
  /** A click on the stub of an edge, which leads to this node. */
  onStub?: (id: string) => void;
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
const READABLE = { detail: 0.6, title: SCALES.legible } as const;
/** Pixels around the pane that are drawn ahead. */
const AHEAD = 240;
const SIDES = ['x', 'y', 'width', 'height'] as const;
const DOUBLE = { milliseconds: 450, pixels: 8 } as const;

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
    this.root.addEventListener('wheel', event => this.onWheel(event), { passive: false });
    this.root.addEventListener('pointerdown', event => this.onDown(event));
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
      this.moved = true;
      this.look(this.beside(picture, room => fitted(whole, room)));
    }
  }

  /** The camera for all of the pane that is seen; where that puts nodes under something, for what is left of it. */
  private beside(picture: Picture, place: (room: Size) => Camera): Camera {
    const { free } = this;
    const camera = this.besideCard(picture, place, free);
    const isWhole = ({ x, y, scale }: Camera): boolean =>
      x >= 0 &&
      y >= 0 &&
      x + picture.width * scale <= free.width &&
      y + picture.height * scale <= free.height;
    const low = this.rectsOver().filter(rect => rect.y > free.height / 2 && rect !== this.card);
    if (!isWhole(camera) || !low.some(rect => hides(rect, camera, picture))) {
      return camera;
    }
    const height = Math.min(...low.map(rect => rect.y));
    const above = { width: free.width, height };
    const whole = { x: 0, y: 0, width: picture.width, height: picture.height };
    const ways = [
      this.besideCard(picture, place, above),
      this.besideCard(picture, room => fitted(whole, room), above)
    ];
    return ways.find(way => isWhole(way) && way.scale >= READABLE.detail) ?? camera;
  }

  private besideCard(picture: Picture, place: (room: Size) => Camera, free: Size): Camera {
    const { card } = this;
    const camera = place(free);
    if (!card || !hides(card, camera, picture)) {
      return camera;
    }
    const right = card.x + card.width;
    const below = card.y + card.height;
    const isWide = free.width - right > Math.max(card.width, free.width / 2);
    return isWide
      ? panned(place({ width: free.width - right, height: free.height }), right, 0)
      : panned(
          place({ width: free.width, height: Math.max(free.height - below, free.height / 4) }),
          0,
          below
        );
  }

  zoom(factor: number, at: Point = { x: this.free.width / 2, y: this.free.height / 2 }): void {
    this.moved = true;
    this.look(zoomed(this.camera, factor, at), at);
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
      this.moved = true;
      this.look(this.freed(revealed(this.camera, item, this.free), item));
    }
  }

  /** Bring a node or box into the middle of the pane. */
  centre(id: string): void {
    const item = this.picture?.items.get(id);
    if (item) {
      this.moved = true;
      this.look(this.freed(centred(this.camera, item, this.free), item));
    }
  }

  /** Whether a node or box, or some of it, is in view. */
  shows(id: string): boolean {
    const item = this.picture?.items.get(id);
    return item !== undefined && intersects(item, visible(this.camera, this.pane));
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

  private at(event: MouseEvent): Point {
    const box = this.root.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  private onWheel(event: WheelEvent): void {
    if (!this.picture) {
      return;
    }
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 300 : 1;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const turned = Math.max(-60, Math.min(60, event.deltaY * unit));
      this.zoom(Math.exp(-turned * 0.004), this.at(event));
      return;
    }
    const [dx, dy] = event.shiftKey && event.deltaX === 0 ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
    const { x, y, scale } = this.camera;
    // As in any pane that scrolls: where the picture ends, the page scrolls on.
    const scroll = (at: number, delta: number, length: number, room: number): number =>
      delta > 0
        ? Math.max(Math.min(at, Math.max(at - delta, room - length)), at - delta)
        : Math.min(Math.max(at, Math.min(at - delta, 0)), at - delta);
    const next = {
      scale,
      x: scroll(x, dx * unit, this.picture.width * scale, this.pane.width),
      y: scroll(y, dy * unit, this.picture.height * scale, this.pane.height)
    };
    if (next.x !== x || next.y !== y) {
      event.preventDefault();
      this.moved = true;
      this.look(next, this.at(event));
    }
  }

  private onDown(event: PointerEvent): void {
    if (!this.picture || (event.pointerType === 'mouse' && event.button !== 0)) {
      return;
    }
    this.fingers.set(event.pointerId, this.at(event));
    if (this.fingers.size > 1) {
      return; // the listeners of the first finger follow the second
    }
    const target = event.target as Element;
    const id = target.closest('[data-id]')?.getAttribute('data-id') ?? null;
    const toggles = target.closest('[data-toggle]') !== null;
    const stub = target.closest('[data-stub]')?.getAttribute('data-stub') ?? null;
    const badge = target.closest('[data-badge]')?.getAttribute('data-badge') ?? null;
    const start = this.at(event);
    let isDrag = false;
    const move = (moved: PointerEvent): void => {
      const before = this.fingers.get(moved.pointerId);
      const now = this.at(moved);
      if (!before) {
        return;
      }
      isDrag ||= Math.hypot(now.x - start.x, now.y - start.y) > 4;
      const other = [...this.fingers].find(([pointer]) => pointer !== moved.pointerId)?.[1];
      if (other) {
        isDrag = true;
        const factor =
          Math.hypot(now.x - other.x, now.y - other.y) /
          Math.max(Math.hypot(before.x - other.x, before.y - other.y), 1);
        this.zoom(factor, { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 });
      } else if (isDrag) {
        this.moved = true;
        this.element.classList.add('hl-dragging');
        this.look(panned(this.camera, now.x - before.x, now.y - before.y), now);
      } else {
        return;
      }
      this.fingers.set(moved.pointerId, now);
    };
    const stop = (ended: PointerEvent): void => {
      this.fingers.delete(ended.pointerId);
      if (this.fingers.size > 0) {
        return;
      }
      window.removeEventListener('pointermove', move);
      window.removeEventListener('pointerup', stop);
      window.removeEventListener('pointercancel', stop);
      this.element.classList.remove('hl-dragging');
      if (!isDrag && ended.type === 'pointerup') {
        this.onClick(id, toggles, { x: event.clientX, y: event.clientY }, event.timeStamp);
        if (stub !== null) {
          this.events.onStub?.(stub);
        } else if (id !== null && badge !== null) {
          this.events.onBadge?.(id, Number(badge));
        }
      }
    };
    window.addEventListener('pointermove', move);
    window.addEventListener('pointerup', stop);
    window.addEventListener('pointercancel', stop);
  }

  /** The second click of a double-click is on what the first one was on, wherever that has moved. */
  private onClick(id: string | null, toggles: boolean, at: Point, time: number): void {
    this.root.focus({ preventScroll: true });
    const { last } = this;
    const isDouble =
      last !== null &&
      time - last.time < DOUBLE.milliseconds &&
      Math.hypot(at.x - last.at.x, at.y - last.at.y) < DOUBLE.pixels;
    this.last = isDouble || toggles ? null : { id, at, time };
    if (toggles && id !== null) {
      this.events.onToggle(id);
    } else if (isDouble && last.id !== null) {
      this.events.onToggle(last.id);
    } else if (!isDouble) {
      this.events.onPick(id);
    }
  }

  private readonly world: SVGGElement;
  private readonly map: Minimap;
  private readonly idOf: (id: string) => string;
  private readonly fingers = new Map<number, Point>();
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
  private last: { id: string | null; at: Point; time: number } | null = null;
}

/** Whether something, in pixels of the pane, lies over a node, or over the name of an open box. */
function hides(rect: Rect, { x, y, scale }: Camera, picture: Picture): boolean {
  const below = {
    x: (rect.x - x) / scale,
    y: (rect.y - y) / scale,
    width: rect.width / scale,
    height: rect.height / scale
  };
  for (const item of picture.items.values()) {
    if (intersects(below, item.isOpen ? { ...item, height: HEADER } : item)) {
      return true;
    }
  }
  return false;
}

function withStrip(item: DrawnItem): Rect {
  return { x: item.x - 60, y: item.y - 6, width: item.width + 120, height: item.height + 30 };
}
