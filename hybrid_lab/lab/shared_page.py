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
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files as resources
from typing import TYPE_CHECKING, Any

from hybrid_lab._version import __version__
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.words import count
from hybrid_lab.engines.report import format_bytes
from hybrid_lab.formats.atomic import atomic_write
from hybrid_lab.gluon.block import Block
from hybrid_lab.insight.states import blocks_below
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.session import Session

if TYPE_CHECKING:
    from hybrid_lab.lab.registry import LiveModel

LIMIT = 8 << 20
"""Compressed bytes of answers that a page holds; graphs of deeper Blocks are left out beyond it."""
_PARTS = ("path", "program", "kind", "name", "what")
"""What tells requests of one type apart; page.ts makes the same keys."""
_CHEAP = ("memory", "engine", "gradients")
_MEASURED = ("time", "values")

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src '{digest}' 'wasm-unsafe-eval' blob:; \
worker-src blob:; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="hybrid-lab {version}">
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


def share(
    net: Block, path: str | os.PathLike[str], *, measure: bool = True, limit: int = LIMIT, name: str | None = None
) -> SharedPage:
    """Write one HTML file that shows a model as `mx.view(net)` does, without a kernel and without network.

    It has the tree, the graph of every Block with a graph, memory and engines of the model's programs, findings, the
    report of `mx.explain`, and the training runs of the notebook. The file is replaced if it is there.

    measure : also time and values of the model's latest program, which is run on random numbers for it
    limit : compressed bytes of answers at most, 8 MiB; the graphs of deeper Blocks are left out beyond it
    name : what the model is called; by default the variable that it is bound to

    The page has the names of files and the lines of code that the graphs point to, and no values of weights.
    Raises HybridLabError for what is no Block, FileError where the file cannot be written.
    """
    if not isinstance(net, Block):
        raise HybridLabError(f"share needs a Block, not {type(net).__name__}")
    session = Session(_namespace())
    return write_page(session, session.registry.show(net, name), path, measure, limit)


def _namespace() -> Callable[[], dict[str, object]]:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return dict if shell is None else lambda: shell.user_ns


def write_page(
    session: Session, entry: LiveModel, path: str | os.PathLike[str], measure: bool, limit: int = LIMIT
) -> SharedPage:
    """Write the page of a model that the session knows."""
    recording = _Recording(session, entry, limit)
    recording.take_model()
    recording.take_graphs()
    recording.take_overlays(measure)
    left = f" {count(recording.left_out, 'graph')} of deeper Blocks left out." if recording.left_out else ""
    made = time.strftime("%Y-%m-%d %H:%M")
    about = f"{entry.name}, as it was at {made}, shared from Hybrid Lab {__version__}. No kernel is connected.{left}"
    recorded = {"model": entry.id, "replies": recording.replies, "same": recording.same, "about": about}
    # The parser of HTML ends a script at this text, wherever it stands in it.
    script = _static("page.js").replace("</script", "<\\/script").replace("<!--", "<\\!--")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = _PAGE.format(
        digest=f"sha256-{digest}",
        version=__version__,
        title=html.escape(f"{entry.name} - Hybrid Lab"),
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

    def __init__(self, session: Session, entry: LiveModel, limit: int) -> None:
        self.replies: dict[str, Any] = {}
        self.same: dict[str, str] = {}
        self.graphs = self.left_out = 0
        self._session, self._entry, self._left = session, entry, limit

    def take_model(self) -> None:
        """What is about the whole model."""
        for kind in ("tree", "findings", "explain", "curves"):
            self._take(kind, {})
        self.replies[_key("watch_nan", {})] = {"on": False}
        self.replies[_key("keep_inputs", {})] = {"on": False, "calls": []}

    def take_graphs(self) -> None:
        """The graphs of the Blocks, those near the top first, with all their programs."""
        paths = sorted(
            (path for path, _ in blocks_below(self._entry.block)), key=lambda path: path.count(".") + bool(path)
        )
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

    def _take(self, kind: str, body: Mapping[str, object]) -> Any:
        """Record one answer; None where there is none."""
        try:
            reply = self._session.answer(kind, {"model": self._entry.id, **body}, lambda text, done, total: None)
        except RequestError:
            return None
        self._left -= len(gzip.compress(json.dumps(reply).encode(), 1))
        self.replies[_key(kind, body)] = reply
        return reply


def _key(kind: str, body: Mapping[str, object]) -> str:
    return json.dumps([kind, *(body.get(part, "") for part in _PARTS)], separators=(",", ":"), ensure_ascii=False)
