"""The user's own values (`aux`) as JSON and tensors: numbers, texts, lists, tuples, dicts and arrays, nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.ndarray import NDArray

from ..safetensors import tag_of

DEPTH_LIMIT = 100


def encode(value: object, tensors: dict[str, np.ndarray], where: str = "aux", depth: int = 0) -> object:
    """`value` as JSON data, its arrays put into `tensors`. Raises HybridLabError naming what is not data.

    Plain texts, whole numbers below 2^53, finite floats, bools and None stand as they are; all else is an object with
    one key that says what it is.
    """
    if depth > DEPTH_LIMIT:
        raise HybridLabError(f"{where[:60]}... is nested more than {DEPTH_LIMIT} deep")
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (NDArray, np.ndarray, np.generic)):
        return _encode_array(value, tensors, where)
    if isinstance(value, int):
        return int(value) if abs(value) < 2**53 else {"int": str(int(value))}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [encode(item, tensors, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]}
    if isinstance(value, dict):
        rows = []
        for key, item in value.items():
            if not isinstance(key, (str, int, float, bool, type(None))):
                raise HybridLabError(f"{where} has the key {key!r}; keys must be strings or numbers")
            rows.append([encode(key, tensors, where, depth + 1), encode(item, tensors, f"{where}[{key!r}]", depth + 1)])
        return {"dict": rows}
    raise HybridLabError(
        f"{where} is a {type(value).__name__}; only numbers, strings, None, arrays, and lists, tuples and "
        "dicts of them can be saved"
    )


def _encode_array(value: object, tensors: dict[str, np.ndarray], where: str) -> dict[str, str]:
    array = value.asnumpy() if isinstance(value, NDArray) else np.asarray(value)
    if tag_of(array.dtype) is None:
        raise HybridLabError(f"{where} is an array of {array.dtype}, which cannot be saved")
    kind = "nd" if isinstance(value, NDArray) else "numpy" if isinstance(value, np.ndarray) else "scalar"
    tensors[str(len(tensors))] = array
    return {kind: str(len(tensors) - 1)}


def decode(data: object, tensors: Mapping[str, np.ndarray], depth: int = 0) -> object:
    """The value that `encode` made `data` of. Raises ValueError for what it does not make."""
    if data is None or isinstance(data, (bool, str, int, float)):
        return data
    try:
        if depth > 2 * DEPTH_LIMIT or not isinstance(data, dict):
            raise ValueError
        ((kind, inner),) = data.items()
        if kind == "int" and len(inner) < 4000:
            return int(inner)
        if kind == "float" and inner in ("nan", "inf", "-inf"):
            return float(inner)
        if kind in ("list", "tuple") and isinstance(inner, list):
            items = [decode(item, tensors, depth + 1) for item in inner]
            return items if kind == "list" else tuple(items)
        if kind == "dict" and isinstance(inner, list):
            return {decode(key, tensors, depth + 1): decode(item, tensors, depth + 1) for key, item in inner}
        if kind not in ("nd", "numpy", "scalar"):
            raise ValueError
        array = tensors[inner].copy()
        return NDArray.wrap(array) if kind == "nd" else array if kind == "numpy" else array[()]
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"{str(data)[:80]!r} is not a value") from None
