"""Errors, source locations, findings and the rules about what can become part of a graph."""

from . import rules
from .errors import (
    ArchiveError,
    ArrayIndexError,
    AttributeSpecError,
    AutogradError,
    DeferredInitializationError,
    DTypeError,
    EngineError,
    EngineUnavailable,
    HybridLabError,
    LoadMismatchError,
    MXNetError,
    NestingError,
    SettingError,
    ShapeError,
    UninitializedError,
    UnknownNameError,
    Unmappable,
)
from .finding import Edit, Finding, Fix, Severity
from .hybridize_error import (
    HybridizeAttributeError,
    HybridizeError,
    HybridizeNotImplementedError,
    HybridizeTypeError,
    hybridize_error,
)
from .location import Location, capture, register_cell

__all__ = [
    "ArchiveError",
    "ArrayIndexError",
    "AttributeSpecError",
    "AutogradError",
    "DTypeError",
    "DeferredInitializationError",
    "Edit",
    "EngineError",
    "EngineUnavailable",
    "Finding",
    "Fix",
    "HybridLabError",
    "HybridizeAttributeError",
    "HybridizeError",
    "HybridizeNotImplementedError",
    "HybridizeTypeError",
    "LoadMismatchError",
    "Location",
    "MXNetError",
    "NestingError",
    "SettingError",
    "Severity",
    "ShapeError",
    "UninitializedError",
    "UnknownNameError",
    "Unmappable",
    "capture",
    "hybridize_error",
    "register_cell",
    "rules",
]
