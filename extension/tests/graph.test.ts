// The graph viewer, without Lab: layers, their layout, what opens, the camera, and walking.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { anchored, cleared, fitted, kept, revealed, started, zoomed } from '../src/graph/camera';
import { HEADER, cut, measuredX, nodeCard, typeText } from '../src/graph/card';
import type { Picture } from '../src/graph/compose';
import { Composer } from '../src/graph/compose';
import { family } from '../src/graph/draw';
import type { Point } from '../src/graph/layer';
import { layerDot, readPlan } from '../src/graph/layer';
import { firstOpen, nameOf, openedWith, withNames } from '../src/graph/opening';
import { Scene } from '../src/graph/scene';
import { search } from '../src/graph/search';
import { neighbours, step, trace } from '../src/graph/walk';
import { Aborted } from '../src/graph/worker';
import type { GraphReply } from '../src/protocol/messages';
import { deep, graphviz, ids, measure, pictureOf } from './layouts';
import { box, graph, kernelBox, node, noLayout } from './records';

// -- scene ------------------------------------------------------------------------------------------------------------

test('edges belong to the layer where their ends part; what enters and leaves a box is known', () => {
  const scene = new Scene(graph());
  assert.deepEqual(scene.layer('').members, ['n0', 'b0', 'n3', 'n4', 'out0']);
  const edges = scene.layer('').edges.map(edge => `${edge.value} ${edge.from}>${edge.to}`);
  assert.deepEqual(edges, ['n0:0 n0>b0', 'n2:0 b0>n3', 'n0:0 n0>n3', 'n3:0 n3>n4', 'n4:0 n4>out0']);
  const inside = scene.layer('b0');
  assert.deepEqual([inside.enters, inside.leaves], [['n0:0'], ['n2:0']]);
  assert.deepEqual(
    inside.edges.map(edge => `${edge.from}>${edge.to}`),
    ['null>n1', 'n1>n2', 'n2>null']
  );
});

test('a Block of one operator is dissolved into it; a kernel is not', () => {
  const scene = new Scene(graph());
  assert.equal(scene.box('b1'), undefined);
  assert.equal(scene.resolve('b1'), 'n4');
  assert.equal(scene.resolve('b0'), 'b0');
  assert.equal(scene.resolve('gone'), undefined);
  assert.equal(nodeCard(scene.nodes.get('n4')!, scene, measure).aside, 'output Dense');
  const kernel = { boxes: [{ ...kernelBox, parent: '' }], nodes: [node('n0', { box: 'g0' })] };
  assert.deepEqual(new Scene(kernel).layer('').members, ['g0']);
});

test('one value that two members read is one edge each; a value enters a box once', () => {
  const reply = {
    boxes: [box('b0', { operators: 2 })],
    nodes: [
      node('n0'),
      node('n1', { box: 'b0', reads: ['n0', 'n0'] }),
      node('n2', { box: 'b0', reads: ['n0'] })
    ]
  };
  const scene = new Scene(reply);
  assert.equal(scene.layer('').edges.length, 1);
  assert.deepEqual(scene.layer('b0').enters, ['n0:0']);
  assert.equal(scene.layer('b0').edges.length, 2);
});

test('what the prologue prepares is a chip of its readers, and no edge', () => {
  const reply = {
    boxes: [box('b0', { kind: 'prologue', operators: 2 })],
    nodes: [
      node('n0'),
      node('n1', {
        box: 'b0',
        badges: [{ name: 'weight', path: 'weight', shape: [3, 2], dtype: 'float32', kind: 'parameter' }]
      }),
      node('n2', { box: 'b0', reads: ['n1'] }),
      node('n3', { reads: ['n0', 'n2'] })
    ]
  };
  const scene = new Scene(reply);
  const edges = scene.layer('').edges.map(edge => `${edge.from}>${edge.to}`);
  assert.deepEqual(edges, ['n0>n3']);
  assert.equal(scene.layer('b0').edges.length, 1);
  const chips = nodeCard(scene.nodes.get('n3')!, scene, measure).chips;
  assert.deepEqual(
    chips.map(chip => [chip.kind, chip.text.split(' ')[0]]),
    [['prepared', 'weight']]
  );
});

// -- layout -----------------------------------------------------------------------------------------------------------

test('Graphviz puts an edge exactly on the port of an opened box', async () => {
  const input = {
    items: [
      { id: 'a', width: 100, height: 40, tops: [], bottoms: [] },
      { id: 'b', width: 300, height: 200, tops: [{ value: 'v', x: 31 }], bottoms: [{ value: 'w', x: 270 }] }
    ],
    enters: [],
    leaves: ['w'],
    edges: [
      { value: 'v', from: 0, to: 1 },
      { value: 'w', from: 1, to: null }
    ]
  };
  const plan = readPlan(input, await graphviz().layout(layerDot(input)));
  const [, b] = plan.places;
  const end = plan.curves[0]?.at(-1);
  const start = plan.curves[1]?.[0];
  assert.ok(b && end && start);
  assert.ok(
    Math.abs(end.x - (b.x + 31)) < 1.5 && Math.abs(end.y - b.y) < 2.5,
    'the first edge ends at the port'
  );
  assert.ok(Math.abs(start.x - (b.x + 270)) < 1.5 && Math.abs(start.y - (b.y + 200)) < 2.5);
});

/** The numbers of an overlay in a picture: where they are written. */
function measuredRects(picture: Picture): { id: string; x: number; y: number; width: number }[] {
  return [...picture.items.values()].map(item => ({
    id: item.id,
    x: item.x + (item.isOpen ? measuredX(item.card) : item.card.titleX),
    y: item.y + (item.isOpen ? HEADER / 2 + 4 : item.height - 8),
    width: item.card.measuredWidth
  }));
}

test('the numbers of an overlay have room of their own: on no edge, and within their member', async () => {
  for (const open of [[], ['b0']]) {
    const { scene, picture: plain, composer } = await pictureOf(graph(), open);
    const texts = [...plain.items.keys()].map((id): [string, string] => [id, `-0.9753 to 0.9869 of ${id}`]);
    composer.measured = new Map(texts);
    const picture = await composer.compose(scene, new Set(open));
    assert.equal(composer.problem, '');
    for (const text of measuredRects(picture)) {
      const item = picture.items.get(text.id);
      assert.ok(item && text.x > item.x && text.x + text.width < item.x + item.width, text.id);
      assert.equal(item.card.measured, `-0.9753 to 0.9869 of ${text.id}`);
      const isOn = (x: number, y: number): boolean =>
        x > text.x && x < text.x + text.width && y > text.y - 10 && y < text.y + 2;
      for (const { edges, ports } of picture.layers) {
        for (const point of edges.flatMap(edge => along(edge.points))) {
          assert.ok(!isOn(point.x, point.y), `an edge is on the number of ${text.id}`);
        }
        for (const port of ports) {
          assert.ok(port.isBehindName || !isOn(port.x, port.y + HEADER / 2), `a port of ${text.id}`);
        }
      }
    }
    composer.measured = new Map();
    const again = await composer.compose(scene, new Set(open));
    assert.deepEqual([again.width, again.height], [plain.width, plain.height]);
  }
});

/** Points on Bézier curves. */
function along(points: readonly { x: number; y: number }[]): { x: number; y: number }[] {
  const found = [];
  for (let i = 0; i + 3 < points.length; i += 3) {
    const [a, b, c, d] = points.slice(i, i + 4) as [Point, Point, Point, Point];
    for (let t = 0; t <= 1; t += 0.02) {
      const u = 1 - t;
      const mix = (of: 'x' | 'y'): number =>
        u * u * u * a[of] + 3 * u * u * t * b[of] + 3 * u * t * t * c[of] + t * t * t * d[of];
      found.push({ x: mix('x'), y: mix('y') });
    }
  }
  return found;
}

test('an edge goes on inside an opened box where it met the border; nothing overlaps', async () => {
  const { picture, composer } = await pictureOf(graph(), ['b0']);
  assert.equal(composer.problem, '');
  const frame = picture.items.get('b0');
  const [outer, inner] = picture.layers;
  assert.ok(frame?.isOpen && outer && inner);
  const entering = outer.edges.find(edge => edge.edge.to === 'b0')?.points.at(-1);
  const port = inner.ports.find(candidate => candidate.side === 'top');
  const first = inner.edges.find(edge => edge.edge.from === null)?.points[0];
  assert.ok(entering && port && first);
  assert.ok(Math.hypot(entering.x - port.x, entering.y - port.y) < 2.5);
  assert.ok(Math.hypot(first.x - port.x, first.y - port.y - port.length) < 0.01);
  for (const layer of picture.layers) {
    for (const a of layer.items) {
      for (const b of layer.items) {
        const apart =
          a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
        assert.ok(a === b || apart, `${a.id} and ${b.id}`);
      }
    }
  }
  for (const id of ['n1', 'n2']) {
    const item = picture.items.get(id)!;
    assert.ok(item.x > frame.x && item.y > frame.y && item.y + item.height < frame.y + frame.height);
  }
});

test('opening a box lays out its layer and those around it; closing it asks for nothing', async () => {
  const { scene, asked, composer } = await pictureOf(graph(), []);
  assert.equal(asked.length, 1);
  await composer.compose(scene, new Set(['b0']));
  assert.equal(asked.length, 3);
  await composer.compose(scene, new Set());
  await composer.compose(scene, new Set(['b0']));
  assert.equal(asked.length, 3);
});

test('a layout that is no longer wanted is dropped; one that fails is replaced by a column', async () => {
  const scene = new Scene(graph());
  const composer = new Composer(noLayout, measure);
  const stopped = new AbortController();
  stopped.abort();
  await assert.rejects(composer.compose(scene, new Set(), stopped.signal), Aborted);
  const picture = await composer.compose(scene, new Set(['b0']));
  assert.equal(composer.problem, 'no worker');
  assert.equal(picture.items.size, 7);
});

// -- opening ----------------------------------------------------------------------------------------------------------

test('small graphs start open, large ones where there is something to choose; a fold opens with one sample', () => {
  assert.deepEqual(ids(firstOpen(new Scene(graph()))), ['b0']);
  const scene = new Scene(deep());
  assert.deepEqual(ids(firstOpen(scene)), ['s']);
  assert.deepEqual(openedWith(scene, 'f'), ['f', 'c0']);
  assert.deepEqual(openedWith(scene, 's'), ['s', 'f', 'c0']);
});

test('what is open is found again in another graph of the Block, whatever the ids are', () => {
  const scene = new Scene(deep());
  const text = JSON.stringify(deep());
  const other = new Scene(JSON.parse(text.replace(/"c(\d)"/g, '"other$1"')) as GraphReply);
  const names = new Set(['f', 'c3'].map(id => nameOf(scene, id)));
  assert.deepEqual(ids(withNames(other, names)), ['f', 'other3']);
});

// -- camera -----------------------------------------------------------------------------------------------------------

test('the camera zooms round a point, fits, starts at the first input, and never loses the picture', () => {
  const pane = { width: 400, height: 300 };
  const camera = { x: 10, y: 20, scale: 1 };
  const at = { x: 110, y: 70 };
  const closer = zoomed(camera, 2, at);
  assert.deepEqual([closer.x + closer.scale * 100, closer.y + closer.scale * 50], [at.x, at.y]);
  assert.equal(fitted({ x: 0, y: 0, width: 4000, height: 300 }, pane).scale, 384 / 4000);
  const start = started({ width: 4000, height: 9000 }, { x: 3000, y: 18, width: 100, height: 30 }, pane);
  assert.equal(start.scale, 0.75);
  assert.equal(start.x + start.scale * 3050, 200);
  assert.ok(start.y + start.scale * 18 > 0 && start.y + start.scale * 48 < 60);
  const again = started({ width: 4000, height: 9000 }, { x: 3000, y: 18, width: 100, height: 30 }, pane, 1.5);
  assert.equal(again.scale, 1.5);
  assert.ok(again.y + again.scale * 18 > 0 && again.y + again.scale * 18 < 60, 'the first input is in view');
  assert.equal(kept({ x: -9000, y: 0, scale: 1 }, { width: 500, height: 500 }, pane).x, 60 - 500);
  const moved = anchored(camera, { x: 5, y: 5 }, { x: 25, y: 5 });
  assert.equal(moved.x + 25, camera.x + 5);
  const shown = revealed(camera, { x: 500, y: 0, width: 50, height: 30 }, pane);
  assert.equal(shown.x + 550, 400 - 24);
});

// -- walking ----------------------------------------------------------------------------------------------------------

test('arrow keys follow edges, across closed boxes too', async () => {
  const { scene, picture } = await pictureOf(graph(), []);
  const closed = new Set<string>();
  assert.deepEqual(ids(neighbours(scene, closed, 'n0', 'down')), ['b0', 'n3']);
  assert.equal(step(scene, picture, closed, 'n0', 'down'), 'b0');
  assert.equal(step(scene, picture, closed, 'b0', 'down'), 'n3');
  assert.equal(step(scene, picture, closed, 'n3', 'up'), 'b0');
  assert.equal(step(scene, picture, closed, 'out0', 'down'), null);
});

test('left and right lead to siblings', async () => {
  const reply = graph({
    boxes: [],
    nodes: [node('n0'), node('n1', { reads: ['n0'] }), node('n2', { reads: ['n0'] })]
  });
  const { scene, picture } = await pictureOf(reply, []);
  const [left, right] = ['n1', 'n2'].sort((a, b) => picture.items.get(a)!.x - picture.items.get(b)!.x);
  assert.ok(left && right);
  assert.equal(step(scene, picture, new Set(), left, 'right'), right);
  assert.equal(step(scene, picture, new Set(), right, 'left'), left);
});

test('a trace has all that feeds a node and all that reads it, with the boxes around', () => {
  const found = trace(new Scene(graph()), 'n2');
  assert.deepEqual(ids(found.up), ['n0', 'n1']);
  assert.deepEqual(ids(found.down), ['n3', 'n4', 'out0']);
  assert.ok(found.upEdges.has('|n0:0|n0|b0') && !found.upEdges.has('|n0:0|n0|n3'));
  assert.ok(found.downEdges.has('b0|n2:0|n2|') && found.downEdges.has('|n4:0|n4|out0'));
  const ofBox = trace(new Scene(graph()), 'b0');
  assert.deepEqual([ids(ofBox.up), ids(ofBox.down)], [['n0'], ['n3', 'n4', 'out0']]);
});

test('search looks at labels, operators, Blocks, classes and parameters', () => {
  const scene = new Scene(graph());
  assert.deepEqual(search(scene, 'conv').hits, ['n1']);
  assert.deepEqual(search(scene, 'hybridsequential').hits, ['b0']);
  assert.deepEqual(search(scene, 'output.weight').hits, ['n4']);
  assert.deepEqual(search(scene, 'dense').hits, ['n4']);
  assert.deepEqual(search(scene, ' ').hits, []);
});

test('operators of one kind have one colour', () => {
  assert.deepEqual(
    ['Convolution', 'BatchNorm', 'Pooling', 'Reshape', 'broadcast_to', 'broadcast_add', 'Cast', 'relu'].map(
      family
    ),
    ['product', 'norm', 'pool', 'shape', 'shape', 'element', 'shape', 'element']
  );
});

test('texts are cut to their room; types are written as graphs are printed', () => {
  assert.equal(
    cut('Convolution', 30, text => 5 * text.length),
    'Convo…'
  );
  assert.deepEqual(
    [
      { shape: [1, null], dtype: 'float32' },
      { shape: [], dtype: 'int64' },
      { shape: null, dtype: 'bfloat16' }
    ].map(typeText),
    ['f32[1,?]', 'i64[]', 'bf16']
  );
});

test('a rectangle comes out from under what lies over the pane by the least movement', () => {
  const pane = { width: 400, height: 300 };
  const camera = { x: 0, y: 0, scale: 2 };
  const map = { x: 300, y: 200, width: 90, height: 90 };
  const zoom = { x: 6, y: 270, width: 90, height: 24 };
  const at = (x: number, y: number) => {
    const moved = cleared(camera, { x, y, width: 40, height: 20 }, pane, [map, zoom]);
    return [moved.x, moved.y, moved.scale];
  };
  assert.deepEqual(at(20, 20), [0, 0, 2], 'nothing lies over it');
  assert.deepEqual(at(150, 82), [0, -12, 2], 'above the map');
  assert.deepEqual(at(115, 120), [-18, 0, 2], 'beside the map');
  assert.deepEqual(at(5, 129), [0, -36, 2], 'above the buttons');
  const wide = cleared(camera, { x: 0, y: 0, width: 190, height: 140 }, pane, [map]);
  assert.deepEqual(wide, camera, 'there is no room for it');
});
