// Sanitizing of Graphviz's SVG: drawing elements and their attributes stay; scripts, links, styles and references go.

import createPurifier, { DOMPurify } from 'dompurify';

const ALLOWED_TAGS = 'svg g title path polygon polyline ellipse circle rect line text tspan'.split(' ');

const ALLOWED_ATTR = (
  'id class width height viewBox preserveAspectRatio transform points d cx cy r rx ry x y x1 y1 x2 y2 dx dy fill ' +
  'fill-opacity stroke stroke-width stroke-dasharray stroke-opacity stroke-linecap stroke-linejoin font-family ' +
  'font-size font-weight font-style text-anchor textLength lengthAdjust'
).split(' ');

let purifier: DOMPurify | undefined;

/** The instance of this module: other users of DOMPurify on the page keep their own hooks. */
function purify(): DOMPurify {
  if (!purifier) {
    purifier = createPurifier(window);
    purifier.addHook('uponSanitizeAttribute', (_element, attribute) => {
      // A fill or stroke may refer to another document.
      attribute.keepAttr = !/url\s*\(/i.test(attribute.attrValue);
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
    throw new Error('Graphviz returned no SVG picture.');
  }
  return svg;
}
