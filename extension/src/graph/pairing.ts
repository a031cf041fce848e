// Which nodes and boxes of two pictures are the same, and where the pictures differ.

import type { ComparedItem } from '../protocol/messages';
import type { Change, ChangeKind } from './draw';
import type { Scene } from './scene';

/** The first picture, or the second. */
export type Side = 0 | 1;

export function other(side: Side): Side {
  return side === 0 ? 1 : 0;
}

/** A node or box of one picture, with that of the other. */
export interface Pair {
  /** Ids in both pictures; undefined where it is missing. */
  ids: readonly [string | undefined, string | undefined];
  kind: ChangeKind;
  changes: readonly string[];
  block: string;
}

/** The kinds of differences, the most important first. */
const RANK: readonly ChangeKind[] = ['added', 'removed', 'changed', 'values', 'same'];

export class Pairing {
  /** All pairs, in the order of reading. */
  readonly pairs: readonly Pair[];
  /** The differences. If a Block was added, removed or changed, its contents count as part of that one difference. */
  readonly differences: readonly Pair[];

  constructor(
    items: readonly ComparedItem[],
    private readonly scenes: readonly [Scene, Scene]
  ) {
    this.pairs = this.merged(items);
    for (const pair of this.pairs) {
      for (const side of [0, 1] as const) {
        const id = pair.ids[side];
        if (id !== undefined) {
          this.of[side].set(id, pair);
        }
      }
    }
    this.differences = this.pairs.filter(pair => pair.kind !== 'same' && !this.isCovered(pair));
  }

  /** The pair of a node or box; undefined of what only gathers, as a fold does. */
  pair(side: Side, id: string): Pair | undefined {
    return this.of[side].get(id);
  }

  /** The partner of a node or box in the other picture; of a fold, the fold that gathers the same operators, if any. */
  partner(side: Side, id: string): string | undefined {
    const pair = this.pair(side, id);
    if (pair) {
      return pair.ids[other(side)];
    }
    const kind = this.scenes[side].box(id)?.kind;
    const there = this.scenes[other(side)];
    for (const leaf of kind === undefined ? [] : this.scenes[side].leaves(id)) {
      const same = this.pair(side, leaf)?.ids[other(side)];
      const box = same !== undefined && there.above(same).find(each => there.box(each)?.kind === kind);
      if (box) {
        return box;
      }
    }
    return undefined;
  }

  /** The boxes that are open in the other picture when these are in one; boxes without a partner stay as they are. */
  openedLike(side: Side, open: ReadonlySet<string>, before: ReadonlySet<string>): Set<string> {
    const there = this.scenes[other(side)];
    const found = new Set([...before].filter(id => this.partner(other(side), id) === undefined));
    for (const id of open) {
      const partner = this.partner(side, id);
      if (partner !== undefined && there.box(partner)) {
        found.add(partner);
        there.above(partner).forEach(box => found.add(box));
      }
    }
    return found;
  }

  /** How each node and box of a picture differs; a box that is the same says how many differences are inside. */
  changes(side: Side): Map<string, Change> {
    const scene = this.scenes[side];
    const found = new Map<string, Change>();
    for (const [id, pair] of this.of[side]) {
      found.set(id, { kind: pair.kind, count: 0 });
    }
    for (const pair of this.differences) {
      const id = pair.ids[side];
      for (const box of id === undefined ? [] : scene.above(id)) {
        const change = found.get(box) ?? { kind: 'same', count: 0 };
        const inside = pair.kind === 'values' ? 'values' : 'changed';
        const isOwn = change.kind !== 'same' && change.kind !== 'values';
        found.set(box, {
          kind: isOwn ? change.kind : strongest(change.kind, inside),
          count: change.count + 1
        });
      }
    }
    return found;
  }

  /**
   * The pairs of dissolved boxes and their nodes are one: of a Block that was replaced by another its operators are no
   * differences besides.
   */
  private merged(items: readonly ComparedItem[]): Pair[] {
    const found = new Map<string, Pair>();
    const whole = [new Set<string>(), new Set<string>()];
    for (const item of items) {
      const ids = [this.resolved(0, item.first), this.resolved(1, item.second)] as const;
      if (ids.some((id, side) => id !== undefined && whole[side]?.has(id) && ids[1 - side] === undefined)) {
        continue;
      }
      ids.forEach((id, side) => id !== undefined && ids[1 - side] !== undefined && whole[side]?.add(id));
      const key = ids.join(' ');
      const known = found.get(key);
      found.set(key, {
        ids,
        kind: known ? strongest(known.kind, item.kind) : item.kind,
        changes: [...new Set([...(known?.changes ?? []), ...item.changes])],
        block: item.block
      });
    }
    return [...found.values()];
  }

  private resolved(side: Side, id: string | null): string | undefined {
    return id === null ? undefined : this.scenes[side].resolve(id);
  }

  private isCovered(pair: Pair): boolean {
    return ([0, 1] as const).some(side => {
      const id = pair.ids[side];
      return (
        id !== undefined && this.scenes[side].above(id).some(box => this.pair(side, box)?.kind === pair.kind)
      );
    });
  }

  private readonly of = [new Map<string, Pair>(), new Map<string, Pair>()] as const;
}

function strongest(one: ChangeKind, two: ChangeKind): ChangeKind {
  return RANK.indexOf(one) <= RANK.indexOf(two) ? one : two;
}
