"""The steps of one recurrent layer in one direction, after the input's product: what RNN is taken apart into.

A step multiplies the state before it with `weight` and goes through the gates; all products with inputs, and the sums
that make the gradients of weights, are operators of their own. Steps behind the end of a sequence leave the state.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Literal

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, ShapeError
from hybrid_lab.ops.framework import Operator, Signature, all_into, contiguous, sample
from hybrid_lab.ops.framework.protocols import Scratch
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, Shape
from hybrid_lab.ops.kernels import blas
from hybrid_lab.ops.rnn import kernels
from hybrid_lab.ops.rnn.kernels import GATES, KEPT

Mode = Literal["rnn_relu", "rnn_tanh", "lstm", "gru"]


class _Steps(Operator):
    """Base: attributes, and the inputs by name. reverse : whether the last step is the first to be computed."""

    mode: Mode
    reverse: bool = False
    use_sequence_length: bool = False
    clip_min: float | None = None
    clip_max: float | None = None
    clip_nan: bool = False
    use_projection: bool = False
    dtype_kinds = "f"
    half_in_float32 = True
    mxnet = None

    def check(self) -> None:
        if (self.clip_min is None) != (self.clip_max is None):
            raise AttributeSpecError(f"{self.name}: clip_min and clip_max must be given together")
        if self.use_projection and self.mode != "lstm":
            raise AttributeSpecError(f"{self.name}: use_projection needs mode='lstm', not {self.mode!r}")

    @property
    def last_names(self) -> tuple[str, ...]:
        """The last inputs: the inputs that attributes ask for."""
        asked = (("h2r_weight", self.use_projection), ("sequence_length", self.use_sequence_length))
        return tuple(name for name, there in asked if there)

    def named(self, inputs: Iterable[Any]) -> dict[str, Any]:
        """The inputs by name."""
        return dict(zip(self.signature.inputs, inputs, strict=True))

    @property
    def clip(self) -> kernels.Clip | None:
        """The bounds of the cell state as the kernels take them."""
        if self.clip_min is None or self.clip_max is None:
            return None
        return self.clip_min, self.clip_max, self.clip_nan

    def hidden(self, given: dict[str, Shape], units: int) -> int:
        """H, the units of the cell state. given : shapes of the inputs by name; units : of the hidden state"""
        if not self.use_projection:
            return units
        if len(given["h2r_weight"]) != 2:
            raise ShapeError(f"{self.name}: h2r_weight has shape {given['h2r_weight']}; (projection, hidden) is needed")
        return given["h2r_weight"][1]

    def order(self, given: dict[str, Any]) -> kernels.Order:
        """The steps as the forward goes through them."""
        steps = len(given["dy" if "dy" in given else "projected"])
        invalid = None
        if self.use_sequence_length:
            lengths = np.nan_to_num(given["sequence_length"].astype(np.float64))
            invalid = (np.arange(steps, like=lengths)[:, None] >= lengths.clip(0, steps).astype(np.int64))[..., None]
        return kernels.Order(range(steps)[::-1] if self.reverse else range(steps), invalid)

    @staticmethod
    def results(shapes: list[Shape], dtype: np.dtype, out: Array | Outs, like: Array) -> list[Array]:
        """Contiguous memory for the outputs: `out` if it is contiguous. like : an array of the same device"""
        targets = out if isinstance(out, tuple) else (out,) * len(shapes)
        return [contiguous(target, shape, dtype, like) for target, shape in zip(targets, shapes, strict=True)]

    def wanted(self, given: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
        """Raise ShapeError for an input whose shape differs from `shapes`."""
        for name, shape in shapes.items():
            if name in given and given[name] != shape:
                raise ShapeError(f"{self.name}: {name} has shape {given[name]}, {shape} is needed")

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        floating = dtypes[: len(dtypes) - self.use_sequence_length]
        if any(dtype != dtypes[0] for dtype in floating):
            raise DTypeError(f"{self.name}: inputs have different dtypes ({', '.join(map(str, floating))})")
        return [dtypes[0]] * self.signature.outputs


class Recurrence(_Steps, name="_recurrence"):
    """projected : (T, N, G * H), the inputs' half of the gates' arguments; weight : (G * H, H); hidden_bias : (H,) of
    a GRU; state, cell : (N, H); sequence_length : (N,). Returns states and an LSTM's cells (T, N, H), after each step,
    and the gates that a backward reads, (T, N, 4 * H): i, f, g, o of an LSTM; r, z, n and n's hidden half of a GRU.

    h2r_weight : (P, H), with use_projection; an LSTM's states are then projected to P units, and weight is (4 * H, P)
    """

    refuses_gradient = True
    samples = [
        sample((3, 2, 3), (3, 3), (2, 3), gradient=False, mode="rnn_tanh"),
        sample((3, 2, 3), (3, 3), (2, 3), gradient=False, mode="rnn_relu", reverse=True),
        sample((3, 2, 12), (12, 3), (2, 3), (2, 3), gradient=False, mode="lstm"),
        sample((1, 1, 4), (4, 1), (1, 1), (1, 1), gradient=False, mode="lstm"),
        sample((3, 2, 9), (9, 3), (3,), (2, 3), gradient=False, mode="gru", reverse=True),
        sample(
            (4, 3, 8), (8, 2), (3, 2), (3, 2), np.array([2, 4, 0], "int32"), gradient=False,
            attrs={"mode": "lstm", "use_sequence_length": True, "reverse": True, "clip_min": -0.1, "clip_max": 0.2},
        ),
        sample(
            (4, 3, 6), (6, 2), (2,), (3, 2), np.array([2, 4, 0], "float32"), gradient=False,
            attrs={"mode": "gru", "use_sequence_length": True},
        ),
        sample(
            (4, 3, 8), (8, 3), (3, 3), (3, 2), (3, 2), np.array([2, 4, 0], "int32"), gradient=False,
            attrs={"mode": "lstm", "use_sequence_length": True, "use_projection": True},
        ),
    ]  # fmt: skip

    @cached_property
    def signature(self) -> Signature:
        middle: tuple[str, ...] = ("hidden_bias",) if self.mode == "gru" else ()
        cell: tuple[str, ...] = ("cell",) if self.mode == "lstm" else ()
        names = ("projected", "weight", *middle, "state", *cell, *self.last_names)
        return Signature(names, {"lstm": 3, "gru": 2}.get(self.mode, 1))

    def infer_shape(self, *args: Shape) -> list[Shape]:
        given = self.named(args)
        if len(given["projected"]) != 3 or len(given["weight"]) != 2:
            raise ShapeError(f"{self.name}: projected {given['projected']} and weight {given['weight']}")
        (steps, batch, _), (_, units) = given["projected"], given["weight"]
        hidden = self.hidden(given, units)
        rows = GATES[self.mode] * hidden
        self.wanted(
            given,
            {
                "projected": (steps, batch, rows),
                "weight": (rows, units),
                "hidden_bias": (hidden,),
                "state": (batch, units),
                "cell": (batch, hidden),
                "h2r_weight": (units, hidden),
                "sequence_length": (batch,),
            },
        )
        states: list[Shape] = [(steps, batch, units)]
        if self.mode == "lstm":
            states.append((steps, batch, hidden))
        gates: list[Shape] = [(steps, batch, KEPT[self.mode] * hidden)] if KEPT[self.mode] else []
        return states + gates

    def numpy(self, *inputs: Array, out: Outs = None, scratch: Scratch = np.empty) -> Array | Arrays:
        given, shapes = self.named(inputs), self.infer_shape(*(item.shape for item in inputs))
        results = self.results(shapes, inputs[0].dtype, out, inputs[0])
        projected, weight, state, order = (given["projected"], given["weight"], given["state"], self.order(given))
        with blas.small_products(state.size * len(weight)), np.errstate(over="ignore"):
            if self.mode == "lstm":
                cell, projection = given["cell"], given.get("h2r_weight")
                kernels.lstm(projected, weight, projection, state, cell, order, self.clip, scratch, *results)
            elif self.mode == "gru":
                kernels.gru(projected, weight, given["hidden_bias"], state, order, scratch, *results)
            else:
                kernels.plain(self.mode, projected, weight, state, order, *results)
        return all_into(results, out)


class RecurrenceGrad(_Steps, name="_recurrence_grad"):
    """The gradient of _recurrence with regard to the gates' arguments and the first states.

    dy : (T, N, H), of the outputs, 0 behind a sequence's end; weight : as there; dstate, dcell : (N, H), of the last
    states; an LSTM's gates, cells and cell; a GRU's gates, and `before`, the state before each step; else the outputs.
    h2r_weight : as there, with use_projection; the states then have P units in place of H
    Returns the gradients of: `projected`; a GRU's hidden half, or, with use_projection, the state after each step;
    the first state; an LSTM's first cell.
    """

    refuses_gradient = True
    samples = [
        sample((3, 2, 3), (3, 3), (2, 3), (3, 2, 3), gradient=False, mode="rnn_tanh"),
        sample((3, 2, 3), (3, 3), (2, 3), (3, 2, 3), gradient=False, mode="rnn_relu", reverse=True),
        sample(
            (3, 2, 3), (12, 3), (2, 3), (2, 3), (3, 2, 12), (3, 2, 3), (2, 3), gradient=False, mode="lstm", low=0.1
        ),
        sample((3, 2, 3), (9, 3), (2, 3), (3, 2, 12), (3, 2, 3), gradient=False, mode="gru", reverse=True, low=0.1),
        sample(
            (4, 3, 2), (8, 2), (3, 2), (3, 2), (4, 3, 8), (4, 3, 2), (3, 2), np.array([2, 4, 0], "int32"),
            gradient=False, low=0.1,
            attrs={"mode": "lstm", "use_sequence_length": True, "reverse": True, "clip_min": -0.1, "clip_max": 0.5},
        ),
        sample(
            (4, 3, 2), (6, 2), (3, 2), (4, 3, 8), (4, 3, 2), np.array([2, 4, 0], "float32"), gradient=False, low=0.1,
            attrs={"mode": "gru", "use_sequence_length": True},
        ),
        sample(
            (4, 3, 3), (8, 3), (3, 3), (3, 2), (4, 3, 8), (4, 3, 2), (3, 2), (3, 2), np.array([2, 4, 0], "int32"),
            gradient=False, low=0.1, attrs={"mode": "lstm", "use_sequence_length": True, "use_projection": True},
        ),
    ]  # fmt: skip

    @cached_property
    def signature(self) -> Signature:
        own = {"lstm": ("dcell", "gates", "cells", "cell"), "gru": ("gates", "before")}.get(self.mode, ("states",))
        outputs = 2 + (self.mode in ("lstm", "gru")) + self.use_projection
        return Signature(("dy", "weight", "dstate", *own, *self.last_names), outputs)

    def infer_shape(self, *args: Shape) -> list[Shape]:
        given = self.named(args)
        if len(given["dy"]) != 3:
            raise ShapeError(f"{self.name}: dy has shape {given['dy']}; (steps, batch, units) is needed")
        steps, batch, units = whole = given["dy"]
        hidden = self.hidden(given, units)
        rows, state, cell = GATES[self.mode] * hidden, (batch, units), (batch, hidden)
        wanted = {"weight": (rows, units), "dstate": state, "states": whole, "before": whole}
        wanted |= {"dcell": cell, "cell": cell, "cells": (steps, batch, hidden), "h2r_weight": (units, hidden)}
        wanted |= {"gates": (steps, batch, KEPT[self.mode] * hidden), "sequence_length": (batch,)}
        self.wanted(given, wanted)
        last = {"lstm": [state, cell], "gru": [(steps, batch, rows), state]}.get(self.mode, [state])
        return [(steps, batch, rows), *([whole] if self.use_projection else []), *last]

    def numpy(self, *inputs: Array, out: Outs = None, scratch: Scratch = np.empty) -> Array | Arrays:
        given, shapes = self.named(inputs), self.infer_shape(*(item.shape for item in inputs))
        results = self.results(shapes, inputs[0].dtype, out, inputs[0])
        dy, weight, order = given["dy"], given["weight"], self.order(given)
        count = len(results) - (2 if self.mode == "lstm" else 1)
        parts, (dh, *dc) = results[:count], results[count:]
        np.copyto(dh, given["dstate"])
        with blas.small_products(dh.size * len(weight)):
            if self.mode == "lstm":
                np.copyto(dc[0], given["dcell"])
                cell, gates, cells = (given[name] for name in ("cell", "gates", "cells"))
                projection = given.get("h2r_weight")
                kernels.lstm_gradient(
                    weight, projection, cell, gates, cells, dy, dh, dc[0], order, self.clip, scratch, *parts
                )  # fmt: skip
            elif self.mode == "gru":
                kernels.gru_gradient(weight, given["gates"], given["before"], dy, dh, order, scratch, *parts)
            else:
                kernels.plain_gradient(self.mode, weight, given["states"], dy, dh, order, scratch, *parts)
        return all_into(results, out)
