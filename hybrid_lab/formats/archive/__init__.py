"""The .hlab archive: a model with every HybridBlock graph, its weights and its training state in one file."""

from .container import Container
from .difference import Difference, diff
from .load import load_cached_graphs
from .open import load
from .report import LoadReport, TrainerStates
from .save import save_cached_graphs
from .summary import inspect, verify

__all__ = [
    "Container",
    "Difference",
    "LoadReport",
    "TrainerStates",
    "diff",
    "inspect",
    "load",
    "load_cached_graphs",
    "save_cached_graphs",
    "verify",
]
