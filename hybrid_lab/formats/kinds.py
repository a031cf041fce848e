"""Kinds of files: told by their first bytes, for errors that name the reader, and by the endings of their names."""

from __future__ import annotations

from os import PathLike, fspath

from hybrid_lab.diagnostics import SettingError

from .source import Source

_PARAMS = (0x112).to_bytes(8, "little")
_LOOKED_AT = 1 << 16
"""Bytes from the start that are looked at."""


def other_kind(data: bytes | Source, wanted: str) -> str | None:
    """`"a .params file; net.load_parameters(file) reads it"`, or None where the bytes are of no known kind, or wanted.

    data : the file's bytes, or the first of them
    wanted : the kind that was expected, as it is named here: ".hlab", ".params", "states", "JSON" or ".onnx"
    """
    kind = _kind(data[:_LOOKED_AT])
    return None if kind is None or kind == wanted else _READERS[kind]


_READERS = {
    ".hlab": "a zip file, as .hlab archives are; gluon.load(file) or mx.load_cached_graphs(net, file) reads those",
    ".params": "a .params file; net.load_parameters(file) or nd.load(file) reads it",
    "states": "a file of Trainer states; trainer.load_states(file) reads it",
    "safetensors": "a safetensors file; net.load_parameters(file) or nd.load(file) reads it",
    "JSON": "a JSON text; gluon.SymbolBlock.imports(file, inputs, params) reads it if it is a -symbol.json",
    ".onnx": "an ONNX file; mx.onnx.imports(file) reads it",
}
_WRITERS = {
    ".hlab": "net.save(path)",
    ".params": "net.save_parameters(path)",
    ".safetensors": "net.save_parameters(path)",
    ".onnx": "mx.onnx.export(net, path)",
}
_ONNX_FIELDS = (0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42, 0x72)
"""Tags of protobuf that may follow the version at the start of a ModelProto."""


def check_path(path: str | PathLike[str], what: str, *endings: str) -> None:
    """Raise SettingError for what is no path, or ends like another kind of file than the one that is to be written.

    what : the kind of file, for the message; endings : those of the table above that it may have
    """
    text = fspath(path) if isinstance(path, (str, PathLike)) else None
    if not isinstance(text, str):
        raise SettingError(f"a file is named by a text or a path object, not {type(path).__name__}")
    for ending, writer in _WRITERS.items():
        if text.lower().endswith(ending) and ending not in endings:
            raise SettingError(f"{text!r} would hold {what}; {writer} writes {ending} files")


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
    if len(head) > 2 and head[0] == 0x08 and 0 < head[1] < 0x80 and head[2] in _ONNX_FIELDS:
        return ".onnx"
    return "JSON" if head.lstrip()[:1] == b"{" else None
