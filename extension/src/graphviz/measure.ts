// How wide text is on this page: Graphviz's table of widths is of another font than the one the browser takes.

/** Width of one line of text at the graph's size. */
export type Measure = (text: string) => number;

/** Graphviz's font of the nodes, and the margin at each side of their text in inches. */
export const FONT = { family: 'Helvetica', size: 11, margin: 0.12 };

const POINTS_PER_INCH = 72;
const NODE = /^(\s*\w+ \[id="[^"]*", class="[^"]*", shape=(\w+), label="((?:[^"\\]|\\.)*)")\];$/gm;

/** Measures as the browser will draw; null where the page has no canvas. */
export function pageMeasure(): Measure | null {
  const context = document.createElement('canvas').getContext('2d');
  if (!context) {
    return null;
  }
  context.font = `${FONT.size}px ${FONT.family}, sans-serif`;
  return text => context.measureText(text).width;
}

/** The DOT text of a picture, every node at least as wide as its text is on this page. */
export function withWidths(dot: string, measure: Measure): string {
  return dot.replace(NODE, (_line, start: string, shape: string, label: string) => {
    const text = label.replace(/\\(.)/g, (_escape, letter: string) => (letter === 'n' ? '\n' : letter));
    const points = Math.max(...text.split('\n').map(measure));
    const inches = points / POINTS_PER_INCH + (shape === 'plain' ? 0 : 2 * FONT.margin);
    // Graphviz draws an ellipse round the text's box.
    const width = shape === 'ellipse' ? inches * Math.SQRT2 : inches;
    return `${start}, width=${width.toFixed(3)}];`;
  });
}

/**
 * Cut the lines that are wider than their node or group (a picture laid out for another font), with an ellipsis; the
 * whole text becomes its title. The picture must be on the page; one that is not shown is left as it is.
 */
export function cutToNodes(svg: SVGSVGElement): void {
  const tooWide: { node: Element; line: SVGTextElement; room: number }[] = [];
  for (const node of svg.querySelectorAll('g.node, g.cluster')) {
    const shape = node.querySelector<SVGGraphicsElement>('polygon, path, ellipse');
    for (const line of shape ? node.querySelectorAll<SVGTextElement>('text') : []) {
      if (!shape || !shape.getBBox || !line.getComputedTextLength) {
        return; // a document without a layout
      }
      const room = roomAt(shape, parseFloat(line.getAttribute('y') ?? ''));
      // Where nothing is shown a shape has no width, but a text may have one.
      if (room > 0 && line.getComputedTextLength() > room) {
        tooWide.push({ node, line, room });
      }
    }
  }
  const titles = new Map(
    tooWide.map(({ node }) => [
      node,
      [...node.querySelectorAll('text')].map(line => line.textContent).join('\n')
    ])
  );
  for (const { line, room } of tooWide) {
    const letters = [...(line.textContent ?? '').replace(/…$/, '')];
    do {
      letters.pop();
      line.textContent = `${letters.join('').trimEnd()}…`;
    } while (letters.length > 1 && line.getComputedTextLength() > room);
  }
  for (const [node, text] of titles) {
    const title = node.querySelector('title');
    if (title) {
      title.textContent = text;
    }
  }
}

/** How long a line of text may be in a shape; `y`: the line's base. */
function roomAt(shape: SVGGraphicsElement, y: number): number {
  const { width, height, y: top } = shape.getBBox();
  if (shape.localName !== 'ellipse' || Number.isNaN(y)) {
    return width - 2;
  }
  const away = Math.min(1, Math.abs(y - FONT.size * 0.35 - (top + height / 2)) / (height / 2));
  return width * Math.sqrt(1 - away * away);
}
