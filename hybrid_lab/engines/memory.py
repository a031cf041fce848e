"""Numbers between the host (NumPy) and a device (torch): copies are made, and counted, here.

The device may be Triton's interpreter, whose memory is torch's on the CPU: it is copied to all the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines.report import format_bytes
from hybrid_lab.ops.framework.dtypes import dtype_of

if TYPE_CHECKING:
    import torch
    from numpy.typing import DTypeLike

#: torch's device, or its name.
Device: TypeAlias = "torch.device | str"


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


givers: list[Callable[[], None]] = []
"""Called where memory has run out: whoever holds free memory of a device gives it back."""


@functools.cache
def torch_dtype(dtype: DTypeLike) -> torch.dtype:
    """torch's dtype of the same name."""
    import torch

    return getattr(torch, np.dtype(dtype).name)


def numpy_dtype(dtype: torch.dtype) -> np.dtype:
    """NumPy's dtype of the same name."""
    name = str(dtype).removeprefix("torch.")
    return dtype_of(name)


def plain(array: np.ndarray) -> np.ndarray:
    """A copy as torch can share it: no NumPy scalar, in the machine's byte order, no stride below zero. NumPy counts an
    array as contiguous whatever the stride of an axis of length 1 is.
    """
    return np.array(array, array.dtype.newbyteorder("="), order="C")


def shared(array: np.ndarray) -> torch.Tensor:
    """A CPU tensor in the memory of a contiguous array, to copy from or to."""
    import torch

    if not array.flags.writeable:
        array = array.copy()  # torch warns of memory that may not be written to
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def empty(shape: Sequence[int], dtype: torch.dtype, device: Any) -> Any:
    """Memory on the device. dtype : torch's. Raises EngineError if there is not enough."""
    import torch

    try:
        return torch.empty(shape, dtype=dtype, device=device)
    except RuntimeError as error:
        wanted = dtype.itemsize * int(np.prod(shape))
        out_of_memory = exhausted(error, device, wanted)
        if out_of_memory is error:
            raise
        for give_back in givers:
            give_back()
    try:
        return torch.empty(shape, dtype=dtype, device=device)
    except RuntimeError as error:
        raise exhausted(error, device, wanted) from error


def to_device(array: np.ndarray, device: Any, out: torch.Tensor | None = None) -> Any:
    """The numbers as a tensor on the device, in `out` if that is given; one counted copy."""
    if not array.flags.c_contiguous:
        array = np.array(array, order="C")
    try:
        source = shared(array)
    except (TypeError, ValueError):
        source = shared(plain(array))
    if out is None:
        out = empty(array.shape, source.dtype, device)
    out.copy_(source.view(out.shape))
    copies.to_device += 1
    copies.to_device_bytes += array.nbytes
    return out


def to_host(tensor: Any, out: np.ndarray | None = None) -> np.ndarray:
    """The numbers as a NumPy array, in `out` if that is given; one counted copy."""
    if out is None:
        out = np.empty(tuple(tensor.shape), numpy_dtype(tensor.dtype))
    shared(out).copy_(tensor.view(out.shape))
    copies.to_host += 1
    copies.to_host_bytes += out.nbytes
    return out


def is_tensor(value: object) -> bool:
    """Whether the value is a tensor of numbers on a device."""
    return hasattr(value, "untyped_storage")


def exhausted(error: BaseException, device: Device, wanted: int = 0) -> BaseException:
    """What to raise for an error of torch: an EngineError with sizes if memory has run out, else the error."""
    import torch

    kind = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
    if not isinstance(error, kind) and "not enough memory" not in str(error):
        return error
    free = ""
    if torch.device(device).type == "cuda":
        left, total = torch.cuda.mem_get_info(device)
        ours = torch.cuda.memory_reserved(device)
        free = f"; {format_bytes(left)} of {format_bytes(total)} are free, this process holds {format_bytes(ours)}"
    asked = f" ({format_bytes(wanted)} more were asked for)" if wanted else ""
    return EngineError(
        f"the GPU's memory does not suffice{asked}{free}. Take smaller batches, or let go of arrays and models that "
        "are no longer used; mx.gpu(0).empty_cache() gives other programs what this process holds and does not use"
    )
