// Reload and Compare: what a file would change, or has changed, as a difference by Block.

import type { Requester } from '../protocol/channel';
import { asRequestError } from '../protocol/channel';
import type { Progress, ReloadReply } from '../protocol/messages';
import type { ActionResults } from './action-results';
import { failure } from './action-results';
import type { SideBySide } from './compare-view';
import type { DiffOptions } from './diff-view';
import { diffView, sentence } from './diff-view';
import type { Child } from './dom';
import { button, h } from './dom';
import type { SaveTarget } from './save-part';
import { __, _n } from '../text';

type OnProgress = (progress: Progress) => void;

/** Load the file into the model. Where the graphs differ, the difference is shown before anything is replaced. */
export async function reload(
  requester: Requester,
  { model, path, file }: SaveTarget,
  results: ActionResults,
  options: DiffOptions,
  onProgress: OnProgress
): Promise<ReloadReply | null> {
  const body = { model: model.id, file, graphs: 'code' as 'code' | 'file', ...(path ? { path } : {}) };
  try {
    return await requester.request('reload', body, { onProgress });
  } catch (caught) {
    const error = asRequestError(caught);
    if (error.code !== 'differs') {
      throw error;
    }
    let question = failure(error);
    try {
      const found = await requester.request('compare', { model: model.id, file, ...(path ? { path } : {}) });
      question = [
        h('p', {}, error.message),
        diffView(found.difference, options),
        h(
          'details',
          {},
          h('summary', {}, __('What keeps the file from being loaded')),
          h('ul', {}, ...error.details.map(line => h('li', {}, line)))
        ),
        error.next !== '' && h('p', { class: 'hl-next' }, error.next)
      ];
    } catch {
      // The list of what differs is there all the same.
    }
    if (!(await results.confirm(question, __("Use the file's graphs")))) {
      return null;
    }
    return requester.request('reload', { ...body, graphs: 'file' }, { onProgress });
  }
}

/** What a reload changed, with a way back. */
export function reloaded(
  { name }: SaveTarget,
  reply: ReloadReply,
  options: DiffOptions,
  onUndo: () => void
): HTMLElement {
  const { difference } = reply;
  const changes = Math.max(reply.diff.length, difference?.blocks.length ?? 0);
  return h(
    'div',
    { class: 'hl-result' },
    h('p', {}, reply.summary || __('Loaded %1 into %2.', _n('%1 graph', '%1 graphs', reply.graphs), name)),
    h('p', { class: 'hl-path' }, h('code', {}, reply.path), __(' on %1', reply.host)),
    ...reply.notes.map(note => h('p', {}, note)),
    changes === 0
      ? h('p', {}, __('Nothing changed.'))
      : h(
          'details',
          { open: true },
          h(
            'summary',
            {},
            __('%1 (Undo takes them back)', _n('%1 change', '%1 changes', Math.max(reply.diff.length, 1)))
          ),
          difference
            ? diffView(difference, { ...options, side: 'first' })
            : h('ul', {}, ...reply.diff.map(line => h('li', {}, line)))
        ),
    changes > 0 && reply.undo !== '' && button(__('Undo this reload'), onUndo)
  );
}

/** Where the graphs of a comparison are shown side by side. `opens`: at once, and not only when the user asks. */
export interface SideBySideHost {
  opens: boolean;
  show: (shown: SideBySide) => void;
}

/** What differs between a file and the model, or another file; nothing is changed. */
export async function compare(
  requester: Requester,
  { model, path, file }: SaveTarget,
  options: DiffOptions,
  onProgress: OnProgress,
  other: string | null = null,
  host: SideBySideHost | null = null
): Promise<Child[]> {
  const body = { model: model.id, file, ...(path ? { path } : {}), ...(other !== null && { other }) };
  const reply = await requester.request(
    'compare',
    { ...body, ...(host && { graphs: true }) },
    { onProgress }
  );
  const { graphs, difference } = reply;
  const shown = graphs &&
    graphs.first.nodes.length + graphs.second.nodes.length > 0 && {
      graphs,
      names: [difference.first, difference.second] as const,
      summary: sentence(difference.summary),
      values: (first: string, second: string) =>
        requester.request('compared_values', { ...body, first, second })
    };
  if (host && shown && host.opens) {
    host.show(shown);
  }
  return [
    h(
      'div',
      { class: 'hl-result' },
      host &&
        shown &&
        button(__('Show side by side'), () => host.show(shown), {
          class: 'hl-button hl-primary',
          title: __('Show both graphs, with what differs in colour')
        }),
      diffView(reply.difference, options),
      h('p', { class: 'hl-path' }, h('code', {}, reply.path), __(' on %1', reply.host))
    )
  ];
}
