// Sharing a model as one HTML file: what the button says, and what came of it.

import type { Requester } from '../protocol/channel';
import type { Model, Progress } from '../protocol/messages';
import { Child, h } from './dom';
import { bytesText, plural } from './words';

export const SHARE =
  'Write one HTML file beside the notebook that shows this model without a kernel and without network';

/** Write the page of a model. */
export async function share(
  requester: Requester,
  model: Model,
  onProgress: (progress: Progress) => void
): Promise<Child[]> {
  const {
    path,
    bytes,
    graphs,
    left_out: left
  } = await requester.request('share', { model: model.id }, { onProgress });
  const size = `${bytesText(bytes)}, ${plural(graphs, 'graph')}`;
  const missing = left > 0 ? `; ${plural(left, 'graph')} of deeper Blocks left out` : '';
  return [
    h(
      'div',
      { class: 'hl-result' },
      h(
        'p',
        {},
        `Shared ${model.name} as a page (${size}${missing}). Any browser opens it, without a kernel.`
      ),
      h('p', { class: 'hl-path' }, h('code', {}, path))
    )
  ];
}
