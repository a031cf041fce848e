"""Rules about `x[...]` on a tensor."""

import ast
from collections.abc import Iterator

from ..finding import Severity
from .checking import Checking, Mark
from .record import Rule, rule


def tensor_in_index(index: ast.expr, checking: Checking) -> ast.expr | None:
    """The part of an index that is itself a tensor, or None."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    for part in parts:
        inner = [part.lower, part.upper, part.step] if isinstance(part, ast.Slice) else [part]
        for expression in inner:
            if expression is not None and checking.value(expression).is_one_tensor:
                return expression
    return None


@rule("HL131", "integer-index", Severity.NOTE, portability=True)
class IntegerIndex(Rule):
    """Indexing a tensor with 0.

    Why: in Hybrid Lab `x[0]` is the first row in both modes. MXNet's Symbol silently returns x itself, as its output
        number 0.
    Bad:
        return x[0]
    Instead:
        return F.take(x, F.zeros((1,)), axis=0).reshape((-3, -2))
    Note: on an operator with several outputs (`F.split(x, num_outputs=2)[0]`) the index selects an output, in Hybrid
        Lab as in MXNet.
    """

    message = "`{x}[0]` on MXNet's Symbol silently gives {tensor} itself, not its first row."
    rewrite = "F.squeeze(F.slice_axis({x}, axis=0, begin=0, end=1), axis=0)"

    def at(self, node: ast.Subscript, checking: Checking) -> Iterator[Mark]:
        if isinstance(node.ctx, ast.Load) and checking.value(node.value).is_one_tensor:
            if isinstance(node.slice, ast.Constant) and node.slice.value == 0:
                yield checking.mark(node, checking.tensor_name(node.value))


@rule("HL132", "slice-index", Severity.NOTE, portability=True)
class SliceIndex(Rule):
    """Slicing a tensor with brackets: `x[i]`, `x[a:b]`, `x[:, 0]`, `x[:, None]`.

    Why: in Hybrid Lab the brackets slice in both modes. MXNet's Symbol raises an error, or selects an output.
    Bad:
        return x[:, 0:2]
    Instead:
        return F.slice_axis(x, axis=1, begin=0, end=2)
    """

    message = "`{x}[...]` on MXNet's Symbol does not slice {tensor}."
    rewrite = "F.slice_axis({x}, axis=..., begin=..., end=...)      or      F.expand_dims({x}, axis=...)"

    def at(self, node: ast.Subscript, checking: Checking) -> Iterator[Mark]:
        if not isinstance(node.ctx, ast.Load) or not checking.value(node.value).is_one_tensor:
            return
        if isinstance(node.slice, ast.Constant) and node.slice.value == 0:
            return
        if tensor_in_index(node.slice, checking) is None:
            yield checking.mark(node, checking.tensor_name(node.value))


@rule("HL133", "tensor-index", Severity.ERROR, error=TypeError)
class TensorIndex(Rule):
    """Indexing a tensor with a tensor: a mask or a list of positions.

    Why: which elements are selected depends on values that do not exist yet. The operators `F.where`, `F.take` and
        `F.gather_nd` say whether a mask or positions are meant.
    Bad:
        return x[x > 0]
    Instead:
        return F.where(x > 0, x, F.zeros_like(x))
    """

    message = "{tensor} cannot be indexed with a tensor (`{index}`) while a graph is made."
    rewrite = "F.where(mask, {x}, 0.0)      or      F.take({x}, indices), F.gather_nd({x}, indices)"
    defaults = {"index": "mask"}

    def at(self, node: ast.Subscript, checking: Checking) -> Iterator[Mark]:
        if not isinstance(node.ctx, ast.Load) or not checking.value(node.value).is_tensor:
            return
        if (index := tensor_in_index(node.slice, checking)) is not None:
            yield checking.mark(node, checking.tensor_name(node.value), index=checking.text(index))
