"""Errors of the system about files: typed, in the user's words, and what was there stays."""

import errno
import os
import pickle

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics import FileError, HybridLabError, SettingError
from hybrid_lab.diagnostics.file_errors import read_error, write_error
from hybrid_lab.formats.archive import inspect, verify
from hybrid_lab.gluon import nn


@pytest.fixture
def net(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=4))
    net.initialize()
    net.hybridize()
    net(nd.ones((2, 4)))
    return net


READERS = {
    "load": lambda net, path: net.load(path),
    "load_parameters": lambda net, path: net.load_parameters(path),
    "load_states": lambda net, path: gluon.Trainer(net.collect_params(), "sgd").load_states(path),
    "gluon.load": lambda net, path: gluon.load(path),
    "diff": lambda net, path: mx.diff(path, net),
    "inspect": lambda net, path: inspect(path),
    "verify": lambda net, path: verify(path),
    "nd.load": lambda net, path: nd.load(path),
    "sym.load": lambda net, path: mx.sym.load(path),
    "SymbolBlock.imports": lambda net, path: gluon.SymbolBlock.imports(path, ["data"]),
    "onnx": lambda net, path: mx.onnx.imports(path),
}
WRITERS = {
    "save": lambda net, path: net.save(path + ".hlab"),
    "save_parameters": lambda net, path: net.save_parameters(path + ".params"),
    "safetensors": lambda net, path: net.save_parameters(path + ".safetensors"),
    "save_states": lambda net, path: gluon.Trainer(net.collect_params(), "sgd").save_states(path),
    "nd.save": lambda net, path: nd.save(path, [nd.ones(2)]),
    "export": lambda net, path: net.export(path),
    "onnx": lambda net, path: mx.onnx.export(net, path + ".onnx"),
}


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["m.v2", "net.features.3", "m.", "a.hlab.b", "weights.json", "M.HLAB", "m"])
def test_what_is_saved_under_a_name_is_loaded_by_it(net, tmp_path, name):
    written = net.save(name)
    expected = name if name == "M.HLAB" else f"{name}.hlab"
    assert written == str(tmp_path / expected) and os.listdir() == [expected]
    weight = net[0].weight.data().asnumpy()
    net[0].weight.set_data(nd.zeros((3, 4)))
    assert net.load(name).parameters == 2 and (net[0].weight.data().asnumpy() == weight).all()
    assert (gluon.load(name)[0].weight.data().asnumpy() == weight).all()
    assert not mx.diff(name, net) and inspect(name)["blocks"] == 2
    verify(name)


def test_a_file_without_the_suffix_is_found_where_no_other_is(net):
    os.rename(net.save("m"), "old.v1")
    assert gluon.load("old.v1")[0].name
    net[0].weight.set_data(nd.zeros((3, 4)))
    net.save("old.v1")
    assert sorted(os.listdir()) == ["old.v1", "old.v1.hlab"]
    assert not gluon.load("old.v1")[0].weight.data().asnumpy().any()


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("path, words", [
    ("nothing", "there is no file 'nothing"),
    ("nowhere/m", "there is no folder 'nowhere', so there is no file 'nowhere/m"),
    ("folder", "'folder' is a folder; give the path of a file in it: 'inner.hlab'"),
    ("file/m", "'file' is a file, not a folder, so 'file/m"),
    ("a\0b", "NUL"),
])  # fmt: skip
def test_what_cannot_be_read(net, reader, path, words):
    os.mkdir("folder")
    for name in ("folder/inner.hlab", "file"):
        with open(name, "w"):
            pass
    with pytest.raises(FileError) as caught:
        READERS[reader](net, path)
    assert isinstance(caught.value, HybridLabError) and isinstance(caught.value, OSError)
    assert words in str(caught.value) and "Errno" not in str(caught.value)


def test_the_next_step_names_what_is_there(net):
    net.save("model.v1")
    with pytest.raises(FileNotFoundError, match="'model.v2.hlab'.*'model.v1.hlab'"):
        net.load("model.v2")
    with pytest.raises(FileNotFoundError, match="; the folder has 'model.v1.hlab'"):
        net.load("other")
    for number in range(9):
        net.save(f"z{number}")
    with pytest.raises(FileNotFoundError, match="'z4.hlab' and 4 more$"):
        net.load("other")
    with pytest.raises(SettingError, match="names no file"):
        net.load("")
    net.export("net")
    with pytest.raises(FileNotFoundError, match=r"did you mean 'net-symbol.json'\?"):
        mx.sym.load("nets-symbol.json")


# -- writing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("path, words", [
    ("nowhere/m", "/nowhere' to write '|'nowhere' to write '"),
    ("file/m", "file' is a file, not a folder"),
    ("a\0b", "NUL"),
    ("x" * 300, "is too long"),
])  # fmt: skip
def test_what_cannot_be_written(net, tmp_path, writer, path, words):
    with open("file", "w") as file:
        file.write("mine")
    with pytest.raises(FileError, match=words) as caught:
        WRITERS[writer](net, path)
    assert "Errno" not in str(caught.value) and ".tmp" not in str(caught.value)
    assert os.listdir() == ["file"] and (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("writer", WRITERS)
def test_a_folder_is_not_replaced(net, tmp_path, writer):
    for ending in ("", ".hlab", ".params", ".safetensors", "-symbol.json", ".onnx"):
        (tmp_path / f"m{ending}").mkdir()
    before = sorted(os.listdir())
    with pytest.raises(IsADirectoryError, match="is a folder; give the name of a file in it"):
        WRITERS[writer](net, "m")
    assert sorted(os.listdir()) == before


def test_files_in_place_of_a_folder(net, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileError, match="'file' is a file where a folder is needed"):
        mx.save_cached_graphs(net, "file", format="mxnet")
    with pytest.raises(FileError, match="'file' is a file where a folder is needed"):
        manager = mx.checkpoint.Manager("file", net, gluon.Trainer(net.collect_params(), "sgd"))
        manager.save(1)
    with pytest.raises(NotADirectoryError, match="'file' is a file where a folder is needed"):
        mx.checkpoint.Manager("file", net, gluon.Trainer(net.collect_params(), "sgd")).restore()
    with pytest.raises(FileNotFoundError, match="nowhere' to write .* into; create it"):
        mx.lab.autosave(net, "nowhere/m")
    assert (tmp_path / "file").read_text() == "mine"


def test_an_export_that_fails_leaves_both_old_files(net, tmp_path, monkeypatch):
    net.export("m")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    net[0].weight.set_data(nd.zeros((3, 4)))
    sync = os.fsync
    calls = []

    def fail(descriptor):
        calls.append(descriptor)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(FileError, match="delete something"):
        net.export("m")
    monkeypatch.setattr(os, "fsync", sync)
    assert calls and {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_errors_are_as_the_system_has_them():
    for number in (errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EIO):
        for make in (read_error, write_error):
            error = make(number, "m.hlab")
            assert isinstance(error, type(OSError(number, ""))) and error.errno == number
            assert (error.filename, error.strerror) == ("m.hlab", os.strerror(number))
            copy = pickle.loads(pickle.dumps(error))
            assert (str(copy), copy.errno, type(copy)) == (str(error), number, type(error))


@pytest.mark.skipif(os.name != "posix", reason="FIFOs are POSIX's")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("reader", READERS)
def test_a_fifo_is_refused_and_not_waited_for(net, reader):
    os.mkfifo("fifo")
    with pytest.raises(FileError, match="is a FIFO"):
        READERS[reader](net, "fifo")
