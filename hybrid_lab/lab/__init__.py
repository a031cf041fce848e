"""The lab: the IPython extension, the panel's kernel half, the widget and the static HTML."""

from __future__ import annotations

import sys
from typing import Any


def view(net: Any, name: str | None = None) -> Any:
    """The lab's widget for a model: block tree beside the cached graph, findings, Save, Reload and Undo.

    net : any Block; before its first call the tree and the neutral graph are shown
    """
    from hybrid_lab.lab.hooks import lab_of, register
    from hybrid_lab.lab.session import Session
    from hybrid_lab.lab.widget import make_view

    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return make_view(net, Session(dict, lambda: None), name)
    register(shell)
    lab = lab_of(shell)
    assert lab is not None
    return make_view(net, lab.session, name)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext hybrid_lab`: what `import hybrid_lab` does under IPython, aloud."""
    from hybrid_lab._version import __version__
    from hybrid_lab.lab.hooks import register

    again = not register(shell)
    print(f"hybrid_lab {__version__} is {'already ' if again else ''}connected to this notebook: open the Hybrid Lab panel at the left")


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext hybrid_lab`."""
    from hybrid_lab.lab.hooks import unregister

    unregister(shell)
