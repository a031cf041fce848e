"""The likelihood of marked events under a Hawkes process with exponential kernels (arXiv 1507.02822)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from hybrid_lab.diagnostics.errors import ArrayIndexError, DTypeError, ShapeError
from hybrid_lab.ops.framework import Operator, Signature, all_into, sample
from hybrid_lab.ops.framework.protocols import Functions, Gradients
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, Shape

_EVENTS = (
    np.array([[1.5, 2.0, 0.5], [1.2, 0.9, 1.1]], "float32"), np.array([0.2, 0.3, 0.4], "float32"),
    np.array([1.0, 2.0, 0.7], "float32"), np.array([[0.1, 0.4, 0.0], [0.5, 0.0, 0.2]], "float32"),
    np.array([[0.6, 0.7, 0.8, 0.9], [0.1, 0.2, 0.3, 0.4]], "float32"),
    np.array([[0, 1, 2, 1], [1, 2, 0, 2]], "int32"), np.array([3, 4], "float32"), np.array([100.0, 2.0], "float32"),
)  # fmt: skip


class _Event(NamedTuple):
    """One event of every sequence that has one.

    rows, marks : where it belongs in (n, k); waited : the time since the last event of that mark; decay : how much of
    the state is left; state, slope : of that mark before the event, and its derivative by beta
    """

    rows: np.ndarray
    marks: np.ndarray
    waited: np.ndarray
    decay: np.ndarray
    state: np.ndarray
    slope: np.ndarray


class _Hawkes(Operator):
    """Base: the shapes, and the walk through the events."""

    dtype_kinds = "f"

    def check_shapes(self, lda: Shape, alpha: Shape, beta: Shape, state: Shape, lags: Shape, *rest: Shape) -> None:
        """Raises ShapeError."""
        marks, valid_length, max_time = rest
        if len(lda) != 2 or len(lags) != 2 or lags[0] != lda[0] or marks != lags:
            raise ShapeError(f"{self.name}: lda {lda} must be (n, k), lags {lags} and marks {marks} (n, t)")
        n, k = lda
        if alpha != (k,) or beta != (k,) or state != (n, k) or valid_length != (n,) or max_time != (n,):
            raise ShapeError(
                f"{self.name}: alpha {alpha} and beta {beta} must be {(k,)}, state {state} {(n, k)}, valid_length "
                f"{valid_length} and max_time {max_time} {(n,)}"
            )

    @staticmethod
    def walk(
        beta: Array, state: Array, slope: Array, last: Array, lags: Array, marks: Array, valid_length: Array
    ) -> Iterator[_Event]:
        """The events in order; updates state, slope and last, the time of the last event, of every mark."""
        if marks.size and not 0 <= marks.min() <= marks.max() < state.shape[1]:
            raise ArrayIndexError(f"hawkesll: marks must be from 0 to {state.shape[1] - 1}")
        time = np.zeros(len(state), state.dtype, like=state)
        for step in range(lags.shape[1]):
            rows = np.flatnonzero(step < valid_length)
            kinds = marks[rows, step]
            time[rows] += lags[rows, step]
            waited = time[rows] - last[rows, kinds]
            decay = np.exp(-beta[kinds] * waited)
            before, turn = state[rows, kinds], slope[rows, kinds]
            yield _Event(rows, kinds, waited, decay, before, turn)
            state[rows, kinds] = 1 + before * decay
            slope[rows, kinds] = decay * (turn - waited * before)
            last[rows, kinds] = time[rows]


class HawkesLL(_Hawkes, name="_contrib_hawkesll"):
    """The logarithm of the likelihood of marked events up to max_time, and the state at that time.

    lda : (n, k), base intensities; alpha, beta : (k,), branching ratios and rates of decay; state : (n, k), what
    earlier events still excite; lags : (n, t), times between events; marks : (n, t), int32, below k; valid_length,
    max_time : (n,); returns : (n,) and (n, k). lda, alpha and beta have gradients, through the likelihood only.
    """

    precision = "float32"

    signature = Signature(outputs=2)
    samples = [sample(*_EVENTS, gradient=False)]

    def infer_shape(
        self, lda: Shape, alpha: Shape, beta: Shape, state: Shape, lags: Shape, marks: Shape, valid_length: Shape,
        max_time: Shape,
    ) -> list[Shape]:  # fmt: skip
        self.check_shapes(lda, alpha, beta, state, lags, marks, valid_length, max_time)
        return [lda[:1], lda]

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        others = [dtype for index, dtype in enumerate(dtypes) if index != 5]
        if any(dtype != others[0] for dtype in others) or dtypes[5] != np.int32:
            given = ", ".join(dtype.name for dtype in dtypes)
            raise DTypeError(f"hawkesll: marks must be int32 and the other inputs of one dtype, they are {given}")
        return [dtypes[0], dtypes[0]]

    def numpy(
        self, lda: Array, alpha: Array, beta: Array, state: Array, lags: Array, marks: Array, valid_length: Array,
        max_time: Array, out: Outs = None,
    ) -> Array | Arrays:  # fmt: skip
        result, state, last = np.zeros(len(lda), lda.dtype, like=lda), state.copy(), np.zeros_like(lda)
        for item in self.walk(beta, state, np.zeros_like(lda), last, lags, marks, valid_length):
            ratio, base = alpha[item.marks], lda[item.rows, item.marks]
            intensity = base + ratio * beta[item.marks] * item.state * item.decay
            expected = base * item.waited + ratio * item.state * (1 - item.decay)
            result[item.rows] += np.log(intensity) - expected
        waited = max_time[:, None] - last
        decay = np.exp(-beta * waited)
        result -= (lda * waited + alpha * state * (1 - decay)).sum(axis=1)
        return all_into([result, state * decay], out)

    def grad(self, F: Functions, *values: Any) -> Gradients:
        inputs, dll = values[:8], values[10]
        if dll is None:
            return (None,) * 8
        made: Any = F._hawkesll_grad(dll, *inputs)
        return (made[0], made[1], made[2], *(None,) * 5)


class HawkesLLGrad(_Hawkes, name="_hawkesll_grad"):
    """The gradients of hawkesll by lda, alpha and beta. dll : the likelihood's gradient; the other inputs :
    hawkesll's.
    """

    mxnet = None
    refuses_gradient = True
    signature = Signature(outputs=3)
    samples = [sample(np.array([1.0, -0.5], "float32"), *_EVENTS, gradient=False)]

    def infer_shape(
        self, dll: Shape, lda: Shape, alpha: Shape, beta: Shape, state: Shape, lags: Shape, marks: Shape,
        valid_length: Shape, max_time: Shape,
    ) -> list[Shape]:  # fmt: skip
        self.check_shapes(lda, alpha, beta, state, lags, marks, valid_length, max_time)
        if dll != lda[:1]:
            raise ShapeError(f"{self.name}: dll has shape {dll}; it needs {lda[:1]}")
        return [lda, alpha, beta]

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        others = [dtype for index, dtype in enumerate(dtypes) if index != 6]
        if any(dtype != others[0] for dtype in others) or dtypes[6] != np.int32:
            raise DTypeError(f"{self.name}: marks must be int32 and the other inputs of one dtype")
        return [dtypes[0]] * 3

    def numpy(
        self, dll: Array, lda: Array, alpha: Array, beta: Array, state: Array, lags: Array, marks: Array,
        valid_length: Array, max_time: Array, out: Outs = None,
    ) -> Array | Arrays:  # fmt: skip
        by_lda, by_alpha, by_beta = (np.zeros_like(lda) for _ in range(3))
        state, slope, last = state.copy(), np.zeros_like(lda), np.zeros_like(lda)
        for item in self.walk(beta, state, slope, last, lags, marks, valid_length):
            place = item.rows, item.marks
            ratio, rate, left = alpha[item.marks], beta[item.marks], item.state * item.decay
            intensity = lda[place] + ratio * rate * left
            turn = item.decay * (item.slope - item.waited * item.state)  # of `left` by beta
            by_lda[place] += 1 / intensity - item.waited
            by_alpha[place] += rate * left / intensity - (item.state - left)
            by_beta[place] += ratio * (left + rate * turn) / intensity - ratio * (item.slope - turn)
        waited = max_time[:, None] - last
        decay = np.exp(-beta * waited)
        by_lda -= waited
        by_alpha -= state * (1 - decay)
        by_beta -= alpha * (slope * (1 - decay) + state * waited * decay)
        head = dll[:, None]
        return all_into([head * by_lda, (head * by_alpha).sum(axis=0), (head * by_beta).sum(axis=0)], out)
