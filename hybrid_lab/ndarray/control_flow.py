"""`nd.contrib.foreach`, `while_loop` and `cond`: plain Python loops over recorded calls, with the meaning of a graph's.

A call takes one draw number. Draws inside are numbered in a stream of their own, as in the compiled operators, so that
random numbers are the same in eager and hybrid calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab.diagnostics.errors import DTypeError, HybridLabError, ShapeError
from hybrid_lab.ndarray import invoke as invoking
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.creation import zeros
from hybrid_lab.ndarray.invoke import N
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.ops.framework.precision import SINGLE
from hybrid_lab.system.provided import Provided

# The same three functions on Symbols.
compose_foreach: Provided[..., tuple[Any, Any]] = Provided("compose_foreach")
compose_while_loop: Provided[..., tuple[Any, Any]] = Provided("compose_while_loop")
compose_cond: Provided[..., Any] = Provided("compose_cond")

Draw = tuple[int, int] | None


def foreach(
    body: Callable[..., Any], data: Any, init_states: Any, name: str = "foreach", *, draw: Draw = None
) -> tuple[Any, Any]:
    """Run `body(entry, states)` for every entry of data along its first axis.

        def step(row, total):
            total = total + row
            return total, total

        sums, last = nd.contrib.foreach(step, nd.array([[1, 2], [3, 4], [5, 6]]), nd.zeros((2,)))
        sums

    data : (n, ...), or a list of such; an entry of (n,) has shape (1,); init_states : a tensor or a (nested) list
    body : returns (outputs, new states); the states keep their shapes and dtypes
    draw : (seed, number) if a graph has numbered the draw of this call
    returns : the outputs of all steps, stacked to (n, ...), and the last states, arranged as the body's and init_states

    Raises ShapeError, DTypeError for states that change.
    """
    items, form = flatten(data, "foreach: data")
    states, state_form = flatten(init_states, "foreach: init_states")
    if not items:
        raise ShapeError("foreach: there is no data to iterate over")
    if _is_traced(items, states):
        return compose_foreach(body, data, init_states, name)
    for item in items:
        if not item.shape or item.shape[0] != items[0].shape[0]:
            raise ShapeError(
                "foreach: all data need the same length; the shapes are "
                f"{' and '.join(str(each.shape) for each in items)}"
            )
    steps = items[0].shape[0]
    with random_state.substream(draw):
        if not steps:
            return _of_no_step(body, items, form, states, state_form)
        entries = list(zip(*(_entries(item) for item in items), strict=True))
        columns: list[Any] = []
        output_form = None
        for entry in entries:
            outputs, new = body(regroup(iter(entry), form), regroup(iter(states), state_form))
            leaves, output_form = flatten(outputs, "foreach: the outputs of the body")
            states = _checked("foreach", "state", states, flatten(new, "foreach: the new states")[0])
            columns.append(leaves)
    return _stacked(columns, output_form), regroup(iter(states), state_form)


def while_loop(
    cond: Callable[..., Any],
    func: Callable[..., Any],
    loop_vars: Any,
    max_iterations: int | None = None,
    name: str = "while_loop",
    *,
    draw: Draw = None,
) -> tuple[Any, Any]:
    """Run `func(*loop_vars)` while `cond(*loop_vars)` is true, max_iterations times at most.

        outputs, (i, total) = nd.contrib.while_loop(
            cond=lambda i, total: i <= 4,
            func=lambda i, total: (i, (i + 1, total + i)),
            loop_vars=(nd.array([1]), nd.array([0])),
            max_iterations=10,
        )
        total

    loop_vars : a tensor or a (nested) list; cond returns one number; func returns (outputs, new loop_vars), which keep
    their shapes and dtypes
    returns : the outputs of all steps, stacked to (max_iterations, ...) with zeros behind the last one, and the last
    loop_vars

    Raises ShapeError, DTypeError for loop variables that change; ValueError without max_iterations.
    """
    if max_iterations is None:
        raise ValueError("while_loop: max_iterations must be given; it is the length of the stacked outputs")
    limit = int(max_iterations)
    variables, form = flatten(loop_vars, "while_loop: loop_vars")
    if not variables:
        raise ValueError("while_loop: loop_vars holds no tensor")
    if _is_traced(variables):
        return compose_while_loop(cond, func, loop_vars, limit, name)
    columns: list[Any] = []
    output_form = None
    with random_state.substream(draw):
        while len(columns) < limit and _is_true(cond(*arguments(variables, form)), "while_loop"):
            outputs, new = func(*arguments(variables, form))
            leaves, output_form = flatten([] if outputs is None else outputs, "while_loop: the outputs of func")
            variables = _checked(
                "while_loop", "loop variable", variables, flatten(new, "while_loop: the new loop_vars")[0]
            )
            columns.append(leaves)
        if not columns:
            with random_state.preserved(), tape.Mode(None, False), np.errstate(all="ignore"):
                outputs, _ = func(*arguments(variables, form))
            leaves, output_form = flatten([] if outputs is None else outputs, "while_loop: the outputs of func")
            empty = [_zeros_of(leaf, (limit, *leaf.shape)) for leaf in leaves]
            return regroup(iter(empty), output_form), regroup(iter(variables), form)
    return _stacked(columns, output_form, limit), regroup(iter(variables), form)


def cond(
    pred: object,
    then_func: Callable[[], object],
    else_func: Callable[[], object],
    name: str = "cond",
    *,
    draw: Draw = None,
) -> Any:
    """`then_func()` if pred is true, else `else_func()`; in a graph both must give the same shapes and dtypes.

        x = nd.array([3.0])
        nd.contrib.cond(x.sum() > 2, lambda: x * 10, lambda: x)

    pred : a tensor of one number
    """
    if getattr(pred, "_is_symbol", False):
        return compose_cond(pred, then_func, else_func, name)
    with random_state.substream(draw):
        result = then_func() if _is_true(pred, "cond") else else_func()
    leaves, form = flatten(result, "cond: the result of a branch")
    leaves = [_in_dtype(leaf, SINGLE) for leaf in leaves]
    return regroup(iter(leaves), form)


def arguments(variables: Sequence[object], form: object) -> list[Any]:
    """Loop variables as the functions of while_loop take them."""
    grouped = regroup(iter(variables), form)
    return [grouped] if form is None else grouped


def _is_traced(*groups: Sequence[object]) -> bool:
    return any(getattr(item, "_is_symbol", False) for group in groups for item in group)


def _is_true(number: object, what: str) -> bool:
    if isinstance(number, NDArray):
        if number.size != 1:
            raise ShapeError(f"{what}: the condition has shape {number.shape}; one number is needed")
        return bool(number._data.item())
    if isinstance(number, (bool, int, float)):
        return bool(number)
    raise HybridLabError(f"{what}: the condition is {type(number).__name__}; a tensor of one number is needed")


def _entries(item: NDArray) -> list[Any]:
    """The entries of an array along its first axis."""
    if item.shape[0] == 1 or item.ndim == 1:
        return [item[index] for index in range(len(item))]
    entries = N.SliceChannel(item, num_outputs=item.shape[0], axis=0, squeeze_axis=True)
    return list(entries)


def _checked(what: str, kind: str, before: Sequence[Any], after: list[Any]) -> list[Any]:
    if len(before) != len(after):
        raise ShapeError(f"{what}: there are {len(before)} {kind}s, and a step returned {len(after)}")
    after = [_in_dtype(new, np.dtype(old.dtype)) for old, new in zip(before, after, strict=True)]
    for index, (one, other) in enumerate(zip(before, after, strict=True)):
        for word, a, b, error in (
            ("shape", one.shape, other.shape, ShapeError),
            ("dtype", one.dtype, other.dtype, DTypeError),
        ):
            if a != b:
                raise error(f"{what}: {kind} {index} has {word} {a} before a step and {b} after it; they must be equal")
    return after


def _in_dtype(array: Any, dtype: DTypeLike | None) -> Any:
    """In mixed precision the array in float16 or float32, as in a graph: a state keeps the dtype it began with, and
    both branches of a cond return float32.
    """
    precision = invoking.precision
    ours = () if precision is None else (precision.target, SINGLE)
    return array.astype(dtype) if dtype in ours and array.dtype != dtype and np.dtype(array.dtype) in ours else array


def _stacked(columns: list[list[object]], form: object, length: int | None = None) -> Any:
    """The outputs of all steps, one array each; zeros up to `length`."""
    stacked = []
    for each in zip(*columns, strict=True):
        rest = 0 if length is None else length - len(each)
        padding = [zeros(each[0].shape, ctx=each[0].context, dtype=each[0].dtype)] * rest
        stacked.append(N.stack(*each, *padding, axis=0))
    return regroup(iter(stacked), form)


def _of_no_step(body: Any, items: list[Any], form: Any, states: list[Any], state_form: Any) -> tuple[Any, Any]:
    """The results of a loop over nothing: the body runs once on zeros, for the shapes of its outputs."""
    entries = [_zeros_of(item, item.shape[1:] or (1,)) for item in items]
    with random_state.preserved(), tape.Mode(None, False), np.errstate(all="ignore"):
        outputs, _ = body(regroup(iter(entries), form), regroup(iter(states), state_form))
    leaves, output_form = flatten(outputs, "foreach: the outputs of the body")
    empty = [_zeros_of(leaf, (0, *leaf.shape)) for leaf in leaves]
    return regroup(iter(empty), output_form), regroup(iter(states), state_form)


class _SkippedStep(tape.Entry):
    """A step of a loop that did not run: its outputs are zeros, and the gradients of its inputs are zeros."""

    __slots__ = ()

    name = "a loop without steps"

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        return [None] * len(needed)

    backward_recorded = backward


def _zeros_of(array: Any, shape: tuple[int, ...]) -> Any:
    """Zeros in the place of a loop's results from `array`, and like it on the tape if the call is recorded."""
    result = zeros(shape, ctx=array.context, dtype=array.dtype)
    if tape.state.recording:
        tape.note(_SkippedStep(), (array,), (result,))
    return result


#: None for one array, a list of formats for a list or tuple.
Format = Any


def flatten(item: Any, what: str) -> tuple[list[Any], Format]:
    """The arrays (or Symbols) in nested lists, and their arrangement. Raises TypeError for anything else."""
    if hasattr(item, "_is_symbol") and len(item.outputs) > 1:  # of several outputs, which arrays are a list of
        item = list(item)
    elif hasattr(item, "_is_symbol") or hasattr(item, "_data"):
        return [item], None
    if isinstance(item, (list, tuple)):
        arrays: list[Any] = []
        formats = []
        for part in item:
            leaves, form = flatten(part, what)
            arrays += leaves
            formats.append(form)
        return arrays, formats
    raise TypeError(f"{what} must be a tensor or a list of tensors, not {type(item).__name__}")


def regroup(leaves: Iterator[object], form: Format) -> Any:
    """The arrangement with other leaves."""
    return next(leaves) if form is None else [regroup(leaves, part) for part in form]
