// What belongs to one connection with one kernel: the outcome of the actions on each of its models, and their files.
// Other notebooks have their own; all of it goes with the kernel.

import { ActionResults } from './action-results';

/** Stands for all models of the kernel, where an action is about all of them. */
export const EVERY = '';

export class ActionScope {
  /** File names that the user typed, by the ids of models. */
  readonly files = new Map<string, string>();

  /**
   * @param onChanged Called when an action of this kernel begins or ends.
   * @param onShown Called when a model's outcome, or that of all, has something to be seen.
   */
  constructor(
    private readonly onChanged: () => void,
    private readonly onShown: (model: string) => void
  ) {}

  /** The outcome of the actions on a model, or on all of them. */
  of(model: string): ActionResults {
    let results = this.results.get(model);
    if (!results) {
      results = new ActionResults(this.onChanged, () => this.onShown(model));
      this.results.set(model, results);
    }
    return results;
  }

  isBusy(model: string): boolean {
    return this.results.get(model)?.busy ?? false;
  }

  /** Forget all models but these. */
  keep(models: ReadonlySet<string>): void {
    for (const [id, results] of this.results) {
      if (id !== EVERY && !models.has(id)) {
        results.discard();
        this.results.delete(id);
        this.files.delete(id);
      }
    }
  }

  /** The kernel is gone. */
  discard(): void {
    this.results.forEach(results => results.discard());
    this.results.clear();
    this.files.clear();
  }

  private readonly results = new Map<string, ActionResults>();
}
