"""Sanitizing of the widget's picture, which comes from the browser and goes into HTML that is saved in the notebook."""

from __future__ import annotations

import nh3

_ELEMENTS = set("svg g title path polygon polyline ellipse circle rect line text tspan".split())
_ATTRIBUTES = set(
    "id class width height viewBox preserveAspectRatio transform points d cx cy r rx ry x y x1 y1 x2 y2 dx dy fill "
    "fill-opacity stroke stroke-width stroke-dasharray stroke-opacity stroke-linecap stroke-linejoin font-family "
    "font-size font-weight font-style text-anchor textLength lengthAdjust role aria-label".split()
)
_MAX = 4 * 1024 * 1024


def clean_svg(text: str) -> str:
    """The picture with drawing elements and attributes only; "" if it is no SVG or longer than 4 MiB."""
    if len(text) > _MAX:
        return ""
    cleaned = nh3.clean(text, tags=_ELEMENTS, attributes={"*": _ATTRIBUTES}, attribute_filter=_without_references)
    return cleaned if cleaned.startswith("<svg") and cleaned.endswith("</svg>") else ""


def _without_references(element: str, attribute: str, value: str) -> str | None:
    return None if "url(" in value.lower().replace(" ", "") else value
