"""Recognizes the kind of a file by its first bytes, and names its reader, for errors about swapped files."""

from __future__ import annotations

from .source import Source

_PARAMS = (0x112).to_bytes(8, "little")
_LOOKED_AT = 1 << 16
"""Bytes from the start that are looked at."""


def other_kind(data: bytes | Source, wanted: str) -> str | None:
    """`"a .params file; net.load_parameters(file) reads it"`, or None where the bytes are of no known kind, or wanted.

    data : the file's bytes, or the first of them
    wanted : the kind that was expected, as it is named here: ".hlab", ".params", "states" or "JSON"
    """
    kind = _kind(data[:_LOOKED_AT])
    return None if kind is None or kind == wanted else _READERS[kind]


_READERS = {
    ".hlab": "a zip file, as .hlab archives are; gluon.load(file) or mx.load_cached_graphs(net, file) reads those",
    ".params": "a .params file; net.load_parameters(file) or nd.load(file) reads it",
    "states": "a file of Trainer states; trainer.load_states(file) reads it",
    "safetensors": "a safetensors file; net.load_parameters(file) or nd.load(file) reads it",
    "JSON": "a JSON text; gluon.SymbolBlock.imports(file, inputs, params) reads it if it is a -symbol.json",
}


def is_safetensors(data: Source) -> bool:
    """Whether the bytes are of a safetensors file; Trainer states do not count."""
    return _kind(data[:_LOOKED_AT]) == "safetensors"


def _kind(head: bytes) -> str | None:
    if head.startswith(b"PK\3\4"):
        return ".hlab"
    if head.startswith(_PARAMS):
        return ".params"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 27:
        return "states" if b'"hybrid_lab.trainer"' in head else "safetensors"
    return "JSON" if head.lstrip()[:1] == b"{" else None
