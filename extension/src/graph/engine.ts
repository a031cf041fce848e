// The module that runs in the worker: Graphviz's `dot`, compiled to WebAssembly.

import { Graphviz } from '@hpcc-js/wasm-graphviz';

let engine: Promise<Graphviz> | null = null;

/** Positions in Graphviz's format `plain`; of "", only load. */
export async function layout(dot: string): Promise<string> {
  engine ??= Graphviz.load();
  const graphviz = await engine;
  return dot === '' ? '' : graphviz.layout(dot, 'plain', 'dot');
}
