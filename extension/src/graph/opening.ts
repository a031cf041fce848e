// Which boxes are open: when a graph is first shown, and when a new graph of the same Block takes its place.

import type { Scene } from './scene';

/** A graph of at most so many nodes is shown with all its boxes open. */
const SMALL = 24;
/** Else boxes other than folds are opened while a layer holds no other box to choose from, and so few members. */
const FEW = 40;

const FRAMES: ReadonlySet<string> = new Set(['kernel', 'session', 'prologue']);

/**
 * The boxes that are open in a graph that nobody has opened or closed a box of. `isOfCalls`: each box at the top is a
 * graph of its own, so that what is to be seen first is how these were called.
 */
export function firstOpen(scene: Scene, isOfCalls = false): Set<string> {
  const open = new Set<string>();
  const isLater = (id: string): boolean => scene.box(id)?.kind === 'prologue';
  const running = [...scene.nodes.keys()].filter(id => !scene.above(id).some(isLater));
  if (running.length <= SMALL && !isOfCalls) {
    scene.boxes.forEach((_, id) => {
      if (![id, ...scene.above(id)].some(isLater)) {
        open.add(id);
      }
    });
    return open;
  }
  let layer = scene.layer('');
  for (;;) {
    const boxes = layer.members.filter(id => scene.box(id) && !isLater(id));
    const operators = layer.members.filter(id => scene.nodes.get(id)?.kind === 'operator');
    const [only] = boxes;
    if (
      boxes.length !== 1 ||
      only === undefined ||
      scene.box(only)?.kind === 'fold' ||
      operators.length > 3
    ) {
      return open;
    }
    layer = scene.layer(only);
    if (layer.members.length > FEW) {
      return open;
    }
    open.add(only);
  }
}

/** Nodes and boxes that are drawn at most when boxes are opened to a depth: more take seconds to be laid out. */
export const DRAWN = 3000;

/** Boxes opened to a depth. `boxes`: how many there are to that depth; `drawn`: nodes and boxes that are then drawn. */
export interface Opened {
  open: Set<string>;
  boxes: number;
  drawn: number;
}

/**
 * Open all boxes to a depth, the outer ones first, while what is drawn stays within a limit. Folds and parts, which only
 * gather, are no depth of their own.
 */
export function openedTo(scene: Scene, depth: number, limit: number = DRAWN): Opened {
  const open = new Set<string>();
  let drawn = scene.layer('').members.length;
  let boxes = 0;
  let level = scene.layer('').members;
  for (let at = 0; at < depth && level.length > 0; at++) {
    const next: string[] = [];
    const waiting = level.filter(id => scene.box(id));
    for (const id of waiting) {
      const { members } = scene.layer(id);
      const kind = scene.box(id)?.kind;
      boxes++;
      if (drawn + members.length <= limit) {
        open.add(id);
        drawn += members.length;
      }
      if (kind === 'fold' || kind === 'part') {
        waiting.push(...members.filter(member => scene.box(member)));
      } else {
        next.push(...members);
      }
    }
    level = next;
  }
  // A box within one that stays closed would not be seen.
  for (const id of open) {
    if (scene.above(id).some(box => !open.has(box))) {
      open.delete(id);
    }
  }
  return { open, boxes, drawn };
}

/** How many boxes stand in one another at most, without folds and parts. */
export function depthOf(scene: Scene): number {
  let deepest = 0;
  for (const [id, box] of scene.boxes) {
    if (box.kind !== 'fold' && box.kind !== 'part') {
      const around = scene.above(id).filter(each => !['fold', 'part'].includes(scene.box(each)?.kind ?? ''));
      deepest = Math.max(deepest, around.length + 1);
    }
  }
  return deepest;
}

/** What opens with a box: the only box in it, and of a fold the first of its Blocks, as a sample. */
export function openedWith(scene: Scene, id: string): string[] {
  const opened = [id];
  let box = scene.box(id);
  while (box) {
    const inner = scene.layer(box.id).members.filter(member => scene.box(member));
    const next =
      box.kind === 'fold' || (inner.length === 1 && scene.layer(box.id).members.length === 1)
        ? inner[0]
        : undefined;
    if (next === undefined) {
      break;
    }
    opened.push(next);
    box = scene.box(next);
  }
  return opened;
}

/** A name of a box that is the same in another graph of the Block: ids are not, and kernels lie around other Blocks. */
export function nameOf(scene: Scene, id: string): string {
  const isFrame = (box: string): boolean => FRAMES.has(scene.box(box)?.kind ?? '');
  return [id, ...scene.above(id)]
    .filter(box => box === id || !isFrame(box))
    .reverse()
    .map(box => {
      const { kind, label, block } = scene.box(box) ?? { kind: '', label: '', block: '' };
      return kind === 'block' ? `${block ?? ''} ${label}` : `${kind} ${label}`;
    })
    .join(' > ');
}

/** The boxes of a scene that have these names. */
export function withNames(scene: Scene, names: ReadonlySet<string>): Set<string> {
  const found = new Set<string>();
  for (const id of scene.boxes.keys()) {
    if (names.has(nameOf(scene, id))) {
      found.add(id);
    }
  }
  return found;
}
