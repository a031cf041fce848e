"""The norm of all gradients of a Trainer, computed on each gradient's device: the host or a GPU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hybrid_lab.gluon import access
from hybrid_lab.ndarray.tape import Leaf

if TYPE_CHECKING:
    from hybrid_lab.gluon.trainer import Trainer


def gradient_norm(trainer: Trainer) -> tuple[float | None, bool]:
    """(the Euclidean norm of the gradients of all parameters of the Trainer's first context, divided by the batch size
    of the last step, whether some are on a GPU). None if it has no gradients.
    """
    squares, tensors, found = 0.0, [], False
    for parameter in access.trainer_parameters(trainer):
        if parameter.grad_req == "null" or access.arrays(parameter) is None:
            continue
        gradient = parameter.list_grad()[0]
        found = True
        if gradient.buffer.device is not None and gradient.buffer.host_stale:
            tensors.append(gradient.raw(gradient.buffer.device.device))
        else:
            flat = gradient.raw().reshape(-1)
            flat = flat if flat.dtype in (np.float32, np.float64) else flat.astype(np.float32)
            squares += float(np.dot(flat, flat))
    if tensors:
        import torch

        norms = [torch.linalg.vector_norm(each.reshape(-1), dtype=torch.float32) for each in tensors]
        squares += float(torch.stack(norms).square().sum())
    norm = math.sqrt(squares) * abs(trainer.optimizer.rescale_grad) if found else None
    return norm, bool(tensors)


def is_of_last_step(trainer: Trainer) -> bool:
    """Whether the Trainer's last step used these gradients: no backward pass has come since then."""
    arrays = [access.arrays(parameter) for parameter in access.trainer_parameters(trainer)]
    links = [each.tape_link for group in arrays for each in group or ()]
    return not any(isinstance(link, Leaf) and link.fresh for link in links)
