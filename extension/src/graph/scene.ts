// The graph of a reply as a tree of boxes, each box a layer: its members, and the edges between them.

import type { GraphBox, GraphNode, GraphReply, Read } from '../protocol/messages';

/** Names output `output` of a node: `n7:0`. */
export type ValueKey = string;

/** An edge of one layer. A `from` of null: the value enters the box; a `to` of null: it leaves the box. */
export interface LayerEdge {
  value: ValueKey;
  from: string | null;
  to: string | null;
}

/** What lies directly in one box, in topological order. */
export interface Layer {
  /** "" is the whole graph. */
  box: string;
  members: string[];
  enters: ValueKey[];
  leaves: ValueKey[];
  edges: LayerEdge[];
}

/** The part of one read that lies in one layer. */
export type OnPart = (box: string, value: ValueKey, from: string | null, to: string | null) => void;

export function valueKey(node: string, output: number): ValueKey {
  return `${node}:${output}`;
}

/** A key of an edge that is unique in the scene. */
export function edgeKey(box: string, edge: LayerEdge): string {
  return `${box}|${edge.value}|${edge.from ?? ''}|${edge.to ?? ''}`;
}

/** A key of the place where a value passes the border of a box. */
export function portKey(box: string, value: ValueKey, side: 'top' | 'bottom'): string {
  return `${box}|${value}|${side}`;
}

/**
 * The tree of boxes. A box of kind `block` that holds one operator and nothing else is dissolved: its operator stands in
 * its place.
 */
export class Scene {
  readonly boxes = new Map<string, GraphBox>();
  readonly nodes = new Map<string, GraphNode>();
  /** Id of the box around a node or box; "" at the top. */
  readonly parent = new Map<string, string>();
  private readonly layers = new Map<string, Layer>();
  private readonly depth = new Map<string, number>([['', 0]]);
  /** Node -> the path of a Block of which it is all. */
  private readonly dissolvedBlocks: [string, string | null][] = [];
  private readonly dissolved = new Map<string, string>();
  private readonly onlyIn = new Map<string, GraphBox>();
  /** The prologue and all boxes in it. */
  private readonly prologues = new Set<string>();
  private readers: Map<string, string[]> | null = null;

  constructor(reply: Pick<GraphReply, 'boxes' | 'nodes'>) {
    this.layers.set('', emptyLayer(''));
    const around = new Map(reply.boxes.map(box => [box.id, box.parent]));
    this.dissolve(reply);
    for (const box of reply.boxes) {
      if (this.dissolved.has(box.id)) {
        continue;
      }
      const parent = this.depth.has(box.parent) ? box.parent : '';
      this.boxes.set(box.id, box);
      this.parent.set(box.id, parent);
      this.depth.set(box.id, (this.depth.get(parent) ?? 0) + 1);
      this.layers.set(box.id, emptyLayer(box.id));
      if (box.kind === 'prologue' || this.prologues.has(parent)) {
        this.prologues.add(box.id);
      }
    }
    for (const node of reply.nodes) {
      this.nodes.set(node.id, node);
      let box = node.box;
      while (this.dissolved.has(box)) {
        box = around.get(box) ?? '';
      }
      this.parent.set(node.id, this.layers.has(box) ? box : '');
    }
    this.placeMembers();
    this.liftEdges();
  }

  layer(box: string): Layer {
    return this.layers.get(box) ?? emptyLayer(box);
  }

  box(id: string): GraphBox | undefined {
    return this.boxes.get(id);
  }

  /** The outermost dissolved box of which a node is all. */
  only(node: string): GraphBox | undefined {
    return this.onlyIn.get(node);
  }

  /** Nodes that stand in the place of the dissolved boxes of a Block: it is one operator. */
  standingFor(path: string): string[] {
    return [...this.dissolvedBlocks].filter(([, block]) => block === path).map(([node]) => node);
  }

  /** The node that stands in the place of a dissolved box; any other id as it is; undefined if it is not in the scene. */
  resolve(id: string): string | undefined {
    const standing = this.dissolved.get(id) ?? id;
    return this.parent.has(standing) ? standing : undefined;
  }

  /** The boxes around a node or box, innermost first. */
  above(id: string): string[] {
    const boxes: string[] = [];
    for (let box = this.parent.get(id) ?? ''; box !== ''; box = this.parent.get(box) ?? '') {
      boxes.push(box);
    }
    return boxes;
  }

  /** What is drawn for a node or box while only these boxes are open: itself, or the outermost closed box around it. */
  shown(id: string, open: ReadonlySet<string>): string {
    let shown = id;
    for (let box = this.parent.get(id) ?? ''; box !== ''; box = this.parent.get(box) ?? '') {
      if (!open.has(box)) {
        shown = box;
      }
    }
    return shown;
  }

  /** All nodes in a box, at every level; of a node the node itself. */
  leaves(id: string): string[] {
    if (this.nodes.has(id)) {
      return [id];
    }
    const found: string[] = [];
    const waiting = [...this.layer(id).members].reverse();
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      if (this.nodes.has(next)) {
        found.push(next);
      } else {
        waiting.push(...[...this.layer(next).members].reverse());
      }
    }
    return found;
  }

  /** Ids of the nodes that read a node, each once. */
  readersOf(node: string): readonly string[] {
    if (!this.readers) {
      this.readers = new Map();
      for (const reader of this.nodes.values()) {
        for (const source of new Set(reader.inputs.map(read => read.node))) {
          const list = this.readers.get(source);
          if (list) {
            list.push(reader.id);
          } else {
            this.readers.set(source, [reader.id]);
          }
        }
      }
    }
    return this.readers.get(node) ?? [];
  }

  /**
   * What a node outside of the prologue reads of it. Each is a chip of the node, as its parameters are: an edge for each
   * of them would cross the whole picture.
   */
  prepared(node: GraphNode): Read[] {
    return this.isInPrologue(node.id) ? [] : node.inputs.filter(read => this.isInPrologue(read.node));
  }

  /** The names of the parameters that a node is computed from, which it or what feeds it has as chips; at most three. */
  parametersOf(node: string): string[] {
    const names = new Set<string>();
    const seen = new Set([node]);
    for (const id of seen) {
      const found = this.nodes.get(id);
      const own = found?.kind === 'parameter' || found?.kind === 'aux' ? [found.label] : [];
      for (const name of [...own, ...(found?.badges ?? []).map(badge => badge.name)]) {
        names.add(name);
      }
      if (names.size >= 3) {
        break;
      }
      found?.inputs.forEach(read => seen.add(read.node));
    }
    return [...names].slice(0, 3);
  }

  private isInPrologue(node: string): boolean {
    return this.prologues.has(this.parent.get(node) ?? '');
  }

  /** Divide the edge from a node to a reader among the layers that it passes. */
  lift(value: ValueKey, source: string, reader: string, onPart: OnPart): void {
    let from = source;
    let to = reader;
    let fromBox = this.parent.get(from) ?? '';
    let toBox = this.parent.get(to) ?? '';
    const out = (): void => {
      onPart(fromBox, value, from, null);
      from = fromBox;
      fromBox = this.parent.get(from) ?? '';
    };
    const into = (): void => {
      onPart(toBox, value, null, to);
      to = toBox;
      toBox = this.parent.get(to) ?? '';
    };
    while (this.depthOf(fromBox) > this.depthOf(toBox)) {
      out();
    }
    while (this.depthOf(toBox) > this.depthOf(fromBox)) {
      into();
    }
    while (fromBox !== toBox) {
      out();
      into();
    }
    onPart(fromBox, value, from, to);
  }

  private dissolve(reply: Pick<GraphReply, 'boxes' | 'nodes'>): void {
    const members = new Map<string, number>();
    const count = (box: string): void => void members.set(box, (members.get(box) ?? 0) + 1);
    reply.boxes.forEach(box => count(box.parent));
    reply.nodes.forEach(node => count(node.box));
    const boxes = new Map(reply.boxes.map(box => [box.id, box]));
    for (const node of reply.nodes) {
      let box = node.kind === 'operator' ? boxes.get(node.box) : undefined;
      while (box?.kind === 'block' && members.get(box.id) === 1) {
        this.dissolved.set(box.id, node.id);
        this.dissolvedBlocks.push([node.id, box.block]);
        this.onlyIn.set(node.id, box);
        box = boxes.get(box.parent);
      }
    }
  }

  private depthOf(box: string): number {
    return this.depth.get(box) ?? 0;
  }

  /** Members in the order of their first node. Boxes without a node are left out. */
  private placeMembers(): void {
    const placed = new Set<string>(['']);
    for (const node of this.nodes.keys()) {
      let member = node;
      while (!placed.has(member)) {
        placed.add(member);
        const box = this.parent.get(member) ?? '';
        this.layer(box).members.push(member);
        member = box;
      }
    }
  }

  private liftEdges(): void {
    const seen = new Set<string>();
    const add: OnPart = (box, value, from, to) => {
      const edge = { value, from, to };
      const key = edgeKey(box, edge);
      if (seen.has(key)) {
        return;
      }
      seen.add(key);
      const layer = this.layer(box);
      layer.edges.push(edge);
      const port = `${box}|${value}|`;
      if (from === null && !seen.has(`${port}in`)) {
        seen.add(`${port}in`);
        layer.enters.push(value);
      }
      if (to === null && !seen.has(`${port}out`)) {
        seen.add(`${port}out`);
        layer.leaves.push(value);
      }
    };
    for (const node of this.nodes.values()) {
      const prepared = new Set(this.prepared(node));
      for (const read of node.inputs) {
        if (this.nodes.has(read.node) && !prepared.has(read)) {
          this.lift(valueKey(read.node, read.output), read.node, node.id, add);
        }
      }
    }
  }
}

function emptyLayer(box: string): Layer {
  return { box, members: [], enters: [], leaves: [], edges: [] };
}
