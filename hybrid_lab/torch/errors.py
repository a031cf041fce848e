"""Errors about modules of PyTorch."""

from __future__ import annotations

from hybrid_lab.diagnostics.errors import HybridLabError


class TorchError(HybridLabError):
    """A module of torch that cannot become a Block, or a Block that torch cannot contain.

    The message names the module's path and says what to do next.
    """


class UnsupportedOperatorError(TorchError):
    """An operator of torch, or a use of it, that has no form in this package. operator : its name, "aten.cdist"."""

    def __init__(self, message: str, operator: str = "") -> None:
        super().__init__(message)
        self.operator = operator
