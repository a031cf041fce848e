"""RNN: the fused recurrent layers (Elman with relu or tanh, LSTM, GRU), and their gradient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, ShapeError, Unmappable
from hybrid_lab.ops.arrays.slicing import Concat
from hybrid_lab.ops.framework import Operator, Signature, filled, get, sample
from hybrid_lab.ops.framework.attributes import Shape
from hybrid_lab.ops.framework.lowering import draw_lowering, run_lowering
from hybrid_lab.ops.framework.protocols import Functions, Gradients, OnnxGraph, Tensor, Wanted
from hybrid_lab.ops.framework.types import PartialShape, PartialShapes, PartialSizes, Shapes
from hybrid_lab.ops.rnn import lower as rnn_lower
from hybrid_lab.ops.rnn.kernels import KEPT, Sizes
from hybrid_lab.ops.rnn.onnx import emit_layers

Mode = Literal["rnn_relu", "rnn_tanh", "lstm", "gru"]


class Recurrent(Operator):
    """The common part of the operator and its gradient: attributes, the order of the inputs, the saved values."""

    state_size: int
    num_layers: int
    mode: Mode
    bidirectional: bool = False
    p: float = 0.0
    state_outputs: bool = False
    projection_size: int | None = None
    lstm_state_clip_min: float | None = None
    lstm_state_clip_max: float | None = None
    lstm_state_clip_nan: bool = False
    use_sequence_length: bool = False
    dtype_kinds = "f"
    half_in_float32 = True

    def check(self) -> None:
        if self.projection_size is not None and self.mode != "lstm":
            raise AttributeSpecError(f"RNN: projection_size needs mode='lstm', not {self.mode!r}")
        if self.projection_size is not None and self.projection_size < 1:
            raise AttributeSpecError(f"RNN: projection_size={self.projection_size}; it must be at least 1, or None")
        if self.state_size < 1 or self.num_layers < 1:
            raise AttributeSpecError(
                f"RNN: state_size={self.state_size}, num_layers={self.num_layers}; both must be at least 1"
            )
        if not 0 <= self.p < 1:
            raise AttributeSpecError(f"RNN: p={self.p}; a probability below 1 is needed")
        if (self.lstm_state_clip_min is None) != (self.lstm_state_clip_max is None):
            raise AttributeSpecError("RNN: lstm_state_clip_min and lstm_state_clip_max must be given together")
        if self.lstm_state_clip_min is not None and self.mode != "lstm":
            raise AttributeSpecError(f"RNN: lstm_state_clip_min needs mode='lstm', not {self.mode!r}")

    @cached_property
    def sizes(self) -> Sizes:
        """The attributes as the kernels take them."""
        clip = None
        if self.lstm_state_clip_min is not None and self.lstm_state_clip_max is not None:
            clip = (self.lstm_state_clip_min, self.lstm_state_clip_max, self.lstm_state_clip_nan)
        directions = 2 if self.bidirectional else 1
        return Sizes(self.mode, self.state_size, self.num_layers, directions, clip, self.projection_size)

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """The inputs of the forward, in order."""
        names: tuple[str, ...] = ("data", "parameters", "state")
        if self.mode == "lstm":
            names += ("state_cell",)
        return (*names, "sequence_length") if self.use_sequence_length else names

    @cached_property
    def saved(self) -> tuple[str, ...]:
        """The values that a training-mode forward keeps for the backward."""
        kept: tuple[str, ...] = {"lstm": ("gates", "cells"), "gru": ("gates",)}.get(self.mode, ())
        if self.num_layers > 1:
            kept += ("lower", "mask") if self.p else ("lower",)
        return kept

    def saved_shape(self, name: str, steps: int, batch: int) -> tuple[int, ...]:
        """The shape of a saved value: an entry per layer and direction, or per layer below the last."""
        layers, directions, hidden = self.num_layers, self.sizes.directions, self.state_size
        if name in ("lower", "mask"):
            return (layers - 1, steps, batch, directions * self.sizes.units)
        return (layers * directions, steps, batch, hidden * (KEPT[self.mode] if name == "gates" else 1))

    def read(self, inputs: Iterable[Any]) -> dict[str, Any]:
        """The inputs of the forward by name, None if there is none."""
        given = dict(zip(self.roles, inputs, strict=False))
        return {"state_cell": None, "sequence_length": None, **given}

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        steps, batch, width = inputs[0]
        weights = (prod(shape) for _, name, shape in self.sizes.pieces(width) if name.startswith("w"))
        return steps * batch * sum(weights)

    def scale(self) -> float:
        """What dropout multiplies kept elements with."""
        return 1.0 / (1.0 - self.p)


class RNN(Recurrent, name="RNN"):
    """Recurrent layers over a sequence: num_layers of them on top of one another, with `bidirectional` a pass in each
    direction. mode : 'lstm', 'gru', 'rnn_tanh' or 'rnn_relu'.

    data : (T, N, C), floating; state, and state_cell of an LSTM : (num_layers * directions, N, state_size)
    parameters : packed, for every layer and direction the weights of input, state and projection, then all biases
    sequence_length : (N,), with use_sequence_length; outputs behind a sequence's end are 0, its states stay
    returns : (T, N, directions * state_size), and with state_outputs the final states
    p : dropout between the layers in training; lstm_state_clip_min, lstm_state_clip_max : bounds of the cell state;
    lstm_state_clip_nan : NaN becomes a bound as well
    projection_size : P, of an LSTM; each step then multiplies its output with a matrix (P, state_size), and output and
    state have P in place of state_size (arXiv 1402.1128)

    The gates' rows are i, f, g, o (LSTM) and r, z, n (GRU, n = tanh(W x + b + r (U h + b'))). Sources: Hochreiter and
    Schmidhuber 1997; Cho et al. 2014; the packed order is cuDNN's.
    """

    precision = "low"
    _predict: bool = False
    mode_dependent = True
    numpy = draw_lowering
    samples = [
        sample((3, 2, 3), (24,), (1, 2, 3), attrs={"mode": "rnn_tanh", "state_size": 3, "num_layers": 1}),
        sample(
            (3, 2, 3), (48,), (2, 2, 3),
            attrs={"mode": "rnn_relu", "state_size": 3, "num_layers": 2, "state_outputs": True}, low=-0.6, high=0.9,
        ),
        sample(
            (3, 2, 3), (112,), (2, 2, 2), (2, 2, 2),
            attrs={"mode": "lstm", "state_size": 2, "num_layers": 1, "bidirectional": True, "state_outputs": True},
        ),
        sample(
            (3, 2, 3), (104,), (2, 2, 2), (2, 2, 2),
            attrs={"mode": "lstm", "state_size": 2, "num_layers": 2, "state_outputs": True},
        ),
        sample(
            (3, 2, 3), (180,), (4, 2, 2),
            attrs={"mode": "gru", "state_size": 2, "num_layers": 2, "bidirectional": True, "state_outputs": True},
        ),
        sample((3, 2, 3), (42,), (1, 2, 2), attrs={"mode": "gru", "state_size": 2, "num_layers": 1}),
        sample(
            (3, 2, 3), (104,), (2, 2, 2), (2, 2, 2), attrs={"mode": "lstm", "state_size": 2, "num_layers": 2, "p": 0.4},
        ),
        sample(
            (3, 2, 3),
            (56,),
            (1, 2, 2),
            (1, 2, 2),
            attrs={"mode": "lstm", "state_size": 2, "num_layers": 1, "state_outputs": True}
            | {"lstm_state_clip_min": -0.1, "lstm_state_clip_max": 0.2},
        ),
        *(
            sample(
                (4, 3, 2),
                (size,),
                *[(2, 3, 2)] * (2 if mode == "lstm" else 1),
                np.array([2, 4, 0], "int32"),
                attrs={"mode": mode, "state_size": 2, "num_layers": 1, "bidirectional": True, "state_outputs": True}
                | {"use_sequence_length": True},
            )
            for mode, size in (("lstm", 96), ("gru", 72), ("rnn_tanh", 24))
        ),
        sample(
            (2, 2, 2), (48,), (1, 2, 2), (1, 2, 2), attrs={"mode": "lstm", "state_size": 2, "num_layers": 1},
            dtype="float16",
        ),
        sample(
            (3, 2, 3), (328,), (4, 2, 3), (4, 2, 2), low=-0.6, high=0.7,
            attrs={"mode": "lstm", "state_size": 2, "num_layers": 2, "bidirectional": True, "state_outputs": True}
            | {"projection_size": 3},
        ),
        sample(
            (4, 3, 2), (78,), (1, 3, 2), (1, 3, 3), np.array([2, 4, 0], "int32"),
            attrs={"mode": "lstm", "state_size": 3, "num_layers": 1, "state_outputs": True, "projection_size": 2}
            | {"use_sequence_length": True},
        ),
    ]  # fmt: skip

    @property
    def random(self) -> bool:
        return self.p > 0 and self.num_layers > 1 and not self._predict

    @cached_property
    def signature(self) -> Signature:
        visible = 1 if not self.state_outputs else 3 if self.mode == "lstm" else 2
        return Signature(self.roles, visible + (0 if self._predict else len(self.saved)), visible)

    def bind_mode(self, train: bool) -> Operator:
        """In prediction there is no dropout, and nothing is kept: a backward computes the forward again."""
        return self if train else self.variant(_predict=True)

    def fix_mode(self, train: bool) -> Operator | None:
        return self if not self.p else None if train else self.variant(p=0.0)

    def complete(self, *shapes: PartialShape) -> PartialShapes:
        given = self.read(shapes)
        data, state = given["data"], given["state"]
        if data is not None and len(data) == 3:
            if data[1] is None and state is not None and len(state) == 3:
                data = (data[0], state[1], data[2])
            batch = data[1]
            if data[2] is not None:
                given["parameters"] = filled(given["parameters"], (self.sizes.parameters(data[2]),))
        elif data is not None:
            raise ShapeError(f"RNN: data has shape {data}; (steps, batch, features) is needed")
        else:
            batch = state[1] if state is not None and len(state) == 3 else None
        given["data"] = data
        places = self.num_layers * self.sizes.directions
        given["state"] = filled(given["state"], (places, batch, self.sizes.units))
        given["state_cell"] = filled(given["state_cell"], (places, batch, self.state_size))
        given["sequence_length"] = filled(given["sequence_length"], (batch,))
        return tuple(given[name] for name in self.roles)

    def infer_shape(
        self, data: Shape, parameters: Shape, state: Shape, state_cell: Shape | None = None,
        sequence_length: Shape | None = None,
    ) -> list[Shape]:  # fmt: skip
        inputs = (data, parameters, state, state_cell, sequence_length)
        given = self.read([item for item in inputs if item is not None])
        if len(data) != 3:
            raise ShapeError(f"RNN: data has shape {data}; (steps, batch, features) is needed")
        steps, batch, width = data
        places = self.num_layers * self.sizes.directions
        wanted = {
            "parameters": (self.sizes.parameters(width),),
            "state": (places, batch, self.sizes.units),
            "state_cell": (places, batch, self.state_size),
            "sequence_length": (batch,),
        }
        for name in self.roles[1:]:
            if given[name] != wanted[name]:
                raise ShapeError(f"RNN: {name} has shape {given[name]}; data {data} needs {wanted[name]}")
        states = [wanted["state"], wanted["state_cell"]][: self.signature.visible - 1]
        kept = [] if self._predict else [self.saved_shape(name, steps, batch) for name in self.saved]
        return [(steps, batch, self.sizes.directions * self.sizes.units), *states, *kept]

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        given = self.read(dtypes)
        kind = given["data"]
        for name in self.roles:
            if name != "sequence_length" and given[name] != kind:
                raise DTypeError(f"RNN: data is {kind}, {name} is {given[name]}; convert one with F.cast(x, dtype=...)")
        kept = () if self._predict else self.saved
        return [kind] * self.signature.visible + [np.dtype("bool") if name == "mask" else kind for name in kept]

    def grad(self, F: Functions, *values: Tensor, wanted: Wanted = None) -> Gradients:
        count, outputs = len(self.roles), self.signature.outputs
        inputs, kept, douts = values[:count], values[count : count + outputs], values[count + outputs :]
        attributes: dict[str, Any] = {**self.written, "heads": tuple(int(item is not None) for item in douts)}
        if self._predict:
            kept, attributes["p"] = (), 0.0
        else:
            kept = (kept[0], *kept[self.signature.visible :])
        present = [item for item in douts if item is not None]
        found: Any = F._rnn_grad(*inputs, *kept, *present, kept=not self._predict, **attributes)
        return (*found, None) if self.use_sequence_length else tuple(found)

    def lower(self, F: Functions, *inputs: Tensor) -> tuple[Tensor, ...]:
        made = rnn_lower.forward(F, self, rnn_lower.read(F, self, inputs), drops=bool(self.random))
        ends = ("states", "cells")[: self.signature.visible - 1]
        first = (inputs[2], *inputs[3:4])
        finals = [rnn_lower.finals(F, self.sizes, made[name], item) for name, item in zip(ends, first, strict=False)]
        names = () if self._predict else self.saved
        return made["y"], *finals, *(made[name] if name == "mask" else rnn_lower.piled(F, made[name]) for name in names)

    def onnx(self, g: OnnxGraph, data: str, parameters: str, state: str, *rest: str) -> str | tuple[str, ...]:
        if not self._predict:
            raise Unmappable("RNN in training mode: ONNX has no outputs for what the backward reads")
        if self.sizes.clip is not None:
            raise Unmappable("RNN with lstm_state_clip_min: ONNX clips the gates' arguments instead")
        if self.projection_size is not None:
            raise Unmappable("RNN with projection_size: ONNX' LSTM has none; unroll a gluon.contrib.rnn.LSTMPCell")
        given = self.read((data, parameters, state, *rest))
        y, finals, cells = emit_layers(g, self.sizes, **given)
        if not self.state_outputs:
            return y
        return (y, finals) if cells is None else (y, finals, cells)


class RNNGrad(Recurrent, name="_rnn_grad"):
    """The gradient of RNN. Inputs: RNN's inputs; with `kept`, RNN's output and saved values; a gradient for each
    visible output marked with 1 in `heads`. Returns the gradients of data, parameters, state and an LSTM's state_cell.
    """

    refuses_gradient = True
    kept: bool = True
    heads: Shape = (1,)
    mxnet = None
    numpy = run_lowering
    samples = [
        sample(
            (3, 2, 3), (42,), (1, 2, 2), (3, 2, 2),
            attrs={"mode": "gru", "state_size": 2, "num_layers": 1, "kept": False},
        ),
        sample(
            (3, 2, 3), (104,), (2, 2, 2), (2, 2, 2), (2, 2, 2),
            attrs={"mode": "lstm", "state_size": 2, "num_layers": 2, "state_outputs": True, "kept": False}
            | {"heads": (0, 0, 1)},
        ),
        sample(
            (3, 2, 3), (70,), (1, 2, 3), (1, 2, 2), (3, 2, 3),
            attrs={"mode": "lstm", "state_size": 2, "num_layers": 1, "projection_size": 3, "kept": False},
        ),
    ]  # fmt: skip

    @cached_property
    def signature(self) -> Signature:
        return Signature(self.input_names, 4 if self.mode == "lstm" else 3)

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        return 2 * super().multiply_adds(inputs, outputs)  # of the inputs, and of the weights

    def infer_shape(self, *args: Shape) -> Shapes:
        count = len(self.roles)
        shared = {key: value for key, value in self.written.items() if key not in ("kept", "heads")}
        forward: Any = get("RNN").bind(**shared)
        shapes = forward.infer_shape(*args[:count])
        outputs, saved = shapes[: forward.signature.visible], shapes[forward.signature.visible :]
        read = [shapes[0], *saved] if self.kept else []
        wanted = [*args[:count], *read, *(shape for shape, head in zip(outputs, self.heads, strict=True) if head)]
        if list(args) != wanted:
            raise ShapeError(f"{self.name}: the inputs have shapes {list(args)}; they need {wanted}")
        return list(args[: self.signature.outputs])

    def infer_type(self, *dtypes: np.dtype) -> np.dtype | list[np.dtype]:
        count = len(self.roles) - self.use_sequence_length
        floating = [*dtypes[:count], *dtypes[len(dtypes) - sum(self.heads) :]]
        if any(dtype != dtypes[0] for dtype in floating):
            raise DTypeError(f"{self.name}: inputs have different dtypes ({', '.join(map(str, floating))})")
        return [dtypes[0]] * self.signature.outputs

    def lower(self, F: Functions, *inputs: Tensor) -> Gradients:
        count = len(self.roles)
        given = rnn_lower.read(F, self, inputs[:count])
        if self.kept:
            y, *saved = inputs[count : count + 1 + len(self.saved)]
            kept: dict[str, Any] = {"mask": None, "y": y, **dict(zip(self.saved, saved, strict=True))}
            for name in ("gates", "cells", "lower"):
                if name in kept:
                    kept[name] = [rnn_lower.one(F, kept[name], place) for place in range(kept[name].shape[0])]
        else:
            kept = rnn_lower.forward(F, self, given, drops=False)
        present = iter(inputs[len(inputs) - sum(self.heads) :])
        heads = [next(present) if marked else None for marked in self.heads]
        return rnn_lower.backward(F, self, given, kept, heads)[: self.signature.outputs]


class ParameterConcat(Concat, name="_rnn_param_concat"):
    """The flattened weights and biases of recurrent layers, one behind the other: RNN's packed parameters."""

    dim: int = 0
    samples = [sample((4,), (2,), dim=0)]

    def complete_from(self, output: PartialSizes, *shapes: PartialShape) -> PartialShapes:
        """Unknown sizes are equal: they belong to a layer's input weights, one per direction."""
        unknown: list[bool] = [shape is None or None in shape for shape in shapes]
        if len(output) != 1 or output[0] is None or not any(unknown):
            return shapes
        complete = [shape for shape in shapes if shape is not None and None not in shape]
        known = sum(size for shape in complete for size in shape[:1] if size is not None)
        share = (output[0] - known) // sum(unknown)
        return tuple((share,) if open_ else shape for shape, open_ in zip(shapes, unknown, strict=True))
