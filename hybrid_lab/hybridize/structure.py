"""Input and output structure of a call: tuples, lists, dicts and plain values around the tensors, as hashable data."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, HybridLabError

#: A tensor leaf. Other nodes are ("tuple", items), ("list", items), ("dict", ((key, item), ...)) and
#: ("value", name of the type, value), floats and the kinds of `constants.py` as Exactly. A namedtuple is
#: ("tuple", items, its class).
LEAF = ("tensor",)
NUMPY_LEAF = ("tensor", "np")
"""A tensor of `mx.np`: an array of that class in eager code, a Symbol of its class in a trace."""
Spec = tuple[Any, ...]
ONE_TENSOR: Spec = ("tuple", (LEAF,))
"""The arguments of a call with one tensor."""

_PLAIN = (type(None), bool, int, float, str)
_NAMES_OF_PLAIN = frozenset(kind.__name__ for kind in _PLAIN)


class Exactly:
    """A value, equal only to one of its own type and bits: 0.0 is not -0.0, and NaN is NaN.

    key : hashable, and equal for equal values; None: of a float
    """

    __slots__ = ("_key", "value")

    def __init__(self, value: Any, key: object = None):
        self.value = value
        self._key = type(value), float(value).hex() if key is None else key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exactly) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return repr(self.value)


def is_tensor(item: object) -> bool:
    """NDArrays and Symbols are leaves."""
    return hasattr(item, "_is_symbol") or hasattr(item, "_data")


def flatten(item: object, where: str = "the input") -> tuple[list[Any], Spec]:
    """The tensors in `item`, in order, and the structure around them.

    Raises HybridLabError for what is neither a tensor, a container of tensors nor a plain value.
    """
    leaves: list[Any] = []
    return leaves, _flatten(item, leaves, where)


def _flatten(item: object, leaves: list[object], where: str) -> Spec:
    if is_tensor(item):
        leaves.append(item)
        return NUMPY_LEAF if getattr(item, "is_np", False) else LEAF
    if isinstance(item, tuple):
        items = tuple(_flatten(part, leaves, where) for part in item)
        return ("tuple", items, type(item)) if is_named(item) else ("tuple", items)
    if isinstance(item, list):
        return ("list", tuple(_flatten(part, leaves, where) for part in item))
    if isinstance(item, dict):
        return ("dict", tuple((key, _flatten(part, leaves, where)) for key, part in item.items()))
    if isinstance(item, _PLAIN) and not isinstance(item, np.generic):
        return _value(item)
    from hybrid_lab.hybridize import constants

    data = constants.to_json(item)
    if data is not None:
        return ("value", type(item).__name__, Exactly(item, json.dumps(data)))
    raise refused(item, where)


def tensors_in(item: object) -> list[Any]:
    """The tensors in tuples, lists and dicts, in order, whatever else is in them."""
    if is_tensor(item):
        return [item]
    if isinstance(item, dict):
        item = tuple(item.values())
    return [tensor for part in item for tensor in tensors_in(part)] if isinstance(item, (tuple, list)) else []


def refused(item: object, where: str) -> HybridLabError:
    """The error for what a graph takes neither as a tensor nor as a part of the structure of a call."""
    kind = type(item)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(item, (np.ndarray, np.generic)):
        number = " or float(x)" if isinstance(item, np.generic) else ""
        return DTypeError(f"{where} holds a {name}; convert it with mx.nd.array(x){number}")
    return HybridLabError(
        f"{where} holds a {name}; a HybridBlock takes NDArrays, numbers, strings, None, slices, dtypes, and tuples, "
        "lists or dicts of them"
    )


def is_named(item: object) -> bool:
    """Whether it is a namedtuple."""
    return isinstance(item, tuple) and hasattr(item, "_fields") and hasattr(item, "_make")


def plain(spec: Spec) -> Spec:
    """The structure as files have it: namedtuples are tuples there, members of an IntEnum numbers."""
    if spec[0] in ("tuple", "list"):
        return (spec[0], tuple(map(plain, spec[1])))
    if spec[0] == "dict":
        return ("dict", tuple((key, plain(part)) for key, part in spec[1]))
    if spec[0] == "value" and spec[1] not in _NAMES_OF_PLAIN:
        value = spec[2].value if isinstance(spec[2], Exactly) else spec[2]
        base = next((kind for kind in (int, float, str) if isinstance(value, kind)), None)
        if base is not None and not isinstance(value, np.generic):
            return _value(base.__str__(value) if base is str else base(value))
    return spec


def without_defaults(spec: Spec) -> Spec:
    """The structure of the arguments of a call without None at their end, which code may have as a default."""
    items = spec[1]
    while items and items[-1] == _value(None):
        items = items[:-1]
    return ("tuple", items)


def _value(item: object) -> Spec:
    return ("value", type(item).__name__, Exactly(item) if isinstance(item, float) else item)


def unflatten(spec: Spec, leaves: Iterator[Any]) -> Any:
    """The structure with `leaves` put back in order, as the kind of array that it says."""
    kind = spec[0]
    if kind == "tensor":
        return next(leaves) if len(spec) == 1 else next(leaves).as_np_ndarray()
    if kind == "tuple":
        parts = tuple(unflatten(part, leaves) for part in spec[1])
        return spec[2]._make(parts) if len(spec) == 3 else parts
    if kind == "list":
        return [unflatten(part, leaves) for part in spec[1]]
    if kind == "dict":
        return {key: unflatten(part, leaves) for key, part in spec[1]}
    return spec[2].value if type(spec[2]) is Exactly else spec[2]


def is_picklable(spec: Spec) -> bool:
    """Whether a pickle can hold the structure: it names the classes of namedtuples and values, and a local or redefined
    class has no such name.
    """
    try:
        pickle.dumps(spec)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


def outline(spec: Spec) -> tuple[object, ...]:
    """What structures share that differ only in numbers and in the lengths of lists."""
    kind = spec[0]
    if kind == "tuple":
        return (kind, tuple(map(outline, spec[1])))
    if kind == "list":
        return (kind, frozenset(map(outline, spec[1])))
    if kind == "dict":
        return (kind, tuple((key, outline(part)) for key, part in spec[1]))
    return spec[:2] if kind == "value" and spec[1] in ("int", "float") else spec


def of_class(spec: Spec, leaf: Spec) -> Spec:
    """The structure with tensors of one class, LEAF or NUMPY_LEAF."""
    if spec[0] == "tensor":
        return leaf
    if spec[0] in ("tuple", "list"):
        return (spec[0], tuple(of_class(part, leaf) for part in spec[1]), *spec[2:])
    if spec[0] == "dict":
        return ("dict", tuple((key, of_class(part, leaf)) for key, part in spec[1]))
    return spec


def to_json(spec: Spec) -> Any:
    """The structure as JSON data, without the classes of namedtuples."""
    from hybrid_lab.hybridize import constants

    kind = spec[0]
    if kind == "tensor":
        return "tensor" if len(spec) == 1 else "np"
    if kind in ("tuple", "list"):
        return {kind: [to_json(part) for part in spec[1]]}
    if kind == "dict":
        return {"dict": [[key, to_json(part)] for key, part in spec[1]]}
    if type(spec[2]) is not Exactly:
        constant = constants.to_json(spec[2])
        return {"value": spec[2]} if constant is None else {"constant": constant}
    constant = None if type(spec[2].value) is float else constants.to_json(spec[2].value)
    if constant is not None:
        return {"constant": constant}
    number = float(spec[2].value)
    return {"value": number} if math.isfinite(number) else {"float": repr(number)}


def from_json(data: object) -> Spec:
    """The structure that `to_json` wrote. Raises HybridLabError for anything else."""
    from hybrid_lab.hybridize import constants

    if data in ("tensor", "np"):
        return LEAF if data == "tensor" else NUMPY_LEAF
    if isinstance(data, dict) and len(data) == 1:
        (kind, value), *_ = data.items()
        if kind in ("tuple", "list") and isinstance(value, list):
            return (kind, tuple(from_json(part) for part in value))
        if kind == "dict" and isinstance(value, list) and all(isinstance(row, list) and len(row) == 2 for row in value):
            return ("dict", tuple((key, from_json(part)) for key, part in value))
        if kind == "value" and isinstance(value, _PLAIN):
            return _value(value)
        if kind == "float" and value in ("nan", "inf", "-inf"):
            return _value(float(value))
        if kind == "constant":
            constant = constants.from_json(value)
            if isinstance(constant, _PLAIN) and not isinstance(constant, np.generic):
                return _value(constant)
            return ("value", type(constant).__name__, Exactly(constant, json.dumps(constants.to_json(constant))))
    raise HybridLabError(f"{str(data)[:80]!r} is not an input or output structure")


def count_leaves(spec: Spec) -> int:
    """Number of tensors."""
    kind = spec[0]
    if kind == "tensor":
        return 1
    if kind in ("tuple", "list"):
        return sum(map(count_leaves, spec[1]))
    return sum([count_leaves(part) for _, part in spec[1]]) if kind == "dict" else 0


def describe(spec: Spec) -> str:
    """`(tensor, [tensor, None])`."""
    kind = spec[0]
    if kind == "tensor":
        return "tensor" if len(spec) == 1 else "np tensor"
    if kind == "tuple":
        inner = ", ".join(map(describe, spec[1]))
        if len(spec) == 3:
            return f"{spec[2].__name__}({inner})"
        return f"({inner},)" if len(spec[1]) == 1 else f"({inner})"
    if kind == "list":
        return f"[{', '.join(map(describe, spec[1]))}]"
    if kind == "dict":
        return "{" + ", ".join(f"{key!r}: {describe(part)}" for key, part in spec[1]) + "}"
    return repr(spec[2])


# -- lists and dicts among the arguments -----------------------------------------------------------------------------


def containers(args: Iterable[object]) -> list[Any]:
    """The lists and dicts among the arguments and in one another; one that comes twice is listed twice."""
    found: list[Any] = []
    visited: set[int] = set()
    pending = list(args)
    for item in pending:
        if isinstance(item, (list, dict)):
            found.append(item)
        if isinstance(item, (list, dict, tuple)) and id(item) not in visited:
            visited.add(id(item))
            pending += item.values() if isinstance(item, dict) else item
    return found


def contents(container: Any) -> list[object]:
    """The elements of a list, or the keys and values of a dict."""
    return [part for pair in container.items() for part in pair] if isinstance(container, dict) else list(container)


def same_objects(one: Sequence[object], two: Sequence[object]) -> bool:
    """Whether two sequences hold the same objects in the same order."""
    return len(one) == len(two) and all(a is b for a, b in zip(one, two, strict=True))
