"""Checkpoints of several workers: rank 0 writes one file with the state of each."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from hybrid_lab.distributed import Group, group
from hybrid_lab.formats.archive.values import decode, encode
from hybrid_lab.gluon import Block, access
from hybrid_lab.gluon.data import DataLoader
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.random_state import set_all_states, state
from hybrid_lab.system.logger import logger


def workers() -> Group | None:
    """The group of this process, if it has other workers."""
    joined = group()
    return joined if joined is not None and joined.size > 1 else None


def rank() -> int:
    """The number of this worker; 0 without other workers."""
    joined = workers()
    return 0 if joined is None else joined.rank


def gathered(joined: Group, part: Mapping[str, object]) -> list[dict[str, Any]]:
    """A part of a checkpoint of every worker, in the order of their ranks."""
    tensors: dict[str, np.ndarray] = {}
    data = encode(dict(part), tensors, "workers")
    everybody = joined.gather([data, {name: _text(array) for name, array in tensors.items()}])
    return [decode(data, {name: _array(text) for name, text in arrays.items()}) for data, arrays in everybody]


def summed(joined: Group, gradients: Mapping[str, list[NDArray]]) -> dict[str, list[NDArray]]:
    """Gradients that are being added up, as the sums over all workers."""
    sums = {name: [array.copy() for array in arrays] for name, arrays in gradients.items()}
    for arrays in sums.values():
        for array in arrays:
            total = array.asnumpy()
            joined.sum(total).wait()
            array[:] = total
    return sums


def own_values(joined: Group, net: Block) -> dict[str, np.ndarray]:
    """This worker's values of parameters without a gradient that differ from rank 0's, by path: the running statistics
    of BatchNorm, which each worker takes from its own part of the batch.
    """
    arrays = {
        path: arrays[0].asnumpy()
        for path, parameter in access.parameters_by_path(net).items()
        if parameter.grad_req == "null" and (arrays := access.arrays(parameter)) is not None
    }
    digests = {path: hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest() for path, array in arrays.items()}
    first = joined.gather(digests)[0]
    own = {path: array for path, array in arrays.items() if first.get(path) != digests[path]}
    # NumPy's format has no bfloat16, whose values float32 holds.
    return {path: array.astype(np.float32) if array.dtype.kind == "V" else array for path, array in own.items()}


def own_part(saved: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a checkpoint for this worker. With another number of workers than at the save, the part of rank 0."""
    joined, parts = workers(), saved.get("workers") or []
    rank, size = (0, 1) if joined is None else (joined.rank, joined.size)
    if len(parts) == size and size > 1:
        return {**saved, **parts[rank]}
    return dict(saved)


def is_of_others(saved: Mapping[str, Any]) -> bool:
    """Whether a checkpoint was saved with another number of workers."""
    joined = workers()
    return max(len(saved.get("workers") or []), 1) != (1 if joined is None else joined.size)


def set_random_states(saved: Mapping[str, Any]) -> None:
    """Continue the random numbers. Workers that the checkpoint does not know get numbers of their own."""
    joined = workers()
    set_all_states(own_part(saved)["random"])
    if joined is not None and is_of_others(saved) and joined.rank:
        state.part(joined.rank)


def put_loader(loader: Any, position: Any, saved: Mapping[str, Any]) -> None:
    """Let a loader continue; if another number of workers began the epoch, the workers share the rest of the epoch."""
    count = max(len(saved.get("workers") or []), 1)
    if not is_of_others(saved):
        loader.set_state(position)
    elif isinstance(loader, DataLoader) and loader.can_share:
        loader.share(position, count)
    else:
        logger.warning(
            f"the checkpoint is of {count} workers, and this loader has no DistributedSampler: its epoch begins anew"
        )


def _text(array: np.ndarray) -> str:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=False)
    return base64.b64encode(file.getvalue()).decode()


def _array(text: str) -> np.ndarray:
    return np.lib.format.read_array(io.BytesIO(base64.b64decode(text)), allow_pickle=False)
