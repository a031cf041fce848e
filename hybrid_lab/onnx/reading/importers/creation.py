"""ONNX's constants, ranges, shapes and random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.onnx import element_types
from hybrid_lab.onnx.reading.importers import sizes
from hybrid_lab.onnx.reading.importers.functions import Functions, Size, Tensor
from hybrid_lab.onnx.reading.importers.table import operator
from hybrid_lab.ops.framework.sizes import SymbolicSize


@operator("Constant")
def _constant(
    F: Functions, *, value: Any = None, value_float: float | None = None, value_floats: Any = None,
    value_int: int | None = None, value_ints: Any = None, value_string: Any = None, value_strings: Any = None,
) -> Tensor:  # fmt: skip
    if value is not None:
        array, kind = value
        return F.constant(array, carries=element_types.carried(kind))
    for item, dtype in (
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
    ):
        if item is not None:
            return F.constant(item, dtype)
    raise F.unsupported("its value is no tensor of numbers")


@operator("Shape")
def _shape(F: Functions, x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    return F.constant(sizes.shape_of(x.shape[slice(start, end)]))


@operator("Size")
def _size(F: Functions, x: Tensor) -> Tensor:
    total: Any = 1
    for size in x.shape:
        total = size * total
    return F.constant(sizes.packed(np.array(total, object)))


@operator("ConstantOfShape", 9)
def _constant_of_shape(F: Functions, shape: Tensor, *, value: Any = None) -> Tensor:
    array, kind = value if value is not None else (np.zeros(1, np.float32), "FLOAT")
    wanted = F.ints(shape, "the shape")
    if any(not isinstance(size, SymbolicSize) and size < 0 for size in wanted):
        raise F.unsupported(f"the shape {wanted} has a negative size")
    number = F.constant(array.reshape(()), carries=element_types.carried(kind))
    return F.expand_to(number, wanted)


@operator("Range", 11)
def _range(F: Functions, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    first, last, step = (F.number(item, "a bound") for item in (start, limit, delta))
    if isinstance(last, SymbolicSize) and first == 0 and step == 1:
        line = F.reshape_to(F.stand_in((last,)), (last,))
        return F.cast(F._contrib_arange_like(F.cast(line, "float32"), axis=0), start.dtype)
    if any(isinstance(item, SymbolicSize) for item in (first, last, step)):
        raise F.unsupported(f"its bounds depend on open sizes; {F.close_sizes}")
    if step == 0:
        raise F.unsupported("its step is 0")
    count = max(int(np.ceil((last - first) / step)), 0)
    line = F._arange(start=0, stop=count, dtype="int64") if count else F.constant(np.zeros(0, np.int64))
    return F.cast(line, start.dtype) * F.constant(step, start.dtype) + F.constant(first, start.dtype)


@operator("EyeLike", 9)
def _eye_like(F: Functions, x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    rows, columns = F.numbers(F.constant(sizes.shape_of(x.shape)), "the shape")
    kind = element_types.name_for(x) if dtype is None else element_types.type_name(dtype)
    made = F._eye(N=rows, M=columns, k=k, dtype="float32")
    return F.cast(made, element_types.dtype_for(kind))


def _as(F: Functions, made: Tensor, dtype: int) -> Tensor:
    return F.cast(made, element_types.dtype_for(element_types.type_name(dtype)))


@operator("RandomUniform")
def _random_uniform(
    F: Functions, *, shape: Sequence[Size], dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float = 0.0
) -> Tensor:
    return _as(F, F.random_uniform(low=low, high=high, shape=tuple(shape)), dtype)


@operator("RandomNormal")
def _random_normal(
    F: Functions, *, shape: Sequence[Size], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float = 0.0
) -> Tensor:
    return _as(F, F.random_normal(loc=mean, scale=scale, shape=tuple(shape)), dtype)


@operator("RandomUniformLike")
def _random_uniform_like(
    F: Functions, x: Tensor, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: float = 0.0
) -> Tensor:
    kind = element_types.name_for(x) if dtype is None else element_types.type_name(dtype)
    return F.cast(F._random_uniform_like(F.cast(x, "float32"), low=low, high=high), element_types.dtype_for(kind))


@operator("RandomNormalLike")
def _random_normal_like(
    F: Functions, x: Tensor, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float = 0.0
) -> Tensor:
    kind = element_types.name_for(x) if dtype is None else element_types.type_name(dtype)
    return F.cast(F._random_normal_like(F.cast(x, "float32"), loc=mean, scale=scale), element_types.dtype_for(kind))
