// The module that runs in the worker: Graphviz's `dot`, compiled to WebAssembly.

import { Graphviz } from '@hpcc-js/wasm-graphviz';

let engine: Promise<Graphviz> | null = null;

/** SVG text of a DOT graph. */
export async function layout(dot: string): Promise<string> {
  engine ??= Graphviz.load();
  return (await engine).layout(dot, 'svg', 'dot');
}
