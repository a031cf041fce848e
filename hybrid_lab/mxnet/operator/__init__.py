"""mx.operator: operators written in Python, as classes that MXNet code registers under a name.

`nd.Custom` calls them on arrays, `sym.Custom` makes them a node of a graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args, get_origin

from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.mxnet.operator.base import CustomOp, CustomOpProp, register
from hybrid_lab.mxnet.operator.base import registered as _registered
from hybrid_lab.ops.framework.attributes import Axis, DType, Field, Scalar
from hybrid_lab.ops.framework.dtypes import DTYPES
from hybrid_lab.ops.framework.operator import find, registered_names

__all__ = [
    "CustomOp",
    "CustomOpProp",
    "OperatorArguments",
    "get_all_registered_operators",
    "get_operator_arguments",
    "register",
]


def get_all_registered_operators() -> list[str]:
    """The names of all operators, those written in Python among them."""
    return sorted({*registered_names(), *_registered()})


class OperatorArguments(NamedTuple):
    """narg : how many arguments an operator has; names, types : of each, the inputs first"""

    narg: int
    names: list[str]
    types: list[str]


def get_operator_arguments(op_name: str) -> OperatorArguments:
    """The inputs and attributes of an operator, in the words of MXNet's documents: `int, optional, default='1'`.

    The inputs of an operator in Python are one entry, and the arguments of its CustomOpProp are texts. Raises
    HybridLabError for an unknown name.
    """
    record, prop = find(op_name), _registered().get(op_name)
    if op_name == "Custom":
        arguments = {"data": _SEVERAL, "op_type": "string"}
    elif record is not None:
        arguments = {"data": _SEVERAL} if record.variadic else dict.fromkeys(record.input_names, _ONE)
        arguments |= {name: _in_words(field) for name, field in record.fields.items() if not name.startswith("_")}
    elif prop is not None:
        arguments = {"data": _SEVERAL} | _texts(prop)
    else:
        raise HybridLabError(f"there is no operator {op_name!r}; see get_all_registered_operators()")
    return OperatorArguments(len(arguments), list(arguments), list(arguments.values()))


_ONE, _SEVERAL = "NDArray-or-Symbol", "NDArray-or-Symbol[]"
_WORDS = {
    bool: "boolean",
    int: "int",
    float: "float",
    str: "string",
    Scalar: "float",
    tuple[int, ...]: "Shape(tuple)",
    tuple[int | None, ...]: "Shape(tuple)",
    tuple[float, ...]: "tuple of <float>",
    Axis: "Shape or None",
    tuple[int, ...] | None: "Shape or None",
}


def _in_words(field: Field) -> str:
    """The type of an attribute: `{'relu', 'tanh'}, required`, or `int, optional, default='1'`."""
    options = [option for option in get_args(field.annotation) if option is not type(None)]
    if get_origin(field.annotation) is Literal:
        return _choice(options, field)
    if field.annotation is DType or DType in options:
        return _choice([*DTYPES, *(["None"] if DType in options else [])], field)
    kind = _WORDS.get(field.annotation) or f"{_WORDS[options[0]]} or None"
    default = f"'{field.default}'" if kind.startswith("int") else _default(field.default)
    return f"{kind}, required" if field.required else f"{kind}, optional, default={default}"


def _choice(options: Sequence[str], field: Field) -> str:
    kind = "{" + ", ".join(sorted(map(repr, options))) + "}"
    return f"{kind}, required" if field.required else f"{kind},optional, default='{field.default}'"


def _default(value: object) -> str:
    """As MXNet writes it: booleans as 0 and 1, texts in quotes, tuples in brackets."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, tuple):
        return f"[{','.join(map(str, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _texts(prop: type[CustomOpProp]) -> dict[str, str]:
    """The arguments of a CustomOpProp."""
    parameters = inspect.signature(prop).parameters.values()
    return {
        each.name: "string, required" if each.default is each.empty else f"string, optional, default={each.default!r}"
        for each in parameters
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }


_suggest_names(__name__)
