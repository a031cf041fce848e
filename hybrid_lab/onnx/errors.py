"""Errors about ONNX files."""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_lab.diagnostics.errors import ArchiveError


class OnnxError(ArchiveError):
    """An ONNX file that is damaged, violates the format, or needs an unsupported feature.

    The message names the file and the node, and says what to do next.
    """


class UnsupportedOperatorError(OnnxError):
    """A node whose operator, or a use of it, has no form in this package. operator : its name"""

    def __init__(self, message: str, operator: str = "") -> None:
        super().__init__(message)
        self.operator = operator


class OpenValueError(UnsupportedOperatorError):
    """A shape, an axis or the like that a node needs as a number is computed from inputs of the model.

    inputs : names of these inputs; with their values (`imports(..., values={...})`) the number is known
    """

    def __init__(self, message: str, inputs: Sequence[str] = (), operator: str = "") -> None:
        super().__init__(message, operator)
        self.inputs = tuple(inputs)
