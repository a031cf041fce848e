"""Checks of rules about Python control flow that depends on a tensor's numbers."""

import ast
from collections.abc import Iterator

from ...diagnostics.expression import one_line
from ...diagnostics.finding import Severity
from ..values import Kind
from ..walk import Mark, Walk, check

_ITERATING = {
    "list", "tuple", "set", "frozenset", "sorted", "reversed", "enumerate", "zip", "iter", "sum", "any", "all", "map",
    "filter", "dict",
}  # fmt: skip


def _conditions(node: ast.AST, walk: Walk) -> Iterator[tuple[str, ast.expr]]:
    """The expressions whose truth a piece of syntax asks for, with the word for it."""
    if isinstance(node, ast.If):
        yield ("elif" if walk.starts_with(node, "elif") else "if"), node.test
    elif isinstance(node, ast.IfExp):
        yield "if", node.test
    elif isinstance(node, ast.Assert):
        yield "assert", node.test
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not", node.operand
    elif isinstance(node, ast.BoolOp):
        word = "and" if isinstance(node.op, ast.And) else "or"
        yield from ((word, operand) for operand in node.values[:-1])
    elif isinstance(node, ast.Compare) and len(node.ops) > 1:
        if not any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops):
            yield "chained comparison", node
    elif isinstance(node, ast.comprehension):
        yield from (("if", condition) for condition in node.ifs)
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        # A list is searched with `==`, whose truth is asked for.
        if walk.value(node.comparators[0]).kind is Kind.SEQUENCE:
            yield "in", node.left
    elif isinstance(node, ast.Call) and walk.dotted(node.func) == "builtins.bool":
        yield from (("bool", argument) for argument in node.args[:1])
    elif isinstance(node, ast.Call) and walk.dotted(node.func) in ("builtins.any", "builtins.all"):
        word = (walk.dotted(node.func) or "").removeprefix("builtins.")
        yield from ((word, argument) for argument in node.args[:1] if _holds_tensors(argument, walk))
    elif isinstance(node, ast.Match):
        yield "match", node.subject


def _holds_tensors(node: ast.expr, walk: Walk) -> bool:
    value = walk.value(node)
    return value.kind is Kind.SEQUENCE and any(member.is_one_tensor for member in value.members)


@check("HL121")
def tensor_condition(
    node: ast.If
    | ast.IfExp
    | ast.Assert
    | ast.BoolOp
    | ast.UnaryOp
    | ast.Compare
    | ast.comprehension
    | ast.Call
    | ast.Match,
    walk: Walk,
) -> Iterator[Mark]:
    for construct, condition in _conditions(node, walk):
        if walk.value(condition).is_one_tensor or construct in ("any", "all"):
            tensor = walk.root_name(condition) or walk.tensor_name(condition)
            text = one_line(condition, walk.text(condition))
            yield Mark(condition, tensor, construct=construct, condition=text)


@check("HL122")
def tensor_while(node: ast.While, walk: Walk) -> Iterator[Mark]:
    if walk.value(node.test).is_one_tensor:
        yield Mark(node.test, walk.root_name(node.test) or walk.tensor_name(node.test))


@check("HL123")
def tensor_iteration(
    node: ast.For | ast.AsyncFor | ast.comprehension | ast.Call | ast.Starred | ast.YieldFrom,
    walk: Walk,
) -> Iterator[Mark]:
    if isinstance(node, ast.Call):
        name = walk.dotted(node.func) or ""
        walked = node.args if name.removeprefix("builtins.") in _ITERATING and name.startswith("builtins.") else []
        if name.endswith((".map", ".filter")):
            walked = walked[1:]
    elif isinstance(node, ast.Starred | ast.YieldFrom):
        walked = [node.value]
    else:
        walked = [node.iter]
    for iterable in walked:
        if walk.value(iterable).is_one_tensor and not isinstance(iterable, ast.Starred):
            yield Mark(iterable, walk.tensor_name(iterable))


@check("HL126")
def tensor_range(node: ast.Call, walk: Walk) -> Iterator[Mark]:
    if walk.dotted(node.func) != "builtins.range":
        return
    for bound in node.args:
        value = walk.value(bound)
        if value.kind in (Kind.HOST, Kind.LENGTH) or value.is_one_tensor:
            guarded = value.kind is Kind.LENGTH and walk.style == "forward"
            severity = Severity.WARNING if guarded else None
            yield Mark(node, value.name or walk.root_name(bound), severity=severity)
            return
