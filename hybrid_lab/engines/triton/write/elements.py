"""Elements: with it a record's `element` function reads operands and prints formulas."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.engines.triton.write.index import NEIGHBOURS, ZERO, Index, Place, linear, unravel, variables_of
from hybrid_lab.engines.triton.write.reuse import shown
from hybrid_lab.engines.triton.write.syntax import TYPES, literal, rounded, tensor, wide
from hybrid_lab.graph.node import Node
from hybrid_lab.ops.framework.dtypes import BFLOAT16, NARROW, is_floating

if TYPE_CHECKING:
    from hybrid_lab.engines.triton.write.body import Body, Scope


class Elements:
    """The argument `elements` of a record's `Element` function: names of elements of the node's inputs in a kernel.

    reads : how an input is read, (number, place, guard) -> expression, if not by `Body.value`
    """

    def __init__(
        self, body: Body, node: Node, guard: str = "", scope: Scope | None = None,
        reads: Callable[[int, Place, str], str] | None = None,
    ):  # fmt: skip
        self._body, self._node, self._guard, self._scope = body, node, guard, scope or body.scopes[-1]
        self._reads = reads
        self.count_of_reads = 0

    def dtype(self, number: int | None = None) -> np.dtype:
        """The dtype of input `number`, or of the output."""
        return np.dtype((self._node.outputs[0] if number is None else self._node.inputs[number]).dtype)

    def shape(self, number: int) -> tuple[int, ...]:
        """The shape of input `number`."""
        return tuple(self._node.inputs[number].shape)

    def read(self, number: int, place: Sequence[Any], guard: str = "") -> str:
        """The element of input `number` at a place: one index per axis. guard : see `where`."""
        if self._reads is not None:
            return self._reads(number, tuple(place), guard)
        self.count_of_reads += 1
        guards = " & ".join(item for item in (self._guard, guard) if item)
        return self._body.value(self._node.inputs[number], tuple(place), guards)

    def number(self, number: int, place: Sequence[Any], size: int, mode: str = "clip") -> Index:
        """The whole number in an element as an index of an axis of `size`; mode : clip or wrap numbers outside, or
        count negative numbers from the end and clip the rest.
        """
        variables = variables_of(place)
        element, dtype = self.read(number, place), self.dtype(number)
        # as floats, which represent all sizes up to 2^24; NaN gives 0
        if mode == "clip" and is_floating(dtype) and size <= 1 << 24:
            text = f"tl.minimum(tl.maximum({tensor(element, dtype)}, 0.0), {size - 1}.0).to({self._whole_type})"
            return self._body.number(text, size, variables, "place")
        text = self.whole(element, number)
        if mode == "end":
            text = f"tl.where({text} < 0, {text} + {size}, {text})"
        if mode != "wrap":
            text = f"tl.minimum(tl.maximum({text}, 0), {size - 1})"
        else:
            text = f"(({text} % {size}) + {size}) % {size}"
        if self._has_int64(number) and not self._body.wide:
            text = f"({text}).to(tl.int32)"
        return self._body.number(text, size, variables, "place")

    def computed(self, text: str, size: int, *indices: Index) -> Index:
        """An expression of whole numbers as an index of an axis of `size`. indices : the indices in it"""
        return self._body.number(text, size, [*variables_of(indices), *re.findall(r"\w+", text)])

    def quotient(self, index: Index, by: int) -> Index:
        """index // by, for an index that is never negative."""
        if index.largest < by or by == 1:
            return ZERO if by > 1 else index
        size = index.largest // by + 1
        apart = unravel(index, (size, by))
        return apart[0] if apart is not None else self.computed(f"({index}) // {by}", size, index)

    def named(self, expression: str, wanted: str) -> str:
        """A part of the expression that stands in a line of its own."""
        return self._body.write(expression, wanted, self._scope)

    def inside(self, number: int, guard: str, name: str) -> str:
        """`name`, an element of input `number`, if the guard holds, else 0; a loaded element is 0 already."""
        return self.where(guard, name, "0.0") if self._body.is_computed(self._node.inputs[number]) else name

    def where(self, guard: str, name: str, other: str) -> str:
        """`name` if the guard holds, else `other`; "" always holds."""
        return f"tl.where({guard}, {name}, {other})" if guard else name

    @property
    def count(self) -> int:
        """How many inputs the node has."""
        return len(self._node.inputs)

    def places(self, place: Sequence[object], number: int) -> Sequence[Any]:
        """A place without axes means the one element of an input with shape (1,)."""
        return place or (ZERO,) * len(self.shape(number))

    def unravel(self, place: Sequence[Any], sizes: Sequence[int], shape: Sequence[int]) -> Place:
        """The place in `shape` of the element that lies at `place` of an array of as many elements with `sizes`."""
        where = linear(place, sizes)
        indices = unravel(where, shape)
        if indices is None:
            indices = self._body.number(str(where), prod(shape), where.variables).digits(shape)
        return indices

    def cast(self, name: str) -> str:
        """An element of the first input in the dtype of the output."""
        source, target = self._node.inputs[0].dtype, self._node.outputs[0].dtype
        if source == target:
            return name
        name = tensor(name, source)
        if source.name in NARROW and self._body.rounds and self._body.is_computed(self._node.inputs[0]):
            name = rounded(name, source)
        if target.kind == "b":
            return f"{name} != 0"
        if is_floating(source) and target.kind == "u":
            name = f"{name}.to(tl.int64)"
        elif is_floating(source) and target.name == "int8":
            name = f"{name}.to(tl.int32)"  # what lies outside wraps, as in C
        elif target.name == BFLOAT16 and wide(source) != "float32":
            name = f"{name}.to(tl.float32)"  # as on the host: GPUs make bfloat16 of nothing else
        text = f"{name}.to({TYPES[target.name]})"
        return f"{text}.to(tl.float32)" if target.name in NARROW else text

    def whole(self, name: str, number: int) -> str:
        """An element of input `number` as a whole number, in int64 if int32 may be too small; a number outside int64
        becomes the least number of int64, as on the host.
        """
        dtype = self._node.inputs[number].dtype
        name = tensor(name, dtype)
        if not self._has_int64(number):
            return f"{name}.to({self._whole_type})"
        if is_floating(dtype):
            name = f"tl.where(tl.abs({name}) < 9.2e18, {name}, -9223372036854775808.0)"
        return f"{name}.to(tl.int64)"

    @property
    def _whole_type(self) -> str:
        """The type of places that are read from an array."""
        return "tl.int64" if self._body.wide else "tl.int32"

    def _has_int64(self, number: int) -> bool:
        """Whether whole numbers of an input's dtype may be beyond int32."""
        dtype = self._node.inputs[number].dtype
        return is_floating(dtype) or dtype.kind == "i" and dtype.itemsize == 8

    def guard(self, index: Index, size: int) -> str:
        """The condition that an index lies on an axis of `size`; "" if it always does."""
        low = [f"({index} >= 0)"] if index.smallest < 0 else []
        return " & ".join(low + ([f"({index} < {self.shown(size)})"] if index.largest >= size else []))

    def shown(self, size: int) -> str:
        """A size, or where an axis is cut, as it stands in the text."""
        return shown(size, NEIGHBOURS)

    def divided(self, index: Index, by: int, size: int) -> tuple[Index, str]:
        """index / by as an index of an axis of `size`, and the condition that it is a whole number on that axis."""
        if by == 1:
            return index, self.guard(index, size)
        whole = self._body.number(f"({index}) // {by}", size, index.variables, "pixel")
        # By the index itself: the quotient on an axis of size 1 is written as 0.
        last = [f"({index} < {self.shown(size)} * {by})"] if index.largest // by >= size else []
        first = [f"({index} >= 0)"] if index.smallest < 0 else []
        return whole, " & ".join([*first, *last, f"(({index}) % {by} == 0)"])

    def literal(self, number: float, of: int | None = None) -> str:
        """A number in the dtype of the output, or of input `of`."""
        return literal(number, self.dtype(of))

    def scaled(self, index: Index, factor: float, start: float) -> str:
        """index * factor + start as a number of the output's dtype."""
        if not index.variables:
            return self.literal(index.constant * factor + start)
        dtype = wide(self.dtype())
        if dtype in ("float32", "float64"):
            return f"(({index}).to({TYPES[dtype]}) * {factor!r} + {start!r})"
        if factor % 1 or start % 1:
            raise Unmappable("whole numbers with a broken step")
        return f"(({index}) * {int(factor)} + {int(start)}).to({TYPES[dtype]})"

    @property
    def zero(self) -> Index:
        return ZERO
