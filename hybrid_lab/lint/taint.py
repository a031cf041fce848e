"""Follows tensors from the arguments of hybrid_forward (or forward) through the statements of a method."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from ..diagnostics.rules.checking import Attribute
from ..diagnostics.rules.values import NONE, OTHER, Kind, Value, element_of, join, sequence, tensor
from . import names
from .classes import Function, SourceClass
from .frame import Environment, Frame
from .known_calls import KnownCalls


class Taint(KnownCalls):
    """The walk over statements: assignments, branches, loops; what they do to the values of names."""

    block: SourceClass | None
    classes: list[SourceClass]

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    # Statements. `run` tells whether control reaches the end of the block.

    def run(self, body: Iterable[ast.stmt]) -> bool:
        for statement in body:
            handler = getattr(self, f"do_{type(statement).__name__}", None)
            self.budget -= 1
            if self.budget < 0:
                return True
            if handler is None:
                self.look(statement)
            elif handler(statement) is False:
                return False
        return True

    def do_Expr(self, node: ast.Expr) -> None:
        self.evaluate(node.value)
        self.look(node)

    def do_Assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        for target in node.targets:
            self.bind(target, value)
        self.look(node)

    def do_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.bind(node.target, self.evaluate(node.value))
        self.look(node)

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        before = self.load_target(node.target)
        right = self.evaluate(node.value)
        self.values[id(node.target)] = before
        self.look(node)
        self.bind(node.target, self.arithmetic(node.op, before, right))

    def do_Return(self, node: ast.Return) -> bool:
        value = NONE if node.value is None else self.evaluate(node.value)
        self.frame.returns.append((node, value, self.frame.varying))
        self.look(node)
        return False

    def do_Raise(self, node: ast.Raise) -> bool:
        self.frame.raising = True
        if node.exc is not None:
            self.evaluate(node.exc)
        self.frame.raising = False
        return False

    def do_Break(self, node: ast.Break) -> bool:
        return False

    do_Continue = do_Break

    def do_Assert(self, node: ast.Assert) -> None:
        self.evaluate(node.test)
        self.look(node)
        if node.msg is not None:
            self.frame.raising = True
            self.evaluate(node.msg)
            self.frame.raising = False
        self.narrow(node.test, True)

    def do_If(self, node: ast.If) -> bool:
        test = self.evaluate(node.test)
        self.look(node)
        frame = self.frame
        varying = frame.varying
        frame.varying = varying or self.decided_anew(test)
        before = dict(frame.env)
        only_eager = self.eager_branch(node.test)
        reached_body = self._branch(node.body, node.test, True, quiet=only_eager is True)
        after_body = frame.env
        frame.env = dict(before)
        reached_else = self._branch(node.orelse, node.test, False, quiet=only_eager is False)
        if reached_body and reached_else:
            frame.env = _joined(after_body, frame.env)
        elif reached_body:
            frame.env = after_body
        # What follows a branch that has returned is decided by the same test.
        frame.varying = frame.varying if not (reached_body and reached_else) else varying
        return reached_body or reached_else

    def _branch(self, body: list[ast.stmt], test: ast.expr, outcome: bool, quiet: bool) -> bool:
        self.quiet += quiet
        self.narrow(test, outcome)
        reached = self.run(body)
        self.quiet -= quiet
        return reached

    def do_While(self, node: ast.While) -> bool:
        self._loop(node, lambda: self.narrow_after(node.test))
        forever = isinstance(node.test, ast.Constant) and node.test.value is True
        return not forever or any(isinstance(inner, ast.Break) for inner in ast.walk(node))

    def do_For(self, node: ast.For | ast.AsyncFor) -> None:
        iterable = self.evaluate(node.iter)
        self.look(node)
        self._loop(node, lambda: self.bind(node.target, self.member(iterable)))

    do_AsyncFor = do_For

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, start: Any) -> None:
        """The body is walked until nothing new is learnt about the names, three times at most."""
        for _ in range(3):
            before = dict(self.frame.env)
            start()
            if isinstance(node, ast.While):
                self.look(node)
            self.run(node.body)
            self.frame.env = _joined(before, self.frame.env)
            if self.frame.env == before:
                break
        self.run(node.orelse)

    def narrow_after(self, test: ast.expr) -> None:
        self.evaluate(test)
        self.narrow(test, True)

    def do_With(self, node: ast.With | ast.AsyncWith) -> bool:
        for item in node.items:
            value = self.evaluate(item.context_expr)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, OTHER if value.has_tensor else value)
        self.look(node)
        return self.run(node.body)

    do_AsyncWith = do_With

    def do_Try(self, node: ast.Try) -> bool:
        before = dict(self.frame.env)
        reached = self.run(node.body)
        self.look(node)
        partial = _joined(before, self.frame.env)
        if reached:
            reached = self.run(node.orelse)
        ends = [self.frame.env] if reached else []
        for handler in node.handlers:
            self.frame.env = dict(partial)
            if handler.name:
                self.frame.env[handler.name] = OTHER
            if self.run(handler.body):
                ends.append(self.frame.env)
        self.frame.env = ends[0] if ends else dict(partial)
        for end in ends[1:]:
            self.frame.env = _joined(self.frame.env, end)
        finished = self.run(node.finalbody)
        return bool(ends) and finished

    do_TryStar = do_Try

    def do_Match(self, node: ast.Match) -> None:
        subject = self.evaluate(node.subject)
        self.look(node)
        before = dict(self.frame.env)
        ends = [before]
        for case in node.cases:
            self.frame.env = dict(before)
            for pattern in ast.walk(case.pattern):
                name = getattr(pattern, "name", None) or getattr(pattern, "rest", None)
                if isinstance(name, str):
                    self.frame.env[name] = subject if pattern is case.pattern else self.member(subject)
            if case.guard is not None:
                self.evaluate(case.guard)
            if self.run(case.body):
                ends.append(self.frame.env)
        self.frame.env = ends[0]
        for end in ends[1:]:
            self.frame.env = _joined(self.frame.env, end)

    def do_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        closure = self.frame if self.frame.function is not None else None
        function = Function(node, self.frame.source, self.frame.module, closure=closure)
        self.frame.env[node.name] = Value(Kind.FUNCTION, ref=function)

    do_AsyncFunctionDef = do_FunctionDef

    def do_ClassDef(self, node: ast.ClassDef) -> None:
        cls = SourceClass(node.name, node, self.frame.source, self.frame.module)
        cls.bases = tuple(self._base(self.evaluate(base)) for base in node.bases)
        closure = self.frame if self.frame.function is not None else None
        for statement in node.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                method = Function(statement, self.frame.source, self.frame.module, owner=cls, closure=closure)
                cls.own_methods[statement.name] = method
        self.frame.env[node.name] = Value(Kind.CLASS, ref=cls)
        self.classes.append(cls)

    @staticmethod
    def _base(value: Value) -> SourceClass | str | None:
        if isinstance(value.ref, SourceClass):
            return value.ref
        if value.kind is Kind.MODULE and isinstance(value.ref, str) and not value.ref.startswith("?."):
            return value.ref
        return None

    def do_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            root = alias.name.partition(".")[0]
            dotted = alias.name if alias.asname else root
            self.frame.env[alias.asname or root] = Value(Kind.MODULE, ref=names.canonical(dotted))

    def do_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = "." * node.level + (node.module or "")
        for alias in node.names:
            self.frame.env[alias.asname or alias.name] = Value(Kind.MODULE, ref=names.canonical(f"{base}.{alias.name}"))

    def do_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.frame.env.pop(target.id, None)
            elif isinstance(target, ast.Subscript):
                self.load_target(target)
                self.look(target)

    # Names and targets

    def bind(self, target: ast.expr, value: Value) -> None:
        """Assign an abstract value to a target expression."""
        self.values[id(target)] = value
        if isinstance(target, ast.Name):
            named = value.kind is Kind.TENSOR and value.name is None
            self.frame.env[target.id] = value.but(name=target.id) if named else value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for element, part in zip(target.elts, self.unpacked(value, target.elts), strict=True):
                self.bind(element.value if isinstance(element, ast.Starred) else element, part)
        elif isinstance(target, ast.Attribute):
            owner = self.evaluate(target.value)
            if owner.kind is Kind.SELF:
                self.store_on_self(target, target.attr, value)
            self.values[id(target)] = value
            self.look(target)
        elif isinstance(target, ast.Subscript):
            owner = self.evaluate(target.value)
            self.evaluate(target.slice)
            self.look(target)
            if owner.kind in (Kind.SEQUENCE, Kind.MAPPING):
                self.grow(target.value, owner, value)

    def store_on_self(self, target: ast.AST, name: str, value: Value) -> None:
        if self.constructing is None:
            return
        if value.site is not None:
            self.constructing.registered.add(value.site)
        known = self.constructing.attributes.get(name)
        if known is not None and known.value != NONE and known.value.kind is not Kind.CONSTANT:
            # A second assignment on another path: keep what is sure, and the place that tells most.
            value = known.value if value.kind in (Kind.CONSTANT, Kind.OTHER) else value
        self.constructing.attributes[name] = Attribute(name, value, target)

    def grow(self, container: ast.expr, owner: Value, value: Value) -> None:
        """A container got a new member."""
        grown = Value(owner.kind, element=join(element_of(owner), value) if owner.members else value, depends=False)
        if isinstance(container, ast.Name):
            frame: Frame | None = self.frame
            while frame is not None and container.id not in frame.env:
                frame = frame.closure
            (frame or self.frame).env[container.id] = grown
        elif isinstance(container, ast.Attribute) and self.values.get(id(container.value), OTHER).kind is Kind.SELF:
            if self.constructing is not None:
                node = self.constructing.attributes.get(container.attr)
                place = node.node if node is not None else container
                self.constructing.attributes[container.attr] = Attribute(container.attr, grown, place)

    def unpacked(self, value: Value, targets: list[ast.expr]) -> list[Value]:
        count = len(targets)
        starred = next((i for i, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
        if value.items is not None and starred is None and len(value.items) == count:
            return list(value.items)
        part = self.member(value)
        parts = [part] * count
        if starred is not None:
            if value.items is not None and len(value.items) >= count - 1:
                tail = count - 1 - starred
                middle = value.items[starred : len(value.items) - tail]
                ends = value.items[len(value.items) - tail :] if tail else ()
                return [*value.items[:starred], sequence(middle), *ends]
            parts[starred] = sequence(element=part)
        return parts

    def load_target(self, target: ast.expr) -> Value:
        if isinstance(target, ast.Name):
            return self.lookup(target.id)
        if isinstance(target, ast.Attribute):
            return self.attribute_of(self.evaluate(target.value), target.attr)
        if isinstance(target, ast.Subscript):
            owner = self.evaluate(target.value)
            self.evaluate(target.slice)
            return self.subscript_of(owner, target.slice)
        return OTHER

    # What a test tells about names

    def narrow(self, test: ast.expr, outcome: bool) -> None:
        """Learn from a condition that turned out `outcome`."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.narrow(test.operand, not outcome)
        elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is outcome:
            for operand in test.values:
                self.narrow(operand, outcome)
        elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Name):
            right = test.comparators[0]
            if isinstance(right, ast.Constant) and right.value is None and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
                self._narrow_none(test.left.id, isinstance(test.ops[0], ast.Is) is outcome)
        elif isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "isinstance":
            if len(test.args) == 2 and isinstance(test.args[0], ast.Name):
                self._narrow_class(test.args[0].id, test.args[1], outcome)

    def _narrow_none(self, name: str, is_none: bool) -> None:
        value = self.frame.env.get(name)
        if value is not None and value.kind is Kind.TENSOR:
            self.frame.env[name] = NONE if is_none else value.but(optional=False)

    def _narrow_class(self, name: str, classes: ast.expr, outcome: bool) -> None:
        value = self.frame.env.get(name)
        if value is None or value.kind is not Kind.TENSOR:
            return
        asked = {
            child.attr if isinstance(child, ast.Attribute) else child.id
            for child in ast.walk(classes)
            if isinstance(child, (ast.Name, ast.Attribute))
        }
        if asked & {"list", "tuple", "List", "Tuple", "Sequence"}:
            self.frame.env[name] = sequence(element=tensor(name)) if outcome else value.but(single=True)
        elif outcome and asked & {"int", "float", "bool", "str", "dict", "Number", "integer_types", "numeric_types"}:
            self.frame.env[name] = OTHER

    def decided_anew(self, test: Value) -> bool:
        return test.kind is Kind.MODE


def _joined(a: Mapping[str, Value], b: Mapping[str, Value]) -> Environment:
    joined = {**b, **a}
    for name, value in a.items():
        if (other := b.get(name)) is not None and other is not value:
            joined[name] = join(value, other)
    return joined
