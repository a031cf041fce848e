"""Abstract execution of each kind of statement: assignments, branches and loops change the values of names."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from . import names
from .attributes import member
from .classes import Environment, Function, SourceClass
from .expressions import arithmetic, eager_branch
from .targets import bind, load_target, narrow
from .values import NONE, OTHER, Kind, Value, join
from .walk import Walk, evaluate, execute, run


@execute.register
def _(node: ast.Expr, walk: Walk) -> None:
    evaluate(walk, node.value)
    walk.look(node)


@execute.register
def _(node: ast.Assign, walk: Walk) -> None:
    value = evaluate(walk, node.value)
    for target in node.targets:
        bind(walk, target, value)
    walk.look(node)


@execute.register
def _(node: ast.AnnAssign, walk: Walk) -> None:
    if node.value is not None:
        bind(walk, node.target, evaluate(walk, node.value))
    walk.look(node)


@execute.register
def _(node: ast.AugAssign, walk: Walk) -> None:
    before = load_target(walk, node.target)
    right = evaluate(walk, node.value)
    walk.values[id(node.target)] = before
    walk.look(node)
    bind(walk, node.target, arithmetic(node.op, before, right))


@execute.register
def _(node: ast.Return, walk: Walk) -> bool:
    value = NONE if node.value is None else evaluate(walk, node.value)
    walk.frame.returns.append((node, value, walk.frame.varying))
    walk.look(node)
    return False


@execute.register
def _(node: ast.Raise, walk: Walk) -> bool:
    walk.frame.raising = True
    if node.exc is not None:
        evaluate(walk, node.exc)
    walk.frame.raising = False
    return False


@execute.register
def _(node: ast.Break | ast.Continue, walk: Walk) -> bool:
    return False


@execute.register
def _(node: ast.Assert, walk: Walk) -> None:
    evaluate(walk, node.test)
    walk.look(node)
    if node.msg is not None:
        walk.frame.raising = True
        evaluate(walk, node.msg)
        walk.frame.raising = False
    narrow(walk, node.test, True)


@execute.register
def _(node: ast.If, walk: Walk) -> bool:
    test = evaluate(walk, node.test)
    walk.look(node)
    frame = walk.frame
    varying = frame.varying
    frame.varying = varying or test.kind is Kind.MODE
    before = walk.names_known()
    only_eager = eager_branch(walk, node.test)
    with walk.quietly(only_eager is True):
        narrow(walk, node.test, True)
        reached_body = run(walk, node.body)
    after_body = frame.env
    frame.env = dict(before)
    with walk.quietly(only_eager is False):
        narrow(walk, node.test, False)
        reached_else = run(walk, node.orelse)
    if reached_body and reached_else:
        frame.env = _joined(walk, after_body, frame.env)
    elif reached_body:
        frame.env = after_body
    # What follows a branch that has returned is decided by the same test.
    frame.varying = frame.varying if not (reached_body and reached_else) else varying
    return reached_body or reached_else


@execute.register
def _(node: ast.While, walk: Walk) -> bool:
    def begin() -> None:
        evaluate(walk, node.test)
        narrow(walk, node.test, True)

    _loop(walk, node, begin)
    forever = isinstance(node.test, ast.Constant) and node.test.value is True
    return not forever or any(isinstance(inner, ast.Break) for inner in ast.walk(node))


@execute.register
def _(node: ast.For | ast.AsyncFor, walk: Walk) -> None:
    iterable = evaluate(walk, node.iter)
    walk.look(node)
    _loop(walk, node, lambda: bind(walk, node.target, member(iterable)))


def _loop(walk: Walk, node: ast.For | ast.AsyncFor | ast.While, begin: Callable[[], None]) -> None:
    """The body is walked until nothing new is learnt about the names, three times at most."""
    for _ in range(3):
        before = walk.names_known()
        begin()
        if isinstance(node, ast.While):
            walk.look(node)
        run(walk, node.body)
        walk.frame.env = _joined(walk, before, walk.frame.env)
        if walk.frame.env == before:
            break
    run(walk, node.orelse)


@execute.register
def _(node: ast.With | ast.AsyncWith, walk: Walk) -> bool:
    for item in node.items:
        value = evaluate(walk, item.context_expr)
        if item.optional_vars is not None:
            bind(walk, item.optional_vars, OTHER if value.has_tensor else value)
    walk.look(node)
    return run(walk, node.body)


@execute.register
def _(node: ast.Try | ast.TryStar, walk: Walk) -> bool:
    before = walk.names_known()
    reached = run(walk, node.body)
    walk.look(node)
    partial = _joined(walk, before, walk.frame.env)
    if reached:
        reached = run(walk, node.orelse)
    ends = [walk.frame.env] if reached else []
    for handler in node.handlers:
        walk.frame.env = dict(partial)
        if handler.name:
            walk.frame.env[handler.name] = OTHER
        if run(walk, handler.body):
            ends.append(walk.frame.env)
    walk.frame.env = ends[0] if ends else dict(partial)
    for end in ends[1:]:
        walk.frame.env = _joined(walk, walk.frame.env, end)
    finished = run(walk, node.finalbody)
    return bool(ends) and finished


@execute.register
def _(node: ast.Match, walk: Walk) -> None:
    subject = evaluate(walk, node.subject)
    walk.look(node)
    before = walk.names_known()
    ends = [before]
    for case in node.cases:
        walk.frame.env = dict(before)
        for pattern in ast.walk(case.pattern):
            name = getattr(pattern, "name", None) or getattr(pattern, "rest", None)
            if isinstance(name, str):
                walk.frame.env[name] = subject if pattern is case.pattern else member(subject)
        if case.guard is not None:
            evaluate(walk, case.guard)
        walk.look(case)
        if run(walk, case.body):
            ends.append(walk.frame.env)
    walk.frame.env = ends[0]
    for end in ends[1:]:
        walk.frame.env = _joined(walk, walk.frame.env, end)


@execute.register
def _(node: ast.FunctionDef | ast.AsyncFunctionDef, walk: Walk) -> None:
    closure = walk.frame if walk.frame.function is not None else None
    function = Function(node, walk.frame.source, walk.frame.module, closure=closure)
    walk.frame.env[node.name] = Value(Kind.FUNCTION, ref=function)


@execute.register
def _(node: ast.ClassDef, walk: Walk) -> None:
    cls = SourceClass(node.name, node, walk.frame.source, walk.frame.module)
    cls.bases = tuple(_base(evaluate(walk, base)) for base in node.bases)
    closure = walk.frame if walk.frame.function is not None else None
    for statement in node.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            method = Function(statement, walk.frame.source, walk.frame.module, owner=cls, closure=closure)
            cls.own_methods[statement.name] = method
    walk.frame.env[node.name] = Value(Kind.CLASS, ref=cls)
    walk.classes.append(cls)


def _base(value: Value) -> SourceClass | str | None:
    if isinstance(value.ref, SourceClass):
        return value.ref
    if value.kind is Kind.MODULE and isinstance(value.ref, str) and not value.ref.startswith("?."):
        return value.ref
    return None


@execute.register
def _(node: ast.Import, walk: Walk) -> None:
    for alias in node.names:
        root = alias.name.partition(".")[0]
        dotted = alias.name if alias.asname else root
        walk.frame.env[alias.asname or root] = Value(Kind.MODULE, ref=names.canonical(dotted))


@execute.register
def _(node: ast.ImportFrom, walk: Walk) -> None:
    base = "." * node.level + (node.module or "")
    for alias in node.names:
        dotted = f"{base}.{alias.name}" if node.module else f"{base}{alias.name}"
        walk.frame.env[alias.asname or alias.name] = Value(Kind.MODULE, ref=names.canonical(dotted))


@execute.register
def _(node: ast.Delete, walk: Walk) -> None:
    for target in node.targets:
        if isinstance(target, ast.Name):
            walk.frame.env.pop(target.id, None)
        elif isinstance(target, ast.Subscript):
            load_target(walk, target)
            walk.look(target)
        elif isinstance(target, ast.Attribute):
            load_target(walk, target)
    walk.look(node)


def _joined(walk: Walk, a: Mapping[str, Value], b: Mapping[str, Value]) -> Environment:
    """The names after two paths meet: one path leaves the values `a`, the other `b`."""
    walk.budget -= (len(a) + len(b)) >> 4
    joined = {**b, **a}
    for name, value in a.items():
        if (other := b.get(name)) is not None and other is not value:
            joined[name] = join(value, other)
    return joined
