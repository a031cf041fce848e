"""Checks of rules about `x[...]` on a tensor."""

import ast
from collections.abc import Iterator

from ..walk import Mark, Walk, check


def tensor_in_index(index: ast.expr, walk: Walk) -> ast.expr | None:
    """The part of an index that is itself a tensor, or None."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    for part in parts:
        inner = [part.lower, part.upper, part.step] if isinstance(part, ast.Slice) else [part]
        for expression in inner:
            if expression is not None and walk.value(expression).is_one_tensor:
                return expression
    return None


@check("HL131")
def integer_index(node: ast.Subscript, walk: Walk) -> Iterator[Mark]:
    if isinstance(node.ctx, ast.Load) and walk.value(node.value).is_one_tensor:
        if isinstance(node.slice, ast.Constant) and node.slice.value == 0:
            yield Mark(node, walk.tensor_name(node.value))


@check("HL132")
def slice_index(node: ast.Subscript, walk: Walk) -> Iterator[Mark]:
    if not isinstance(node.ctx, ast.Load) or not walk.value(node.value).is_one_tensor:
        return
    if isinstance(node.slice, ast.Constant) and node.slice.value == 0:
        return
    if tensor_in_index(node.slice, walk) is None:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        construct = "list" if any(isinstance(part, ast.List) for part in parts) else None
        yield Mark(node, walk.tensor_name(node.value), construct=construct)


@check("HL133")
def tensor_index(node: ast.Subscript, walk: Walk) -> Iterator[Mark]:
    if not isinstance(node.ctx, ast.Load) or not walk.value(node.value).is_tensor:
        return
    if (index := tensor_in_index(node.slice, walk)) is not None:
        yield Mark(node, walk.tensor_name(node.value), index=walk.text(index))
