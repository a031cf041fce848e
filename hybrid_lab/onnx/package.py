"""The package `onnx`, imported when it is first needed."""

from __future__ import annotations

import importlib
from typing import Any

from hybrid_lab.diagnostics.errors import EngineUnavailable


def import_onnx() -> Any:
    """The package. Raises EngineUnavailable with the next step if it is not installed."""
    try:
        for part in ("checker", "defs", "helper", "numpy_helper"):
            importlib.import_module(f"onnx.{part}")
        return importlib.import_module("onnx")
    except ImportError:
        raise EngineUnavailable("ONNX files need the package onnx, which is not installed; pip install onnx") from None
