"""The lab: the IPython extension, the panel's kernel half, the widget and the static HTML."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from hybrid_lab.gluon.block import Block
    from hybrid_lab.lab.distributed.workers import workers as workers
    from hybrid_lab.lab.kernel.tracebacks import short_tracebacks as short_tracebacks
    from hybrid_lab.lab.saving.all_models import reload_all as reload_all
    from hybrid_lab.lab.saving.all_models import save_all as save_all
    from hybrid_lab.lab.saving.autosaves import autosave as autosave
    from hybrid_lab.lab.saving.save_list import saves as saves
    from hybrid_lab.lab.training.comparison import runs as runs
    from hybrid_lab.lab.training.current import new_run as new_run
    from hybrid_lab.lab.training.current import note as note
    from hybrid_lab.lab.training.keeper import keep_runs as keep_runs
    from hybrid_lab.lab.training.progress import progress as progress
    from hybrid_lab.lab.views.sharing import share as share
    from hybrid_lab.lab.views.widget import View


__all__ = [
    *("autosave", "keep_runs", "load_ipython_extension", "new_run", "note", "progress", "reload_all", "runs"),
    *("save_all", "saves", "share", "short_tracebacks", "unload_ipython_extension", "view", "workers"),
]

_MODULES = {
    "autosave": "hybrid_lab.lab.saving.autosaves",
    "keep_runs": "hybrid_lab.lab.training.keeper",
    "new_run": "hybrid_lab.lab.training.current",
    "note": "hybrid_lab.lab.training.current",
    "progress": "hybrid_lab.lab.training.progress",
    "reload_all": "hybrid_lab.lab.saving.all_models",
    "runs": "hybrid_lab.lab.training.comparison",
    "save_all": "hybrid_lab.lab.saving.all_models",
    "saves": "hybrid_lab.lab.saving.save_list",
    "share": "hybrid_lab.lab.views.sharing",
    "short_tracebacks": "hybrid_lab.lab.kernel.tracebacks",
    "workers": "hybrid_lab.lab.distributed.workers",
}
"""Public name -> the module that has it, which is imported when the name is first used."""


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'hybrid_lab.lab' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def view(net: Block, name: str | None = None) -> View:
    """The lab's widget for a model: block tree beside the cached graph, findings, Save, Reload and Undo.

    net : any Block; before its first call the tree and the neutral graph are shown
    name : what to call it; by default the variable that it is bound to
    The view does not keep a model alive that is bound to a variable. Raises HybridLabError if `net` is no Block, or if
    the widget's parts are not installed.
    """
    from hybrid_lab.lab.kernel.hooks import lab_of, register
    from hybrid_lab.lab.kernel.session import Session

    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        session = Session(dict)
    else:
        register(shell)
        lab = lab_of(shell)
        assert lab is not None
        session = lab.session
    widget_view: View = _view_module().make_view(net, session, name)
    return widget_view


def _view_module() -> ModuleType:
    from hybrid_lab.diagnostics.errors import HybridLabError

    try:
        from hybrid_lab.lab.views import widget
    except ModuleNotFoundError as error:
        raise HybridLabError(
            f"mx.view needs {error.name}, which is not installed: pip install 'hybrid-lab[lab]'"
        ) from error
    except FileNotFoundError:
        raise HybridLabError(
            "the widget's front end is not built; run `make install` in the checkout, or install the wheel"
        ) from None
    return widget


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext hybrid_lab`: connects as `import hybrid_lab` does under IPython, and prints so."""
    from hybrid_lab._version import __version__
    from hybrid_lab.lab.kernel.hooks import register

    register(shell)
    print(f"hybrid_lab {__version__} is connected to this notebook: open the Hybrid Lab panel at the left")


def unload_ipython_extension(shell: object) -> None:
    """`%unload_ext hybrid_lab`: removes the hooks, the magics and the connections of the panel."""
    from hybrid_lab.lab.kernel.hooks import unregister

    unregister(shell)
