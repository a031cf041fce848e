"""The .hlab archive: a model with every HybridBlock graph, its weights and its training state in one file."""

from .compiled import add_binaries, use_compiled
from .container import Container, why_no_archive
from .difference import diff
from .load import load_cached_graphs
from .open import load, structure
from .report import LoadReport, TrainerStates
from .save import save_cached_graphs
from .summary import inspect, verify

__all__ = [
    "Container",
    "LoadReport",
    "TrainerStates",
    "add_binaries",
    "diff",
    "inspect",
    "load",
    "load_cached_graphs",
    "save_cached_graphs",
    "structure",
    "use_compiled",
    "verify",
    "why_no_archive",
]
