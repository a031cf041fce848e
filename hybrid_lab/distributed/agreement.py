"""Whether all workers have the same: compared by digests, and told by name if they do not."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import UninitializedError

from .errors import WorkersDifferError, WorkersError
from .store import memory_of
from .worker_group import Group, group

_EQUAL = ("dtype", "grad_req")
"""What the parameters of all workers must have in common, beside shapes that both know."""


def agree(joined: Group, what: str, rows: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """The rows of all workers, one list for each. Raises WorkersDifferError for the first row that differs."""
    everybody = joined.gather(list(rows))
    lengths = [len(each) for each in everybody]
    if len(set(lengths)) > 1:
        told = ", ".join(f"rank {rank} {length}" for rank, length in enumerate(lengths))
        raise WorkersDifferError(f"the workers have different numbers of {what}s: {told}")
    for number, columns in enumerate(zip(*everybody, strict=True)):
        first = columns[0]
        for rank, row in enumerate(columns):
            for key in _EQUAL:
                if row[key] != first[key]:
                    raise _differs(what, number, key, first, row, rank)
            if not _fit(row["shape"], first["shape"]):
                raise _differs(what, number, "shape", first, row, rank)
    return everybody


def _fit(one: Sequence[int | None] | None, other: Sequence[int | None] | None) -> bool:
    """Whether two shapes may become the same: 0, -1 and None stand for sizes that are not known yet."""
    if one is None or other is None:
        return True
    return len(one) == len(other) and all(
        a == b or a in (0, -1, None) or b in (0, -1, None) for a, b in zip(one, other, strict=True)
    )


def _differs(
    what: str, number: int, key: str, first: Mapping[str, Any], row: Mapping[str, Any], rank: int
) -> WorkersDifferError:
    return WorkersDifferError(
        f"{what} {number} differs between the workers: {first['name']!r} has the {key} {first[key]} on rank 0, "
        f"{row['name']!r} the {key} {row[key]} on rank {rank}. All workers must build the same network"
    )


def check(net: Any) -> None:
    """Compare the values of a Block's parameters in all workers; every worker calls it. Raises WorkersDifferError that
    names the first parameter that differs, WorkersError before the workers have joined.

    Example: `mx.distributed.check(net)` every thousand steps.
    """
    joined = group()
    if joined is None:
        raise WorkersError("the workers have not joined: make the store first, mx.kv.create('dist_sync')")
    rows = []
    for name, parameter in net.collect_params().items():
        with contextlib.suppress(UninitializedError):
            rows.append((name, _digest(parameter.list_data()[0])))
    everybody = joined.gather([list(row) for row in rows])
    for rank, other in enumerate(everybody):
        for mine, theirs in zip(everybody[0], other, strict=False):
            if mine[1] != theirs[1]:
                raise WorkersDifferError(
                    f"the values of {mine[0]!r} on rank 0 and of {theirs[0]!r} on rank {rank} differ: the workers have "
                    "drifted apart. Continue from the newest checkpoint"
                )
        if len(other) != len(everybody[0]):
            raise WorkersDifferError(f"rank 0 has {len(everybody[0])} parameters with values, rank {rank} {len(other)}")


def _digest(array: Any) -> str:
    memory = memory_of(array)
    if not isinstance(memory, np.ndarray):
        memory = array.asnumpy()
    return hashlib.blake2b(memory.tobytes(), digest_size=16).hexdigest()
