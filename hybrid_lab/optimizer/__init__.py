"""Optimizers: how weights change from their gradients. `optimizer.create("sgd", momentum=0.9)`."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

from . import contrib
from .adam import Adam, Adamax, AdamW
from .adaptive import FTML, AdaDelta, AdaGrad, Ftrl, RMSProp
from .large_batch import LAMB, LARS, LBSGD
from .optimizer import Optimizer, ScheduledRateError, create, register
from .sgd import NAG, SGD, Signum, ccSGD
from .stepwise import DCASGD, SGLD, GroupAdaGrad, Nadam, Test
from .updater import Updater, get_updater

__all__ = [
    "DCASGD",
    "FTML",
    "LAMB",
    "LARS",
    "LBSGD",
    "NAG",
    "SGD",
    "SGLD",
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "GroupAdaGrad",
    "Nadam",
    "Optimizer",
    "RMSProp",
    "ScheduledRateError",
    "Signum",
    "Test",
    "Updater",
    "ccSGD",
    "contrib",
    "create",
    "get_updater",
    "register",
]

_suggest_names(__name__)
