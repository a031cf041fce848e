// A shared page: the live view of one model in one HTML file, which asks no kernel. What the kernel would answer is in
// the file; see hybrid_lab/lab/views/shared_page.py.

import styles from '../../style/base.css';
import graphStyles from '../../style/graph.css';
import columnsStyles from '../../style/columns.css';
import followStyles from '../../style/follow.css';
import frameStyles from '../../style/frame.css';
import overlayStyles from '../../style/overlay.css';
import pageStyles from '../../style/page.css';
import { workerLayout } from '../graph/worker';
import type { Requester } from '../protocol/channel';
import { RequestError, asRequestError } from '../protocol/channel';
import type { Reply, RequestType, Requests } from '../protocol/messages';
import { REPLIES } from '../protocol/messages';
import { CurvesView } from '../view/curves';
import { button, h } from '../view/dom';
import { listed } from '../view/findings-list';
import { ModelView } from '../view/model-view';
import { toolbar } from '../view/roving';
import { splitPanes } from '../view/split-panes';
import { __ } from '../text';

/** What a shared page holds: replies by the key of their request, and requests that have the reply of another one. */
interface Recorded {
  model: string;
  replies: Record<string, unknown>;
  same: Record<string, string>;
  /** When and from what the page was made, in one line. */
  about: string;
}

/** The parts of a request that tell replies apart, in the order in which the kernel writes them into a key. */
const PARTS = ['path', 'program', 'kind', 'name', 'what', 'inputs', 'batch', 'dtype'] as const;

/** The key of a request, as `shared_page.py` makes it. */
export function keyOf(type: RequestType, body: object): string {
  const fields = body as Record<string, unknown>;
  return JSON.stringify([type, ...PARTS.map(part => fields[part] ?? '')]);
}

/** Answers requests from what was recorded. */
export class RecordedRequester implements Requester {
  constructor(private readonly recorded: Recorded) {}

  async request<T extends RequestType>(type: T, body: Requests[T]): Promise<Reply<T>> {
    const key = keyOf(type, body);
    const { replies, same } = this.recorded;
    const at = Object.hasOwn(same, key) ? (same[key] as string) : key;
    const asksForInputs = type === 'overlay' && (body as Requests['overlay']).data !== '';
    if (!Object.hasOwn(replies, at) || asksForInputs) {
      throw new RequestError(
        'not-found',
        __('The page does not contain this, and it has no kernel to ask.'),
        MISSING[type]
      );
    }
    return REPLIES[type](replies[at], type) as Reply<T>;
  }
}

const MISSING: Partial<Record<RequestType, string>> = {
  graph: __('Share the Block itself, or raise the limit.'),
  overlay: __('Choose another overlay, or the program that was measured.')
};

/** The JSON or text that lies compressed in an element. */
async function inflated(id: string): Promise<string> {
  const packed = document.getElementById(id)?.textContent ?? '';
  const bytes = Uint8Array.from(atob(packed), character => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).text();
}

type Theme = 'light' | 'dark';

/** A button for the other theme; at first the system's. */
function themeButton(): HTMLElement {
  const root = document.documentElement;
  let theme: Theme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  const change = button('', () => set(theme === 'dark' ? 'light' : 'dark'), { class: 'hl-button hl-theme' });
  const set = (chosen: Theme): void => {
    theme = chosen;
    root.dataset.hlTheme = chosen;
    change.textContent = chosen === 'dark' ? __('Light theme') : __('Dark theme');
  };
  set(theme);
  return change;
}

async function show(): Promise<void> {
  const recorded = JSON.parse(await inflated('hl-recorded')) as Recorded;
  const requester = new RecordedRequester(recorded);
  const { model } = recorded;
  const training = new CurvesView();
  const view = new ModelView({
    layout: workerLayout(() => inflated('hl-graphviz')),
    panes: splitPanes,
    tabs: [{ id: 'training', name: __('Training'), content: training.element }]
  });
  const tools = h('div', { class: 'hl-toolbar' }, view.headline, themeButton());
  toolbar(tools, 'Hybrid Lab');
  const about = h('div', { class: 'hl-about' }, recorded.about);
  const root = h(
    'div',
    { class: 'hl-root hl-wide hl-shared' },
    h('style', {}, styles, frameStyles, graphStyles, overlayStyles, followStyles, columnsStyles, pageStyles),
    tools,
    view.element,
    about
  );
  document.body.replaceChildren(root);
  const { runs } = await requester.request('curves', {});
  training.update(runs);
  view.drawer.offer('training', runs.length > 0);
  const tree = await requester.request('tree', { model });
  const { findings } = await requester.request('findings', { model });
  view.showFindings(listed(findings, undefined));
  view.connect(requester);
  view.showTree(tree, await requester.request('graph', { model, path: '', program: '' }).catch(() => null));
}

if (typeof document !== 'undefined' && document.getElementById('hl-recorded')) {
  show().catch((error: unknown) => {
    document.body.textContent = __('This page could not be shown: %1', asRequestError(error).message);
  });
}
