"""PyTorch: modules of torch become HybridBlocks, and Blocks become modules of torch. torch is imported when it is first
needed.
"""

from __future__ import annotations

import importlib

_MODULES: dict[str, str] = {
    "TorchError": "hybrid_lab.torch.errors",
    "UnsupportedOperatorError": "hybrid_lab.torch.errors",
    "imports": "hybrid_lab.torch.block",
    "module": "hybrid_lab.torch.wrapped",
    "write_source": "hybrid_lab.torch.source.write",
}
"""Public name -> the module that has it, which is imported when the name is first used. No module has the name of one
of these: Python would take the module for it once that is imported."""


__all__ = list(_MODULES)  # noqa: PLE0605 - the names of the table


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'hybrid_lab.torch' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
