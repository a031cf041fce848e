"""MXNet's older interface to autograd. New code uses `mx.autograd`.

A section sets recording and training mode together; `grad_and_loss` and `grad` make functions that return gradients.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from hybrid_lab import autograd
from hybrid_lab.autograd import mark_variables
from hybrid_lab.diagnostics.errors import AutogradError
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.ndarray import NDArray, zeros_like

__all__ = [
    "TrainingStateScope",
    "backward",
    "compute_gradient",
    "grad",
    "grad_and_loss",
    "mark_variables",
    "set_is_training",
    "test_section",
    "train_section",
]


def set_is_training(is_train: bool) -> bool:
    """Switch recording and training mode on or off together; returns whether calls were recorded before."""
    autograd.set_training(is_train)
    return autograd.set_recording(is_train)


class TrainingStateScope:
    """`with` recording and training mode on or off; afterwards both are as recording was before."""

    def __init__(self, enter_state: bool):
        self._enter_state, self._before = enter_state, False

    def __enter__(self) -> None:
        self._before = set_is_training(self._enter_state)

    def __exit__(self, *error: object) -> None:
        set_is_training(self._before)


def train_section() -> TrainingStateScope:
    """`with train_section():` calls are recorded, in training mode."""
    return TrainingStateScope(True)


def test_section() -> TrainingStateScope:
    """`with test_section():` nothing is recorded, in prediction mode; for use inside train_section."""
    return TrainingStateScope(False)


def backward(
    outputs: Sequence[NDArray], out_grads: Sequence[NDArray | None] | None = None, retain_graph: bool = False
) -> None:
    """Fill the gradients of all marked variables that the outputs were computed from."""
    if not isinstance(outputs, list | tuple):
        raise AutogradError("outputs must be a list or tuple of arrays")
    autograd.backward(list(outputs), None if out_grads is None else list(out_grads), retain_graph)


def compute_gradient(outputs: Sequence[NDArray]) -> None:
    """As `backward(outputs)`."""
    backward(outputs)


def grad_and_loss(
    func: Callable[..., Any], argnum: int | Sequence[int] | None = None
) -> Callable[..., tuple[list[NDArray], Any]]:
    """A function that returns the gradients of the arguments, and what `func` returns.

    argnum : number or numbers of the arguments to differentiate; default: all
    """

    @functools.wraps(func)
    def wrapped(*args: Any) -> tuple[list[NDArray], Any]:
        chosen = range(len(args)) if argnum is None else [argnum] if isinstance(argnum, int) else argnum
        variables = [args[number] for number in chosen]
        for variable in variables:
            if not isinstance(variable, NDArray):
                raise AutogradError(f"the arguments to differentiate must be NDArrays, not {type(variable).__name__}")
        gradients = [zeros_like(variable) for variable in variables]
        mark_variables(variables, gradients)
        with train_section():
            outputs = func(*args)
        compute_gradient([outputs] if isinstance(outputs, NDArray) else outputs)
        return gradients, outputs

    return wrapped


def grad(func: Callable[..., Any], argnum: int | Sequence[int] | None = None) -> Callable[..., list[NDArray]]:
    """A function that returns the gradients of the arguments; argnum : as in grad_and_loss."""
    both = grad_and_loss(func, argnum)

    @functools.wraps(both)
    def wrapped(*args: Any) -> list[NDArray]:
        return both(*args)[0]

    return wrapped


_suggest_names(__name__)
