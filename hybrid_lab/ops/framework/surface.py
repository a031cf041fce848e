"""User-facing functions made from the records: signatures, docstrings, argument handling for nd, sym and methods."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError
from hybrid_lab.ops.framework.operator import Operator, unknown_attribute
from hybrid_lab.ops.framework.types import Array

#: dispatch(op, inputs, out, name) -> result. Inputs that the user left out are MISSING.
Dispatch = Callable[[Operator, list[Any], Any, str | None], Any]


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()
"""Stands for an input that was not given: an error for arrays, a fresh variable for Symbols."""


def no_input(op: Operator, position: int, item: object, needed: str = "an NDArray") -> DTypeError:
    """The error for an object that cannot be the input of an operator: a string, a list."""
    names = op.signature.inputs
    name = names[position] if position < len(names) else f"number {position}"
    if not op.needs_array(position):
        needed += " or a number"
    return DTypeError(f"{op.name}: the input {name} must be {needed}, not {type(item).__name__}")


def missing_input(op: Operator, name: str) -> AttributeSpecError:
    """The error for an input that was left out of a call on arrays."""
    return AttributeSpecError(f"{op.name}: the input {name} is missing")


def no_arrays(op: Operator, inputs: Sequence[object], needed: str = "an NDArray") -> DTypeError:
    """The error for inputs that are all numbers."""
    kinds = " and ".join(type(item).__name__ for item in inputs) + (" were" if len(inputs) > 1 else " was")
    return DTypeError(f"{op.name}: at least one input must be {needed}; {kinds} given")


_IGNORED = frozenset({"ctx", "cudnn_off", "cudnn_tune", "workspace", "cudnn_algo_verbose", "num_args", "attr"})


def split_arguments(
    record: type[Operator], args: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[Operator, list[Any]]:
    """Sort a call's arguments into the bound operator and its list of inputs.

    Positional arguments are inputs first, attributes in their declared order after them; keywords are either. None for
    an input
    counts as left out. Attributes of MXNet that mean nothing here (cudnn_off, workspace, ctx ...) are dropped.
    """
    if record.variadic:
        inputs = _variadic_inputs(args, keywords)
        return record.bind(**_known(record, keywords)), inputs
    names = tuple(name for name in record.input_names if name not in record.scalars)
    given: dict[str, Any] = dict(zip(names, args, strict=False))
    attributes: dict[str, Any] = {}
    if len(args) > len(names):
        visible = [name for name in record.declared if not name.startswith("_")]
        extra = args[len(names) :]
        if len(extra) > len(visible):
            raise AttributeSpecError(
                f"{record.name} takes {len(names)} inputs and {len(visible)} attributes, "
                f"{len(args)} arguments were given"
            )
        attributes.update(zip(visible, extra, strict=False))
    for key, value in keywords.items():
        if key in names and not (key in record.fields and key in given):
            if key in given:
                raise AttributeSpecError(f"{record.name}: the input {key} is given twice")
            given[key] = value
        elif key in attributes:
            raise AttributeSpecError(f"{record.name}: the attribute {key} is given twice")
        else:
            attributes[key] = value
    scalars: tuple[object, ...] = ()
    if record.scalars:
        filled, attributes = record.split_scalars(names, attributes)
        scalars = filled[len(names) :]
    op = record.bind(**_known(record, attributes))
    wanted = op.signature.inputs
    for key, value in given.items():
        if value is not None and key not in wanted:
            raise AttributeSpecError(f"{op!r} takes no input {key}")
    inputs = [*(given.get(name) for name in wanted if name not in record.scalars), *scalars]
    return op, [MISSING if value is None else value for value in inputs]


def _variadic_inputs(args: tuple[Any, ...], keywords: dict[str, Any]) -> list[object]:
    if not args and "data" in keywords:
        args = tuple(keywords.pop("data"))
    if len(args) == 1 and isinstance(args[0], (list, tuple)):
        args = tuple(args[0])
    named = sorted(
        (key for key in keywords if key.startswith("arg") and key[3:].isdigit()), key=lambda key: int(key[3:])
    )
    return [*args, *(keywords.pop(key) for key in named)]


def _known(record: type[Operator], attributes: dict[str, Any]) -> dict[str, object]:
    if not _IGNORED.isdisjoint(attributes):
        attributes = {key: value for key, value in attributes.items() if key in record.fields or key not in _IGNORED}
    for key in attributes:
        if key not in record.fields:
            raise AttributeSpecError(unknown_attribute(record, key))
    return attributes


def make_function(record: type[Operator], dispatch: Dispatch, name: str | None = None) -> Callable[..., Any]:
    """The function `nd.<name>` or `sym.<name>` of a record."""

    def function(*args: Array, out: Array | None = None, name: str | None = None, **attributes: Any) -> Array:
        op, inputs = split_arguments(record, args, attributes)
        return dispatch(op, inputs, out, name)

    function.__name__ = function.__qualname__ = name or record.name
    function.__doc__ = document(record)
    function.__signature__ = signature(record)  # type: ignore[attr-defined]
    return function


def signature(record: type[Operator]) -> inspect.Signature:
    """The signature a person reads: inputs, attributes with defaults, out, name."""
    kinds = inspect.Parameter
    parameters = []
    if record.variadic:
        parameters.append(kinds("data", kinds.VAR_POSITIONAL))
    kind = kinds.KEYWORD_ONLY if record.variadic else kinds.POSITIONAL_OR_KEYWORD
    every = {**record.fields, **record.scalars}
    fields = [every[name] for name in record.declared if not name.startswith("_")]
    required = [field for field in fields if field.required]
    tensors = [name for name in record.input_names if name not in record.scalars]
    for index, input_name in enumerate(tensors):
        default = kinds.empty if index == 0 and not record.variadic else None
        parameters.append(kinds(input_name, kind, default=default))
    optional_seen = any(parameter.default is not kinds.empty for parameter in parameters)
    for field in fields:
        default = field.default
        if field in required:
            default = None if optional_seen else kinds.empty
        optional_seen = optional_seen or default is not kinds.empty
        if field.name in tensors:
            continue
        parameters.append(kinds(field.name, kind, default=default, annotation=field.annotation))
    parameters.append(kinds("out", kinds.KEYWORD_ONLY, default=None))
    parameters.append(kinds("name", kinds.KEYWORD_ONLY, default=None))
    return inspect.Signature(parameters)


def document(record: type[Operator]) -> str:
    """The record's docstring with its attributes listed."""
    text = inspect.cleandoc(record.__doc__ or "")
    lines = []
    for field_name in record.declared:
        field = record.fields.get(field_name) or record.scalars[field_name]
        if not field_name.startswith("_"):
            note = "required" if field.required else f"default {field.default!r}"
            lines.append(f"{field_name} : {type_name(field.annotation)}, {note}")
    return text + ("\n\nAttributes\n" + "\n".join(lines) if lines else "")


def type_name(annotation: Any) -> str:
    """The annotation as in source code."""
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__name__
    if hasattr(annotation, "__supertype__"):
        return str(annotation.__name__)
    return str(annotation).replace("typing.", "")
