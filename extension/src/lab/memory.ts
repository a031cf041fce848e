// What was looked at last in each notebook, kept in JupyterLab's state database.

import type { IStateDB } from '@jupyterlab/statedb';
import type { Looked } from '../view/model-view';

const KEY = 'hybrid-lab:looked-at';

/** Notebooks that are remembered; those that were looked at longest ago are forgotten. */
const MOST = 50;

/** Milliseconds between a change and its saving. */
const REST = 500;

export class ViewMemory {
  /** Resolves when what was saved earlier is known. */
  readonly ready: Promise<void>;

  constructor(private readonly state: IStateDB | null) {
    this.ready = this.load();
  }

  read(notebook: string): Looked | undefined {
    return this.looked.get(notebook);
  }

  write(notebook: string, looked: Looked): void {
    this.looked.delete(notebook);
    this.looked.set(notebook, looked);
    for (const oldest of [...this.looked.keys()].slice(0, -MOST)) {
      this.looked.delete(oldest);
    }
    clearTimeout(this.resting);
    this.resting = setTimeout(() => {
      void this.state?.save(KEY, Object.fromEntries(this.looked) as never);
    }, REST);
  }

  private async load(): Promise<void> {
    try {
      const saved = (await this.state?.fetch(KEY)) ?? {};
      for (const [notebook, looked] of Object.entries(saved)) {
        if (isLooked(looked) && !this.looked.has(notebook)) {
          this.looked.set(notebook, looked);
        }
      }
    } catch {
      // A state of another version, or none: start anew.
    }
  }

  private readonly looked = new Map<string, Looked>();
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
