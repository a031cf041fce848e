"""Models as trees of Blocks: layers, parameters, losses, training."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.system.provided import Provided as _Provided
from hybrid_lab.system.provided import signed_like as _signed_like

from .block import Block
from .hybrid import HybridBlock
from .parameter import Constant, DeferredInitializationError, Parameter, tensor_types
from .parameter_dict import ParameterDict

if TYPE_CHECKING:
    from hybrid_lab.gluon.files.registering import register

    from . import contrib, data, loss, model_zoo, nn, rnn, utils
    from .placeholder import Placeholder
    from .symbol_block import SymbolBlock
    from .trainer import Trainer

_load_archive: _Provided[..., Block] = _Provided("load_archive")

__all__ = [
    "Block",
    "Constant",
    "DeferredInitializationError",
    "HybridBlock",
    "Parameter",
    "ParameterDict",
    "Placeholder",
    "SymbolBlock",
    "Trainer",
    "contrib",
    "data",
    "load",
    "loss",
    "model_zoo",
    "nn",
    "register",
    "rnn",
    "tensor_types",
    "utils",
]


@_signed_like(_load_archive)
def load(path: str | PathLike[str], **options: object) -> Any:  # noqa: ANN401 - a Block, or a pair with one
    """The model in an archive (`.hlab`), without the code that made it: a tree of Blocks that run the saved graphs and
    have the attributes that were saved.

        net = nn.Dense(2)
        net.initialize()
        y = net(nd.ones((1, 3)))
        path = net.save("model")
        opened = gluon.load("model.hlab")
        (opened(nd.ones((1, 3))) == y).asnumpy()

    ctx= : the device of the parameters; with_aux=True : return (model, the values saved as `aux=`)
    Raises ArchiveError for a damaged file.
    """
    return _load_archive(path, **options)


#: Names that a call of a network does not need: their modules are imported when they are asked for.
_suggest_names(
    __name__,
    later={
        **dict.fromkeys(("contrib", "data", "loss", "model_zoo", "nn", "rnn", "utils"), ""),
        "Placeholder": "placeholder",
        "SymbolBlock": "symbol_block",
        "Trainer": "trainer",
        "register": "files.registering",
    },
)
