// Sanitizing of Graphviz's SVG: drawing elements and their attributes stay; scripts, links, styles and references go.

import type { DOMPurify } from 'dompurify';
import createPurifier from 'dompurify';
import { __ } from '../text';

const ALLOWED_TAGS = 'svg g title path polygon polyline ellipse circle rect line text tspan'.split(' ');

const ALLOWED_ATTR = (
  'id class width height viewBox preserveAspectRatio transform points d cx cy r rx ry x y x1 y1 x2 y2 dx dy fill ' +
  'fill-opacity stroke stroke-width stroke-dasharray stroke-opacity stroke-linecap stroke-linejoin font-family ' +
  'font-size font-weight font-style text-anchor textLength lengthAdjust'
).split(' ');

/** Attributes that CSS does not read, in which any text may stand. */
const TEXTS = ['class', 'id'];

/** The functions of colours and transformations. */
const FUNCTIONS = [
  ...['', 'rgb', 'rgba', 'hsl', 'hsla', 'var', 'translate', 'translatex', 'translatey', 'scale', 'rotate'],
  ...['skewx', 'skewy', 'matrix']
];

/** Characters of escapes, comments and rules in CSS, which names, numbers, colours and functions do not need. */
// eslint-disable-next-line no-control-regex -- control characters are among what is forbidden
const FORBIDDEN = /[\\@;:{}<>\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\/\*|\*\/|!important/i;

/** Whether an attribute's value refers to nothing outside of the picture. */
function isPlain(name: string, value: string): boolean {
  if (TEXTS.includes(name)) {
    return !value.toLowerCase().replace(/\s+/g, '').includes('url(');
  }
  const called = [...value.matchAll(/([^\s(),]*\s*)\(/g)];
  return (
    !FORBIDDEN.test(value) && called.every(match => FUNCTIONS.includes((match[1] ?? '').trim().toLowerCase()))
  );
}

let purifier: DOMPurify | undefined;

/** The instance of this module: other users of DOMPurify on the page keep their own hooks. */
function purify(): DOMPurify {
  if (!purifier) {
    purifier = createPurifier(window);
    purifier.addHook('uponSanitizeAttribute', (_element, attribute) => {
      // A fill or stroke may refer to another document.
      attribute.keepAttr = isPlain(attribute.attrName, attribute.attrValue);
    });
  }
  return purifier;
}

/** Parse SVG text into clean elements; throws if it is no SVG. */
export function safeSvg(source: string): SVGSVGElement {
  const clean = purify().sanitize(source, {
    ALLOWED_TAGS,
    ALLOWED_ATTR,
    ALLOW_ARIA_ATTR: false,
    ALLOW_DATA_ATTR: false,
    RETURN_DOM_FRAGMENT: true
  });
  const svg = clean.querySelector('svg');
  if (!svg) {
    throw new Error(__('Graphviz returned no SVG picture.'));
  }
  return svg;
}
