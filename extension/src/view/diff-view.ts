// What differs between two models: a list by Block, each with its operators side by side, and the tensors by size of change.

import type {
  BlockChange,
  Difference,
  GraphReply,
  OperatorChange,
  OverlayItem,
  TensorChange
} from '../protocol/messages';
import type { Child } from './dom';
import { button, h, replace } from './dom';
import { __, _n } from '../text';

/** An operator that differs, as a picture finds its node: the `place`-th one of the Block in the graph of `graph`. */
export interface GraphMark {
  /** Path of the Block whose graph was compared. */
  graph: string;
  block: string;
  place: number;
  kind: OperatorChange['kind'];
}

/** The nodes of a traced graph that differ, as an overlay shows them; in the picture of a plain Block those of each call. */
export function markedNodes(graph: GraphReply, marks: readonly GraphMark[]): OverlayItem[] {
  const wanted = new Map(marks.map(mark => [`${mark.graph} ${mark.place} ${mark.block}`, mark.kind]));
  const compared = new Set(marks.map(mark => mark.graph));
  const boxes = new Map(graph.boxes.map(box => [box.id, box]));
  /** The outermost box, and path, of a graph that was compared, around a box of the picture. */
  const callOf = (box: string): [string, string] => {
    let found: [string, string] = ['', graph.path];
    for (let each = boxes.get(box); each; each = boxes.get(each.parent)) {
      if (each.block !== null && compared.has(each.block)) {
        found = [each.id, each.block];
      }
    }
    return compared.has(graph.path) ? ['', graph.path] : found;
  };
  const places = new Map<string, number>();
  const items: OverlayItem[] = [];
  for (const { id, kind, block, box } of graph.nodes) {
    if (kind === 'operator') {
      const [call, path] = callOf(box);
      const place = places.get(`${call} ${block}`) ?? 0;
      places.set(`${call} ${block}`, place + 1);
      const found = wanted.get(`${path} ${place} ${block}`);
      if (found) {
        items.push({ id, value: null, share: 1, short: found, text: found, bad: false });
      }
    }
  }
  return items;
}

export interface DiffOptions {
  /** Show a Block in the graph, with the operators that differ marked. Without it there are no buttons for it. */
  onShow?: (block: string, marks: GraphMark[]) => void;
  /** Which side is the model on the page, whose operators can be shown. */
  side?: 'first' | 'second';
}

/** Blocks, and tensors, that are drawn; the rest is counted. */
const LIMIT = 300;
/** Blocks that are open at first. */
const OPENED = 8;

const SYMBOLS: Record<OperatorChange['kind'], string> = { added: '+', removed: '−', changed: '~', same: '' };

export function diffView(difference: Difference, options: DiffOptions = {}): HTMLElement {
  const { first, second } = difference;
  const blocks = difference.blocks.filter(
    block => block.kind !== 'same' || block.changes.length > 0 || block.operators.length > 0
  );
  const shown = blocks.slice(0, LIMIT);
  return h(
    'div',
    { class: 'hl-diff', role: 'group', 'aria-label': __('Differences of %1 and %2', first, second) },
    h(
      'p',
      { class: 'hl-diff-summary' },
      difference.equal ? __('Nothing differs.') : sentence(difference.summary)
    ),
    h('p', { class: 'hl-summary' }, h('span', {}, first), ' → ', h('span', {}, second)),
    ...shown.map((block, i) => blockView(block, difference, options, i < OPENED)),
    blocks.length > LIMIT && h('p', { class: 'hl-empty' }, __('and %1 more Blocks', blocks.length - LIMIT)),
    tensorList(difference.blocks.flatMap(block => block.tensors)),
    lines(difference.others),
    lines(difference.notes.map(note => __('Note: %1', note)))
  );
}

function blockView(
  block: BlockChange,
  difference: Difference,
  options: DiffOptions,
  open: boolean
): HTMLElement {
  const operators = block.operators.filter(row => row.kind !== 'same').length;
  const place = block.path || __('the model itself');
  return h(
    'details',
    { class: 'hl-diff-block', open },
    h(
      'summary',
      {},
      mark(block.kind),
      h('span', { class: 'hl-diff-path' }, place),
      ` ${block.class_name}${operators > 0 ? `: ${_n('%1 operator', '%1 operators', operators)}` : ''}`
    ),
    lines(block.changes),
    operators > 0 && operatorTable(block, difference),
    showButton(block, options)
  );
}

function operatorTable(block: BlockChange, { first, second }: Difference): HTMLElement {
  return h(
    'table',
    { class: 'hl-diff-operators' },
    h(
      'caption',
      { class: 'hl-visually-hidden' },
      __('Operators of %1', block.path || __('the model itself'))
    ),
    h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, first), h('th', { scope: 'col' }, second))),
    h('tbody', {}, ...block.operators.map(operatorRow))
  );
}

function operatorRow(row: OperatorChange): HTMLElement {
  const changes = lines(row.changes);
  if (row.kind === 'same') {
    return h('tr', { class: 'hl-diff-same' }, cell(row.first), cell(row.second));
  }
  const old = row.kind === 'added' ? cell('') : cell(row.first, row.kind);
  const now = row.kind === 'removed' ? cell('') : cell(row.second, row.kind, changes);
  return h('tr', { title: row.line }, old, now);
}

function cell(text: string, kind: OperatorChange['kind'] = 'same', ...more: Child[]): HTMLElement {
  return h(
    'td',
    kind === 'same' ? {} : { class: `hl-diff-${kind}` },
    kind !== 'same' && mark(kind),
    h('code', {}, text),
    ...more
  );
}

type Order = 'size' | 'part' | 'tree';

const ORDERS: Record<Order, string> = {
  size: __('largest change first'),
  part: __('largest relative change first'),
  tree: __('as in the tree')
};

/** The tensors, those that changed most first unless another order is chosen. */
function tensorList(tensors: readonly TensorChange[]): Child {
  if (tensors.length === 0) {
    return null;
  }
  const list = h('ul', { class: 'hl-diff-tensors' });
  const order = h(
    'select',
    { class: 'hl-input', 'aria-label': __('Order of the tensors'), onchange: () => fill() },
    ...Object.entries(ORDERS).map(([value, label]) => h('option', { value }, label))
  );
  const fill = (): void => {
    const sorted = sortedTensors(tensors, order.value as Order);
    const more = sorted.length - LIMIT;
    replace(
      list,
      ...sorted.slice(0, LIMIT).map(tensorRow),
      more > 0 && h('li', { class: 'hl-empty' }, __('and %1', _n('%1 more tensor', '%1 more tensors', more)))
    );
  };
  fill();
  const title = h('span', { class: 'hl-diff-path' }, _n('%1 tensor', '%1 tensors', tensors.length));
  return h(
    'div',
    { class: 'hl-diff-block' },
    h('div', { class: 'hl-diff-order' }, title, tensors.length > 1 && order),
    list
  );
}

/** Of another type or not finite comes before all sizes; what is on one side only comes last. */
export function sortedTensors(tensors: readonly TensorChange[], order: Order): TensorChange[] {
  const size = ({ kind, largest, scale }: TensorChange): number =>
    kind !== 'changed'
      ? -1
      : largest === null
        ? Infinity
        : order === 'size'
          ? largest
          : scale
            ? largest / scale
            : Infinity;
  return order === 'tree' ? [...tensors] : [...tensors].sort((a, b) => compare(size(b), size(a)));
}

function compare(a: number, b: number): number {
  return a === b ? 0 : a - b;
}

function tensorRow(tensor: TensorChange): HTMLElement {
  return h(
    'li',
    { class: `hl-diff-${tensor.kind}` },
    h(
      'span',
      { class: `hl-mark hl-mark-${tensor.kind}`, title: tensor.kind },
      SYMBOLS[tensor.kind],
      h('span', { class: 'hl-visually-hidden' }, ` ${tensor.kind}`)
    ),
    h('code', {}, tensor.name),
    ` ${tensor.text}`
  );
}

/** The kind in a word, so that nobody has to see the colour. */
function mark(kind: OperatorChange['kind']): Child {
  return kind === 'same' ? null : h('span', { class: `hl-mark hl-mark-${kind}` }, `${SYMBOLS[kind]} ${kind}`);
}

function showButton(block: BlockChange, { onShow, side = 'second' }: DiffOptions): Child {
  const marks = block.operators.flatMap(row => {
    const place = side === 'first' ? row.first_place : row.second_place;
    const path = side === 'first' ? row.first_block : row.block;
    return row.kind === 'same' || place === null
      ? []
      : [{ graph: block.path, block: path, place, kind: row.kind }];
  });
  if (!onShow || marks.length === 0) {
    return null;
  }
  return button(__('Show in graph'), () => onShow(block.path, marks), {
    title: __('Show %1 in the graph', block.path || __('the model itself'))
  });
}

function lines(texts: readonly string[]): Child {
  return texts.length > 0 && h('ul', { class: 'hl-diff-lines' }, ...texts.map(text => h('li', {}, text)));
}

export function sentence(text: string): string {
  return text === '' ? '' : `${text[0]?.toUpperCase() ?? ''}${text.slice(1)}.`;
}
