"""Buffer: the memory of an array, on the host and, where an engine put it there, on a GPU; synchronized when read."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from hybrid_lab.ndarray.context import CPU, Context


class Copies:
    """How many arrays were copied between host and device since the process began, and how many bytes.

    to_host, to_device : counts; to_host_bytes, to_device_bytes
    reads : how often user code took the numbers out (asnumpy, printing, float(x) ...)
    """

    __slots__ = ("reads", "to_device", "to_device_bytes", "to_host", "to_host_bytes")

    def __init__(self) -> None:
        self.to_host = self.to_device = self.to_host_bytes = self.to_device_bytes = self.reads = 0

    def snapshot(self) -> dict[str, int]:
        """The counters as a plain dict, to be compared later."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __repr__(self) -> str:
        return "Copies(" + ", ".join(f"{name}={value}" for name, value in self.snapshot().items()) + ")"


copies = Copies()
"""The counters of this process."""


class Changes:
    """Whether anything happened that compiled calls rely on: a Parameter got other arrays or another grad_req, or the
    memory of an array was handed to another library. Writes into arrays do not count.

    count : another number after every such change
    """

    __slots__ = ("_numbers", "count")

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.count = 0

    def happened(self) -> None:
        """Note a change that has been made."""
        self.count = next(self._numbers)


changes = Changes()
"""Of this process: one number for a call to compare, instead of every parameter."""


class Buffer:
    """Memory that one or more NDArrays view.

    host : the whole memory as a C-contiguous NumPy array
    device : the same elements as a flat torch tensor on a GPU, or None
    host_stale, device_stale : that side is out of date; never both
    version : grows with every write, so that the tape notices writes to what it has recorded
    exported : the host's memory was handed to another library that may write to it unnoticed
    context : the context that the array was asked for on
    watched : a compiled call relies on whether its arrays have a gradient attached
    """

    __slots__ = ("context", "device", "device_stale", "exported", "host", "host_stale", "version", "watched")

    host: np.ndarray
    device: Any
    host_stale: bool
    device_stale: bool
    version: int
    exported: bool
    context: Context
    watched: bool

    def __init__(self, host: np.ndarray, context: Context = CPU):
        self.host = host
        self.device = None
        self.host_stale = False
        self.device_stale = False
        self.version = 0
        self.exported = False
        self.watched = False
        self.context = context

    @classmethod
    def on_device(cls, tensor: Any, context: Context) -> Buffer:
        """A buffer whose values are in a contiguous torch tensor; host memory is set aside but not filled."""
        dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
        buffer = cls(np.empty(tuple(tensor.shape), dtype), context)
        buffer.device = tensor.reshape(-1)
        buffer.host_stale = True
        return buffer

    def pull(self) -> None:
        """Bring the host side up to date."""
        if self.host_stale:
            import torch

            torch.from_numpy(self.host.reshape(-1)).copy_(self.device)
            self.host_stale = False
            copies.to_host += 1
            copies.to_host_bytes += self.host.nbytes

    def push(self, device: Any) -> Any:
        """The values as a flat torch tensor on `device`, copied there only if they are not there yet."""
        import torch

        held = self.device
        if held is not None and not self.device_stale and held.device == torch.device(device):
            return held
        self.pull()
        source = torch.from_numpy(self.host.reshape(-1))
        if held is None or held.device != torch.device(device):
            self.device = torch.empty_like(source, device=device)
        # Memory that is there already keeps its address: captured launches hold on to it.
        self.device.copy_(source)
        self.device_stale = False
        copies.to_device += 1
        copies.to_device_bytes += self.host.nbytes
        return self.device

    def written(self) -> None:
        """Note that the host side was written."""
        self.version += 1
        if self.device is not None:
            self.device_stale = True

    def written_on_device(self, tensor: Any = None) -> None:
        """Note that the device side was written; `tensor`, if given, takes its place."""
        if tensor is not None:
            self.device = tensor.reshape(-1)
        self.version += 1
        self.device_stale = False
        self.host_stale = True
