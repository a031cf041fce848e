"""The factors of a product, read where they lie or computed while their tile is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.engines.triton.write.body import Body, Elements, Place, moved_place
from hybrid_lab.engines.triton.write.index import Variable, linear
from hybrid_lab.engines.triton.write.words import TYPES, tensor
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.ops.dtypes import NARROW


def multiplied(left: str, right: str, precision: str, dtype: np.dtype[Any], total: str = "") -> str:
    """The product of two tiles, onto `total`, as an expression. dtype : of the factors"""
    arguments = [left, right, *([total] if total else []), f'input_precision="{precision}"']
    if dtype == np.float64:  # up to Triton 3.6 it is not what comes of float64 by itself
        arguments.append("out_dtype=tl.float64")
    return f"tl.dot({', '.join(arguments)})"


class Factors(Elements):
    """Elements for a record's `product`, in its loop.

    outer, inner : the variables of the tile, inner the summed one; tile : its shape, as kernels print it
    """

    def __init__(self, body: Body, node: Node, outer: Variable, inner: Variable, tile: str):
        super().__init__(body, node, "")
        self._outer, self._inner, self._tile = outer, inner, tile

    def read(self, number: int, place: Sequence[Any], guard: str = "") -> str:
        """The tile of input `number`, in its own dtype, whole and with 0 where nothing is to be added."""
        value, where = self._behind_views(self._node.inputs[number], tuple(place))
        body, dtype = self._body, self.dtype(number)
        if value.node in body.nodes:
            name = tensor(body.value(value, where, guard), dtype)
            # What is computed of the zeros beyond the borders need not be zero.
            masks = (body.masks[self._outer.name], body.masks[self._inner.name], guard)
            inside = body.named_if_long(" & ".join(item for item in masks if item), "there")
            text = f"tl.where({inside}, {name}, 0.0)"
            return self.named(f"{text}.to({TYPES[dtype.name]})" if dtype.name in NARROW else text, "factor")
        body.widens = False
        name = tensor(body.value(value, where, guard), dtype)
        body.widens = True
        moving = {variable.name for variable in linear(where, value.shape).variables}
        if self._inner.name not in moving:  # the load does not know where the summed axis ends
            name = f"tl.where({body.masks[self._inner.name]}, {name}, 0.0)"
        if not {self._outer.name, self._inner.name} <= moving:
            name = f"tl.broadcast_to({name}, {self._tile})"
        return name

    def _behind_views(self, value: Value, place: Place) -> tuple[Value, Place]:
        """The value that lies in memory or is computed, and the place of the element there."""
        while value.node in self._body.nodes:
            moved = moved_place(value.node, value.index, place, self._body)
            if moved is None:
                break
            value, place = value.node.values_in[0], moved
        return value, place
