"""The .hlab archive: a model with every HybridBlock graph, its weights and its training state in one file."""

from hybrid_lab.insight.difference import ModelDifference

from .archive import Archive
from .compiled import add_binaries, use_compiled
from .container import Container, why_no_archive
from .difference import Compared, compare_sides, diff, diff_sides
from .histograms import ParameterHistograms, SavedHistograms, live_histograms
from .load import load_cached_graphs, load_opened
from .open import load, structure
from .report import LoadReport, TrainerStates
from .save import FEWER_GRAPHS, save_cached_graphs, would_lose
from .sides import FileSide, LiveSide, Side
from .summary import inspect, verify

__all__ = [
    "FEWER_GRAPHS",
    "Archive",
    "Compared",
    "Container",
    "FileSide",
    "LiveSide",
    "LoadReport",
    "ModelDifference",
    "ParameterHistograms",
    "SavedHistograms",
    "Side",
    "TrainerStates",
    "add_binaries",
    "compare_sides",
    "diff",
    "diff_sides",
    "inspect",
    "live_histograms",
    "load",
    "load_cached_graphs",
    "load_opened",
    "save_cached_graphs",
    "structure",
    "use_compiled",
    "verify",
    "why_no_archive",
    "would_lose",
]
