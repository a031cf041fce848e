"""Which names F, `nd`, `sym`, `np`, `npx` and tensors have, and the nearest one to a name that they do not have."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from types import ModuleType
from typing import Any

from hybrid_lab.diagnostics.foreign_names import foreign_method, foreign_operator

from .source import Source

NAMESPACES = {
    "mx.nd": ("ndarray",),
    "mx.sym": ("symbol",),
    "mx.np": ("numpy",),
    "mx.npx": ("numpy.extension",),
}
"""Canonical name of a namespace -> the modules of this package that have its names."""
_OF_OPERATORS = ("ndarray", "symbol")
"""F is the one or the other."""
_OF_CONTAINERS = frozenset({*dir(list), *dir(dict), *dir(tuple), *dir(str)})


def has_operator(path: str, namespace: str | None = None) -> bool:
    """Whether a namespace has `path`, such as `contrib.box_nms`; attributes of a function are not judged.

    namespace : one of NAMESPACES, or None for F
    """
    modules = NAMESPACES[namespace] if namespace else _OF_OPERATORS
    return any(_has(importlib.import_module(f"hybrid_lab.{module}"), path.split(".")) for module in modules)


def _has(owner: object, parts: list[str]) -> bool:
    for part in parts:
        if not (isinstance(owner, ModuleType) or _is_namespace(owner)):
            return True  # an attribute of a function or class
        try:
            owner = getattr(owner, part)
        except AttributeError:
            return part.startswith("_")  # a private name of MXNet
    return True


def _is_namespace(owner: object) -> bool:
    from hybrid_lab.ndarray.namespace import OperatorNamespace

    return isinstance(owner, OperatorNamespace) or type(owner).__name__ == "SymbolicRoom"


def has_member(name: str) -> bool:
    """Whether arrays, arrays of `mx.np`, Symbols or containers (which may stand in place of a tensor) have the
    attribute.
    """
    return name.startswith("_") or name in _OF_CONTAINERS or name in _members()


def _members() -> set[str]:
    from hybrid_lab.ndarray.ndarray import NDArray
    from hybrid_lab.numpy.array import numpy_class
    from hybrid_lab.symbol.symbol import Symbol

    return {*vars_of(NDArray), *vars_of(numpy_class()), *vars_of(Symbol), *_methods(), "device", "dtype", "T"}


def vars_of(kind: type) -> set[str]:
    """The attributes of a class and its bases, those too that a notebook has assigned to it."""
    return {name for base in kind.__mro__ for name in vars(base)}


def _methods() -> Iterable[str]:
    from hybrid_lab.ndarray.overloads import methods

    return methods()


def instead_of_operator(path: str, operators: str, namespace: str | None = None) -> tuple[str, str]:
    """(the name's meaning in another framework, or ""; the replacement), for the missing `operators.path`."""
    before, _, name = path.rpartition(".")
    where = f"{operators}.{before}".rstrip(".")
    if namespace in (None, "mx.nd", "mx.sym") and (foreign := foreign_operator(name)) is not None:
        return foreign.framework, foreign.instead.replace("F.", f"{operators}.")
    if before and has_operator(name, namespace):
        return "", f"{operators}.{name}"
    for inside in ("contrib", "linalg", "image", "random"):
        if has_operator(f"{inside}.{name}", namespace) and namespace in (None, "mx.nd", "mx.sym"):
            return "", f"{operators}.{inside}.{name}"
    near = nearest(name, _public(before, namespace))
    return "", f"{where}.{near}" if near else ""


def instead_of_member(name: str, tensor: str, operators: str | None) -> tuple[str, str]:
    """(the name's meaning in another framework, or ""; the replacement), for the missing `tensor.name`."""
    if (foreign := foreign_method(name)) is not None:
        text = foreign.instead
        if tensor.isidentifier():
            text = text.replace("x.", f"{tensor}.").replace("(x,", f"({tensor},").replace("(x)", f"({tensor})")
            text = f"{tensor}{text[1:]}" if text.startswith("x ") else text
        return foreign.framework, text.replace("F.", f"{operators or 'nd'}.")
    if near := nearest(name, [known for known in _members() if not known.startswith("_")]):
        return "", f"{tensor}.{near}"
    return ("", f"{operators}.{name}({tensor})") if operators and has_operator(name) else ("", "")


@cache
def _public(path: str, namespace: str | None) -> tuple[str, ...]:
    """The names in a namespace that users write."""
    names: set[str] = set()
    for module in NAMESPACES[namespace] if namespace else _OF_OPERATORS:
        owner: Any = importlib.import_module(f"hybrid_lab.{module}")
        for part in filter(None, path.split(".")):
            owner = getattr(owner, part, None)
        if owner is not None:
            names |= {name for name in dir(owner) if not isinstance(getattr(owner, name, None), ModuleType)}
    return tuple(sorted(name for name in names if not name.startswith("_")))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like `name`, whatever its capitals and underscores; None if none is."""
    plain: dict[str, list[str]] = {}
    for each in sorted(known):
        plain.setdefault(each.lower().replace("_", ""), []).append(each)
    near = get_close_matches(name.lower().replace("_", ""), plain, n=1, cutoff=0.7)
    return max(plain[near[0]], key=lambda each: SequenceMatcher(None, name, each).ratio()) if near else None


def nearest_is_meant(name: str, replacement: str) -> bool:
    """Whether a replacement is similar enough to the name for a fix to offer it."""
    written = replacement.rpartition(".")[2].lower().replace("_", "")
    return bool(get_close_matches(name.lower().replace("_", ""), [written], n=1, cutoff=0.8))


def names_given(source: Source) -> frozenset[str]:
    """The names that a source gives to objects, and the names that it asks for with `hasattr` or `getattr`.

    It gives them with `nd.f = ...`, `setattr(nd, "f", ...)`, or a class of operators that has a name.
    """
    found: set[str] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
                found.add(node.attr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if called in ("setattr", "hasattr", "getattr", "register") or called.startswith("register_"):
                found.update(arg.value for arg in node.args if isinstance(arg, ast.Constant) and type(arg.value) is str)
        elif isinstance(node, ast.ClassDef):
            for keyword in node.keywords:
                if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                    found.add(str(keyword.value.value))
    return frozenset(found | {name.rpartition("_contrib_")[2] for name in found})
