// Saving: one model, one Block, or every model. A question comes only where something would be lost, or the file is
// somebody else's; every save can be undone.

import type { Requester } from '../protocol/channel';
import { RequestError, asRequestError } from '../protocol/channel';
import type { Model, Progress, SaveReply, Saving, Target } from '../protocol/messages';
import type { ActionResults } from './action-results';
import { failure } from './action-results';
import type { Child } from './dom';
import { button, h } from './dom';
import { agoText, bytesText } from './words';
import { __, _n, grouped } from '../text';

/** A model, or a Block of it by its path, what to call it, and the file it goes to. */
export interface SaveTarget {
  model: Model;
  path: string;
  name: string;
  file: string;
}

/** A model with the token of a save or a reload that can be undone. */
export interface Undoable {
  model: Model;
  token: string;
}

type OnProgress = (progress: Progress) => void;

/** What has to be asked before a model is saved, with the version of the file that it is about. */
interface Question {
  target: SaveTarget;
  error: RequestError;
  there: Target | null;
}

/** Save, and ask first where the kernel says so; gives the reply, or null where the answer was no. */
export async function save(
  requester: Requester,
  target: SaveTarget,
  results: ActionResults,
  onProgress: OnProgress
): Promise<SaveReply | null> {
  let agreed: Agreed | null = null;
  for (;;) {
    try {
      return await request(requester, target, agreed, onProgress);
    } catch (caught) {
      const question: Question = await questionOf(requester, target, caught);
      const yes = question.error.code === 'would-lose' ? __('Save without them') : __('Replace it');
      if (!(await results.confirm(asked(question), yes))) {
        return null;
      }
      agreed = agreedTo(question);
    }
  }
}

/** What came of saving every model. */
export interface EverySaved {
  lines: Child[];
  undoable: Undoable[];
}

/**
 * Save each model to its file. Those that need an answer come last, in one question; models that are left out, such as
 * loss functions, are named.
 */
export async function saveEvery(
  requester: Requester,
  targets: readonly SaveTarget[],
  saving: Readonly<Record<string, Saving>>,
  results: ActionResults,
  onProgress: OnProgress
): Promise<EverySaved> {
  const replies: [SaveTarget, SaveReply][] = [];
  const questions: Question[] = [];
  const failures: [SaveTarget, RequestError][] = [];
  const attempt = async (target: SaveTarget, agreed: Agreed | null): Promise<void> => {
    try {
      replies.push([target, await request(requester, target, agreed, onProgress)]);
    } catch (caught) {
      try {
        questions.push(await questionOf(requester, target, caught));
      } catch (error) {
        failures.push([target, asRequestError(error)]);
      }
    }
  };
  const leftOut = (target: SaveTarget): string => saving[target.model.id]?.left_out ?? '';
  for (const target of targets.filter(each => leftOut(each) === '')) {
    await attempt(target, null);
  }
  const unanswered: SaveTarget[] = [];
  while (questions.length > 0) {
    const now = questions.splice(0);
    const boxes = now.map(({ target }) =>
      h('input', { type: 'checkbox', 'aria-label': __('Save %1', target.model.name) })
    );
    const rows = now.map((question, i) =>
      h('label', { class: 'hl-save-row' }, boxes[i], h('span', {}, ...asked(question)))
    );
    const question = [
      ...(replies.length > 0 ? savedList(replies) : []),
      h('p', {}, __('%1 not saved yet. Tick what may be replaced:', _n('%1 model', '%1 models', now.length))),
      ...rows
    ];
    const agreed = await results.confirm(question, __('Save these'));
    for (const [i, each] of now.entries()) {
      if (agreed && boxes[i]?.checked) {
        await attempt(each.target, agreedTo(each));
      } else {
        unanswered.push(each.target);
      }
    }
  }
  const left = targets.filter(each => leftOut(each) !== '');
  return {
    lines: [
      h(
        'div',
        { class: 'hl-result' },
        ...savedList(replies),
        ...unanswered.map(({ model }) => h('p', {}, __('%1 was not saved.', model.name))),
        left.length > 0 &&
          h(
            'p',
            { class: 'hl-summary' },
            __('Left out: %1.', left.map(each => `${each.model.name} (${leftOut(each)})`).join(', '))
          ),
        ...failures.map(([{ model }, error]) =>
          h(
            'div',
            { class: 'hl-alert', role: 'alert' },
            h('p', {}, __('%1 was not saved.', model.name)),
            ...failure(error)
          )
        )
      )
    ],
    undoable: replies.flatMap(([{ model }, { undo }]) => (undo ? [{ model, token: undo }] : []))
  };
}

function savedList(replies: readonly (readonly [SaveTarget, SaveReply])[]): HTMLElement[] {
  return [
    h('p', {}, __('Saved %1.', _n('%1 model', '%1 models', replies.length))),
    h(
      'ul',
      { class: 'hl-saved' },
      ...replies.map(([{ model }, reply]) =>
        h(
          'li',
          {},
          h(
            'p',
            {},
            h('b', {}, model.name),
            ' → ',
            h('code', { title: __('%1 on %2', reply.path, reply.host) }, reply.file)
          ),
          h(
            'p',
            { class: 'hl-summary' },
            [
              graphWords(reply.graphs.map(graph => graph.path)),
              bytesText(reply.bytes),
              reply.kept && __('the replaced file is among the earlier saves'),
              reply.note
            ]
              .filter(text => text)
              .join(', ')
          )
        )
      )
    )
  ];
}

interface Agreed {
  overwrite: true;
  replaces?: string;
}

function request(
  requester: Requester,
  { model, path, file }: SaveTarget,
  agreed: Agreed | null,
  onProgress: OnProgress
): Promise<SaveReply> {
  const body = { model: model.id, file, ...(path ? { path } : {}) };
  return requester.request('save', { ...body, ...(agreed ?? { overwrite: false }) }, { onProgress });
}

/** What the kernel wants to be asked; another error is thrown again. */
async function questionOf(requester: Requester, target: SaveTarget, caught: unknown): Promise<Question> {
  const error = asRequestError(caught);
  if (error.code !== 'exists' && error.code !== 'would-lose') {
    throw error;
  }
  return { target, error, there: await look(requester, target.file) };
}

function agreedTo({ there }: Question): Agreed {
  return { overwrite: true, ...(there?.version ? { replaces: there.version } : {}) };
}

function asked({ target, error, there }: Question): Child[] {
  const sentence = /[.:?]$/.test(error.message) ? error.message : `${error.message}.`;
  const [what, ...rest] = failure(new RequestError(error.code, sentence, error.next, error.details));
  return [
    h('p', {}, __('Save '), h('b', {}, target.name), '?'),
    what,
    there !== null &&
      there.version !== '' &&
      h('p', { class: 'hl-summary' }, __('There now: %1.', facts(there))),
    ...rest
  ];
}

/** `Net, 6 graphs, 61.7 kB, 3 min ago`. */
export function facts(there: Pick<Target, 'class' | 'graphs' | 'bytes' | 'modified'>): string {
  const model = there.class ? `${there.class}, ${_n('%1 graph', '%1 graphs', there.graphs)}, ` : '';
  return `${model}${bytesText(there.bytes)}, ${agoText(there.modified, Date.now() / 1000)}`;
}

async function look(requester: Requester, file: string): Promise<Target | null> {
  try {
    const { targets } = await requester.request('targets', { files: [file] }, { timeout: 5000 });
    return targets[0] ?? null;
  } catch (error) {
    if (error instanceof RequestError) {
      return null; // an older kernel: the question then says less
    }
    throw error;
  }
}

/** What a save wrote, with a way back. */
export function saved(
  { path, name }: SaveTarget,
  reply: SaveReply,
  codeOf: (path: string) => string,
  onUndo: (token: string) => void
): HTMLElement {
  const placeOf = (inner: string): string => [path, inner].filter(part => part).join('.');
  const graphs = reply.graphs.map(
    graph => `${codeOf(placeOf(graph.path))} (${_n('%1 operator', '%1 operators', graph.operators)})`
  );
  return h(
    'div',
    { class: 'hl-result' },
    h(
      'p',
      {},
      __(
        'Saved %1: %2, %3, ',
        name,
        graphWords(reply.graphs.map(graph => graph.path)),
        _n('%1 Block', '%1 Blocks', reply.blocks)
      ) + __('%1, in %2 s.', bytesText(reply.bytes), reply.seconds.toFixed(2))
    ),
    h('p', { class: 'hl-path' }, h('code', {}, reply.path), __(' on %1', reply.host)),
    reply.kept !== '' && h('p', {}, __('The replaced file is among the earlier saves.')),
    reply.note !== '' && h('p', {}, reply.note),
    graphs.length > 0 &&
      h('details', {}, h('summary', {}, __('Graphs')), h('ul', {}, ...graphs.map(line => h('li', {}, line)))),
    reply.undo !== '' &&
      h(
        'div',
        { class: 'hl-buttons' },
        button(__('Undo this save'), () => onUndo(reply.undo))
      )
  );
}

/** `1 graph, and those of 6 Blocks inside it`: a Block inside another one with a graph is part of that one's graph. */
export function graphWords(paths: readonly string[]): string {
  const all = new Set(paths);
  const isInside = (path: string): boolean =>
    path !== '' &&
    (all.has('') || path.split('.').some((_, i, parts) => i > 0 && all.has(parts.slice(0, i).join('.'))));
  const inside = [...all].filter(isInside).length;
  const outer = paths.filter(path => !isInside(path)).length;
  return inside === 0
    ? _n('%1 graph', '%1 graphs', outer)
    : outer === 1
      ? __('1 graph, and those of %1 inside it', _n('%1 Block', '%1 Blocks', inside))
      : __('%1 graphs, and those of %2 inside them', grouped(outer), _n('%1 Block', '%1 Blocks', inside));
}
