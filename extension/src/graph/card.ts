// What is written on a node or a closed box, and how large that makes it.

import type { GraphBox, GraphNode, Tensor } from '../protocol/messages';
import type { Scene } from './scene';
import { __, _n } from '../text';

/** Width of one line of text in pixels. */
export type Measure = (text: string, size: number, bold: boolean) => number;

/** One font everywhere, so that a static copy has the widths that were measured here. */
export const FONT = 'Helvetica, Arial, sans-serif';
export const SIZES = { title: 12, detail: 10, type: 9.5 } as const;

/** Height of the band with the name at the top of an opened box. */
export const HEADER = 26;
/** Room below a closed member for the types of its outputs. */
export const STRIP = 20;
/** Side of the square with + or -, and its distance from the corner of the box. */
export const TOGGLE = { side: 14, inset: 7 } as const;

const PAD = 10;
const LINE = 15;
const CHIP = { height: 15, pad: 6, gap: 4 } as const;
const MOST = { width: 250, detail: 44, chips: 6, types: 4 } as const;

/** A parameter in its operator. */
export interface Chip {
  text: string;
  kind: string;
  x: number;
  y: number;
  width: number;
  /** Of a stub: the node or box that it leads to. */
  to?: string;
}

/** The place of a value that is named at its reader. */
export interface Stub {
  text: string;
  to: string;
}

export interface Card {
  width: number;
  height: number;
  title: string;
  /** Behind the title, softer: the class of a Block. */
  aside: string;
  titleX: number;
  titleWidth: number;
  asideWidth: number;
  detail: string;
  chips: Chip[];
  /** The text of the overlay: the last line of a node or closed box; in an opened box it follows the name. */
  measured: string;
  measuredWidth: number;
}

/** Measures as the browser draws; a rough guess where the page has no canvas. */
export function pageMeasure(): Measure {
  let context: CanvasRenderingContext2D | null = null;
  try {
    context = document.createElement('canvas').getContext('2d');
  } catch {
    context = null;
  }
  const known = new Map<string, number>();
  return (text, size, bold) => {
    if (!context) {
      return text.length * size * (bold ? 0.6 : 0.55);
    }
    const font = `${bold ? '600 ' : ''}${size}px ${FONT}`;
    const key = `${font}|${text}`;
    let width = known.get(key);
    if (width === undefined) {
      context.font = font;
      width = context.measureText(text).width;
      known.set(key, width);
    }
    return width;
  };
}

/** `f32[1,64,56,56]`, as a graph is printed. */
export function typeText(tensor: Tensor | undefined): string {
  if (!tensor) {
    return '';
  }
  const dtype = tensor.dtype
    .replace('bfloat', 'bf')
    .replace('float', 'f')
    .replace('uint', 'u')
    .replace(/^int/, 'i');
  return tensor.shape === null ? dtype : `${dtype}[${tensor.shape.map(size => size ?? '?').join(',')}]`;
}

/** The types that are written below a member; none where there are too many. */
export function typeTexts(outputs: readonly (Tensor | undefined)[]): string[] {
  const texts = outputs.map(typeText);
  return texts.length <= MOST.types ? texts : texts.map(() => '');
}

/** The words of a box's name: bold, and softer. */
export function boxTitle(box: GraphBox): { title: string; aside: string } {
  switch (box.kind) {
    case 'fold':
      return { title: `${box.copies} × ${box.class}`, aside: box.label };
    case 'block':
      return { title: box.label || box.class, aside: box.label === box.class ? '' : box.class };
    case 'part':
      return { title: box.label, aside: '' };
    default:
      return { title: box.label, aside: box.label.startsWith(box.kind) ? '' : box.kind };
  }
}

/** The second line of a closed box. */
export function boxDetail(box: GraphBox): string {
  const text = box.summary || _n('%1 operator', '%1 operators', box.operators);
  return box.kind === 'prologue' ? __('%1, when parameters change', text) : text;
}

export function boxCard(box: GraphBox, measure: Measure, stubs: readonly Stub[] = []): Card {
  const { title, aside } = boxTitle(box);
  return card(title, aside, boxDetail(box), stubs.map(stubChip), TOGGLE.inset + TOGGLE.side + 6, measure);
}

/** A node with its parameters, and what the prologue prepared of them. */
export function nodeCard(node: GraphNode, scene: Scene, measure: Measure, stubs: readonly Stub[] = []): Card {
  const only = scene.only(node.id);
  const attributes = Object.entries(node.attributes)
    .map(([name, value]) => `${name}=${value}`)
    .join('  ');
  const chips = [
    ...node.badges.map(badge => ({ text: named(badge.name, badge.shape), kind: badge.kind })),
    ...scene.prepared(node).map(read => ({
      text: named(
        scene.parametersOf(read.node).join(', ') || 'prepared',
        scene.nodes.get(read.node)?.outputs[read.output]?.shape ?? null
      ),
      kind: 'prepared'
    })),
    ...stubs.map(stubChip)
  ];
  if (node.kind === 'input' || node.kind === 'output') {
    const pill = card(node.label || node.kind, '', '', chips, PAD, measure);
    return { ...pill, titleX: (pill.width - pill.titleWidth) / 2 };
  }
  const detail = node.kind === 'operator' ? attributes : '';
  const aside = only
    ? [only.label, only.class].filter((part, i, all) => part && all.indexOf(part) === i).join(' ')
    : '';
  return card(node.label || node.op || node.kind, aside, detail, chips, PAD + 2, measure);
}

function stubChip({ text, to }: Stub): { text: string; kind: string; to: string } {
  return { text: `← ${text}`, kind: 'stub', to };
}

/** Where an overlay's text begins behind the name of an opened box. */
export function measuredX(card: Card): number {
  return card.titleX + card.titleWidth + (card.asideWidth > 0 ? 6 + card.asideWidth : 0) + 10;
}

/** Where the words in the band of an opened box end. */
export function openWidth(card: Card): number {
  return card.measured === ''
    ? card.titleX + card.titleWidth + (card.asideWidth > 0 ? card.asideWidth + 8 : 4)
    : measuredX(card) + card.measuredWidth + 4;
}

/** The card with a line for what an overlay says. */
export function withMeasured(card: Card, text: string, measure: Measure): Card {
  const measuredWidth = measure(text, SIZES.detail, true);
  const width = Math.max(card.width, Math.ceil(card.titleX + measuredWidth + PAD));
  return { ...card, width, height: card.height + LINE - 1, measured: text, measuredWidth };
}

/** `weight 64×3×7×7` */
function named(name: string, shape: Tensor['shape']): string {
  return [name, (shape ?? []).map(size => size ?? '?').join('×')].filter(part => part).join(' ');
}

function card(
  wholeTitle: string,
  wholeAside: string,
  wholeDetail: string,
  badges: { text: string; kind: string; to?: string }[],
  titleX: number,
  measure: Measure
): Card {
  const room = MOST.width - titleX - PAD;
  const title = cut(wholeTitle, room, text => measure(text, SIZES.title, true));
  const titleWidth = measure(title, SIZES.title, true);
  const aside = cut(wholeAside, Math.max(room - titleWidth - 6, 0), text =>
    measure(text, SIZES.detail, false)
  );
  const detail = cut(
    [...wholeDetail].length > MOST.detail
      ? `${[...wholeDetail].slice(0, MOST.detail).join('')}…`
      : wholeDetail,
    room,
    text => measure(text, SIZES.detail, false)
  );
  const asideWidth = aside === '' ? 0 : measure(aside, SIZES.detail, false);
  let width =
    titleX +
    Math.max(titleWidth + (aside === '' ? 0 : 6 + asideWidth), measure(detail, SIZES.detail, false)) +
    PAD;
  let y = 8 + LINE + (detail === '' ? 0 : LINE - 2);
  const shown = badges.slice(0, badges.length > MOST.chips ? MOST.chips - 1 : MOST.chips);
  if (shown.length < badges.length) {
    shown.push({ text: `+${badges.length - shown.length}`, kind: 'more' });
  }
  const chips: Chip[] = [];
  y += shown.length > 0 ? 4 : 0;
  let x = titleX;
  for (const badge of shown) {
    const text = cut(badge.text, room - 2 * CHIP.pad, part => measure(part, SIZES.type, false));
    const chipWidth = measure(text, SIZES.type, false) + 2 * CHIP.pad;
    if (x > titleX && x + chipWidth + PAD > Math.max(width, 190)) {
      x = titleX;
      y += CHIP.height + CHIP.gap;
    }
    chips.push({
      text,
      kind: badge.kind,
      x,
      y,
      width: chipWidth,
      ...(badge.to !== undefined && { to: badge.to })
    });
    x += chipWidth + CHIP.gap;
    width = Math.max(width, x - CHIP.gap + PAD);
  }
  const height = (chips.length > 0 ? y + CHIP.height : y) + 6;
  return {
    width: Math.ceil(Math.max(width, 64)),
    height,
    title,
    aside,
    titleX,
    titleWidth,
    asideWidth,
    detail,
    chips,
    measured: '',
    measuredWidth: 0
  };
}

/** The text, or as much of its beginning as has room, and an ellipsis. */
export function cut(text: string, room: number, width: (text: string) => number): string {
  if (text === '' || width(text) <= room) {
    return text;
  }
  const letters = [...text];
  let low = 0;
  let high = letters.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (width(`${letters.slice(0, middle).join('').trimEnd()}…`) <= room) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low === 0 ? '' : `${letters.slice(0, low).join('').trimEnd()}…`;
}

export { CHIP };
