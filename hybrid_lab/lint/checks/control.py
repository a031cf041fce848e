"""Checks of rules about Python control flow that depends on a tensor's numbers."""

import ast
from collections.abc import Iterator

from hybrid_lab.diagnostics.expression import one_line
from hybrid_lab.diagnostics.finding import Severity

from ..values import Kind
from ..walk import Mark, Walk, check

_ITERATING = {
    "list", "tuple", "set", "frozenset", "sorted", "reversed", "enumerate", "zip", "iter", "sum", "any", "all", "map",
    "filter", "dict",
}  # fmt: skip


_TRUTH = {"builtins.bool": "bool", "operator.truth": "bool", "operator.not_": "not"}
_BY_TRUTH = {"builtins.filter", "itertools.takewhile", "itertools.dropwhile", "itertools.filterfalse"}
_OF_MEMBERS = {"any", "all", "filter", "takewhile", "dropwhile", "filterfalse"}
_SEARCHING = ("index", "count", "remove")


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
    elif isinstance(node, ast.match_case) and node.guard is not None:
        yield "if", node.guard
    elif isinstance(node, ast.BoolOp):
        word = "and" if isinstance(node.op, ast.And) else "or"
        yield from ((word, operand) for operand in node.values[:-1])
    elif isinstance(node, ast.Compare) and len(node.ops) > 1:
        # `a < b < c` asks for the truth of all its comparisons but the last.
        operands = [node.left, *node.comparators]
        for op, left, right in zip(node.ops[:-1], operands, operands[1:], strict=False):
            compares = not isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn)
            if compares and any(walk.value(side).is_one_tensor for side in (left, right)):
                yield "chained comparison", node
                break
    elif isinstance(node, ast.comprehension):
        yield from (("if", condition) for condition in node.ifs)
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        # A list is searched with `==`, whose truth is asked for.
        if walk.value(node.comparators[0]).kind is Kind.SEQUENCE:
            yield "in", node.left
    elif isinstance(node, ast.Call) and walk.dotted(node.func) in _TRUTH:
        yield from ((_TRUTH[walk.dotted(node.func) or ""], argument) for argument in node.args[:1])
    elif isinstance(node, ast.Call) and walk.dotted(node.func) in _BY_TRUTH and node.args:
        word = (walk.dotted(node.func) or "").rpartition(".")[2]
        result = walk.results.get(id(node))
        body = getattr(node.args[0], "body", None)  # of a lambda
        if (result is not None and result.is_one_tensor) or (body is not None and any(_tested(body, walk))):
            yield word, node.args[0]
    elif isinstance(node, ast.Call) and walk.dotted(node.func) in ("builtins.any", "builtins.all"):
        word = (walk.dotted(node.func) or "").removeprefix("builtins.")
        yield from ((word, argument) for argument in node.args[:1] if _holds_tensors(argument, walk))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SEARCHING:
        # `list.index(x)` searches with `==`, as `in` does.
        owner = walk.value(node.func.value)
        if owner.kind is Kind.SEQUENCE and owner.has_tensor:
            yield from (("in", argument) for argument in node.args[:1])
    elif isinstance(node, ast.Match):
        if walk.value(node.subject).kind not in (Kind.SEQUENCE, Kind.MAPPING):
            yield "match", node.subject
        for case in node.cases:
            yield from (("match", tested) for tested in _compared(case.pattern, node.subject, walk))


def _compared(pattern: ast.pattern, subject: ast.expr, walk: Walk) -> Iterator[ast.expr]:
    """The parts of a subject, `x` of `match (x, y)`, that a pattern compares with a value."""
    if isinstance(pattern, ast.MatchOr):
        for each in pattern.patterns:
            yield from _compared(each, subject, walk)
    elif isinstance(pattern, ast.MatchAs) and pattern.pattern is not None:
        yield from _compared(pattern.pattern, subject, walk)
    elif isinstance(pattern, ast.MatchSequence) and isinstance(subject, ast.Tuple | ast.List):
        for part, element in zip(pattern.patterns, subject.elts, strict=False):
            if isinstance(part, ast.MatchStar) or isinstance(element, ast.Starred):
                return
            if isinstance(part, ast.MatchValue):
                yield element
            yield from _compared(part, element, walk)
    elif isinstance(pattern, ast.MatchSequence | ast.MatchMapping):
        of_tensors = any(member.is_one_tensor for member in walk.value(subject).members)
        if of_tensors and any(isinstance(part, ast.MatchValue) for part in pattern.patterns):
            yield subject


def _tested(condition: ast.expr, walk: Walk) -> Iterator[ast.expr]:
    """The tensors whose truth a condition asks for: for `a and b`, `b` (the rule looks at `a` by itself); for
    `a if test else b`, both.
    """
    if walk.value(condition).is_one_tensor:
        yield condition
    elif isinstance(condition, ast.BoolOp):
        yield from _tested(condition.values[-1], walk)
    elif isinstance(condition, ast.IfExp):
        yield from _tested(condition.body, walk)
        yield from _tested(condition.orelse, walk)
    elif isinstance(condition, ast.NamedExpr):
        yield from _tested(condition.value, walk)


def _holds_tensors(node: ast.expr, walk: Walk) -> bool:
    value = walk.value(node)
    if value.kind is Kind.SEQUENCE and any(member.is_one_tensor for member in value.members):
        return True
    parts = getattr(node, "elts", None) or [part for part in [getattr(node, "elt", None)] if part is not None]
    return any(tested for part in parts for tested in _tested(part, walk))


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
    | ast.Match
    | ast.match_case,
    walk: Walk,
) -> Iterator[Mark]:
    for construct, condition in _conditions(node, walk):
        whole = construct in _OF_MEMBERS or construct == "chained comparison"
        whole = whole or (construct == "match" and walk.value(condition).kind in (Kind.SEQUENCE, Kind.MAPPING))
        for tested in [condition] if whole else _tested(condition, walk):
            tensor = walk.root_name(tested) or walk.tensor_name(tested)
            text = one_line(tested, walk.text(tested))
            yield Mark(tested, tensor, construct=construct, condition=text)


@check("HL122")
def tensor_while(node: ast.While, walk: Walk) -> Iterator[Mark]:
    for tested in _tested(node.test, walk):
        yield Mark(tested, walk.root_name(tested) or walk.tensor_name(tested))


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
