// Sharing a model as one HTML file: what the button says, and what came of it.

import type { Requester } from '../protocol/channel';
import type { Model, Progress } from '../protocol/messages';
import type { Child } from './dom';
import { h } from './dom';
import { bytesText } from './words';
import { __, _n } from '../text';

export const SHARE = __(
  'Write one HTML file beside the notebook that shows this model without a kernel and without network'
);

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
  const size = `${bytesText(bytes)}, ${_n('%1 graph', '%1 graphs', graphs)}`;
  const missing = left > 0 ? __('; %1 of deeper Blocks left out', _n('%1 graph', '%1 graphs', left)) : '';
  return [
    h(
      'div',
      { class: 'hl-result' },
      h(
        'p',
        {},
        __('Shared %1 as a page (%2%3). Any browser opens it, without a kernel.', model.name, size, missing)
      ),
      h('p', { class: 'hl-path' }, h('code', {}, path))
    )
  ];
}
