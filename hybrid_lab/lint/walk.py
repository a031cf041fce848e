"""Walk: the state of a walk over the user's code without running it. The modules beside it are functions over a Walk.

`expressions` and `calls` register how each kind of syntax is evaluated, `statements` how each is executed, and `checks`
the objections of each rule.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from functools import singledispatch
from typing import Any

from hybrid_lab.diagnostics import expression
from hybrid_lab.diagnostics.finding import CallSite, Edit, Fix, Severity

from . import names
from .classes import Environment, Frame, Function, FunctionNode, MarkKey, SourceClass, passed
from .source import Source
from .values import OTHER, Kind, Value


class Mark:
    """A place that a rule objects to; the runner makes a Finding of it. None stands for the text of the rule's page.

    facts : values for the rule's message and rewrite
    calls : for a place in another function, the calls in the checked method that lead to it
    style, around : of the method being checked, as in Walk
    """

    def __init__(
        self,
        node: ast.AST,
        tensor: str | None = None,
        *,
        fix: Fix | None = None,
        severity: Severity | None = None,
        portability: bool | None = None,
        message: str | None = None,
        rewrite: str | None = None,
        **facts: object,
    ) -> None:
        self.node, self.tensor, self.fix, self.severity = node, tensor, fix, severity
        self.portability, self.message, self.rewrite, self.facts = portability, message, rewrite, facts
        self.calls: dict[CallSite, None] = {}
        self.around = False
        self.style = ""


Check = Callable[[Any, "Walk"], Iterator[Mark]]

#: Type of syntax node -> the checks that look at such nodes, each with the code of its rule.
_CHECKS: dict[type[ast.AST], list[tuple[str, Check]]] = {}


def check(code: str) -> Callable[[Check], Check]:
    """Register a function as the check of a rule: it looks at every node of the types that its `node` is annotated
    with, once the parts of the node have been evaluated, and yields marks.
    """

    def register(function: Check) -> Check:
        annotation = inspect.get_annotations(function)["node"]
        for node_type in getattr(annotation, "__args__", (annotation,)):
            _CHECKS.setdefault(node_type, []).append((code, function))
        return function

    return register


class Walk:
    """The state of a walk: everything known at one point of the code.

    style : "hybrid_forward" (1.x) or "forward" (2.x): the method that makes the graph
    around : whether that method is a `forward` or `__call__` beside hybrid_forward, which MXNet runs as Python
    operators : the name of its argument F, None in 2.x style
    block : the checked class
    values : the value of each expression, by the id of its node
    frames : the functions being walked, innermost last; the checked method itself is the first
    marks : (mark, code of the rule, source) of all places, each place once per rule
    quiet : above 0, rules do not look
    budget : nodes that may still be walked; below 0 the walk was not finished
    constructing : the class whose constructor is being walked
    classes : the classes defined so far
    stored : assignments of the checked methods to attributes of self, by class and name
    results : return values of the functions passed to `filter`, `sorted` and similar functions, by the id of the call
    summaries : what functions returned and were marked for, by their arguments
    """

    block: SourceClass

    def __init__(self, budget: int) -> None:
        self.style = "hybrid_forward"
        self.around = False
        self.operators: str | None = None
        self.marks: dict[MarkKey, tuple[Mark, str, Source]] = {}
        self.frames: list[Frame] = []
        self.quiet = 0
        self.constructing: SourceClass | None = None
        self.classes: list[SourceClass] = []
        self.budget = budget
        self.summaries: dict[Hashable, tuple[Value, set[MarkKey]]] = {}
        self.values: dict[int, Value] = {}
        self.stored: dict[tuple[Hashable, str], Value] = {}
        self.results: dict[int, Value] = {}
        self._about_functions: dict[Hashable, frozenset[str]] = {}

    @property
    def frame(self) -> Frame:
        """The function being walked."""
        return self.frames[-1]

    @contextmanager
    def inside(self, frame: Frame) -> Iterator[None]:
        """Walk with this frame as the innermost one."""
        self.frames.append(frame)
        try:
            yield
        finally:
            self.frames.pop()

    @contextmanager
    def quietly(self, when: bool = True) -> Iterator[None]:
        """Walk without letting the rules look."""
        self.quiet += when
        try:
            yield
        finally:
            self.quiet -= when

    def look(self, node: ast.AST) -> None:
        """Let the rules look at a node whose parts have been evaluated."""
        if self.quiet:
            return
        source = self.frame.source
        for code, function in _CHECKS.get(type(node), ()):
            for objection in function(node, self):
                key = code, id(source), source.span(objection.node)
                objection.style, objection.around = self.style, self.around
                self.marks.setdefault(key, (objection, code, source))
                if not self.frame.checked:
                    self.frame.marks.add(key)

    def lead_to(self, function: Function, marks: set[MarkKey]) -> None:
        """Note at the call under way that a function was marked: its first call, on the way from the checked method."""
        caller = self.frame
        self.budget -= len(marks)
        caller.marks |= marks
        if not caller.checked or caller.at is None or function.in_checked_method:
            return
        parts = [caller.at.func, *passed(caller.at)] if isinstance(caller.at, ast.Call) else []
        place = next((part for part in parts if self.value(part).ref is function), caller.at)
        name = function.name if isinstance(place, ast.Call) else expression.one_line(place, self.text(place))
        source = caller.source
        call = CallSite(name, source.file, *source.span(place), source.cell)
        for key in marks:
            self.marks[key][0].calls[call] = None

    # What rules ask

    def value(self, node: ast.AST | None) -> Value:
        """The value of an expression that was evaluated."""
        return OTHER if node is None else self.values.get(id(node), OTHER)

    def dotted(self, node: ast.AST | None) -> str | None:
        """The canonical name of a function or module: `mx.nd.array`, `numpy.exp`, `builtins.len`; None if unknown."""
        value = self.value(node)
        return value.ref if value.kind is Kind.MODULE and isinstance(value.ref, str) else None

    def text(self, node: ast.AST) -> str:
        """The source of an expression."""
        text = self.frame.source.segment(node)
        self.budget -= len(text) >> 7
        return text

    def starts_with(self, node: ast.stmt, word: str) -> bool:
        """Whether the source of a statement begins with a word."""
        source = self.frame.source
        line, col, _, _ = source.span(node)
        return source.lines[line - 1].startswith(word, col)

    def about_function(self, found_by: Callable[[ast.AST], frozenset[str]]) -> frozenset[str]:
        """What `found_by` finds in the innermost function being walked; it is asked once."""
        function = self.function()
        if function is None:
            return frozenset()
        key = id(function), found_by
        if key not in self._about_functions:
            self._about_functions[key] = found_by(function)
        return self._about_functions[key]

    def names_known(self) -> Environment:
        """A copy of the names in the frame with their values, to come back to."""
        self.budget -= len(self.frame.env) >> 5
        return dict(self.frame.env)

    def root_name(self, node: ast.AST) -> str | None:
        """The first name inside an expression that is a tensor."""
        return expression.root_name(node, lambda name: self.value(name).has_tensor)

    def tensor_name(self, node: ast.AST) -> str:
        """The tensor's name if it has one, else its source if that is short."""
        return expression.tensor_name(node, self.text(node), lambda name: self.value(name).has_tensor)

    def first_tensor(self, nodes: Iterable[ast.expr]) -> ast.expr | None:
        """The first of some expressions that is a tensor or holds one."""
        return next((node for node in nodes if self.value(node).has_tensor), None)

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node around a node."""
        return self.frame.source.parents.get(id(node))

    def statement(self, node: ast.AST) -> ast.AST:
        """The statement around an expression."""
        while not isinstance(node, ast.stmt) and (parent := self.parent(node)) is not None:
            node = parent
        return node

    def function(self) -> FunctionNode | None:
        """The innermost function being walked."""
        return self.frame.function.node if self.frame.function else None

    def replace(self, node: ast.AST, text: str) -> Edit:
        """The edit that puts `text` in place of `node`."""
        return self.frame.source.edit(node, text)

    def is_block(self, value: Value) -> bool | None:
        """Whether a BLOCK value is a HybridBlock; None if not known."""
        if isinstance(value.ref, SourceClass):
            return value.ref.hybrid
        return names.is_block_class(value.ref) if isinstance(value.ref, str) else None

    def kind_of_block(self, value: Value) -> str:
        """The class name of a BLOCK or CLASS value, as the user writes it."""
        if isinstance(value.ref, SourceClass):
            return value.ref.name
        return str(value.ref or "Block").rpartition(".")[2]


def evaluate(walk: Walk, node: ast.expr) -> Value:
    """The abstract value of an expression; every rule then looks at it."""
    walk.budget -= 1
    if walk.budget < 0:
        return OTHER
    frame = walk.frame
    around, frame.at = frame.at, node
    value = walk.values[id(node)] = value_of.dispatch(type(node))(node, walk)
    walk.budget -= value.size >> 2
    walk.look(node)
    frame.at = around
    return value


@singledispatch
def value_of(node: ast.AST, walk: Walk) -> Value:
    """The value of an expression, by the kind of syntax. The parts of an unknown kind are evaluated."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            evaluate(walk, child)
    return OTHER


def run(walk: Walk, body: Iterable[ast.stmt]) -> bool:
    """Walk over statements; whether control reaches their end."""
    for statement in body:
        walk.budget -= 1
        if walk.budget < 0:
            return True
        if execute.dispatch(type(statement))(statement, walk) is False:
            return False
    return True


@singledispatch
def execute(node: ast.AST, walk: Walk) -> bool | None:
    """Execute a statement, by its kind; returns False if control does not reach the next statement."""
    walk.look(node)
    return None
