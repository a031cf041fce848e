"""Buffer: the memory of an array, on the host and, where an engine put it there, on a GPU; synchronized when read."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_lab.engines import memory
from hybrid_lab.engines.memory import Copies as Copies
from hybrid_lab.engines.memory import copies as copies
from hybrid_lab.ndarray.context import CPU, Context


class Buffer:
    """Memory that one or more NDArrays view.

    host : the whole memory as a C-contiguous NumPy array
    device : the same elements as a flat torch tensor on a GPU, or None
    host_stale, device_stale : that side is out of date; never both
    version : grows with every write, so that the tape notices writes to recorded values
    saved_version : a weak reference to the tape's `SavedVersion`, or None
    exported : the memory (of an array on a GPU: there) was handed to other libraries, which may write to it unnoticed
    context : the context that the array was asked for on
    watched : a compiled call relies on whether its arrays have a gradient attached
    lives_on_device : eager operators compute on the device, not on the host
    stored : it holds the parts of a sparse array; `host` is then a dense copy that cannot be written to
    """

    __slots__ = (
        "__weakref__",
        "context",
        "device",
        "device_stale",
        "exported",
        "host",
        "host_stale",
        "saved_version",
        "version",
        "watched",
    )

    lives_on_device = False
    stored = False

    host: np.ndarray
    device: Any
    host_stale: bool
    device_stale: bool
    version: int
    saved_version: Any
    exported: bool
    context: Context
    watched: bool

    def __init__(self, host: np.ndarray, context: Context = CPU):
        self.host = host
        self.device = None
        self.host_stale = False
        self.device_stale = False
        self.version = 0
        self.saved_version = None
        self.exported = False
        self.watched = False
        self.context = context

    @staticmethod
    def on_device(tensor: Any, context: Context) -> Buffer:
        """A buffer whose values are in a contiguous torch tensor; host memory is set aside but not filled."""
        kind = DeviceBuffer if context.is_gpu else Buffer
        buffer = kind(np.empty(tuple(tensor.shape), memory.numpy_dtype(tensor.dtype)), context)
        buffer.device = tensor.reshape(-1)
        buffer.host_stale = True
        return buffer

    def pull(self) -> None:
        """Bring the host side up to date."""
        if self.host_stale:
            memory.to_host(self.device, self.host.reshape(-1))
            self.host_stale = False

    def push(self, device: object) -> Any:
        """The values as a flat torch tensor on `device`, copied there only if they are not there yet."""
        tensor = self.device
        if tensor is not None and not self.device_stale and tensor.device == device:
            return tensor
        if tensor is not None and not self.device_stale:
            self.pull()
        # Existing memory keeps its address, because captured launches refer to it.
        out = tensor if tensor is not None and tensor.device == device else None
        self.device = memory.to_device(self.host.reshape(-1), device, out)
        self.device_stale = False
        return self.device

    def space(self, device: str | None) -> Any:
        """The flat tensor on `device` without its values, for a caller who writes to the whole tensor."""
        tensor = self.device
        if tensor is None or tensor.device != device:
            if tensor is not None and not self.device_stale:
                self.pull()
            self.device = tensor = memory.empty((self.host.size,), memory.torch_dtype(self.host.dtype), device)
            self.device_stale = True
        return tensor

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


class DeviceBuffer(Buffer):
    """The memory of an array on a GPU context. `pull()` brings its host side up to date.

    `host_stale` is always true, because that is the only thing eager calls check before they use the host's memory.
    """

    __slots__ = ("_stale",)

    lives_on_device = True

    @property
    def host_stale(self) -> bool:
        return True

    @host_stale.setter
    def host_stale(self, value: bool) -> None:
        self._stale = value

    def pull(self) -> None:
        # Others may have written to the device's memory without our knowing.
        if self._stale or (self.exported and self.device is not None and not self.device_stale):
            memory.to_host(self.device, self.host.reshape(-1))
            self._stale = False


def tensor_of(buffer: Buffer, view: np.ndarray, device: object) -> Any:
    """The part of the buffer's memory that `view` shows, as a tensor on `device`."""
    flat = buffer.push(device)
    if view is buffer.host:
        return flat.view(view.shape)
    start = (view.__array_interface__["data"][0] - buffer.host.__array_interface__["data"][0]) // view.itemsize
    return flat[start : start + view.size].view(view.shape)


def wait_for(tensor: Any) -> None:
    """Wait until a GPU has finished all launched work, if the tensor is on a GPU."""
    if tensor is not None and tensor.is_cuda:
        import torch

        torch.cuda.synchronize(tensor.device)
