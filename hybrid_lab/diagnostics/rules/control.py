"""Rules about Python control flow that depends on a tensor's numbers."""

import ast
from collections.abc import Iterator

from ..expression import one_line
from ..finding import Severity
from .checking import Checking, Mark
from .record import Rule, rule
from .values import Kind

_ITERATING = {
    "list", "tuple", "set", "frozenset", "sorted", "reversed", "enumerate", "zip", "iter", "sum", "any", "all", "map",
    "filter", "dict",
}  # fmt: skip


def _conditions(node: ast.AST, checking: Checking) -> Iterator[tuple[str, ast.expr]]:
    """The expressions whose truth a piece of syntax asks for, with the word for it."""
    if isinstance(node, ast.If):
        yield ("elif" if _is_elif(node, checking) else "if"), node.test
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
        if checking.value(node.comparators[0]).kind is Kind.SEQUENCE:
            yield "in", node.left
    elif isinstance(node, ast.Call) and checking.dotted(node.func) == "builtins.bool":
        yield from (("bool", argument) for argument in node.args[:1])
    elif isinstance(node, ast.Call) and checking.dotted(node.func) in ("builtins.any", "builtins.all"):
        word = (checking.dotted(node.func) or "").removeprefix("builtins.")
        yield from ((word, argument) for argument in node.args[:1] if _holds_tensors(argument, checking))
    elif isinstance(node, ast.Match):
        yield "match", node.subject


def _holds_tensors(node: ast.expr, checking: Checking) -> bool:
    value = checking.value(node)
    return value.kind is Kind.SEQUENCE and any(member.is_one_tensor for member in value.members)


def _is_elif(node: ast.If, checking: Checking) -> bool:
    return checking.text(node).startswith("elif")


@rule("HL121", "tensor-condition", Severity.ERROR, error=TypeError)
class TensorCondition(Rule):
    """Using a tensor as a condition: `if`, `not`, `and`, `or`, `assert`, `a if x else b`.

    Why: a graph is traced once, before the values of tensors are known.
    Bad:
        if x.max() > 0.5:
            return x
        return -x
    Instead:
        return F.where(x > 0.5, x, -x)       # or F.contrib.cond(...)
    """

    message = "`{construct}` on {tensor} cannot become part of a graph."
    rewrite = "F.where({condition}, a, b)      or      F.contrib.cond(...)"
    rewrites = {
        "any": "join the conditions with F.broadcast_logical_or, then F.where(joined, a, b)",
        "all": "join the conditions with F.broadcast_logical_and, then F.where(joined, a, b)",
        "in": "F.where({condition} == other, a, b)",
        "assert": "check it outside the network      or      in a plain Block",
    }
    defaults = {"construct": "if", "condition": "condition"}

    def at(
        self,
        node: ast.If
        | ast.IfExp
        | ast.Assert
        | ast.BoolOp
        | ast.UnaryOp
        | ast.Compare
        | ast.comprehension
        | ast.Call
        | ast.Match,
        checking: Checking,
    ) -> Iterator[Mark]:
        for construct, condition in _conditions(node, checking):
            if checking.value(condition).is_one_tensor or construct in ("any", "all"):
                tensor = checking.root_name(condition) or checking.tensor_name(condition)
                text = one_line(condition, checking.text(condition))
                yield checking.mark(condition, tensor, construct=construct, condition=text)


@rule("HL122", "tensor-while", Severity.ERROR, error=TypeError)
class TensorWhile(Rule):
    """Using a tensor as the condition of a `while` loop.

    Why: a graph is traced once, before the values of tensors are known, so the number of iterations is not known
        either.
    Bad:
        while F.sum(x) > 1:
            x = x / 2
        return x
    Instead:
        outputs, (x,) = F.contrib.while_loop(
            cond=lambda x: F.sum(x) > 1, func=lambda x: (x, [x / 2]), loop_vars=[x], max_iterations=100)
        return x
    """

    message = "`while` on {tensor} cannot become part of a graph."
    rewrite = "F.contrib.while_loop(cond, func, loop_vars, max_iterations)"

    def at(self, node: ast.While, checking: Checking) -> Iterator[Mark]:
        if checking.value(node.test).is_one_tensor:
            yield checking.mark(node.test, checking.root_name(node.test) or checking.tensor_name(node.test))


@rule("HL123", "tensor-iteration", Severity.ERROR, error=TypeError)
class TensorIteration(Rule):
    """Iterating over a tensor: `for`, comprehensions, `zip`, `enumerate`, `list`, `*x`.

    Why: the length is not known while the graph is traced. MXNet silently iterates over the outputs of the Symbol
        instead: a single step.
    Bad:
        state = 0
        for row in x:
            state = state + row
        return state
    Instead:
        outputs, state = F.contrib.foreach(lambda row, state: (row, state + row), x, F.zeros((1,)))
        return state
    """

    message = "{tensor} cannot be iterated over: its length is not known while a graph is made."
    rewrite = "F.contrib.foreach(body, {x}, init_states)      or      F.split({x}, num_outputs=n, axis=0)"
    softer_in_forward = True

    def at(
        self,
        node: ast.For | ast.AsyncFor | ast.comprehension | ast.Call | ast.Starred | ast.YieldFrom,
        checking: Checking,
    ) -> Iterator[Mark]:
        if isinstance(node, ast.Call):
            name = checking.dotted(node.func) or ""
            walked = node.args if name.removeprefix("builtins.") in _ITERATING and name.startswith("builtins.") else []
            if name.endswith((".map", ".filter")):
                walked = walked[1:]
        elif isinstance(node, ast.Starred | ast.YieldFrom):
            walked = [node.value]
        else:
            walked = [node.iter]
        for iterable in walked:
            if checking.value(iterable).is_one_tensor and not isinstance(iterable, ast.Starred):
                yield checking.mark(iterable, checking.tensor_name(iterable))


@rule("HL126", "tensor-range", Severity.ERROR, error=TypeError)
class TensorRange(Rule):
    """A loop over `range()` whose bound comes from a tensor.

    Why: the number of iterations would have to be known before the graph runs.
    Bad:
        total = 0
        for i in range(len(x)):
            total = total + x[i]
        return total
    Instead:
        return F.sum(x, axis=0)              # or F.contrib.foreach, F.SequenceMask
    """

    message = "`{construct}` depends on {tensor}, whose numbers do not exist while a graph is made."
    rewrite = "F.contrib.foreach(body, data, init_states)      or      F.SequenceMask(data, lengths)"
    defaults = {"construct": "range()"}

    def at(self, node: ast.Call, checking: Checking) -> Iterator[Mark]:
        if checking.dotted(node.func) != "builtins.range":
            return
        for bound in node.args:
            value = checking.value(bound)
            if value.kind in (Kind.HOST, Kind.LENGTH) or value.is_one_tensor:
                guarded = value.kind is Kind.LENGTH and checking.style == "forward"
                severity = Severity.WARNING if guarded else None
                yield checking.mark(node, value.name or checking.root_name(bound), severity=severity)
                return
