"""Files of arrays: MXNet's `.params`, or safetensors. Read by their contents, written by the ending of their name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path

import numpy as np

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.diagnostics.file_errors import reading
from hybrid_lab.formats import strict_json
from hybrid_lab.formats.kinds import check_path, is_safetensors
from hybrid_lab.formats.mxnet.params import Arrays, Entry, Stored, read_params, read_stored, write_params
from hybrid_lab.formats.mxnet.sparse_parts import SparseParts
from hybrid_lab.formats.safetensors import SafetensorsFile, write_safetensors
from hybrid_lab.formats.source import Source

SAFETENSORS = ".safetensors"
"""The ending of file names that are written as safetensors."""
INDEX = SAFETENSORS + ".index.json"
"""The ending of the name of an index of several safetensors files."""
_INDEX_LIMIT = 64 << 20
_PART = re.compile(r"[^/\\:\0]+\.safetensors")


def read_arrays(source: str | PathLike[str] | bytes) -> Arrays:
    """The arrays of a file (a path) or of its bytes, whatever its name ends with; writable, in C order. A name that
    ends with `.safetensors.index.json` is an index, which lists the files beside it that hold the arrays.

    Returns a dict of name -> array, or a list for a `.params` file without names. Raises ArchiveError.
    """
    found = _safetensors(source)
    return read_params(found) if isinstance(found, Source) else found


def read_stored_arrays(source: str | PathLike[str] | bytes) -> Stored:
    """As `read_arrays`, with the sparse arrays of a `.params` file as SparseParts."""
    found = _safetensors(source)
    if isinstance(found, Source):
        return read_stored(found)
    return {**found}


def _safetensors(source: str | PathLike[str] | bytes) -> Source | dict[str, np.ndarray | None]:
    """The arrays of safetensors files; the content itself of any other file."""
    if not isinstance(source, bytes) and fspath(source).endswith(INDEX):
        return _read_parts(fspath(source))
    data = Source(source) if isinstance(source, bytes) else Source.open(source)
    if not is_safetensors(data):
        return data
    tensors = SafetensorsFile(data)
    return {name: tensors[name] for name in tensors}


def _read_parts(path: str) -> dict[str, np.ndarray | None]:
    """The arrays that an index lists, from the safetensors files in its folder. Raises ArchiveError, FileError."""
    with reading(path):
        content = Path(path).read_bytes() if os.path.getsize(path) <= _INDEX_LIMIT else None
    if content is None:
        raise ArchiveError(f"not an index of safetensors files: it is larger than {_INDEX_LIMIT} bytes", path=path)
    index = strict_json.parse(content, path=path)
    parts = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(parts, dict) or not all(isinstance(part, str) for part in parts.values()):
        raise ArchiveError("not an index of safetensors files: it has no weight_map of names", path=path)
    folder = os.path.dirname(path)
    arrays: dict[str, np.ndarray | None] = {}
    for part in dict.fromkeys(parts.values()):
        if not _PART.fullmatch(part):
            raise ArchiveError(f"refused index: {part[:80]!r} is not the name of a file beside it", path=path)
        tensors = SafetensorsFile.open(os.path.join(folder, part))
        for name in (name for name, where in parts.items() if where == part):
            if name not in tensors:
                raise ArchiveError(f"the index looks for {name[:80]!r} in {part}, which does not hold it", path=path)
            arrays[name] = tensors[name]
    return arrays


def write_arrays(
    path: str | PathLike[str],
    arrays: Mapping[str, Entry] | Mapping[str, np.ndarray] | Sequence[Entry] | Sequence[np.ndarray],
    np_shape: bool | None = None,
) -> None:
    """Write a safetensors file if the name ends with `.safetensors`, else MXNet's `.params`; replaced atomically.

    np_shape : write `.params` in the form that MXNet reads with NumPy semantics only; None: if an array has shape ()
    Raises ArchiveError for what the format cannot hold, such as arrays without names in safetensors, SettingError for
    the ending of another kind of file; no file is written then.
    """
    check_path(path, "arrays", ".params", SAFETENSORS)
    if not fspath(path).endswith(SAFETENSORS):
        write_params(path, arrays, np_shape=np_shape)
        return
    if not isinstance(arrays, Mapping):
        raise ArchiveError(
            "a safetensors file needs a name for each array: save a dict of names and arrays", path=fspath(path)
        )
    unnamed = [name for name in arrays if not isinstance(name, str)]
    if unnamed:
        raise ArchiveError(f"names of arrays are strings, not {unnamed[0]!r}", path=fspath(path))
    sparse = [name for name, array in arrays.items() if isinstance(array, SparseParts)]
    if sparse:
        raise ArchiveError(
            f"safetensors files hold dense arrays, and {sparse[0]!r} is sparse; save x.tostype('default')",
            path=fspath(path),
        )
    write_safetensors(path, {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)})
