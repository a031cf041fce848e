// A picture as a file or a static copy: SVG whose colours are attributes, so that it needs no style sheet; and PNG.

import { FONT } from './card';
import type { Picture } from './compose';
import { edgeElement, itemElement, portElement, svg } from './draw';
import type { Measured } from './measured';
import { LEVELS, showMeasured } from './measured';
import type { Scene } from './scene';
import { __ } from '../text';

/** Elements above which no static copy is made: it would be longer than a notebook should hold. */
const MOST = 4000;

const INK = '#1f2328';
const SOFT = '#59636e';
const LINE = '#8c959f';

/** Presentation attributes by class. A later class wins over an earlier one; `a b` is a `b` inside an `a`. */
const PAINT: readonly [string, Record<string, string>][] = [
  ['hl-g-shape', { fill: '#ffffff', stroke: LINE }],
  ['hl-g-title', { fill: INK }],
  ['hl-g-aside', { fill: SOFT }],
  ['hl-g-detail', { fill: SOFT }],
  ['hl-g-measure', { fill: INK }],
  ['hl-g-type', { fill: SOFT, stroke: 'none' }],
  ['hl-g-line', { fill: 'none', stroke: LINE, 'stroke-width': '1.2' }],
  ['hl-g-stem', { fill: 'none', stroke: LINE, 'stroke-width': '1.2' }],
  ['hl-g-rule', { fill: 'none', stroke: LINE, 'stroke-opacity': '0.4' }],
  ['hl-g-arrow', { fill: LINE, stroke: 'none' }],
  ['hl-g-port circle', { fill: LINE, stroke: 'none' }],
  ['hl-g-stripe', { fill: 'none', stroke: LINE, 'stroke-width': '3', 'stroke-linecap': 'round' }],
  ['hl-g-family-product hl-g-stripe', { stroke: '#0969da' }],
  ['hl-g-family-norm hl-g-stripe', { stroke: '#8250df' }],
  ['hl-g-family-pool hl-g-stripe', { stroke: '#1a7f37' }],
  ['hl-g-family-shape hl-g-stripe', { stroke: '#9a6700' }],
  ['hl-g-family-element hl-g-stripe', { stroke: '#bc4c00' }],
  ['hl-g-box hl-g-shape', { fill: '#e8f1fc', stroke: '#4a8ad4' }],
  ['hl-g-open hl-g-shape', { fill: '#0969da', 'fill-opacity': '0.04', stroke: '#9dbfe6' }],
  ['hl-g-kind-kernel hl-g-shape', { stroke: '#8250df', fill: '#f3edfc' }],
  ['hl-g-kind-session hl-g-shape', { stroke: '#1a7f37', fill: '#eaf6ed' }],
  ['hl-g-kind-prologue hl-g-shape', { stroke: '#9a6700', fill: '#fbf4e2' }],
  ['hl-g-kind-part hl-g-shape', { stroke: LINE, fill: '#f3f4f6' }],
  ['hl-g-kind-input hl-g-shape', { fill: '#eaf6ed', stroke: '#1a7f37' }],
  ['hl-g-kind-output hl-g-shape', { fill: '#eaf6ed', stroke: '#1a7f37' }],
  ['hl-g-toggle rect', { fill: '#ffffff', stroke: LINE }],
  ['hl-g-toggle path', { fill: 'none', stroke: INK, 'stroke-width': '1.5' }],
  ['hl-g-chip rect', { fill: '#eff1f3', stroke: '#c8ccd1' }],
  ['hl-g-chip-prepared rect', { fill: '#fbf4e2', stroke: '#9a6700' }],
  ['hl-g-chip-stub rect', { fill: '#ffffff', stroke: '#0969da' }],
  ['hl-g-chip text', { fill: SOFT }],
  ['hl-g-bar', { fill: INK, 'fill-opacity': '0.75', stroke: 'none' }],
  ['hl-g-bad hl-g-shape', { stroke: '#cf222e', 'stroke-width': '2.5' }]
];

/** The colours of an overlay's steps, as the light theme mixes them, the weakest first. */
const HEAT = Array.from({ length: LEVELS }, (_, index) => mixed([217, 101, 43], 0.08 + 0.1 * (index + 1)));

/** A colour on white, as `#rrggbb`. */
function mixed(colour: readonly number[], part: number): string {
  const hex = colour.map(value =>
    Math.round(255 + (value - 255) * part)
      .toString(16)
      .padStart(2, '0')
  );
  return `#${hex.join('')}`;
}

/** Height of the line that says what the numbers of an overlay are. */
const CAPTION = 22;
/** Height of each further line of it, pixels before it, and about the width of a character. */
const LEADING = 14;
const INSET = 8;
const CHARACTER = 6;

/** Height of the line of a scale, and the size of a colour of it. */
const SCALE = 18;
const STEP = 11;

/** The colours of a scale between its ends: `operators: 0.6 µs [....] 5.6 µs`. */
function scaleElement(low: string, high: string, top: number): SVGGElement {
  const from = INSET + low.length * CHARACTER + 6;
  const text = (x: number, words: string): SVGTextElement =>
    svg('text', { class: 'hl-g-aside', x, y: top + STEP, 'font-size': 11 }, words);
  return svg(
    'g',
    {},
    text(INSET, low),
    ...HEAT.map((fill, index) =>
      svg('rect', { x: from + index * STEP, y: top + 1, width: STEP, height: STEP, fill, stroke: LINE })
    ),
    text(from + LEVELS * STEP + 6, high)
  );
}

/** A text in lines of at most so many characters, cut between words. */
export function wrapped(text: string, most: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ').filter(each => each !== '')) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= most) {
      lines[lines.length - 1] = `${last} ${word}`;
    } else {
      lines.push(word);
    }
  }
  return lines;
}

/** The picture with the colours of a light page; null where it is too large for a static copy. */
export function staticSvg(
  picture: Picture,
  scene: Scene,
  limit = MOST,
  measured: Measured | null = null
): SVGSVGElement | null {
  const count = picture.layers.reduce((sum, layer) => sum + layer.items.length + layer.edges.length, 0);
  if (count > limit) {
    return null;
  }
  const caption = [measured?.title, measured?.caution && __('measured on %1', measured.caution)]
    .filter(text => text)
    .join(', ');
  const { width } = picture;
  const lines = wrapped(caption, Math.max(20, Math.floor((width - 2 * INSET) / CHARACTER)));
  const scales = measured?.scales ?? [];
  const captioned = picture.height + (lines.length === 0 ? 0 : CAPTION + (lines.length - 1) * LEADING);
  const height = captioned + scales.length * SCALE;
  const root = svg('svg', {
    width,
    height,
    viewBox: `0 0 ${Math.round(width)} ${Math.round(height)}`,
    'font-family': FONT
  });
  root.append(svg('rect', { width, height, fill: '#ffffff' }));
  lines.forEach((line, index) => {
    const y = picture.height + CAPTION - 8 + index * LEADING;
    root.append(svg('text', { class: 'hl-g-aside', x: INSET, y, 'font-size': 11 }, line));
  });
  scales.forEach(({ name, low, high }, index) => {
    root.append(scaleElement(`${name}: ${low}`, high, captioned + index * SCALE));
  });
  for (const layer of picture.layers) {
    root.append(
      ...layer.edges.map(edge => edgeElement(edge, scene)),
      ...layer.ports.map(portElement),
      ...layer.items.map(item => {
        const element = itemElement(item, scene);
        if (measured) {
          showMeasured(element, measured.items.get(item.id), measured.heat.get(item.id));
        }
        return element;
      })
    );
  }
  for (const [selector, attributes] of PAINT) {
    const path = selector
      .split(' ')
      .map(name => (name.startsWith('hl-') ? `.${name}` : name))
      .join(' ');
    root.querySelectorAll(path).forEach(element => {
      for (const [name, value] of Object.entries(attributes)) {
        element.setAttribute(name, value);
      }
    });
  }
  root.querySelectorAll('[data-heat]:not(.hl-g-open)').forEach(element => {
    const fill = HEAT[Number(element.getAttribute('data-heat')) - 1];
    element
      .querySelectorAll(':scope > .hl-g-shape')
      .forEach(shape => fill && shape.setAttribute('fill', fill));
    element.querySelectorAll(':scope > text:not(.hl-g-type)').forEach(text => text.setAttribute('fill', INK));
  });
  root.querySelectorAll('.hl-g-toggle, .hl-g-gap').forEach(element => element.remove());
  root.querySelectorAll('[data-id], [data-edge], [data-badge]').forEach(element => {
    for (const name of [
      'data-id',
      'data-edge',
      'data-badge',
      'data-heat',
      'data-name',
      'aria-expanded',
      'role'
    ]) {
      element.removeAttribute(name);
    }
  });
  return root;
}

export function svgText(root: SVGSVGElement): string {
  return new XMLSerializer().serializeToString(root);
}

/** The picture as PNG, `scale` times as large; rejects where the browser cannot draw it. */
async function pngOf(root: SVGSVGElement, scale = 2): Promise<Blob> {
  const width = parseFloat(root.getAttribute('width') ?? '') || 1;
  const height = parseFloat(root.getAttribute('height') ?? '') || 1;
  // Canvases end at some 16,000 pixels a side.
  const factor = Math.min(scale, 16_000 / width, 16_000 / height);
  const url = URL.createObjectURL(new Blob([svgText(root)], { type: 'image/svg+xml' }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement('canvas');
    canvas.width = Math.ceil(width * factor);
    canvas.height = Math.ceil(height * factor);
    canvas.getContext('2d')?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) =>
      canvas.toBlob(blob =>
        blob ? resolve(blob) : reject(new Error(__('The picture is too large for PNG.')))
      )
    );
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** Hand the picture of the Block at `path` to the user as a file; the file's name. */
export async function saveAs(root: SVGSVGElement, kind: 'svg' | 'png', path: string): Promise<string> {
  const block = path.replace(/[^\w.]+/g, '_');
  const name = `graph${block === '' ? '' : `-${block}`}.${kind}`;
  download(name, kind === 'svg' ? new Blob([svgText(root)], { type: 'image/svg+xml' }) : await pngOf(root));
  return name;
}

function download(name: string, content: Blob): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
