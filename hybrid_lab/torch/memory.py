"""Elements of torch's tensors as NumPy arrays, and back: in the same memory if both are on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.ndarray.buffer import Buffer
from hybrid_lab.ops.framework.dtypes import BFLOAT16, DTYPES, bfloat16
from hybrid_lab.torch.errors import TorchError

if TYPE_CHECKING:
    import torch


class SharedBuffer(Buffer):
    """Memory that an array shares with a torch tensor. Its version grows with torch's writes too, so that compiled
    calls and the tape notice them. torch does not count writes through `tensor.data`.
    """

    __slots__ = ("copied_at", "copy_stale", "own_version", "tensor")

    def __init__(self, host: np.ndarray, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.copied_at = _writes(tensor)
        super().__init__(host)

    @property
    def version(self) -> int:
        """How often either side wrote."""
        return self.own_version + _writes(self.tensor)

    @version.setter
    def version(self, version: int) -> None:
        self.own_version = version - _writes(self.tensor)

    @property
    def device_stale(self) -> bool:
        """Whether a copy on a GPU is out of date."""
        return self.copy_stale or self.copied_at != _writes(self.tensor)

    @device_stale.setter
    def device_stale(self, stale: bool) -> None:
        self.copy_stale, self.copied_at = stale, _writes(self.tensor)


def _writes(tensor: torch.Tensor) -> int:
    """How often torch wrote to a tensor's memory."""
    count: int = tensor._version
    return count


def shared_buffer(array: np.ndarray, tensor: torch.Tensor) -> SharedBuffer | None:
    """The buffer of an array that lies in a tensor's memory; None for a copied array."""
    if tensor.device.type != "cpu" or tensor.is_inference():
        return None
    return SharedBuffer(array, tensor) if tensor.data_ptr() == array.__array_interface__["data"][0] else None


def numpy_dtype(dtype: Any, what: str = "a tensor") -> np.dtype:
    """NumPy's dtype of torch's. Raises TorchError for a dtype that arrays do not have."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise TorchError(
            f"{what} has elements of type {dtype}, which arrays do not have; they have {', '.join(DTYPES)}"
        )
    return bfloat16() if name == BFLOAT16 else np.dtype(name)


def array_of(tensor: torch.Tensor, what: str = "a tensor") -> np.ndarray:
    """The elements of a torch tensor; of a contiguous one on the CPU in its own memory, else copied."""
    import torch

    dtype = numpy_dtype(tensor.dtype, what)
    flat = tensor.detach().cpu().contiguous()
    if dtype.name == BFLOAT16:
        array: np.ndarray = flat.view(torch.int16).numpy().view(dtype)
        return array
    array = flat.numpy()
    return array


def tensor_on(array: np.ndarray) -> Any:
    """A torch tensor in the memory of a NumPy array."""
    import torch

    if array.dtype.name == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
