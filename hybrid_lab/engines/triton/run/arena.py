"""Arenas and constants in the device's memory."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from hybrid_lab.engines import memory
from hybrid_lab.engines.planned.arena import Arena, ArenaPool
from hybrid_lab.engines.triton.run import availability


def device_memory(nbytes: int) -> Any:
    """A tensor of bytes. torch aligns its allocations to larger multiples than the planner's offsets."""
    import torch

    return memory.empty((max(nbytes, 1),), torch.uint8, availability.torch_device())


def follow(arena: Arena, stream: int) -> None:
    """Let torch's current stream, whose address is `stream`, wait for what another one still does in the arena."""
    import torch

    tensor: Any = arena.memory
    if wait_for(arena.stream):
        tensor.record_stream(torch.cuda.current_stream())
    arena.stream = stream


def wait_for(stream: int | None) -> bool:
    """Let torch's current stream wait for what another one, by its address, has yet to do. Whether it must; None for
    no other stream.
    """
    import torch

    # A capture begins when the device has done everything, and must not wait for work outside the capture.
    if stream is None or torch.cuda.is_current_stream_capturing():
        return False
    device = availability.torch_device()
    other = torch.cuda.ExternalStream(stream, device=device) if stream else torch.cuda.default_stream(device)
    torch.cuda.current_stream().wait_event(other.record_event())
    return True


#: Launches are in order: an arena that comes back while its last kernels still run is taken by kernels behind them.
#: Kernels of another stream wait for the arena's last kernels (`follow`).
POOL = ArenaPool(device_memory)
memory.givers.append(POOL.clear)

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
