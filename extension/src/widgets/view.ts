// The browser half of mx.view(net): an anywidget around the shared views, talking over the widget's custom messages.

import type { AnyModel, RenderProps } from '@anywidget/types';
import styles from '../../style/base.css';
import graphStyles from '../../style/graph.css';
import columnsStyles from '../../style/columns.css';
import followStyles from '../../style/follow.css';
import frameStyles from '../../style/frame.css';
import overlayStyles from '../../style/overlay.css';
import { workerLayout } from '../graph/worker';
import type { Envelope } from '../protocol/channel';
import { Channel, asRequestError } from '../protocol/channel';
import { ProtocolError } from '../protocol/check';
import type { FindingsReply, GraphReply, TreeReply } from '../protocol/messages';
import { PROTOCOL, findingsReply, graphReply, treeReply } from '../protocol/messages';
import { mismatch, newerKernel } from '../protocol/versions';
import { VERSION } from '../version';
import { ActionBar } from '../view/action-bar';
import { h } from '../view/dom';
import { listed } from '../view/findings-list';
import { ModelView } from '../view/model-view';
import { Popover } from '../view/popover';
import { toolbar } from '../view/roving';
import { splitPanes } from '../view/split-panes';
import { __ } from '../text';

/** The widget's traits, as docs/protocol.md lists them. */
interface Traits {
  protocol: number;
  version: string;
  kernel_id: string;
  model: string;
  tree: unknown;
  graph: unknown;
  findings: unknown;
  selected: string;
  svg: string;
}

/** How long the kernel may take to say that it is there. */
const PATIENCE = 8000;

function render({ model, el }: RenderProps<Traits>): () => void {
  const channel = new Channel((message: Envelope) => model.send(message));
  channel.kernelId = model.get('kernel_id');
  const receive = (content: unknown): void => channel.receive(content);
  model.on('msg:custom', receive);

  const complain = (text: string): void => view.complain(text);
  channel.onMalformed = complain;
  channel.onUnknown = () => view.notices.say(newerKernel(VERSION, model.get('version')));

  const results = h('div', {});
  const saves = h('div', {});
  const layout = workerLayout(async () => (await channel.request('asset', { name: 'graphviz' })).text);
  const view: ModelView = new ModelView({
    layout,
    panes: splitPanes,
    tabs: [
      { id: 'results', name: __('Results'), content: results },
      { id: 'saves', name: __('Saves'), content: saves, onShow: () => void actions.showSaves() }
    ],
    saves: {
      file: () => actions.savesOptions.file(),
      onCompare: file => void actions.compare(file),
      onReload: file => void actions.reload(file)
    },
    onCompare: file => void actions.compare(file),
    onSelect: path => {
      actions.setBlock(path);
      model.set('selected', path);
      model.save_changes();
    },
    onPicture: svg => {
      model.set('svg', svg);
      model.save_changes();
      el.dispatchEvent(new CustomEvent('hybrid-lab-picture', { bubbles: true, composed: true }));
    }
  });
  const refresh = async (): Promise<void> => {
    try {
      const tree = await channel.request('tree', { model: model.get('model') });
      actions.setModel(tree.model);
      view.showTree(tree);
    } catch {
      // The traits follow by themselves; this only makes it quicker.
    }
  };
  const actions: ActionBar = new ActionBar({
    withOpen: false,
    codeOf: path => view.nameOf(path),
    onChanged: () => void refresh(),
    onShowInGraph: (block, marks) => view.showDifference(block, marks),
    sideBySide: { opens: true, show: shown => void view.showSideBySide(shown) },
    onSaves: () => {
      menu.close();
      view.drawer.open('saves');
    },
    onOutcome: () => {
      menu.close();
      view.drawer.open('results');
    }
  });
  results.append(actions.outcome);
  saves.append(actions.saves);
  const menu = new Popover('⋯', __('More actions'), actions.more);
  const tools = h('div', { class: 'hl-toolbar' }, view.headline, actions.buttons, menu.button);
  toolbar(tools, 'Hybrid Lab');

  const showFindings = (): void => {
    const findings = read(
      model,
      'findings',
      (value, at): FindingsReply => findingsReply(value, at),
      complain
    );
    view.showFindings(listed(findings?.findings ?? [], undefined));
  };
  const showTree = (withGraph: boolean): void => {
    const tree = read(model, 'tree', (value, at): TreeReply => treeReply(value, at), complain);
    if (tree) {
      const graph = withGraph
        ? read(model, 'graph', (value, at): GraphReply => graphReply(value, at), complain)
        : null;
      actions.setModel(tree.model);
      view.showTree(tree, graph);
    }
  };
  const onTree = (): void => showTree(false);
  const onSelected = (): void => view.select(model.get('selected'));
  model.on('change:tree', onTree);
  model.on('change:findings', showFindings);
  model.on('change:selected', onSelected);

  const root = h(
    'div',
    { class: 'hl-root hl-wide' },
    h('style', {}, styles, frameStyles, graphStyles, overlayStyles, followStyles, columnsStyles),
    tools,
    menu.panel,
    h('div', { class: 'hl-line' }, view.banner.element),
    view.element
  );
  el.append(root);

  const versions = mismatch(VERSION, { kernel: model.get('version'), protocol: model.get('protocol') });
  if (versions !== null) {
    complain(versions);
  } else {
    showTree(true);
    showFindings();
    // A saved notebook has the traits but nobody who answers; a kernel without subshells answers after the running cell.
    const silence = setTimeout(() => {
      const svg = model.get('svg');
      if (svg) {
        view.showPicture(svg);
      }
      complain(
        __(
          'Shown as last saved: the kernel is busy or gone. If it is gone, run the cell again to use this view.'
        )
      );
    }, PATIENCE);
    actions.connect(null, __('The kernel has not answered yet.'));
    channel.request('tree', { model: model.get('model') }).then(
      tree => {
        clearTimeout(silence);
        complain('');
        actions.connect(channel);
        actions.setModel(tree.model);
        view.connect(channel);
      },
      (error: unknown) => {
        clearTimeout(silence);
        const { code, message, next } = asRequestError(error);
        if (code !== 'closed') {
          complain(`${message} ${next}`.trim());
        }
      }
    );
  }

  return () => {
    channel.close(__('The view was closed.'));
    model.off('msg:custom', receive);
    model.off('change:tree', onTree);
    model.off('change:findings', showFindings);
    model.off('change:selected', onSelected);
  };
}

/** A trait's value, validated; null (and a sentence on the page) where it is not what the protocol says. */
function read<T>(
  model: AnyModel<Traits>,
  trait: 'tree' | 'graph' | 'findings',
  check: (value: unknown, at: string) => T,
  complain: (text: string) => void
): T | null {
  const value = model.get(trait);
  if (typeof value === 'object' && value !== null && Object.keys(value).length === 0) {
    return null; // an empty trait: nothing yet
  }
  try {
    return check(value, trait);
  } catch (error) {
    if (error instanceof ProtocolError) {
      complain(
        __(
          "The kernel's %1 (protocol %2). Upgrade hybrid-lab in the kernel and in Jupyter to the same version.",
          error.message,
          PROTOCOL
        )
      );
      return null;
    }
    throw error;
  }
}

export default { render };
