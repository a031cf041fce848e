"""Files of weights by the names of networks, under the name MXNet gives this module. Nothing is downloaded."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from hybrid_lab.diagnostics import InputError
from hybrid_lab.gluon.files.downloading import check_sha1

from .classifier import ROOT, weights_file

_model_sha1: dict[str, str] = {}
"""Name of a network -> SHA-1 of its file of weights. It is empty here; libraries add their networks."""


def short_hash(name: str) -> str:
    """The first eight digits of the SHA-1 of a network's file. Raises InputError if it is not known."""
    if name not in _model_sha1:
        raise InputError(f"the SHA-1 of the weights of {name!r} is not known")
    return _model_sha1[name][:8]


def get_model_file(name: str, root: str | PathLike[str] = ROOT) -> str:
    """The file of a network's weights in the folder `root`: `<name>.params`, else the newest `<name>-<hash>.params`.

    Raises FileNotFoundError if the folder has no such file, and InputError if `_model_sha1` has another SHA-1 for the
    network than the file has.
    """
    if name not in _model_sha1:
        return weights_file(name, root)
    path = Path(root).expanduser() / f"{name}-{short_hash(name)}.params"
    found = str(path) if path.is_file() else weights_file(name, root)
    if not check_sha1(found, _model_sha1[name]):
        raise InputError(f"{found} does not have the SHA-1 {_model_sha1[name]} of the weights of {name!r}")
    return found


def purge(root: str | PathLike[str] = ROOT) -> None:
    """Remove all files of weights in the folder `root`."""
    for path in Path(root).expanduser().glob("*.params"):
        path.unlink()
