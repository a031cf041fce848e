// DOT text to SVG text, in a worker: Graphviz compiled to WebAssembly, fetched when the first graph is drawn.

import { FONT, pageMeasure, withWidths } from './measure';

/** Lays out DOT text; rejects with a sentence for the user. */
export type Layout = (dot: string) => Promise<string>;

/** Milliseconds before a layout is given up. */
const PATIENCE = 30_000;

/** The look that Graphviz needs to know to measure text; colours are CSS. */
const LOOK =
  ` graph [bgcolor="transparent" pad="0.15" nodesep="0.2" ranksep="0.3" fontname="${FONT.family}" fontsize="${FONT.size}"];` +
  ` node [shape="box" style="rounded" fontname="${FONT.family}" fontsize="${FONT.size}" height="0.3" margin="${FONT.margin},0.05"];` +
  ` edge [fontname="${FONT.family}" fontsize="9" arrowsize="0.6"];`;

/** Put the look in front of the graph's own statements. */
export function dressed(dot: string): string {
  const brace = dot.indexOf('{');
  return brace < 0 ? dot : `${dot.slice(0, brace + 1)}${LOOK}${dot.slice(brace + 1)}`;
}

interface Job {
  dot: string;
  resolve(svg: string): void;
  reject(error: Error): void;
}

/**
 * A layout over a JavaScript module, given as text, that exports `layout(dot): Promise<string>`.
 * The text is loaded once. Jobs run one after the other; a worker that takes too long is ended.
 */
export function workerLayout(loadText: () => Promise<string>): Layout {
  let address: Promise<string> | null = null;
  let worker: Worker | null = null;
  let queue: Promise<unknown> = Promise.resolve();

  const moduleAddress = (): Promise<string> => {
    address ??= loadText().then(text => URL.createObjectURL(new Blob([text], { type: 'text/javascript' })));
    address.catch(() => (address = null)); // the next graph tries again
    return address;
  };

  const inWorker = (url: string, job: Job): void => {
    const source = `import { layout } from ${JSON.stringify(url)};
onmessage = event => layout(event.data).then(svg => postMessage({ svg }), error => postMessage({ error: String(error) }));
postMessage({ ready: true });`;
    const isNew = worker === null;
    worker ??= new Worker(URL.createObjectURL(new Blob([source], { type: 'text/javascript' })), {
      type: 'module'
    });
    const end = (): void => {
      worker?.terminate();
      worker = null;
    };
    const timer = setTimeout(() => {
      end();
      job.reject(new Error('The graph is too large to be drawn here. Select a Block further down the tree.'));
    }, PATIENCE);
    worker.onerror = () => {
      clearTimeout(timer);
      end();
      onPage(url, job); // pages may forbid workers; the page itself can still do it
    };
    worker.onmessage = (event: MessageEvent<{ ready?: true; svg?: string; error?: string }>) => {
      if (event.data.ready) {
        worker?.postMessage(job.dot);
        return;
      }
      clearTimeout(timer);
      if (event.data.svg !== undefined) {
        job.resolve(event.data.svg);
      } else {
        job.reject(
          new Error(`Graphviz could not lay out this graph: ${event.data.error ?? 'no reason given'}`)
        );
      }
    };
    if (!isNew) {
      worker.postMessage(job.dot);
    }
  };

  const onPage = (url: string, job: Job): void => {
    importModule(url)
      .then(module => module.layout(job.dot))
      .then(job.resolve, job.reject);
  };

  return dot => {
    const run = queue.then(
      () =>
        new Promise<string>((resolve, reject) => {
          const measure = pageMeasure();
          const job: Job = { dot: dressed(measure ? withWidths(dot, measure) : dot), resolve, reject };
          moduleAddress().then(url => {
            try {
              inWorker(url, job);
            } catch {
              onPage(url, job);
            }
          }, reject);
        })
    );
    queue = run.catch(() => undefined);
    return run;
  };
}

function importModule(url: string): Promise<{ layout: Layout }> {
  // Bundlers must leave this import alone: the address exists only on the page.
  return import(/* webpackIgnore: true */ /* @vite-ignore */ url) as Promise<{ layout: Layout }>;
}
