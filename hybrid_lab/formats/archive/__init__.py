"""The .hlab archive: a model with every HybridBlock graph, its weights and its training state in one file."""

from .container import Container
from .load import load_cached_graphs
from .open import load
from .report import LoadReport, TrainerStates
from .save import save_cached_graphs

__all__ = ["Container", "LoadReport", "TrainerStates", "load", "load_cached_graphs", "save_cached_graphs"]
