"""Modules: a Symbol with its parameters, an optimizer and a training loop. `mx.mod.Module(symbol).fit(iterator)`."""

from __future__ import annotations

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

from .base_module import BaseModule, ModuleStateError
from .bucketing_module import BucketingModule
from .module import Module
from .python_module import PythonLossModule, PythonModule
from .sequential_module import SequentialModule

__all__ = [
    "BaseModule",
    "BucketingModule",
    "Module",
    "ModuleStateError",
    "PythonLossModule",
    "PythonModule",
    "SequentialModule",
]

_suggest_names(__name__)
