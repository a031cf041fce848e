"""Attribute types of operators: how an annotated field parses what users and MXNet's files write."""

from __future__ import annotations

import ast
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, NewType

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError
from hybrid_lab.ops.framework.dtypes import DTYPES, dtype_of
from hybrid_lab.ops.framework.sizes import SymbolicSize

#: A tuple of ints; a single int means a tuple of one. MXNet writes "(3, 3)".
Shape = tuple[int, ...]
#: No axis, one axis or several.
Axis = int | tuple[int, ...] | None
#: A NumPy dtype name such as "float32".
DType = NewType("DType", str)
#: A number that may change from call to call: an attribute in MXNet, an input here, so that a new value makes neither
#: a new operator nor a new program. Given as a Python number, or as an array with one element.
Scalar = NewType("Scalar", float)

_TRUE = {"true": True, "1": True, "false": False, "0": False}


def _literal(text: str) -> object:
    """The Python literal in `text`, after removing the "L" that Python 2 wrote behind long integers."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        cleaned = text.replace("L", "")
        if cleaned == text:
            raise ValueError(f"cannot read {text!r}") from None
        return ast.literal_eval(cleaned)


def parse_bool(value: Any) -> bool:
    if isinstance(value, str):
        try:
            return _TRUE[value.strip().lower()]
        except KeyError:
            raise ValueError(f"{value!r} is not a bool") from None
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, (int, np.integer)) and value in (0, 1)):
        return bool(value)
    raise ValueError(f"{value!r} is not a bool")


def parse_int(value: Any) -> int:
    if isinstance(value, str):
        value = _literal(value)
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return int(value)
    if isinstance(value, (bool, np.bool_, SymbolicSize)):
        return int(value)
    raise ValueError(f"{value!r} is not an int")


def parse_float(value: Any) -> float:
    if isinstance(value, str):
        return float(value)
    if isinstance(value, (int, float, np.integer, np.floating, np.bool_)):
        return float(value)
    raise ValueError(f"{value!r} is not a float")


def parse_str(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{value!r} is not a string")


def parse_shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        value = _literal(value)
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return (int(value),)
    if isinstance(value, (tuple, list, np.ndarray)):
        return tuple(parse_int(item) for item in value)
    raise ValueError(f"{value!r} is not a shape")


def parse_optional_ints(value: Any) -> tuple[int | None, ...]:
    """A tuple whose entries may be None, as `begin` and `end` of slice."""
    if isinstance(value, str):
        value = _literal(value)
    if value is None or isinstance(value, (int, np.integer)):
        value = (value,)
    if isinstance(value, (tuple, list, np.ndarray)):
        return tuple(None if item is None or item == "None" else parse_int(item) for item in value)
    raise ValueError(f"{value!r} is not a tuple of ints")


def parse_floats(value: Any) -> tuple[float, ...]:
    if isinstance(value, str):
        value = _literal(value)
    if isinstance(value, (int, float, np.integer, np.floating)):
        return (float(value),)
    if isinstance(value, (tuple, list, np.ndarray)):
        return tuple(parse_float(item) for item in value)
    raise ValueError(f"{value!r} is not a tuple of numbers")


def parse_dtype(value: Any) -> str:
    try:
        name = dtype_of(value).name
    except DTypeError as error:  # bfloat16, and ml_dtypes is missing
        raise ValueError(str(error)) from None
    except TypeError:
        raise ValueError(f"{value!r} is not a dtype; use one of {', '.join(DTYPES)}") from None
    if name not in DTYPES:
        raise ValueError(f"dtype {name} is not supported; use one of {', '.join(DTYPES)}")
    return name


_PARSERS: dict[object, Callable[[object], object]] = {
    bool: parse_bool,
    int: parse_int,
    float: parse_float,
    str: parse_str,
    DType: parse_dtype,
    Scalar: parse_float,
    tuple[int, ...]: parse_shape,
    tuple[int | None, ...]: parse_optional_ints,
    tuple[float, ...]: parse_floats,
}


def parser(annotation: Any) -> Callable[[Any], Any]:
    """The function that turns a written value into the annotated type, raising ValueError if it cannot."""
    if annotation in _PARSERS:
        return _PARSERS[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return _choice(arguments)
    if origin in (typing.Union, types.UnionType):
        optional = type(None) in arguments
        options = [parser(argument) for argument in arguments if argument is not type(None)]
        return _union(options, optional)
    known = "bool, int, float, str, Shape, Axis, DType, Literal[...] and unions of them with None"
    raise TypeError(f"has the annotation {annotation!r}; known are {known}")


def _choice(choices: tuple[Any, ...]) -> Callable[[object], object]:
    def parse(value: Any) -> Any:
        if value in choices:
            return value
        raise ValueError(f"{value!r} is not one of {', '.join(map(repr, choices))}")

    return parse


def _union(options: list[Callable[[Any], Any]], optional: bool) -> Callable[[object], object]:
    def parse(value: Any) -> Any:
        if optional and (value is None or (isinstance(value, str) and value in ("None", ""))):
            return None
        problem: ValueError | None = None
        for option in options:
            try:
                return option(value)
            except (ValueError, TypeError) as error:
                problem = problem or ValueError(str(error))
        assert problem is not None
        raise problem

    return parse


class Field:
    """One attribute of a record: its name, type, parser and default."""

    __slots__ = ("annotation", "default", "name", "parse", "required")

    def __init__(self, name: str, annotation: Any, default: Any, required: bool):
        self.name, self.annotation, self.default, self.required = name, annotation, default, required
        self.parse = parser(annotation)

    def read(self, operator: str, value: Any) -> Any:
        try:
            return self.parse(value)
        except (ValueError, TypeError, SyntaxError, OverflowError) as error:
            raise AttributeSpecError(f"{operator}: attribute {self.name}={value!r}: {error}") from None
