"""Checkpoints of networks with recurrent cells; in the files each gate has its own weights and biases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hybrid_lab.mxnet.model import Params, load_checkpoint, save_checkpoint
from hybrid_lab.ndarray import NDArray
from hybrid_lab.symbol import Symbol

from .base import BaseRNNCell

Cells = BaseRNNCell | Sequence[BaseRNNCell]


def _list(cells: Cells) -> Sequence[BaseRNNCell]:
    return [cells] if isinstance(cells, BaseRNNCell) else cells


def save_rnn_checkpoint(
    cells: Cells,
    prefix: str,
    epoch: int,
    symbol: Symbol | None,
    arg_params: Mapping[str, NDArray],
    aux_params: Mapping[str, NDArray],
) -> None:
    """As `mx.model.save_checkpoint`, after `unpack_weights` of the cells. cells : of the Symbol, one or a list"""
    arguments = dict(arg_params)
    for cell in _list(cells):
        arguments = cell.unpack_weights(arguments)
    save_checkpoint(prefix, epoch, symbol, arguments, aux_params)


def load_rnn_checkpoint(cells: Cells, prefix: str, epoch: int) -> tuple[Symbol, Params, Params]:
    """As `mx.model.load_checkpoint`, with `pack_weights` of the cells afterwards. A file that a FusedRNNCell wrote can
    be loaded for its unfused stack, and the other way around.
    """
    symbol, arguments, states = load_checkpoint(prefix, epoch)
    for cell in _list(cells):
        arguments = cell.pack_weights(arguments)
    return symbol, arguments, states


def do_rnn_checkpoint(cells: Cells, prefix: str, period: int = 1) -> Callable[..., None]:
    """A callback of `Module.fit` that saves a checkpoint after every `period` epochs."""
    period = max(1, int(period))

    def save(iter_no: int, symbol: Any = None, arguments: Any = None, states: Any = None) -> None:
        if (iter_no + 1) % period == 0:
            save_rnn_checkpoint(cells, prefix, iter_no + 1, symbol, arguments, states)

    return save
