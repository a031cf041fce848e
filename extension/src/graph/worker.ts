// DOT text to positions, in a worker: Graphviz compiled to WebAssembly, fetched when the first graph is drawn.

import { __ } from '../text';

/** Lays out DOT text. Rejects with an Aborted if `signal` is aborted before it ran, else with a sentence for the user. */
export interface Layout {
  (dot: string, signal?: AbortSignal): Promise<string>;
  /** Load Graphviz now, so that the first layout does not wait for it. */
  warm?: () => void;
}

/** The layout is no longer wanted. */
export class Aborted extends Error {
  override readonly name = 'Aborted';
}

/** Milliseconds before one layer's layout is given up, and after which one that nobody wants is ended. */
const PATIENCE = 10_000;
const IDLE_PATIENCE = 400;

interface Job {
  dot: string;
  signal: AbortSignal | undefined;
  resolve: (plain: string) => void;
  reject: (error: Error) => void;
}

/**
 * A layout over a JavaScript module, given as text, that exports `layout(dot): Promise<string>`. The text is loaded once.
 * Jobs run one after the other; those that are no longer wanted are passed over, and a worker that takes too long is ended.
 */
export function workerLayout(loadText: () => Promise<string>): Layout {
  let address: Promise<string> | null = null;
  let worker: Worker | null = null;
  let pageOnly = false;
  let running = false;
  const waiting: Job[] = [];

  const moduleAddress = (): Promise<string> => {
    address ??= loadText().then(text => URL.createObjectURL(new Blob([text], { type: 'text/javascript' })));
    address.catch(() => (address = null)); // the next graph tries again
    return address;
  };

  const end = (): void => {
    worker?.terminate();
    worker = null;
  };

  const inWorker = (url: string, job: Job): Promise<string> =>
    new Promise((resolve, reject) => {
      const isNew = worker === null;
      worker ??= startWorker(url);
      const current = worker;
      let isDone = false;
      const done = (): boolean => {
        clearTimeout(timer);
        const wasDone = isDone;
        isDone = true;
        return wasDone;
      };
      const stop = (error: Error): void => {
        if (!done()) {
          end();
          reject(error);
        }
      };
      const timer = setTimeout(() => stop(new Error(__('The layout took too long.'))), PATIENCE);
      job.signal?.addEventListener('abort', () => setTimeout(() => stop(new Aborted()), IDLE_PATIENCE));
      current.onerror = () => {
        done();
        end();
        pageOnly = true; // pages may forbid workers; the page itself can still do it
        onPage(url, job.dot).then(resolve, reject);
      };
      current.onmessage = (event: MessageEvent<{ ready?: true; plain?: string; error?: string }>) => {
        if (event.data.ready) {
          current.postMessage(job.dot);
          return;
        }
        done();
        if (event.data.plain !== undefined) {
          resolve(event.data.plain);
        } else {
          reject(
            new Error(
              __('Graphviz could not lay out this graph: %1', event.data.error ?? __('no reason given'))
            )
          );
        }
      };
      if (!isNew) {
        current.postMessage(job.dot);
      }
    });

  const next = (): void => {
    const job = running ? undefined : waiting.shift();
    if (!job) {
      return;
    }
    if (job.signal?.aborted) {
      job.reject(new Aborted());
      next();
      return;
    }
    running = true;
    moduleAddress()
      .then(url => (pageOnly || typeof Worker === 'undefined' ? onPage(url, job.dot) : inWorker(url, job)))
      .then(job.resolve, job.reject)
      .finally(() => {
        running = false;
        next();
      });
  };

  const layout: Layout = (dot, signal) =>
    new Promise((resolve, reject) => {
      waiting.push({ dot, signal, resolve, reject });
      next();
    });
  layout.warm = () => void layout('').catch(() => undefined);
  return layout;
}

function startWorker(url: string): Worker {
  const source = `import { layout } from ${JSON.stringify(url)};
onmessage = event => layout(event.data).then(plain => postMessage({ plain }), error => postMessage({ error: String(error) }));
postMessage({ ready: true });`;
  return new Worker(URL.createObjectURL(new Blob([source], { type: 'text/javascript' })), { type: 'module' });
}

function onPage(url: string, dot: string): Promise<string> {
  return importModule(url).then(module => module.layout(dot));
}

function importModule(url: string): Promise<{ layout: (dot: string) => Promise<string> }> {
  // Bundlers must leave this import alone: the address exists only on the page.
  return import(/* webpackIgnore: true */ /* @vite-ignore */ url) as Promise<{
    layout: (dot: string) => Promise<string>;
  }>;
}
