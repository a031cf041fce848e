"""Optimizers: how weights change from their gradients. `optimizer.create("sgd", momentum=0.9)`."""

from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.unknown_names import suggesting as _suggesting

from .adam import Adam, Adamax, AdamW
from .adaptive import AdaDelta, AdaGrad, Ftrl, RMSProp
from .optimizer import Optimizer, ScheduledRateError, create, register
from .sgd import NAG, SGD, Signum
from .updater import Updater, get_updater

__all__ = [
    "NAG",
    "SGD",
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Optimizer",
    "RMSProp",
    "ScheduledRateError",
    "Signum",
    "Updater",
    "create",
    "get_updater",
    "register",
]


if not TYPE_CHECKING:  # so that a wrong name stays an error for type checkers
    __getattr__ = _suggesting(__name__, "optimizer")
