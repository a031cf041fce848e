"""mx.view(net): the block tree beside the cached graph as an anywidget; static HTML where no front end shows widgets."""

from __future__ import annotations

from importlib.resources import files as resources
from typing import Any

import anywidget
import traitlets

from hybrid_lab._version import __version__
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.insight.states import walk
from hybrid_lab.lab.comm import finite, forget_route, handle
from hybrid_lab.lab.graph_view import graph_view
from hybrid_lab.lab.schema import PROTOCOL
from hybrid_lab.lab.session import Session
from hybrid_lab.lab.static_html import block_html
from hybrid_lab.lab.svg import clean_svg

_ALLOWED = frozenset({"tree", "graph", "findings", "explain", "save", "reload", "undo", "archives", "asset"})


class View(anywidget.AnyWidget):
    """The widget of one model; the traits are listed in docs/protocol.md, section 5."""

    _esm = resources("hybrid_lab.lab") / "static" / "view.js"

    protocol = traitlets.Int(PROTOCOL).tag(sync=True)
    version = traitlets.Unicode(__version__).tag(sync=True)
    model = traitlets.Unicode().tag(sync=True)
    tree = traitlets.Dict().tag(sync=True)
    graph = traitlets.Dict().tag(sync=True)
    findings = traitlets.Dict().tag(sync=True)
    selected = traitlets.Unicode().tag(sync=True)
    svg = traitlets.Unicode().tag(sync=True)

    def __init__(self, net: Block, session: Session, name: str | None = None):
        self._net, self._session = net, session
        self._entry = session.registry.show(net, name)
        super().__init__(model=self._entry.id, selected=first_hybrid(net))
        self.refresh()
        self.on_msg(self._message)

    def refresh(self) -> None:
        """Bring tree, graph and findings up to date."""
        entry = self._entry
        self.tree = finite(self._session.tree(entry))
        self.graph = finite(graph_view(self._net, first_hybrid(self._net), "neutral"))
        self.findings = {"findings": self._session.findings(entry)}
        self._revision = entry.revision
        if self.comm is not None:
            forget_route(self.comm)

    def _message(self, widget: Any, content: Any, buffers: Any) -> None:
        body = content.get("body") if isinstance(content, dict) else None
        if isinstance(body, dict) and "model" in body and body["model"] != self.model:
            content = {**content, "body": {**body, "model": ""}}
        handle(self._session, content, self.send, _ALLOWED)
        self._session.registry.refresh()
        if self._entry.revision != self._revision:
            self.refresh()

    @traitlets.validate("svg")
    def _check_svg(self, proposal: Any) -> str:
        return clean_svg(proposal["value"])

    def _repr_mimebundle_(self, **keywords: Any) -> Any:
        found = super()._repr_mimebundle_(**keywords)
        data = dict(found[0] if isinstance(found, tuple) else found or {})
        data["text/html"] = self._static_html()
        data["text/plain"] = repr(self._net)
        return (data, found[1]) if isinstance(found, tuple) else data

    def _static_html(self) -> str:
        return block_html(self._net, self._entry.name) + (f"<div>{self.svg}</div>" if self.svg else "")


def first_hybrid(net: Block) -> str:
    """Path of the first HybridBlock of the tree; the top where there is none."""
    return next((path for path, _, block, _ in walk(net) if isinstance(block, HybridBlock)), "")


def make_view(net: Block, session: Session, name: str | None = None) -> View:
    """Raises HybridLabError if `net` is no Block or the browser half was not built."""
    if not isinstance(net, Block):
        raise HybridLabError(f"view needs a Block, not {type(net).__name__}")
    if not (resources("hybrid_lab.lab") / "static" / "view.js").is_file():
        raise HybridLabError("the widget's browser half is not built; run `make install` in the checkout, or install the wheel")
    return View(net, session, name)
