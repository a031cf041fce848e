"""Arguments of a call that are neither tensors, containers nor plain values, but constants that a file can hold: NumPy
scalars, dtypes, contexts, slices, ranges, complex numbers, bytes and `...`; and whole numbers beyond 64 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ops.framework.dtypes import DTYPES, bfloat16


def to_json(item: object) -> list[Any] | None:
    """[kind, ...] as JSON data; None for what is no such constant."""
    if item is Ellipsis:
        return ["ellipsis"]
    if type(item) is int and abs(item) >= 2**63:  # as a number in JSON, a file would be refused
        return ["int", hex(item)]
    if type(item) is str and any("\ud800" <= each <= "\udfff" for each in item):  # UTF-8 has no surrogates
        return ["text", item.encode("utf-8", "surrogatepass").hex()]
    if isinstance(item, np.generic):
        return ["scalar", item.dtype.name, item.tobytes().hex()] if item.dtype.name in DTYPES else None
    if isinstance(item, np.dtype):
        return ["dtype", item.name] if item.name in DTYPES else None
    if isinstance(item, type) and issubclass(item, np.generic):
        return ["type", np.dtype(item).name] if np.dtype(item).name in DTYPES else None
    if type(item) is Context:
        return ["context", item.device_type, item.device_id]
    if isinstance(item, (slice, range)):
        bounds = [item.start, item.stop, item.step]
        if all(bound is None or isinstance(bound, (int, np.integer)) for bound in bounds):
            return [type(item).__name__, *(None if bound is None else int(bound) for bound in bounds)]
    if type(item) is complex:
        return ["complex", item.real.hex(), item.imag.hex()]
    return ["bytes", item.hex()] if type(item) is bytes else None


def from_json(data: object) -> object:
    """The constant that `to_json` wrote. Raises HybridLabError for anything else."""
    try:
        constant: object = _READERS[data[0]](*data[1:]) if isinstance(data, list) and data else None
        if constant is not None and to_json(constant) == data:
            return constant
    except (TypeError, ValueError, KeyError, OverflowError):
        pass
    raise HybridLabError(f"{str(data)[:80]!r} is not a constant of a call")


def _dtype(name: str) -> np.dtype:
    if name not in DTYPES:
        raise ValueError
    return np.dtype(bfloat16() if name == "bfloat16" else name)


_READERS: dict[str, Any] = {
    "ellipsis": lambda: Ellipsis,
    "int": lambda digits: int(digits, 16),
    "text": lambda digits: bytes.fromhex(digits).decode("utf-8", "surrogatepass"),
    "scalar": lambda name, bits: np.frombuffer(bytes.fromhex(bits), _dtype(name))[0],
    "dtype": _dtype,
    "type": lambda name: _dtype(name).type,
    "context": lambda kind, index: Context(kind, index),
    "slice": slice,
    "range": range,
    "complex": lambda real, imaginary: complex(float.fromhex(real), float.fromhex(imaginary)),
    "bytes": bytes.fromhex,
}
