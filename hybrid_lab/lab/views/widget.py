"""mx.view(net): block tree beside the cached graph as an anywidget; static HTML if no front end shows widgets."""

from __future__ import annotations

import html
import os
import sys
from collections.abc import Mapping
from importlib.resources import files as resources
from typing import Any

import anywidget
import ipywidgets
import traitlets

from hybrid_lab._version import __version__
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.gluon.block import Block
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.kernel.comm import forget_route, handle
from hybrid_lab.lab.kernel.session import Session
from hybrid_lab.lab.messages.connection import PROTOCOL
from hybrid_lab.lab.picture.graph_view import graph_view
from hybrid_lab.lab.views.shared_page import SharedPage
from hybrid_lab.lab.views.sharing import share
from hybrid_lab.lab.views.static_html import block_html
from hybrid_lab.lab.views.static_picture import picture_html
from hybrid_lab.lab.views.svg import clean_svg

ALLOWED = frozenset(
    {
        "tree",
        "summary",
        "graph",
        "findings",
        "explain",
        "answers",
        "overlay",
        "values",
        "watch_nan",
        "save",
        "reload",
        "compare",
        "compared_values",
        "keep_inputs",
        "histograms",
        "undo",
        "history",
        "targets",
        "autosave",
        "restore",
        "note",
        "folder",
        "archives",
        "share",
        "asset",
    }
)
"""The requests of this channel, all about the widget's own model."""


WIDGET = "application/vnd.jupyter.widget-view+json"
OUTPUT = "application/vnd.hybrid-lab.view+json"
"""The view in a cell's output, for the JupyterLab extension: the widget while its kernel lives, else the HTML."""


class View(anywidget.AnyWidget):
    """The widget of one model; the traits are listed in docs/protocol.md, section 5.

    The front end's registry keeps widgets for ever, so a model with a variable is held weakly: it goes with its
    variable. A model without other references stays until the widget is closed.
    """

    _esm = resources("hybrid_lab.lab") / "static" / "view.js"

    protocol = traitlets.Int(PROTOCOL).tag(sync=True)
    version = traitlets.Unicode(__version__).tag(sync=True)
    kernel_id = traitlets.Unicode().tag(sync=True)
    model = traitlets.Unicode().tag(sync=True)
    tree = traitlets.Dict().tag(sync=True)
    graph = traitlets.Dict().tag(sync=True)
    findings = traitlets.Dict().tag(sync=True)
    selected = traitlets.Unicode().tag(sync=True)
    svg = traitlets.Unicode().tag(sync=True)

    def __init__(self, net: Block, session: Session, name: str | None = None):
        self._session = session
        self._entry = session.registry.show(net, name)
        self._keeps = None if session.registry.is_bound(net) else net
        self._revision = -1
        super().__init__(kernel_id=session.kernel, model=self._entry.id)
        self.refresh()
        self.on_msg(self._message)
        session.views.add(self)

    def refresh(self) -> None:
        """Bring tree, graph and findings up to date if the model's revision grew."""
        entry = self._entry
        self._session.registry.refresh()
        net = entry.reference()
        if net is None:
            return
        findings = self._session.findings(entry)
        if entry.revision != self._revision:
            if self.svg:
                self.svg = ""  # it shows the graph as it was
            self._revision = entry.revision
            self.tree = dict(self._session.tree(entry))
            self.graph = dict(graph_view(net, ""))
            self.findings = {"findings": findings}
            if self.comm is not None:
                forget_route(self.comm)

    def open(self) -> None:
        """Connect with the front end; not if a program runs the notebook, whose file would keep all of the state."""
        if not is_run_by_a_program():
            super().open()

    def close(self) -> None:
        """Close the widget and let go of the model."""
        self._session.views.discard(self)
        self._keeps = None
        super().close()

    def _message(self, widget: View, content: object, buffers: list[memoryview]) -> None:
        """Answer one request; one about another model is refused."""
        if isinstance(content, dict) and isinstance(body := content.get("body"), dict):
            if "model" in body and body["model"] != self.model:
                content = {**content, "body": {**body, "model": ""}}
        handle(self._session, content, self.send, ALLOWED)
        try:
            self.refresh()
        except RequestError:  # the model went away meanwhile
            pass

    @traitlets.validate("svg")
    def _check_svg(self, proposal: Mapping[str, str]) -> str:
        return clean_svg(proposal["value"])

    def _repr_mimebundle_(self, **keywords: dict[str, object]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The widget, and beside it static HTML and text for places that show no widgets.

        If a program runs the notebook, there is no widget: nbconvert would write a script in place of the HTML.
        """
        bundle = None if self.comm is None or is_run_by_a_program() else super()._repr_mimebundle_(**keywords)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        if WIDGET in data:
            data = data | {OUTPUT: {"view": self.model_id, "model": self.model}}
        net = self._entry.reference()
        text = f"view of {self._entry.name}" if net is None else repr(net)
        return data | {"text/html": self.static_html(), "text/plain": text}, metadata

    def share(self, path: str, *, measure: bool = True) -> SharedPage:
        """Write the view as one HTML file that needs no kernel and no network; as `mx.lab.share(net, path)`."""
        net = self._entry.reference()
        if net is None:
            raise HybridLabError(f"{self._entry.name} is gone: its variable was deleted or assigned anew")
        return share(net, path, measure=measure, name=self._entry.name)

    def static_html(self) -> str:
        """Tree and picture as HTML without scripts, for a notebook that is read without a kernel."""
        net, name = self._entry.reference(), self._entry.name
        if net is None:
            return f"<div>{html.escape(name)} is gone: its variable was deleted or assigned anew</div>"
        self.refresh()
        drawn = self.svg if self.selected == self.graph["path"] else ""
        shown = f"{name}.{self.graph['path']}" if self.graph["path"] else name
        return block_html(net, name) + picture_html(self.graph, shown, drawn)  # type: ignore[arg-type]


def is_run_by_a_program() -> bool:
    """Whether the running cell was sent by nbclient, papermill or another program without visible widgets.

    The pages of notebooks send metadata with each cell, such as its id. Voila, which runs cells as nbclient does, and
    Colab show widgets all the same.
    """
    ipython = sys.modules.get("IPython")
    kernel = getattr(ipython.get_ipython() if ipython is not None else None, "kernel", None)
    parent = kernel.get_parent() if kernel is not None and hasattr(kernel, "get_parent") else None
    if not isinstance(parent, dict) or (parent.get("header") or {}).get("msg_type") != "execute_request":
        return False
    shows_widgets = "google.colab" in sys.modules or os.environ.get("SERVER_SOFTWARE", "").startswith("voila")
    return not parent.get("metadata") and not shows_widgets


def make_view(net: Block, session: Session, name: str | None = None) -> View:
    """Raises HybridLabError if `net` is no Block or the browser half was not built."""
    if not isinstance(net, Block):
        raise HybridLabError(f"view needs a Block, not {type(net).__name__}")
    if not (resources("hybrid_lab.lab") / "static" / "view.js").is_file():
        raise HybridLabError(
            "the widget's front end is not built: run `make install` in the checkout, or install the wheel"
        )
    _show_boxes_of_views()
    return View(net, session, name)


def _show_boxes_of_views() -> None:
    """Let IPython ask `_bundle_of_box` how to show a Box, such as `VBox([mx.view(net)])`."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        shell.display_formatter.mimebundle_formatter.for_type(ipywidgets.Box, _bundle_of_box)


def _bundle_of_box(box: ipywidgets.Box, **keywords: Any) -> object:
    """A Box as ipywidgets shows it; if a program runs the notebook, the static HTML of the views in it."""
    if not is_run_by_a_program() or not any(isinstance(each, View) for each in _inside(box)):
        return box._repr_mimebundle_(**keywords)
    texts = [
        each.static_html() if isinstance(each, View) else f"<pre>{html.escape(str(getattr(each, 'value', each)))}</pre>"
        for each in _inside(box)
    ]
    return {"text/html": "".join(f"<div>{text}</div>" for text in texts), "text/plain": repr(box)}, {}


def _inside(box: ipywidgets.Box) -> list[ipywidgets.Widget]:
    """The widgets in a Box and in the Boxes inside it, in order."""
    parts = (_inside(child) if isinstance(child, ipywidgets.Box) else [child] for child in box.children)
    return [each for part in parts for each in part]
