// Bundles the browser halves that live outside JupyterLab's build: the widget, and Graphviz as a module for a worker.

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

await mkdir(out, { recursive: true });
await build({
  ...common,
  entryPoints: [join(here, 'src/widgets/view.ts')],
  outfile: join(out, 'view.js'),
  loader: { '.css': 'text' }
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
