// One line that answers four questions unasked: which Blocks do not run as graphs, where NaN is, what is slow, and what
// changed since the last save. Each answer leads to its place. Nothing is guessed: what is not known is not said.

import type { Requester } from '../protocol/channel';
import { asRequestError } from '../protocol/channel';
import type {
  AnswersReply,
  BlockNode,
  ChangeAnswer,
  GraphReply,
  Model,
  NanAnswer,
  OverlayReply
} from '../protocol/messages';
import { codesOf, first } from './block-index';
import { button, h, keepFocus, replace } from './dom';
import { accessPath, timeText } from './words';
import { __, _n, grouped } from '../text';

/** The slowest operator that was measured. */
export interface Slowest {
  /** The Block whose graph was measured, the program, and the node of its picture. */
  path: string;
  program: string;
  node: string;
  name: string;
  share: number;
  /** All in words. */
  text: string;
}

export interface BannerEvents {
  /** Show a Block: its row, and why it is in this state. */
  onBlock: (path: string) => void;
  /** Show where NaN is. */
  onNan: (nan: NanAnswer) => void;
  /** Show the times of the operators, and the slowest of them; null: measure them first. */
  onSlowest: (slowest: Slowest | null) => void;
  /** Compare the model with the file of this name, "" for its own. */
  onCompare: (file: string) => void;
  /** Show a Block of another model, by its id. */
  onModel?: (model: string, path: string) => void;
  /** A Block failed that had not failed before, or had when the model was shown first. */
  onFailed?: (path: string) => void;
}

/** Milliseconds of rest before a small model is measured. */
const REST = 1500;
/** Characters of a reason that are shown; its title has all. */
const REASON = 70;

/** Other models that failed which are named one by one. */
const OTHERS = 3;

/** How much an answer matters, the most first. */
const TONES = ['bad', 'note', 'calm'] as const;
type Tone = (typeof TONES)[number];

interface Item {
  key: string;
  tone: Tone;
  text: string;
  /** The end of the text, which says what a click does: where there is no room, what is before it is cut. */
  end?: string;
  title: string;
  /** What a click does; null: nothing to go to. */
  act: (() => void) | null;
}

/** How many Blocks are in which state. */
interface States {
  blocks: number;
  /** Blocks whose own code failed, else all that failed. */
  failed: BlockNode[];
  /** Blocks whose calls have no graph and run eagerly: those whose own code has none, else all. */
  refused: BlockNode[];
  eager: BlockNode[];
  plain: BlockNode[];
  waiting: number;
}

export class Banner {
  readonly element: HTMLElement;

  /** `isSeen`: whether somebody can see it, without which nothing is measured. */
  constructor(
    private readonly events: BannerEvents,
    private readonly isSeen: () => boolean = () => this.element.getClientRects().length > 0
  ) {
    this.list = h('ul', { class: 'hl-answers', 'aria-label': __('State of the model') });
    this.spoken = h('span', { class: 'hl-visually-hidden', role: 'status' });
    this.element = h('div', { class: 'hl-answers-part' }, this.list, this.spoken);
    this.element.hidden = true;
    if (typeof ResizeObserver !== 'undefined') {
      new ResizeObserver(() => this.setTabStop()).observe(this.list);
    }
  }

  connect(requester: Requester | null): void {
    if (requester !== this.requester) {
      this.requester = requester;
      this.slowest = new Map();
      this.asked = '';
    }
  }

  /** No model is shown. */
  clear(): void {
    this.model = '';
    this.root = null;
    this.answers = null;
    this.failedBefore = null;
    this.element.hidden = true;
    clearTimeout(this.resting);
  }

  /** The tree of a model as it is now; `compiled` changes when its programs do. */
  showTree(model: string, root: BlockNode, compiled: string): void {
    if (model !== this.model) {
      this.clear();
      this.model = model;
    }
    this.root = root;
    this.codes = codesOf(root);
    this.compiled = compiled;
    this.tellFailures();
    this.render();
  }

  /** The models that are not shown: one that fails is told of too. */
  showOthers(models: readonly Model[]): void {
    this.others = models.filter(model => model.failed);
    this.render();
  }

  /** Ask what the kernel knows of the model: after each cell. */
  async refresh(): Promise<void> {
    const { requester, model } = this;
    if (!requester || model === '') {
      return;
    }
    try {
      const answers = await requester.request('answers', { model });
      if (model === this.model && requester === this.requester) {
        this.answers = answers;
        this.render();
        this.measureSoon();
      }
    } catch {
      // An older kernel does not know the request; the states of the Blocks are told all the same.
    }
  }

  /** Somebody measured the times of a graph. */
  measured(model: string, reply: OverlayReply, graph: GraphReply): void {
    const [node] = reply.marked;
    const item = reply.items.find(each => each.id === node);
    const found = graph.nodes.find(each => each.id === node);
    if (reply.kind !== 'time' || node === undefined || !item || !found) {
      return;
    }
    const name = `${found.op || found.label}${found.block === '' ? '' : __(' in %1', this.nameOf(found.block))}`;
    const { path } = graph;
    this.slowest.set(model, {
      path,
      program: reply.program,
      node,
      name,
      share: item.share,
      text: `${item.text}\n${reply.headline}`
    });
    this.render();
  }

  // -- measuring ------------------------------------------------------------------------------------------------------

  private measureSoon(): void {
    clearTimeout(this.resting);
    const key = `${this.model}|${this.compiled}`;
    if (this.answers?.measurable && key !== this.asked && !this.slowest.has(this.model)) {
      this.resting = setTimeout(() => void this.measure(key), REST);
    }
  }

  /** Time the operators of a small model, where the kernel is idle. */
  private async measure(key: string): Promise<void> {
    const { requester, model, root } = this;
    const start = root && first(root, node => node.graphs > 0);
    if (!requester || !start || key !== `${model}|${this.compiled}` || !this.isSeen()) {
      return;
    }
    this.asked = key;
    const { path } = start;
    try {
      const program = '';
      const reply = await requester.request('overlay', { model, path, program, kind: 'time', data: '' });
      const graph = await requester.request('graph', { model, path, program: reply.program });
      this.measured(model, reply, graph);
    } catch (error) {
      if (asRequestError(error).code === 'busy') {
        this.asked = ''; // a cell began; after it there is another chance
      }
    }
  }

  // -- what it says ---------------------------------------------------------------------------------------------------

  private items(): Item[] {
    const { root } = this;
    if (!root) {
      return [];
    }
    const states = statesOf(root);
    const nan = this.answers?.nan ?? null;
    const change = this.answers?.change ?? null;
    const items = [
      ...this.failures(states),
      ...this.failuresElsewhere(),
      ...(nan ? [this.nanItem(nan)] : []),
      ...this.unhybridized(states),
      ...this.speed(states),
      ...(this.answers ? [this.changeItem(change)] : [])
    ];
    // What wants to be looked at comes first: the end of the line is cut in a narrow panel.
    return items.sort((one, other) => TONES.indexOf(one.tone) - TONES.indexOf(other.tone));
  }

  private failures({ failed }: States): Item[] {
    const [culprit] = failed;
    if (!culprit) {
      return [];
    }
    const name = this.nameOf(culprit.path);
    const reason = culprit.why.length > REASON ? `${culprit.why.slice(0, REASON - 1)}…` : culprit.why;
    return [
      {
        key: 'failed',
        tone: 'bad',
        text: __(
          '%1 failed: %2%3',
          _n('%1 Block', '%1 Blocks', failed.length),
          name,
          reason === '' ? '' : ` – ${reason}`
        ),
        title: failed.map(({ path, why }) => `${this.nameOf(path)}: ${why}`).join('\n'),
        act: () => this.events.onBlock(culprit.path)
      }
    ];
  }

  /** Models that are not shown and failed; a click shows the first Block that did. */
  private failuresElsewhere(): Item[] {
    const items = this.others.slice(0, OTHERS).flatMap(({ id, name, failed }): Item[] => {
      if (!failed) {
        return [];
      }
      const { path, why, count, code } = failed;
      const place = code || accessPath(name, path);
      const text =
        path === '' && count === 1
          ? __('%1 failed', name)
          : __('%1 of %2 failed: %3', _n('%1 Block', '%1 Blocks', count), name, place);
      const act = (): void => this.events.onModel?.(id, path);
      return [{ key: `failed ${id}`, tone: 'bad', text, title: `${text}: ${why}`, act }];
    });
    const more = this.others.slice(OTHERS);
    const [next] = more;
    return next
      ? [
          ...items,
          {
            key: 'failed more',
            tone: 'bad',
            text: __('%1 failed', _n('%1 more model', '%1 more models', more.length)),
            title: more.map(({ name }) => name).join(', '),
            act: () => this.events.onModel?.(next.id, next.failed?.path ?? '')
          }
        ]
      : items;
  }

  /** A Block as the user's code calls it. */
  private nameOf(path: string): string {
    return this.codes.get(path) ?? accessPath(this.root?.attr ?? '', path);
  }

  /** A parameter, by its path and that of its Block. */
  private parameterName(block: string | null, path: string): string {
    return block !== null && path.startsWith(`${block}.`)
      ? accessPath(this.nameOf(block), path.slice(block.length + 1))
      : accessPath(this.nameOf(''), path);
  }

  /** Blocks that run as Python, or that all run as graphs. */
  private unhybridized({ blocks, failed, refused, eager, plain, waiting }: States): Item[] {
    const items: Item[] = [];
    const listed = (key: string, nodes: BlockNode[], word: string): void => {
      const [one] = nodes;
      if (one) {
        const more = nodes.length - 10;
        const names = nodes.slice(0, 10).map(({ path, why }) => `${this.nameOf(path)}: ${why}`);
        items.push({
          key,
          tone: 'note',
          text: `${_n('%1 Block', '%1 Blocks', nodes.length)} ${word}`,
          title: [...names, more > 0 ? __('and %1 more', grouped(more)) : ''].join('\n').trim(),
          act: () => this.events.onBlock(one.path)
        });
      }
    };
    listed('refused', refused, refused.length === 1 ? __('runs eagerly') : __('run eagerly'));
    listed('eager', eager, __('not hybridized'));
    listed('plain', plain, __('plain'));
    if (failed.length === 0 && items.length === 0) {
      const isWaiting = waiting === blocks;
      items.push({
        key: 'hybrid',
        tone: 'calm',
        text: isWaiting
          ? __('%1 hybridized, not called yet', _n('%1 Block', '%1 Blocks', blocks))
          : blocks === 1
            ? __('The Block is hybrid')
            : __('All %1 Blocks hybrid', grouped(blocks)),
        title: __('Every Block runs as a graph, its own or that of a Block around it'),
        act: null
      });
    }
    return items;
  }

  private nanItem(nan: NanAnswer): Item {
    const base = { key: 'nan', tone: 'bad' as const, title: nan.text };
    if (nan.source === 'logged') {
      const text = __('%1 not finite at step %2', nan.name, nan.step === null ? '?' : grouped(nan.step));
      if (this.isWatching !== this.model) {
        return { ...base, text, end: __(': find where'), act: () => void this.watch(nan) };
      }
      const next =
        nan.count > 0 ? this.afresh(text) : __('%1: run the cell again, and it stops at the first NaN', text);
      return { ...base, text: next, act: null };
    }
    if (nan.source === 'parameters') {
      const count = _n('%1 parameter', '%1 parameters', nan.count);
      const text = __('%1 with NaN: %2', count, this.parameterName(nan.path, nan.name));
      const act = (): void => this.events.onNan(nan);
      return { ...base, text: this.isWatching === this.model ? this.afresh(text) : text, act };
    }
    const what = nan.part === 'backward' ? __('NaN first in the backward of') : __('NaN first in');
    const where = nan.path === null ? nan.name : this.nameOf(nan.path);
    const text = `${what} ${where}${nan.operator === '' ? '' : ` (${nan.operator})`}`;
    return { ...base, text, act: () => this.events.onNan(nan) };
  }

  /** The answer if parameters already hold NaN: which operator made it can only be seen in a new training. */
  private afresh(text: string): string {
    return __(
      '%1: create %2 again and train it; the cell then stops at the first NaN',
      text,
      this.nameOf('')
    );
  }

  /** Stop at the operator that makes the NaN, when the cell runs again. */
  private async watch(nan: NanAnswer): Promise<void> {
    const { requester, model } = this;
    try {
      await requester?.request('watch_nan', { model, on: true });
      this.isWatching = model;
      this.render();
      this.say(
        nan.count > 0
          ? __(
              'Stop at NaN is on. Parameters hold NaN already: create the model again and train it. The cell then stops at the first NaN.'
            )
          : __('Stop at NaN is on. Run the cell again, and it stops at the first NaN.')
      );
    } catch (error) {
      this.say(asRequestError(error).message);
    }
    this.events.onNan(nan);
  }

  private speed({ blocks, waiting, refused, eager, plain }: States): Item[] {
    const slowest = this.slowest.get(this.model);
    if (slowest) {
      const share =
        slowest.share < 0.1 ? (100 * slowest.share).toFixed(1) : String(Math.round(100 * slowest.share));
      return [
        {
          key: 'slow',
          tone: 'calm',
          text: __('slowest: %1 %2%%', slowest.name, share),
          title: slowest.text,
          act: () => this.events.onSlowest(slowest)
        }
      ];
    }
    const hasGraph = this.root !== null && first(this.root, node => node.graphs > 0) !== null;
    if (!hasGraph || !this.requester || waiting + refused.length + eager.length + plain.length >= blocks) {
      return [];
    }
    return [
      {
        key: 'slow',
        tone: 'calm',
        text: __('find the slowest operator'),
        title: __('Measure the operators of the graph, on random numbers of the shapes of the last call'),
        act: () => this.events.onSlowest(null)
      }
    ];
  }

  private changeItem(change: ChangeAnswer | null): Item {
    const key = 'change';
    if (change === null) {
      const title = __('This kernel has neither saved nor loaded the model');
      return { key, tone: 'calm', text: __('not saved yet'), title, act: null };
    }
    const when = timeText(change.when, new Date());
    const title = `${change.path}, ${change.how === 'loaded' ? __('loaded %1', when) : __('saved %1', when)}`;
    const compare = change.reachable ? (): void => this.events.onCompare(change.file) : null;
    if (change.how === 'unknown') {
      const text = `${change.file} ${when}`;
      const end = __(': compare');
      return { key, tone: 'calm', text, end, title: __('%1; not by this kernel', title), act: compare };
    }
    if (change.file_now === 'gone') {
      return { key, tone: 'note', text: __('%1 was removed since the save', change.file), title, act: null };
    }
    if (change.file_now === 'other') {
      const text = __('%1 was written by something else since the save', change.file);
      return { key, tone: 'note', text, title, act: compare };
    }
    const since = change.how === 'saved' ? __('since the save') : __('since it was loaded');
    // Which tensors are the same ones, where Blocks came or went, only the comparison finds out.
    const what = change.structure
      ? __('Blocks or parameters')
      : change.changed > 0
        ? tensorsText(change)
        : '';
    if (what !== '') {
      const unread = change.uncompared > 0 && !change.structure;
      return {
        key,
        tone: 'note',
        text: __('%1 changed %2', what, since),
        title: unread ? `${title}. ${uncomparedText(change.uncompared)}` : title,
        act: compare
      };
    }
    const unsure =
      change.unsure > 0
        ? `. ${_n('Other programs may have written to %1 tensor', 'Other programs may have written to %1 tensors', change.unsure)}`
        : '';
    const text = change.how === 'loaded' ? __('loaded %1', when) : __('saved %1', when);
    return { key, tone: 'calm', text, title: __('%1: nothing changed since%2', title, unsure), act: compare };
  }

  // -- on the page ----------------------------------------------------------------------------------------------------

  private render(): void {
    const items = this.items();
    this.element.hidden = items.length === 0;
    this.write(items);
    const bad = items
      .filter(item => item.tone === 'bad')
      .map(item => item.text + (item.end ?? ''))
      .join('. ');
    if (bad !== this.badBefore) {
      // What is bad from the start is read where it stands; what comes later is said.
      if (this.badBefore !== null && this.modelSaid === this.model) {
        this.say(bad === '' ? __('All is well again.') : bad);
      }
      this.badBefore = bad;
    }
    this.modelSaid = this.model;
  }

  private write(items: readonly Item[]): void {
    const written = JSON.stringify(
      items.map(({ key, tone, text, end, title, act }) => [key, tone, text, end, title, act !== null])
    );
    this.shown = new Map(items.map(item => [item.key, item]));
    if (written === this.written) {
      return;
    }
    this.written = written;
    keepFocus(this.list, () =>
      replace(
        this.list,
        ...items.map(({ key, tone, text, end, title, act }) => {
          const words = act
            ? button(end ? '' : text, () => this.shown.get(key)?.act?.(), {
                class: 'hl-link',
                title,
                'data-key': key
              })
            : h('span', { title }, end ? '' : text);
          if (end) {
            words.classList.add('hl-answer-long');
            words.append(h('span', {}, text), h('span', {}, end));
          }
          return h('li', { class: `hl-answer hl-answer-${tone}` }, words);
        })
      )
    );
    this.setTabStop();
  }

  /** Answers that are cut are scrolled to by the Tab key, or by the arrow keys if none of them leads anywhere. */
  private setTabStop(): void {
    const isCut = this.list.scrollWidth > this.list.clientWidth;
    if (isCut && this.list.querySelector('button') === null) {
      this.list.tabIndex = 0;
    } else {
      this.list.removeAttribute('tabindex');
    }
  }

  private say(text: string): void {
    this.spoken.textContent = text;
  }

  /** Tell of the first Block that has failed since the tree was shown last. */
  private tellFailures(): void {
    const failed = this.root ? statesOf(this.root).failed.map(node => node.path) : [];
    const before = this.failedBefore;
    this.failedBefore = new Set(failed);
    const newly = failed.find(path => !before?.has(path));
    if (newly !== undefined) {
      this.events.onFailed?.(newly);
    }
  }

  private readonly list: HTMLElement;
  private readonly spoken: HTMLElement;
  private requester: Requester | null = null;
  private model = '';
  private others: readonly Model[] = [];
  private root: BlockNode | null = null;
  private codes: ReadonlyMap<string, string> = new Map();
  private compiled = '';
  private answers: AnswersReply | null = null;
  private slowest = new Map<string, Slowest>();
  private asked = '';
  private isWatching = '';
  private failedBefore: ReadonlySet<string> | null = null;
  private badBefore: string | null = null;
  private modelSaid = '';
  private written = '';
  private shown = new Map<string, Item>();
  private resting: ReturnType<typeof setTimeout> | undefined;
}

/** How many tensors changed; "up to" where written ones were not compared with the file. */
function tensorsText({ changed, uncompared }: ChangeAnswer): string {
  return uncompared > 0
    ? _n('up to %1 tensor', 'up to %1 tensors', changed)
    : _n('%1 tensor', '%1 tensors', changed);
}

function uncomparedText(uncompared: number): string {
  return _n(
    '%1 tensor was written since then and not compared with the file yet',
    '%1 tensors were written since then and not compared with the file yet',
    uncompared
  );
}

/** Each Block once; of those without a graph the ones whose own code has none, where that is known. */
function statesOf(root: BlockNode): States {
  const states: States = { blocks: 0, failed: [], refused: [], eager: [], plain: [], waiting: 0 };
  const waiting = [root];
  for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
    if (node.shared_with === null && !node.group) {
      states.blocks++;
      const { state } = node;
      if (state === 'failed' || state === 'refused' || state === 'eager' || state === 'plain') {
        states[state].push(node);
      }
      states.waiting += node.state === 'waiting' ? 1 : 0;
    }
    waiting.push(...[...node.children].reverse());
  }
  for (const state of ['failed', 'refused'] as const) {
    const own = states[state].filter(node => !node.failed_in);
    states[state] = own.length > 0 ? own : states[state];
  }
  return states;
}
