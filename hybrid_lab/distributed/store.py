"""DistributedStore: a store of arrays whose pushes are summed over all workers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hybrid_lab.distributed.kvstore.base import Key
from hybrid_lab.distributed.kvstore.kvstore import KVStore, KVStoreError, sum_of
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.tape import Mode

from .compression import Compression, compression
from .launchers import worker_identity
from .worker_group import Group, group, start

KINDS = ("dist", "dist_sync", "dist_device_sync", "dist_sync_device", "nccl", "horovod")
"""The types that give this store. They differ in MXNet by where sums are computed."""

_OTHERS = {
    "dist_async": "workers that do not wait for each other",
    "dist_async_device": "workers that do not wait for each other",
    "dist_device_async": "workers that do not wait for each other",
    "p3": "parameter servers that send parts by priority",
    "byteps": "parameter servers",
}
"""MXNet's types that need servers -> what they are."""


class DistributedStore(KVStore):
    """Arrays by key, equal in all workers: pushes are summed over the workers, and `pull` reads the sum.

        kv = mx.kv.create("dist_sync")
        kv.init("weight", mx.nd.zeros((2, 3)))        # rank 0's values, for all
        kv.push("weight", gradient)                   # the sum over all workers, in each of them
        kv.pull("weight", out=weight)

    Every worker calls `init` and `push` with the same keys in the same order. There are no servers: each worker has a
    copy of the arrays. After `set_optimizer` each updates its copy by the same sum, so that the copies stay equal.
    """

    def __init__(self, kind: str, group: Group) -> None:
        super().__init__(kind)
        self.group = group
        self.compression: Compression | None = None
        """How gradients are made smaller before they are sent, or None."""
        self._residuals: dict[Key, np.ndarray] = {}

    @property
    def rank(self) -> int:
        """The number of this worker among all."""
        return self.group.rank

    @property
    def num_workers(self) -> int:
        """How many workers train."""
        return self.group.size

    @property
    def local_rank(self) -> int:
        """The number of this worker on its machine: the number of its GPU."""
        return self.group.identity.local_rank

    def barrier(self) -> None:
        """Wait until all workers are here. Raises WorkerLostError, WorkerTimeoutError."""
        self.group.barrier()

    def _barrier(self) -> None:
        self.group.barrier()

    def init(self, key: Key | Sequence[Key], value: Any) -> None:
        """Store rank 0's arrays under new keys, in all workers. Raises KVStoreError for a key that is there."""
        super().init(key, value)
        for each, _ in self._pairs(key, value):
            stored = self._arrays[each]
            if stored.stype == "default":
                self.group.broadcast(memory_of(stored)).wait()
                written(stored)
            else:
                dense = stored.tostype("default")
                self.group.broadcast(memory_of(dense)).wait()
                written(dense)
                self._arrays[each] = dense.tostype(stored.stype)

    def _total(self, key: Key, arrays: Sequence[NDArray], stored: NDArray) -> NDArray:
        """The sum of the arrays over all devices and workers."""
        total = sum_of(arrays, stored)
        with Mode(False, None):
            sparse = total.stype
            total = total.copy() if sparse == "default" else total.tostype("default")
            if self.compression is not None:
                memory = total.raw().reshape(-1)
                residual = self._residuals.setdefault(key, np.zeros_like(memory))
                self.compression.sum(self.group, memory, residual)
            else:
                self.group.sum(memory_of(total)).wait()
            written(total)
            return total if sparse == "default" else total.tostype(sparse)

    def pushpull(self, key: Key | Sequence[Key], value: Any, out: Any = None, priority: int = 0) -> None:
        """Sum the arrays over all workers and write the sum to `out`, or to the arrays; after `set_optimizer` write
        the updated array. Without an optimizer a key need not be in the store.
        """
        if self._updater is not None:
            super().pushpull(key, value, out, priority)
            return
        targets = self._pairs(key, value if out is None else out)
        for (each, arrays), (_, places) in zip(self._pairs(key, value), targets, strict=True):
            total = self._total(each, arrays, arrays[0])
            if each in self._arrays:
                with Mode(False, None):
                    total.copyto(self._arrays[each])
            with Mode(False, None):
                for worker_identity in places:
                    total.copyto(worker_identity)

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        """Send gradients with fewer bits: {"type": "fp16"}, {"type": "bf16"}, or as in MXNet {"type": "2bit",
        "threshold": 0.5} or {"type": "1bit"}, which keep what was not sent for the next push.
        Raises KVStoreError for other settings.
        """
        self.compression = compression(compression_params)


def memory_of(array: NDArray) -> Any:
    """The memory of a dense array that all workers may write to: NumPy's, or a GPU's tensor."""
    buffer = array.buffer
    if buffer.lives_on_device or (buffer.device is not None and buffer.host_stale):
        return array.raw(buffer.device.device if buffer.device is not None else None)
    return array.raw()


def written(array: NDArray) -> None:
    """Note that the memory of `memory_of` was written to."""
    if array.buffer.lives_on_device or array.buffer.host_stale:
        array.buffer.written_on_device()
    else:
        array.written()


def create(kind: str) -> DistributedStore | None:
    """A store of several workers by MXNet's name; None for "nccl" in one process, which sums over its own devices.

    Raises KVStoreError for names that need servers, WorkersError if no launcher started this process.
    """
    if kind == "nccl" and group() is None and worker_identity(os.environ) is None:
        return None
    if kind in KINDS:
        return DistributedStore(kind, start())
    what = _OTHERS.get(kind, "several processes")
    raise KVStoreError(
        f"a KVStore of the type {kind!r} joins {what}, which is not supported; 'dist_sync' sums the gradients of all "
        "workers in every step"
    )
