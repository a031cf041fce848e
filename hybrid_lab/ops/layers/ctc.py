"""CTCLoss: connectionist temporal classification (Graves et al., 2006)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError, ShapeError
from hybrid_lab.ops.framework import Operator, Signature, into, ints, sample
from hybrid_lab.ops.framework.protocols import Functions, Gradients, Tensor
from hybrid_lab.ops.framework.types import Array, Outs, Shape

_NOTHING = -np.inf


class CTCLoss(Operator, name="CTCLoss", aliases=("ctc_loss", "_contrib_CTCLoss", "_contrib_ctc_loss")):
    """-log of the probability that the steps of data spell label, summed over all ways to place blanks and repeats.

    data : (steps, batch, classes), before softmax; label : (batch, length), class numbers; returns : (batch,)
    blank_label : 'first', class 0 is the blank and labels end at the first 0; 'last', the last class is the blank and
    labels end at the first -1. data_lengths, label_lengths : (batch,), inputs if the flags use them
    """

    dtype_kinds = "f"
    precision = "float32"
    use_data_lengths: bool = False
    use_label_lengths: bool = False
    blank_label: Literal["first", "last"] = "first"
    samples = [
        sample((6, 2, 4), np.array([[1, 2, 0], [3, 3, 2]], "float32"), smooth=False),
        sample((6, 2, 4), np.array([[0, 1, -1], [2, 2, 0]], "float32"), smooth=False, blank_label="last"),
        sample((6, 2, 4), ints((2, 3), 1, 4), ints((2,), 4, 7), use_data_lengths=True),
        sample(
            *((6, 2, 4), ints((2, 3), 0, 3), ints((2,), 5, 7), ints((2,), 1, 4)),
            use_data_lengths=True,
            use_label_lengths=True,
            blank_label="last",
        ),
        sample((5, 1, 3), ints((1, 2), 1, 2), ints((1,), 2, 3), use_label_lengths=True, low=-3.0),
        sample((4, 3, 5), ints((3, 2), 1, 5)),
    ]

    @cached_property
    def signature(self) -> Signature:
        lengths = (("data_lengths", self.use_data_lengths), ("label_lengths", self.use_label_lengths))
        return Signature(("data", "label", *(name for name, used in lengths if used)), outputs=2, visible=1)

    def infer_shape(
        self, data: Shape, label: Shape, data_lengths: tuple[int, ...] | None = None,
        label_lengths: tuple[int, ...] | None = None,
    ) -> list[Shape]:  # fmt: skip
        if len(data) != 3 or len(label) != 2 or label[0] != data[1]:
            raise ShapeError(
                f"CTCLoss: data {data} and label {label}; (steps, batch, classes) and (batch, length) are needed"
            )
        if data[2] == 0:
            raise ShapeError(f"CTCLoss: data {data} has no classes; the blank is one")
        for lengths in (data_lengths, label_lengths):
            if lengths is not None and lengths != data[1:2]:
                raise ShapeError(f"CTCLoss: lengths of shape {lengths}; {data[1:2]} is needed")
        return [data[1:2], data]

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        return [dtypes[0], dtypes[0]]

    def _lengths(self, data: Array, label: Array, rest: tuple[Array, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Steps and labels of each sequence. Raises HybridLabError."""
        given = dict(zip(self.signature.inputs[2:], rest, strict=True))
        steps = np.full(data.shape[1], len(data), like=data)
        if self.use_data_lengths:
            steps = given["data_lengths"].astype(np.int64)
        if self.use_label_lengths:
            counts = given["label_lengths"].astype(np.int64)
        else:
            # The labels before the first end.
            ends = label == (0 if self.blank_label == "first" else -1)
            counts = np.logical_not(np.logical_or.accumulate(ends, axis=1)).sum(axis=1)
        if ((steps < 1) | (steps > len(data)) | (counts < 0) | (counts > label.shape[1])).any():
            raise HybridLabError(
                f"CTCLoss: lengths outside of data {data.shape} or label {label.shape}: {steps.tolist()} steps, "
                f"{counts.tolist()} labels"
            )
        return steps, counts

    def numpy(
        self, data: Array, label: Array, *rest: Array, out: Outs = None, need: Sequence[bool] = (True, True)
    ) -> tuple[Array, Array | None]:
        loss, gradient = out if out is not None else (None, None)
        steps, counts = self._lengths(data, label, rest)
        paths = Paths(data, label.astype(np.int64), steps, counts, 0 if self.blank_label == "first" else -1)
        forward, losses = paths.forward()
        made = paths.gradient(forward, losses).astype(data.dtype) if need[1] else None
        return into(losses.astype(data.dtype), loss), None if made is None else into(made, gradient)

    def grad(self, F: Functions, data: Tensor, label: Tensor, *rest: Tensor) -> Gradients:
        *lengths, _, gradient, dy = rest
        dx = gradient * F._channel_like(dy, gradient, axis=1)
        return dx, None, *(None for _ in lengths)


class Paths:
    """The ways through a batch: states are the labels with blanks around each, (batch, 2 * length + 1).

    data : (steps, batch, classes); label : (batch, length) class numbers; steps, counts : (batch,) how many of both are
    used; blank : the class of the blank
    """

    def __init__(self, data: np.ndarray, label: np.ndarray, steps: np.ndarray, counts: np.ndarray, blank: int):
        shifted = data.astype(np.float64)
        shifted -= shifted.max(axis=2, keepdims=True)
        self.logits = shifted - np.log(np.exp(shifted).sum(axis=2, keepdims=True))
        classes = data.shape[2]
        self.steps, self.ends = steps, 2 * counts
        self.states = np.full((len(label), 2 * label.shape[1] + 1), blank % classes, like=data)
        used = np.arange(label.shape[1], like=data) < counts[:, None]
        if ((label < 0) | (label >= classes))[used].any():
            raise HybridLabError(f"CTCLoss: a label outside of {classes} classes")
        self.states[:, 1::2] = np.where(used, label, blank % classes)
        self.inside = np.arange(self.states.shape[1], like=data) <= self.ends[:, None]
        # From label to label without a blank between, if they differ.
        self.skips = np.zeros_like(self.states, bool)
        self.skips[:, 3::2] = self.states[:, 3::2] != self.states[:, 1:-2:2]

    def spoken(self, step: int) -> np.ndarray:
        """The log probability of every state's class at a step."""
        return np.take_along_axis(self.logits[step], self.states, axis=1)

    def forward(self) -> tuple[np.ndarray, np.ndarray]:
        """log alpha, (steps, batch, states), and the losses."""
        alphas = np.full((len(self.logits), *self.states.shape), _NOTHING, like=self.logits)
        alphas[0, :, :2] = self.spoken(0)[:, :2]
        alphas[0][~self.inside] = _NOTHING
        for step in range(1, len(alphas)):
            before = alphas[step - 1]
            total = np.logaddexp(before, _moved(before, 1))
            total = np.where(self.skips, np.logaddexp(total, _moved(before, 2)), total)
            alphas[step] = np.where(self.inside, total + self.spoken(step), _NOTHING)
        batch = np.arange(len(self.steps), like=self.logits)
        last = alphas[self.steps - 1, batch]
        label_end = np.where(self.ends > 0, last[batch, np.maximum(self.ends - 1, 0)], _NOTHING)
        return alphas, -np.logaddexp(last[batch, self.ends], label_end)

    def gradient(self, alphas: np.ndarray, losses: np.ndarray) -> np.ndarray:
        """d loss / d data: softmax minus how often each class is spoken, (steps, batch, classes)."""
        batch = np.arange(len(self.steps), like=self.logits)
        final = np.full_like(self.states, _NOTHING, np.float64)
        final[batch, self.ends] = 0.0
        some = self.ends > 0
        final[batch[some], self.ends[some] - 1] = 0.0
        result = np.zeros_like(self.logits)
        behind = final
        for step in reversed(range(len(alphas))):
            if step + 1 < len(alphas):
                spoken = behind + self.spoken(step + 1)
                total = np.logaddexp(spoken, _moved(spoken, -1))
                jumped = _moved(np.where(self.skips, spoken, _NOTHING), -2)
                behind = np.logaddexp(total, jumped)
            behind = np.where((self.steps - 1 == step)[:, None], final, behind)
            with np.errstate(invalid="ignore"):
                weight = np.exp(alphas[step] + behind + losses[:, None])
            weight[~np.isfinite(weight)] = 0.0
            expected = np.zeros_like(self.logits[0])
            np.add.at(expected, (batch[:, None], self.states), weight)
            result[step] = np.where((step < self.steps)[:, None], np.exp(self.logits[step]) - expected, 0.0)
        return result


def _moved(values: np.ndarray, by: int) -> np.ndarray:
    """values moved along the states; states that get no value have log 0."""
    result = np.full_like(values, _NOTHING)
    if by > 0:
        result[:, by:] = values[:, :-by]
    else:
        result[:, :by] = values[:, -by:]
    return result
