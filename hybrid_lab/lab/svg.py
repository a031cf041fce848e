"""Clean SVG: a picture that came from the browser, reduced to drawing elements: no scripts, events or references."""

from __future__ import annotations

import re
from xml.etree import ElementTree

SVG = "http://www.w3.org/2000/svg"
_ELEMENTS = frozenset("svg g path polygon polyline ellipse circle rect line text tspan title desc defs".split())
_ATTRIBUTES = frozenset(
    "id class d points x y dx dy x1 y1 x2 y2 cx cy r rx ry width height viewBox transform fill stroke stroke-width "
    "stroke-dasharray fill-opacity stroke-opacity opacity font-family font-size font-weight font-style text-anchor "
    "dominant-baseline role aria-label".split()
)
_MAX = 4 * 1024 * 1024


def clean_svg(text: str) -> str:
    """The picture with only known elements and attributes; "" for what is no SVG. Never raises."""
    if not text or len(text) > _MAX or re.search(r"<!\s*(DOCTYPE|ENTITY)", text, re.IGNORECASE):
        return ""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return ""
    cleaned = _clean(root)
    if cleaned is None or _local(root.tag) != "svg":
        return ""
    ElementTree.register_namespace("", SVG)
    return ElementTree.tostring(cleaned, encoding="unicode")


def _local(tag: object) -> str:
    return tag.rsplit("}", 1)[-1] if isinstance(tag, str) else ""


def _clean(element: ElementTree.Element) -> ElementTree.Element | None:
    name = _local(element.tag)
    if name not in _ELEMENTS:
        return None
    made = ElementTree.Element(f"{{{SVG}}}{name}")
    for key, value in element.attrib.items():
        if key in _ATTRIBUTES and not re.search(r"url\s*\(|javascript:|data:", value, re.IGNORECASE):
            made.set(key, value)
    made.text, made.tail = element.text, element.tail
    for child in element:
        cleaned = _clean(child)
        if cleaned is not None:
            made.append(cleaned)
    return made
