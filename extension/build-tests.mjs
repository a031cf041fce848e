// Bundles the unit tests, one file each, for `node --test`.

import { build } from 'esbuild';
import { readdir, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, '..', 'build', 'ts-tests');
const tests = (await readdir(join(here, 'tests'))).filter(name => name.endsWith('.test.ts'));

await rm(out, { recursive: true, force: true });
await build({
  entryPoints: tests.map(name => join(here, 'tests', name)),
  outdir: out,
  outExtension: { '.js': '.mjs' },
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node20',
  packages: 'external',
  loader: { '.css': 'text' },
  sourcemap: 'inline',
  logLevel: 'warning'
});
