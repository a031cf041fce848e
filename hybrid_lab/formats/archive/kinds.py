"""Values of Python's and NumPy's own types as simpler values, and back: one row of a table for each type."""

from __future__ import annotations

import argparse
import datetime
import decimal
import enum
import fractions
import math
import pathlib
import random
import sys
import types
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from hybrid_lab.aliases import current_name, older_name
from hybrid_lab.ndarray.random_state import check_place

from ..safetensors import tag_of


class Kind(NamedTuple):
    """A type of values. name : in the file

    parts : a value as one of simpler types; build : the value again, or any error for other parts
    """

    name: str
    parts: Callable[[Any], object]
    build: Callable[[Any], Any]


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: it has no halves of surrogate pairs, as names of files may have."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def of(value: object) -> Kind | None:
    """The kind of a value; None if it has none here."""
    kind = _BY_TYPE.get(type(value))
    if kind is not None:
        return kind
    if isinstance(value, tuple) and _fields_of(type(value)) is not None:
        return _NAMEDTUPLE
    if isinstance(value, enum.Enum):
        return _ENUM if value.name in type(value).__members__ else None
    if hasattr(type(value), "__dataclass_fields__"):
        return _DATACLASS if "__dataclass_fields__" in vars(type(value)) else None
    if isinstance(value, type):
        return _TYPE if value in _TYPES.values() else _SCALAR_TYPE if issubclass(value, np.generic) else None
    return next((kind for base, kind in _BY_BASE if isinstance(value, base)), None)


def of_array(value: np.ndarray | np.generic) -> Kind | None:
    """The kind of a special NumPy array or scalar; None for a plain array of numbers."""
    if isinstance(value, np.generic):
        return None if tag_of(value.dtype) is not None else _NUMPY_SCALAR
    if isinstance(value, np.ma.MaskedArray):
        return _MASKED
    if isinstance(value, np.matrix):
        return _MATRIX
    if isinstance(value, np.recarray):
        return _RECARRAY
    if type(value) is not np.ndarray:
        return None
    if value.dtype.names is not None:
        return _STRUCTURED
    return _ARRAYS.get(value.dtype.kind) if tag_of(value.dtype) is None else None


def named(name: str) -> Kind | None:
    """The kind of this name in a file."""
    return _BY_NAME.get(name)


# -- objects of the user's classes -------------------------------------------------------------------------------------


class MissingObject:
    """Stands for an object from an archive whose class is not defined here. Its attributes are the object's."""

    def __init__(self, archived_class: str, attributes: Mapping[str, object]) -> None:
        vars(self).update(attributes, archived_class=archived_class)

    def __repr__(self) -> str:
        return f"<{self.archived_class.rpartition('.')[2]} [class missing]>"

    archived_class: str


def name_of_class(kind: type) -> tuple[str, str]:
    """Module and qualified name of a class, as files have them: by the older name of a module that has one."""
    return older_name(kind.__module__), kind.__qualname__


def live_class(base: type, module: str, name: str, fits: Callable[[Any], bool] = bool) -> Any:
    """The class of this name among the live subclasses of a base; None if there is none, and for one whose objects
    run code when they are freed. No module is imported and no attribute read by a name of the file.
    """
    module = current_name(module)
    found: Any = None
    pending: deque[type] = deque([base])
    seen: set[type] = {base}
    while pending:
        kind = pending.popleft()
        if kind.__name__ == name.rpartition(".")[2] and (kind.__module__, kind.__qualname__) == (module, name):
            found = kind if fits(kind) else found  # the newest one: a cell that was run again has made several
        subclasses: list[type] = type.__subclasses__(kind)
        further = [each for each in subclasses if each not in seen]
        seen.update(further)
        pending += further
    return None if hasattr(found, "__del__") else found


def _fields_of(kind: type) -> tuple[str, ...] | None:
    fields = getattr(kind, "_fields", None)
    return fields if isinstance(fields, tuple) and hasattr(kind, "_make") else None


def _namedtuple(parts: Any) -> Any:
    """A named tuple of the live class with this name and these fields, or of an equivalent one."""
    module, name, fields, values = parts
    fields = tuple(fields)
    kind = live_class(tuple, module, name, lambda kind: _fields_of(kind) == fields) or _equivalent_class(name, fields)
    if len(values) != len(fields):
        raise ValueError
    return tuple.__new__(kind, values)


def _dataclass_parts(value: Any) -> object:
    attributes = {name: getattr(value, name) for name in value.__dataclass_fields__ if hasattr(value, name)}
    return *name_of_class(type(value)), {**getattr(value, "__dict__", {}), **attributes}


def _dataclass(parts: Any) -> object:
    """An object of the live dataclass with this name; its constructor does not run."""
    module, name, attributes = parts
    kind = live_class(object, module, name, lambda kind: "__dataclass_fields__" in vars(kind))
    if kind is None:
        return MissingObject(f"{module}.{name}", attributes)
    if any(callable(getattr(kind, key, None)) and key not in kind.__dataclass_fields__ for key in attributes):
        raise ValueError  # a file replaces no method
    made = object.__new__(kind)
    for key, item in attributes.items():
        object.__setattr__(made, key, item)
    return made


def _enum(parts: Any) -> object:
    """The member of the live Enum with this name; the member's value if there is none."""
    module, qualname, name, value = parts
    kind = live_class(enum.Enum, module, qualname)
    return value if kind is None or name not in kind.__members__ else kind.__members__[name]


@lru_cache(maxsize=256)
def _equivalent_class(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(name.rpartition(".")[2], fields)


# -- dates -------------------------------------------------------------------------------------------------------------


def _zone_of(value: datetime.datetime | datetime.time) -> str | None:
    return value.tzinfo.key if isinstance(value.tzinfo, zoneinfo.ZoneInfo) else None


def _datetime(parts: Any) -> datetime.datetime:
    text, fold, zone = parts
    found = datetime.datetime.fromisoformat(text).replace(fold=fold)
    return found if zone is None else found.replace(tzinfo=_zone(zone) or found.tzinfo)


def _time(parts: Any) -> datetime.time:
    text, fold, zone = parts
    found = datetime.time.fromisoformat(text).replace(fold=fold)
    return found if zone is None else found.replace(tzinfo=_zone(zone) or found.tzinfo)


def _zone(name: str) -> datetime.tzinfo | None:
    """The time zone of this name; None on a machine that lacks it."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError):
        return None


def _named_zone(name: str) -> datetime.tzinfo:
    return _zone(name) or datetime.UTC


# -- NumPy -------------------------------------------------------------------------------------------------------------


def _complex_parts(array: np.ndarray) -> object:
    wide = "complex64" if array.dtype == np.complex64 else "complex128"
    if array.dtype.itemsize > 16:
        raise ValueError(f"{array.dtype} arrays cannot be saved")
    flat = np.ascontiguousarray(array.astype(wide)).reshape(-1)
    return array.shape, flat.view(flat.real.dtype)


def _complex_array(parts: Any) -> np.ndarray:
    shape, numbers = parts
    return numbers.view(np.complex64 if numbers.dtype == np.float32 else np.complex128).reshape(shape)


def _text_parts(array: np.ndarray) -> object:
    unit: Any = np.uint32 if array.dtype.kind == "U" else np.uint8
    length = array.dtype.itemsize // np.dtype(unit).itemsize
    native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))
    return array.shape, array.dtype.kind, length, native.reshape(-1).view(unit) if length else np.zeros(0, unit)


def _text_array(parts: Any) -> np.ndarray:
    shape, letter, length, units = parts
    if letter not in ("U", "S") or units.dtype != (np.uint32 if letter == "U" else np.uint8):
        raise ValueError
    if not length:
        return np.empty(shape, f"{letter}0") if math.prod(shape) <= 1 << 20 else _refused()
    if letter == "U" and units.size and units.max() > sys.maxunicode:
        raise ValueError
    return units.view(f"{letter}{length}").reshape(shape)


def _refused() -> Any:
    raise ValueError


def _moment_parts(array: np.ndarray) -> object:
    native = array.astype(array.dtype.newbyteorder("="))
    return native.dtype.str[1:], native.view(np.int64)


def _moment_array(parts: Any) -> np.ndarray:
    text, numbers = parts
    dtype = np.dtype(text)
    if dtype.kind not in "mM" or numbers.dtype != np.int64:
        raise ValueError
    return numbers.view(dtype)


def _object_array(parts: Any) -> np.ndarray:
    shape, items = parts
    if math.prod(shape) != len(items):
        raise ValueError
    array = np.empty(len(items), object)
    for index, item in enumerate(items):
        array[index] = item
    return array.reshape(shape)


def _structured_parts(array: np.ndarray) -> object:
    return array.shape, [(name, np.ascontiguousarray(array[name])) for name in array.dtype.names or ()]


def _structured_array(parts: Any) -> np.ndarray:
    shape, fields = parts
    if any(field.shape[: len(shape)] != tuple(shape) for _, field in fields):
        raise ValueError
    array = np.empty(shape, [(name, field.dtype, field.shape[len(shape) :]) for name, field in fields])
    for name, field in fields:
        array[name] = field
    return array


def _masked_array(parts: Any) -> np.ndarray:
    data, mask, fill_value = parts
    return np.ma.MaskedArray(data, mask, fill_value=fill_value)


def _dtype_name(dtype: np.dtype) -> object:
    if dtype.names is not None or dtype.subdtype is not None or dtype.kind == "O":
        raise ValueError(f"the dtype {dtype} cannot be saved")
    return dtype.name if dtype.kind == "V" else dtype.str


def _dtype(text: str) -> np.dtype:
    from hybrid_lab.ops.framework.dtypes import dtype_of

    if not isinstance(text, str) or np.dtype("O") == (found := dtype_of(text)):
        raise ValueError
    return found


# -- generators of random numbers --------------------------------------------------------------------------------------

_GENERATORS: dict[str, Any] = {
    name: getattr(np.random, name) for name in ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
}


def _generator_parts(value: np.random.Generator) -> object:
    name = type(value.bit_generator).__name__
    if name not in _GENERATORS:
        raise ValueError(f"a generator of {name} cannot be saved")
    return name, value.bit_generator.state


def _generator(parts: Any) -> np.random.Generator:
    name, state = parts
    bits = _GENERATORS[name]()
    check_place(state)
    bits.state = state
    return np.random.Generator(bits)


def _random_state(state: Any) -> np.random.RandomState:
    made = np.random.RandomState()
    check_place(state)
    made.set_state(state)
    return made


def _python_random(state: Any) -> random.Random:
    made = random.Random()
    made.setstate(state)
    return made


# -- the table ---------------------------------------------------------------------------------------------------------

_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, type(None), object)
}


def _of(kind: type, build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`build` of parts of this type alone: bytearray(2**60) would take memory, and asmatrix of a text reads it."""
    return lambda parts: build(parts) if isinstance(parts, kind) else _refused()


def _type(name: str) -> type:
    return _TYPES[name]


def _sorted(items: set[Any] | frozenset[Any]) -> list[Any]:
    """In an order that does not depend on the process, so that equal sets give equal files."""
    return sorted(items, key=lambda item: (type(item).__name__, repr(item)))


def _bytes(units: np.ndarray) -> bytes:
    if units.dtype != np.uint8:
        raise ValueError
    return units.tobytes()


def _factory_parts(value: defaultdict[Any, Any]) -> object:
    factory = value.default_factory
    if factory is not None and factory not in _TYPES.values():
        raise ValueError(f"a defaultdict of {factory!r} cannot be saved; of list, int, dict and the like it can")
    return factory, dict(value)


def _defaultdict(parts: Any) -> defaultdict[Any, Any]:
    factory, items = parts
    return defaultdict(factory, items)


#: The exact type of a value -> its kind.
_BY_TYPE: dict[type, Kind] = {
    str: Kind(
        "surrogates",
        lambda text: text.encode("utf-8", "surrogatepass"),
        lambda units: units.decode("utf-8", "surrogatepass"),
    ),
    bytes: Kind("bytes", lambda value: np.frombuffer(value, np.uint8), _bytes),
    bytearray: Kind("bytearray", bytes, _of(bytes, bytearray)),
    complex: Kind("complex", lambda value: (value.real, value.imag), lambda parts: complex(*parts)),
    set: Kind("set", _sorted, _of(list, set)),
    frozenset: Kind("frozenset", _sorted, _of(list, frozenset)),
    OrderedDict: Kind("OrderedDict", dict, _of(dict, OrderedDict)),
    defaultdict: Kind("defaultdict", _factory_parts, _defaultdict),
    Counter: Kind("Counter", dict, _of(dict, Counter)),
    deque: Kind("deque", lambda value: (list(value), value.maxlen), lambda parts: deque(*parts)),
    range: Kind("range", lambda value: (value.start, value.stop, value.step), lambda parts: range(*parts)),
    slice: Kind("slice", lambda value: (value.start, value.stop, value.step), lambda parts: slice(*parts)),
    types.EllipsisType: Kind("Ellipsis", lambda value: None, lambda parts: ...),
    types.SimpleNamespace: Kind("SimpleNamespace", vars, lambda parts: types.SimpleNamespace(**parts)),
    argparse.Namespace: Kind("Namespace", vars, lambda parts: argparse.Namespace(**parts)),
    datetime.datetime: Kind("datetime", lambda value: (value.isoformat(), value.fold, _zone_of(value)), _datetime),
    datetime.time: Kind("time", lambda value: (value.isoformat(), value.fold, _zone_of(value)), _time),
    datetime.date: Kind("date", lambda value: value.isoformat(), datetime.date.fromisoformat),
    datetime.timedelta: Kind(
        "timedelta",
        lambda value: (value.days, value.seconds, value.microseconds),
        lambda parts: datetime.timedelta(*parts),
    ),
    datetime.timezone: Kind("timezone", lambda value: value.utcoffset(None), datetime.timezone),
    zoneinfo.ZoneInfo: Kind("ZoneInfo", lambda value: value.key, _named_zone),
    decimal.Decimal: Kind("Decimal", str, decimal.Decimal),
    fractions.Fraction: Kind(
        "Fraction", lambda value: (value.numerator, value.denominator), lambda parts: fractions.Fraction(*parts)
    ),
    np.random.Generator: Kind("Generator", _generator_parts, _generator),
    np.random.RandomState: Kind("RandomState", lambda value: value.get_state(legacy=False), _random_state),
    random.Random: Kind("Random", lambda value: value.getstate(), _python_random),
    uuid.UUID: Kind("UUID", lambda value: value.hex, uuid.UUID),
}  # fmt: skip
_NAMEDTUPLE = Kind(
    "namedtuple",
    lambda value: (*name_of_class(type(value)), list(value._fields), list(value)),
    _namedtuple,
)
_DATACLASS = Kind("dataclass", _dataclass_parts, _dataclass)
_ENUM = Kind(
    "enum",
    lambda value: (*name_of_class(type(value)), value.name, value.value),
    _enum,
)
_TYPE = Kind("type", lambda value: value.__name__, _type)
_SCALAR_TYPE = Kind("scalar_type", lambda value: np.dtype(value), lambda dtype: dtype.type)
#: A base of the type of a value -> its kind.
_BY_BASE: tuple[tuple[type, Kind], ...] = (
    (pathlib.PurePosixPath, Kind("PurePosixPath", str, pathlib.PurePosixPath)),
    (pathlib.PureWindowsPath, Kind("PureWindowsPath", str, pathlib.PureWindowsPath)),
    (np.dtype, Kind("dtype", _dtype_name, _dtype)),
    (bytes, _BY_TYPE[bytes]),
    (complex, _BY_TYPE[complex]),
    (set, _BY_TYPE[set]),
    (frozenset, _BY_TYPE[frozenset]),
    (OrderedDict, _BY_TYPE[OrderedDict]),
    (str, _BY_TYPE[str]),
)
_PATH = Kind("Path", str, pathlib.Path)
_BY_TYPE[type(pathlib.Path())] = _PATH
_NUMPY_SCALAR = Kind("numpy_scalar", np.asarray, lambda array: array[()])
_MASKED = Kind("masked", lambda value: (value.data, np.ma.getmaskarray(value), value.fill_value), _masked_array)
_MATRIX = Kind("matrix", np.asarray, _of(np.ndarray, np.asmatrix))
_STRUCTURED = Kind("structured", _structured_parts, _structured_array)
_RECARRAY = Kind(
    "recarray",
    lambda value: value.view(np.ndarray).astype(np.dtype(value.dtype.descr)),
    lambda array: array.view(np.recarray),
)
#: NumPy's letter of an element type that safetensors does not have -> the kind of its arrays.
_ARRAYS = {
    "c": Kind("complex_array", _complex_parts, _complex_array),
    "U": (_texts := Kind("texts", _text_parts, _text_array)),
    "S": _texts,
    "M": (_moments := Kind("moments", _moment_parts, _moment_array)),
    "m": _moments,
    "O": Kind("objects", lambda array: (array.shape, array.ravel().tolist()), _object_array),
}
_BY_NAME = {
    kind.name: kind
    for kind in (
        *_BY_TYPE.values(),
        *(kind for _, kind in _BY_BASE),
        *_ARRAYS.values(),
        *(
            _NAMEDTUPLE,
            _DATACLASS,
            _ENUM,
            _TYPE,
            _SCALAR_TYPE,
            _PATH,
            _NUMPY_SCALAR,
            _MASKED,
            _MATRIX,
            _STRUCTURED,
            _RECARRAY,
        ),
    )
}
