"""Checks the built site: every link to a page, a heading or a file leads somewhere; nothing loads from elsewhere."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Attributes by which a page loads something.
_LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("video", "src")}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("id", "name"):
                self.anchors.add(value)
            elif value and name in ("href", "src"):
                self.links.append((tag, name, value))


@cache
def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def faults(folder: Path) -> list[str]:
    """What is wrong with the links of the site in `folder`, a line each."""
    found = []
    for path in sorted(set(folder.rglob("*.html")) - set((folder / "_static").rglob("*"))):
        for tag, name, value in _read(path).links:
            fault = _fault(path, tag, name, value)
            if fault:
                found.append(f"{path.relative_to(folder)}: {fault}: {value}")
    return found


def _fault(page: Path, tag: str, name: str, value: str) -> str | None:
    parts = urlsplit(value)
    if parts.scheme in ("http", "https") or value.startswith("//"):
        loads = (tag, name) in _LOADS
        return "loads from another host" if loads else None
    if parts.scheme:
        return None
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_file():
        return "leads nowhere"
    fragment = unquote(parts.fragment)
    if fragment and target.suffix == ".html" and fragment not in _read(target).anchors and fragment != "top":
        return "no such heading"
    return None
