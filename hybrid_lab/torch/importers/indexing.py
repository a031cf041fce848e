"""ATen's operators that read and write by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.onnx.reading.importers.indexing import from_front, size_in_graph, written
from hybrid_lab.ops.framework.sizes import SymbolicSize
from hybrid_lab.torch.importers.functions import Functions, Result, Size, Tensor
from hybrid_lab.torch.importers.table import aten, onnx


@aten("embedding")
def _embedding(
    F: Functions, weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:  # fmt: skip
    rows, width = F.numbers(F.constant(np.array(weight.shape, object)), "the size of the table")
    found = F.Embedding(indices, weight, input_dim=rows, output_dim=width, dtype=weight.dtype.name)
    if padding_idx < 0:
        return found
    padding = F.truth(F.broadcast_equal(F.reshape_to(indices, (*indices.shape, 1)), padding_idx))
    return F.select(padding, F.BlockGrad(found), found)  # the row of the padding has no gradient


@aten("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(
    F: Functions, weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Result:  # fmt: skip
    if F.used & {1, 2, 3}:
        raise F.unsupported("the places and sizes of the bags are not supported as results")
    rows = _embedding(F, weight, indices, padding_idx)
    counted = F.cast(F.ones_like(indices), weight.dtype)
    if padding_idx >= 0:
        counted = F.cast(F.truth(F.broadcast_not_equal(indices, padding_idx)), weight.dtype)
    if offsets.every is not None:  # bags of one length: the rows of a matrix
        length = offsets.every
        bags = F.reshape_to(rows, (*offsets.shape, length, weight.shape[1]))
        inside = F.reshape_to(counted, (*offsets.shape, length, 1))
        weights = None if per_sample_weights is None else F.reshape_to(per_sample_weights, inside.shape)
    else:
        bags, inside = F.reshape_to(rows, (1, *rows.shape)), _membership(F, indices, offsets, include_last_offset)
        inside = inside * F.reshape_to(counted, (1, *counted.shape, 1))
        weights = None if per_sample_weights is None else F.reshape_to(per_sample_weights, (1, *counted.shape, 1))
    if mode == 2:
        least = F.like(float(np.finfo(weight.dtype).min), weight)
        made = F.max(F.select(F.truth(inside), bags, least), axis=(1,))
        empty = F.broadcast_equal(F.sum(inside, axis=(1,)), 0.0)
        return F.select(F.truth(empty), F.like(0.0, weight), made), None, None, None
    share = inside if weights is None else inside * weights
    made = F.sum(bags * share, axis=(1,))
    if mode == 1:
        made = made / F.broadcast_maximum(F.sum(inside, axis=(1,)), 1.0)
    return made, None, None, None


def _membership(F: Functions, indices: Tensor, offsets: Tensor, with_last: bool) -> Tensor:
    """(bags, indices, 1): 1 if an index lies in a bag. offsets : first index of each bag, in order"""
    line = F.reshape_to(_line(F, indices, 0), (1, indices.shape[0]))
    begun = F.cast(F.broadcast_lesser_equal(F.reshape_to(offsets, (offsets.shape[0], 1)), line), "float32")
    if with_last:
        first = F.slice_axis(begun, axis=0, begin=0, end=-1)
        last = F.slice_axis(begun, axis=0, begin=1, end=None)
        inside = first - last
    else:
        number = F.sum(begun, axis=(0,), keepdims=True) - 1.0
        bag = F.reshape_to(_line(F, offsets, 0), (offsets.shape[0], 1))
        inside = F.broadcast_equal(F.cast(bag, "float32"), number)
    return F.reshape_to(F.cast(inside, "float32"), (*inside.shape, 1))


@aten("multilabel_margin_loss", "multilabel_margin_loss_forward")
def _multilabel_margin_loss(F: Functions, x: Tensor, target: Tensor, reduction: int = 1) -> Result:
    """torch's own decomposition adds up the classes of other rows. target : in each row classes, up to the first -1"""
    if 1 in F.used:
        raise F.unsupported("the classes of the targets are not supported as a result")
    rows = x if x.rank == 2 else F.reshape_to(x, (1, *x.shape))
    classes = F.cast(target if x.rank == 2 else F.reshape_to(target, (1, *target.shape)), "int64")
    (count,) = F.numbers(F.constant(np.array(rows.shape[1:], object)), "the number of classes")
    line = F.line(count, 1, 2)
    end = F.min(F.select(F.truth(F.broadcast_equal(classes, -1)), line, F.like(count, line)), axis=(1,), keepdims=True)
    listed = F.truth(F.broadcast_lesser(line, end))
    chosen = F.select(listed, classes, F.like(0, classes))
    scores = F.reshape_to(F._gather_along(rows, chosen, axis=1), (*rows.shape, 1))
    counted = F.reshape_to(F.cast(listed, x.dtype), (*rows.shape, 1))
    hit = F.cast(F.broadcast_equal(F.reshape_to(chosen, (*rows.shape, 1)), F.line(count, 2, 3)), x.dtype) * counted
    others = 1.0 - F.max(hit, axis=(1,), keepdims=True)
    margin = F.relu(1.0 - scores + F.reshape_to(rows, (rows.shape[0], 1, rows.shape[1])))
    made = F.sum(margin * counted * others, axis=(1, 2)) / float(count)
    if reduction or x.rank == 1:
        made = F.reduced("mean" if reduction == 1 else "sum", made, (0,), False)
    return (made, None) if isinstance(F.result, (tuple, list)) else made


@aten("index_select")
def _index_select(F: Functions, x: Tensor, dim: int, index: Tensor) -> Tensor:
    return onnx("Gather")(F, x, index, axis=dim)


@aten("gather")
def _gather(F: Functions, x: Tensor, dim: int, index: Tensor, sparse_grad: bool = False) -> Tensor:
    return onnx("GatherElements")(F, x, index, axis=dim)


def _axes(F: Functions, x: Tensor, indices: Sequence[Tensor | None]) -> list[int]:
    for item in indices:
        if item is not None and item.dtype == bool:
            raise F.unsupported(
                "a mask as an index gives a shape that depends on the data; use torch.where(mask, x, 0) in its place"
            )
    return [axis for axis, item in enumerate(indices) if item is not None]


@aten("index", "_unsafe_index")
def _index(F: Functions, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    if all(item is None or item.array is not None for item in indices):
        indices = _without_masks(F, indices)
    axes = _axes(F, x, indices)
    chosen = [from_front(F, item, x.shape[axis]) for axis, item in enumerate(indices) if item is not None]
    if len(axes) == 1:
        return F.take(x, chosen[0], axis=axes[0])
    shape = _broadcast(F, chosen)
    rows = [F.expand_to(F.cast(item, "int64"), shape) for item in chosen]
    rest = [axis for axis in range(x.rank) if axis not in axes]
    made = F.gather_nd(F.transposed(x, [*axes, *rest]), F.stack(*rows, axis=0))
    if axes == list(range(axes[0], axes[0] + len(axes))) and axes[0]:  # neighbours: their axes stay where they are
        front = list(range(len(shape)))
        behind = list(range(len(shape), made.rank))
        return F.transposed(made, [*behind[: axes[0]], *front, *behind[axes[0] :]])
    return made


def _without_masks(F: Functions, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Known masks as the places where they hold."""
    found: list[Tensor | None] = []
    for item in indices:
        if item is not None and item.dtype == bool:
            found += [F.constant(places, np.int64) for places in np.nonzero(F.known(item, "a mask"))]
        else:
            found.append(item)
    return found


def _broadcast(F: Functions, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    rank = max(item.rank for item in tensors)
    shape: list[Any] = [1] * rank
    for item in tensors:
        for place, size in enumerate(item.shape, rank - item.rank):
            if isinstance(size, SymbolicSize) or size != 1:
                shape[place] = size
    return tuple(shape)


@aten("index_put", "_unsafe_index_put")
def _index_put(
    F: Functions, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype == bool and values.rank == 0:
        mask = indices[0]
        mask = F.reshape_to(mask, (*mask.shape, *(1,) * (x.rank - mask.rank)))
        return F.select(mask, x + values if accumulate else values, x)
    if all(item is None or item.array is not None for item in indices):
        indices = _without_masks(F, indices)
    axes = _axes(F, x, indices)
    shape = x.shape
    chosen = [
        F.cast(from_front(F, item, shape[axis]), "int64") for axis, item in enumerate(indices) if item is not None
    ]
    at = _broadcast(F, chosen)
    rest = [axis for axis in range(x.rank) if axis not in axes]
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    before = [axis for axis in rest if axis < axes[0]] if together else []
    after = [axis for axis in rest if axis not in before]
    whole = [*(shape[axis] for axis in before), *at, *(shape[axis] for axis in after)]
    total: Any = F.constant(np.zeros((1,) * len(whole)), np.int64)
    steps = [size_in_graph(F, _product(shape[axis + 1 :])) for axis in range(x.rank)]
    for axis, item in zip(axes, chosen, strict=True):
        item = F.reshape_to(item, (*(1,) * (len(at) - item.rank), *item.shape, *(1,) * len(after)))
        total = total + F.with_rank(item, len(whole)) * steps[axis]
    for axis in rest:
        place = before.index(axis) if axis in before else len(before) + len(at) + after.index(axis)
        line = _line(F, x, axis)
        total = total + F.reshape_to(line, [shape[axis] if k == place else 1 for k in range(len(whole))]) * steps[axis]
    places = F.expand_to(total, whole)
    new = F.expand_to(F.cast(values, x.dtype), whole)
    return written(F, x, places, new, "add" if accumulate else "none")


def _product(sizes: Sequence[Size]) -> Size:
    total: Any = 1
    for size in sizes:
        total = size * total
    return total


def _line(F: Functions, x: Tensor, axis: int) -> Tensor:
    """0, 1, ... along an axis of x."""
    size = x.shape[axis]
    return F.cast(F._contrib_arange_like(x, axis=axis), "int64") if isinstance(size, SymbolicSize) else F.line(size)


@aten("scatter")
def _scatter(F: Functions, x: Tensor, dim: int, index: Tensor, src: Any, *, reduce: str | None = None) -> Tensor:
    src = F.cast(F.operand(src), x.dtype)
    src = F.expand_to(src, index.shape) if src.rank == 0 else _cut(F, src, index)
    kind = {None: "none", "add": "add", "multiply": "mul"}[reduce]
    return onnx("ScatterElements")(F, x, index, src, axis=dim, reduction=kind)


@aten("scatter_add")
def _scatter_add(F: Functions, x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return onnx("ScatterElements")(F, x, index, _cut(F, src, index), axis=dim, reduction="add")


@aten("scatter_reduce")
def _scatter_reduce(
    F: Functions, x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    axis = F.axis(dim, x.rank)
    if (reduce, include_self) != ("sum", True) and _alike(x.shape, index.shape, axis):
        return _reduced_along(F, x, axis, index, _cut(F, src, index), reduce, include_self)
    kind = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}.get(reduce)
    if kind is None or not include_self:
        raise F.unsupported(
            f"reduce={reduce!r}, include_self={include_self} with indices that lack a part of the rows is not supported"
        )
    return onnx("ScatterElements")(F, x, index, _cut(F, src, index), axis=dim, reduction=kind)


def _alike(shape: Sequence[Size], other: Sequence[Size], axis: int) -> bool:
    """Whether two shapes are equal at all sizes, ignoring one axis."""
    pairs = [pair for place, pair in enumerate(zip(shape, other, strict=True)) if place != axis]
    return all(repr(one) == repr(two) for one, two in pairs)


def _reduced_along(
    F: Functions, x: Tensor, axis: int, index: Tensor, src: Tensor, reduce: str, include_self: bool
) -> Tensor:
    """Every number of x with the numbers of src whose index along the axis is its place."""
    order = [*(k for k in range(x.rank) if k != axis), axis]
    own, places, new = (F.transposed(item, order) for item in (x, index, src))
    (length,) = F.numbers(F.constant(np.array(own.shape[-1:], object)), "the length of the axis")
    places, new = (F.reshape_to(item, (*item.shape, 1)) for item in (F.cast(places, "int64"), new))
    here = F.truth(F.broadcast_equal(places, F.line(length, x.rank, x.rank + 1)))
    last = (x.rank - 1,)
    count = F.sum(F.cast(here, x.dtype), axis=last)
    limits: Any = np.finfo(x.dtype) if x.is_floating else np.iinfo(x.dtype)
    neutral = {"amax": limits.min, "amin": limits.max, "prod": 1}.get(reduce, 0)
    chosen = F.select(here, new, F.like(neutral, x))
    if reduce == "amax":
        made = F.max(chosen, axis=last)
        made = F.broadcast_maximum(own, made) if include_self else made
    elif reduce == "amin":
        made = F.min(chosen, axis=last)
        made = F.broadcast_minimum(own, made) if include_self else made
    elif reduce == "prod":
        made = F.prod(chosen, axis=last)
        made = own * made if include_self else made
    else:
        made = F.sum(chosen, axis=last)
        made = own + made if include_self else made
        if reduce == "mean":
            made = made / F.broadcast_maximum(count + 1.0 if include_self else count, 1.0)
    if not include_self:
        made = F.select(F.truth(count), made, own)
    return F.transposed(made, [order.index(k) for k in range(x.rank)])


def _cut(F: Functions, src: Tensor, index: Tensor) -> Tensor:
    """The part of the source that the indices stand for."""
    for axis, (own, wanted) in enumerate(zip(src.shape, index.shape, strict=True)):
        if own is not wanted and own != wanted:
            src = F.slice_axis(src, axis=axis, begin=0, end=wanted)
    return src


@aten("index_add")
def _index_add(F: Functions, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    axis = F.axis(dim, x.rank)
    places: list[Tensor | None] = [None] * axis
    return _index_put(F, x, [*places, index], source if alpha == 1 else source * alpha, True)


@aten("index_copy")
def _index_copy(F: Functions, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    places: list[Tensor | None] = [None] * F.axis(dim, x.rank)
    return _index_put(F, x, [*places, index], source)


@aten("one_hot")
def _one_hot(F: Functions, x: Tensor, num_classes: int = -1) -> Tensor:
    if num_classes < 0:
        raise F.unsupported("num_classes must be given; the largest number in the data is not known at the import")
    return F.one_hot(x, depth=num_classes, dtype="int64")


@aten("masked_scatter", "nonzero", "unique_dim", "_unique2", "masked_select", "_local_scalar_dense", "item", "bincount")
def _depends_on_data(F: Functions, x: Tensor, *_: object, **__: object) -> Any:
    raise F.unsupported(
        "its result has a shape or is a number that depends on the data, and no graph has that. Leave this part out of "
        "the module that is imported, or compute with masks (torch.where)"
    )
