"""Where an element lies: whole-number formulas over the variables of a kernel, merged as far as they go.

A kernel counts the elements of its space with few variables: `offsets` over all elements, or `row` and `col`. The place
of an element along an axis is then a digit of such a variable, `(offsets // 280) % 3`, and its place in memory a sum of
digits times strides. Neighbouring digits that stay neighbours in memory are one again, so that a contiguous operand is
read at `offsets`, and a transposed or broadcast operand at the fewest digits.

The size of a variable's highest digit is never printed: another batch gives the same text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from hybrid_lab.engines.triton.write.reuse import shown
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.ops.arrays.movement import Permutation
from hybrid_lab.ops.framework.run import run_kernel
from hybrid_lab.ops.framework.sizes import BoundSize

#: Arguments such as strides should be multiples of this: one instruction loads NEIGHBOURS numbers.
NEIGHBOURS = 4
#: (strides along the axes of the view, its first element), in elements
Strides = tuple[tuple[int, ...], int]


#: A digit of a variable, (variable // below) % size: the variable's name, how many values it has, below, size.
Digit = tuple[str, int, int, int]


class Index(NamedTuple):
    """constant + the sum of coefficient * digit; `terms` holds (digit, coefficient), large coefficients first."""

    terms: tuple[tuple[Digit, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(terms: dict[Digit, int], constant: int = 0) -> Index:
        """The normal form: no digit of size 1, neighbours merged."""
        left = {digit: factor for digit, factor in terms.items() if factor and digit[3] > 1}
        if len(left) < 2:
            return Index(tuple(left.items()), constant)
        ordered = sorted(left.items(), key=lambda item: (-abs(item[1]), item[0][0], -item[0][2]))
        merged: list[tuple[Digit, int]] = []
        for digit, factor in ordered:
            place = next((number for number, item in enumerate(merged) if _continues(item, (digit, factor))), None)
            if place is None:
                merged.append((digit, factor))
            else:
                name, length, below, size = digit
                merged.append(((name, length, below, size * merged.pop(place)[0][3]), factor))
        return Index(tuple(merged), constant)

    def digits(self, shape: Sequence[int]) -> tuple[Index, ...]:
        """The place along each axis of `shape`, whose elements this variable counts row by row."""
        if not self.terms:  # a variable of one value
            return (ZERO,) * len(shape)
        ((name, length, _, _), _), below, digits = self.terms[0], prod(shape), []
        for size in shape:
            below //= max(size, 1)
            digits.append(Index((((name, length, below, size), 1),)) if size > 1 else ZERO)
        return tuple(digits)

    def __add__(self, other: Index | int) -> Index:  # type: ignore[override]
        if isinstance(other, int):
            return Index(self.terms, self.constant + other)
        total = dict(self.terms)
        for digit, factor in other.terms:
            total[digit] = total.get(digit, 0) + factor
        return Index.of(total, self.constant + other.constant)

    def __mul__(self, factor: int) -> Index:  # type: ignore[override]
        return Index.of({digit: factor * item for digit, item in self.terms}, self.constant * factor)

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables it depends on, sorted."""
        if len(self.terms) == 1:
            return (self.terms[0][0][0],)
        return tuple(sorted({digit[0] for digit, _ in self.terms}))

    @property
    def largest(self) -> int:
        """The largest value it takes."""
        return self.constant + sum(factor * (digit[3] - 1) for digit, factor in self.terms if factor > 0)

    @property
    def smallest(self) -> int:
        return self.constant + sum(factor * (digit[3] - 1) for digit, factor in self.terms if factor < 0)

    def __str__(self) -> str:
        """A sum without brackets around it: text beside it has to add them."""
        return _summed([(_printed(digit), factor) for digit, factor in self.terms], self.constant)


ZERO = Index()
#: The index of an element along each axis of an array.
Place = tuple[Index, ...]


def variable(name: str, length: int) -> Index:
    """A variable of a kernel. name : as kernels print it; length : how many values it runs through"""
    return Index((((name, length, 1, length), 1),)) if length > 1 else ZERO


def variables_of(place: Iterable[Index]) -> list[str]:
    """The names of the variables that the indices of a place depend on."""
    return [name for index in place for name in index.variables]


def linear(index: Iterable[Index], shape: Sequence[int]) -> Index:
    """The number of an element of `shape`, counted row by row."""
    return strided(index, strides_of(shape))


def strided(index: Iterable[Index], strides: Sequence[int], start: int = 0) -> Index:
    """start + the sum of index * stride, in elements."""
    total: dict[Digit, int] = {}
    for item, stride in zip(index, strides, strict=True):
        start += item.constant * stride
        for digit, factor in item.terms:
            total[digit] = total.get(digit, 0) + factor * stride
    return Index.of(total, start)


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous array, in elements."""
    strides, below = [], 1
    for size in reversed(shape):
        strides.append(below)
        below *= size
    return tuple(reversed(strides))


def unravel(number: Index, shape: Sequence[int]) -> tuple[Index, ...] | None:
    """The places along the axes of element `number` of `shape`; None if the formula does not come apart.

    Digits are cut where an axis ends: `offsets` of 12 elements is (offsets // 4, offsets % 4) of shape (3, 4).
    """
    if number.constant or any(factor < 0 for _, factor in number.terms):
        return _with_constant(number, shape)
    strides = strides_of(shape)
    places: list[dict[Digit, int]] = [{} for _ in shape]
    for digit, factor in number.terms:
        name, length, below, size = digit
        for axis in reversed(range(len(shape))):
            stride, end = strides[axis], strides[axis] * shape[axis]
            if size == 1 or factor >= end or shape[axis] == 1:
                continue
            if factor % stride:
                return None
            inner = size if factor * size <= end else end // factor
            if inner != size and (end % factor or size % inner):
                return None
            places[axis][name, length, below, inner] = factor // stride
            below, size, factor = below * inner, size // inner, factor * inner
        if size > 1:
            return None
    indices = tuple(Index.of(place) for place in places)
    if any(item.largest >= size for item, size in zip(indices, shape, strict=True)):
        return None
    return indices


def _with_constant(number: Index, shape: Sequence[int]) -> tuple[Index, ...] | None:
    """As unravel, if a slice moved or turned the axes: each axis takes its part of the constant."""
    steps = unravel_number(number.smallest, shape)
    positive = Index.of({digit: abs(factor) for digit, factor in number.terms})
    places = unravel(positive, shape)
    if places is None:
        return None
    signs = {digit: factor < 0 for digit, factor in number.terms}
    indices = []
    for place, start, size in zip(places, steps, shape, strict=True):
        total, offset = {}, start
        for digit, factor in place.terms:
            negative = _sign_of(digit, signs)
            if negative is None:
                return None
            total[digit] = -factor if negative else factor
            offset += factor * (digit[3] - 1) if negative else 0
        item = Index.of(total, offset)
        if item.largest >= size or item.smallest < 0:
            return None
        indices.append(item)
    return tuple(indices)


def _sign_of(digit: Digit, signs: dict[Digit, bool]) -> bool | None:
    """Whether a part of a digit counts downwards."""
    for (name, _, below, size), negative in signs.items():
        if name == digit[0] and below <= digit[2] and digit[2] * digit[3] <= below * size:
            return negative
    return None


def unravel_number(number: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The places of one element."""
    indices = []
    for stride, size in zip(strides_of(shape), shape, strict=True):
        indices.append(number // stride % size)
    return tuple(indices)


def formula(index: Index, lengths: Mapping[str, str]) -> str:
    """The index with arguments of the kernel for strides: `row * columns + column` for row * 320 + column.

    lengths : name of a variable -> argument with its length
    So arrays of other sizes have the same text. If the length has a factor 2, 4 or 8 but not 16, the stride stays a
    number: from a number the compiler knows all factors, from an argument at most the multiple for one load.
    """
    parts: list[tuple[str, int]] = []
    for digit, factor in index.terms:
        name, length, below, size = digit
        whole = below == 1 and size == length and name in lengths
        follows = parts and whole and factor > 0 and parts[-1][1] == factor * size
        if follows and (factor % 16 == 0 or size % 2 == 1 or size % 16 == 0):
            high = parts[-1][0]
            high = f"({high})" if " " in high else high
            parts[-1] = f"{high} * {lengths[name]} + {name}", factor
        else:
            parts.append((_printed(digit), factor))
    return _summed(parts, index.constant)


def _continues(high: tuple[Digit, int], low: tuple[Digit, int]) -> bool:
    """Whether two digits of one variable, one above the other, stay neighbours in the sum."""
    (name, _, below, _), factor = high
    (other, _, other_below, other_size), other_factor = low
    return name == other and below == other_below * other_size and factor == other_factor * other_size


def _printed(digit: Digit) -> str:
    text, length, below, size = digit
    if below > 1:
        text = f"{text} // {shown(below, NEIGHBOURS)}"
    if below * size < length:
        text = f"({text}) % {shown(size)}" if below > 1 else f"{text} % {shown(size, NEIGHBOURS)}"
    return text


def _summed(parts: Sequence[tuple[str, int]], constant: int) -> str:
    """The sum of texts times numbers, and a number; subtracted terms come last."""
    text = " + ".join([_times(part, factor) for part, factor in parts if factor > 0])
    for part, factor in parts:
        if factor < 0:
            text += f" - {_times(part, -factor)}" if text else f"0 - {_times(part, -factor)}"
    if constant:
        number = shown(abs(constant) if text else constant, NEIGHBOURS)
        text += f" {'-' if constant < 0 else '+'} {number}" if text else number
    return text or "0"


def _times(text: str, factor: int) -> str:
    if factor == 1:
        return text
    number = shown(factor, NEIGHBOURS)
    return f"({text}) * {number}" if " " in text else f"{text} * {number}"


# -- views -------------------------------------------------------------------------------------------------------------


def strides_in(node: Node, output: int) -> Strides | None:
    """The strides of a view's output in its first input, which lies in C order; None if the output is a copy.

    The record's NumPy kernel makes the view of an empty array, and NumPy says its strides, as plain numbers. For sizes
    that are bound symbols (see reuse.py) the strides are also computed from the sizes, and used if both agree.
    """
    known = _of_numpy(node, output)
    if known is None or not any(type(size) is BoundSize for value in node.values_in for size in value.shape):
        return known
    computed = _computed(node, output)
    if computed is None:
        return known
    pairs = zip(computed[0], known[0], node.outputs[output].shape, strict=True)
    equal = computed[1] == known[1] and all(a == b or size == 1 for a, b, size in pairs)
    return computed if equal else known


def _of_numpy(node: Node, output: int) -> Strides | None:
    # Arrays of many GiB are of bytes here: nothing is written, but a machine may not promise as much memory.
    far = any(value.nbytes >= 1 << 31 for value in node.values_in)
    templates = [
        np.empty(item.shape, np.uint8 if far else item.dtype) if isinstance(item, Value) else item
        for item in node.inputs
    ]
    result = run_kernel(node.op, templates)[output]
    if not np.may_share_memory(result, templates[0]):
        return None
    size = templates[0].dtype.itemsize
    start = (result.__array_interface__["data"][0] - templates[0].__array_interface__["data"][0]) // size
    return tuple([stride // size for stride in result.strides]), start


def _computed(node: Node, output: int) -> Strides | None:
    """The strides that follow from the kind of view, or None."""
    op: Any = node.op
    source, shape = node.values_in[0].shape, node.outputs[output].shape
    if isinstance(op, Permutation):
        strides = strides_of(source)
        return tuple([strides[axis] for axis in op.order(len(source))]), 0
    if op.name in ("slice", "slice_axis"):
        steps, start = [], 0
        for part, size, stride in zip(op.cut(source), source, strides_of(source), strict=True):
            first, _, step = part.indices(size) if part != slice(None) else (0, 0, 1)
            steps.append(stride * step)
            start += first * stride
        return tuple(steps), start
    return (strides_of(shape), 0) if op.in_order else None
