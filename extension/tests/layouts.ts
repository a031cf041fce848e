// Layouts without a worker, and graphs, for tests.

import { Graphviz } from '@hpcc-js/wasm-graphviz';
import type { Measure } from '../src/graph/card';
import type { Picture } from '../src/graph/compose';
import { Composer } from '../src/graph/compose';
import { Scene } from '../src/graph/scene';
import type { Layout } from '../src/graph/worker';
import type { GraphReply } from '../src/protocol/messages';
import { box, graph, node } from './records';

export const measure: Measure = (text, size) => text.length * size * 0.5;

/** The layout that the worker does, here; `asked` has the DOT text of each. */
export function graphviz(): { layout: Layout; asked: string[] } {
  const asked: string[] = [];
  const engine = Graphviz.load();
  const layout: Layout = async dot => {
    asked.push(dot);
    return (await engine).layout(dot, 'plain', 'dot');
  };
  return { layout, asked };
}

export const ids = (values: Iterable<string>): string[] => [...values].sort();

export async function pictureOf(
  reply: GraphReply,
  open: string[]
): Promise<{ scene: Scene; picture: Picture; asked: string[]; composer: Composer }> {
  const { layout, asked } = graphviz();
  const scene = new Scene(reply);
  const composer = new Composer(layout, measure);
  return { scene, picture: await composer.compose(scene, new Set(open)), asked, composer };
}

const LAYERS = 6;

/** Six encoder cells of five operators in a fold, in a Block, after an input. */
export function deep(): GraphReply {
  const boxes = [
    box('s', { kind: 'session', label: 'onnxruntime 0', operators: 30 }),
    box('f', { parent: 's', kind: 'fold', label: '0 to 5', class: 'Cell', copies: LAYERS, operators: 30 })
  ];
  const nodes = [node('n', { kind: 'input', op: '' })];
  for (let cell = 0; cell < LAYERS; cell++) {
    boxes.push(box(`c${cell}`, { parent: 'f', label: String(cell), class: 'Cell', block: `cells.${cell}` }));
    for (let i = 0; i < 5; i++) {
      nodes.push(node(`n${cell}_${i}`, { box: `c${cell}`, reads: [nodes.at(-1)!.id] }));
    }
  }
  return graph({ boxes, nodes });
}
