"""Sequences and states, on arrays and on Symbols: one tensor or a list of steps, lengths, states of zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from hybrid_lab import ndarray as nd
from hybrid_lab import symbol as sym
from hybrid_lab.diagnostics import HybridLabError, ShapeError
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ops.framework.protocols import Tensor
from hybrid_lab.symbol import Symbol

Tensors: TypeAlias = tuple[Tensor, ...]
Step: TypeAlias = tuple[Tensor, list[Tensor]]
"""The result of a cell for one step: its output and the new states."""


def functions_of(*items: object) -> Any:
    """`nd` or `sym`, whichever the first tensor belongs to."""
    for item in items:
        if isinstance(item, (list, tuple)):
            functions = functions_of(*item)
            if functions is not None:
                return functions
        elif isinstance(item, (NDArray, Symbol)):
            return sym if isinstance(item, Symbol) else nd
    return None


def is_tensor(item: object) -> bool:
    """Whether it is one array or Symbol, not a list of steps."""
    return isinstance(item, NDArray) or (isinstance(item, Symbol) and item.num_outputs == 1)


def axes_of(layout: str) -> tuple[int, int]:
    """The axes of time and batch in a layout such as 'NTC' or 'TNC'. Raises HybridLabError."""
    if "T" not in layout or "N" not in layout:
        raise HybridLabError(
            f"layout={layout!r}; the layout of a sequence needs an axis T for the steps and N for the batch"
        )
    return layout.index("T"), layout.index("N")


def steps_of(length: int, inputs: Any, layout: str) -> list[Any]:
    """A sequence as the list of its steps. Raises ShapeError if it has another number of steps."""
    axis, _ = axes_of(layout)
    if is_tensor(inputs):
        if isinstance(inputs, NDArray) and inputs.ndim <= axis:
            raise ShapeError(f"unroll: layout={layout!r}, but the inputs have the shape {inputs.shape}")
        if isinstance(inputs, NDArray) and inputs.shape[axis] != length:
            raise ShapeError(f"unroll: length={length}, but the inputs have {inputs.shape[axis]} steps")
        if length == 1:
            return [functions_of(inputs).squeeze(inputs, axis=axis)]
        parts = functions_of(inputs).split(inputs, num_outputs=length, axis=axis, squeeze_axis=True)
        return [parts[index] for index in range(length)]
    steps = [inputs[index] for index in range(len(inputs))]
    if len(steps) != length:
        raise ShapeError(f"unroll: length={length}, but there are {len(steps)} inputs")
    return steps


def merged(steps: Any, layout: str) -> Any:
    """A list of steps as one tensor; a tensor is returned unchanged."""
    if is_tensor(steps):
        return steps
    return functions_of(steps).stack(*steps, axis=axes_of(layout)[0])


def masked(outputs: object, valid_length: object, layout: str) -> Any:
    """One tensor with zeros behind the end of every sequence."""
    outputs = merged(outputs, layout)
    return functions_of(outputs).SequenceMask(outputs, valid_length, use_sequence_length=True, axis=axes_of(layout)[0])


def last_states(states: Sequence[Sequence[object]], valid_length: object) -> list[Any]:
    """Each state at the last step of every sequence. states : one list of states per step"""
    F = functions_of(states)
    return [
        F.SequenceLast(F.stack(*each, axis=0), valid_length, use_sequence_length=True, axis=0)
        for each in zip(*states, strict=True)
    ]


def backwards(steps: list[object], valid_length: object) -> list[Any]:
    """The steps in reverse order; with lengths only those before the end of each sequence change places."""
    if valid_length is None:
        return steps[::-1]
    F = functions_of(steps)
    turned = F.SequenceReverse(F.stack(*steps, axis=0), valid_length, use_sequence_length=True)
    return steps_of(len(steps), turned, "TNC")


def zeros_for(x: object, shape: Sequence[int], batch: int, axis: int, name: str | None = None) -> Any:
    """Zeros of `shape`, whose size along `axis` is the size of x along the axis `batch`; with x's dtype.

    name : of the node; the nodes before it are named after it

    On a Symbol the size is not known: the zeros are made from x by operators that read its shape only.
    """
    if isinstance(x, NDArray):
        sizes = tuple(x.shape[batch] if index == axis else size for index, size in enumerate(shape))
        return x.alike(nd.zeros(sizes, ctx=x.context, dtype=x.dtype))
    if axis > 1:
        raise HybridLabError("the batch must be the first or second axis of a recurrent state")
    F = functions_of(x)
    sum_name, swap_name, like_name, one_name = (
        None if name is None else f"{name}_{part}" for part in ("batch", "swapped", "zeros", "one")
    )
    # A sum has one element for each of the batch even if a sequence has no steps. Only its shape is read.
    batch_alone = F.sum(x, axis=batch, exclude=True, keepdims=True, name=sum_name)
    if batch != axis:
        batch_alone = F.SwapAxis(batch_alone, dim1=batch, dim2=axis, name=swap_name)
    # A 0 keeps the size that stands at its place.
    sizes = tuple(0 if index == axis else 1 for index in range(len(shape)))
    one_each = F.Reshape(F.zeros_like(batch_alone, name=like_name), shape=sizes, name=one_name)
    axes = tuple(index for index in range(len(shape)) if index != axis)
    return F.broadcast_axis(one_each, axis=axes, size=tuple(shape[index] for index in axes), name=name)
