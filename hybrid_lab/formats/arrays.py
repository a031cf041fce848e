"""Files of arrays, read by what they hold: MXNet's `.params`, or safetensors."""

from __future__ import annotations

from os import PathLike, fspath

from hybrid_lab.formats.kinds import file_is_safetensors, is_safetensors
from hybrid_lab.formats.mxnet.params import Arrays, read_params
from hybrid_lab.formats.safetensors import SafetensorsFile


def read_arrays(source: str | PathLike[str] | bytes) -> Arrays:
    """The arrays of a file (a path) or of its bytes, whatever its name ends with; writable, in C order.

    Returns a dict of name -> array, or a list for a `.params` file without names. Raises ArchiveError.
    """
    if isinstance(source, bytes):
        if not is_safetensors(source):
            return read_params(source)
        found = SafetensorsFile(source)
    else:
        if not file_is_safetensors(fspath(source)):
            return read_params(source)
        found = SafetensorsFile.open(source)
    return {name: found[name] for name in found}
