"""Functions that a module's source contains where it needs them: MXNet's operators that torch has no function for.

Each one stands alone but for torch and the functions that it calls.
"""

from __future__ import annotations

import inspect
import re
import sys
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch

Tensor: TypeAlias = Any


def source_of(name: str) -> str:
    """The text of a function of this file, without what only type checkers read."""
    text = inspect.getsource(getattr(sys.modules[__name__], name)).rstrip()
    return re.sub(r" -> Tensor(?=:)|: Tensor( = )?", lambda found: "=" if found[1] else "", text)


def smooth_l1(x: Tensor, scalar: Tensor) -> Tensor:
    """0.5 (scalar x)^2 near zero, |x| - 0.5 / scalar^2 elsewhere."""
    near = x.abs() < 1 / scalar**2
    return torch.where(near, 0.5 * (scalar * x) ** 2, x.abs() - 0.5 / scalar**2)


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """x, multiplied with the slope where it is negative."""
    if slope.dim() == 1 and x.dim() > 1:
        slope = slope.reshape(-1, *[1] * (x.dim() - 2))
    return torch.where(x > 0, x, slope * x)


def with_states(result: Tensor) -> Tensor:
    """An LSTM's output, state and cell state."""
    output, (state, cell) = result
    return output, state, cell


def take(data: Tensor, index: Tensor, axis: Tensor, wrap: Tensor = False) -> Tensor:
    """Rows of data along an axis; indices outside are clipped, or wrap around."""
    size = data.shape[axis]
    index = index.long() % size if wrap else index.long().clamp(0, size - 1)
    axis = axis % data.dim()
    return data.index_select(axis, index.flatten()).reshape(data.shape[:axis] + index.shape + data.shape[axis + 1 :])


def pick(data: Tensor, index: Tensor, axis: Tensor, wrap: Tensor = False, keepdim: Tensor = False) -> Tensor:
    """One element along an axis for each index."""
    size = data.shape[axis]
    index = index.long() % size if wrap else index.long().clamp(0, size - 1)
    if index.dim() < data.dim():
        index = index.unsqueeze(axis)
    found = data.gather(axis, index)
    return found if keepdim else found.squeeze(axis)


def one_hot(index: Tensor, depth: Tensor, on: Tensor = 1.0, off: Tensor = 0.0) -> Tensor:
    """A new last axis with `on` at the index."""
    return torch.where(index.unsqueeze(-1).long() == torch.arange(depth, device=index.device), on, off)


def depth_to_space(x: Tensor, block: Tensor) -> Tensor:
    """Blocks of channels as pixels."""
    n, c, h, w = x.shape
    x = x.reshape(n, block, block, c // block**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return x.reshape(n, c // block**2, h * block, w * block)


def space_to_depth(x: Tensor, block: Tensor) -> Tensor:
    """Blocks of pixels as channels."""
    n, c, h, w = x.shape
    x = x.reshape(n, c, h // block, block, w // block, block).permute(0, 3, 5, 1, 2, 4)
    return x.reshape(n, c * block**2, h // block, w // block)


def sequence_mask(x: Tensor, lengths: Tensor, axis: Tensor, value: Tensor) -> Tensor:
    """x, with `value` behind the end of each sequence."""
    steps = torch.arange(x.shape[axis], device=x.device)
    inside = steps.unsqueeze(1) < lengths if axis == 0 else steps < lengths.unsqueeze(1)
    return torch.where(inside.reshape(*inside.shape, *[1] * (x.dim() - 2)), x, value)


def sequence_last(x: Tensor, lengths: Tensor, axis: Tensor) -> Tensor:
    """The last step of each sequence."""
    rows = torch.arange(len(lengths), device=x.device)
    last = lengths.long() - 1
    return x[last, rows] if axis == 0 else x[rows, last]


def sequence_reverse(x: Tensor, lengths: Tensor) -> Tensor:
    """Each sequence backwards."""
    steps = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    places = torch.where(steps < lengths, lengths.long() - 1 - steps, steps)
    return x[places, torch.arange(x.shape[1], device=x.device)]
