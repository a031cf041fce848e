"""Buckets: gradients that lie side by side in memory, so that workers sum many of them in one exchange."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.ndarray import NDArray, changes
from hybrid_lab.ndarray.buffer import Buffer
from hybrid_lab.ndarray.tape import Leaf

from .errors import WorkersError
from .launchers import WorkerIdentity
from .worker_group import Channel, Group, Pending, tensor_of

FIRST = 1 << 20
"""Bytes of the first bucket: its exchange can begin early."""
SIZE = 25 << 20
"""Bytes of the others. Larger arrays have a bucket of their own."""
ALIGNED = 64
"""Bytes: each gradient begins at a multiple of it, as NumPy's and torch's own memory does."""
_MISSES = 3
"""Steps in which gradients changed after their sum had begun; then sums begin in the step only."""
EARLY_SUMS = "HYBRID_LAB_EARLY_SUMS"
"""Environment variable: "1" begins sums in the backward pass, "0" in the step; else the rule of `begin_early` holds."""


class Bucket:
    """Gradients of one dtype on one device, in the order in which a backward pass makes them.

    flat : the memory of all gradients; gradients : the arrays, whose memory is a part of it
    """

    __slots__ = ("_parts", "flat", "gradients")

    def __init__(self, gradients: Sequence[NDArray]) -> None:
        self.gradients = gradients
        dtype, step = gradients[0].host_view.dtype, ALIGNED // gradients[0].host_view.itemsize
        ends, end = [], 0
        for each in gradients:
            ends.append((end, end + each.size))
            end = -(-(end + each.size) // step) * step
        device = gradients[0].buffer.device if gradients[0].buffer.lives_on_device else None
        self.flat: Any = _aligned(end, dtype) if device is None else device.new_zeros(end)
        self._parts: list[Any] = []
        for each, (start, stop) in zip(gradients, ends, strict=True):
            self._parts.append(_adopt(each, self.flat[start:stop]))

    def begin(self, group: Group) -> Pending:
        """Begin to sum the gradients over all workers."""
        self.collect()
        return group.sum(self.flat)

    def end(self, pending: Pending) -> None:
        """Wait for the sums."""
        pending.wait()
        self.written()

    def written(self) -> None:
        """Give the gradients the values that lie in `flat`."""
        for each, part in zip(self.gradients, self._parts, strict=True):
            buffer = each.buffer
            if buffer.lives_on_device:
                if buffer.device.data_ptr() != part.data_ptr():
                    buffer.device.copy_(part)
                buffer.written_on_device()
            else:
                if each.host_view is not part:
                    each.raw()[...] = part
                each.written()

    def collect(self) -> None:
        """Copy gradients that were written elsewhere into their part: others than backward may replace the memory."""
        for each, part in zip(self.gradients, self._parts, strict=True):
            buffer = each.buffer
            if buffer.lives_on_device:
                tensor = each.raw(part.device).reshape(-1)
                if tensor.data_ptr() != part.data_ptr():
                    part.copy_(tensor)
            else:
                values = each.raw()
                if values is not part:
                    part[...] = values


class EarlySum:
    """The sum of a bucket that begins in the backward pass, when the last of its gradients is stored.

    It is computed in memory of its own: until the step, gradients are this worker's gradients for every reader.
    bucket : whose gradients are summed; pending : the sum under way, or None
    """

    __slots__ = ("_memory", "_tensor", "_versions", "bucket", "missing", "pending")

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self._memory: Any = np.empty_like(bucket.flat) if isinstance(bucket.flat, np.ndarray) else bucket.flat.clone()
        self._tensor = tensor_of(self._memory)
        self._versions: list[int] = []
        self.pending: Pending | None = None
        self.missing = set(range(len(bucket.gradients)))
        """Numbers of the gradients that were not stored since the last step."""

    def begin(self, channel: Channel) -> None:
        """Begin to sum the current gradients."""
        self.bucket.collect()
        if isinstance(self._memory, np.ndarray):
            np.copyto(self._memory, self.bucket.flat)
        else:
            self._memory.copy_(self.bucket.flat)
        self._versions = [each.buffer.version for each in self.bucket.gradients]
        self.pending = channel.sum(self._tensor)

    def changed(self) -> bool:
        """Whether a gradient may have been written to since `begin`."""
        now = [each.buffer.version for each in self.bucket.gradients]
        return now != self._versions or any(each.buffer.exported for each in self.bucket.gradients)

    def end(self, wanted: bool) -> None:
        """Wait for the sum, and give it to the gradients if it is wanted."""
        assert self.pending is not None
        self.pending.wait()
        self.forget()
        if wanted:
            bucket = self.bucket
            if isinstance(self._memory, np.ndarray):
                np.copyto(bucket.flat, self._memory)
            else:
                bucket.flat.copy_(self._memory)
            bucket.written()

    def forget(self) -> None:
        """Begin a new step."""
        self.pending, self.missing = None, set(range(len(self.bucket.gradients)))


Gradient = tuple[Leaf, NDArray]
"""A gradient behind the leaf that a backward pass stores it in."""


class Buckets:
    """The buckets of a training's gradients; made again when a gradient gets another array.

    All but the last are summed while the backward pass still runs, as an EarlySum: one sum of each bucket in each step,
    in the same order in all workers. A gradient that a worker changes after its sum has begun, as in a second backward
    pass, is summed once more by all workers.
    early : whether sums begin in the backward pass, equal in all workers; else every sum begins in the step
    """

    def __init__(self, group: Group, early: bool = True) -> None:
        self._group, self.early = group, early
        self._count = -1
        self._known: list[NDArray] = []
        self._dense: list[Bucket] = []
        self._sparse: list[NDArray] = []
        self._arrived: dict[int, int] = {}
        # Gradient -> the early sum that it belongs to, and its index in that sum.
        self._early: list[EarlySum] = []
        self._leaves: dict[Leaf, tuple[EarlySum, int]] = {}
        self._channel: Channel | None = None
        self._misses = 0

    def __len__(self) -> int:
        return len(self._dense)

    @property
    def begun(self) -> int:
        """How many sums have begun before the step."""
        return sum(each.pending is not None for each in self._early)

    @property
    def outdated(self) -> bool:
        """Whether the gradients may differ from the gradients in the buckets."""
        return self._count != changes.count

    def order(self, gradient: NDArray) -> int | None:
        """When the first backward pass made a gradient, as a number among all; None if it did not."""
        return self._arrived.get(id(gradient))

    def stored(self, leaf: Leaf) -> None:
        """A backward pass has stored a gradient: begin the sums for which it was the last one."""
        if not self._known:
            self._arrived.setdefault(id(leaf.grad), len(self._arrived))
            return
        early, number = self._leaves.get(leaf, (None, 0))
        if early is None or self._channel is None or self._channel.broken:
            return
        early.missing.discard(number)
        try:
            for each in self._early:
                if each.pending is None:
                    if each.missing:
                        break
                    each.begin(self._channel)
        except WorkersError:  # `sum` raises it: a backward pass may belong to other code
            pass

    def arrange(
        self, gradients: Sequence[Gradient], ordered: Callable[[Sequence[Gradient]], Sequence[Gradient]]
    ) -> None:
        """Take over gradients in the order in which they are given, after `outdated`.

        ordered : called for others than before; gives them in the order in which a backward pass makes them, which
            must be the same in all workers
        """
        if len(gradients) != len(self._known) or any(
            one is not other for (_, one), other in zip(gradients, self._known, strict=True)
        ):
            self._drop_early()
            arrays = [array for _, array in ordered(gradients)]
            self._sparse = [each for each in arrays if each.buffer.stored]
            self._dense = [Bucket(each) for each in divided(arrays)]
            self._known, self._misses = [array for _, array in gradients], 0
            adding = {id(array) for leaf, array in gradients if leaf.req != "write"}
            if self.early and not any(id(array) in adding for bucket in self._dense for array in bucket.gradients):
                self._early = [EarlySum(bucket) for bucket in self._dense[:-1]]
        places = {
            id(array): (each, number) for each in self._early for number, array in enumerate(each.bucket.gradients)
        }
        self._leaves = {leaf: places[id(array)] for leaf, array in gradients if id(array) in places}
        self._count = changes.count

    def _drop_early(self) -> None:
        for each in self._early:
            if each.pending is not None:
                each.end(False)
        self._early, self._leaves = [], {}

    def sum(self) -> None:
        """Replace the gradients by their sums over all workers."""
        group, early = self._group, self._early
        if early and (self._channel is None or self._channel.left):
            for each in early:
                each.forget()
            self._channel = group.channel()
        for each in early:
            if each.pending is None:
                assert self._channel is not None
                each.begin(self._channel)
        changed = np.array([each.changed() for each in early], np.int32)
        flags = group.sum(changed) if early else None
        pending = [(bucket, bucket.begin(group)) for bucket in self._dense[len(early) :]]
        for array in self._sparse:
            dense = array.raw().copy()
            group.sum(dense).wait()
            array.assign(dense)
        if flags is not None:
            flags.wait()
        for each, differs in zip(early, changed, strict=True):
            each.end(not differs)
            if differs:
                pending.append((each.bucket, each.bucket.begin(group)))
        for bucket, begun in pending:
            bucket.end(begun)
        self._misses += bool(changed.any())
        if early and self._misses >= _MISSES:
            self._drop_early()


def divided(gradients: Sequence[NDArray]) -> Iterator[list[NDArray]]:
    """The dense gradients in groups, each of one dtype and device and of at most SIZE bytes, the first group of at most
    FIRST bytes.
    """
    open_groups: dict[Any, list[NDArray]] = {}
    sizes: dict[Any, int] = {}
    limit = FIRST
    for each in gradients:
        if each.buffer.stored or not each.size:
            continue
        kind = each.host_view.dtype, each.buffer.lives_on_device, each.context
        open_groups.setdefault(kind, []).append(each)
        sizes[kind] = sizes.get(kind, 0) + each.host_view.nbytes
        if sizes[kind] >= limit:
            yield open_groups.pop(kind)
            sizes[kind], limit = 0, SIZE
    yield from open_groups.values()


def _aligned(size: int, dtype: np.dtype) -> np.ndarray:
    memory = np.zeros(size * dtype.itemsize + ALIGNED, np.uint8)
    start = -memory.ctypes.data % ALIGNED
    return memory[start : start + size * dtype.itemsize].view(dtype)


def _adopt(gradient: NDArray, part: Any) -> Any:
    """Let a gradient's memory be a part of a bucket, with the values that it has. Returns the part in its shape."""
    old = gradient.buffer
    if old.lives_on_device:
        part.copy_(gradient.raw(part.device).reshape(-1))
        old.written_on_device(part)
        return part
    view = part.reshape(gradient.shape)
    view[...] = gradient.raw()
    buffer = Buffer(view, old.context)
    buffer.watched = old.watched
    gradient.buffer, gradient.host_view = buffer, view
    changes.happened()
    return view


def begin_early(identity: WorkerIdentity, backend: str) -> bool:
    """Whether early sums pay for this worker: on a GPU; with workers on several machines, because a sum then mostly
    waits for the network; or if each worker of this machine has a processor that does not compute.

    Without one, gloo's threads take their time from the backward pass, and early sums only cost copies.
    Raises SettingError for another value of HYBRID_LAB_EARLY_SUMS.
    """
    chosen = os.environ.get(EARLY_SUMS, "")
    if chosen in ("0", "1"):
        return chosen == "1"
    if chosen:
        raise SettingError(f"{EARLY_SUMS} is {chosen!r}; it is 1 or 0")
    if "nccl" in backend or identity.local_size < identity.size:
        return True
    processors = processor_count()
    return processors - identity.local_size * threads_of_worker(identity, processors) >= identity.local_size


def processor_count() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads_of_worker(identity: WorkerIdentity, processors: int) -> int:
    """Threads that each worker of this machine computes with: OMP_NUM_THREADS, which torchrun sets to 1; else all."""
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(text) if text.isdecimal() and int(text) > 0 else processors
