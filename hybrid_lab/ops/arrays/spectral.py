"""Fourier transforms of real rows, and count sketches (compact bilinear pooling, arXiv 1511.06062)."""

from __future__ import annotations

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.framework import Operator, in_c_order, into, sample
from hybrid_lab.ops.framework.protocols import Functions, Gradients, Tensor
from hybrid_lab.ops.framework.types import Array, Shape


class FFT(Operator, name="_contrib_fft"):
    """The Fourier transform of the last axis, real and imaginary parts in turn.

    data : (..., d); returns : (..., 2 d); compute_size : for MXNet's files, nothing depends on it
    """

    precision = "float32"

    dtype_kinds = "f"
    half_in_float32 = True
    compute_size: int = 128
    samples = [sample((3, 4)), sample((2, 1, 3))]

    def infer_shape(self, data: Shape) -> Shape:
        if not data:
            raise ShapeError("fft: data has no dimensions; at least one is needed")
        return (*data[:-1], 2 * data[-1])

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        result = np.empty(self.infer_shape(data.shape), data.dtype, like=data) if out is None else out
        if data.shape[-1]:
            made = np.fft.fft(data)
            result[..., 0::2], result[..., 1::2] = made.real, made.imag
        return result

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._contrib_ifft(dy)


class IFFT(Operator, name="_contrib_ifft"):
    """The real part of the inverse Fourier transform of the last axis, not divided by its length, as in MXNet.

    data : (..., 2 d), real and imaginary parts in turn; returns : (..., d)
    compute_size : for MXNet's files, nothing depends on it
    """

    dtype_kinds = "f"
    half_in_float32 = True
    compute_size: int = 128
    samples = [sample((3, 8)), sample((2, 1, 6))]

    def infer_shape(self, data: Shape) -> Shape:
        if not data or data[-1] % 2:
            raise ShapeError(f"ifft: data has shape {data}; pairs of a real and an imaginary part are needed")
        return (*data[:-1], data[-1] // 2)

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        count = data.shape[-1] // 2
        if not count:
            return np.empty(self.infer_shape(data.shape), data.dtype, like=data) if out is None else out
        made = np.fft.ifft(data[..., 0::2] + 1j * data[..., 1::2]).real * count
        return into(made.astype(data.dtype, copy=False), out)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._contrib_fft(dy)


class CountSketch(Operator, name="_contrib_count_sketch"):
    """Columns of data times signs, added up by number: out[:, h[j]] += s[j] data[:, j].

    data : (..., d); h : (1, d), numbers below out_dim; s : (1, d), signs; returns : (..., out_dim). h and s have no
    gradient. processing_batch_size : for MXNet's files, nothing depends on it
    """

    precision = "float32"

    dtype_kinds = "f"
    typed_like = 0
    out_dim: int
    processing_batch_size: int = 32
    samples = [
        sample(
            (3, 4), np.array([[0, 2, 1, 2]], "int32"), np.array([[1, -1, -1, 1]], "int32"), out_dim=3
        ),
        sample((2, 1, 3), np.array([1, 1, 0], "int32"), np.array([1, -1, 1], "int32"), out_dim=5),
    ]  # fmt: skip

    def check(self) -> None:
        if self.out_dim < 1:
            raise AttributeSpecError(f"count_sketch: out_dim={self.out_dim} must be at least 1")

    def infer_shape(self, data: Shape, h: Shape, s: Shape) -> Shape:
        size = data[-1:]
        if not size or h not in (size, (1, *size)) or s not in (size, (1, *size)):
            raise ShapeError(f"count_sketch: h {h} and s {s} need one number for each column of data {data}: (1, d)")
        return (*data[:-1], self.out_dim)

    def numpy(self, data: Array, h: Array, s: Array, out: Array | None = None) -> Array:
        places = h.reshape(-1).astype(np.int64)
        if places.size and not 0 <= places.min() <= places.max() < self.out_dim:
            raise ShapeError(f"count_sketch: h has numbers outside of 0 to out_dim={self.out_dim} - 1")
        signed = data * s.reshape(-1).astype(data.dtype)
        result = np.zeros((self.out_dim, *data.shape[:-1]), data.dtype, like=data)
        np.add.at(result, places, np.moveaxis(signed, -1, 0))
        return into(in_c_order(np.moveaxis(result, 0, -1)), out)

    def grad(self, F: Functions, data: Tensor, h: Tensor, s: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        picked = F.take(dy, F.Reshape(h, shape=(-1,)), axis=-1)
        return picked * F._cast_like(F.Reshape(s, shape=(-1,)), dy), None, None
