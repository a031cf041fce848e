"""Models as trees of Blocks: layers, parameters, losses, training."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.unknown_names import suggesting as _suggesting

from . import contrib, data, loss, model_zoo, nn, rnn, utils
from .block import Block
from .hybrid import HybridBlock
from .parameter import Constant, DeferredInitializationError, Parameter
from .parameter_dict import ParameterDict
from .symbol_block import SymbolBlock
from .trainer import Trainer

__all__ = [
    "Block",
    "Constant",
    "DeferredInitializationError",
    "HybridBlock",
    "Parameter",
    "ParameterDict",
    "SymbolBlock",
    "Trainer",
    "contrib",
    "data",
    "load",
    "loss",
    "model_zoo",
    "nn",
    "rnn",
    "utils",
]


def load(path: str | PathLike[str], **options: Any) -> Block:
    """The model in an archive (`.hlab`), without the code that made it: a tree of Blocks that run the saved graphs.

    Raises ArchiveError for a damaged file.
    """
    from hybrid_lab.formats import archive

    return archive.load(path, **options)


if not TYPE_CHECKING:  # so that a wrong name stays an error for type checkers
    __getattr__ = _suggesting(__name__, "gluon")
