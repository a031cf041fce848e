// A value that is read far away, or by many, is named at its readers: the layout of a layer takes its time only for short edges.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Layer, LayerEdge } from '../src/graph/scene';
import { stubsOf } from '../src/graph/stubs';

const name = (i: number): string => `n${i}`;

/** A chain of so many members, with further reads: from a member, or from outside, to a member. */
function chain(count: number, reads: readonly (readonly [number | null, number])[]): Layer {
  const edges: LayerEdge[] = [];
  for (let i = 1; i < count; i++) {
    edges.push({ value: `${name(i - 1)}:0`, from: name(i - 1), to: name(i) });
  }
  for (const [from, to] of reads) {
    edges.push({
      value: from === null ? 'far:0' : `${name(from)}:0`,
      from: from === null ? null : name(from),
      to: name(to)
    });
  }
  const members = Array.from({ length: count }, (_, i) => name(i));
  const enters = reads.some(([from]) => from === null) ? ['far:0'] : [];
  return { box: '', members, enters, leaves: [], edges };
}

const all = (
  count: number,
  read: (i: number) => readonly [number | null, number]
): (readonly [number | null, number])[] => Array.from({ length: count }, (_, i) => read(i));

test('skip edges, parallel branches and heads keep their edges', () => {
  const skips = chain(
    60,
    all(8, i => [7 * i, 7 * i + 7])
  );
  assert.deepEqual(stubsOf(skips), { ...pick(skips), read: new Map(), readers: new Map() });
  const heads: Layer = {
    box: '',
    members: ['x', ...Array.from({ length: 64 }, (_, i) => name(i)), 'y'],
    enters: [],
    leaves: [],
    edges: Array.from({ length: 64 }, (_, i) => [
      { value: 'x:0', from: 'x', to: name(i) },
      { value: `${name(i)}:0`, from: name(i), to: 'y' }
    ]).flat()
  };
  assert.equal(stubsOf(heads).edges.length, 128);
});

test('a value with many readers has stubs at them, and only the reader beside it an edge', () => {
  const layer = chain(
    40,
    all(30, i => [2, 5 + i])
  );
  const { edges, read, readers } = stubsOf(layer);
  assert.equal(edges.length, 39);
  assert.equal(readers.get('n2:0'), 30);
  assert.deepEqual(read.get('n20'), ['n2:0']);
  assert.equal(read.get('n3'), undefined);
});

test('a value from outside that many read does not enter by an edge', () => {
  const { edges, enters, read } = stubsOf(
    chain(
      30,
      all(20, i => [null, 5 + i])
    )
  );
  assert.equal(edges.length, 29);
  assert.deepEqual(enters, []);
  assert.deepEqual(read.get('n6'), ['far:0']);
});

test('of many long edges the longest become stubs, until the layout is quick', () => {
  const layer = chain(
    150,
    all(110, i => [i, i + 40])
  );
  const { edges, readers } = stubsOf(layer);
  assert.ok(edges.length < 200 && readers.size > 60, `${edges.length} edges`);
});

test('values that leave a box from everywhere leave it by stubs', () => {
  const layer = chain(120, []);
  layer.leaves = layer.members.map(id => `${id}:0`);
  layer.edges.push(...layer.members.map(id => ({ value: `${id}:0`, from: id, to: null })));
  const { leaves, readers } = stubsOf(layer);
  assert.ok(leaves.length < 40);
  assert.equal(readers.get('n0:0'), 0);
});

function pick({ edges, enters, leaves }: Layer): Pick<Layer, 'edges' | 'enters' | 'leaves'> {
  return { edges, enters, leaves };
}
