// Walking in a picture: along edges with the arrow keys, and paths to and from a node.

import type { DrawnItem, Picture } from './compose';
import type { OnPart, Scene } from './scene';
import { edgeKey, portKey, valueKey } from './scene';

export type Step = 'up' | 'down' | 'left' | 'right';

/** The drawn item that an arrow key leads to; null where there is none. */
export function step(
  scene: Scene,
  picture: Picture,
  open: ReadonlySet<string>,
  from: string,
  way: Step
): string | null {
  const item = picture.items.get(from);
  if (!item) {
    return null;
  }
  if (way === 'up' || way === 'down') {
    return nearest(item, neighbours(scene, open, from, way), picture);
  }
  return sibling(item, picture, way);
}

/** What is drawn of the readers (down) or sources (up) of a node or box, without what lies inside of it. */
export function neighbours(
  scene: Scene,
  open: ReadonlySet<string>,
  id: string,
  way: 'up' | 'down'
): string[] {
  const inside = new Set(scene.leaves(id));
  const found = new Set<string>();
  for (const leaf of inside) {
    const others =
      way === 'down' ? scene.readersOf(leaf) : (scene.nodes.get(leaf)?.inputs ?? []).map(read => read.node);
    for (const other of others) {
      if (!inside.has(other) && scene.nodes.has(other)) {
        found.add(scene.shown(other, open));
      }
    }
  }
  found.delete(id);
  return [...found];
}

/** Of several the one that is drawn nearest: the reader right below before the end of a skip edge. */
function nearest(item: DrawnItem, ids: readonly string[], picture: Picture): string | null {
  const middle = item.x + item.width / 2;
  let best: string | null = null;
  let shortest = Infinity;
  for (const id of ids) {
    const other = picture.items.get(id);
    if (other) {
      const distance = Math.hypot(other.x + other.width / 2 - middle, other.y - item.y);
      if (distance < shortest) {
        shortest = distance;
        best = id;
      }
    }
  }
  return best;
}

/** The nearest item to the left or right whose height overlaps, or is close. */
function sibling(item: DrawnItem, picture: Picture, way: 'left' | 'right'): string | null {
  const sign = way === 'left' ? -1 : 1;
  const middle = { x: item.x + item.width / 2, y: item.y + item.height / 2 };
  let best: string | null = null;
  let shortest = Infinity;
  for (const other of picture.items.values()) {
    if (other.id === item.id || other.layer !== item.layer) {
      continue;
    }
    const across = sign * (other.x + other.width / 2 - middle.x);
    const gap = Math.max(other.y - middle.y, middle.y - (other.y + other.height), 0);
    if (across > 1 && across + 3 * gap < shortest && gap < Math.max(across, 60)) {
      shortest = across + 3 * gap;
      best = other.id;
    }
  }
  return best;
}

/** What feeds a node or box, and what reads it, directly or through others. */
export interface Trace {
  /** Ids of nodes and of the boxes around them. */
  up: Set<string>;
  down: Set<string>;
  /** Keys of edges, and of the places where they pass borders. */
  upEdges: Set<string>;
  downEdges: Set<string>;
}

/** All paths that end in, or begin at, a node or box. Edges inside of closed boxes are in it too. */
export function trace(scene: Scene, id: string): Trace {
  const start = scene.leaves(id);
  const found: Trace = { up: new Set(), down: new Set(), upEdges: new Set(), downEdges: new Set() };
  const noteIn =
    (edges: Set<string>): OnPart =>
    (box, value, from, to) => {
      edges.add(edgeKey(box, { value, from, to }));
      if (from === null) {
        edges.add(portKey(box, value, 'top'));
      } else if (to === null) {
        edges.add(portKey(box, value, 'bottom'));
      }
    };
  const around = new Set([id, ...scene.above(id)]);
  const mark = (members: Set<string>, leaf: string): void => {
    for (const member of [leaf, ...scene.above(leaf)]) {
      if (members.has(member)) {
        break;
      }
      if (!around.has(member)) {
        members.add(member);
      }
    }
  };
  const follow = (members: Set<string>, next: (leaf: string) => Iterable<string>): void => {
    const seen = new Set(start);
    const waiting = [...start];
    for (let leaf = waiting.pop(); leaf !== undefined; leaf = waiting.pop()) {
      for (const other of next(leaf)) {
        if (!seen.has(other)) {
          seen.add(other);
          waiting.push(other);
          mark(members, other);
        }
      }
    }
  };
  const noteUp = noteIn(found.upEdges);
  follow(found.up, function* (leaf) {
    for (const read of scene.nodes.get(leaf)?.inputs ?? []) {
      if (scene.nodes.has(read.node)) {
        scene.lift(valueKey(read.node, read.output), read.node, leaf, noteUp);
        yield read.node;
      }
    }
  });
  const noteDown = noteIn(found.downEdges);
  follow(found.down, function* (leaf) {
    for (const reader of scene.readersOf(leaf)) {
      for (const read of scene.nodes.get(reader)?.inputs ?? []) {
        if (read.node === leaf) {
          scene.lift(valueKey(leaf, read.output), leaf, reader, noteDown);
        }
      }
      yield reader;
    }
  });
  return found;
}
