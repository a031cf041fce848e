// The picture of a scene with some boxes open: every opened layer is laid out by itself, the innermost first.

import type { Tensor } from '../protocol/messages';
import type { Card, Measure, Stub } from './card';
import { HEADER, SIZES, STRIP, boxCard, nodeCard, openWidth, typeTexts, withMeasured } from './card';
import type { Item, LayerInput, LayerPlan, Point, Port } from './layer';
import { layerDot, readPlan, stackPlan } from './layer';
import type { LayerEdge, Scene } from './scene';
import { edgeKey } from './scene';
import type { Stubs } from './stubs';
import { stubsOf } from './stubs';
import type { Layout } from './worker';
import { Aborted } from './worker';
import { __, _n } from '../text';

export interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** The type of a value, written below the member that computes it. */
export interface TypeLabel {
  value: string;
  text: string;
  x: number;
}

/** A node, a closed box or the frame of an opened box. `height` is without the strip of types below it. */
export interface DrawnItem extends Rect {
  id: string;
  /** The box that it lies in, and how many boxes are around it. */
  layer: string;
  depth: number;
  isOpen: boolean;
  card: Card;
  /** With the place of the line that goes from the member through the strip. */
  types: TypeLabel[];
}

export interface DrawnEdge {
  key: string;
  layer: string;
  edge: LayerEdge;
  /** A start, then three points for each Bézier curve. */
  points: Point[];
  bounds: Rect;
  /** Whether it ends in a closed member, and so with an arrow. */
  hasArrow: boolean;
}

export interface DrawnLayer extends Rect {
  box: string;
  items: DrawnItem[];
  edges: DrawnEdge[];
  ports: DrawnPort[];
}

/** Where a value passes the border of an opened box. */
export interface DrawnPort extends Point {
  value: string;
  side: 'top' | 'bottom';
  /** Length of the line from the border to the edge inside, and whether it passes behind the name of the box. */
  length: number;
  isBehindName: boolean;
}

export interface Picture {
  width: number;
  height: number;
  /** Parents come before their children. */
  layers: DrawnLayer[];
  items: Map<string, DrawnItem>;
}

const MARGIN = 18;
const SIDE = 14;
const FOOT = 10;
/** Layouts that are kept, to open and close boxes without a new one. */
const KEPT = 400;

interface Plan {
  box: string;
  input: LayerInput;
  /** The edges of the input. */
  edges: LayerEdge[];
  plan: LayerPlan;
  cards: Card[];
  types: TypeLabel[][];
  /** The opened members, by index. */
  inner: Map<number, Plan>;
}

export class Composer {
  constructor(
    private readonly layout: Layout,
    private readonly measure: Measure
  ) {}

  /** Rejects with Aborted where the signal is aborted. Only layers that are new, or whose members changed, are laid out. */
  async compose(scene: Scene, open: ReadonlySet<string>, signal?: AbortSignal): Promise<Picture> {
    const root = await this.plan(scene, '', open, signal);
    if (signal?.aborted) {
      throw new Aborted();
    }
    return place(root);
  }

  /** Short texts of an overlay by id, which the next pictures show on their members. */
  set measured(texts: ReadonlyMap<string, string>) {
    this.texts = texts;
    this.cards = new WeakMap();
  }

  get measured(): ReadonlyMap<string, string> {
    return this.texts;
  }

  private async plan(
    scene: Scene,
    box: string,
    open: ReadonlySet<string>,
    signal?: AbortSignal
  ): Promise<Plan> {
    const layer = scene.layer(box);
    const inner = new Map<number, Plan>();
    await Promise.all(
      layer.members.map(async (id, i) => {
        if (open.has(id) && scene.box(id)) {
          inner.set(i, await this.plan(scene, id, open, signal));
        }
      })
    );
    const stubs = this.stubs(scene, box);
    const leaving = new Map<string, string[]>();
    for (const edge of layer.edges) {
      if (edge.from !== null) {
        const values = leaving.get(edge.from) ?? [];
        leaving.set(edge.from, values.includes(edge.value) ? values : [...values, edge.value]);
      }
    }
    const index = new Map(layer.members.map((id, i) => [id, i]));
    const items: Item[] = [];
    const cards: Card[] = [];
    const types: TypeLabel[][] = [];
    layer.members.forEach((id, i) => {
      const card = this.card(scene, id, stubs.read.get(id));
      const opened = inner.get(i);
      cards.push(card);
      if (opened) {
        items.push(this.frame(id, card, opened));
        types.push([]);
      } else {
        const values = leaving.get(id) ?? [];
        const { item, labels } = this.closed(scene, card, id, values, stubs);
        items.push(item);
        types.push(labels);
      }
    });
    const input: LayerInput = {
      items,
      enters: stubs.enters,
      leaves: stubs.leaves,
      edges: stubs.edges.map(edge => ({
        value: edge.value,
        from: edge.from === null ? null : (index.get(edge.from) ?? null),
        to: edge.to === null ? null : (index.get(edge.to) ?? null)
      }))
    };
    return { box, input, edges: stubs.edges, plan: await this.positions(input, signal), cards, types, inner };
  }

  private stubs(scene: Scene, box: string): Stubs {
    const known = this.stubbed.get(scene) ?? new Map<string, Stubs>();
    this.stubbed.set(scene, known);
    let stubs = known.get(box);
    if (!stubs) {
      stubs = stubsOf(scene.layer(box));
      known.set(box, stubs);
    }
    return stubs;
  }

  private card(scene: Scene, id: string, read: readonly string[] = []): Card {
    const cards = this.cards.get(scene) ?? new Map<string, Card>();
    this.cards.set(scene, cards);
    let card = cards.get(id);
    if (!card) {
      const box = scene.box(id);
      const node = scene.nodes.get(id);
      const stubs = read.map(value => stubOf(scene, value));
      if (box) {
        card = boxCard(box, this.measure, stubs);
      } else if (node) {
        card = nodeCard(node, scene, this.measure, stubs);
      } else {
        throw new RangeError(id);
      }
      const text = this.texts.get(id);
      card = text ? withMeasured(card, text, this.measure) : card;
      cards.set(id, card);
    }
    return card;
  }

  private closed(
    scene: Scene,
    card: Card,
    id: string,
    values: readonly string[],
    stubs: Stubs
  ): { item: Item; labels: TypeLabel[] } {
    const texts = typeTexts(values.map(value => tensorOf(scene, value))).map(
      (text, i) => `${text}${readersText(stubs.readers.get(values[i] ?? ''))}`
    );
    const widths = texts.map(text => Math.max(this.measure(text, SIZES.type, false) + 10, 14));
    const needed = widths.reduce((sum, width) => sum + width, 0);
    const width = Math.ceil(Math.max(card.width, needed));
    const bottoms: Port[] = [];
    const labels: TypeLabel[] = [];
    let x = (width - needed) / 2;
    values.forEach((value, i) => {
      const room = widths[i] ?? 0;
      const at = values.length === 1 ? width / 2 : Math.round(x + room / 2);
      x += room;
      labels.push({ value, text: texts[i] ?? '', x: at });
      if (values.length > 1) {
        bottoms.push({ value, x: at });
      }
    });
    const height = card.height + (values.length > 0 ? STRIP : 0);
    return { item: { id, width, height, tops: [], bottoms }, labels };
  }

  private frame(id: string, card: Card, opened: Plan): Item {
    const width = Math.ceil(Math.max(opened.plan.width + 2 * SIDE, openWidth(card) + SIDE));
    const left = (width - opened.plan.width) / 2;
    const ports = (values: string[], places: number[]): Port[] =>
      values.map((value, i) => ({ value, x: left + (places[i] ?? 0) }));
    return {
      id,
      width,
      height: Math.ceil(HEADER + opened.plan.height + FOOT),
      tops: ports(opened.input.enters, opened.plan.enters),
      bottoms: ports(opened.input.leaves, opened.plan.leaves)
    };
  }

  private async positions(input: LayerInput, signal?: AbortSignal): Promise<LayerPlan> {
    if (input.items.length === 0) {
      return stackPlan(input);
    }
    const dot = layerDot(input);
    const known = this.plans.get(dot);
    if (known) {
      this.plans.delete(dot); // the newest is the last
      this.plans.set(dot, known);
      return known;
    }
    let plan: LayerPlan;
    try {
      plan = readPlan(input, await this.layout(dot, signal));
    } catch (error) {
      if (signal?.aborted || error instanceof Aborted) {
        throw new Aborted();
      }
      this.problem = error instanceof Error ? error.message : String(error);
      return stackPlan(input);
    }
    this.plans.set(dot, plan);
    for (const oldest of this.plans.keys()) {
      if (this.plans.size <= KEPT) {
        break;
      }
      this.plans.delete(oldest);
    }
    return plan;
  }

  /** Why a layer was drawn without Graphviz, or "". */
  problem = '';
  private readonly plans = new Map<string, LayerPlan>();
  private cards = new WeakMap<Scene, Map<string, Card>>();
  private readonly stubbed = new WeakMap<Scene, Map<string, Stubs>>();
  private texts: ReadonlyMap<string, string> = new Map();
}

/** The stub of a value: the name of the node that computes it. */
function stubOf(scene: Scene, value: string): Stub {
  const to = value.slice(0, value.lastIndexOf(':'));
  const node = scene.nodes.get(to);
  return { text: node?.label || node?.op || to, to };
}

/** Behind the type of a value whose readers have stubs. */
function readersText(count: number | undefined): string {
  return count === undefined
    ? ''
    : count === 0
      ? __('  → elsewhere')
      : `  → ${_n('%1 stub', '%1 stubs', count)}`;
}

/** The type of a value, as its node declares it. */
export function tensorOf(scene: Scene, value: string): Tensor | undefined {
  const at = value.lastIndexOf(':');
  return scene.nodes.get(value.slice(0, at))?.outputs[parseInt(value.slice(at + 1), 10)];
}

/** From plans, each in its own coordinates, to one picture. */
function place(root: Plan): Picture {
  const layers: DrawnLayer[] = [];
  const items = new Map<string, DrawnItem>();
  const visit = (plan: Plan, frame: DrawnItem | null, origin: Point, depth: number): void => {
    const layer: DrawnLayer = {
      box: plan.box,
      x: frame?.x ?? 0,
      y: frame?.y ?? 0,
      width: frame?.width ?? plan.plan.width + 2 * MARGIN,
      height: frame?.height ?? plan.plan.height + 2 * MARGIN,
      items: [],
      edges: [],
      ports: []
    };
    layers.push(layer);
    plan.input.items.forEach((item, i) => {
      const corner = plan.plan.places[i] ?? { x: 0, y: 0 };
      const isOpen = plan.inner.has(i);
      const card = plan.cards[i];
      if (card === undefined) {
        throw new RangeError(item.id);
      }
      const drawn: DrawnItem = {
        id: item.id,
        layer: plan.box,
        depth,
        x: origin.x + corner.x,
        y: origin.y + corner.y,
        width: item.width,
        height: isOpen ? item.height : card.height,
        isOpen,
        card,
        types: plan.types[i] ?? []
      };
      if (!isOpen && item.width > card.width) {
        // Only the types need the width.
        const more = (item.width - card.width) / 2;
        drawn.x += more;
        drawn.width = card.width;
        drawn.types = drawn.types.map(label => ({ ...label, x: label.x - more }));
      }
      layer.items.push(drawn);
      items.set(item.id, drawn);
    });
    if (frame) {
      plan.input.enters.forEach((value, i) => {
        const x = origin.x + (plan.plan.enters[i] ?? 0);
        const isBehindName = x > frame.x && x < frame.x + openWidth(frame.card);
        layer.ports.push({ value, side: 'top', x, y: frame.y, length: HEADER, isBehindName });
      });
      plan.input.leaves.forEach((value, i) => {
        const x = origin.x + (plan.plan.leaves[i] ?? 0);
        layer.ports.push({
          value,
          side: 'bottom',
          x,
          y: frame.y + frame.height,
          length: -FOOT,
          isBehindName: false
        });
      });
    }
    plan.input.edges.forEach((ends, i) => {
      const curve = (plan.plan.curves[i] ?? []).map(point => ({
        x: origin.x + point.x,
        y: origin.y + point.y
      }));
      const edge = plan.edges[i];
      if (!edge || curve.length < 2) {
        return;
      }
      snap(curve, layer, edge.value, ends.from === null ? null : layer.items[ends.from], ends.to === null);
      layer.edges.push({
        key: edgeKey(plan.box, edge),
        layer: plan.box,
        edge,
        points: curve,
        bounds: boundsOf(curve),
        hasArrow: ends.to !== null && !plan.inner.has(ends.to)
      });
    });
    for (const [i, inner] of plan.inner) {
      const around = items.get(plan.input.items[i]?.id ?? '');
      if (around) {
        const left = around.x + (around.width - inner.plan.width) / 2;
        visit(inner, around, { x: left, y: around.y + HEADER }, depth + 1);
      }
    }
  };
  visit(root, null, { x: MARGIN, y: MARGIN }, 0);
  return {
    width: root.plan.width + 2 * MARGIN,
    height: root.plan.height + 2 * MARGIN,
    layers,
    items
  };
}

/** Let a curve begin and end exactly where the lines at its ends do: Graphviz leaves out a pixel or two. */
function snap(
  curve: Point[],
  layer: DrawnLayer,
  value: string,
  source: DrawnItem | null | undefined,
  leaves: boolean
): void {
  if (source && !source.isOpen) {
    const types = source.types;
    const label = types.length === 1 ? types[0] : types.find(type => type.value === value);
    curve[0] = { x: source.x + (label?.x ?? source.width / 2), y: source.y + source.height + STRIP };
  } else if (source === null) {
    const port = layer.ports.find(candidate => candidate.side === 'top' && candidate.value === value);
    if (port) {
      curve[0] = { x: port.x, y: port.y + port.length };
    }
  }
  const out = leaves
    ? layer.ports.find(candidate => candidate.side === 'bottom' && candidate.value === value)
    : undefined;
  if (out) {
    curve[curve.length - 1] = { x: out.x, y: out.y + out.length };
  }
}

export function boundsOf(points: readonly Point[]): Rect {
  let left = Infinity;
  let top = Infinity;
  let right = -Infinity;
  let bottom = -Infinity;
  for (const { x, y } of points) {
    left = Math.min(left, x);
    right = Math.max(right, x);
    top = Math.min(top, y);
    bottom = Math.max(bottom, y);
  }
  return { x: left, y: top, width: right - left, height: bottom - top };
}
