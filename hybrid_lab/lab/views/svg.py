"""Sanitizing of the widget's picture, which comes from the browser and goes into HTML that is saved in the notebook."""

from __future__ import annotations

import re

try:
    import nh3
except ModuleNotFoundError:
    # Python in a browser may lack it. `mx.view` works without: the saved picture is then the kernel's own.
    nh3 = None  # type: ignore[assignment]

_ELEMENTS = set("svg g title path polygon polyline ellipse circle rect line text tspan".split())
_ATTRIBUTES = set(
    "id class width height viewBox preserveAspectRatio transform points d cx cy r rx ry x y x1 y1 x2 y2 dx dy fill "
    "fill-opacity stroke stroke-width stroke-dasharray stroke-opacity stroke-linecap stroke-linejoin font-family "
    "font-size font-weight font-style text-anchor textLength lengthAdjust role aria-label".split()
)
_TEXTS = {"aria-label", "class", "id", "role"}
"""Attributes that CSS does not read, and in which any text may stand."""
_FUNCTIONS = set("rgb rgba hsl hsla var translate translatex translatey scale rotate skewx skewy matrix".split()) | {""}
_FUNCTION = re.compile(r"([^\s(),]*\s*)\(")
_FORBIDDEN = re.compile(r"""[\\@;:{}<>\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|/\*|\*/|!important""", re.IGNORECASE)
_SPACES = re.compile(r"\s+")
_MAX = 4 * 1024 * 1024


def clean_svg(text: str) -> str:
    """The picture with drawing elements and attributes only; "" if it is no SVG, is longer than 4 MiB, or cannot be
    cleaned because nh3 is missing.
    """
    if nh3 is None or len(text) > _MAX:
        return ""
    cleaned = nh3.clean(text, tags=_ELEMENTS, attributes={"*": _ATTRIBUTES}, attribute_filter=_without_references)
    return cleaned if cleaned.startswith("<svg") and cleaned.endswith("</svg>") else ""


def _without_references(element: str, attribute: str, value: str) -> str | None:
    """The value of an attribute; None, which leaves the attribute out, if it is more than names, numbers, colours and
    the functions of colours and transformations. CSS reads most attributes, with its escapes and comments.
    """
    if attribute in _TEXTS:
        return None if _SPACES.sub("", value.lower()).find("url(") >= 0 else value
    if _FORBIDDEN.search(value):
        return None
    names = [name.strip().lower() for name in _FUNCTION.findall(value)]
    return value if all(name in _FUNCTIONS for name in names) else None
