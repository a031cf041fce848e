// Saving: one model, one Block, or every model after its names were listed; what would be replaced is told first.

import { RequestError, Requester, asRequestError } from '../protocol/channel';
import type { Model, Progress, SaveReply, Saving, Target } from '../protocol/messages';
import { ActionResults, failure } from './action-results';
import { Child, button, h } from './dom';
import { agoText, bytesText, plural } from './words';

/** A model, or a Block of it by its path, and the file it goes to. */
export interface SaveTarget {
  model: Model;
  path: string;
  file: string;
}

type OnProgress = (progress: Progress) => void;

/**
 * Save, and ask before a file is replaced, unless the user agreed to replace this version of it, and before graphs are
 * lost; gives lines to show.
 */
export async function save(
  requester: Requester,
  target: SaveTarget,
  results: ActionResults,
  onProgress: OnProgress,
  agreed = ''
): Promise<Child[]> {
  const { model, path, file } = target;
  const body = { model: model.id, file, overwrite: false, ...(path ? { path } : {}) };
  let overwrite: { overwrite?: boolean; replaces?: string; fewer_graphs?: boolean } = agreed
    ? { overwrite: true, replaces: agreed }
    : {};
  for (;;) {
    try {
      return [saved(model, path, await requester.request('save', { ...body, ...overwrite }, { onProgress }))];
    } catch (caught) {
      const error = asRequestError(caught);
      if (error.code === 'fewer-graphs') {
        if (!(await results.confirm(failure(error), 'Save without them'))) {
          return [h('p', {}, `${nameOf(model, path)} was not saved.`)];
        }
        overwrite = { ...overwrite, fewer_graphs: true };
        continue;
      }
      if (error.code !== 'exists') {
        throw error;
      }
      const there = await look(requester, file);
      const question = `${error.message}${there ? `: ${facts(there)}` : ''}. It is kept in the history.`;
      if (!(await results.confirm(question, 'Replace it'))) {
        return [h('p', {}, `${nameOf(model, path)} was not saved.`)];
      }
      overwrite = { overwrite: true, ...(there?.version ? { replaces: there.version } : {}) };
    }
  }
}

/** The form that lists every model with its file; those that are left out are not checked. */
export async function everyModelForm(
  requester: Requester,
  models: readonly SaveTarget[],
  saving: Readonly<Record<string, Saving>>,
  onSave: (chosen: { target: SaveTarget; replaces: string }[]) => void,
  onCancel: () => void
): Promise<HTMLElement> {
  const { targets } = await requester.request('targets', { files: models.map(each => each.file) });
  const rows = models.map((target, i) => {
    const there = targets[i];
    const leftOut = saving[target.model.id]?.left_out ?? '';
    const twice = models.findIndex(other => other.file === target.file) < i;
    const problem =
      there?.problem || (twice ? 'another model has this file: give it a name of its own first' : '');
    const box = h('input', {
      type: 'checkbox',
      checked: leftOut === '' && problem === '',
      disabled: problem !== '',
      onchange: () => count()
    });
    const what =
      problem ||
      (there?.version ? `replaces ${facts(there)}` : 'a new file') + (leftOut ? ` (${leftOut})` : '');
    const element = h(
      'label',
      { class: 'hl-save-row' },
      box,
      h('span', {}, h('b', {}, target.model.name), ` ${target.model.class} → `, h('code', {}, target.file)),
      h('span', { class: problem ? 'hl-problem' : 'hl-summary' }, what)
    );
    return { target, box, element, replaces: there?.version ?? '' };
  });
  const chosen = (): typeof rows => rows.filter(row => row.box.checked);
  const go = button('', () => onSave(chosen()), { class: 'hl-button hl-primary' });
  const count = (): void => {
    go.textContent = `Save ${plural(chosen().length, 'model')}`;
    go.disabled = chosen().length === 0;
  };
  count();
  return h(
    'div',
    { class: 'hl-save-every', role: 'group', 'aria-label': 'Save every model' },
    ...rows.map(row => row.element),
    h('div', { class: 'hl-buttons' }, go, button('Cancel', onCancel))
  );
}

/** `Net, 6 graphs, 61.7 kB, 3 min ago`. */
export function facts(there: Pick<Target, 'class' | 'graphs' | 'bytes' | 'modified'>): string {
  const model = there.class ? `${there.class}, ${plural(there.graphs, 'graph')}, ` : '';
  return `${model}${bytesText(there.bytes)}, ${agoText(there.modified, Date.now() / 1000)}`;
}

/** `net`, `net.features`. */
export function nameOf(model: Model, path: string): string {
  return path ? `${model.name}.${path}` : model.name;
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

function saved(model: Model, path: string, reply: SaveReply): HTMLElement {
  const name = nameOf(model, path);
  const graphs = reply.graphs.map(graph => `${graph.path || name} (${plural(graph.operators, 'operator')})`);
  return h(
    'div',
    { class: 'hl-result' },
    h(
      'p',
      {},
      `Saved ${name}: ${graphWords(reply.graphs.map(graph => graph.path))}, ${plural(reply.blocks, 'Block')}, ` +
        `${bytesText(reply.bytes)}, in ${reply.seconds.toFixed(2)} s.`
    ),
    h('p', { class: 'hl-path' }, h('code', {}, reply.path), ` on ${reply.host}`),
    reply.kept !== '' && h('p', {}, 'The file that was there is in the history.'),
    reply.note !== '' && h('p', {}, reply.note),
    graphs.length > 0 &&
      h('details', {}, h('summary', {}, 'Graphs'), h('ul', {}, ...graphs.map(line => h('li', {}, line))))
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
    ? plural(outer, 'graph')
    : `${plural(outer, 'graph')}, and those of ${plural(inside, 'Block')} inside ${outer === 1 ? 'it' : 'them'}`;
}
