"""What a rule sees of the code it looks at: the linter's side of the contract, as types."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..finding import Edit, Fix, Severity
from .values import Value


@dataclass(frozen=True)
class Mark:
    """A place a rule objects to; the linter makes a Finding of it. None leaves the record's own setting."""

    node: ast.AST
    tensor: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    fix: Fix | None = None
    severity: Severity | None = None
    portability: bool | None = None
    message: str | None = None
    rewrite: str | None = None


@dataclass
class Attribute:
    """What `__init__` puts on self under one name. node: the assignment; hybrid: None where not known."""

    name: str
    value: Value
    node: ast.AST


class BlockClass(Protocol):
    """A HybridBlock class under check."""

    name: str
    node: ast.ClassDef
    attributes: dict[str, Attribute]
    registered: set[int]
    added: list[tuple[ast.AST, Value]]

    @property
    def methods(self) -> Mapping[str, Any]: ...

    @property
    def parameters(self) -> Iterable[str]: ...


def is_stub(node: ast.AST) -> bool:
    """Whether a method's body only says that a subclass defines it."""
    return all(
        isinstance(s, ast.Pass | ast.Raise) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        for s in getattr(node, "body", ())
    )


class Checking(Protocol):
    """The checker at one point of the program, as rules see it.

    style: "hybrid_forward" (1.x) or "forward" (2.x). operators: the name of the F argument, None in 2.x style.
    """

    style: str
    operators: str | None

    @property
    def block(self) -> BlockClass | None:
        """The class under check."""
        ...

    @property
    def makes_graph(self) -> bool:
        """Whether the class has a method that makes a graph, of its own or inherited in the source."""
        ...

    @property
    def source(self) -> Any:
        """The source of the code looked at; compared by identity only."""
        ...

    @property
    def raising(self) -> bool:
        """Inside `raise` or the message of `assert`."""
        ...

    @property
    def depth(self) -> int:
        """1 in the checked method itself, more inside functions it calls."""
        ...

    def returns(self) -> list[tuple[ast.AST, Value, bool]]:
        """The return statements met, with their values and whether the mode of the call decides between them."""
        ...

    def statement(self, node: ast.AST) -> ast.AST:
        """The statement around an expression."""
        ...

    def value(self, node: ast.AST | None) -> Value:
        """What is known about an expression."""
        ...

    def dotted(self, node: ast.AST | None) -> str | None:
        """The canonical name of a function or module: `mx.nd.array`, `numpy.exp`, `builtins.len`; None if unknown."""
        ...

    def text(self, node: ast.AST) -> str:
        """The source of an expression."""
        ...

    def tensor_name(self, node: ast.AST) -> str:
        """The tensor's name where it has one, else its source if that is short."""
        ...

    def root_name(self, node: ast.AST) -> str | None:
        """The first name inside an expression that is a tensor."""
        ...

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node around a node."""
        ...

    def function(self) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
        """The innermost function being looked at."""
        ...

    def mark(
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
    ) -> Mark:
        """An objection to `node`."""
        ...

    def replace(self, node: ast.AST, text: str) -> Edit:
        """The edit that puts `text` in place of `node`."""
        ...

    def insert(self, line: int, byte: int, text: str) -> Edit:
        """The edit that puts `text` at a position as `ast` counts it."""
        ...

    def is_block(self, value: Value) -> bool | None:
        """Whether a BLOCK value is a HybridBlock; None if not known."""
        ...

    def kind_of_block(self, value: Value) -> str:
        """The class name of a BLOCK or CLASS value, as the user writes it."""
        ...
