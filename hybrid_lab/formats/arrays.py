"""Files of arrays: MXNet's `.params`, or safetensors. Read by what they hold, written by what their name ends with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath

import numpy as np

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.formats.kinds import is_safetensors
from hybrid_lab.formats.mxnet.params import Arrays, read_params, write_params
from hybrid_lab.formats.safetensors import SafetensorsFile, write_safetensors
from hybrid_lab.formats.source import Source

SAFETENSORS = ".safetensors"
"""The ending of file names that are written as safetensors."""


def read_arrays(source: str | PathLike[str] | bytes) -> Arrays:
    """The arrays of a file (a path) or of its bytes, whatever its name ends with; writable, in C order.

    Returns a dict of name -> array, or a list for a `.params` file without names. Raises ArchiveError.
    """
    data = Source(source) if isinstance(source, bytes) else Source.open(source)
    if not is_safetensors(data):
        return read_params(data)
    tensors = SafetensorsFile(data)
    return {name: tensors[name] for name in tensors}


def write_arrays(path: str | PathLike[str], arrays: Mapping[str, np.ndarray] | Sequence[np.ndarray]) -> None:
    """Write a safetensors file where the name ends with `.safetensors`, else MXNet's `.params`; replaced atomically.

    Raises ArchiveError for what the format cannot hold, such as arrays without names in safetensors; no file is written
    then.
    """
    if not fspath(path).endswith(SAFETENSORS):
        write_params(path, arrays)
        return
    if not isinstance(arrays, Mapping):
        raise ArchiveError(
            "a safetensors file needs a name for each array: save a dict of names and arrays", path=fspath(path)
        )
    unnamed = [name for name in arrays if not isinstance(name, str)]
    if unnamed:
        raise ArchiveError(f"names of arrays are strings, not {unnamed[0]!r}", path=fspath(path))
    write_safetensors(path, arrays)
