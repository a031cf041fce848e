// Which edges of a layer are drawn as stubs: a value that is read far away, or by many, is named at its readers instead.

import type { Layer, LayerEdge, ValueKey } from './scene';

/** A value with so many readers far from it has stubs at all of them. */
const MANY = 8;
/** Further stubs are made until the squares of the numbers of edges beside each rank have this sum: Graphviz's time. */
const BUDGET = 4000;

export interface Stubs {
  /** The edges that are drawn. */
  edges: LayerEdge[];
  enters: ValueKey[];
  leaves: ValueKey[];
  /** What a member reads by a stub. */
  read: Map<string, ValueKey[]>;
  /** How many members read a value by a stub; 0: it only leaves the box by one. */
  readers: Map<ValueKey, number>;
}

/** An edge beside other members: from behind rank `from` to before rank `to`. */
interface Long {
  edge: LayerEdge;
  from: number;
  to: number;
}

export function stubsOf(layer: Layer): Stubs {
  const longs = longEdges(layer);
  const byValue = new Map<ValueKey, Long[]>();
  for (const long of longs) {
    const list = byValue.get(long.edge.value);
    if (list) {
      list.push(long);
    } else {
      byValue.set(long.edge.value, [long]);
    }
  }
  const beside = new Map<number, number>();
  let cost = 0;
  const count = (list: readonly Long[], by: 1 | -1): void => {
    for (const { from, to } of list) {
      for (let rank = from; rank < to; rank++) {
        const before = beside.get(rank) ?? 0;
        beside.set(rank, before + by);
        cost += (before + by) ** 2 - before ** 2;
      }
    }
  };
  count(longs, 1);
  const length = (list: readonly Long[]): number => list.reduce((sum, { from, to }) => sum + to - from, 0);
  const ranked = [...byValue.values()].sort((a, b) => length(b) - length(a));
  const gone = new Set<LayerEdge>();
  for (const list of ranked) {
    if (list.length >= MANY || cost > BUDGET) {
      count(list, -1);
      list.forEach(({ edge }) => gone.add(edge));
    }
  }
  if (gone.size === 0) {
    const { edges, enters, leaves } = layer;
    return { edges, enters, leaves, read: new Map(), readers: new Map() };
  }
  const edges = layer.edges.filter(edge => !gone.has(edge));
  const read = new Map<string, ValueKey[]>();
  const readers = new Map<ValueKey, number>();
  for (const { value, to } of gone) {
    readers.set(value, (readers.get(value) ?? 0) + (to === null ? 0 : 1));
    if (to !== null) {
      read.set(to, [...(read.get(to) ?? []), value]);
    }
  }
  const entering = new Set(edges.filter(edge => edge.from === null).map(edge => edge.value));
  const leaving = new Set(edges.filter(edge => edge.to === null).map(edge => edge.value));
  return {
    edges,
    enters: layer.enters.filter(value => entering.has(value)),
    leaves: layer.leaves.filter(value => leaving.has(value)),
    read,
    readers
  };
}

/** The edges that pass other members, and those that lie beside another one between the same two members. */
function longEdges(layer: Layer): Long[] {
  const ranks = new Map<string, number>();
  const place = new Map(layer.members.map((id, i) => [id, i]));
  const into = new Map<string, string[]>();
  for (const { from, to } of layer.edges) {
    if (from !== null && to !== null && (place.get(from) ?? 0) < (place.get(to) ?? 0)) {
      into.set(to, [...(into.get(to) ?? []), from]);
    }
  }
  let last = 0;
  for (const id of layer.members) {
    const rank = Math.max(0, ...(into.get(id) ?? []).map(source => (ranks.get(source) ?? 0) + 1));
    ranks.set(id, rank);
    last = Math.max(last, rank);
  }
  const longs: Long[] = [];
  const pairs = new Set<string>();
  for (const edge of layer.edges) {
    const from = edge.from === null ? -1 : (ranks.get(edge.from) ?? 0);
    const to = edge.to === null ? last + 1 : (ranks.get(edge.to) ?? 0);
    const pair = `${edge.from ?? ''}|${edge.to ?? ''}`;
    const isBeside = edge.from !== null && edge.to !== null && pairs.has(pair);
    pairs.add(pair);
    if (to - from > 1 || isBeside) {
      longs.push({ edge, from: isBeside ? from : from + 1, to });
    }
  }
  return longs;
}
