"""Arenas and constants in the device's memory."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from hybrid_lab.engines import memory
from hybrid_lab.engines.planned.arena import Arena, ArenaPool, Frame, Frames, Lease
from hybrid_lab.engines.triton.run import availability


class DeviceArena(Arena):
    """One tensor of bytes. torch aligns what it allocates to more than the planner's offsets are multiples of."""

    __slots__ = ()

    def __init__(self, nbytes: int):
        import torch

        self.memory = memory.empty((max(nbytes, 1),), torch.uint8, availability.torch_device())
        self.frames = weakref.WeakKeyDictionary()


POOL = ArenaPool(DeviceArena)
memory.givers.append(POOL.clear)


class DeviceFrames(Frames):
    """The frames of one program on arenas of the device. Kernels take no scratch memory.

    Launches are in order: an arena that comes back while its last kernels still run is taken by kernels behind them.
    """

    __slots__ = ()

    pool = POOL

    def over(self, arena: Any) -> Frame:
        frame = arena.frames.get(self)
        if frame is None:
            frame = arena.frames[self] = (None, *self.layout(arena.memory))
        return frame

    def give(self, lease: Lease) -> None:
        if self.keep:
            self.idle.append(lease)
        else:
            self.pool.give(lease[0])


_constants: dict[int, tuple[Any, Any]] = {}


def constant(array: np.ndarray) -> Any:
    """The array on the device, copied there once for all programs that are alive."""
    key, device = id(array), availability.torch_device()
    known = _constants.get(key)
    if known is not None and known[0]() is array:
        tensor = known[1]()
        if tensor is not None:
            return tensor
    tensor = memory.to_device(array, device)
    _constants[key] = weakref.ref(array, lambda _: _constants.pop(key, None)), weakref.ref(tensor)
    return tensor
