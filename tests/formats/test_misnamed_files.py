"""Files of one kind under the name of another: refused when they are written, recognized when they are read."""

import errno
import os
import re

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics import ArchiveError, HybridLabError, SettingError
from hybrid_lab.gluon import nn

WRITERS = {
    "archive": (lambda net, trainer, path: net.save(path), {"hlab"}),
    "states": (lambda net, trainer, path: net.save_states(path), {"hlab"}),
    "parameters": (lambda net, trainer, path: net.save_parameters(path), {"params", "safetensors"}),
    "arrays": (lambda net, trainer, path: nd.save(path, {"a": nd.ones((2,))}), {"params", "safetensors"}),
    "trainer": (lambda net, trainer, path: trainer.save_states(path), {"params", "safetensors"}),
    "onnx": (lambda net, trainer, path: mx.onnx.export(net, path), {"onnx"}),
}


@pytest.fixture
def net():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net.hybridize(engine="numpy")
    net(nd.ones((1, 3)))
    return net


@pytest.fixture
def trainer(net):
    return gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9})


@pytest.mark.parametrize("ending", ["hlab", "HLAB", "params", "safetensors", "onnx"])
@pytest.mark.parametrize("writer", WRITERS)
def test_each_ending_is_of_one_kind(writer, ending, net, trainer, tmp_path):
    write, own = WRITERS[writer]
    path = str(tmp_path / f"m.{ending}")
    if ending.lower() in own:
        write(net, trainer, path)
        assert (tmp_path / f"m.{ending}").stat().st_size
        return
    with pytest.raises(SettingError, match=f"would hold .* writes .{ending.lower()} files"):
        write(net, trainer, path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_names_the_file_and_leaves_the_old_one(writer, net, trainer, tmp_path, monkeypatch):
    write, (ending, *_) = WRITERS[writer][0], sorted(WRITERS[writer][1])
    path = tmp_path / f"m.{ending}"
    path.write_bytes(b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    message = f"{str(path)!r} cannot be written: {os.strerror(errno.ENOSPC)}; delete"
    with pytest.raises(OSError, match=re.escape(message)):
        write(net, trainer, str(path))
    assert path.read_bytes() == b"old" and [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["", ".", "..", "folder/", 5, b"bytes"])
def test_what_names_no_file(name, net, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for call in (net.save, net.save_states, net.load, gluon.load):
        with pytest.raises((SettingError, TypeError, IsADirectoryError)):
            call(name)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


def test_an_onnx_file_is_recognized(net, tmp_path):
    path = mx.onnx.export(net, tmp_path / "m.onnx").path
    for read in (gluon.load, net.load, net.load_parameters, lambda path: mx.diff(path, net)):
        with pytest.raises(ArchiveError, match="but an ONNX file; mx.onnx.imports"):
            read(path)


def test_other_files_are_recognized_by_the_importer(net, tmp_path):
    net.save_parameters(tmp_path / "m.safetensors")
    net.save_parameters(tmp_path / "m.params")
    for name, kind in (("m.safetensors", "a safetensors file"), ("m.params", "a .params file")):
        with pytest.raises(HybridLabError, match=f"not an ONNX file but {kind}"):
            mx.onnx.imports(tmp_path / name)


def test_arguments_of_another_kind(net, trainer, tmp_path):
    other = nn.Dense(2, in_units=3)
    other.initialize()
    stranger = gluon.Trainer(other.collect_params(), "sgd")
    path = tmp_path / "m.hlab"
    for options, text in (
        ({"trainer": 3}, "takes a gluon.Trainer, not int"),
        ({"trainer": stranger}, "dense.*which the model does not have"),
        ({"aux": [1]}, "takes a dict"),
    ):
        with pytest.raises(HybridLabError, match=text):
            net.save(path, **options)
        assert not path.exists()
    net.save(path, trainer=trainer)
    before = net.weight.data().asnumpy()
    for options in ({"trainer": "adam"}, {"subtree": 0}, {"map": "features"}):
        with pytest.raises(SettingError):
            net.load(path, **options)
    assert np.array_equal(net.weight.data().asnumpy(), before)
