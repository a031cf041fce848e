"""ATen's operators that move elements: views, transposes, cutting, joining, padding, repeating."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hybrid_lab.onnx.reading.importers.arrays import padded
from hybrid_lab.ops.framework.sizes import SymbolicSize
from hybrid_lab.torch.importers.functions import Axes, Functions, Operand, Result, Size, Tensor, ints
from hybrid_lab.torch.importers.table import aten, onnx


@aten("view", "_unsafe_view", "reshape", "view_copy", "_reshape_copy")
def _view(F: Functions, x: Tensor, size: Sequence[Size]) -> Tensor:
    if isinstance(size, np.dtype):
        raise F.unsupported("elements viewed in another dtype are not supported")
    sizes = ints(F, size)
    return onnx("Reshape")(F, x, F.constant(np.array(sizes, object).reshape(-1)), allowzero=1)


@aten("unsqueeze", "unsqueeze_copy")
def _unsqueeze(F: Functions, x: Tensor, dim: int) -> Tensor:
    place = F.axis(dim, x.rank + 1)
    return F.reshape_to(x, (*x.shape[:place], 1, *x.shape[place:]))


@aten("squeeze", "squeeze_copy")
def _squeeze(F: Functions, x: Tensor, dim: Axes = None) -> Tensor:
    axes = range(x.rank) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {F.axis(axis, x.rank) for axis in axes}
    return F.reshape_to(
        x, [n for place, n in enumerate(x.shape) if place not in gone or isinstance(n, SymbolicSize) or n != 1]
    )


@aten("permute", "permute_copy")
def _permute(F: Functions, x: Tensor, dims: Sequence[int]) -> Tensor:
    return F.transposed(x, [F.axis(dim, x.rank) for dim in dims])


@aten("transpose")
def _transpose(F: Functions, x: Tensor, dim0: int, dim1: int) -> Tensor:
    order = list(range(x.rank))
    one, two = F.axis(dim0, x.rank), F.axis(dim1, x.rank)
    order[one], order[two] = two, one
    return F.transposed(x, order)


@aten("t")
def _t(F: Functions, x: Tensor) -> Tensor:
    return F.transposed(x, tuple(range(x.rank))[::-1])


@aten("expand", "expand_copy")
def _expand(F: Functions, x: Tensor, size: Sequence[Size], *, implicit: bool = False) -> Tensor:
    sizes = ints(F, size)
    extra = len(sizes) - x.rank
    kept = [1 if not isinstance(n, SymbolicSize) and n == -1 and place >= extra else n for place, n in enumerate(sizes)]
    return F.expand_to(x, kept)


@aten("repeat")
def _repeat(F: Functions, x: Tensor, repeats: Sequence[Size]) -> Tensor:
    counts = ints(F, repeats)
    x = F.with_rank(x, len(counts))
    return onnx("Tile")(F, x, F.constant(np.array(counts, object).reshape(-1))) if counts else x


@aten("cat", "concat")
def _cat(F: Functions, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    filled = [x for x in tensors if x.shape != (0,)] or list(tensors)  # torch leaves out empty vectors
    return onnx("Concat")(F, *(F.cast(x, F.dtype) for x in filled), axis=dim)


@aten("stack")
def _stack(F: Functions, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return _cat(F, [_unsqueeze(F, x, dim) for x in tensors], dim)


@aten("split_with_sizes", "split_with_sizes_copy")
def _split_with_sizes(F: Functions, x: Tensor, split_sizes: Sequence[Size], dim: int = 0) -> Result:
    return onnx("Split")(F, x, F.constant(np.array(ints(F, split_sizes), object)), axis=dim)


@aten("split")
def _split(F: Functions, x: Tensor, split_size: int | Sequence[Size], dim: int = 0) -> Result:
    if not isinstance(split_size, int):
        return _split_with_sizes(F, x, split_size, dim)
    (size,) = F.numbers(F.constant(np.array([x.shape[F.axis(dim, x.rank)]], object)), "the length of the axis")
    lengths = [min(split_size, size - start) for start in range(0, size, split_size)]
    return _split_with_sizes(F, x, lengths, dim)


@aten("chunk")
def _chunk(F: Functions, x: Tensor, chunks: int, dim: int = 0) -> Result:
    (size,) = F.numbers(F.constant(np.array([x.shape[F.axis(dim, x.rank)]], object)), "the length of the axis")
    return _split(F, x, -(-size // chunks), dim)


@aten("unbind")
def _unbind(F: Functions, x: Tensor, dim: int = 0) -> Result:
    (size,) = F.numbers(F.constant(np.array([x.shape[F.axis(dim, x.rank)]], object)), "the length of the axis")
    return [_select(F, x, dim, place) for place in range(size)]


@aten("slice", "slice_copy")
def _slice(
    F: Functions, x: Tensor, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1
) -> Tensor:
    far = 2**62
    bounds = [F.constant(np.array([n], object)) for n in (0 if start is None else start, far if end is None else end)]
    return onnx("Slice")(F, x, *bounds, F.constant([dim], np.int64), F.constant([step], np.int64))


@aten("select", "select_copy")
def _select(F: Functions, x: Tensor, dim: int, index: Tensor | Size) -> Tensor:
    axis = F.axis(dim, x.rank)
    shape = [size for place, size in enumerate(x.shape) if place != axis]
    if isinstance(index, (Tensor, SymbolicSize)):
        return F.take(x, F.operand(index), axis=axis)
    last = index == -1
    return F.reshape_to(F.slice_axis(x, axis=axis, begin=index, end=None if last else index + 1), shape)


@aten("narrow")
def _narrow(F: Functions, x: Tensor, dim: int, start: int, length: int) -> Tensor:
    return _slice(F, x, dim, start, start + length)


@aten("flip")
def _flip(F: Functions, x: Tensor, dims: Sequence[int]) -> Tensor:
    return F.reverse(x, axis=tuple(F.axis(dim, x.rank) for dim in dims)) if dims else x


@aten("roll")
def _roll(F: Functions, x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    if not dims:
        return F.reshape_to(_roll(F, F.reshape_to(x, (-1,)) if x.rank != 1 else x, shifts, (0,)), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        axis = F.axis(dim, x.rank)
        (size,) = F.numbers(F.constant(np.array([x.shape[axis]], object)), "the length of the axis")
        cut = -shift % size if size else 0
        if cut:
            x = F.Concat(
                F.slice_axis(x, axis=axis, begin=cut, end=None), F.slice_axis(x, axis=axis, begin=0, end=cut), dim=axis
            )
    return x


@aten("diagonal", "diagonal_copy")
def _diagonal(F: Functions, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    return F.diag(x, k=offset, axis1=F.axis(dim1, x.rank), axis2=F.axis(dim2, x.rank))


@aten("tril")
def _tril(F: Functions, x: Tensor, diagonal: int = 0) -> Tensor:
    return _triangle(F, x, diagonal, 0)


@aten("triu")
def _triu(F: Functions, x: Tensor, diagonal: int = 0) -> Tensor:
    return _triangle(F, x, diagonal, 1)


def _triangle(F: Functions, x: Tensor, diagonal: int, upper: int) -> Tensor:
    made = onnx("Trilu")(F, F.cast(x, "int32") if x.dtype == bool else x, F.constant(diagonal, np.int64), upper=upper)
    return F.truth(made) if x.dtype == bool else made


@aten("unfold", "unfold_copy")
def _unfold(F: Functions, x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    axis = F.axis(dimension, x.rank)
    (length,) = F.numbers(F.constant(np.array([x.shape[axis]], object)), "the length of the axis")
    places = np.arange(0, length - size + 1, step)[:, None] + np.arange(size)
    made = F.take(x, F.constant(places, np.int64), axis=axis)
    return F.transposed(made, [place for place in range(made.rank) if place != axis + 1] + [axis + 1])


@aten("as_strided")
def _as_strided(F: Functions, x: Tensor, size: Sequence[Size], stride: Sequence[Size], **_: object) -> Tensor:
    raise F.unsupported("strides of memory are not supported; use reshape, permute or unfold")


# -- writing into parts ----------------------------------------------------------------------------------------------


@aten("slice_scatter")
def _slice_scatter(
    F: Functions, x: Tensor, src: Tensor, dim: int = 0, start: Size | None = None, end: Size | None = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    axis = F.axis(dim, x.rank)
    size = x.shape[axis]
    src = (
        F.expand_to(F.cast(src, x.dtype), [src.shape[axis] if k == axis else n for k, n in enumerate(x.shape)])
        if src.rank == x.rank
        else src
    )
    whole = (start is None or start == 0) and (
        end is None
        or (not isinstance(end, SymbolicSize) and end >= 2**31)
        or end is size
        or (isinstance(end, int) and isinstance(size, int) and end >= size)
    )
    if whole and step == 1:
        return src
    (size,) = F.numbers(F.constant(np.array([size], object)), "the length of the axis")
    first, last, _ = slice(start, end, step).indices(size)
    if step != 1:
        table = np.full(size, -1)
        table[first:last:step] = np.arange(len(range(first, last, step)))
        joined = F.Concat(x, src, dim=axis)
        return F.take(joined, F.constant(np.where(table < 0, np.arange(size), table + size), np.int64), axis=axis)
    parts = [F.slice_axis(x, axis=axis, begin=0, end=first)] if first else []
    parts.append(src)
    if last < size:
        parts.append(F.slice_axis(x, axis=axis, begin=last, end=None))
    return F.Concat(*parts, dim=axis) if len(parts) > 1 else parts[0]


@aten("select_scatter")
def _select_scatter(F: Functions, x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    axis = F.axis(dim, x.rank)
    (size,) = F.numbers(F.constant(np.array([x.shape[axis]], object)), "the length of the axis")
    place = index % size
    return _slice_scatter(F, x, _unsqueeze(F, src, axis), axis, place, place + 1)


@aten("copy")
def _copy(F: Functions, x: Tensor, src: Operand, non_blocking: bool = False) -> Tensor:
    return F.expand_to(F.cast(F.operand(src), x.dtype), x.shape)


@aten("fill")
def _fill(F: Functions, x: Tensor, value: Operand) -> Tensor:
    return F.expand_to(F.cast(F.operand(value), x.dtype), x.shape)


# -- padding ---------------------------------------------------------------------------------------------------------


def _pads(rank: int, pad: Sequence[int]) -> list[int]:
    """ATen's padding, the last axis first, as ONNX's."""
    before, after = [0] * rank, [0] * rank
    for number in range(len(pad) // 2):
        before[rank - 1 - number], after[rank - 1 - number] = pad[2 * number], pad[2 * number + 1]
    return [*before, *after]


@aten("constant_pad_nd")
def _constant_pad(F: Functions, x: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    return padded(F, x, _pads(x.rank, pad), "constant", value)


@aten("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def _reflection_pad(F: Functions, x: Tensor, padding: Sequence[int]) -> Tensor:
    return padded(F, x, _pads(x.rank, padding), "reflect")


@aten("replication_pad1d", "replication_pad2d", "replication_pad3d")
def _replication_pad(F: Functions, x: Tensor, padding: Sequence[int]) -> Tensor:
    return padded(F, x, _pads(x.rank, padding), "edge")


@aten("pixel_shuffle")
def _pixel_shuffle(F: Functions, x: Tensor, upscale_factor: int) -> Tensor:
    return onnx("DepthToSpace")(F, x, blocksize=upscale_factor, mode="CRD")


@aten("pixel_unshuffle")
def _pixel_unshuffle(F: Functions, x: Tensor, downscale_factor: int) -> Tensor:
    return onnx("SpaceToDepth")(F, x, blocksize=downscale_factor, mode="CRD")
