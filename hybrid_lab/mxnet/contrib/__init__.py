"""MXNet's `mx.contrib`: mixed precision, text, and older interfaces beside the main interfaces."""

from __future__ import annotations

import importlib

from hybrid_lab.diagnostics.unknown_names import unknown_name as _unknown_name

__all__ = ["amp", "autograd", "io", "onnx", "svrg_optimization", "text"]
#: MXNet's older names of `nd.contrib` and `sym.contrib`.
_OLDER = {"nd": "ndarray", "ndarray": "ndarray", "sym": "symbol", "symbol": "symbol"}


def __getattr__(name: str) -> object:
    """A module of this package, loaded when it is first used; or the operators of `nd.contrib` and `sym.contrib`."""
    if name in _OLDER:
        return importlib.import_module(f"hybrid_lab.{_OLDER[name]}").contrib
    if name not in __all__:
        raise _unknown_name("contrib", name, __all__)
    return importlib.import_module(f"hybrid_lab.mxnet.contrib.{name}")


def __dir__() -> list[str]:
    return sorted((*__all__, *_OLDER))
