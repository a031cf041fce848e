"""Products of `mx.np`: dot, matmul, tensordot, einsum and their relatives, made of matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.diagnostics.formatting import dimensions
from hybrid_lab.numpy.methods import FUNCTIONS
from hybrid_lab.numpy.operators import R, alike, as_tensor, is_tensor, known_rank, rank_of, shape_of, write
from hybrid_lab.numpy.shaping import broadcast_to, ravel, reshape, sizes_of, transpose
from hybrid_lab.numpy.types import ArrayLike, Out, Tensor
from hybrid_lab.ops.linalg import numpy_products as _products


def _tensors(*items: ArrayLike) -> tuple[Tensor, ...]:
    return alike(*(as_tensor(item) for item in items))


@FUNCTIONS.add
def dot(a: ArrayLike, b: ArrayLike, out: Out = None) -> Tensor:
    """The product of matrices or vectors: the last axis of a with the last but one of b (a vector's only one)."""
    if not is_tensor(a) or not is_tensor(b):
        return write(out, FUNCTIONS["multiply"](a, b))
    a, b = _tensors(a, b)
    first, second = rank_of(a), rank_of(b)
    if first is None or second is None:
        return write(out, R._np_dot(a, b))
    return write(out, cast("Tensor", _products.dot(R, a, b, (first, second))))


@FUNCTIONS.add
def matmul(a: ArrayLike, b: ArrayLike, out: Out = None, **options: object) -> Tensor:
    """The matrix product of the last two axes; the axes before them broadcast."""
    if not is_tensor(a) and not hasattr(a, "shape") or not is_tensor(b) and not hasattr(b, "shape"):
        raise ValueError("matmul: scalar operands are not allowed, use '*' instead")
    a, b = _tensors(a, b)
    first, second = known_rank(a), known_rank(b)
    if first == 0 or second == 0:
        raise ShapeError("matmul: arrays without axes are not allowed, use '*' instead")
    if first <= 2 and second <= 2 or second == 1:
        return write(out, dot(a, b))
    if first == 1:
        return write(out, R._drop_axes(matmul(R.expand_dims(a, axis=0), b), axis=(-2,)))
    left, right = shape_of(a), shape_of(b)
    if second == 2:  # one matrix for all: rows are rows
        return write(out, R.dot(a, b))
    batch = _broadcast("matmul", left[:-2], right[:-2])
    if left[-1] != right[-2]:
        raise ShapeError(f"matmul: the shapes {left} and {right} do not fit: {left[-1]} and {right[-2]}")
    a = reshape(broadcast_to(a, (*batch, *left[-2:])), (prod(batch), *left[-2:]))
    b = reshape(broadcast_to(b, (*batch, *right[-2:])), (prod(batch), *right[-2:]))
    return write(out, reshape(R.batch_dot(a, b), (*batch, left[-2], right[-1])))


def _broadcast(function: str, *shapes: Sequence[int]) -> tuple[int, ...]:
    from numpy import broadcast_shapes

    try:
        return tuple(broadcast_shapes(*map(tuple, shapes)))
    except ValueError as error:
        raise ShapeError(f"{function}: {error}") from None


@FUNCTIONS.add
def tensordot(a: ArrayLike, b: ArrayLike, axes: int | Sequence[int | Sequence[int]] = 2) -> Tensor:
    """The sums of products over axes: a number of them, or two lists that belong together."""
    a, b = _tensors(a, b)
    summed = axes if isinstance(axes, int) else (sizes_of(axes[0]), sizes_of(axes[1]))
    if rank_of(a) is None or rank_of(b) is None:
        attributes = {"axes": axes} if isinstance(summed, int) else {"a_axes": summed[0], "b_axes": summed[1]}
        return R._np_tensordot(a, b, **attributes)
    shapes = shape_of(a), shape_of(b)
    return cast("Tensor", _products.tensordot(R, a, b, summed, *shapes))


@FUNCTIONS.add
def inner(a: ArrayLike, b: ArrayLike) -> Tensor:
    """The sums of products over the last axes."""
    a, b = _tensors(a, b)
    first, second = rank_of(a), rank_of(b)
    if first is None or second is None:
        return R._np_tensordot(a, b, a_axes=(-1,), b_axes=(-1,), inner=True)
    return tensordot(a, b, ([-1], [-1])) if first and second else R.broadcast_mul(a, b)


@FUNCTIONS.add
def outer(a: ArrayLike, b: ArrayLike) -> Tensor:
    """All products of an element of a with an element of b."""
    a, b = _tensors(a, b)
    return R.broadcast_mul(R.Reshape(ravel(a), shape=(-1, 1)), R.Reshape(ravel(b), shape=(1, -1)))


@FUNCTIONS.add
def vdot(a: ArrayLike, b: ArrayLike) -> Tensor:
    """The sum of the products of the flattened arrays."""
    a, b = _tensors(a, b)
    return cast("Tensor", _products.dot(R, ravel(a), ravel(b), (1, 1)))


@FUNCTIONS.add
def kron(a: ArrayLike, b: ArrayLike) -> Tensor:
    """The Kronecker product."""
    a, b = _tensors(a, b)
    rank = max(known_rank(a), known_rank(b))
    left = (*(1,) * (rank - known_rank(a)), *shape_of(a))
    right = (*(1,) * (rank - known_rank(b)), *shape_of(b))
    apart = [tuple(n for size in left for n in (size, 1)), tuple(n for size in right for n in (1, size))]
    both = R.broadcast_mul(reshape(a, apart[0]), reshape(b, apart[1]))
    return reshape(both, tuple(m * n for m, n in zip(left, right, strict=True)))


@FUNCTIONS.add
def cross(
    a: ArrayLike, b: ArrayLike, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Tensor:
    """The vector product of vectors of two or three numbers."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = _tensors(a, b)
    move = FUNCTIONS["moveaxis"]
    a, b = move(a, axisa, -1), move(b, axisb, -1)
    sizes = shape_of(a)[-1], shape_of(b)[-1]
    if not {2, 3}.issuperset(sizes):
        raise ShapeError(f"cross: vectors of 2 or 3 numbers are needed, not {sizes}")
    take = FUNCTIONS["take"]
    x = [take(a, index, axis=-1) if index < sizes[0] else None for index in range(3)]
    y = [take(b, index, axis=-1) if index < sizes[1] else None for index in range(3)]

    def minor(first: int, second: int) -> Tensor:
        terms = [(x[first], y[second], 1.0), (x[second], y[first], -1.0)]
        made = [R.broadcast_mul(R.broadcast_mul(u, v), sign) for u, v, sign in terms if u is not None and v is not None]
        return made[0] if len(made) == 1 else R.broadcast_add(*made)

    if sizes == (2, 2):
        return minor(0, 1)
    return move(FUNCTIONS["stack"]([minor(1, 2), minor(2, 0), minor(0, 1)], axis=-1), -1, axisc)


# -- einsum --------------------------------------------------------------------------------------------------------


@FUNCTIONS.add
def einsum(*operands: Any, out: Out = None, optimize: object = False, **options: object) -> Tensor:
    """Sums of products by labels of axes: `np.einsum("ij,jk->ik", a, b)`. Operands are joined two by two, from the
    left, by a matrix product.

    ```python
    np.einsum("ij,jk->ik", np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
    ```
    """
    if len(operands) < 2 or not isinstance(operands[0], str):
        raise AttributeSpecError("einsum: labels such as 'ij,jk->ik' come first, and then the arrays")
    text, *arrays = operands
    tensors = _tensors(*arrays)
    inputs, output = _labels(text, [shape_of(item) for item in tensors])
    if len(inputs) != len(tensors):
        raise ValueError(f"einsum: {text!r} has {len(inputs)} operands, {len(tensors)} were given")
    current, labels = _single(tensors[0], inputs[0])
    sizes: dict[str, int] = {}
    for index in range(1, len(tensors)):
        later = set(output).union(*inputs[index + 1 :])
        other, others = _single(tensors[index], inputs[index])
        current, labels = _pair(current, labels, other, others, later, sizes)
    gone = tuple(index for index, label in enumerate(labels) if label not in output)
    if gone:
        current = FUNCTIONS["sum"](current, axis=gone)
        labels = [label for label in labels if label in output]
    if labels != list(output):
        current = transpose(current, [labels.index(label) for label in output])
    return write(out, current)


def _labels(text: str, shapes: Sequence[Sequence[int]]) -> tuple[list[list[str]], list[str]]:
    """The labels of each operand and of the result; axes of `...` are labelled by numbers counted from the right."""
    text = text.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ValueError(f"einsum: {text!r} has {len(terms)} operands, {len(shapes)} were given")
    inputs, widest = [], 0
    for term, shape in zip(terms, shapes, strict=True):
        named = len(term.replace("...", ""))
        extra = len(shape) - named
        if extra < 0 or (extra and "..." not in term):
            raise ValueError(f"einsum: {term!r} does not fit an array with {dimensions(len(shape))}")
        widest = max(widest, extra)
        head, _, tail = term.partition("...")
        inputs.append([*head, *(str(number) + "." for number in range(extra - 1, -1, -1) if "..." in term), *tail])
    dots = [f"{number}." for number in range(widest - 1, -1, -1)]
    if arrow:
        head, found, tail = right.partition("...")
        return inputs, [*head, *(dots if found else ()), *tail]
    every = [label for term in inputs for label in term]
    return inputs, [*dots, *sorted({label for label in every if every.count(label) == 1 and "." not in label})]


def _single(tensor: Tensor, labels: list[str]) -> tuple[Tensor, list[str]]:
    """The tensor with each label once: repeated ones take the diagonal."""
    labels = list(labels)
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            tensor = FUNCTIONS["diagonal"](tensor, 0, first, second)
            labels = [each for index, each in enumerate(labels) if index not in (first, second)] + [label]
    return tensor, labels


def _pair(
    a: Tensor, ours: list[str], b: Tensor, theirs: list[str], later: set[str], sizes: dict[str, int]
) -> tuple[Tensor, list[str]]:
    """Both as one tensor, summed over the labels without later use."""
    for tensor, labels in ((a, ours), (b, theirs)):
        for label, size in zip(labels, shape_of(tensor), strict=True):
            if sizes.get(label, 1) not in (1, size) and size != 1:
                raise ShapeError(f"einsum: the label {label!r} has the sizes {sizes[label]} and {size}")
            sizes[label] = max(sizes.get(label, 1), size) if size else 0
    a, ours = _without(a, ours, later | set(theirs))
    b, theirs = _without(b, theirs, later | set(ours))
    batch = [label for label in ours if label in theirs and label in later]
    shared = [label for label in ours if label in theirs and label not in later]
    rows = [label for label in ours if label not in theirs]
    columns = [label for label in theirs if label not in ours]
    groups = [prod(sizes[label] for label in group) for group in (batch, rows, shared, columns)]
    a = _arranged(a, ours, [*batch, *rows, *shared], sizes, (groups[0], groups[1], groups[2]))
    b = _arranged(b, theirs, [*batch, *shared, *columns], sizes, (groups[0], groups[2], groups[3]))
    result = [*batch, *rows, *columns]
    return reshape(R.batch_dot(a, b), tuple(sizes[label] for label in result)), result


def _without(tensor: Tensor, labels: list[str], needed: set[str]) -> tuple[Tensor, list[str]]:
    gone = tuple(index for index, label in enumerate(labels) if label not in needed)
    return (FUNCTIONS["sum"](tensor, axis=gone) if gone else tensor), [label for label in labels if label in needed]


def _arranged(
    tensor: Tensor, labels: list[str], order: list[str], sizes: dict[str, int], shape: tuple[int, int, int]
) -> Tensor:
    if labels != order:
        tensor = transpose(tensor, [labels.index(label) for label in order])
    return reshape(broadcast_to(tensor, tuple(sizes[label] for label in order)), shape)
