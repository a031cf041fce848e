// The layout of one layer: sizes and edges in, DOT text for Graphviz, positions out.

import { __ } from '../text';
/** A connection point on a border: which value, and how far from the left end. */
export interface Port {
  value: string;
  x: number;
}

/** A member with its size. Ports say where on the upper and lower border its edges end; without one, in the middle. */
export interface Item {
  id: string;
  width: number;
  height: number;
  tops: Port[];
  bottoms: Port[];
}

export interface ItemEdge {
  value: string;
  /** Index of the item; null: the edge enters or leaves the layer. */
  from: number | null;
  to: number | null;
}

export interface LayerInput {
  items: Item[];
  enters: string[];
  leaves: string[];
  edges: ItemEdge[];
}

export interface Point {
  x: number;
  y: number;
}

/** Positions within the layer, in pixels; y grows downwards. */
export interface LayerPlan {
  width: number;
  height: number;
  /** Upper left corners, in the order of the items. */
  places: Point[];
  /** Where values enter at the top and leave at the bottom, in the order of the input. */
  enters: number[];
  leaves: number[];
  /** Bézier curves, in the order of the edges: a start and three points for each piece. */
  curves: Point[][];
}

const DPI = 72;
/** Graphviz counts the cells of a table in 16 bits. */
const WIDEST = 60_000;
const GAP = { across: 22, down: 20 } as const;
const PORT_WIDTH = 12;

/** The DOT text of a layer: the key of its layout too, as it holds all that matters. */
export function layerDot(layer: LayerInput): string {
  const lines = [
    `digraph { graph [nodesep=${inches(GAP.across)} ranksep=${inches(GAP.down)}]`,
    'node [shape=box fixedsize=true label=""] edge [dir=none]'
  ];
  layer.items.forEach((item, i) => lines.push(`m${i} ${itemAttributes(item)}`));
  for (const [side, values, rank] of [
    ['e', layer.enters, 'source'],
    ['l', layer.leaves, 'sink']
  ] as const) {
    if (values.length > 0) {
      const ports = values.map((_, i) => `${side}${i} [width=${inches(PORT_WIDTH)} height=0.01]`);
      lines.push(`{ rank=${rank} ${ports.join(' ')} }`);
    }
  }
  layer.edges.forEach((edge, i) => lines.push(edgeLine(layer, edge, i)));
  return `${lines.join('\n')}\n}`;
}

function itemAttributes(item: Item): string {
  if (item.width > WIDEST || item.height > WIDEST || (item.tops.length === 0 && item.bottoms.length === 0)) {
    return `[width=${inches(item.width)} height=${inches(item.height)}]`;
  }
  const width = Math.round(item.width);
  const rows = [
    portRow('t', item.tops, width),
    `<TR>${cell(width, Math.max(Math.round(item.height) - (item.tops.length > 0 ? 1 : 0) - (item.bottoms.length > 0 ? 1 : 0), 1))}</TR>`,
    portRow('b', item.bottoms, width)
  ];
  return `[shape=plain fixedsize=false label=<${table(rows.join(''))}>]`;
}

/** A row of cells with a port two pixels wide at each place. */
function portRow(side: string, ports: readonly Port[], width: number): string {
  if (ports.length === 0) {
    return '';
  }
  const order = ports.map((port, i) => ({ x: Math.round(port.x), i })).sort((a, b) => a.x - b.x);
  const cells: string[] = [];
  let x = 0;
  for (const port of order) {
    const left = Math.min(Math.max(port.x - 1, x), width - 2);
    if (left > x) {
      cells.push(cell(left - x, 1));
    }
    cells.push(cell(2, 1, `${side}${port.i}`));
    x = Math.max(left, x) + 2;
  }
  if (x < width) {
    cells.push(cell(width - x, 1));
  }
  return `<TR><TD>${table(`<TR>${cells.join('')}</TR>`)}</TD></TR>`;
}

function table(rows: string): string {
  return `<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0">${rows}</TABLE>`;
}

function cell(width: number, height: number, port = ''): string {
  const name = port === '' ? '' : ` PORT="${port}"`;
  return `<TD FIXEDSIZE="TRUE" WIDTH="${width}" HEIGHT="${height}"${name}></TD>`;
}

function edgeLine(layer: LayerInput, edge: ItemEdge, index: number): string {
  const tail = end(layer, edge, 'from');
  const head = end(layer, edge, 'to');
  // The id tells parallel edges apart in the answer; Graphviz keeps no order among them.
  return `${tail} -> ${head} [color="${index}"]`;
}

function end(layer: LayerInput, edge: ItemEdge, side: 'from' | 'to'): string {
  const index = edge[side];
  if (index === null) {
    return side === 'from'
      ? `e${layer.enters.indexOf(edge.value)}:s`
      : `l${layer.leaves.indexOf(edge.value)}:n`;
  }
  const item = layer.items[index];
  const ports = (side === 'from' ? item?.bottoms : item?.tops) ?? [];
  const port = ports.findIndex(candidate => candidate.value === edge.value);
  if (port < 0 || !item || item.width > WIDEST || item.height > WIDEST) {
    return side === 'from' ? `m${index}:s` : `m${index}`;
  }
  return side === 'from' ? `m${index}:b${port}:s` : `m${index}:t${port}:n`;
}

function inches(pixels: number): string {
  return (pixels / DPI).toFixed(4);
}

/** Read Graphviz's format `plain`. Throws if an item or edge is missing. */
export function readPlan(layer: LayerInput, plain: string): LayerPlan {
  const plan: LayerPlan = {
    width: 0,
    height: 0,
    places: new Array<Point>(layer.items.length),
    enters: new Array<number>(layer.enters.length).fill(0),
    leaves: new Array<number>(layer.leaves.length).fill(0),
    curves: new Array<Point[]>(layer.edges.length)
  };
  const number = (text: string | undefined): number => parseFloat(text ?? '') * DPI;
  for (const line of plain.split('\n')) {
    const words = line.split(' ');
    const [kind, name] = words;
    if (kind === 'graph') {
      plan.width = number(words[2]);
      plan.height = number(words[3]);
    } else if (kind === 'node' && name) {
      const index = parseInt(name.slice(1), 10);
      const x = number(words[2]);
      if (name.startsWith('m')) {
        const item = layer.items[index];
        plan.places[index] = {
          x: x - (item?.width ?? 0) / 2,
          y: plan.height - number(words[3]) - (item?.height ?? 0) / 2
        };
      } else {
        (name.startsWith('e') ? plan.enters : plan.leaves)[index] = x;
      }
    } else if (kind === 'edge') {
      const count = parseInt(words[3] ?? '', 10);
      const points: Point[] = [];
      for (let i = 0; i < count; i++) {
        points.push({ x: number(words[4 + 2 * i]), y: plan.height - number(words[5 + 2 * i]) });
      }
      plan.curves[parseInt(words[words.length - 1] ?? '', 10)] = points;
    }
  }
  for (const list of [plan.places, plan.curves]) {
    // Not `some`, which passes over the holes of an array.
    if (Array.from<object | undefined>(list).includes(undefined)) {
      throw new Error(__('Graphviz left out a part of the graph.'));
    }
  }
  return plan;
}

/** A layout without Graphviz: the items below one another. For where its worker cannot run. */
export function stackPlan(layer: LayerInput): LayerPlan {
  const width = Math.max(64, ...layer.items.map(item => item.width));
  const left = width * 0.1;
  let y: number = GAP.down;
  const places = layer.items.map(item => {
    const place = { x: (width - item.width) / 2, y };
    y += item.height + GAP.down;
    return place;
  });
  const spread = (count: number): number[] =>
    Array.from({ length: count }, (_, i) => ((i + 1) * width) / (count + 1));
  const enters = spread(layer.enters.length);
  const leaves = spread(layer.leaves.length);
  const corner = (edge: ItemEdge, side: 'from' | 'to'): Point => {
    const index = edge[side];
    if (index === null) {
      return side === 'from'
        ? { x: enters[layer.enters.indexOf(edge.value)] ?? 0, y: 0 }
        : { x: leaves[layer.leaves.indexOf(edge.value)] ?? 0, y };
    }
    const item = layer.items[index];
    const place = places[index];
    const ports = (side === 'from' ? item?.bottoms : item?.tops) ?? [];
    const port = ports.find(candidate => candidate.value === edge.value);
    return {
      x: (place?.x ?? 0) + (port ? port.x : (item?.width ?? 0) / 2),
      y: (place?.y ?? 0) + (side === 'from' ? (item?.height ?? 0) : 0)
    };
  };
  const curves = layer.edges.map(edge => {
    const start = corner(edge, 'from');
    const finish = corner(edge, 'to');
    const isNext = edge.from === null || edge.to === null || edge.to === edge.from + 1;
    const bend = isNext ? 0 : left - width / 2;
    return [
      start,
      { x: start.x + bend, y: start.y + GAP.down },
      { x: finish.x + bend, y: finish.y - GAP.down },
      finish
    ];
  });
  return { width, height: y, places, enters, leaves, curves };
}
