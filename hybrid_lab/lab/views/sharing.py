"""`mx.lab.share`: the view of a model as one HTML file, for people without a kernel."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.gluon.block import Block
from hybrid_lab.lab.kernel.session import Session
from hybrid_lab.lab.views.shared_page import LIMIT, SharedPage, write_page


def share(
    net: Block, path: str | os.PathLike[str], *, measure: bool = True, limit: int = LIMIT, name: str | None = None
) -> SharedPage:
    """Write one HTML file that shows a model as `mx.view(net)` does, without a kernel and without network.

    It has the tree, the graph of every Block with a graph, memory and engines of the model's programs, findings, the
    report of `mx.explain`, and the training runs of the notebook. The file is replaced if it is there.

    measure : also time and values of the model's latest program, which is run on random numbers for it
    limit : compressed bytes of answers at most, 8 MiB; the graphs of deeper Blocks are left out beyond it
    name : the model's name in the page; by default its variable's name

    The page has the names of files and the lines of code that the graphs point to, and no values of weights. Raises
    HybridLabError for anything but a Block, FileError if the file cannot be written.
    """
    if not isinstance(net, Block):
        raise HybridLabError(f"share needs a Block, not {type(net).__name__}")
    session = Session(_namespace())
    entry = session.registry.show(net, name)
    return write_page(session.ask, entry.id, entry.name, net, path, measure=measure, limit=limit)


def _namespace() -> Callable[[], dict[str, object]]:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return dict if shell is None else lambda: shell.user_ns
