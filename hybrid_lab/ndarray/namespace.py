"""The functions of `nd`, by name: made from the records when they are first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import hybrid_lab.ops  # noqa: F401  (declares the modules of records)
from hybrid_lab.diagnostics.unknown_names import unknown_name
from hybrid_lab.ndarray import creation
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ops.framework.operator import Operator, find, get, registered_names
from hybrid_lab.ops.framework.surface import make_function


def dispatch(op: Operator, inputs: list[object], out: object, name: str | None) -> Any:
    """Called by the generated functions."""
    return invoke(op, inputs, out, name)


def find_function(name: str) -> Callable[..., Any] | None:
    """`nd.<name>`, or None."""
    if name in creation.BINARY:
        return creation.binary_function(name)
    record = find(name)
    if record is not None:
        return make_function(record, dispatch, name)
    return _scalar_form(name) if name.lower().endswith("scalar") else None


def _scalar_form(name: str) -> Callable[..., object] | None:
    """MXNet's operators of an array and a number, `nd._mul_scalar(x, scalar=2.0)`; ours take numbers themselves."""
    from hybrid_lab.formats.mxnet.operator_names import SCALAR_NAMES  # rarely wanted, so read where MXNet's names live

    if name not in SCALAR_NAMES:
        return None
    operator_name, number_left = SCALAR_NAMES[name]
    op = get(operator_name).bind()

    def function(data: object, scalar: float = 1.0, out: object = None, name: str | None = None) -> Any:
        return invoke(op, (float(scalar), data) if number_left else (data, float(scalar)), out, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{operator_name} of an array and a number{', the number on the left' if number_left else ''}."
    return function


def function_names() -> list[str]:
    """Every name that `find_function` knows and that does not start with an underscore."""
    return sorted({*creation.BINARY, *(name for name in registered_names() if not name.startswith("_"))})


class OperatorNamespace:
    """`nd.contrib`, `sym.linalg` ...: the operators whose names begin with a prefix, by the rest of their name.

    find : the function of an operator by its full name, or None
    unknown : the error for a name that is not here, from title, name and the known names
    later : names of functions written in Python -> the modules that have them, imported when they are asked for
    """

    def __init__(
        self,
        title: str,
        *prefixes: str,
        find: Callable[[str], Callable[..., Any] | None] = find_function,
        unknown: Callable[[str, str, Iterable[str]], AttributeError] = unknown_name,
        later: Mapping[str, str] = MappingProxyType({}),
    ):
        self._title, self._prefixes, self._find, self._unknown, self._later = title, prefixes, find, unknown, later

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            if name in self._later:
                function = getattr(importlib.import_module(self._later[name]), name)
                setattr(self, name, function)
                return function
            for prefix in self._prefixes:
                function = self._find(prefix + name)
                if function is not None:
                    setattr(self, name, function)
                    return function
        raise self._unknown(self._title, name, () if name.startswith("_") else dir(self))

    def __dir__(self) -> list[str]:
        names = {*super().__dir__(), *self._later}
        for name in registered_names():
            names.update(name[len(prefix) :] for prefix in self._prefixes if prefix and name.startswith(prefix))
        return sorted(names)

    def __repr__(self) -> str:
        return f"<namespace {self._title}>"
