"""ONNX files: networks written to them, and read from them. The package `onnx` is imported when it is first needed."""

from __future__ import annotations

import importlib

_MODULES: dict[str, str] = {
    "Backend": "hybrid_lab.onnx.reading.backend",
    "OnnxBlock": "hybrid_lab.onnx.reading.block",
    "export": "hybrid_lab.onnx.writing.exporting",
    "export_model": "hybrid_lab.onnx.symbols",
    "get_operator_support": "hybrid_lab.onnx.writing.support",
    "imports": "hybrid_lab.onnx.reading.block",
    "imports_training": "hybrid_lab.onnx.training_info.reading",
}
"""Public name -> the module that has it, which is imported when the name is first used. No module has the name of one
of these: Python would take the module for it once that is imported."""


__all__ = list(_MODULES)  # noqa: PLE0605 - the names of the table


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'hybrid_lab.onnx' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
