"""The steps of one recurrent layer in one direction, after the input's product: what RNN is taken apart into.

A step multiplies the state before it with `weight` and goes through the gates; all products with inputs, and the sums
that make the gradients of weights, are operators of their own. Steps behind the end of a sequence leave the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Literal

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.framework import Operator, Signature, into, sample
from hybrid_lab.ops.framework.namespace import F as raw
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, Shape, Shapes
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
    kinds = "f"
    half_in_float32 = True
    mxnet = None

    def check(self) -> None:
        if (self.clip_min is None) != (self.clip_max is None):
            raise AttributeSpecError(f"{self.name}: clip_min and clip_max must be given together")

    def named(self, inputs: Iterable[Any]) -> dict[str, Any]:
        """The inputs by name."""
        return dict(zip(self.signature.inputs, inputs, strict=True))

    def order(self, steps: int) -> range:
        """The steps as the forward goes through them."""
        return range(steps - 1, -1, -1) if self.reverse else range(steps)

    def valid(self, given: dict[str, Any], steps: int) -> Array:
        """(T, N, 1) bool: the steps that count."""
        if not self.use_sequence_length:
            return np.ones((steps, 1, 1), bool)
        return (np.arange(steps)[:, None] < given["sequence_length"].astype(np.int64))[..., None]

    def wanted(self, given: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
        """Raise ShapeError where an input has another shape than these."""
        for name, shape in shapes.items():
            if name in given and given[name] != shape:
                raise ShapeError(f"{self.name}: {name} has shape {given[name]}, {shape} is needed")

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        return [dtypes[0]] * self.signature.outputs


class Recurrence(_Steps, name="_recurrence"):
    """projected : (T, N, G * H), the inputs' half of the gates' arguments; weight : (G * H, H); hidden_bias : (H,) of
    a GRU; state, cell : (N, H); sequence_length : (N,). Returns states and an LSTM's cells (T, N, H), after each step,
    and the gates that a backward reads, (T, N, 4 * H): i, f, g, o of an LSTM; r, z, n and n's hidden half of a GRU.
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
    ]  # fmt: skip

    @cached_property
    def signature(self) -> Signature:
        middle: tuple[str, ...] = ("hidden_bias",) if self.mode == "gru" else ()
        last: tuple[str, ...] = ("cell",) if self.mode == "lstm" else ()
        lengths: tuple[str, ...] = ("sequence_length",) if self.use_sequence_length else ()
        names = ("projected", "weight", *middle, "state", *last, *lengths)
        return Signature(names, {"lstm": 3, "gru": 2}.get(self.mode, 1))

    def infer_shape(self, *args: Shape) -> Shapes:
        given = self.named(args)
        (steps, batch, _), (_, hidden) = given["projected"], given["weight"]
        rows = GATES[self.mode] * hidden
        self.wanted(
            given,
            {
                "projected": (steps, batch, rows),
                "weight": (rows, hidden),
                "hidden_bias": (hidden,),
                "state": (batch, hidden),
                "cell": (batch, hidden),
                "sequence_length": (batch,),
            },
        )
        states: list[Shape] = [(steps, batch, hidden)] * (2 if self.mode == "lstm" else 1)
        gates: list[Shape] = [(steps, batch, KEPT[self.mode] * hidden)] if KEPT[self.mode] else []
        return states + gates

    def numpy(self, *inputs: Array, out: Outs = None) -> Array | Arrays:
        shapes, given = self.infer_shape(*(item.shape for item in inputs)), self.named(inputs)
        made = [np.empty(shape, given["projected"].dtype) for shape in shapes]
        h, valid = given["state"], self.valid(given, len(given["projected"]))
        step: Callable[..., Any] = {"lstm": self._lstm, "gru": self._gru}.get(self.mode, self._plain)
        c = given.get("cell")
        for t in self.order(len(given["projected"])):
            new, new_c, gates = step(given, given["projected"][t], h @ given["weight"].T, h, c, valid[t])
            h, c = np.where(valid[t], new, h), new_c
            for target, value in zip(made, [item for item in (h, c, gates) if item is not None], strict=True):
                target[t] = value
        given_out = out if isinstance(out, tuple) else (out,) * len(made)
        results = tuple(map(into, made, given_out))
        return results if len(results) > 1 else results[0]

    def _plain(
        self, given: dict[str, Any], projected: Array, product: Array, h: Array, c: Array, valid: Array
    ) -> tuple[Array | None, ...]:
        total = projected + product
        return (np.tanh(total) if self.mode == "rnn_tanh" else np.maximum(total, 0)), None, None

    def _lstm(
        self, given: dict[str, Any], projected: Array, product: Array, h: Array, c: Array, valid: Array
    ) -> tuple[Array | None, ...]:
        i, f, g, o = np.split(projected + product, 4, axis=1)
        i, f, g, o = raw.sigmoid(i), raw.sigmoid(f), np.tanh(g), raw.sigmoid(o)
        new = f * c + i * g
        if self.clip_min is not None and self.clip_max is not None:
            least, most = (np.fmin, np.fmax) if self.clip_nan else (np.minimum, np.maximum)
            new = most(least(new, self.clip_max), self.clip_min)
        new = np.where(valid, new, c)
        return o * np.tanh(new), new, np.concatenate([i, f, g, o], axis=1)

    def _gru(
        self, given: dict[str, Any], projected: Array, product: Array, h: Array, c: Array, valid: Array
    ) -> tuple[Array | None, ...]:
        (r, z, n), (hr, hz, inner) = np.split(projected, 3, axis=1), np.split(product, 3, axis=1)
        r, z, inner = raw.sigmoid(r + hr), raw.sigmoid(z + hz), inner + given["hidden_bias"]
        n = np.tanh(n + r * inner)
        return n + z * (h - n), None, np.concatenate([r, z, n, inner], axis=1)


class RecurrenceGrad(_Steps, name="_recurrence_grad"):
    """The gradient of _recurrence with regard to the gates' arguments and the first states.

    dy : (T, N, H), of the outputs, 0 behind a sequence's end; weight : as there; dstate, dcell : (N, H), of the last
    states; an LSTM's gates, cells and cell; a GRU's gates, and `before`, the state before each step; else the outputs.
    Returns the gradient of `projected`, of a GRU also that of its hidden half, and of state and cell.
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
    ]  # fmt: skip

    @cached_property
    def signature(self) -> Signature:
        own = {"lstm": ("dcell", "gates", "cells", "cell"), "gru": ("gates", "before")}.get(self.mode, ("states",))
        lengths: tuple[str, ...] = ("sequence_length",) if self.use_sequence_length else ()
        return Signature(("dy", "weight", "dstate", *own, *lengths), 3 if self.mode in ("lstm", "gru") else 2)

    def infer_shape(self, *args: Shape) -> list[Shape]:
        given = self.named(args)
        steps, batch, hidden = given["dy"]
        rows, whole, state = GATES[self.mode] * hidden, (steps, batch, hidden), (batch, hidden)
        wanted = {"weight": (rows, hidden), "dstate": state, "dcell": state, "cell": state, "states": whole}
        wanted |= {"cells": whole, "before": whole, "gates": (steps, batch, KEPT[self.mode] * hidden)}
        self.wanted(given, wanted)
        last = {"lstm": [state, state], "gru": [(steps, batch, rows), state]}.get(self.mode, [state])
        return [(steps, batch, rows), *last]

    def numpy(self, *inputs: Array, out: Outs = None) -> Array | Arrays:
        given = self.named(inputs)
        dy, weight, dh, dc = given["dy"], given["weight"], given["dstate"], given.get("dcell")
        steps, batch, hidden = dy.shape
        parts: list[Any] = [np.empty((steps, batch, len(weight)), dy.dtype) for _ in range(1 + (self.mode == "gru"))]
        valid, order = self.valid(given, steps), self.order(steps)
        step: Callable[..., Any] = {"lstm": self._lstm, "gru": self._gru}.get(self.mode, self._plain)
        for t in reversed(order):
            total = dh + dy[t]
            inputs_part, hidden_part, kept, new_c = step(given, t, total, dc, order)
            inputs_part, hidden_part = np.where(valid[t], inputs_part, 0), np.where(valid[t], hidden_part, 0)
            dh = np.where(valid[t], kept, total) + hidden_part @ weight
            dc = None if dc is None else np.where(valid[t], new_c, dc)
            parts[0][t], parts[-1][t] = inputs_part, hidden_part
        made = [*parts, dh, *([dc] if dc is not None else [])]
        given_out = out if isinstance(out, tuple) else (out,) * len(made)
        return tuple(map(into, made, given_out))

    def _plain(
        self, given: dict[str, Any], t: int, dh: Array, dc: Array, order: range
    ) -> tuple[Array | float | None, ...]:
        y = given["states"][t]
        part = dh * (1 - y * y) if self.mode == "rnn_tanh" else dh * (y > 0)
        return part, part, 0.0, None

    def _lstm(
        self, given: dict[str, Any], t: int, dh: Array, dc: Array, order: range
    ) -> tuple[Array | float | None, ...]:
        i, f, g, o = np.split(given["gates"][t], 4, axis=1)
        cell, before = given["cells"][t], given["cell"] if t == order[0] else given["cells"][t - order.step]
        tanh = np.tanh(cell)
        dc = dc + dh * o * (1 - tanh * tanh)
        if self.clip_min is not None:
            dc = dc * ((cell > self.clip_min) & (cell < self.clip_max))
        part = [dc * g * i * (1 - i), dc * before * f * (1 - f), dc * i * (1 - g * g), dh * tanh * o * (1 - o)]
        joined = np.concatenate(part, axis=1)
        return joined, joined, 0.0, dc * f

    def _gru(
        self, given: dict[str, Any], t: int, dh: Array, dc: Array, order: range
    ) -> tuple[Array | float | None, ...]:
        r, z, n, inner = np.split(given["gates"][t], 4, axis=1)
        dn = dh * (1 - z) * (1 - n * n)
        dr, dz, dinner = dn * inner * r * (1 - r), dh * (given["before"][t] - n) * z * (1 - z), dn * r
        return np.concatenate([dr, dz, dn], axis=1), np.concatenate([dr, dz, dinner], axis=1), dh * z, None
