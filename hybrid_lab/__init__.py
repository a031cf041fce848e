"""hybrid_lab: Gluon-style modelling inside JupyterLab - eager on NumPy, compiled after hybridize()."""

from __future__ import annotations

import importlib
from typing import Any

from hybrid_lab import log as _log
from hybrid_lab._version import __version__
from hybrid_lab import autograd, context, diagnostics, gluon, initializer, lr_scheduler, metric, ndarray, optimizer, random, symbol
from hybrid_lab import initializer as init
from hybrid_lab import ndarray as nd
from hybrid_lab import symbol as sym
from hybrid_lab.context import Context, cpu, current_context, gpu, num_gpus
from hybrid_lab.diagnostics.hybridize_error import HybridizeError

_log.install()

#: Loaded when first used: they bring ONNX, IPython, ipywidgets or the formats with them.
_LATE = {
    "viz": "hybrid_lab.viz",
    "lint": "hybrid_lab.lint",
    "onnx": "hybrid_lab.onnx",
    "engines": "hybrid_lab.engines",
    "formats": "hybrid_lab.formats",
    "lab": "hybrid_lab.lab",
    "compat": "hybrid_lab.compat",
}
_LATE_FUNCTIONS = {
    "explain": ("hybrid_lab.insight", "explain"),
    "view": ("hybrid_lab.lab", "view"),
    "save_cached_graphs": ("hybrid_lab.formats.archive", "save_cached_graphs"),
    "load_cached_graphs": ("hybrid_lab.formats.archive", "load_cached_graphs"),
    "load_ipython_extension": ("hybrid_lab.lab", "load_ipython_extension"),
    "unload_ipython_extension": ("hybrid_lab.lab", "unload_ipython_extension"),
}

__all__ = [
    "Context",
    "HybridizeError",
    "__version__",
    "autograd",
    "context",
    "cpu",
    "current_context",
    "diagnostics",
    "gluon",
    "gpu",
    "init",
    "initializer",
    "lr_scheduler",
    "metric",
    "nd",
    "ndarray",
    "num_gpus",
    "optimizer",
    "random",
    "sym",
    "symbol",
    *_LATE,
    *_LATE_FUNCTIONS,
]


def __getattr__(name: str) -> Any:
    if name in _LATE:
        found = importlib.import_module(_LATE[name])
    elif name in _LATE_FUNCTIONS:
        module, attribute = _LATE_FUNCTIONS[name]
        found = getattr(importlib.import_module(module), attribute)
    else:
        raise AttributeError(f"module 'hybrid_lab' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
