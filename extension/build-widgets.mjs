// Bundles the browser halves that live outside JupyterLab's build: the widget, the shared page, and Graphviz as a module
// for a worker, which the kernel and the Jupyter server give to the front ends.

import { build } from 'esbuild';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
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
  metafile: true,
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
const view = await build({
  ...common,
  entryPoints: [join(here, 'src/widgets/view.ts')],
  outfile: join(out, 'view.js'),
  loader: { '.css': 'text' },
  plugins: [lumino]
});
const page = await build({
  ...common,
  format: 'iife',
  entryPoints: [join(here, 'src/widgets/page.ts')],
  outfile: join(out, 'page.js'),
  loader: { '.css': 'text' },
  plugins: [lumino]
});
const engine = await build({
  ...common,
  entryPoints: [join(here, 'src/graph/engine.ts')],
  outfile: join(out, 'graphviz.js')
});

// The licences of what the three files contain. JupyterLab's bundle has a list of its own, without Graphviz.
const MORE = {
  '@hpcc-js/wasm-graphviz':
    'It contains Graphviz, compiled to WebAssembly, under the Eclipse Public License: https://graphviz.org/license/\n' +
    'Its source code: https://gitlab.com/graphviz/graphviz'
};
const inputs = [view, page, engine].flatMap(({ metafile }) => Object.keys(metafile.inputs));
const folders = new Set(
  inputs.flatMap(path => /^(?:[a-z]+:)?(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1] ?? [])
);
const notices = [];
for (const folder of [...folders].sort()) {
  const { name, version, license } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'));
  const files = (await readdir(folder)).filter(file => /^licen[cs]e/i.test(file)).sort();
  const texts = await Promise.all(files.map(file => readFile(join(folder, file), 'utf8')));
  notices.push(
    [`${name} ${version}: ${license}`, ...(MORE[name] ? [MORE[name]] : []), ...texts].join('\n\n').trim()
  );
}
await writeFile(join(out, 'licenses.txt'), `${notices.join(`\n\n${'-'.repeat(80)}\n\n`)}\n`);
