"""Scaling the loss for a Trainer, and unscaling its gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hybrid_lab import autograd
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.gluon import Trainer, access
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray import invoke as invoking

from .loss_scaler import LossScaler


def init_trainer(trainer: Trainer) -> None:
    """Give a Trainer a loss scale of its own: it skips steps whose gradients are not finite. The scale is part of the
    Trainer's saved states; if some with a scale were loaded before, it goes on from there.

    Raises HybridLabError before `amp.init()`, TypeError for anything but a Trainer.
    """
    _check(trainer, "amp.init_trainer")
    if invoking.precision is None:
        raise HybridLabError("amp.init_trainer: mixed precision is off; call amp.init() first")
    if trainer._amp_loss_scaler is None:
        trainer._amp_original_scale = trainer._scale
        trainer._amp_loss_scaler = LossScaler()
        if trainer.amp_saved is not None:
            trainer._amp_loss_scaler.set_state(trainer.amp_saved)


@contextmanager
def scale_loss(loss: NDArray | Sequence[NDArray], trainer: Trainer) -> Iterator[Any]:
    """The loss, or the list of them, times the trainer's loss scale; its next `step` divides the gradients by it.

        with amp.scale_loss(loss, trainer) as scaled:
            autograd.backward(scaled)

    Call it inside of `record()` or after it. NumPy's warnings of overflows are off in the block: the trainer checks.
    Raises HybridLabError before `amp.init_trainer(trainer)`, TypeError for a loss that is no array.
    """
    factor = _scaler(trainer, "amp.scale_loss").loss_scale
    if not isinstance(loss, (NDArray, list, tuple)):
        raise TypeError(f"amp.scale_loss takes an NDArray or a list of them, not {type(loss).__name__}")
    trainer._scale = trainer._amp_original_scale / factor
    with autograd.record(train_mode=autograd.is_training()):
        scaled = loss * factor if isinstance(loss, NDArray) else [each * factor for each in loss]
    with np.errstate(over="ignore", invalid="ignore"):
        yield scaled


def unscale(trainer: Trainer) -> None:
    """Divide the gradients by the loss scale now, to look at them or clip them before `step`, which then does not.

    Raises HybridLabError before `amp.init_trainer(trainer)`.
    """
    _scaler(trainer, "amp.unscale")
    factor = trainer._scale / trainer._amp_original_scale
    trainer._scale = trainer._amp_original_scale
    if factor == 1:
        return
    with autograd.pause():
        for parameter in access.trainer_parameters(trainer):
            if parameter.grad_req != "null" and access.arrays(parameter) is not None:
                for gradient in parameter.list_grad():
                    gradient *= factor


def _scaler(trainer: Trainer, what: str) -> LossScaler:
    _check(trainer, what)
    scaler: LossScaler | None = trainer._amp_loss_scaler
    if scaler is None:
        raise HybridLabError(f"{what}: this Trainer has no loss scale; call amp.init_trainer(trainer) first")
    return scaler


def _check(trainer: Trainer, what: str) -> None:
    if not isinstance(trainer, Trainer):
        raise TypeError(f"{what} takes a gluon.Trainer, not {type(trainer).__name__}")
