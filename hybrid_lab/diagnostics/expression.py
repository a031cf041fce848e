"""The name of a tensor in messages: its expression in the source if that is short, else the first name in it."""

from __future__ import annotations

import ast
from collections.abc import Callable

_LONGEST = 40
_SEVERAL = (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def one_line(node: ast.AST, text: str) -> str:
    """An expression on one line. text : its source, kept unless it has line breaks."""
    return ast.unparse(node) if "\n" in text else " ".join(text.split())


def right_side(node: ast.AugAssign, text: Callable[[ast.AST], str]) -> str:
    """The right side of `x *= a + b`, in brackets where `x = x * (a + b)` needs them. text(node) : its source."""
    right = one_line(node.value, text(node.value))
    loose = isinstance(node.value, ast.BinOp | ast.IfExp | ast.Compare | ast.BoolOp | ast.Lambda | ast.NamedExpr)
    return f"({right})" if loose else right


def root_name(node: ast.AST, is_tensor: Callable[[ast.Name], bool]) -> str | None:
    """The first name inside an expression that is a tensor, or a container of tensors; in comprehensions the iterated
    values come first.
    """
    if isinstance(node, ast.Name):
        return node.id if is_tensor(node) else None
    walked = [generator.iter for generator in getattr(node, "generators", ())]
    for child in [*walked, *ast.iter_child_nodes(node)]:
        if (name := root_name(child, is_tensor)) is not None:
            return name
    return None


def tensor_name(node: ast.AST, text: str, is_tensor: Callable[[ast.Name], bool]) -> str:
    """`x`, `self.body(x)`; for long expressions and for lists of tensors the first name in them.

    text : the source of `node`.
    """
    text = one_line(node, text)
    if isinstance(node, ast.Name) or (len(text) <= _LONGEST and not isinstance(node, _SEVERAL)):
        return text
    return root_name(node, is_tensor) or "x"
