"""`gluon.register`: Blocks of your own that archives can make again, and that make models of files."""

from __future__ import annotations

import contextlib
import functools
import os
from os import PathLike
from typing import Any, TypeVar

from hybrid_lab.diagnostics import HybridLabError, SettingError
from hybrid_lab.gluon import budget
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.nn import registry
from hybrid_lab.system.provided import Provided

archive_arguments: Provided[[str | PathLike[str], str], tuple[dict[str, Any], int]] = Provided("archive_arguments")

BlockClass = TypeVar("BlockClass", bound=type[Block])

_ARRAY_FILES = (".params", ".safetensors")
_ENDINGS = (".hlab", ".zip", *_ARRAY_FILES)
_ZIP = b"PK\x03\x04"
"""How an archive and SINGA's file begin."""


def register(cls: BlockClass) -> BlockClass:
    """Class decorator: archives remember the constructor's arguments of this class, and the class opens files.

        @gluon.register
        class MyModel(gluon.HybridBlock):
            def __init__(self, units=10):
                ...

        MyModel(32).save("m.hlab")
        net = MyModel("m.hlab")          # MyModel(32) with the states of the file
        net = gluon.load("m.hlab")       # a MyModel too, where the class is registered

    A single argument that names a model's file (by its ending, or because it is an archive), or `states_path=`, makes
    the model and loads the file: an archive, SINGA's file, `.params` or safetensors. Names of other files, such as
    "m.onnx", go to the constructor.
    An archive gives the constructor its arguments; with other files it gets only the arguments of the call.
    A class of the same name that was registered before is replaced, as when a cell runs again. Raises HybridLabError
    for the name of a layer of this package.
    """
    if not (isinstance(cls, type) and issubclass(cls, Block)):
        raise SettingError(f"gluon.register takes a class of Blocks, not {cls!r:.60}")
    load_layers()
    known = registry.classes().get(cls.__name__)
    if known is not None and known.__module__.startswith("hybrid_lab.") and known is not cls:
        raise HybridLabError(f"{cls.__name__} is the name of a layer of this package; give your class another name")
    registry.layer(cls)
    target: Any = cls
    construct = target.__init__

    @functools.wraps(construct)
    def __init__(self: Block, *args: Any, **kwargs: Any) -> None:
        path = kwargs.pop("states_path", None)
        if path is None and type(self) is cls and len(args) == 1 and _names_file(args[0]):
            path, args = args[0], ()
        if path is None:
            construct(self, *args, **kwargs)
        elif os.fspath(path).endswith(_ARRAY_FILES):
            construct(self, *args, **kwargs)
            self.load_parameters(path)
        else:
            saved, most = archive_arguments(path, cls.__name__)
            registry.check_arguments(cls, saved)
            with budget.at_most(most) if saved else contextlib.nullcontext():
                construct(self, *args, **{**saved, **kwargs})
            self.load_states(path)

    target.__init__ = __init__
    return cls


def load_layers() -> None:
    """Register all layers of the package, whose modules otherwise load when they are used."""
    from hybrid_lab.gluon import loss, rnn  # noqa: F401
    from hybrid_lab.gluon.contrib import cnn as contrib_cnn  # noqa: F401
    from hybrid_lab.gluon.contrib import nn as contrib_nn  # noqa: F401
    from hybrid_lab.gluon.contrib import rnn as contrib_rnn  # noqa: F401


def _names_file(value: object) -> bool:
    if not isinstance(value, (str, PathLike)):
        return False
    path = os.fspath(value)
    return path.endswith(_ENDINGS) or os.path.isfile(path + ".hlab") or _is_archive(path)


def _is_archive(path: str) -> bool:
    try:
        with open(path, "rb") as stream:
            return stream.read(len(_ZIP)) == _ZIP
    except (OSError, ValueError):  # ValueError: a text that cannot be a path
        return False
