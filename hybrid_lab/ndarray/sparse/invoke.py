"""Run an operator with a sparse input or output: by its rule, or on dense copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, ShapeError
from hybrid_lab.ndarray import invoke as invoking
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.sparse.arrays import BaseSparseNDArray, to_sparse
from hybrid_lab.ndarray.sparse.rules import RULES
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import infer
from hybrid_lab.system.logger import logger

_warned: set[tuple[str, ...]] = set()


def invoke_sparse(
    op: Operator, inputs: Sequence[Any], out: Any, name: str | None, rng: tuple[int, int] | None, cast: bool
) -> Any:
    """`invoke` with sparse arrays among the inputs, or in `out`. Raises ArrayIndexError or ShapeError for a sparse
    input whose parts are invalid.
    """
    if any(getattr(item, "_is_symbol", False) for item in inputs):
        return invoking.invoke(op, _dense(inputs), out, name, rng, cast)
    sparse = [item for item in inputs if isinstance(item, BaseSparseNDArray)]
    for item in sparse:
        item.buffer.validate()
    result = NotImplemented
    if sparse and op.name in RULES:
        inputs = _checked(op, inputs, cast)
        result = RULES[op.name](op, inputs)
    if result is NotImplemented:
        if sparse:
            _warn(op, inputs)
        if out is None or not _any_sparse(out):
            return _on_copies(op, inputs, out, rng, cast)
        result = _on_copies(op, inputs, None, rng, cast)
    else:
        invoking.note_operator(op, inputs, (result,))
    if out is None:
        return result
    targets = out if isinstance(out, (list, tuple)) else (out,)
    results = result if isinstance(result, list) else [result]
    _check_targets(op, targets, results)
    for target, value in zip(targets, results, strict=True):
        write(target, value)
    return out


def _checked(op: Operator, inputs: Sequence[Any], cast: bool) -> list[Any]:
    """The inputs with Python numbers for all that are no arrays. Raises the errors of the operator on dense arrays."""
    checked = [
        item if isinstance(item, NDArray) else invoking._immediate(op, position, item)
        for position, item in enumerate(inputs)
    ]
    arrays = [item if isinstance(item, NDArray) else None for item in checked]
    dtypes = tuple([None if array is None else _dtype(array) for array in arrays])
    precision = invoking.precision
    if precision is not None and cast and precision.wanted(op, dtypes) is not None:
        return checked  # mixed precision converts the dense copies
    invoking._check_count(op, checked)
    infer(op, tuple([() if array is None else array.shape for array in arrays]), dtypes)
    return checked


def _dtype(array: NDArray) -> np.dtype:
    return array.buffer.data.dtype if isinstance(array, BaseSparseNDArray) else np.dtype(array.dtype)


def _check_targets(op: Operator, targets: Sequence[Any], results: Sequence[NDArray]) -> None:
    """Raise the errors of dense arrays for an `out` that does not fit."""
    if len(targets) != len(results):
        raise AttributeSpecError(f"{op.name} has {len(results)} outputs, out= holds {len(targets)} arrays")
    for target, value in zip(targets, results, strict=True):
        if not isinstance(target, NDArray):
            raise DTypeError(f"{op.name}: out= must be an NDArray, not {type(target).__name__}")
        if target.shape != value.shape:
            raise ShapeError(f"{op.name}: the result has shape {value.shape}, out= has {target.shape}")
        if _dtype(target) != _dtype(value):
            raise DTypeError(f"{op.name}: the result is {_dtype(value).name}, out= is {_dtype(target).name}")


def _on_copies(op: Operator, inputs: Sequence[Any], out: Any, rng: tuple[int, int] | None, cast: bool) -> Any:
    """The call on dense copies. New values of auxiliary states are written back."""
    dense = _dense(inputs)
    names = op.signature.inputs
    states = {
        index: item
        for index, item in enumerate(inputs)
        if isinstance(item, BaseSparseNDArray) and index < len(names) and names[index] in op.signature.aux
    }
    for index, state in states.items():
        dense[index] = NDArray.from_host(state.asnumpy(), state.context)
    result = invoking.invoke(op, dense, out, None, rng, cast)
    for index, state in states.items():
        state.assign(dense[index]._data)
    return result


def write(target: NDArray, value: NDArray) -> None:
    """Give `target` the values and the history of `value`, in its own storage type."""
    if tape.state.recording:
        tape.refuse_write(target)
    with tape.Mode(False, None):
        if isinstance(target, BaseSparseNDArray) and value.stype not in ("default", target.stype):
            value = to_sparse(value.dense(), target.stype)  # type: ignore[attr-defined]
        target[:] = value
    target.tape_link = value.tape_link


def _any_sparse(out: Any) -> bool:
    return any(isinstance(item, BaseSparseNDArray) for item in (out if isinstance(out, (list, tuple)) else (out,)))


def _dense(inputs: Sequence[Any]) -> list[Any]:
    return [item.dense() if isinstance(item, BaseSparseNDArray) else item for item in inputs]


def _warn(op: Operator, inputs: Sequence[Any]) -> None:
    """Log that dense copies are read: once for each combination of an operator and the storage types of its inputs."""
    kinds = [item.stype if isinstance(item, NDArray) else "number" for item in inputs]
    if (op.name, *kinds) not in _warned:
        _warned.add((op.name, *kinds))
        arguments = " with these arguments" if op.name in RULES else ""
        logger.warning(
            f"{op.name} has no form for the storage types {', '.join(kinds)}{arguments}; it reads dense copies"
        )
