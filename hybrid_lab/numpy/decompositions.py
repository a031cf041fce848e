"""Decompositions with a gradient: `np.linalg.svd` and `np.linalg.eigh`. They run in NumPy, and graphs refuse them.

The gradients are those of Townsend, Differentiating the Singular Value Decomposition (2016), and of Giles, An extended
collection of matrix derivative results (2008). They hold where the singular values or eigenvalues differ.
"""

from __future__ import annotations

import numpy as np

from hybrid_lab.ndarray.function import Function
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.numpy.host import to_arrays
from hybrid_lab.numpy.types import Tensor
from hybrid_lab.symbol import nd_calls


def svd(a: Tensor) -> tuple[NDArray, NDArray, NDArray]:
    """u (..., m, k), s (..., k) and v (..., k, n) of a = u diag(s) v; k is the smaller of m and n."""
    nd_calls.refuse_numbers("np.linalg.svd", [a])
    u, s, v = _SVD()(a)
    return u, s, v


def eigh(a: Tensor, part: str) -> tuple[NDArray, NDArray]:
    """Eigenvalues w (..., n), rising, and eigenvectors v (..., n, n), columns. part : the side that is read, L or U"""
    nd_calls.refuse_numbers("np.linalg.eigh", [a])
    w, v = _Eigh(part)(a)
    return w, v


def _turned(matrices: np.ndarray) -> np.ndarray:
    return matrices.swapaxes(-1, -2)


def _differences(values: np.ndarray) -> np.ndarray:
    """1 / (values[j] - values[i]) at (i, j), 0 on the diagonal and where two are equal."""
    apart = values[..., None, :] - values[..., :, None]
    return np.divide(1.0, apart, out=np.zeros_like(apart), where=apart != 0)


class _SVD(Function):
    def forward(self, a: NDArray) -> tuple[NDArray, ...]:
        factors: list[NDArray] = to_arrays(list(np.linalg.svd(a._data, full_matrices=False)), narrow=False)
        self.save_for_backward(*factors)
        return tuple(factors)

    def backward(self, *output_grads: NDArray) -> NDArray:
        du, ds, dv = (item._data for item in output_grads)
        u, s, v = (item._data for item in self.saved_tensors)
        apart = _differences(s**2)
        turn_u, turn_v = _turned(u) @ du, v @ _turned(dv)
        middle = (turn_u - _turned(turn_u)) * apart * s[..., None, :]
        middle += s[..., :, None] * ((turn_v - _turned(turn_v)) * apart)
        middle += ds[..., None] * np.eye(s.shape[-1], dtype=s.dtype)
        inverse = np.divide(1.0, s, out=np.zeros_like(s), where=s != 0)
        gradient = u @ middle @ v
        gradient += (du - u @ turn_u) * inverse[..., None, :] @ v
        gradient += u @ (inverse[..., :, None] * (dv - _turned(turn_v) @ v))
        result: NDArray = to_arrays(gradient, narrow=False)
        return result


class _Eigh(Function):
    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def forward(self, a: NDArray) -> tuple[NDArray, ...]:
        factors: list[NDArray] = to_arrays(list(np.linalg.eigh(a._data, self._part)), narrow=False)  # type: ignore[call-overload]
        self.save_for_backward(*factors)
        return tuple(factors)

    def backward(self, *output_grads: NDArray) -> NDArray:
        dw, dv = (item._data for item in output_grads)
        w, v = (item._data for item in self.saved_tensors)
        middle = _turned(v) @ dv * _differences(w) + dw[..., None] * np.eye(w.shape[-1], dtype=w.dtype)
        gradient = v @ middle @ _turned(v)
        result: NDArray = to_arrays((gradient + _turned(gradient)) / 2, narrow=False)
        return result
