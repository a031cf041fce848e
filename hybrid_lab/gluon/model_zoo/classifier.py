"""The base of the image classifiers, their table, and weights on disk for them. Nothing is downloaded."""

from __future__ import annotations

import glob
import inspect
import os
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from hybrid_lab.diagnostics import SettingError
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ops.framework.protocols import Functions, Tensor

ROOT = "~/.mxnet/models"
"""The folder of MXNet's downloads, with names `<name>-<first eight digits of the file's SHA-1>.params`."""

Network = TypeVar("Network", bound=HybridBlock)

MODELS: dict[str, Callable[..., HybridBlock]] = {}
"""Every network by the name `get_model` takes."""


class Classifier(HybridBlock):
    """Base of the networks: `features`, then `output`, which a subclass makes."""

    features: Any
    output: Any

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return self.output(self.features(x))


def model(name: str, make: Callable[..., Network], *arguments: object, **options: Any) -> partial[Network]:
    """The function that makes a network, `make` with these arguments; `get_model` knows it by its name."""
    MODELS[name] = function = partial(make, *arguments, **options)
    return function


Make = TypeVar("Make", bound=Callable[..., object])


def with_weights(make: Make) -> Make:
    """Decorator of the functions with `*weights`: their signature shows the arguments that `create` makes of them."""
    shared = [inspect.signature(create).parameters[name] for name in ("pretrained", "ctx", "root")]
    signature = inspect.signature(make)
    shown = [item for each in signature.parameters.values() for item in (shared if each.name == "weights" else [each])]
    make.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return make


def create(
    name: str,
    network: Callable[..., Network],
    arguments: tuple[object, ...],
    pretrained: bool = False,
    ctx: Context | Sequence[Context] | None = None,
    root: str | PathLike[str] = ROOT,
    **options: Any,
) -> Network:
    """`network(*arguments, **options)`, with the weights of `name` from the folder `root` if `pretrained`.

    ctx : the contexts that the weights are loaded to. Raises FileNotFoundError where `root` has no such weights.
    """
    net = network(*arguments, **options)
    if pretrained:
        net.load_parameters(weights_file(name, root), ctx=ctx)
    return net


def weights_file(name: str, root: str | PathLike[str]) -> str:
    """`<root>/<name>.params`, else the newest `<name>-<hash>.params` in `root`."""
    if name in ("", os.curdir, os.pardir) or any(sign in name for sign in "/\\\0"):
        raise SettingError(f"{name!r} is not the name of a network; its file of weights is looked for in {root}")
    folder = Path(root).expanduser()
    files = [path for path in (folder / f"{name}.params",) if path.is_file()]
    files += sorted(
        folder.glob(f"{glob.escape(name)}-????????.params"), key=lambda path: path.stat().st_mtime, reverse=True
    )
    if not files:
        raise FileNotFoundError(
            f"there are no weights of {name} in {folder}, and none are downloaded: put {name}.params, or the file "
            f"of that name that MXNet downloaded, there; or name its folder (root=...); or load any file with "
            f"net.load_parameters(path)"
        )
    return str(files[0])
