"""Recurrent layers as ONNX' RNN, LSTM and GRU: one node per layer, gates and directions in ONNX' order."""

from __future__ import annotations

from math import prod
from typing import Any

from hybrid_lab.ops.framework.protocols import OnnxGraph
from hybrid_lab.ops.rnn.kernels import GATES, Sizes

#: Our gates in the order of ONNX: i, o, f, c of an LSTM; z, r, h of a GRU.
_ORDER = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}


def emit_layers(
    g: OnnxGraph, sizes: Sizes, data: str, parameters: str, state: str, state_cell: str, sequence_length: str | None
) -> tuple[str, str, str | None]:
    """The names of the output, the final states and the LSTM's final cell states (None otherwise)."""
    steps, batch, width = g.shape(data)
    lengths = empty = None
    if sequence_length is not None:
        lengths = g.Clip(g.cast(sequence_length, "int32"), g.const(0, "int32"), g.const(steps, "int32"))
        empty = g.Reshape(g.Equal(lengths, g.const(0, "int32")), [1, -1, 1])
    attributes: dict[str, Any] = {
        "hidden_size": sizes.hidden,
        "direction": "bidirectional" if sizes.directions == 2 else "forward",
    }
    if sizes.mode == "gru":
        attributes["linear_before_reset"] = 1
    elif sizes.mode == "rnn_relu":
        attributes["activations"] = ["Relu"] * sizes.directions
    weights = _Weights(g, sizes, parameters, width)
    x, finals, cells = data, [], []
    for layer in range(sizes.layers):
        places = range(layer * sizes.directions, (layer + 1) * sizes.directions)
        begin = [_rows(g, item, places) for item in (state, state_cell) if item is not None]
        operands = [x, *weights.layer(places), lengths, *begin]
        made = getattr(g, sizes.mode.partition("_")[0].upper())(*operands, outputs=1 + len(begin), **attributes)
        y, *ends = made
        if empty is not None:
            # ONNX Runtime answers zeros for a sequence without steps; its state is the one it began with.
            ends = [g.Where(empty, first, last) for first, last in zip(begin, ends, strict=True)]
        finals.append(ends[0])
        cells += ends[1:]
        # (T, D, N, H) -> (T, N, D * H)
        merged = g.const([steps, batch, sizes.directions * sizes.hidden], "int64")
        x = g.Reshape(g.Transpose(y, perm=[0, 2, 1, 3]), merged)
    return x, _stacked(g, finals), _stacked(g, cells) if cells else None


def _stacked(g: OnnxGraph, items: list[str]) -> str:
    return items[0] if len(items) == 1 else g.Concat(*items, axis=0)


def _slice(g: OnnxGraph, value: str, start: int, stop: int) -> str:
    return g.Slice(value, [start], [stop], [0])


def _rows(g: OnnxGraph, value: str, places: range) -> str:
    """The entries of some layers and directions of a state."""
    return value if g.shape(value)[0] == len(places) else _slice(g, value, places[0], places[-1] + 1)


class _Weights:
    """The packed parameters, taken apart."""

    def __init__(self, g: OnnxGraph, sizes: Sizes, parameters: str, width: int):
        self.g, self.sizes, self.parameters = g, sizes, parameters
        self.places: dict[tuple[int, str], tuple[int, tuple[int, ...]]] = {}
        start = 0
        for place, name, shape in sizes.pieces(width):
            self.places[place, name] = start, shape
            start += prod(shape)

    def _piece(self, place: int, name: str) -> str:
        g, gates, hidden = self.g, GATES[self.sizes.mode], self.sizes.hidden
        start, shape = self.places[place, name]
        flat = _slice(g, self.parameters, start, start + prod(shape))
        if gates > 1:
            rows = g.Reshape(flat, [gates, hidden, *shape[1:]])
            flat = g.Gather(rows, g.const(_ORDER[self.sizes.mode], "int64"), axis=0)
        return g.Reshape(flat, [1, gates * hidden, *shape[1:]])

    def layer(self, places: range) -> tuple[Any, Any, Any]:
        """ONNX' W, R and B of one layer."""
        g = self.g
        biases = [g.Concat(self._piece(place, "bx"), self._piece(place, "bh"), axis=1) for place in places]
        wx, wh = ([self._piece(place, name) for place in places] for name in ("wx", "wh"))
        return _stacked(g, wx), _stacked(g, wh), _stacked(g, biases)
