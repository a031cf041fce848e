"""Optimizers: how weights change from their gradients. `optimizer.create("sgd", momentum=0.9)`."""

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
