// Graphviz as the text of a module for the worker. The Python package has it: the Jupyter server gives it out, and where
// the server does not have the package, a kernel that does.

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { Requester } from '../protocol/channel';
import { __ } from '../text';

/** A function that asks the server, then a kernel. `kernel`: the one in front, null where none answers now. */
export function graphvizText(
  settings: ServerConnection.ISettings,
  kernel: () => Requester | null
): () => Promise<string> {
  return async () => {
    const url = URLExt.join(settings.baseUrl, 'hybrid-lab', 'graphviz');
    const response = await ServerConnection.makeRequest(url, {}, settings).catch(() => null);
    if (response?.ok) {
      return response.text();
    }
    const requester = kernel();
    if (requester) {
      return (await requester.request('asset', { name: 'graphviz' })).text;
    }
    const why = response ? __('The server answered %1.', response.status) : __('The server did not answer.');
    throw new Error(
      `${__('The picture needs Graphviz, which comes with the Python package.')} ${why} ${__('Run pip install hybrid-lab there, and start the server again.')}`
    );
  };
}
