"""Elements of torch's tensors as NumPy arrays, and back: in the same memory where both are on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_lab.ops.framework.dtypes import BFLOAT16, DTYPES, bfloat16
from hybrid_lab.torch.errors import TorchError


def numpy_dtype(dtype: Any, what: str = "a tensor") -> np.dtype:
    """NumPy's dtype of torch's. Raises TorchError for one that arrays do not have."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise TorchError(
            f"{what} has elements of type {dtype}, which arrays do not have; they have {', '.join(DTYPES)}"
        )
    return bfloat16() if name == BFLOAT16 else np.dtype(name)


def array_of(tensor: Any, what: str = "a tensor") -> np.ndarray:
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
