"""Random shapes, arrays and matrices for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab import ndarray as nd
from hybrid_lab.mxnet.test_utils.sparse_data import rand_sparse_ndarray
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.context import Context, current_context

T = TypeVar("T")
Shape = tuple[int, ...]


def default_dtype() -> type[np.float32]:
    """The dtype of arrays made without one."""
    return np.float32


def random_arrays(*shapes: Shape) -> np.ndarray | list[np.ndarray]:
    """Arrays of standard normal float32 numbers, one for each shape; the array itself for a single shape."""
    arrays = [np.asarray(np.random.randn(*shape), default_dtype()) for shape in shapes]
    return arrays[0] if len(arrays) == 1 else arrays


def random_uniform_arrays(
    *shapes: Shape, low: float = 0.0, high: float = 1.0, dtype: DTypeLike | None = None
) -> list[np.ndarray]:
    """Arrays of uniform numbers, one for each shape."""
    return [np.random.uniform(low, high, size=shape).astype(dtype or default_dtype()) for shape in shapes]


def random_sample(population: Sequence[T], k: int) -> Sequence[T]:
    """k different elements of a sequence, in random order."""
    if not 0 <= k <= len(population):
        raise ValueError(f"{k} of {len(population)} elements cannot be taken")
    return [population[index] for index in np.random.permutation(len(population))[:k]]


def rand_ndarray(
    shape: Shape,
    stype: str = "default",
    density: float | None = None,
    dtype: DTypeLike | None = None,
    modifier_func: Callable[[float], float] | None = None,
    shuffle_csr_indices: bool = False,
    distribution: str | None = None,
    ctx: Context | None = None,
) -> NDArray:
    """An NDArray of standard normal numbers; a sparse one as `rand_sparse_ndarray` makes it.

    The arguments after dtype, but ctx, are for sparse arrays.
    """
    if stype != "default":
        return rand_sparse_ndarray(
            shape, stype, density, dtype, distribution, None, None, modifier_func, shuffle_csr_indices, ctx
        )[0]
    array: NDArray = nd.array(random_arrays(tuple(shape)), dtype=dtype or "float32", ctx=ctx or current_context())
    return array


def rand_shape_2d(dim0: int = 10, dim1: int = 10, allow_zero_size: bool = False) -> Shape:
    """A random shape of two axes, at most dim0 and dim1."""
    return _sizes((dim0, dim1), allow_zero_size)


def rand_shape_3d(dim0: int = 10, dim1: int = 10, dim2: int = 10, allow_zero_size: bool = False) -> Shape:
    """A random shape of three axes, at most dim0, dim1 and dim2."""
    return _sizes((dim0, dim1, dim2), allow_zero_size)


def rand_shape_nd(num_dim: int, dim: int = 10, allow_zero_size: bool = False) -> Shape:
    """A random shape of `num_dim` axes, each at most `dim`."""
    return _sizes((dim,) * num_dim, allow_zero_size)


def _sizes(largest: Sequence[int], allow_zero: bool) -> Shape:
    return tuple(int(np.random.randint(0 if allow_zero else 1, size + 1)) for size in largest)


def rand_coord_2d(x_low: int, x_high: int, y_low: int, y_high: int) -> tuple[int, int]:
    """A random point: x in [x_low, x_high), y in [y_low, y_high)."""
    return int(np.random.randint(x_low, x_high)), int(np.random.randint(y_low, y_high))


def np_reduce(
    dat: np.ndarray,
    axis: int | Sequence[int] | None,
    keepdims: bool,
    numpy_reduce_func: Callable[..., np.ndarray],
) -> np.ndarray:
    """Reduce with a NumPy function that takes one axis at a time.

    axis : one, several, or None for all
    """
    axes = range(dat.ndim) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    result = dat
    for each in sorted(axes, reverse=True):
        result = numpy_reduce_func(result, axis=each)
    if keepdims:
        result = result.reshape([1 if number in axes else size for number, size in enumerate(dat.shape)])
    return result


def collapse_sum_like(a: np.ndarray, shape: Shape) -> np.ndarray:
    """The sum of `a` over the axes along which an array of `shape` was broadcast to it."""
    if np.prod(shape) == 0 or a.size == 0:
        return np.zeros(shape, a.dtype)
    leading = a.ndim - len(shape)
    broadcast = [number + leading for number, size in enumerate(shape) if size != a.shape[number + leading]]
    if leading < 0 or any(shape[number - leading] != 1 for number in broadcast):
        raise ValueError(f"an array of shape {shape} cannot be broadcast to {a.shape}")
    return a.sum(axis=(*range(leading), *broadcast)).reshape(shape)


def assign_each(the_input: np.ndarray, function: Callable[[float], float] | None) -> np.ndarray:
    """`function` of every element; a copy for None."""
    return np.array(the_input) if function is None else np.vectorize(function, otypes=[the_input.dtype])(the_input)


def assign_each2(
    input1: np.ndarray, input2: np.ndarray, function: Callable[[float, float], float] | None
) -> np.ndarray:
    """`function` of every pair of elements of two arrays of one shape; a copy of the first for None."""
    if function is None:
        return np.array(input1)
    return np.vectorize(function, otypes=[input1.dtype])(input1, input2)


def create_2d_tensor(rows: int, columns: int, dtype: DTypeLike = "int64") -> NDArray:
    """A matrix whose row i holds i."""
    matrix: NDArray = nd.array(np.repeat(np.arange(rows), columns).reshape(rows, columns), dtype=dtype)
    return matrix


def create_vector(size: int, dtype: DTypeLike = "int64") -> NDArray:
    """0, 1 ... size - 1."""
    vector: NDArray = nd.arange(0, size, dtype=dtype)
    return vector


def get_identity_mat(size: int) -> np.ndarray:
    """A unit matrix of size x size."""
    return np.eye(size)


def get_identity_mat_batch(size: int) -> np.ndarray:
    """Two unit matrices, (2, size, size)."""
    return np.stack([np.eye(size)] * 2)


def new_orthonormal_matrix_2d(n: int) -> np.ndarray:
    """A random orthonormal matrix, n x n."""
    return np.linalg.qr(np.random.randn(n, n))[0]


def new_sym_matrix_with_real_eigvals_2d(n: int) -> np.ndarray:
    """A random symmetric matrix with eigenvalues in [-10, 10)."""
    basis = new_orthonormal_matrix_2d(n)
    return (basis.T * np.random.uniform(-10, 10, n)) @ basis


def new_matrix_with_real_eigvals_2d(n: int) -> np.ndarray:
    """A random matrix with real eigenvalues in [-10, 10) and well conditioned eigenvectors."""
    while True:
        v = np.random.uniform(-1, 1, (n, 1))
        v /= np.linalg.norm(v)
        basis = (np.eye(n) - 2 * v @ v.T) * np.random.uniform(-1, 1, n)
        if np.linalg.cond(basis) < 3:
            return np.linalg.inv(basis) @ (np.random.uniform(-10, 10, (n, 1)) * basis)


def new_sym_matrix_with_real_eigvals_nd(shape: Shape) -> np.ndarray:
    """Symmetric matrices in the last two axes of `shape`."""
    count = int(np.prod(shape[:-2]))
    return np.array([new_sym_matrix_with_real_eigvals_2d(shape[-1]) for _ in range(count)]).reshape(shape)


def new_matrix_with_real_eigvals_nd(shape: Shape) -> np.ndarray:
    """Matrices with real eigenvalues in the last two axes of `shape`."""
    count = int(np.prod(shape[:-2]))
    return np.array([new_matrix_with_real_eigvals_2d(shape[-1]) for _ in range(count)]).reshape(shape)
