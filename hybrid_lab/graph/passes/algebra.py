"""Algebra: a table of rules that make an operator cheaper and leave every number as it is.

Exact means every bit that a reader can tell apart: infinities, NaN and the sign of zero included. That is why there is
no x + 0 = x (-0.0 + 0.0 is 0.0), no x - x = 0 and no x * 0 = 0 for floating numbers.

    -(-(x * 1)) / 8 + -(y ** 2)   becomes   x * 0.125 - square(y)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import frexp, prod
from typing import Any

import numpy as np

from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.graph.symbolic import SymbolicConstant
from hybrid_lab.ops.arrays.reduce import Reduction
from hybrid_lab.ops.framework.dtypes import is_floating, limits
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.ops.framework.pointwise import scalar_as


@dataclass(frozen=True)
class RewriteRule:
    """text : the rule as an equation; operators : whose nodes it looks at; apply : (node) -> the Value, or None"""

    text: str
    operators: tuple[str, ...]
    apply: Callable[[Node], Value | None]


def rewritten(node: Node) -> Value | None:
    """What the first rule that applies makes of a node with one output, or None. Ask again with the result."""
    for rule in _RULES_OF.get(node.op.name, ()):
        better = rule.apply(node)
        if better is not None:
            assert (better.shape, better.dtype) == (node.outputs[0].shape, node.outputs[0].dtype), rule.text
            return better
    return None


# -- what rules are made of --------------------------------------------------------------------------------------


def _number(node: Node, index: int) -> Any:
    """Input `index` as the number that the kernel takes beside a tensor, else None.

    It is an immediate, or a constant of one element that leaves the tensor its shape.
    """
    item, other = node.inputs[index], node.inputs[1 - index]
    if not isinstance(other, Value):
        return None
    if not isinstance(item, Value):
        return scalar_as(item, np.empty(0, other.dtype))
    op = item.node.op
    if not isinstance(op, Constant) or prod(item.shape) != 1 or other.shape != node.outputs[0].shape:
        return None
    return op if type(op) is SymbolicConstant else op.array.reshape(())[()]


def _exact(number: object) -> Any:
    """The number, also where sizes decide it."""
    return number.array.reshape(())[()] if type(number) is SymbolicConstant else number


def _is(number: object, wanted: float) -> bool:
    """Equal, with the sign of zero."""
    if type(number) is SymbolicConstant:
        return number.guarded(lambda array: bool(_is(array.reshape(())[()], wanted)))
    return number is not None and number == wanted and np.signbit(number) == np.signbit(wanted)


def _other(index: int, wanted: float) -> Callable[[Node], Value | None]:
    """The tensor, if input `index` is the number `wanted`."""
    return lambda node: node.inputs[1 - index] if _is(_number(node, index), wanted) else None


def _whole(rule: Callable[[Node], Value | None]) -> Callable[[Node], Value | None]:
    """The rule for whole numbers only."""
    return lambda node: rule(node) if node.outputs[0].dtype.kind in "iu" else None


def _made(node: Node, name: str, *inputs: object, **attributes: object) -> Value:
    """A node in the place of `node`."""
    return make_node(get(name).bind(**attributes), inputs, origin=node).outputs[0]


def _under(value: object, name: str) -> Value | None:
    """The input of the operator `name` that made the value, or None."""
    return value.node.inputs[0] if isinstance(value, Value) and value.node.op.name == name else None


def _same(node: Node) -> Value | None:
    """The first of the last two inputs, if both are one value of the result's shape."""
    one, two = node.inputs[-2:]
    return one if one is two and isinstance(one, Value) and one.shape == node.outputs[0].shape else None


# -- the rules ---------------------------------------------------------------------------------------------------


def _minus_one(index: int) -> Callable[[Node], Value | None]:
    def rule(node: Node) -> Value | None:
        floating = is_floating(node.outputs[0].dtype)
        return _made(node, "negative", node.inputs[1 - index]) if floating and _is(_number(node, index), -1.0) else None

    return rule


def _add_negative(node: Node) -> Value | None:
    for index in (1, 0):
        inner = _under(node.inputs[index], "negative")
        if inner is not None and isinstance(node.inputs[1 - index], Value):
            return _made(node, "broadcast_sub", node.inputs[1 - index], inner)
    return None


def _subtract_negative(node: Node) -> Value | None:
    inner = _under(node.inputs[1], "negative")
    return None if inner is None else _made(node, "broadcast_add", node.inputs[0], inner)


def _power_of_two(node: Node) -> Value | None:
    """Both sides are the same real number, rounded once. Not for constants: most constants are counts that follow from
    sizes, and a batch of 32 has the graph of any other batch.
    """
    number = None if isinstance(node.inputs[1], Value) else _number(node, 1)
    dtype = node.outputs[0].dtype
    if number is None or not is_floating(dtype) or number == 0 or not np.isfinite(number):
        return None
    fraction, exponent = frexp(abs(number))
    range_ = limits(dtype)
    if fraction != 0.5 or not range_.minexp < exponent - 1 < -range_.minexp:
        return None
    return _made(node, "broadcast_mul", node.inputs[0], 1.0 / float(number))


_POWERS = {2.0: "square", 0.5: "sqrt", -1.0: "reciprocal"}


def _power(node: Node) -> Value | None:
    number = _exact(_number(node, 1))
    if number is None or not is_floating(node.outputs[0].dtype):
        return None
    if number == 1.0:
        return node.inputs[0]
    name = _POWERS.get(float(number))
    return None if name is None else _made(node, name, node.inputs[0])


def _twice(node: Node) -> Value | None:
    """f(f(x)) = f(x)."""
    return node.inputs[0] if _under(node.inputs[0], node.op.name) is not None and not node.op.attributes else None


def _even(node: Node) -> Value | None:
    """f(-x) = f(x). Not for unsigned types: abs(-x) of uint8 is 256 - x."""
    inner = _under(node.inputs[0], "negative")
    return None if inner is None or inner.dtype.kind == "u" else _made(node, node.op.name, inner)


def _cast_of_cast(node: Node) -> Value | None:
    """The first conversion loses nothing, and all three types count the same way."""
    middle = node.inputs[0]
    if not isinstance(middle, Value) or middle.node.op.name not in ("Cast", "_cast_like"):
        return None
    source, final = middle.node.inputs[0], node.outputs[0].dtype
    if not isinstance(source, Value) or not np.can_cast(source.dtype, middle.dtype, "safe"):
        return None
    kinds = {"f" if is_floating(dtype) else dtype.kind for dtype in (source.dtype, middle.dtype, final)}
    if source.dtype.kind != "b" and len(kinds) > 1:
        return None
    return source if source.dtype == final else _made(node, "Cast", source, dtype=final.name)


def _amp_cast(node: Node) -> Value | None:
    """MXNet's conversion of floating numbers only, now that the types are known."""
    source, final = node.inputs[0], node.outputs[0].dtype
    return source if source.dtype == final else _made(node, "Cast", source, dtype=final.name)


def _single(node: Node) -> Value | None:
    item = node.inputs[0]
    return item if len(node.inputs) == 1 and isinstance(item, Value) and item.shape == node.outputs[0].shape else None


def _single_elements(node: Node) -> Value | None:
    """A reduction over axes of size 1 has nothing to reduce; sums start at 0, which makes 0 of -0.0.

    Not the mean of whole numbers, which goes through float64; not over the first axis, so that a batch of 1 has the
    graph, and the sessions, of any other.
    """
    data, op = node.inputs[0], node.op
    assert isinstance(op, Reduction)
    if not isinstance(data, Value) or (op.name == "mean" and not is_floating(data.dtype)):
        return None
    axes = op.axes(len(data.shape))
    if 0 in axes or any(data.shape[axis] != 1 for axis in axes):
        return None
    from_zero = op.name in ("sum", "mean") and is_floating(data.dtype)
    negated = _under(data, "negative") if from_zero else None
    data = data if negated is None else negated
    # The view comes first: what computes may then write into the memory of the result.
    if data.shape != node.outputs[0].shape:
        data = _made(node, "squeeze", data, axis=axes)
    if negated is not None:
        return _made(node, "broadcast_sub", 0.0, data)
    return _made(node, "broadcast_add", data, 0.0) if from_zero else data


def _broadcast(value: object) -> Node | None:
    """The node that repeats a smaller value to make this one, or None."""
    return value.node if isinstance(value, Value) and value.node.op.name in _BROADCASTS else None


def _repeated(repeat: Node, smaller: Value, origin: Node) -> Value:
    """Another smaller value, repeated in the same way."""
    return make_node(repeat.op, (smaller, *repeat.inputs[1:]), origin=origin).outputs[0]


def _before_broadcast(node: Node) -> Value | None:
    """Compute on the value before it is repeated: the gradient of a mean is scaled on one element a row."""
    for index, item in enumerate(node.inputs):
        repeat = _broadcast(item)
        if repeat is not None and (len(node.inputs) == 1 or _number(node, 1 - index) is not None):
            inputs = tuple(repeat.inputs[0] if other is item else other for other in node.inputs)
            return _repeated(repeat, make_node(node.op, inputs, origin=node).outputs[0], node)
    return None


def _negative_product(node: Node) -> Value | None:
    """Negate the factor that is repeated, because it has fewer elements than the product."""
    product = node.inputs[0]
    if not isinstance(product, Value) or product.node.op.name != "broadcast_mul":
        return None
    for index, factor in enumerate(product.node.inputs):
        repeat, other = _broadcast(factor), product.node.inputs[1 - index]
        if repeat is not None and isinstance(other, Value):
            negative = _repeated(repeat, _made(node, "negative", repeat.inputs[0]), node)
            return _made(node, "broadcast_mul", negative, other)
    return None


IDEMPOTENT = ("abs", "relu", "sign", "floor", "ceil", "rint", "round", "trunc", "fix")

_BROADCASTS = frozenset({"broadcast_like", "broadcast_to", "broadcast_axis"})

RULES: tuple[RewriteRule, ...] = (
    RewriteRule("x * 1 = x", ("broadcast_mul",), _other(1, 1.0)),
    RewriteRule("1 * x = x", ("broadcast_mul",), _other(0, 1.0)),
    RewriteRule("x / 1 = x", ("broadcast_div",), _other(1, 1.0)),
    RewriteRule("x - 0 = x", ("broadcast_sub",), _other(1, 0.0)),
    RewriteRule("x + -0.0 = x", ("broadcast_add",), _other(1, -0.0)),
    RewriteRule("-0.0 + x = x", ("broadcast_add",), _other(0, -0.0)),
    RewriteRule("x + 0 = x, whole numbers", ("broadcast_add",), _whole(_other(1, 0.0))),
    RewriteRule("0 + x = x, whole numbers", ("broadcast_add",), _whole(_other(0, 0.0))),
    RewriteRule("x * -1 = -x", ("broadcast_mul",), _minus_one(1)),
    RewriteRule("-1 * x = -x", ("broadcast_mul",), _minus_one(0)),
    RewriteRule("-(-x) = x", ("negative",), lambda node: _under(node.inputs[0], "negative")),
    RewriteRule("x + -y = x - y", ("broadcast_add",), _add_negative),
    RewriteRule("x - -y = x + y", ("broadcast_sub",), _subtract_negative),
    RewriteRule("x / 2^k = x * 2^-k", ("broadcast_div",), _power_of_two),
    RewriteRule("x ** 2, 0.5, -1, 1 = square, sqrt, reciprocal, x", ("broadcast_power",), _power),
    RewriteRule("f(f(x)) = f(x)", IDEMPOTENT, _twice),
    RewriteRule("f(-x) = f(x)", ("abs", "square"), _even),
    RewriteRule("max(x, x) = min(x, x) = x", ("broadcast_maximum", "broadcast_minimum"), _same),
    RewriteRule("where(c, x, x) = x", ("where",), _same),
    RewriteRule("cast(cast(x)) = cast(x)", ("Cast", "_cast_like"), _cast_of_cast),
    RewriteRule("amp_cast(x) = cast(x), or x", ("amp_cast",), _amp_cast),
    RewriteRule("sum(x) = x + 0, axes of size 1", ("sum", "mean", "prod", "max", "min"), _single_elements),
    RewriteRule("f(repeat(x)) = repeat(f(x))", ("negative", "broadcast_mul", "broadcast_div"), _before_broadcast),
    RewriteRule("-(repeat(x) * y) = repeat(-x) * y", ("negative",), _negative_product),
    RewriteRule("concat(x) = x", ("Concat",), _single),
)

_RULES_OF: dict[str, list[RewriteRule]] = {}
for _rule in RULES:
    for _name in _rule.operators:
        _RULES_OF.setdefault(_name, []).append(_rule)
