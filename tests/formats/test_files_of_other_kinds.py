"""Each file that is given to the wrong door: the error says what it is, and names the call that serves."""

from __future__ import annotations

import pickle
import zipfile

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.file_errors import IsFolderError
from hybrid_lab.gluon import nn


def zipped(*names):
    def write(path):
        with zipfile.ZipFile(path, "w") as file:
            for name in names:
                file.writestr(name, b"x" * 20)

    return write


def of_bytes(content):
    return lambda path: path.write_bytes(content)


def pickled(value, protocol):
    return lambda path: path.write_bytes(pickle.dumps(value, protocol))


OTHERS = {
    "weights.pt": (zipped("weights/data.pkl", "weights/data/0"), r"a file of PyTorch.*net\.load_parameters"),
    "script.pt": (zipped("script/constants.pkl"), r"a file of PyTorch.*mx\.torch\.imports"),
    "exported.pt2": (zipped("exported/archive_format"), r"a file of PyTorch"),
    "old.pth": (of_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."), r"a file of PyTorch"),
    "weights.npz": (lambda path: np.savez(path, weight=np.zeros((2, 3))), r"an \.npz file.*net\.set_states"),
    "array.npy": (lambda path: np.save(path, np.zeros(3)), r"an \.npy file.*numpy\.load"),
    "weights.h5": (of_bytes(b"\x89HDF\r\n\x1a\n" + bytes(80)), r"an HDF5 file.*net\.set_states"),
    "model.keras": (zipped("metadata.json", "config.json"), r"a file of Keras.*net\.set_states"),
    "mxnet.states": (pickled({0: None}, 3), r"a pickle, which this package does not read.*Trainer"),
    "arrays.pkl": (pickled({"a": [1]}, 5), r"a pickle, which this package does not read"),
    "weights.gz": (of_bytes(b"\x1f\x8b\x08" + bytes(30)), r"a gzip file; unpack it"),
    "weights.zip": (zipped("weights.params"), r"a zip file, but no \.hlab archive; unpack it"),
    "model.tflite": (of_bytes(b"\x1c\0\0\0TFL3" + bytes(40)), r"TensorFlow Lite.*mx\.onnx\.imports"),
    "pointer": (
        of_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0a\nsize 3\n"),
        r"a pointer of Git LFS",
    ),
    "page.params": (
        of_bytes(b"\n<!DOCTYPE html>\n<html><body>404</body></html>"),
        r"an HTML page.*download the file again",
    ),
    "parts.json": (of_bytes(b'{"weight_map": {}}'), r"the index of safetensors files; net\.load_parameters"),
    "net-model.json": (of_bytes(b'{"net0": {"orig_name": "net0"}}'), r"MXNet's Block\.save wrote; net\.load\(prefix\)"),
}
"""Files that no door reads, as they lie on people's disks: name -> (how it is written, what the errors say)."""

OWN = {
    "own.hlab": r"gluon\.load\(file\) or mx\.load_cached_graphs\(net, file\)",
    "own.zip": r"SINGA's zip of states; net\.load_states\(file\)",
    "own.params": r"a \.params file; net\.load_parameters\(file\)",
    "own.safetensors": r"a safetensors file; net\.load_parameters\(file\)",
    "own.states": r"a file of Trainer states; trainer\.load_states\(file\)",
    "own.onnx": r"an ONNX file; mx\.onnx\.imports\(file\)",
    "own-symbol.json": r"a -symbol\.json file, the graph of a network; gluon\.SymbolBlock\.imports",
}
"""Files that one of the doors reads -> what the errors of the other doors say."""

DOORS = {
    "net.load_parameters": (lambda at: at.net.load_parameters(at.path), {"own.params", "own.safetensors"}),
    "nd.load": (lambda at: nd.load(str(at.path)), {"own.params", "own.safetensors"}),
    "ParameterDict.load": (
        lambda at: at.net.collect_params().load(at.path, restore_prefix=at.net.prefix),
        {"own.params", "own.safetensors"},
    ),
    "net.load": (lambda at: at.net.load(at.path), {"own.hlab", "net-model.json"}),
    "gluon.load": (lambda at: gluon.load(at.path), {"own.hlab"}),
    "mx.diff": (lambda at: mx.diff(at.path, at.net), {"own.hlab"}),
    "net.load_states": (lambda at: at.net.load_states(at.path), {"own.hlab", "own.zip", "net-model.json"}),
    "SymbolBlock.imports": (lambda at: gluon.SymbolBlock.imports(str(at.path), "data"), {"own-symbol.json"}),
    "its parameters": (
        lambda at: gluon.SymbolBlock.imports(str(at.folder / "own-symbol.json"), "data", str(at.path)),
        {"own.params", "own.safetensors"},
    ),
    "sym.load": (lambda at: mx.sym.load(str(at.path)), {"own-symbol.json"}),
    "trainer.load_states": (lambda at: at.trainer.load_states(at.path), {"own.states"}),
    "mx.onnx.imports": (lambda at: mx.onnx.imports(at.path), {"own.onnx"}),
}
"""Door -> (how it reads a file, the names of the files above that it reads, or reads as another kind)."""


class At:
    """A folder with a file of each kind, a model and its Trainer; `path` : of the file to be read."""

    def __init__(self, folder):
        self.folder = folder
        self.net = nn.Dense(2, in_units=3, prefix="own_")
        self.net.initialize()
        self.net.hybridize()
        self.net(nd.ones((1, 3)))
        self.trainer = gluon.Trainer(self.net.collect_params(), "adam")
        for name, (write, _) in OTHERS.items():
            write(folder / name)
        self.net.save(folder / "own.hlab")
        self.net.save_states(folder / "own.zip")
        self.net.save_parameters(folder / "own.params")
        self.net.save_parameters(folder / "own.safetensors")
        self.trainer.save_states(folder / "own.states")
        mx.onnx.export(self.net, folder / "own.onnx")
        self.net.export(str(folder / "own"))


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    return At(tmp_path_factory.mktemp("files"))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", [*OTHERS, *OWN])
def test_a_file_at_a_door(name, door, at):
    at.path = at.folder / name
    read, reads = DOORS[door]
    if name in reads:
        if name in OWN and door != "its parameters":
            read(at)
        return
    if name in ("parts.json", "net-model.json") and door in ("SymbolBlock.imports", "sym.load"):
        with pytest.raises(HybridLabError):  # JSON texts, in which no graph is found
            read(at)
        return
    text = OTHERS[name][1] if name in OTHERS else OWN[name]
    if name == "weights.zip" and "own.hlab" in reads:
        text = "or it is not an archive"
    with pytest.raises(HybridLabError, match=text) as caught:
        read(at)
    assert str(at.path) in str(caught.value)


FOLDERS = {
    "files of each Block": ("f", r"net\.load\(folder\) or gluon\.load\(folder\) read"),
    "checkpoints": ("ck", r"'step-00000001\.hlab'\. mx\.checkpoint\.Manager\(folder, net, trainer\)\.restore"),
    "weights": ("weights", r"a file in it: 'model\.safetensors\.index\.json'"),
    "parameters": ("params", r"a file in it: 'a\.params', 'b\.params'"),
    "SavedModel": ("saved", r"SavedModel of TensorFlow.*mx\.onnx\.imports"),
    "an empty folder": ("empty", r"is a folder; give the path of a file"),
}


@pytest.fixture(scope="module")
def folders(at):
    mx.save_cached_graphs(at.net, at.folder / "f", format="mxnet")
    mx.checkpoint.Manager(at.folder / "ck", at.net, at.trainer).save(1)
    for folder, names in {
        "weights": ["model.safetensors.index.json", "model-1.safetensors"],
        "params": ["a.params", "b.params"],
        "saved": ["saved_model.pb"],
        "empty": [],
    }.items():
        (at.folder / folder).mkdir()
        for name in names:
            (at.folder / folder / name).write_bytes(b"")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_at_a_door(name, door, at, folders):
    folder, text = FOLDERS[name]
    at.path = at.folder / folder
    if folder == "f" and door in ("net.load", "gluon.load", "net.load_states"):
        DOORS[door][0](at)
        return
    with pytest.raises(IsFolderError, match=text):
        DOORS[door][0](at)
