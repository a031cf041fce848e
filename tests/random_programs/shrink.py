"""Makes a failing program small: statements go, expressions become parts of themselves, as long as it still fails."""

from __future__ import annotations

import ast
import copy
import itertools
import time
from collections.abc import Callable, Iterator


def shrink(text: str, fails: Callable[[str], bool], seconds: float = 60.0) -> str:
    """The smallest text found that still fails, in about so much time."""
    end = time.monotonic() + seconds
    best, before = ast.unparse(ast.parse(text)), ""
    while best != before:
        before = best
        for smaller in (_without_statements, _hoisted, _simpler_expressions):
            place = 0
            while time.monotonic() < end:
                candidate = next(itertools.islice(smaller(ast.parse(best)), place, None), None)
                if candidate is None:
                    break
                if candidate != best and fails(candidate):
                    best = candidate  # what comes next has moved to the same place
                else:
                    place += 1
    return best


def _without_statements(tree: ast.Module) -> Iterator[str]:
    """Without some statements: many at first, the last ones first."""
    for size in (16, 8, 4, 2, 1):
        for number, (node, name) in enumerate(_nodes(tree)):
            for start in range(len(getattr(node, name)) - size, -1, -size):
                yield from _edited(tree, number, name, start, size)


def _nodes(tree: ast.AST) -> list[tuple[ast.AST, str]]:
    return [
        (node, name)
        for node in ast.walk(tree)
        for name in ("body", "orelse")
        if isinstance(getattr(node, name, None), list)
    ]


def _edited(tree: ast.Module, number: int, name: str, start: int, size: int) -> Iterator[str]:
    """Without `size` statements; a body that would be empty passes."""
    again = copy.deepcopy(tree)
    node, name = _nodes(again)[number]
    body = getattr(node, name)
    if size == 1 and isinstance(body[start], ast.Pass):
        return
    del body[start : start + size]
    if not body and name == "body":
        body.append(ast.Pass())
    yield ast.unparse(ast.fix_missing_locations(again))


def _hoisted(tree: ast.Module) -> Iterator[str]:
    """A `with`, `for`, `if` or `try` is replaced by what is in it."""
    for number, (node, name) in enumerate(_nodes(tree)):
        for place, statement in enumerate(getattr(node, name)):
            if isinstance(statement, (ast.With, ast.For, ast.If, ast.Try)):
                again = copy.deepcopy(tree)
                outer, key = _nodes(again)[number]
                body = getattr(outer, key)
                body[place : place + 1] = body[place].body
                yield ast.unparse(ast.fix_missing_locations(again))


def _simpler_expressions(tree: ast.Module) -> Iterator[str]:
    """An expression is replaced by one of its parts; an argument, an element or a keyword goes."""
    for number, node in enumerate(ast.walk(tree)):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Call):
            parts = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        elif isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
        elif isinstance(node, ast.UnaryOp):
            parts = [node.operand]
        elif isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            parts = [node.value]
        elif isinstance(node, (ast.Tuple, ast.List)) and isinstance(node.ctx, ast.Load):
            parts = list(node.elts)
        for part in parts:
            yield _replaced(tree, number, part)
        for key in ("keywords", "args", "elts"):
            for place in (
                range(len(getattr(node, key, None) or [])) if isinstance(getattr(node, key, None), list) else ()
            ):
                again = copy.deepcopy(tree)
                del getattr(list(ast.walk(again))[number], key)[place]
                yield _unparsed(again)


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.expr):
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else super().visit(node)


def _replaced(tree: ast.Module, number: int, part: ast.expr) -> str:
    memo: dict[int, object] = {}
    again = copy.deepcopy(tree, memo)
    new = memo[id(part)]
    assert isinstance(new, ast.expr)
    return _unparsed(_Replace(list(ast.walk(again))[number], new).visit(again))


def _unparsed(tree: ast.Module) -> str:
    return ast.unparse(ast.fix_missing_locations(tree))
