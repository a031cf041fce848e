"""Kinds of Triton kernels: the values of a record's `triton`.

`numpy`, `onnx` and `triton` are a record's members for one engine each. `triton` is a value of one of five kinds, which
engines tell apart by `isinstance`; functions in it get the operator as their first argument, so that the kinds serve as
decorators too:

    triton = Pointwise("tl.exp({0})")           # an expression over one element of each input

    @Element
    def triton(self, elements, place):          # one element of the output, read from anywhere in the inputs
        return elements.read(0, place[::-1])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.ops.framework.protocols import Elements, Index, Place


@dataclass(frozen=True)
class Pointwise:
    """y[i] = f(a[i], b[i], ...), where the inputs broadcast.

    text : an expression of Triton over elements {0} {1} ... of the inputs, and of {seed}, {draw} and {element} with
        `random`; or (op, dtype) -> the expression for elements of a dtype
    whole : the expression for whole numbers, if they need another one
    jumps : the result may jump when operands change a little. Kernels then round operands of half precision, which they
        compute in float32, as eager calls do
    floating : whole numbers are computed in float64 and cut back, as in MXNet. Kernels do not take them then
    fits : shapes of the inputs -> whether the operator is pointwise for them; None: it always is
    """

    text: str | Callable[[Any, np.dtype], str]
    whole: str | None = None
    jumps: bool = False
    floating: bool = False
    fits: Callable[..., bool] | None = None

    @property
    def takes_whole(self) -> bool:
        """Whether a kernel computes whole numbers."""
        return self.whole is not None or not self.floating

    def expression(self, op: Any, dtype: np.dtype) -> str:
        """The expression for elements of a dtype."""
        if self.whole is not None and not is_floating(dtype):
            return self.whole
        return self.text if isinstance(self.text, str) else self.text(op, dtype)


@dataclass(frozen=True)
class Reduce:
    """A reduction over the operator's `axes(rank)`. combine : how it combines elements"""

    combine: Literal["sum", "max", "min", "prod"]


@dataclass(frozen=True)
class Element:
    """One element of the output as an expression of Triton over elements of the inputs: takes, joins, cuts, repeats.

    read : (op, elements, place) -> the expression. place : an index per axis of the output, which can be added to and
        multiplied by whole numbers. `Elements` in protocols.py lists all members of `elements`:
        elements.read(number, place, guard) : the name of an element of an input that is loaded if the guard holds
        elements.where(guard, name, other) : one of two names, by the guard
        elements.shape(number) : the shape of an input
        elements.number(number, place, size, mode) : an index, from the whole number in an element
        elements.zero, elements.literal(x) : the index 0; a number in the kernel's text
        Raises Unmappable if kernels should not hold the operator.
    """

    read: Callable[[Any, Elements, Place], str]


@dataclass(frozen=True)
class Contraction:
    """out[b, m, n] = the sum over k of left[b, m, k] * right[b, k, n], times the scale, plus the bias.

    batch, rows, columns, inner : the sizes of the axes that b, m, n and k stand for; () without them
    left, right : (elements, b, m, k) and (elements, b, k, n) -> an element, as `Element.read` writes it
    place : (b, m, n) -> the sum's place in the output
    bias : (elements, b, m, n) -> the summand, or None
    """

    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    inner: tuple[int, ...]
    left: Callable[[Any, Place, Place, Place], str]
    right: Callable[[Elements, Place, Place, Place], str]
    place: Callable[[Place, Place, Place], tuple[Any, ...]]
    bias: Callable[[Elements, Place, Place, Place], str] | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class Product:
    """Sums of products, for kernels that work on tiles of them: matrix products and convolutions.

    contraction : (op, shapes of the inputs ...) -> the contraction; None if the operator is none for these shapes
    otherwise : the operator's element for those shapes
    """

    contraction: Callable[..., Contraction | None]
    otherwise: Element | None = None


@dataclass(frozen=True)
class Entries:
    """out[row, column] = the sum over all entries i with number[i] == row of entry[i, column]; no such entry gives 0.

    rows, columns, entries : the sizes of the axes that row, column and i stand for; () without them
    number : (elements, i) -> the row that an entry belongs to, an index over all rows; it lies inside
    entry : (elements, i, column) -> an element, as `Element.read` writes it
    place : (row, column) -> the place in the output
    last : the entry that comes last counts, not the sum
    start : (elements, row, column) -> the value of an output element without entries, instead of 0; with `last` only
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    entries: tuple[int, ...]
    number: Callable[[Elements, Place], Index]
    entry: Callable[[Elements, Place, Place], str]
    place: Callable[[Place, Place], tuple[Any, ...]]
    last: bool = False
    start: Callable[[Elements, Place, Place], str] | None = None


@dataclass(frozen=True)
class Collect:
    """Rows that are added up or overwritten by number, for kernels that look for the entries of each row.

    entries : (op, shapes of the inputs ...) -> the entries; raises Unmappable if kernels do not support the attributes
    """

    entries: Callable[..., Entries]


Kernel: TypeAlias = Pointwise | Reduce | Element | Product | Collect
