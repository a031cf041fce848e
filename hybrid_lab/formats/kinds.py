"""Kinds of files: told by their first bytes, for errors that name the reader, and by the endings of their names."""

from __future__ import annotations

from os import PathLike, fspath

from hybrid_lab.diagnostics import SettingError

from .source import Source

_PARAMS = (0x112).to_bytes(8, "little")
_LOOKED_AT = 1 << 16
"""Bytes from the start that are looked at."""


def other_kind(data: bytes | Source, wanted: str) -> str | None:
    """`"a .params file; net.load_parameters(file) reads it"`, or None if the bytes are of no known kind, or wanted.

    data : the file's bytes, or the first of them
    wanted : the expected kind, one of these names: ".hlab", ".params", "states", "JSON" or ".onnx"
    """
    kind = _kind(data[:_LOOKED_AT])
    return None if kind is None or kind == wanted or kind in _FORMS.get(wanted, ()) else _READERS[kind]


_PICKLE_WARNING = "which this package does not read, because unpickling runs code"
_READERS = {
    ".hlab": "a zip file, as .hlab archives are; gluon.load(file) or mx.load_cached_graphs(net, file) reads those",
    ".params": "a .params file; net.load_parameters(file) or nd.load(file) reads it",
    "states": "a file of Trainer states; trainer.load_states(file) reads it",
    "safetensors": "a safetensors file; net.load_parameters(file) or nd.load(file) reads it",
    "JSON": "a JSON text; gluon.SymbolBlock.imports(file, inputs, params) reads it if it is a -symbol.json",
    "symbol": "a -symbol.json file, the graph of a network; gluon.SymbolBlock.imports(file, inputs, params) or "
    "mx.sym.load(file) reads it",
    "index": "the index of safetensors files; net.load_parameters(file) reads it if its name ends with "
    ".safetensors.index.json",
    "Block.save": "the tree of a model that MXNet's Block.save wrote; net.load(prefix) reads it with its -model.params",
    ".onnx": "an ONNX file; mx.onnx.imports(file) reads it",
    "SINGA": "SINGA's zip of states; net.load_states(file) reads it",
    "npz": "an .npz file of NumPy; net.set_states(dict(numpy.load(file))) takes arrays by path",
    "npy": "an .npy file of NumPy; nd.array(numpy.load(file)) takes its array",
    "torch": f"a file of PyTorch, {_PICKLE_WARNING}. For weights, call "
    "safetensors.torch.save_file(torch.load(file, weights_only=True), 'w.safetensors') and then "
    "net.load_parameters('w.safetensors', map=...); for a network, mx.torch.imports(module, x)",
    "pickle": f"a pickle, {_PICKLE_WARNING}. If it holds arrays, save them with nd.save(path, arrays) in the program "
    "that made them; if it holds states that MXNet's Trainer.save_states wrote, the optimizer must start anew",
    "HDF5": "an HDF5 file, as Keras writes them; read its arrays with h5py, and net.set_states(arrays) takes them by "
    "path",
    "Keras": "a file of Keras; read its arrays with Keras, and net.set_states(arrays) takes them by path",
    "zip": "a zip file, but no .hlab archive; unpack it, and load the file in it that is meant",
    "gzip": "a gzip file; unpack it, and load the file in it",
    "LFS": "a pointer of Git LFS, which stands for a file that was not downloaded; `git lfs pull` in its repository "
    "downloads the file",
    "HTML": "an HTML page, such as a web site sends instead of a file that it does not have; download the file again",
    "TFLite": "a file of TensorFlow Lite; convert it to ONNX (tf2onnx), and mx.onnx.imports(file) reads that",
}
"""Kind -> what a file of it is, and the call that serves."""
_WRITERS = {
    ".hlab": "net.save(path)",
    ".params": "net.save_parameters(path)",
    ".safetensors": "net.save_parameters(path)",
    ".onnx": "mx.onnx.export(net, path)",
}
_ONNX_FIELDS = (0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42, 0x72)
"""Tags of protobuf that may follow the version at the start of a ModelProto."""


def check_path(path: str | PathLike[str], what: str, *endings: str) -> None:
    """Raise SettingError for a value that is no path, or for a path with the ending of another kind of file.

    what : the kind of file, for the message; endings : the endings of the table above that the path may have
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
        return _kind_of_zip(head)
    for start, kind in _STARTS.items():
        if head.startswith(start):
            return kind
    if head.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
        return "HTML"
    if head[4:8] == b"TFL3":
        return "TFLite"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 27:
        return "states" if b'"hybrid_lab.trainer"' in head else "safetensors"
    if len(head) > 2 and head[0] == 0x08 and 0 < head[1] < 0x80 and head[2] in _ONNX_FIELDS:
        return ".onnx"
    if head.lstrip()[:1] != b"{":
        return None
    return next((kind for kind, key in _KEYS.items() if key in head), "JSON")


def _kind_of_zip(head: bytes) -> str:
    """The kind of a zip file, by the name of its first member."""
    length = int.from_bytes(head[26:28], "little")
    name = head[30 : 30 + length].decode("utf-8", "replace")
    if name in ("tensor_dict.npz", "states_attr.json"):
        return "SINGA"
    if name.endswith(".npy"):
        return "npz"
    if name.partition("/")[2] in _OF_TORCH:
        return "torch"
    if name in ("metadata.json", "config.json", "model.weights.h5"):
        return "Keras"
    return ".hlab" if not name or name in _OF_ARCHIVES or name.startswith(("graphs/", "train/")) else "zip"


_STARTS = {
    _PARAMS: ".params",
    b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.": "torch",  # as PyTorch wrote before 1.6
    **{bytes((0x80, protocol)): "pickle" for protocol in range(2, 6)},
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"\x93NUMPY": "npy",
    b"\x1f\x8b": "gzip",
    b"version https://git-lfs.github.com/spec/": "LFS",
}
_FORMS = {"JSON": ("symbol", "Block.save", "index"), ".hlab": ("zip",)}
"""Kind that is wanted -> kinds that may be meant, of which the reader of the wanted one says more."""
_KEYS = {"symbol": b'"nodes"', "index": b'"weight_map"', "Block.save": b'"orig_name"'}
"""Kinds of JSON texts -> a key that they have."""
_OF_TORCH = ("data.pkl", "constants.pkl", "archive_format", "archive_version", "version", "byteorder")
"""First members of PyTorch's zips, in a folder of the file's name."""
_OF_ARCHIVES = ("tree.json", "manifest.json", "weights.safetensors")
