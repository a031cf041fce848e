"""The operator of SyncBatchNorm: BatchNorm in training, with the statistics of the batches of all workers."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab import autograd
from hybrid_lab.distributed import WorkersError, group, worker_group
from hybrid_lab.mxnet.operator import CustomOp, CustomOpProp, register
from hybrid_lab.ndarray import NDArray

NAME = "_sync_batch_norm"


_traced_alone: weakref.WeakSet[Any] = weakref.WeakSet()
"""Blocks that have a graph for training in one process."""


def workers_train(block: Any, fixed: bool, traced: bool) -> bool:
    """Whether several workers train, so that the operator is needed.

    fixed : whether running statistics are used; traced : whether the answer becomes part of a graph
    """
    joined = group()
    if fixed or not autograd.is_training():
        return False
    if joined is None and traced:
        _traced_alone.add(block)
    return joined is not None and joined.size > 1


def _check_traces() -> None:
    names = sorted(block.name for block in _traced_alone)
    if names:
        raise WorkersError(
            f"{names[0]!r} is a SyncBatchNorm and has a graph for training in one process: make the Trainer, or the "
            "store, before the first call of the network in training"
        )


worker_group.joining.append(_check_traces)


class _SyncBatchNorm(CustomOp):
    """Each pass sums 2C + 1 numbers over the workers, in float64: sums, sums of squares and the count."""

    def __init__(self, momentum: float, eps: float, fix_gamma: bool) -> None:
        self._momentum, self._eps, self._fix_gamma = momentum, eps, fix_gamma
        self._kept: tuple[np.ndarray, np.ndarray, float] | None = None

    def forward(
        self,
        is_train: bool,
        req: Sequence[str],
        in_data: Sequence[NDArray],
        out_data: Sequence[NDArray],
        aux: Sequence[NDArray],
    ) -> None:
        x, gamma, beta = (array.asnumpy() for array in in_data)
        axes, shape = _axes(x)
        wide = x.astype(np.float64)
        sums, squares, count = _summed(wide.sum(axes), np.square(wide).sum(axes), float(x.size // x.shape[1]))
        mean = sums / count
        variance = np.maximum(squares / count - np.square(mean), 0)
        scale = 1 / np.sqrt(variance + self._eps)
        normalized = (wide - mean.reshape(shape)) * scale.reshape(shape)
        self._kept = normalized, scale, count
        factor = np.ones_like(gamma) if self._fix_gamma else gamma
        result = normalized * factor.reshape(shape) + beta.reshape(shape)
        self.assign(out_data[0], req[0], _array(result, out_data[0]))
        for state, batch in zip(aux, (mean, variance), strict=True):
            moved = state.asnumpy() * self._momentum + batch * (1 - self._momentum)
            state[:] = _array(moved, state)

    def backward(
        self,
        req: Sequence[str],
        out_grad: Sequence[NDArray],
        in_data: Sequence[NDArray],
        out_data: Sequence[NDArray],
        in_grad: Sequence[NDArray],
        aux: Sequence[NDArray],
    ) -> None:
        assert self._kept is not None
        normalized, scale, count = self._kept
        head, gamma = out_grad[0].asnumpy().astype(np.float64), in_data[1].asnumpy()
        axes, shape = _axes(head)
        of_beta, of_gamma = head.sum(axes), (head * normalized).sum(axes)
        heads, products, _ = _summed(of_beta, of_gamma, 0.0)
        factor = np.ones_like(gamma) if self._fix_gamma else gamma
        centred = head - heads.reshape(shape) / count - normalized * products.reshape(shape) / count
        of_x = centred * (factor * scale).reshape(shape)
        # Gradients of gamma and beta are of this worker's batch: the Trainer sums them, as any parameter's.
        own = (of_x, np.zeros_like(of_gamma) if self._fix_gamma else of_gamma, of_beta)
        for target, how, gradient in zip(in_grad, req, own, strict=True):
            self.assign(target, how, _array(gradient, target))


@register(NAME)
class _Prop(CustomOpProp):
    def __init__(self, momentum: str, eps: str, fix_gamma: str) -> None:
        super().__init__()
        self._settings = float(momentum), float(eps), fix_gamma in ("True", "1")

    def list_arguments(self) -> list[str]:
        return ["data", "gamma", "beta"]

    def list_auxiliary_states(self) -> list[str]:
        return ["moving_mean", "moving_var"]

    def infer_shape(self, in_shape: list[list[int]]) -> tuple[Any, ...]:
        vector = [in_shape[0][1]]
        return [in_shape[0], vector, vector], [in_shape[0]], [vector, vector]

    def infer_type(self, in_type: list[Any]) -> tuple[Any, ...]:
        vector = in_type[1]
        return [in_type[0], vector, vector], [in_type[0]], [vector, vector]

    def create_operator(self, ctx: object, in_shapes: Any, in_dtypes: Sequence[Any]) -> CustomOp:
        return _SyncBatchNorm(*self._settings)


def _axes(x: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """All axes except the channels' axis, and the shape of a vector of channels."""
    return (0, *range(2, x.ndim)), (1, -1, *(1,) * (x.ndim - 2))


def _summed(first: np.ndarray, second: np.ndarray, count: float) -> tuple[np.ndarray, np.ndarray, float]:
    """The sums of two vectors and a number over all workers."""
    size, joined = first.size, group()
    numbers = np.concatenate([first, second, [count]])
    if joined is not None:
        joined.sum(numbers).wait()
    return numbers[:size], numbers[size:-1], float(numbers[-1])


def _array(values: np.ndarray, like: NDArray) -> NDArray:
    return NDArray.from_host(values.astype(like.dtype), like.context)
