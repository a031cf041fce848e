// Which boxes are open: when a graph is first shown, and when a new graph of the same Block takes its place.

import type { Scene } from './scene';

/** A graph of at most so many nodes is shown with all its boxes open. */
const SMALL = 24;
/** Else boxes other than folds are opened while a layer holds no other box to choose from, and so few members. */
const FEW = 40;

const FRAMES: ReadonlySet<string> = new Set(['kernel', 'session', 'prologue']);

/** The boxes that are open in a graph that nobody has opened or closed a box of. */
export function firstOpen(scene: Scene): Set<string> {
  const open = new Set<string>();
  const isLater = (id: string): boolean => scene.box(id)?.kind === 'prologue';
  const running = [...scene.nodes.keys()].filter(id => !scene.above(id).some(isLater));
  if (running.length <= SMALL) {
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
