// What was looked at last in each notebook, kept in JupyterLab's state database, or by the browser.

import type { Looked } from '../view/model-view';
import type { PaneMemory, PaneSizes } from '../view/panes';

const KEY = 'hybrid-lab:looked-at';
const SIZES = 'hybrid-lab:panes';

/** Notebooks that are remembered; those that were looked at longest ago are forgotten. */
const MOST = 50;

/** Milliseconds between a change and its saving. */
const REST = 500;

/** Keeps JSON by key: JupyterLab's state database does. */
export interface Store {
  fetch: (key: string) => Promise<unknown>;
  save: (key: string, value: never) => Promise<unknown>;
}

/** A store for Notebook 7, which forgets its state database with the page. `storage`: the browser's; `prefix`: the server. */
export function browserStore(storage: Storage, prefix: string): Store {
  return {
    fetch: async key => JSON.parse(storage.getItem(prefix + key) ?? 'null') as unknown,
    save: async (key, value) => storage.setItem(prefix + key, JSON.stringify(value))
  };
}

export class ViewMemory {
  /** Resolves when what was saved earlier is known. */
  readonly ready: Promise<void>;

  constructor(private readonly store: Store | null) {
    this.ready = this.load();
  }

  read(notebook: string): Looked | undefined {
    return this.written.get(notebook) ?? this.saved.get(notebook);
  }

  write(notebook: string, looked: Looked): void {
    this.written.delete(notebook);
    this.written.set(notebook, looked);
    clearTimeout(this.resting);
    this.resting = setTimeout(() => void this.save(), REST);
  }

  private async load(): Promise<void> {
    try {
      const saved = Object.entries((await this.store?.fetch(KEY)) ?? {});
      this.saved = new Map(saved.filter((entry): entry is [string, Looked] => isLooked(entry[1])));
    } catch {
      // What another version saved: start anew.
    }
  }

  private async save(): Promise<void> {
    await this.load(); // pages with other notebooks save, too
    const others = [...this.saved].filter(([notebook]) => !this.written.has(notebook));
    this.saved = new Map([...others, ...this.written].slice(-MOST));
    await this.store?.save(KEY, Object.fromEntries(this.saved) as never).catch(() => undefined); // a full store, say
  }

  /** The entries that this page wrote, newest last, and the content of the store when it was last read. */
  private readonly written = new Map<string, Looked>();
  private saved = new Map<string, Looked>();
  private resting: ReturnType<typeof setTimeout> | undefined;
}

/** Whether a value of the database is what `write` wrote. */
function isLooked(value: unknown): value is Looked {
  const { model, block, program, open, scale } = (value ?? {}) as Record<string, unknown>;
  return (
    [model, block, program].every(text => typeof text === 'string') &&
    Array.isArray(open) &&
    open.every(name => typeof name === 'string') &&
    typeof scale === 'number' &&
    scale > 0
  );
}

/** The sizes of panes and drawers, the same for all notebooks; the panel has others than the tab. */
export class SizeMemory implements PaneMemory {
  /** Resolves when what was saved earlier is known. */
  readonly ready: Promise<void>;

  constructor(
    private readonly store: Store | null,
    private readonly place: 'panel' | 'tab' | 'file'
  ) {
    this.ready = this.load();
  }

  read(): PaneSizes {
    return this.sizes;
  }

  write(changes: PaneSizes): void {
    this.sizes = { ...this.sizes, ...changes };
    clearTimeout(this.resting);
    this.resting = setTimeout(() => {
      void this.store?.save(`${SIZES}-${this.place}`, this.sizes as never).catch(() => undefined);
    }, REST);
  }

  private async load(): Promise<void> {
    try {
      const saved = ((await this.store?.fetch(`${SIZES}-${this.place}`)) ?? {}) as Record<string, unknown>;
      const isShare = (value: unknown): value is number =>
        typeof value === 'number' && value > 0 && value < 1;
      const shares = (['beside', 'above', 'right', 'below'] as const).filter(name => isShare(saved[name]));
      this.sizes = {
        ...Object.fromEntries(shares.map(name => [name, saved[name] as number])),
        ...(saved.isTreeHidden === true && { isTreeHidden: true }),
        ...(Array.isArray(saved.columns) && {
          columns: saved.columns.filter(name => typeof name === 'string')
        }),
        ...this.sizes
      };
    } catch {
      // What another version saved: start anew.
    }
  }

  private sizes: PaneSizes = {};
  private resting: ReturnType<typeof setTimeout> | undefined;
}
