"""ONNX's recurrent layers: by the record RNN if it has the form, else step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from hybrid_lab.onnx.reading.importers.functions import Functions, Tensor
from hybrid_lab.onnx.reading.importers.products import matmul
from hybrid_lab.onnx.reading.importers.table import operator

_ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""Of the gates of the record RNN, the places among ONNX's: i f g o from i o f c; r z n from z r h."""
_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}

#: The output, and the last states; the second one of an LSTM alone.
States: TypeAlias = tuple[Tensor, Tensor, Tensor | None]


class _Layer:
    """One node: its operands in the layout (steps, batch, ...)."""

    def __init__(
        self, F: Functions, kind: str, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None, lengths: Tensor | None,
        h: Tensor | None, c: Tensor | None, p: Tensor | None, hidden_size: int | None, direction: str, layout: int,
        activations: Sequence[str] | None, alphas: Sequence[float] | None, betas: Sequence[float] | None,
        clip: float | None, linear: int, forget: int,
    ) -> None:  # fmt: skip
        self.F, self.kind, self.layout, self.clip, self.linear, self.forget = F, kind, layout, clip, linear, forget
        self.x = F.transposed(x, (1, 0, 2)) if layout else x
        self.w, self.r, self.b, self.p, self.lengths = w, r, b, p, lengths
        self.directions = 2 if direction == "bidirectional" else 1
        self.reverse = direction == "reverse"
        self.hidden: int = F.numbers(F.constant(np.array([r.shape[2]], object)), "the hidden size")[0]
        if w.rank != 3 or r.rank != 3 or x.rank != 3 or w.shape[0] != self.directions:
            raise F.unsupported(f"W, R and X have the shapes {w.shape}, {r.shape} and {x.shape}")
        if hidden_size not in (None, self.hidden):
            raise F.unsupported(f"hidden_size={hidden_size}, R has {self.hidden}")
        self.activations = [name.lower() for name in activations or _DEFAULTS[kind] * self.directions]
        self.h, self.c = (
            None if item is None else F.transposed(item, (1, 0, 2)) if layout else item for item in (h, c)
        )
        self.plain_parameters = not alphas and not betas

    def zeros(self) -> Tensor:
        """States of zeros, (directions, batch, hidden)."""
        shape = (self.directions, self.x.shape[1], self.hidden)
        return self.F.cast(self.F.expand_to(self.F.constant(np.zeros((1, 1, 1)), self.x.dtype), shape), self.x.dtype)

    def outputs(self) -> tuple[Any, ...]:
        """Y, Y_h, and Y_c of an LSTM."""
        F = self.F
        y, h, c = self._by_record() if self._fits_record() else self._step_by_step()
        if self.layout:
            y, h = F.transposed(y, (2, 0, 1, 3)), F.transposed(h, (1, 0, 2))
            c = None if c is None else F.transposed(c, (1, 0, 2))
        return (y, h) if c is None else (y, h, c)

    # -- the record --------------------------------------------------------------------------------------------

    def _fits_record(self) -> bool:
        names = [name.lower() for name in _DEFAULTS[self.kind] * self.directions]
        standard = self.activations == names or (self.kind == "RNN" and set(self.activations) == {"relu"})
        return (
            standard and self.p is None and self.clip is None and not self.forget and self.plain_parameters
            and not self.reverse and (self.kind != "GRU" or bool(self.linear)) and self.x.dtype != np.float16
        )  # fmt: skip

    def _by_record(self) -> States:
        F, gates = self.F, len(_ORDER[self.kind])
        pieces, biases = [], []
        for direction in range(self.directions):
            pieces += [F.Reshape(self._gates(item, direction), shape=(-1,)) for item in (self.w, self.r)]
            if self.b is None:
                F.table(2 * gates, self.hidden)
                biases.append(F.constant(np.zeros(2 * gates * self.hidden), self.x.dtype))
            else:
                for half in (0, 1):
                    part = F.slice_axis(
                        self.b, axis=1, begin=half * gates * self.hidden, end=(half + 1) * gates * self.hidden
                    )
                    biases.append(F.Reshape(self._gates(part, direction), shape=(-1,)))
        mode = {"LSTM": "lstm", "GRU": "gru", "RNN": f"rnn_{self.activations[0]}"}[self.kind]
        states = [self.zeros() if self.h is None else self.h]
        if self.kind == "LSTM":
            states.append(self.zeros() if self.c is None else self.c)
        more = [] if self.lengths is None else [F.cast(self.lengths, "int32")]
        made = F.RNN(
            self.x, F._rnn_param_concat(*pieces, *biases, dim=0), *states, *more, state_size=self.hidden, num_layers=1,
            mode=mode, bidirectional=self.directions == 2, state_outputs=True,
            use_sequence_length=self.lengths is not None,
        )  # fmt: skip
        y, h, *c = made
        y = F.Reshape(y, shape=(0, 0, self.directions, self.hidden))
        return F.transposed(y, (0, 2, 1, 3)), h, c[0] if c else None

    def _gates(self, item: Tensor, direction: int) -> Tensor:
        """The part of one direction with its gates in the record's order."""
        F, order = self.F, _ORDER[self.kind]
        part = F.slice_axis(item, axis=0, begin=direction, end=direction + 1) if self.directions > 1 else item
        if len(order) == 1:
            return part
        rows = [F.slice_axis(part, axis=1, begin=gate * self.hidden, end=(gate + 1) * self.hidden) for gate in order]
        return F.Concat(*rows, dim=1)

    # -- step by step ------------------------------------------------------------------------------------------

    def _step_by_step(self) -> States:
        F = self.F
        results = [self._direction(number) for number in range(self.directions)]
        y = F.stack(*[item[0] for item in results], axis=1)
        h = F.stack(*[item[1] for item in results], axis=0)
        c = F.stack(*[item[2] for item in results], axis=0) if self.kind == "LSTM" else None
        return y, h, c

    def _part(self, item: Tensor, direction: int) -> Tensor:
        part = self.F.slice_axis(item, axis=0, begin=direction, end=direction + 1)
        return self.F.reshape_to(part, item.shape[1:])

    def _activate(self, name: str, x: Tensor) -> Tensor:
        F = self.F
        if self.clip is not None:
            x = F.clip(x, a_min=-self.clip, a_max=self.clip)
        known = {"sigmoid": F.sigmoid, "tanh": F.tanh, "relu": F.relu, "softsign": F.softsign}
        if name == "affine" or name not in known:
            if name == "hardsigmoid":
                return F.hard_sigmoid(x, alpha=0.2, beta=0.5)
            if name == "softplus":
                return F.Activation(x, act_type="softrelu")
            raise F.unsupported(f"the activation {name!r} is not supported; there are {', '.join(known)}")
        return known[name](x)

    def _direction(self, number: int) -> States:
        F, hidden, kind = self.F, self.hidden, self.kind
        gates = len(_ORDER[kind])
        steps = F.numbers(F.constant(np.array([self.x.shape[0]], object)), "the number of steps")[0]
        w, r = (F.transposed(self._part(item, number), (1, 0)) for item in (self.w, self.r))
        bias = None if self.b is None else self._part(self.b, number)
        wb = rb = None
        if bias is not None:
            wb, rb = (
                F.slice_axis(bias, axis=0, begin=k * gates * hidden, end=(k + 1) * gates * hidden) for k in (0, 1)
            )
        h = self._part(self.zeros() if self.h is None else self.h, number)
        c = self._part(self.zeros() if self.c is None else self.c, number) if kind == "LSTM" else None
        p = None if self.p is None else self._part(self.p, number)
        count = len(_DEFAULTS[kind])
        functions = self.activations[number * count : (number + 1) * count]
        found: list[Any] = [None] * steps
        backward = self.reverse or number == 1
        for step in range(steps - 1, -1, -1) if backward else range(steps):
            x = F.reshape_to(F.slice_axis(self.x, axis=0, begin=step, end=step + 1), self.x.shape[1:])
            new_h, new_c = self._step(matmul(F, x, w), r, wb, rb, h, c, p, functions)
            found[step] = new_h
            if self.lengths is not None:
                alive = F.truth(F.broadcast_greater(F.reshape_to(self.lengths, (self.lengths.shape[0], 1)), step))
                found[step] = F.select(alive, new_h, F.zeros_like(new_h))
                new_h = F.select(alive, new_h, h)
                new_c = None if new_c is None or c is None else F.select(alive, new_c, c)
            h, c = new_h, new_c
        return F.stack(*found, axis=0), h, c

    def _step(
        self, projected: Tensor, r: Tensor, wb: Tensor | None, rb: Tensor | None, h: Tensor, c: Tensor | None,
        p: Tensor | None, functions: Sequence[str],
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        F, hidden = self.F, self.hidden

        def gate(x: Tensor, place: int) -> Tensor:
            return F.slice_axis(x, axis=x.rank - 1, begin=place * hidden, end=(place + 1) * hidden)

        projected = projected if wb is None else projected + wb
        if self.kind == "GRU":
            both = [matmul(F, h, gate(r, k)) + (0.0 if rb is None else gate(rb, k)) for k in (0, 1)]
            z = self._activate(functions[0], gate(projected, 0) + both[0])
            reset = self._activate(functions[0], gate(projected, 1) + both[1])
            last = 0.0 if rb is None else gate(rb, 2)
            if self.linear:
                inner = reset * (matmul(F, h, gate(r, 2)) + last)
            else:
                inner = matmul(F, reset * h, gate(r, 2)) + last
            new = self._activate(functions[1], gate(projected, 2) + inner)
            return (1.0 - z) * new + z * h, None
        total = projected + matmul(F, h, r)
        total = total if rb is None else total + rb
        if self.kind == "RNN":
            return self._activate(functions[0], total), None
        i, o, f, g = (gate(total, k) for k in range(4))
        if p is not None:
            i, f = i + gate(p, 0) * c, f + gate(p, 2) * c
        i, f = self._activate(functions[0], i), self._activate(functions[0], f)
        f = 1.0 - i if self.forget else f
        c = f * c + i * self._activate(functions[1], g)
        o = self._activate(functions[0], o + gate(p, 1) * c if p is not None else o)
        return o * self._activate(functions[2], c), c


@operator("LSTM", 7)
def _lstm(
    F: Functions, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None,
    h: Tensor | None = None, c: Tensor | None = None, p: Tensor | None = None, *, hidden_size: int | None = None,
    direction: str = "forward", layout: int = 0, activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None,
    clip: float | None = None, input_forget: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    return _Layer(
        F, "LSTM", x, w, r, b, lengths, h, c, p, hidden_size, direction, layout, activations, activation_alpha,
        activation_beta, clip, 0, input_forget,
    ).outputs()  # fmt: skip


@operator("GRU", 7)
def _gru(
    F: Functions, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None,
    h: Tensor | None = None, *, hidden_size: int | None = None, direction: str = "forward", layout: int = 0,
    activations: Sequence[str] | None = None, activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None, clip: float | None = None, linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    return _Layer(
        F, "GRU", x, w, r, b, lengths, h, None, None, hidden_size, direction, layout, activations, activation_alpha,
        activation_beta, clip, linear_before_reset, 0,
    ).outputs()  # fmt: skip


@operator("RNN", 7)
def _rnn(
    F: Functions, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None,
    h: Tensor | None = None, *, hidden_size: int | None = None, direction: str = "forward", layout: int = 0,
    activations: Sequence[str] | None = None, activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None, clip: float | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    return _Layer(
        F, "RNN", x, w, r, b, lengths, h, None, None, hidden_size, direction, layout, activations, activation_alpha,
        activation_beta, clip, 0, 0,
    ).outputs()  # fmt: skip
