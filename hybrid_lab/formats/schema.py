"""JSON by annotations: dataclasses are written without defaults, and every value that is read has its type checked.

Archives need no package but NumPy, therefore neither msgspec nor pydantic reads them. Both would word errors for
programmers of a schema, not for the user of a file.

Annotations are `int`, `str`, `bool`, `float`, `None`, `Any`, `X | Y`, `Literal["a", "b"]`, `list[X]`, `dict[str, X]`,
`tuple[X, ...]`, `tuple[X, Y]`, dataclasses, and `Annotated[int, range(...)]` for whole numbers in a range.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Size = Annotated[int, range(2**48)]
"""A size in a shape."""

Record = TypeVar("Record")
Value = TypeVar("Value")


def write(record: object) -> dict[str, Any]:
    """A dataclass as a JSON object without the fields that are at their defaults; the field `in_` has the key "in"."""
    members = {}
    defaults = _defaults(type(record))  # type: ignore[arg-type] # a class has a hash
    for (key, default), value in zip(defaults.values(), vars(record).values(), strict=True):
        if value != default:
            members[key] = write(value) if hasattr(value, "__dataclass_fields__") else value
    return members


def read(kind: type[Record], value: object) -> Record:
    """The dataclass that a JSON object stands for; keys that are no fields are ignored.

    Raises ValueError for a missing field or a value of another type, worded to follow a name: "has no 'size'".
    """
    return _reader(kind)(value)  # type: ignore[arg-type] # a class has a hash


@cache
def _defaults(kind: type) -> dict[str, tuple[str, Any]]:
    """Name of a field -> its key and its default; MISSING if it has none."""
    from_factories = {each.name: each.default_factory() for each in fields(kind) if each.default_factory is not MISSING}
    return {each.name: (each.name.rstrip("_"), from_factories.get(each.name, each.default)) for each in fields(kind)}


@cache
def _reader(annotation: Hashable) -> Callable[[Any], Any]:
    """A function that checks a JSON value and returns it, lists as the tuples that they stand for."""
    kind: Any = get_origin(annotation) or annotation
    parts = get_args(annotation)
    if kind is Any:
        return lambda value: value
    if isinstance(kind, type) and is_dataclass(kind):
        return _record_reader(kind)
    if kind is Annotated:
        return lambda value: _checked(value, parts[0], parts[1])
    if kind is Literal:
        return lambda value: _checked(value, str, parts)
    if kind in (Union, UnionType):
        return _first_of([_reader(part) for part in parts])
    items = [_reader(part) for part in parts if part is not ...]
    if kind is dict:
        return lambda value: {key: items[1](item) for key, item in _checked(value, dict).items()}
    if kind is list:
        return lambda value: [items[0](item) for item in _checked(value, list)]
    if kind is tuple and parts[-1] is ...:
        return lambda value: tuple([items[0](item) for item in _checked(value, list)])
    if kind is tuple:
        return lambda value: tuple([item(part) for item, part in zip(items, _checked(value, list), strict=True)])
    return lambda value: _checked(value, kind)


def _checked(value: object, kind: type[Value], allowed: Container[object] | None = None) -> Value:
    if type(value) is not kind or (allowed is not None and value not in allowed):
        raise ValueError(f"is {str(value)[:60]!r}")
    return value


def _first_of(readers: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def read_one(value: object) -> object:
        for reader in readers[:-1]:
            try:
                return reader(value)
            except ValueError:
                continue
        return readers[-1](value)

    return read_one


def _record_reader(kind: type) -> Callable[[Any], Any]:
    hints, defaults = get_type_hints(kind, include_extras=True), _defaults(kind)
    readers = [(name, key, _reader(hints[name]), default is MISSING) for name, (key, default) in defaults.items()]

    def read_record(value: object) -> object:
        members, arguments = _checked(value, dict), {}
        for name, key, reader, needed in readers:
            if key in members:
                try:
                    arguments[name] = reader(members[key])
                except ValueError:
                    raise ValueError(f"has {key}={str(members[key])[:60]!r}") from None
            elif needed:
                raise ValueError(f"has no {key!r}")
        return kind(**arguments)

    return read_record
