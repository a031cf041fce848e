"""mx.operator: operators written in Python, as classes that MXNet code registers under a name.

`nd.Custom` calls them on arrays, `sym.Custom` makes them a node of a graph.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args, get_origin

from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.operator.base import CustomOp, CustomOpProp, register
from hybrid_lab.operator.base import registered as _registered
from hybrid_lab.ops.framework.attributes import Field
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
    """The inputs and attributes of an operator, in words as MXNet's documents have them. Raises HybridLabError."""
    record = find(op_name)
    if record is None:
        raise HybridLabError(f"there is no operator {op_name!r}; see get_all_registered_operators()")
    arguments = dict.fromkeys(record.input_names, "NDArray-or-Symbol")
    arguments |= {name: _in_words(field) for name, field in record.fields.items() if not name.startswith("_")}
    return OperatorArguments(len(arguments), list(arguments), list(arguments.values()))


def _in_words(field: Field) -> str:
    """The type of an attribute: `{'relu', 'tanh'}, required`, or `int, optional, default=1`."""
    if get_origin(field.annotation) is Literal:
        kind = "{" + ", ".join(sorted(map(repr, get_args(field.annotation)))) + "}"
    else:
        kind = getattr(field.annotation, "__name__", str(field.annotation))
    return f"{kind}, required" if field.required else f"{kind}, optional, default={field.default!r}"


_suggest_names(__name__)
