"""The user's own values (`aux`, attributes of Blocks) as JSON and tensors: data, and nothing that runs code.

Plain strings, whole numbers below 2^53, finite floats, bools and None are written unchanged; every other value is an
object with one key that names its type. `kinds.py` has Python's and NumPy's own types, `objects.py` this package's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.ndarray import NDArray

from ..safetensors import tag_of
from . import kinds, objects

if TYPE_CHECKING:
    from hybrid_lab.gluon import Block, Parameter

DEPTH_LIMIT = 100
_DIGITS = 3999
"""Longer whole numbers are written in hexadecimal: Python refuses to read long decimal ones."""


class NotDataError(HybridLabError, TypeError):
    """A value, or a part of one, that is no data. where : `aux['model'].fn`; kind : its kind, "function"."""

    def __init__(self, message: str, where: str, kind: str) -> None:
        super().__init__(message)
        self.where, self.kind = where, kind


class Encoder:
    """Writes values as JSON data, and their arrays into `tensors`.

    blocks, parameters : id() of each Block and Parameter of the model -> its id in the archive, for values that refer
        to them
    """

    def __init__(
        self,
        tensors: dict[str, np.ndarray],
        blocks: Mapping[int, int] | None = None,
        parameters: Mapping[int, str] | None = None,
    ) -> None:
        self.tensors, self.blocks, self.parameters = tensors, blocks or {}, parameters or {}

    def encode(self, value: object, where: str = "aux", depth: int = 0) -> object:
        """`value` as JSON data. Raises NotDataError naming the value that is not data; the tensors are as before
        then.
        """
        count = len(self.tensors)
        try:
            return self._encode(value, where, depth)
        except HybridLabError:
            for name in [*self.tensors][count:]:
                del self.tensors[name]
            raise

    def _encode(self, value: object, where: str, depth: int) -> object:
        if depth > DEPTH_LIMIT:
            message = f"{where[:60]}... is nested more than {DEPTH_LIMIT} deep"
            raise NotDataError(message, f"{where[:60]}...", "value inside of itself")
        if value is None or type(value) is bool:
            return value
        if isinstance(value, (np.ndarray, np.generic, NDArray)):
            return self._array(value, where, depth)
        if isinstance(value, Enum):  # which may be a number or a text, too
            kind = kinds.of(value)
            if kind is not None:
                return {kind.name: self._encode(_parts(kind, value, where), where, depth + 1)}
        if isinstance(value, str) and kinds.is_unicode(value):
            return str(value)
        if isinstance(value, int):
            return int(value) if abs(value) < 2**53 else _long(int(value))
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        kind = objects.of(value) or kinds.of(value)
        if kind is not None:
            return {kind.name: self._encode(_parts(kind, value, where), where, depth + 1)}
        if isinstance(value, (list, tuple)):
            name = "list" if isinstance(value, list) else "tuple"
            return {name: [self._encode(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]}
        if isinstance(value, dict):
            return {"dict": [self._entry(key, item, where, depth + 1) for key, item in value.items()]}
        return self._reference(value, where, depth)

    def _entry(self, key: object, item: object, where: str, depth: int) -> list[object]:
        if isinstance(key, (NDArray, np.ndarray)):
            raise NotDataError(f"{where} has an array among its keys", where, "dict with an array as a key")
        return [self._encode(key, f"a key of {where}", depth), self._encode(item, f"{where}[{key!r:.60}]", depth)]

    def _array(self, value: Any, where: str, depth: int) -> object:
        kind = objects.of(value) if isinstance(value, NDArray) else kinds.of_array(value)
        if kind is not None:
            return {kind.name: self._encode(_parts(kind, value, where), where, depth + 1)}
        array = value.asnumpy() if isinstance(value, NDArray) else np.asarray(value)
        if (
            tag_of(array.dtype) is None
            or type(value) not in (np.ndarray, NDArray)
            and not isinstance(value, np.generic)
        ):
            kind_of_array = f"{type(value).__name__} of {array.dtype}"
            raise NotDataError(f"{where} is a {kind_of_array}, which cannot be saved", where, kind_of_array)
        name = "nd" if isinstance(value, NDArray) else "numpy" if isinstance(value, np.ndarray) else "scalar"
        key = str(len(self.tensors))
        self.tensors[key] = array
        return {name: key}

    def _reference(self, value: object, where: str, depth: int) -> object:
        """A Block or a Parameter of the model, a Trainer of its parameters. Raises NotDataError."""
        if id(value) in self.blocks:
            return {"block": self.blocks[id(value)]}
        if id(value) in self.parameters:
            return {"parameter": self.parameters[id(value)]}
        trainer = objects.trainer_parts(value, self.parameters)
        if trainer is not None:
            return {"trainer": self._encode(trainer, where, depth + 1)}
        kind = type(value).__name__
        raise NotDataError(
            f"{where} is a {kind}; only numbers, strings, None, arrays, dates, paths, dtypes, metrics, schedules, and "
            "lists, tuples, sets and dicts of them can be saved",
            where,
            kind,
        )


class Decoder:
    """Makes values from the output of an Encoder.

    blocks, parameters : of the model that is loaded, by their ids in the archive; a value that refers to any other id
        becomes None, and is counted in `unresolved`
    trainer_of : makes a Trainer of its parts and the parameters, which must have their values by then; see
        `objects.trainer_of`
    """

    def __init__(
        self,
        tensors: Mapping[str, np.ndarray],
        blocks: Mapping[int, Block] | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        trainer_of: Callable[[Any, Mapping[str, Parameter]], Any] = objects.trainer_of,
    ) -> None:
        self.tensors, self.blocks, self.parameters = tensors, blocks or {}, parameters or {}
        self.trainer_of = trainer_of
        self.unresolved = 0

    def decode(self, data: object, depth: int = 0) -> Any:
        """The value. Raises ValueError for data that an Encoder does not write."""
        if data is None or isinstance(data, (bool, str, int, float)):
            return data
        try:
            if depth > 3 * DEPTH_LIMIT or not isinstance(data, dict):
                raise ValueError
            ((name, inner),) = data.items()
            return self._decode(name, inner, depth + 1)
        except Exception:  # of any type that building a value from damaged parts raises
            raise ValueError(f"{str(data)[:80]!r} is not a value") from None

    def _decode(self, name: str, inner: Any, depth: int) -> Any:
        if name in ("nd", "numpy", "scalar"):
            array = self.tensors[inner].copy()
            return NDArray.wrap(array) if name == "nd" else array if name == "numpy" else array[()]
        if name in ("list", "tuple"):
            items = [self.decode(item, depth) for item in _checked(inner, list)]
            return items if name == "list" else tuple(items)
        if name == "dict":
            return {self.decode(key, depth): self.decode(item, depth) for key, item in _checked(inner, list)}
        if name == "int" and len(inner) <= _DIGITS + 1:
            return int(inner)
        if name == "hex":
            return int(_checked(inner, str), 16)
        if name == "float" and inner in ("nan", "inf", "-inf"):
            return float(inner)
        if name == "block":
            return self._referred(self.blocks, inner)
        if name == "parameter":
            return self._referred(self.parameters, inner)
        parts = self.decode(inner, depth)
        if name == "trainer":
            return self.trainer_of(parts, self.parameters)
        return (kinds.named(name) or objects.named(name)).build(parts)  # type: ignore[union-attr] # AttributeError

    def _referred(self, known: Mapping[Any, Any], key: Any) -> Any:
        self.unresolved += key not in known
        return known.get(key)


def trainer_parts(parts: Any, parameters: Mapping[str, Parameter]) -> Any:
    """For Decoder(trainer_of=...): the parts themselves, checked to be a dict."""
    return _checked(parts, dict)


def encode(value: object, tensors: dict[str, np.ndarray], where: str = "aux") -> object:
    """`value` as JSON data, its arrays put into `tensors`. Raises NotDataError naming the value that is not data."""
    return Encoder(tensors).encode(value, where)


def decode(data: object, tensors: Mapping[str, np.ndarray]) -> Any:
    """The value that `encode` made `data` of. Raises ValueError for data that `encode` does not write."""
    return Decoder(tensors).decode(data)


def equal(one: tuple[object, Mapping[str, np.ndarray]], other: tuple[object, Mapping[str, np.ndarray]]) -> bool:
    """Whether two encoded values, each with the tensors that it names, stand for the same."""
    return _same(one[0], other[0], one[1], other[1])


def _same(one: Any, other: Any, tensors: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(_same(a, b, tensors, others) for a, b in zip(one, other, strict=True))
    if not isinstance(one, dict):
        return bool(one == other)
    if one.keys() != other.keys():
        return False
    ((name, inner),) = one.items()
    if name not in ("nd", "numpy", "scalar"):
        return _same(inner, other[name], tensors, others)
    mine, theirs = tensors[inner], others[other[name]]
    return mine.dtype == theirs.dtype and mine.shape == theirs.shape and mine.tobytes() == theirs.tobytes()


def shown(data: object, tensors: Mapping[str, np.ndarray]) -> str:
    """An encoded value in a few words: "3", "{'lr': 0.1}", "a Trainer"."""
    kind = next(iter(data), "") if isinstance(data, dict) else ""
    if kind in ("block", "parameter", "trainer"):
        return f"a {kind.capitalize()}"
    try:
        text = repr(Decoder(tensors, trainer_of=trainer_parts).decode(data))
    except ValueError:
        return "a damaged value"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


_SHOWN = 60
_KINDS_OF_1_0 = {"int", "float", "list", "tuple", "dict", "nd", "numpy", "scalar"}


def is_of_1_0(data: object) -> bool:
    """Whether readers of the schema 1.0 know all kinds in an encoded value."""
    return not _kinds_in(data) - _KINDS_OF_1_0


def holds_trainer(data: object) -> bool:
    """Whether there is a Trainer in an encoded value."""
    return "trainer" in _kinds_in(data)


def _kinds_in(data: object) -> set[str]:
    kinds_found: set[str] = set()
    pending = [data]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            kinds_found.update(item)
            pending += item.values()
        elif isinstance(item, list):
            pending += item
    return kinds_found


def _parts(kind: kinds.Kind, value: object, where: str) -> object:
    try:
        return kind.parts(value)
    except ValueError as error:
        raise NotDataError(f"{where}: {error}", where, type(value).__name__) from None


def _long(value: int) -> dict[str, str]:
    return {"int": str(value)} if abs(value) < 10**_DIGITS else {"hex": hex(value)}


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError
    return value
