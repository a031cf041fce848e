"""Weights on disk for a network of the zoo. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hybrid_lab.gluon.block import Block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hybrid_lab.ndarray.context import Context

ROOT = "~/.mxnet/models"
"""The folder of MXNet's downloads, with names `<name>-<first eight digits of the file's SHA-1>.params`."""

Network = TypeVar("Network", bound=Block)


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
        net.load_parameters(_weights_file(name, root), ctx=ctx)
    return net


def _weights_file(name: str, root: str | PathLike[str]) -> str:
    """`<root>/<name>.params`, else the newest `<name>-<hash>.params` in `root`."""
    folder = Path(root).expanduser()
    files = [path for path in (folder / f"{name}.params",) if path.is_file()]
    files += sorted(folder.glob(f"{name}-????????.params"), key=lambda path: path.stat().st_mtime, reverse=True)
    if not files:
        raise FileNotFoundError(
            f"there are no weights of {name} in {folder}, and none are downloaded: put {name}.params, or the file "
            f"of that name that MXNet downloaded, there; or name its folder (root=...); or load any file with "
            f"net.load_parameters(path)"
        )
    return str(files[0])
