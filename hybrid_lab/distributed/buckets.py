"""Buckets: gradients that lie side by side in memory, so that workers sum many of them in one exchange."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hybrid_lab.ndarray import NDArray, changes
from hybrid_lab.ndarray.buffer import Buffer

from .worker_group import Group, Pending

FIRST = 1 << 20
"""Bytes of the first bucket: its exchange can begin early."""
SIZE = 25 << 20
"""Bytes of the others. Larger arrays have a bucket of their own."""
ALIGNED = 64
"""Bytes: each gradient begins at a multiple of it, as NumPy's and torch's own memory does."""


class Bucket:
    """Gradients of one dtype on one device, in the order in which a backward pass makes them.

    flat : the memory of all of them; gradients : the arrays, whose memory is a part of it
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
        self._collect()
        return group.sum(self.flat)

    def end(self, pending: Pending) -> None:
        """Wait for the sums."""
        pending.wait()
        for each, part in zip(self.gradients, self._parts, strict=True):
            buffer = each.buffer
            if buffer.lives_on_device:
                if buffer.device.data_ptr() != part.data_ptr():
                    buffer.device.copy_(part)
                buffer.written_on_device()
            else:
                if each.host_view is not part:
                    each._data[...] = part
                each.written()

    def _collect(self) -> None:
        """Copy gradients that were written elsewhere into their part: others than backward may replace the memory."""
        for each, part in zip(self.gradients, self._parts, strict=True):
            buffer = each.buffer
            if buffer.lives_on_device:
                tensor = each.raw(part.device).reshape(-1)
                if tensor.data_ptr() != part.data_ptr():
                    part.copy_(tensor)
            else:
                values = each._data
                if values is not part:
                    part[...] = values


class Buckets:
    """The buckets of a training's gradients; made again when a gradient gets another array."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._known: tuple[int, ...] = ()
        self._count = -1
        self._dense: list[Bucket] = []
        self._sparse: list[NDArray] = []

    def __len__(self) -> int:
        return len(self._dense)

    def sum(self, gradients: Sequence[NDArray]) -> None:
        """Replace gradients, in the order in which a backward pass makes them, by their sums over all workers."""
        if self._count != changes.count:
            self._arrange(gradients)
        pending = [(bucket, bucket.begin(self._group)) for bucket in self._dense]
        for array in self._sparse:
            dense = array._data.copy()
            self._group.sum(dense).wait()
            array.assign(dense)
        for bucket, each in pending:
            bucket.end(each)

    def _arrange(self, gradients: Sequence[NDArray]) -> None:
        known = tuple(map(id, gradients))
        if known != self._known:
            self._sparse = [each for each in gradients if each.buffer.stored]
            self._dense = [Bucket(each) for each in divided(gradients)]
            self._known = known
        self._count = changes.count


def divided(gradients: Sequence[NDArray]) -> Iterator[list[NDArray]]:
    """The dense gradients in groups, each of one dtype and device and of at most SIZE bytes, the first of FIRST."""
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
    view[...] = gradient._data
    buffer = Buffer(view, old.context)
    buffer.watched = old.watched
    gradient.buffer, gradient.host_view = buffer, view
    changes.happened()
    return view
