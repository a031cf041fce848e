"""Optimizers: how weights change from their gradients. `optimizer.create("sgd", momentum=0.9)`."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

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

_suggest_names(__name__)
