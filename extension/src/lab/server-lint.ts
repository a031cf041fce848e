// Lint by the Jupyter server, for when the kernel cannot answer: same rules, same JSON, no user code is run.

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { CellDiagnostics, LintTarget } from '../lint/lint-client';
import type { CellSource } from '../protocol/messages';
import { lintReply } from '../protocol/messages';
import { __ } from '../text';

/** A function that asks the server. It rejects where the server cannot answer; a missing endpoint is asked once only. */
export function serverLint(
  settings: ServerConnection.ISettings
): (cells: CellSource[], target: LintTarget) => Promise<CellDiagnostics> {
  let isMissing = false;
  return async (cells, target) => {
    if (isMissing) {
      throw new Error(__('The server has no lint endpoint.'));
    }
    const response = await ServerConnection.makeRequest(
      URLExt.join(settings.baseUrl, 'hybrid-lab', 'lint'),
      { method: 'POST', body: JSON.stringify({ cells, only: [], target }) },
      settings
    );
    if (!response.ok) {
      isMissing = response.status === 404 || response.status === 405;
      throw new Error(__('The server answered %1.', response.status));
    }
    return lintReply(await response.json(), 'lint').cells;
  };
}
