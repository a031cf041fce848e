"""Weights on disk for a network of the zoo. Nothing is downloaded."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid_lab.gluon.block import Block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hybrid_lab.ndarray.context import Context

ROOT = "~/.mxnet/models"
"""Where MXNet kept what it had downloaded: `<name>-<first eight digits of the file's SHA-1>.params`."""


def load_pretrained(
    net: Block, name: str, root: str | PathLike[str] = ROOT, ctx: Context | Sequence[Context] | None = None
) -> None:
    """Load `<root>/<name>.params`, or the file `<name>-<hash>.params` that MXNet left there, into `net`.

    Raises FileNotFoundError that says where to put the file; several files of one name: the newest is taken.
    """
    folder = Path(root).expanduser()
    found = [path for path in (folder / f"{name}.params",) if path.is_file()]
    found += sorted(folder.glob(f"{name}-????????.params"), key=lambda path: path.stat().st_mtime, reverse=True)
    if not found:
        raise FileNotFoundError(
            f"there are no weights of {name} in {folder}, and none are downloaded: put {name}.params, or the file "
            f"of that name that MXNet downloaded, there; or name its folder (root=...); or load any file with "
            f"net.load_parameters(path)"
        )
    net.load_parameters(str(found[0]), ctx=ctx)
