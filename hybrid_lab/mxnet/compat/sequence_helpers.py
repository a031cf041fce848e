"""MXNet's private functions for the sequences and states of recurrent cells, which libraries import from
`mxnet.gluon.rnn.rnn_cell` (GluonNLP, Sockeye, tree-structured cells).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybrid_lab import ndarray as nd
from hybrid_lab import symbol as sym
from hybrid_lab.diagnostics import ShapeError
from hybrid_lab.gluon.parameter import tensor_types
from hybrid_lab.gluon.rnn.cell import RecurrentCell
from hybrid_lab.gluon.rnn.sequence import axes_of, functions_of
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ops.framework.protocols import Functions, Tensor
from hybrid_lab.symbol import Symbol


def _cells_state_info(cells: Sequence[Any], batch_size: int) -> list[dict[str, Any]]:
    """The descriptions of the states of all cells, in their order."""
    return [info for cell in cells for info in cell.state_info(batch_size)]


def _cells_begin_state(cells: Sequence[Any], **options: Any) -> list[Any]:
    """The initial states of all cells, in their order. options : arguments of `begin_state`"""
    return [state for cell in cells for state in cell.begin_state(**options)]


def _get_begin_state(
    cell: RecurrentCell, F: Functions, begin_state: list[Tensor] | None, inputs: Sequence[Tensor], batch_size: int
) -> list[Tensor]:
    """`begin_state`, or the zeros that `cell` begins with, on the device of the inputs.

    F : `mx.nd` or `mx.sym`; inputs : a tensor, or a list of steps
    """
    if begin_state is not None:
        return begin_state
    if F is nd:
        first: Any = inputs if isinstance(inputs, tensor_types) else inputs[0]
        with first.context:
            return list(cell.begin_state(func=F.zeros, batch_size=batch_size))
    return list(cell.begin_state(func=F.zeros, batch_size=batch_size))


def _format_sequence(
    length: int | None, inputs: Sequence[Tensor], layout: str, merge: bool | None, in_layout: str | None = None
) -> tuple[Any, int, Any, int]:
    """A sequence in the form that `merge` asks for.

    inputs : a tensor in `in_layout` (default: `layout`), or a list of steps
    merge : True gives a tensor, False a list of steps, None leaves it unchanged
    returns : the sequence, the axis of time, `mx.nd` or `mx.sym`, and the size of the batch (0 for Symbols)
    Raises ShapeError if the sequence has another length.
    """
    axis, batch_axis = axes_of(layout)
    given_axis = axis if in_layout is None else axes_of(in_layout)[0]
    F = functions_of(inputs)
    batch = 0
    if isinstance(inputs, NDArray):
        batch = inputs.shape[batch_axis]
        steps = inputs.shape[given_axis]
        if merge is False and length is not None and length != steps:
            raise ShapeError(f"unroll: length={length}, but the inputs have {steps} steps")
        if merge is False:
            inputs = _split(F, inputs, steps, given_axis)
    elif isinstance(inputs, Symbol):
        if merge is False:
            if len(inputs.list_outputs()) != 1 or length is None:
                raise ShapeError("unroll: one Symbol with one output and a length, or a list of steps is needed")
            inputs = _split(F, inputs, length, given_axis)
    else:
        if length is not None and len(inputs) != length:
            raise ShapeError(f"unroll: length={length}, but there are {len(inputs)} inputs")
        batch = inputs[0].shape[0] if F is not sym else 0
        if merge is True:
            inputs, given_axis = F.stack(*inputs, axis=axis), axis
    if isinstance(inputs, tensor_types) and axis != given_axis:
        inputs = F.swapaxes(inputs, dim1=axis, dim2=given_axis)
    return inputs, axis, F, batch


def _mask_sequence_variable_length(
    F: Functions,
    data: Tensor | Sequence[Tensor],
    length: int,
    valid_length: Tensor,
    time_axis: int,
    merge: bool | None,
) -> Tensor | list[Tensor]:
    """The sequence with zeros behind the end of each row, as a tensor (merge) or as a list of steps."""
    whole = F.stack(*data, axis=time_axis) if isinstance(data, (list, tuple)) else data
    masked: Tensor = F.SequenceMask(whole, sequence_length=valid_length, use_sequence_length=True, axis=time_axis)
    return masked if merge else _split(F, masked, length, time_axis)


def _reverse_sequences(sequences: Sequence[Any], unroll_step: int, valid_length: Tensor | None = None) -> list[Tensor]:
    """The steps in reverse order; with lengths only the steps before the end of each row change places."""
    if valid_length is None:
        return list(reversed(sequences))
    F = functions_of(*sequences)
    turned = F.SequenceReverse(F.stack(*sequences, axis=0), sequence_length=valid_length, use_sequence_length=True)
    return _split(F, turned, unroll_step, 0)


def _split(F: Functions, tensor: Tensor, count: int, axis: int) -> list[Any]:
    """The steps of a tensor, without the axis of time."""
    parts: Any = F.split(tensor, num_outputs=count, axis=axis, squeeze_axis=True)
    return list(parts) if count > 1 else [parts[0] if isinstance(parts, list) else parts]
