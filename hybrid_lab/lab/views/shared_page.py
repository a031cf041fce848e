"""One HTML file of the live view: tree, graphs, overlays, findings and curves, without kernel and without network.

The page holds the front end (`static/page.js`), Graphviz, and what the kernel would answer to the view's requests, each
compressed. Its Content-Security-Policy lets it load nothing and run nothing else. Names in a model never become HTML:
all of them are in the compressed part, which the front end shows as text.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path
from typing import Any, TypeAlias

from hybrid_lab._version import __version__
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.engines.report import format_bytes
from hybrid_lab.formats.atomic import atomic_write
from hybrid_lab.gluon.block import Block
from hybrid_lab.insight.states import blocks_below
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.messages.common import JsonObject

Ask: TypeAlias = Callable[[str, JsonObject], Mapping[str, object]]
"""(type of a request, its body) -> the body of the reply. Raises RequestError."""

LIMIT = 8 << 20
"""Compressed bytes of answers that a page holds; graphs of deeper Blocks are left out beyond it."""
_PARTS = ("path", "program", "kind", "name", "what", "inputs", "batch", "dtype")
"""What tells requests of one type apart; page.ts makes the same keys."""
_CHEAP = ("memory", "engine", "gradients")
_MEASURED = ("time", "values")

_GENERATOR = '<meta name="generator" content="hybrid-lab'
_LONGEST = 80
"""Characters of a model's name in the name of a file."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
script-src '{digest}' 'wasm-unsafe-eval' blob:; worker-src blob:; \
style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
{generator} {version}">
<title>{title}</title>
</head>
<body>
<noscript>This page shows a model of Hybrid Lab with JavaScript, which is switched off here.</noscript>
<script type="text/plain" id="hl-graphviz">{graphviz}</script>
<script type="text/plain" id="hl-recorded">{recorded}</script>
<script>{script}</script>
</body>
</html>
"""


@dataclass(frozen=True)
class SharedPage:
    """What `share` wrote.

    path : of the file; bytes : its size; graphs : graphs of Blocks that it can draw; left_out : those beyond the limit
    """

    path: str
    bytes: int
    graphs: int
    left_out: int

    def __str__(self) -> str:
        left = f"; {count(self.left_out, 'graph')} of deeper Blocks left out" if self.left_out else ""
        return f"{self.path}: {format_bytes(self.bytes)}, {count(self.graphs, 'graph')}{left}"


def page_file(folder: Path, name: str) -> Path:
    """The file for the page of a model that the panel writes: `net.html`, or `net-2.html` if `net.html` is a file that
    the panel did not write.
    """
    stem = re.sub(r"[^\w-]+", "_", name).strip("_")[:_LONGEST] or "model"
    for number in itertools.count(1):
        path = folder / (f"{stem}.html" if number == 1 else f"{stem}-{number}.html")
        if not os.path.lexists(path) or (path.is_file() and not path.is_symlink() and _is_page(path)):
            return path
    raise AssertionError


def _is_page(path: Path) -> bool:
    with open(path, "rb") as stream:
        return _GENERATOR.encode() in stream.read(2000)


def write_page(
    ask: Ask, model: str, name: str, net: Block, path: str | os.PathLike[str], *, measure: bool, limit: int = LIMIT
) -> SharedPage:
    """Write the page of a model.

    ask : answers the protocol's requests about it; model, name : its id and its name; measure, limit : as of `share`
    """
    recording = _Recording(ask, model, net, limit)
    recording.take_model()
    recording.take_graphs()
    recording.take_overlays(measure)
    left = f" {count(recording.left_out, 'graph')} of deeper Blocks left out." if recording.left_out else ""
    made = time.strftime("%Y-%m-%d %H:%M")
    about = f"{name}, as it was at {made}, shared from Hybrid Lab {__version__}. No kernel is connected.{left}"
    recorded = {"model": model, "replies": recording.replies, "same": recording.same, "about": about}
    # The parser of HTML ends a script at this text, wherever it stands in it.
    script = _static("page.js").replace("</script", "<\\/script").replace("<!--", "<\\!--")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = _PAGE.format(
        digest=f"sha256-{digest}",
        generator=_GENERATOR,
        version=__version__,
        title=html.escape(f"{name} - Hybrid Lab"),
        graphviz=_packed(_static("graphviz.js")),
        recorded=_packed(json.dumps(recorded)),
        script=script,
    ).encode()
    with atomic_write(path) as stream:
        stream.write(page)
    return SharedPage(os.fspath(path), len(page), recording.graphs, recording.left_out)


def _static(name: str) -> str:
    try:
        return (resources("hybrid_lab.lab") / "static" / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise HybridLabError(
            "the front end is not built: run `make install` in the checkout, or install the wheel"
        ) from None


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


class _Recording:
    """The answers of a session about one model, up to a size.

    replies : by the key of the request; same : keys of requests that have the reply of another one
    graphs, left_out : Blocks whose graph is there, and is not because of the limit
    """

    def __init__(self, ask: Ask, model: str, net: Block, limit: int) -> None:
        self.replies: dict[str, Any] = {}
        self.same: dict[str, str] = {}
        self.graphs = self.left_out = 0
        self._ask, self._model, self._net, self._left = ask, model, net, limit

    def take_model(self) -> None:
        """What is about the whole model."""
        for kind in ("tree", "findings", "explain", "curves"):
            self._take(kind, {})
        self._take("summary", {"inputs": "", "batch": 0, "dtype": ""})
        self.replies[_key("watch_nan", {})] = {"on": False}
        self.replies[_key("keep_inputs", {})] = {"on": False, "calls": []}

    def take_graphs(self) -> None:
        """The graphs of the Blocks, those near the top first, with all their programs."""
        paths = sorted((path for path, _ in blocks_below(self._net)), key=lambda path: path.count(".") + bool(path))
        for path in paths:
            if self._left <= 0:
                self.left_out += 1
                continue
            shown = self._take("graph", {"path": path, "program": ""})
            if shown is None or (not shown["nodes"] and path):
                continue
            self.graphs += bool(shown["nodes"])
            at = _key("graph", {"path": path, "program": shown["program"]})
            self.replies[at] = self.replies.pop(_key("graph", {"path": path, "program": ""}))
            self.same[_key("graph", {"path": path, "program": ""})] = at
            for program in shown["programs"]:
                if program["id"] != shown["program"] and self._left > 0:
                    self._take("graph", {"path": path, "program": program["id"]})

    def take_overlays(self, measure: bool) -> None:
        """What is known, and measured, of the programs of the whole model."""
        start = self.same.get(_key("graph", {"path": "", "program": ""}))
        if start is None:
            return
        shown = self.replies[start]
        for program in [
            shown["program"],
            *(each["id"] for each in shown["programs"] if each["id"] != shown["program"]),
        ]:
            kinds = (*_CHEAP, *_MEASURED) if measure and program == shown["program"] else _CHEAP
            for kind in kinds:
                if self._left > 0:
                    self._take("overlay", {"path": "", "program": program, "kind": kind, "data": ""})

    def _take(self, kind: str, body: Mapping[str, object]) -> dict[str, Any] | None:
        """Record one answer; None if there is none."""
        try:
            reply = self._ask(kind, {"model": self._model, **body})
        except RequestError:
            return None
        self._left -= len(gzip.compress(json.dumps(reply).encode(), 1))
        self.replies[_key(kind, body)] = reply
        return dict(reply)


def _key(kind: str, body: Mapping[str, object]) -> str:
    return json.dumps([kind, *(body.get(part, "") for part in _PARTS)], separators=(",", ":"), ensure_ascii=False)
