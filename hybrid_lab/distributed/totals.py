"""Sums of small numbers over all workers: what metrics have counted, and values of logs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import SettingError

from .errors import WorkersDifferError
from .worker_group import Group, group

_HEAD = 4
"""Numbers by which the workers see whether all of them sum the same: two digests, and their squares."""
_ROOM = 256
"""Numbers of an exchange, with those: of one size, whatever a worker sums."""


def summed(what: str, names: Sequence[str], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The sums of float64 arrays over all workers, which all call it: one exchange of 2 KB for up to 252 numbers.

    what : of which kind they are, for errors; names : of the arrays, the same in all workers
    Tables, of two dimensions, may have other sizes in other workers: smaller tables are filled up with zeros. Raises
    WorkersDifferError, in all workers, if they have other names or shapes. Alone: the arrays.
    """
    joined = group()
    if joined is None or joined.size == 1:
        return list(arrays)
    rows = [[name, None if array.ndim == 2 else list(array.shape)] for name, array in zip(names, arrays, strict=True)]
    plain = [array.reshape(-1) for array in arrays if array.ndim != 2]
    flat = np.concatenate([np.zeros(0), *plain])
    first = np.zeros(_ROOM)
    first[:_HEAD] = _digest(what, rows)
    begun = min(_ROOM - _HEAD, flat.size)
    first[_HEAD : _HEAD + begun] = flat[:begun]
    joined.sum(first).wait()
    if not _alike(first[:_HEAD], joined.size):
        raise _difference(joined, what, rows)
    rest = flat[begun:]
    tables = _padded(joined, [array for array in arrays if array.ndim == 2])
    more = np.concatenate([rest, *[table.reshape(-1) for table in tables]])
    if more.size:
        joined.sum(more).wait()
    numbers = np.concatenate([first[_HEAD : _HEAD + begun], more])
    totals, place = [], 0
    large = iter(np.split(numbers[flat.size :], np.cumsum([table.size for table in tables])[:-1]) if tables else ())
    shapes = iter(table.shape for table in tables)
    for array in arrays:
        if array.ndim == 2:
            totals.append(next(large).reshape(next(shapes)))
        else:
            totals.append(numbers[place : place + array.size].reshape(array.shape))
            place += array.size
    return totals


def mean(**values: object) -> dict[str, float]:
    """The mean over all workers of each value; every worker calls it with the same names.

    values : numbers or arrays, of which the mean is taken first
    Raises WorkersDifferError if the workers give different names, SettingError for a value that is no number. In a
    process alone: the values.

    Example: `mx.log(**mx.distributed.mean(loss=loss, accuracy=0.93))`.
    """
    own = []
    for name, value in values.items():
        try:
            array = value.asnumpy() if hasattr(value, "asnumpy") else np.asarray(value)
            own.append(np.asarray(array, np.float64).mean(keepdims=True).reshape(1))
        except (TypeError, ValueError):
            raise SettingError(f"{name} is a number or an array of numbers, not {type(value).__name__}") from None
    joined = group()
    size = 1 if joined is None else joined.size
    totals = summed("value", [*values], own)
    return {name: float(total[0]) / size for name, total in zip(values, totals, strict=True)}


def _digest(what: str, rows: Sequence[object]) -> list[float]:
    """Two numbers below 2**20 that follow from a description, and their squares: float64 sums them without error."""
    text = json.dumps([what, rows]).encode()
    digest = int.from_bytes(hashlib.blake2b(text, digest_size=5).digest())
    one, two = divmod(digest, 1 << 20)
    return [one, one * one, two, two * two]


def _alike(head: np.ndarray, size: int) -> bool:
    """Whether the numbers with this sum and this sum of squares are equal."""
    return all(size * head[place + 1] == head[place] ** 2 for place in (0, 2))


def _difference(joined: Group, what: str, rows: Sequence[Any]) -> WorkersDifferError:
    everybody = joined.gather([what, list(rows)])
    rank = next(rank for rank, other in enumerate(everybody) if other != everybody[0])
    (kind, first), (other_kind, other) = everybody[0], everybody[rank]
    return WorkersDifferError(
        f"rank 0 sums {_named(kind, first)} over all workers, rank {rank} {_named(other_kind, other)}. All workers "
        "must ask for the same ones at the same place"
    )


def _named(what: str, rows: Sequence[Any]) -> str:
    names = []
    for name, shape in rows:
        names.append(f"{name} of the shape {tuple(shape)}" if shape and shape != [1] else name)
    return f"the {what}s {', '.join(names)}" if rows else f"no {what}s"


def _padded(joined: Group, tables: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Tables of the largest sizes that they have in a worker."""
    if not tables:
        return []
    shapes = np.array(joined.gather([list(table.shape) for table in tables])).max(axis=0)
    return [
        np.pad(table, [(0, most - own) for most, own in zip(shape, table.shape, strict=True)])
        for table, shape in zip(tables, shapes, strict=True)
    ]
