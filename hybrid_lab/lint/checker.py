"""The walk over a class and over a module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress

from . import calls, checks, expressions, statements  # noqa: F401 - they register how syntax is walked and checked
from .arguments import seeds
from .classes import Environment, Frame, Function, Module, SourceClass, positional_arguments
from .functions import construct
from .source import nested_statements
from .values import OTHER, Kind, Value, mapping, sequence, tensor
from .walk import Walk, run


def check_class(walk: Walk, cls: SourceClass) -> None:
    """Walk the constructor, then the method that makes the graph; all marks are in `marks`."""
    construct(walk, cls)
    walk.block = cls
    cls_hybrid = cls.own_methods.get("hybrid_forward")
    inherited = cls.find("hybrid_forward")
    forward = cls.own_methods.get("forward")
    walk.style = "hybrid_forward" if inherited is not None else "forward"
    walk.operators = None
    with walk.inside(Frame(None, cls.module, cls.source, {}, owner=cls)):
        walk.look(cls.node)
    if cls_hybrid is not None:
        walk_method(walk, cls, cls_hybrid, takes_operators=True)
    # Methods around hybrid_forward are traced with it, as 2.x-style code.
    walk.style, walk.operators, walk.around = "forward", None, inherited is not None
    for method in (forward, cls.own_methods.get("__call__")):
        if method is not None:
            walk_method(walk, cls, method, takes_operators=False)


def walk_method(walk: Walk, cls: SourceClass, method: Function, takes_operators: bool) -> None:
    """Walk the method that makes the graph. takes_operators : its first argument after self is F."""
    arguments = method.node.args
    positional = positional_arguments(method.node)
    env: Environment = {}
    if positional:
        env[positional[0].arg] = Value(Kind.SELF, ref=cls)
    rest = positional[1:]
    if takes_operators and rest:
        walk.operators = rest[0].arg
        env[rest[0].arg] = Value(Kind.OPERATORS, ref="")
        rest = rest[1:]
    env |= seeds(cls, method.node, [*rest, *arguments.kwonlyargs])
    if arguments.vararg:
        env[arguments.vararg.arg] = sequence(element=tensor(arguments.vararg.arg, single=False))
    if arguments.kwarg:
        env[arguments.kwarg.arg] = mapping(tensor(arguments.kwarg.arg, depends=False))
    with walk.inside(Frame(method, method.module, method.source, env, method.closure, owner=cls, checked=True)):
        run(walk, getattr(method.node, "body", ()))
        walk.look(method.node)


def define(walk: Walk, module: Module) -> list[SourceClass]:
    """Find the names of a module, quietly; returns its classes, those inside functions too.

    A statement that is nested too deeply is passed over.
    """
    walk.classes = []
    frame = Frame(None, module, module.source, module.names)
    with walk.quietly():
        for statement in module.source.tree.body:
            with walk.inside(frame), suppress(RecursionError):
                if not run(walk, [statement]):
                    break
        # Branches replace the environment; their names belong to the module.
        module.names.update(frame.env)
        for function in _functions_with_classes(module.source.tree):
            env = {argument.arg: OTHER for argument in ast.walk(function) if isinstance(argument, ast.arg)}
            walk.budget -= len(env)
            with walk.inside(Frame(Function(function, module.source, module), module, module.source, env)):
                with suppress(RecursionError):
                    run(walk, function.body)
    return walk.classes


def _functions_with_classes(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions and methods in whose bodies classes are defined."""
    for node in nested_statements(tree.body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            blocks = [node.body, *(part.body for part in node.body if isinstance(part, (ast.If, ast.With, ast.Try)))]
            if any(isinstance(statement, ast.ClassDef) for block in blocks for statement in block):
                yield node
