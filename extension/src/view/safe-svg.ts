// Graphviz's SVG, rebuilt element by element from an allow-list: no scripts, links, styles or references survive.

const SVG = 'http://www.w3.org/2000/svg';

const ELEMENTS = new Set([
  'svg',
  'g',
  'title',
  'path',
  'polygon',
  'polyline',
  'ellipse',
  'circle',
  'rect',
  'line',
  'text',
  'tspan'
]);

const ATTRIBUTES = new Set(
  (
    'id class width height viewBox preserveAspectRatio transform points d cx cy r rx ry x y x1 y1 x2 y2 dx dy fill ' +
    'fill-opacity stroke stroke-width stroke-dasharray stroke-opacity stroke-linecap stroke-linejoin font-family ' +
    'font-size font-weight font-style text-anchor textLength lengthAdjust'
  ).split(' ')
);

/** Values that could load or run something are dropped wherever they stand. */
const UNSAFE_VALUE = /url\s*\(|javascript:|data:|expression\s*\(|@import|[\u0000-\u0008]/i;

/** Parse SVG text and return a clean copy of it; throws where it is no SVG. */
export function safeSvg(source: string): SVGSVGElement {
  const parsed = new DOMParser().parseFromString(source, 'image/svg+xml');
  const root = parsed.documentElement;
  if (root.localName !== 'svg' || parsed.getElementsByTagName('parsererror').length > 0) {
    throw new Error('Graphviz returned no SVG picture.');
  }
  return copy(root) as SVGSVGElement;
}

function copy(element: Element): Element {
  const result = document.createElementNS(SVG, element.localName);
  for (const { name, value } of [...element.attributes]) {
    if (ATTRIBUTES.has(name) && !UNSAFE_VALUE.test(value)) {
      result.setAttribute(name, value);
    }
  }
  const isText = ['text', 'tspan', 'title'].includes(element.localName);
  for (const child of [...element.childNodes]) {
    if (child.nodeType === 3 && isText) {
      result.append(child.textContent ?? '');
    } else if (child.nodeType === 1 && (child as Element).namespaceURI === SVG) {
      const name = (child as Element).localName;
      if (ELEMENTS.has(name)) {
        result.append(copy(child as Element));
      } else if (name === 'a') {
        result.append(...copyChildren(child as Element)); // a link's picture stays, the link does not
      }
    }
  }
  return result;
}

function copyChildren(element: Element): Element[] {
  return [...element.children]
    .filter(child => child.namespaceURI === SVG && (ELEMENTS.has(child.localName) || child.localName === 'a'))
    .flatMap(child => (child.localName === 'a' ? copyChildren(child) : [copy(child)]));
}
