"""The names of MXNet's that code uses, and whether they are here. Nothing of the code is run."""

from __future__ import annotations

import ast
import importlib
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeGuard

from hybrid_lab.ndarray.namespace import OperatorNamespace
from hybrid_lab.numpy.rooms import SymbolicRoom

from .finder import THEIRS, install

OPERATORS = f"{THEIRS}.F"
"""The name of `F` in hybrid_forward, which is `mx.nd` or `mx.sym`."""
_TRAINING = {"fit", "init_optimizer"}
"""Methods of a Module, whose arguments name stores and optimizers."""


def imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules that a statement may import: `from a import b` may import a.b."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if node.level or not node.module:
        return []
    return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]


def is_of_mxnet(statement: ast.Import | ast.ImportFrom) -> bool:
    """Whether a statement imports mxnet or a part of it."""
    if isinstance(statement, ast.Import):
        return any(alias.name.partition(".")[0] == THEIRS for alias in statement.names)
    return not statement.level and (statement.module or "").partition(".")[0] == THEIRS


def _meanings(tree: ast.AST) -> dict[str, str]:
    """Names that imports of mxnet bind -> their meaning: {"mx": "mxnet", "nn": "mxnet.gluon.nn"}."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and is_of_mxnet(node):
            for alias in node.names:
                if alias.name.partition(".")[0] == THEIRS:
                    found[alias.asname or THEIRS] = alias.name if alias.asname else THEIRS
        elif isinstance(node, ast.ImportFrom) and is_of_mxnet(node):
            for alias in node.names:
                if alias.name != "*":
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


@dataclass(frozen=True)
class Use:
    """One use of a name, or a call of a method in `_TRAINING`.

    name : "mxnet.nd.ones", "" of a method; node : where it stands; call : the call of it, or None
    traced : whether it stands in hybrid_forward
    """

    name: str
    node: ast.AST
    call: ast.Call | None = None
    traced: bool = False


def uses_of(trees: Sequence[ast.AST]) -> list[list[Use]]:
    """The uses in the cells of a notebook, or in a script, by cell. An import counts in all cells."""
    names: dict[str, str] = {}
    for tree in trees:
        names |= _meanings(tree)
    visitor = _Uses(names)
    found = []
    for tree in trees:
        visitor.found = []
        visitor.visit(tree)
        found.append(visitor.found)
    return found


class _Uses(ast.NodeVisitor):
    """MXNet's dotted names in the code, each in its full length, and the imported names, in the order of the text.

    names : of imports -> their meaning; a name no longer counts after the code assigns it another value
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.found: list[Use] = []
        self._names = dict(names)
        self._traced = 0
        self._scopes: list[set[str]] = []
        """The names that each function or class around the code binds itself; none at the top level."""

    def visit_Import(self, node: ast.Import) -> None:
        self.found += [Use(alias.name, node) for alias in node.names if alias.name.partition(".")[0] == THEIRS]
        self._names |= _meanings(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if is_of_mxnet(node):
            module = node.module or THEIRS
            names = [module if alias.name == "*" else f"{module}.{alias.name}" for alias in node.names]
            self.found += [Use(name, node) for name in names]
            self._names |= _meanings(node)

    def visit_Call(self, node: ast.Call) -> None:
        if (name := self._dotted(node.func)) is not None:
            self.found.append(Use(name, node.func, node, self._traced > 0))
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _TRAINING:
            self.found.append(Use("", node.func, node))
            self.visit(node.func)
        else:
            self.visit(node.func)
        self._visit_all(*node.args, *node.keywords)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if (name := self._dotted(node)) is not None:
            self.found.append(Use(name, node, None, self._traced > 0))
            return
        value: ast.expr = node
        while isinstance(value, ast.Attribute):
            value = value.value
        if not isinstance(value, ast.Name):
            self.visit(value)

    def _dotted(self, node: ast.expr) -> str | None:
        """The name of MXNet's that an expression is: "mxnet.nd.ones" for `nd.ones`; None for other expressions."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._names:
            return None
        if any(node.id in scope for scope in self._scopes):
            return None
        return ".".join([self._names[node.id], *reversed(parts)])

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store) and not self._scopes:
            self._names.pop(node.id, None)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        if isinstance(node.value, ast.Constant):  # `mx = None` after an import that failed
            return
        module = self._dotted(node.value)
        for target in node.targets:
            self.visit(target)
            if module is not None and isinstance(target, ast.Name) and not self._scopes and is_module(module):
                self._names[target.id] = module  # `nd = mx.nd`

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._visit_all(node.target, *node.body, *node.orelse)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = node.args
        outer = [*node.decorator_list, *arguments.defaults, *arguments.kw_defaults, node.returns]
        self._visit_all(*outer, *(argument.annotation for argument in _arguments(arguments)))
        if node.name != "hybrid_forward" or len(arguments.args) < 2:
            self._visit_inside(_bound(node), *node.body)
            return
        names, operators = self._names, arguments.args[1].arg  # F
        self._names, self._traced = names | {operators: OPERATORS}, self._traced + 1
        self._visit_inside(_bound(node) - {operators}, *node.body)
        self._names, self._traced = names, self._traced - 1

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - a name of ast's

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_all(*node.args.defaults, *node.args.kw_defaults)
        self._visit_inside({argument.arg for argument in _arguments(node.args)}, node.body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all(*node.decorator_list, *node.bases, *node.keywords)
        self._visit_inside(set(), *node.body)

    def _visit_comprehension(self, node: ast.AST) -> None:
        self._scopes.append({item.id for item in ast.walk(node) if _is_bound(item)})
        self.generic_visit(node)
        self._scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension  # noqa: N815

    def _visit_inside(self, bound: set[str], *nodes: ast.AST) -> None:
        self._scopes.append(bound)
        self._visit_all(*nodes)
        self._scopes.pop()

    def _visit_all(self, *nodes: ast.AST | None) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    several = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return [argument for argument in several if argument is not None]


def _is_bound(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _bound(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The names that a function binds itself: arguments and assigned names, without global ones."""
    nodes = list(ast.walk(function))
    bound = {node.id for node in nodes if _is_bound(node)} | {node.arg for node in _arguments(function.args)}
    shared = {name for node in nodes if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    return bound - shared - set(_meanings(function))


@cache
def resolved(name: str) -> tuple[str, str | None]:
    """The part of a dotted name that is a name of a module, and why it is not here, or None."""
    if name == OPERATORS or name.startswith(f"{OPERATORS}."):
        either = [resolved(name.replace(OPERATORS, f"{THEIRS}.{module}", 1)) for module in ("sym", "nd")]
        return next((found for found in either if found[1] is None), either[1])
    install()
    parts = name.split(".")
    value: object = importlib.import_module(THEIRS)
    known = THEIRS
    for part in parts[1:]:
        if isinstance(value, types.FunctionType) and not hasattr(value, part):
            return f"{known}.{part}", f"{known} is a function here; {_INSTEAD.get(known, 'MXNet has a module there')}"
        if not _has_names(value):
            break  # an attribute of a class or function
        known = f"{known}.{part}"
        try:
            value = getattr(value, part)
        except (AttributeError, ImportError) as error:
            try:
                value = importlib.import_module(known)
            except ImportError:
                return known, str(error)
    return known, None


_INSTEAD = {f"{THEIRS}.log": "use logging.getLogger"}
"""Modules of MXNet's whose names are functions here -> what to use."""


def _has_names(value: object) -> bool:
    """Whether an object is a module, or holds operators as one: `mx.nd.contrib`."""
    return isinstance(value, types.ModuleType | OperatorNamespace | SymbolicRoom)


def is_module(name: str) -> bool:
    """Whether a dotted name is a module of this package."""
    install()
    value: object = importlib.import_module(THEIRS)
    for part in name.split(".")[1:]:
        value = getattr(value, part, None)
    return _has_names(value)
