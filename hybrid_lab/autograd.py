"""mx.autograd: record computations on arrays and differentiate them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from hybrid_lab.diagnostics.errors import AutogradError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.ndarray import backward as reverse
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.function import Function
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.system.provided import Provided

__all__ = [
    "Function",
    "backward",
    "get_symbol",
    "grad",
    "is_recording",
    "is_training",
    "mark_variables",
    "pause",
    "predict_mode",
    "record",
    "set_recording",
    "set_training",
    "train_mode",
]

_state = tape.state


def _scope(call: str, recording: bool | None, training: bool | None) -> AbstractContextManager[None]:
    """A scope of another mode; in code that is traced, one whose operators stay in this mode in the graph."""
    if _state.scope is not None:
        return _state.scope(call, recording, training)
    return tape.Mode(recording, training)


def record(train_mode: bool = True) -> AbstractContextManager[None]:
    """`with autograd.record():` records the computations inside, so that `backward()` can differentiate them.

        x = nd.array([1.0, 2.0, 3.0])
        x.attach_grad()
        with autograd.record():
            y = (x * x).sum()
        y.backward()
        x.grad

    train_mode : whether Dropout, BatchNorm and the like behave as in training
    """
    check_switches("record", train_mode=train_mode)
    return _scope("autograd.record()", True, train_mode)


def pause(train_mode: bool = False) -> AbstractContextManager[None]:
    """`with autograd.pause():` records nothing; for use inside `record()`.

        x = nd.array([2.0])
        x.attach_grad()
        with autograd.record():
            y = x * x
            with autograd.pause():
                shown = y.asscalar()       # not recorded
        y.backward()
        x.grad

    In traced code, no gradient flows through results computed inside, as in an eager call.
    """
    check_switches("pause", train_mode=train_mode)
    return _scope("autograd.pause()", False, train_mode)


def train_mode() -> AbstractContextManager[None]:
    """`with autograd.train_mode():` layers behave as in training; recording is not changed."""
    return _scope("autograd.train_mode()", None, True)


def predict_mode() -> AbstractContextManager[None]:
    """`with autograd.predict_mode():` layers behave as in prediction; recording is not changed."""
    return _scope("autograd.predict_mode()", None, False)


def is_recording() -> bool:
    """Whether calls are being recorded."""
    if _state.observe is not None:
        _state.observe("is_recording")
    return _state.recording


def is_training() -> bool:
    """Whether layers behave as in training."""
    if _state.observe is not None:
        _state.observe("is_training")
    return _state.training


def set_recording(is_recording: bool) -> bool:
    """Switch recording on or off in this thread; returns what it was."""
    if _state.observe is not None:
        _state.observe("autograd.set_recording()")
    before, _state.recording = _state.recording, bool(is_recording)
    return before


def set_training(train_mode: bool) -> bool:
    """Switch training mode on or off in this thread; returns what it was."""
    if _state.observe is not None:
        _state.observe("autograd.set_training()")
    before, _state.training = _state.training, bool(train_mode)
    return before


def mark_variables(
    variables: NDArray | Sequence[NDArray],
    gradients: NDArray | Sequence[NDArray],
    grad_reqs: str | Sequence[str] = "write",
) -> None:
    """Attach existing arrays as the gradients of `variables`, as `attach_grad()` does with new ones.

    grad_reqs : "write", "add" or "null", one for all or one each. Raises ShapeError if shapes or dtypes differ.
    """
    if isinstance(variables, NDArray):
        variables, gradients = [variables], [gradients]  # type: ignore[list-item]
    requests = [grad_reqs] * len(variables) if isinstance(grad_reqs, str) else list(grad_reqs)
    if not len(variables) == len(gradients) == len(requests):
        raise AutogradError(
            f"{len(variables)} variables, {len(gradients)} gradients, {len(requests)} grad_reqs; "
            "give the same number of each"
        )
    for variable, gradient, request in zip(variables, gradients, requests, strict=True):
        variable.mark_variable(gradient, request)


def backward(
    heads: NDArray | Sequence[NDArray],
    head_grads: NDArray | Sequence[NDArray | None] | None = None,
    retain_graph: bool = False,
    train_mode: bool = True,
) -> None:
    """Fill the `grad` of every array with `attach_grad()` (and every Parameter) that the heads were computed from.

    head_grads : per head, an array of its shape, or None for ones
    retain_graph : keep the history, so that it can be differentiated again

    Raises AutogradError if a head was not recorded, was used up, or if a value that is needed was written to.
    """
    check_switches("backward", retain_graph=retain_graph, train_mode=train_mode)
    heads, head_grads = _paired(heads, head_grads)
    reverse.backward(heads, head_grads, retain_graph, train_mode)


def grad(
    heads: NDArray | Sequence[NDArray],
    variables: NDArray | Sequence[NDArray],
    head_grads: NDArray | Sequence[NDArray | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    train_mode: bool = True,
) -> list[NDArray]:
    """Gradients of the heads with respect to `variables` as new arrays; `grad` attributes are not changed.

        x = nd.array([1.0, 2.0])
        x.attach_grad()
        with autograd.record():
            y = x ** 3
            (first,) = autograd.grad(y, [x], create_graph=True)
        first.backward()
        x.grad

    retain_graph : default as create_graph
    create_graph : record the gradients' computation too, so that they can be differentiated
    """
    check_switches("grad", create_graph=create_graph, train_mode=train_mode)
    heads, head_grads = _paired(heads, head_grads)
    variables = [variables] if isinstance(variables, NDArray) else list(variables)
    if not variables:
        raise AutogradError("grad needs at least one variable")
    return reverse.grad(
        heads, variables, head_grads, create_graph if retain_graph is None else retain_graph, create_graph, train_mode
    )


def _paired(heads: Any, head_grads: Any) -> tuple[list[NDArray], list[NDArray | None] | None]:
    if isinstance(heads, NDArray):
        heads = [heads]
        head_grads = (
            None if head_grads is None else [head_grads] if isinstance(head_grads, NDArray) else list(head_grads)
        )
    return list(heads), None if head_grads is None else [head_grads] if isinstance(head_grads, NDArray) else list(
        head_grads
    )


symbol_of_history: Provided[[NDArray], Any] = Provided("symbol_of_history")


def get_symbol(x: NDArray) -> Any:
    """The recorded history of an array as a Symbol, which can be bound, saved and looked at.

    Arrays with a gradient are the variables `var0`, `var1` ...; arrays without history are variables too, a new one
    (`null2`) wherever one is read. The nodes of a compiled call keep their names. Raises AutogradError for an array
    without history, and for steps without an operator: an `autograd.Function`, or an index with arrays.
    """
    return symbol_of_history(x)


_suggest_names(__name__)
