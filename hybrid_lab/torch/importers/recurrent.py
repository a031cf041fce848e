"""ATen's recurrent layers, by the record RNN: gates and weights have the same order there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hybrid_lab.torch.importers.functions import Functions, Tensor
from hybrid_lab.torch.importers.table import Function, aten


def _layers(
    F: Functions, mode: str, x: Tensor, states: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool,
    num_layers: int, dropout: float, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    directions = 2 if bidirectional else 1
    count, plain = len(params) // (num_layers * directions), 4 if has_biases else 2
    projected = count > plain  # LSTM(proj_size=...): a fifth one, which follows the biases
    hidden = params[plain].shape[1] if projected else params[1].shape[1]
    x = F.transposed(x, (1, 0, 2)) if batch_first else x
    groups = [params[place : place + count] for place in range(0, len(params), count)]
    weights = [F.Reshape(item, shape=(-1,)) for group in groups for item in (*group[:2], *group[plain:])]
    biases = [item for group in groups for item in group[2:plain]]
    if not has_biases:
        biases = [F.constant(np.zeros(2 * group[1].shape[0]), x.dtype) for group in groups]
    projection = {"projection_size": params[plain].shape[0]} if projected else {}
    made = F.RNN(
        x, F._rnn_param_concat(*weights, *biases, dim=0), *states, state_size=hidden, num_layers=num_layers, mode=mode,
        bidirectional=bidirectional, p=float(dropout) if num_layers > 1 else 0.0, state_outputs=True,
        **projection,
    )  # fmt: skip
    return (F.transposed(made[0], (1, 0, 2)) if batch_first else made[0], *made[1:])


def _packed(F: Functions) -> None:
    if F.overload == "data":
        raise F.unsupported("packed sequences are not supported; give the layer a padded tensor")


@aten("lstm")
def _lstm(
    F: Functions, x: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    _packed(F)
    return _layers(F, "lstm", x, hx, params, has_biases, num_layers, dropout, bidirectional, batch_first)


def _single(mode: str) -> Function:
    def function(
        F: Functions, x: Tensor, hx: Tensor, params: Sequence[Tensor], has_biases: bool, num_layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool = False,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        _packed(F)
        return _layers(F, mode, x, [hx], params, has_biases, num_layers, dropout, bidirectional, batch_first)

    return function


for _name, _mode in (("gru", "gru"), ("rnn_tanh", "rnn_tanh"), ("rnn_relu", "rnn_relu")):
    aten(_name)(_single(_mode))
