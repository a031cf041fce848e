"""Calls of functions of the source, which are walked with their arguments, and constructors of its classes."""

from __future__ import annotations

import ast
from collections.abc import Hashable
from functools import reduce

from .classes import Attribute, Frame, Function, MarkKey, SourceClass, positional_arguments
from .values import NONE, OTHER, Kind, Value, constant, element_of, join, mapping, sequence, tensor
from .walk import Walk, evaluate, run

_DEPTH = 12


def call_function(walk: Walk, function: Function, arguments: list[Value], keywords: dict[str, Value]) -> Value:
    """The return value of a function of the source; it is walked once for equal arguments."""
    everything = [*arguments, *keywords.values()]
    if walk.constructing is None and walk.frames[0].function is None and len(walk.frames) == 1:
        return unknown_result(everything)  # module level: the result of a call does not matter there
    active = [frame.function for frame in walk.frames]
    if active.count(function) > 1 or len(walk.frames) > _DEPTH or walk.budget < 0:
        return unknown_result(everything)
    key: Hashable = None
    on_self = any(value.kind is Kind.SELF for value in everything)
    if function.closure is None and not (on_self and walk.constructing is not None):
        positional = tuple(_coarse(value) for value in arguments)
        named = tuple((name, _coarse(value)) for name, value in sorted(keywords.items()))
        key = (function, positional, named, bool(walk.quiet), walk.style)
        if key in walk.summaries:
            value, marks = walk.summaries[key]
            walk.lead_to(function, marks)
            return value
    value, marks = enter(walk, function, arguments, keywords)
    if key is not None:
        walk.summaries[key] = value, marks
    walk.lead_to(function, marks)
    return value


def enter(
    walk: Walk, function: Function, arguments: list[Value], keywords: dict[str, Value]
) -> tuple[Value, set[MarkKey]]:
    """Walk a function with these arguments; returns its return value and its marks."""
    env = _bound(function, arguments, keywords)
    walk.budget -= (len(env) + len(arguments)) >> 2
    frame = Frame(
        function,
        function.module,
        function.source,
        env,
        closure=function.closure,
        owner=function.owner or walk.frame.owner,
        checked=function.in_checked_method,
    )
    with walk.inside(frame):
        if isinstance(function.node, ast.Lambda):
            return evaluate(walk, function.node.body), frame.marks
        ends = run(walk, function.node.body)
    if not frame.returns and not ends:  # it only raises: a subclass defines it
        return unknown_result([*arguments, *keywords.values()]), frame.marks
    return reduce(join, [value for _, value, _ in frame.returns] or [NONE]), frame.marks


def _bound(function: Function, arguments: list[Value], keywords: dict[str, Value]) -> dict[str, Value]:
    signature = function.node.args
    positional = positional_arguments(function.node)
    if function.kind == "class" and arguments:
        arguments = [OTHER, *arguments[1:]]
    env: dict[str, Value] = {}
    for argument, default in zip(reversed(positional), reversed(signature.defaults), strict=False):
        env[argument.arg] = _default(default)
    for argument, keyword_default in zip(signature.kwonlyargs, signature.kw_defaults, strict=True):
        env[argument.arg] = _default(keyword_default) if keyword_default is not None else OTHER
    for argument, value in zip(positional, arguments, strict=False):
        env[argument.arg] = value
    names_taken = {argument.arg for argument in [*positional, *signature.kwonlyargs]}
    extra = [value for name, value in keywords.items() if name not in names_taken]
    env |= {name: value for name, value in keywords.items() if name in names_taken}
    for argument in positional:
        env.setdefault(argument.arg, OTHER)
    if signature.vararg is not None:
        env[signature.vararg.arg] = sequence(tuple(arguments[len(positional) :]))
    if signature.kwarg is not None:
        env[signature.kwarg.arg] = mapping(element_of(sequence(tuple(extra))) if extra else None)
    return env


def _default(node: ast.expr) -> Value:
    if isinstance(node, ast.Constant):
        return constant(node.value)
    if isinstance(node, (ast.List, ast.Tuple, ast.Dict)):
        return sequence(()) if not isinstance(node, ast.Dict) else mapping()
    return OTHER


def _coarse(value: Value) -> Hashable:
    """The part of an argument that the return value depends on: of literals the type alone."""
    return value.ref[0] if value.kind is Kind.CONSTANT and isinstance(value.ref, tuple) else value


def construct(walk: Walk, cls: SourceClass) -> None:
    """Find the attributes of self: class-level names, then everything that `__init__` assigns."""
    if cls.constructed:
        return
    cls.constructed = True
    outer, walk.constructing = walk.constructing, cls
    try:
        with walk.quietly():
            for base in reversed(list(cls.mro())):
                walk.budget -= len(base.node.body)
                with walk.inside(Frame(None, base.module, base.source, {}, owner=base)):
                    for statement in base.node.body:
                        _class_attribute(walk, cls, statement)
            init = cls.find("__init__")
            if init is not None:
                with walk.inside(Frame(None, init.module, init.source, {}, owner=cls)):
                    enter(walk, init, [Value(Kind.SELF, ref=cls)], {})
    finally:
        walk.constructing = outer


def _class_attribute(walk: Walk, cls: SourceClass, statement: ast.stmt) -> None:
    """Note the names that a statement in the body of a class assigns."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        value = evaluate(walk, statement.value)
        for target in targets:
            if isinstance(target, ast.Name):
                cls.attributes[target.id] = Attribute(target.id, value, statement)


def keep_children(walk: Walk, values: list[Value]) -> None:
    """Blocks handed to another block or function count as registered by it."""
    if walk.constructing is None:
        return
    for value in values:
        if value.site is not None:
            walk.constructing.registered.add(value.site)
        if value.kind in (Kind.SEQUENCE, Kind.MAPPING):
            keep_children(walk, list(value.members))


def unknown_result(everything: list[Value]) -> Value:
    """The return value of an unknown function: tensors, or lists of them, if it was given tensors."""
    return tensor(single=False) if any(value.has_tensor for value in everything) else OTHER


def input_in(value: Value) -> bool:
    """Whether an input of the block takes part in a value."""
    if value.kind is Kind.TENSOR:
        return value.depends
    return any(input_in(member) for member in value.members)
