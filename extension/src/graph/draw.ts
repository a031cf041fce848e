// The SVG elements of a picture's nodes, boxes and edges. Colours are classes; export.ts turns them into attributes.

import type { GraphBox, GraphNode } from '../protocol/messages';
import { tensorText } from '../view/words';
import { CHIP, HEADER, SIZES, STRIP, TOGGLE, boxDetail, boxTitle, measuredX, typeText } from './card';
import type { DrawnEdge, DrawnItem, DrawnPort } from './compose';
import { tensorOf } from './compose';
import type { Point } from './layer';
import type { Scene } from './scene';
import { __, _n } from '../text';

/** What a node is. */
const KINDS: Partial<Record<string, string>> = {
  operator: __('operator'),
  input: __('input'),
  output: __('output'),
  parameter: __('parameter'),
  constant: __('constant')
};

const SVG = 'http://www.w3.org/2000/svg';
const RADIUS = { node: 6, box: 8, pill: 13 } as const;

type Attributes = Record<string, string | number | undefined>;

/** Make an SVG element; attributes that are undefined are left out, numbers are rounded to hundredths. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string | null | undefined | false)[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) {
      element.setAttribute(name, typeof value === 'number' ? short(value) : value);
    }
  }
  element.append(...children.filter((child): child is Node | string => !!child));
  return element;
}

function short(value: number): string {
  return String(Math.round(value * 100) / 100);
}

/** A node or a box, open or closed. `idOf` gives the element's id on the page, if it has one. */
export function itemElement(item: DrawnItem, scene: Scene, idOf?: (id: string) => string): SVGGElement {
  const box = scene.box(item.id);
  const node = scene.nodes.get(item.id);
  const group = svg('g', {
    class: itemClass(item, box, node),
    transform: `translate(${short(item.x)} ${short(item.y)})`,
    id: idOf?.(item.id),
    'data-id': item.id,
    role: 'button',
    'aria-label': spoken(item, scene),
    'aria-expanded': box ? String(item.isOpen) : undefined
  });
  group.append(svg('title', {}, hoverText(item, scene)), ...stems(item));
  if (box && !item.isOpen && box.kind === 'fold') {
    for (const shift of [6, 3]) {
      group.append(shape(item, RADIUS.box, 'hl-g-shape hl-g-behind', shift));
    }
  }
  const radius = node ? (isPill(node) ? RADIUS.pill : RADIUS.node) : RADIUS.box;
  group.append(shape(item, radius, 'hl-g-shape'));
  if (item.isOpen) {
    group.append(svg('path', { class: 'hl-g-rule', d: `M0 ${HEADER}H${short(item.width)}` }));
  }
  if (node?.kind === 'operator') {
    group.append(
      svg('path', { class: 'hl-g-stripe', d: `M4 ${RADIUS.node}V${short(item.height - RADIUS.node)}` })
    );
  }
  group.append(...cardText(item, box), ...chips(item, node?.badges.length ?? 0));
  if (box) {
    group.append(toggle(item));
  }
  return group;
}

/** The shape alone, for views from so far that nothing can be read. */
export function farElement(item: DrawnItem, scene: Scene, idOf?: (id: string) => string): SVGGElement {
  const group = svg('g', {
    class: itemClass(item, scene.box(item.id), scene.nodes.get(item.id)),
    transform: `translate(${short(item.x)} ${short(item.y)})`,
    id: idOf?.(item.id),
    'data-id': item.id,
    role: 'button',
    'aria-label': spoken(item, scene)
  });
  group.append(shape(item, 0, 'hl-g-shape'));
  return group;
}

/** How a node or box differs from that of another picture. */
export interface Change {
  kind: ChangeKind;
  /** How many differences are inside a box. */
  count: number;
}

export type ChangeKind = 'same' | 'added' | 'removed' | 'changed' | 'values';

/** The sign of each kind, which says the same as its colour. */
export const SIGNS: Record<ChangeKind, string> = {
  same: '',
  added: '+',
  removed: '−',
  changed: '~',
  values: '≈'
};
export const CHANGES: Record<ChangeKind, string> = {
  same: __('the same'),
  added: 'added',
  removed: 'removed',
  changed: 'changed',
  values: __('in numbers only')
};

const SIGN = { height: 15, pad: 5 } as const;

/** Show on an element how it differs: its colour, and a sign at its right upper corner. */
export function showChange(element: SVGElement, change: Change | undefined): void {
  const kind = change?.kind ?? 'same';
  element.dataset.change = kind;
  element.querySelector(':scope > .hl-g-sign')?.remove();
  const name = element.dataset.plain ?? element.getAttribute('aria-label') ?? '';
  element.dataset.plain = name;
  const inside =
    change && change.count > 0 ? __(', %1 inside', _n('%1 difference', '%1 differences', change.count)) : '';
  element.setAttribute('aria-label', kind === 'same' ? name : `${CHANGES[kind]}: ${name}${inside}`);
  const width = parseFloat(element.querySelector('.hl-g-shape')?.getAttribute('width') ?? '');
  if (kind === 'same' || Number.isNaN(width)) {
    return;
  }
  const text = change && change.count > 0 ? `${SIGNS[kind]} ${change.count}` : SIGNS[kind];
  const long = Math.max(SIGN.height, text.length * 7 + 2 * SIGN.pad - 2);
  element.append(
    svg(
      'g',
      { class: 'hl-g-sign', transform: `translate(${short(width - long + 6)} -7)` },
      svg('rect', { width: long, height: SIGN.height, rx: SIGN.height / 2 }),
      svg(
        'text',
        { x: long / 2, y: 11.5, 'text-anchor': 'middle', 'font-size': 11, 'font-weight': 700 },
        text
      )
    )
  );
}

function itemClass(item: DrawnItem, box: GraphBox | undefined, node: GraphNode | undefined): string {
  const classes = ['hl-g-item'];
  if (box) {
    classes.push('hl-g-box', `hl-g-kind-${box.kind}`, item.isOpen ? 'hl-g-open' : 'hl-g-closed');
  } else if (node) {
    classes.push('hl-g-node', `hl-g-kind-${node.kind}`);
    if (node.kind === 'operator') {
      classes.push(`hl-g-family-${family(node.op)}`);
    }
  }
  return classes.join(' ');
}

const FAMILIES: readonly [string, RegExp][] = [
  ['product', /conv|fullyconnected|dense|dot$|dot_|linalg|attention|matmul|rnn|embedding/i],
  ['norm', /norm|dropout|lrn|softmax/i],
  ['pool', /pool|^(sum|mean|max|min|prod|norm|argmax|argmin|topk)$|reduce/i],
  [
    'shape',
    /reshape|transpose|flatten|slice|concat|split|stack|expand|squeeze|swap|tile|repeat|pad|broadcast_(to|like|axis)|take|gather|^(amp_)?cast|copy/i
  ]
];

/** Which colour an operator has: products, normalization, reductions, changes of shape, or element by element. */
export function family(op: string): string {
  return FAMILIES.find(([, pattern]) => pattern.test(op))?.[0] ?? 'element';
}

function isPill(node: GraphNode): boolean {
  return node.kind === 'input' || node.kind === 'output';
}

function shape(item: DrawnItem, radius: number, className: string, shift = 0): SVGRectElement {
  return svg('rect', {
    class: className,
    x: shift,
    y: -shift,
    width: item.width,
    height: item.height,
    rx: Math.min(radius, item.height / 2)
  });
}

function cardText(item: DrawnItem, box: GraphBox | undefined): SVGElement[] {
  const { card } = item;
  const base = item.isOpen ? HEADER / 2 + 4 : 19;
  const title = svg('text', {
    class: 'hl-g-title',
    x: card.titleX,
    y: base,
    'font-size': SIZES.title,
    'font-weight': 600
  });
  title.textContent = card.title;
  const texts: SVGElement[] = [title];
  const aside = item.isOpen && box ? openAside(box) : card.aside;
  if (aside !== '') {
    texts.push(
      svg(
        'text',
        { class: 'hl-g-aside', x: card.titleX + card.titleWidth + 6, y: base, 'font-size': SIZES.detail },
        aside
      )
    );
  }
  if (!item.isOpen && card.detail !== '') {
    texts.push(
      svg('text', { class: 'hl-g-detail', x: card.titleX, y: 33, 'font-size': SIZES.detail }, card.detail)
    );
  }
  if (card.measured !== '') {
    const place = item.isOpen ? { x: measuredX(card), y: base } : { x: card.titleX, y: item.height - 8 };
    const look = { class: 'hl-g-measure', 'font-size': SIZES.detail, 'font-weight': 600 };
    texts.push(svg('text', { ...look, ...place }, card.measured));
  }
  return texts;
}

function openAside(box: GraphBox): string {
  return boxTitle(box).aside;
}

/** The first `badges` chips are parameters; `data-badge` is what a click on one looks for. */
function chips(item: DrawnItem, badges: number): SVGElement[] {
  return item.isOpen
    ? []
    : item.card.chips.map((chip, index) =>
        svg(
          'g',
          {
            class: `hl-g-chip hl-g-chip-${chip.kind}`,
            'data-badge': index < badges && chip.kind !== 'more' ? index : undefined,
            'data-stub': chip.to
          },
          chip.to !== undefined && svg('title', {}, __('%1: go to what computes it', chip.text)),
          svg('rect', { x: chip.x, y: chip.y, width: chip.width, height: CHIP.height, rx: CHIP.height / 2 }),
          svg(
            'text',
            {
              x: chip.x + chip.width / 2,
              y: chip.y + CHIP.height - 4,
              'text-anchor': 'middle',
              'font-size': SIZES.type
            },
            chip.text
          )
        )
      );
}

/** The square that opens and closes a box; `data-toggle` is what a click looks for. */
function toggle(item: DrawnItem): SVGElement {
  const { side, inset } = TOGGLE;
  const y = item.isOpen ? (HEADER - side) / 2 : 8;
  const middle = { x: inset + side / 2, y: y + side / 2 };
  const bar = `M${short(middle.x - 3.5)} ${short(middle.y)}h7`;
  return svg(
    'g',
    { class: 'hl-g-toggle', 'data-toggle': item.id },
    svg('rect', { x: inset, y, width: side, height: side, rx: 3 }),
    svg('path', { d: item.isOpen ? bar : `${bar}M${short(middle.x)} ${short(middle.y - 3.5)}v7` })
  );
}

/** The lines from a closed member to the edges of its values, interrupted by the values' types. */
function stems(item: DrawnItem): SVGElement[] {
  return item.types.flatMap(label => {
    const start = `M${short(label.x)} ${short(item.height)}`;
    if (label.text === '') {
      return [svg('path', { class: 'hl-g-stem', d: `${start}v${STRIP}` })];
    }
    const place = {
      x: label.x,
      y: item.height + STRIP / 2 + 3.5,
      'text-anchor': 'middle',
      'font-size': SIZES.type
    };
    return [
      svg('path', { class: 'hl-g-stem', d: `${start}v4m0 ${STRIP - 8}v4` }),
      svg('path', { class: 'hl-g-stem hl-g-gap', d: `${start}m0 4v${STRIP - 8}` }),
      svg('text', { class: 'hl-g-type', ...place }, label.text)
    ];
  });
}

export function pathOf(points: readonly Point[]): string {
  const [start, ...rest] = points;
  if (!start) {
    return '';
  }
  const pieces = [`M${short(start.x)} ${short(start.y)}`];
  for (let i = 0; i + 2 < rest.length; i += 3) {
    pieces.push(
      `C${rest
        .slice(i, i + 3)
        .map(point => `${short(point.x)} ${short(point.y)}`)
        .join(' ')}`
    );
  }
  return pieces.join('');
}

export function edgeElement(drawn: DrawnEdge, scene: Scene): SVGGElement {
  const group = svg(
    'g',
    { class: 'hl-g-edge', 'data-edge': drawn.key },
    svg('title', {}, edgeText(drawn, scene)),
    svg('path', { class: 'hl-g-line', fill: 'none', d: pathOf(drawn.points) })
  );
  const arrow = drawn.hasArrow ? arrowPoints(drawn.points) : '';
  if (arrow !== '') {
    group.append(svg('polygon', { class: 'hl-g-arrow', points: arrow }));
  }
  return group;
}

export function portElement(port: DrawnPort): SVGElement {
  const { x, y, length } = port;
  const line = port.isBehindName ? `v4m0 ${short(length - 8)}v4` : `v${short(length)}`;
  return svg(
    'g',
    { class: 'hl-g-port' },
    svg('path', { class: 'hl-g-line', fill: 'none', d: `M${short(x)} ${short(y)}${line}` }),
    svg('circle', { cx: x, cy: y, r: 2.5 })
  );
}

/** A triangle whose tip is the end of the curve. */
function arrowPoints(points: readonly Point[]): string {
  const tip = points[points.length - 1];
  const before = points[points.length - 2];
  if (!tip || !before) {
    return '';
  }
  const length = Math.hypot(tip.x - before.x, tip.y - before.y) || 1;
  const along = { x: (tip.x - before.x) / length, y: (tip.y - before.y) / length };
  const base = { x: tip.x - 7 * along.x, y: tip.y - 7 * along.y };
  const corner = (side: number): string =>
    `${short(base.x - side * along.y)},${short(base.y + side * along.x)}`;
  return `${short(tip.x)},${short(tip.y)} ${corner(3)} ${corner(-3)}`;
}

/** What a screen reader says of a node or box. */
export function spoken(item: DrawnItem, scene: Scene): string {
  const box = scene.box(item.id);
  if (box) {
    const { title, aside } = boxTitle(box);
    const kind =
      { block: __('Block'), fold: __('alike Blocks'), part: 'part' }[box.kind as string] ?? box.kind;
    const name = title.startsWith(kind) ? title : `${kind} ${title}`;
    return [name, aside === kind ? '' : aside, boxDetail(box), item.isOpen ? 'open' : 'closed']
      .filter(part => part)
      .join(', ');
  }
  const node = scene.nodes.get(item.id);
  if (!node) {
    return item.id;
  }
  const outputs = node.outputs.map(tensorText).join(', ');
  return [`${KINDS[node.kind] ?? node.kind} ${node.label || node.op}`, outputs]
    .filter(part => part)
    .join(' — ');
}

function hoverText(item: DrawnItem, scene: Scene): string {
  const box = scene.box(item.id);
  if (box) {
    const lines = [
      box.block ?? '',
      _n('%1 operator', '%1 operators', box.operators),
      box.summary,
      ...box.notes
    ];
    return [...new Set([item.card.title, ...lines])].filter(line => line).join('\n');
  }
  const node = scene.nodes.get(item.id);
  const lines = [
    [node?.label, node?.block && __('in %1', node.block)].filter(part => part).join(' '),
    (node?.outputs ?? []).map(typeText).join(', '),
    ...Object.entries(node?.attributes ?? {}).map(([name, value]) => `${name}=${value}`),
    ...(node?.badges ?? []).map(badge => `${badge.path || badge.name}: ${typeText(badge)}`)
  ];
  return lines.filter(line => line).join('\n');
}

function edgeText(drawn: DrawnEdge, scene: Scene): string {
  const { value } = drawn.edge;
  const source = scene.nodes.get(value.slice(0, value.lastIndexOf(':')));
  return [source?.label ?? '', typeText(tensorOf(scene, value))].filter(part => part).join(': ');
}
