"""Why an operator cannot be in a kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from hybrid_lab.engines.torch_kernels import on_device
from hybrid_lab.engines.triton.run import availability
from hybrid_lab.engines.triton.write.body import Refused
from hybrid_lab.engines.triton.write.choose import write_kernels
from hybrid_lab.engines.triton.write.kinds import (
    collects,
    element_of,
    is_pointwise,
    is_product,
    is_recurrence,
    is_reduction,
)
from hybrid_lab.engines.triton.write.syntax import TYPES
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.graph.passes.decompose import decompose, lower_random
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.graph.passes.simplify import simplify
from hybrid_lab.graph.symbolic import with_hints
from hybrid_lab.ops.framework.dtypes import NARROW, is_floating
from hybrid_lab.ops.framework.kernel import Pointwise

#: Places along the axes of an array are formulas in the text of a kernel.
MOST_AXES = 32


def lowered(graph: Graph, keeps_whole: Callable[[Node], bool] = lambda node: False) -> Graph:
    """The graph in operators that kernels can hold. keeps_whole : whether an operator is not taken apart

    On a symbolic graph a writer's refusal is asked for with the hints: groups are written for the sizes of each call,
    and may be refused then.
    """

    def supported(node: Node) -> bool:
        if keeps_whole(node):
            return True
        if unfit(node) is None and (_known(node) or _writers_refusal(with_hints(node)) is None):
            return True
        # The other parts of a composite with such a part are in kernels. In half precision the results of parts would
        # be rounded, and NumPy computes the whole in float32.
        return not node.op.is_composite and not _is_narrow(node) and on_device.refusal(node) is None

    return simplify(decompose(lower_random(_rounded(graph)), supported))


def _is_narrow(node: Node) -> bool:
    return any(value.dtype.name in NARROW for value in (*node.values_in, *node.outputs))


def _rounded(graph: Graph) -> Graph:
    """The graph with numbers beside tensors of float16 rounded to float16, as eagerly: 1e-8 is 0. Operators that come
    from composites are added later, and are not rounded.
    """

    def rewrite(node: Node, inputs: tuple[Any, ...]) -> Any:
        if not is_pointwise(node) or node.composite or node.outputs[0].dtype != np.float16:
            return None
        with np.errstate(over="ignore"):
            rounded = tuple([float(np.float16(item)) if type(item) in (int, float) else item for item in inputs])
        return None if rounded == inputs else node.replace(inputs=rounded).outputs

    return graph.map(rewrite)


def refusal(node: Node) -> str | None:
    """Why no kernel can compute an operator, or read through it; None if one can."""
    if reason := unfit(node):
        return reason
    return None if _known(node) else _writers_refusal(node)


def misfit_of_sizes(node: Node) -> str | None:
    """Reasons against a kernel that depend on sizes, apart from sizes of 1."""
    for value in (*node.values_in, *node.outputs):
        if 0 in value.shape:
            return "an empty array"
    return None


def _writers_refusal(node: Node) -> str | None:
    """Why a writer refuses an operator that `unfit` allows; None if it writes a kernel. Kept for equal operators."""
    key = (
        node.op,
        tuple([_type(item) if isinstance(item, Value) else repr(item) for item in node.inputs]),
        tuple(map(_type, node.outputs)),
        availability.multiplies_float64(),
    )
    if key not in _refusals:
        if len(_refusals) >= MOST:
            _refusals.clear()
        inputs = tuple(dict.fromkeys(value for value in node.values_in if not isinstance(value.node.op, Constant)))
        try:
            write_kernels(Region((node,), inputs, node.outputs))
            _refusals[key] = None
        except Refused as refused:
            _refusals[key] = str(refused)
    return _refusals[key]


#: Operator and operands -> why a writer refuses it, or None; at most MOST entries.
_refusals: dict[Any, str | None] = {}
MOST = 4096


def _type(value: Value) -> tuple[Any, ...]:
    """The properties of an operand that a writer may depend on."""
    op = value.node.op
    if isinstance(op, Constant):
        return "constant", value.shape, value.dtype, repr(op.array.item()) if op.array.size == 1 else ""
    return value.shape, value.dtype, value.is_input


@functools.lru_cache(maxsize=64)
def _has_type(dtype: Any) -> bool:
    return dtype.name in TYPES  # NumPy makes the name anew each time


def _known(node: Node) -> bool:
    return is_pointwise(node) or is_reduction(node) or node.op.view


def unfit(node: Node) -> str | None:
    """Why no kernel can hold an operator, as far as its kind, dtypes and sizes tell; None if they allow a kernel."""
    op = node.op
    known = _known(node)
    alone = collects(node) or is_recurrence(node)
    if not known and not alone and element_of(op) is None and not is_product(node):
        return "the operator has no Triton kernel"
    if len(node.outputs) != 1 and not is_recurrence(node):
        return "several outputs"
    values = (*node.values_in, *node.outputs)
    if not all(_has_type(value.dtype) for value in values):
        return "a dtype that kernels do not have"
    if any(len(value.shape) > MOST_AXES for value in values):
        return f"more than {MOST_AXES} axes"
    if why := misfit_of_sizes(node):
        return why
    whole = any(value.dtype.kind in "iub" for value in values)
    kernel = op.triton
    if isinstance(kernel, Pointwise):
        if whole and not kernel.takes_whole:
            return "a floating function of whole numbers"
        if kernel.fits and not kernel.fits(*(item.shape if isinstance(item, Value) else () for item in node.inputs)):
            return "its operands do not broadcast element by element"
    if is_reduction(node) and node.outputs[0].dtype.kind == "b":
        return "a reduction of bools"
    if is_product(node) and not is_floating(node.outputs[0].dtype):
        return "a product of whole numbers"
    if is_product(node) and node.outputs[0].dtype == np.float64 and not availability.multiplies_float64():
        return "a product of float64, which needs Triton 3.5"
    return None
