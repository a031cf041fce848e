"""ONNX's quantization: whole numbers with a scale and a zero point."""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_lab.onnx import element_types
from hybrid_lab.onnx.reading.importers.functions import Functions, Tensor
from hybrid_lab.onnx.reading.importers.integers import converted
from hybrid_lab.onnx.reading.importers.narrow import FLOATS
from hybrid_lab.onnx.reading.importers.products import matmul
from hybrid_lab.onnx.reading.importers.table import operator
from hybrid_lab.onnx.reading.importers.windows import _conv


def _spread(F: Functions, scale: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """Scales or zero points shaped to broadcast with x: one number, one per slice of an axis, or one per block."""
    if scale.rank == 0 or (scale.rank == 1 and scale.shape[0] == 1 and not block):
        return F.reshape_to(scale, ())
    axis = F.axis(axis, x.rank)
    if scale.rank == 1 and not block:
        return F.reshape_to(scale, [scale.shape[0] if place == axis else 1 for place in range(x.rank)])
    if not block:
        return scale
    wide = F.repeat(scale, repeats=block, axis=axis)
    return F.slice_axis(wide, axis=axis, begin=0, end=x.shape[axis])


def quantized(
    F: Functions, x: Tensor, scale: Tensor, zero: Tensor | None, kind: str, axis: int = 1, block: int = 0
) -> Tensor:
    """x / scale, rounded to even, moved by the zero point and clipped to the type."""
    wide = "float64" if kind in ("INT32", "UINT32") else "float32"
    value = F.cast(x, wide) / F.cast(_spread(F, scale, x, axis, block), wide)
    moved = None if zero is None else F.cast(_spread(F, zero, x, axis, block), wide)
    if kind in FLOATS:
        value = value if moved is None else value + moved
        return converted(F, F.cast(value, "float32"), kind)
    value = F.to_even(value)
    value = value if moved is None else value + moved
    least, most = element_types.limits_of(kind)
    clipped = F.clip(value, a_min=float(least), a_max=float(most))
    return converted(F, F.cast(clipped, "int64"), kind)


def dequantized(F: Functions, x: Tensor, scale: Tensor, zero: Tensor | None, axis: int = 1, block: int = 0) -> Tensor:
    """(x - zero point) * scale."""
    wide = F.cast(x, "float32" if x.is_floating else "int32")
    if zero is not None:
        wide = wide - F.cast(_spread(F, zero, x, axis, block), wide.dtype)
    factor = F.cast(_spread(F, scale, x, axis, block), "float32")
    return F.cast(wide, "float32") * factor


@operator("QuantizeLinear", 10)
def _quantize(
    F: Functions, x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0, precision: int = 0, saturate: int = 1,
) -> Tensor:  # fmt: skip
    if zero is not None:
        kind = element_types.name_for(zero)
    else:
        kind = element_types.type_name(output_dtype) if output_dtype else "UINT8"
    return quantized(F, x, scale, zero, kind, axis, block_size)


@operator("DequantizeLinear", 10)
def _dequantize(
    F: Functions, x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:  # fmt: skip
    made = dequantized(F, x, scale, zero, axis, block_size)
    kind = element_types.type_name(output_dtype) if output_dtype else element_types.name_for(scale)
    return converted(F, made, kind)


def _aligned(F: Functions, vector: Tensor, rank: int, last: bool) -> Tensor:
    """Scales of rows or columns of a matrix, shaped to broadcast."""
    if vector.rank != 1 or vector.shape[0] == 1:
        return vector if vector.rank > 1 else F.reshape_to(vector, ())
    return F.reshape_to(vector, (1, vector.shape[0]) if last else (vector.shape[0], 1))


@operator("QLinearMatMul", 10)
def _qlinear_matmul(
    F: Functions, a: Tensor, sa: Tensor, za: Tensor, b: Tensor, sb: Tensor, zb: Tensor, sy: Tensor, zy: Tensor
) -> Tensor:
    one = F.cast(a, "int32") - F.cast(_aligned(F, za, a.rank, False), "int32")
    two = F.cast(b, "int32") - F.cast(_aligned(F, zb, b.rank, True), "int32")
    product = F.cast(matmul(F, one, two), "float32")
    product = (
        product * F.cast(_aligned(F, sa, a.rank, False), "float32") * F.cast(_aligned(F, sb, b.rank, True), "float32")
    )
    return quantized(F, product, sy, zy, element_types.name_for(zy))


@operator("QLinearConv", 10)
def _qlinear_conv(
    F: Functions, x: Tensor, sx: Tensor, zx: Tensor, w: Tensor, sw: Tensor, zw: Tensor, sy: Tensor, zy: Tensor,
    bias: Tensor | None = None, *, auto_pad: str = "NOTSET", dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    def rows(vector: Tensor) -> Tensor:
        if vector.rank == 1 and vector.shape[0] != 1:
            return F.reshape_to(vector, (vector.shape[0], *(1,) * (w.rank - 1)))
        return F.reshape_to(vector, ())

    one = F.cast(x, "float32") - F.cast(F.reshape_to(zx, ()), "float32")
    two = F.cast(w, "float32") - F.cast(rows(zw), "float32")
    made = _conv(
        F, one, two, None if bias is None else F.cast(bias, "float32"), auto_pad=auto_pad, dilations=dilations,
        group=group, kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    scales = F.reshape_to(sx, ()) * (
        rows(sw) if sw.rank == 0 or sw.shape[0] == 1 else F.reshape_to(sw, (1, -1, *(1,) * (w.rank - 2)))
    )
    return quantized(F, made * scales, sy, zy, element_types.name_for(zy))


@operator("DynamicQuantizeLinear", 11)
def _dynamic_quantize(F: Functions, x: Tensor) -> tuple[Tensor, ...]:
    axes = range(x.rank)
    least = F.broadcast_minimum(F.reduced("min", x, axes, False), 0.0)
    most = F.broadcast_maximum(F.reduced("max", x, axes, False), 0.0)
    scale = (most - least) / 255.0
    zero = F.to_even(F.clip(-least / scale, a_min=0.0, a_max=255.0))
    y = F.clip(F.to_even(x / scale) + zero, a_min=0.0, a_max=255.0)
    return F.cast(y, "uint8"), scale, F.cast(zero, "uint8")
