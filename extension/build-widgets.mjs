// Bundles the browser halves that live outside JupyterLab's build: the widget, the shared page, and Graphviz as a module
// for a worker.

import { build } from 'esbuild';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, '..', 'hybrid_lab', 'lab', 'static');

const common = {
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2022',
  charset: 'utf8',
  legalComments: 'none',
  logLevel: 'warning'
};

/** Of Lumino's widgets only those of the panes: the whole package would double the module that goes to each view. */
const lumino = {
  name: 'lumino-panes',
  setup(build) {
    const source = join(here, '..', 'node_modules', '@lumino', 'widgets', 'src');
    build.onResolve({ filter: /^@lumino\/widgets$/ }, () => ({ path: 'panes', namespace: 'lumino' }));
    build.onLoad({ filter: /.*/, namespace: 'lumino' }, () => ({
      contents: "export * from './splitpanel'; export * from './widget';",
      resolveDir: source
    }));
  }
};

await mkdir(out, { recursive: true });
await build({
  ...common,
  entryPoints: [join(here, 'src/widgets/view.ts')],
  outfile: join(out, 'view.js'),
  loader: { '.css': 'text' },
  plugins: [lumino]
});
await build({
  ...common,
  format: 'iife',
  entryPoints: [join(here, 'src/widgets/page.ts')],
  outfile: join(out, 'page.js'),
  loader: { '.css': 'text' },
  plugins: [lumino]
});
await build({
  ...common,
  entryPoints: [join(here, 'src/graph/engine.ts')],
  outfile: join(out, 'graphviz.js')
});

// JupyterLab's bundle takes the same module as text, in a chunk of its own that is loaded when a graph is first drawn.
const graphviz = await readFile(join(out, 'graphviz.js'), 'utf8');
await mkdir(join(here, 'lib/graph'), { recursive: true });
await writeFile(join(here, 'lib/graph/source.js'), `export default ${JSON.stringify(graphviz)};\n`);
