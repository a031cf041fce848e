"""Recurrent cells unrolled over two steps on Symbols, for MXNet and for this package: the cases of names.json."""

from __future__ import annotations

import json
from typing import Any


def gluon_cells(mx: Any) -> dict[str, Any]:
    """Name of a case -> (a function that makes the cell, arguments of unroll)."""
    rnn, contrib = mx.gluon.rnn, mx.gluon.contrib.rnn

    def stack(kind: Any) -> Any:
        cell = kind(prefix="s_")
        with cell.name_scope():
            cell.add(rnn.RNNCell(4))
            cell.add(rnn.LSTMCell(4))
        return cell

    def both() -> Any:
        return rnn.BidirectionalCell(rnn.RNNCell(4, prefix="l_"), rnn.RNNCell(4, prefix="r_"), output_prefix="b_")

    return {
        "rnn": (lambda: rnn.RNNCell(4, prefix="c_"), {}),
        "rnn_softrelu": (lambda: rnn.RNNCell(4, activation="softrelu", prefix="c_"), {}),
        "lstm": (lambda: rnn.LSTMCell(4, prefix="c_"), {}),
        "lstm_merged": (lambda: rnn.LSTMCell(4, prefix="c_"), {"merge_outputs": True}),
        "gru": (lambda: rnn.GRUCell(4, prefix="c_"), {}),
        "dropout": (lambda: rnn.DropoutCell(0.5, prefix="c_"), {"merge_outputs": False}),
        "dropout_merged": (lambda: rnn.DropoutCell(0.5, prefix="c_"), {"merge_outputs": True}),
        "zoneout": (lambda: rnn.ZoneoutCell(rnn.RNNCell(4, prefix="c_"), 0.5, 0.5), {}),
        "bidirectional": (both, {"merge_outputs": False}),
        "bidirectional_merged": (both, {"merge_outputs": True}),
        "sequential": (lambda: stack(rnn.SequentialRNNCell), {}),
        "hybrid_sequential": (lambda: stack(rnn.HybridSequentialRNNCell), {}),
        "variational": (lambda: contrib.VariationalDropoutCell(rnn.RNNCell(4, prefix="c_"), 0.3, 0.3, 0.3), {}),
        "lstmp": (lambda: contrib.LSTMPCell(4, 3, prefix="c_"), {}),
        **{
            f"conv_{kind.lower()}": (
                lambda kind=kind: getattr(contrib, f"Conv2D{kind}Cell")((3, 8, 8), 4, 3, 3, i2h_pad=1, prefix="c_"),
                {"merge_outputs": False},
            )
            for kind in ("RNN", "LSTM", "GRU")
        },
    }


def symbol_cells(mx: Any) -> dict[str, Any]:
    """The cells of `mx.rnn`, as `gluon_cells`."""
    rnn = mx.rnn

    def stack() -> Any:
        cell = rnn.SequentialRNNCell()
        cell.add(rnn.RNNCell(4, prefix="a_"))
        cell.add(rnn.DropoutCell(0.3))
        cell.add(rnn.LSTMCell(4, prefix="b_"))
        return cell

    def both() -> Any:
        return rnn.BidirectionalCell(rnn.RNNCell(4, prefix="l_"), rnn.RNNCell(4, prefix="r_"))

    def fused(mode: str, **options: Any) -> Any:
        return rnn.FusedRNNCell(4, 2, mode, dropout=0.2, **options)

    return {
        "rnn": (lambda: rnn.RNNCell(4), {"merge_outputs": False}),
        "rnn_merged": (lambda: rnn.RNNCell(4), {"merge_outputs": True}),
        "lstm": (lambda: rnn.LSTMCell(4), {}),
        "gru": (lambda: rnn.GRUCell(4), {}),
        "fused": (lambda: fused("gru", get_next_state=True), {"layout": "TNC"}),
        "unfused": (lambda: fused("rnn_relu", bidirectional=True).unfuse(), {}),
        "sequential": (stack, {}),
        "residual": (lambda: rnn.ResidualCell(rnn.GRUCell(4)), {"merge_outputs": False}),
        "residual_merged": (lambda: rnn.ResidualCell(rnn.GRUCell(4)), {"merge_outputs": True}),
        "bidirectional": (both, {"merge_outputs": False}),
        "bidirectional_merged": (both, {"merge_outputs": True}),
        **{
            f"conv_{kind.lower()}": (
                lambda kind=kind: getattr(rnn, f"Conv{kind}Cell")((1, 3, 8, 8), 4),
                {"merge_outputs": False},
            )
            for kind in ("RNN", "LSTM", "GRU")
        },
    }


def names_of(mx: Any, make: Any, options: dict[str, Any]) -> list[str]:
    """The names of all nodes of two steps, with names numbered from 0."""
    with mx.name.NameManager():
        outputs, states = make().unroll(2, mx.sym.Variable("data"), **options)
        everything = mx.sym.Group([*_flat(outputs), *_flat(states)])
    return [node["name"] for node in json.loads(everything.tojson())["nodes"]]


def _flat(symbols: Any) -> list[Any]:
    if isinstance(symbols, (list, tuple)):
        return [each for group in symbols for each in _flat(group)]
    return [symbols]
