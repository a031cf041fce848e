// Who answers a lint request: the kernel, or the server where the kernel cannot within a second. Equal questions are asked once.

import type { CellSource, LintReply } from '../protocol/messages';

/** Diagnostics by cell id. */
export type CellDiagnostics = LintReply['cells'];

/** `mxnet`: also what MXNet itself cannot do. */
export type LintTarget = '' | 'mxnet';

type Ask = (cells: CellSource[], target: LintTarget) => Promise<CellDiagnostics>;

export interface LintSources {
  /** Ask the kernel; null where it cannot answer now. */
  kernel: Ask | null;
  /** Ask the server; null where there is no such endpoint. */
  server: Ask | null;
}

/** Milliseconds the kernel has. */
export const KERNEL_PATIENCE = 1000;

interface Answer {
  key: string;
  cells: CellDiagnostics;
}

export class LintClient {
  constructor(private readonly sources: () => LintSources) {}

  /** Diagnostics of all cells; null where nobody could answer (what is shown then stays). */
  async lint(cells: CellSource[], target: LintTarget = ''): Promise<CellDiagnostics | null> {
    const key = JSON.stringify([target, cells]);
    if (this.last?.key === key) {
      return this.last.cells;
    }
    const asked = this.inFlight?.key === key ? this.inFlight : { key, answer: this.ask(cells, target) };
    this.inFlight = asked;
    const found = await asked.answer;
    if (this.inFlight === asked) {
      this.inFlight = null;
    }
    if (found) {
      this.last = { key, cells: found };
    }
    return found;
  }

  /** Forget answers: the kernel, and so perhaps the rules, changed. */
  forget(): void {
    this.last = null;
  }

  private async ask(cells: CellSource[], target: LintTarget): Promise<CellDiagnostics | null> {
    const { kernel, server } = this.sources();
    for (const source of [kernel, server]) {
      try {
        const found = await source?.(cells, target);
        if (found) {
          return found;
        }
      } catch {
        // The next one may know.
      }
    }
    return null;
  }

  private last: Answer | null = null;
  private inFlight: { key: string; answer: Promise<CellDiagnostics | null> } | null = null;
}
