"""gluon.load: Blocks that cannot be made as the file says run by their graphs, and a warning names them."""

import json
import logging

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.formats.archive.container import Container, ContainerWriter
from hybrid_lab.gluon import nn

X = mx.nd.array([[1.0, -2.0]])


@pytest.fixture
def saved(tmp_path):
    """Saves a dense layer below a container; gives the path and the result for X."""
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(3, in_units=2))
    net.initialize(mx.init.Xavier())
    net.hybridize(engine="numpy")
    result = net(X).asnumpy()
    return net.save(tmp_path / "m.hlab"), result


def edit_tree(path, edit):
    """Change tree.json of an archive; the digests are right again."""
    source = Container.open(path)
    members = {name: bytes(source.read(name)) for name in source.names if not name.endswith(".safetensors")}
    tensors = {name: source.tensors(name) for name in source.names if name.endswith(".safetensors")}
    tensors = {name: {key: arrays[key].copy() for key in arrays} for name, arrays in tensors.items()}
    tree = json.loads(members["tree.json"])
    edit(tree)
    members["tree.json"] = json.dumps(tree).encode()
    with open(path, "wb") as file:
        writer = ContainerWriter(file)
        for name, content in members.items():
            writer.add(name, content)
        for name, arrays in tensors.items():
            writer.add_tensors(name, arrays)
        writer.finish({})


def test_an_engine_that_is_not_here_is_replaced_with_a_warning(saved, caplog):
    path, result = saved
    edit_tree(path, lambda tree: tree["blocks"][0]["flags"].update(engine="tensorrt"))
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        net = gluon.load(path)
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.startswith("net: ") and "'tensorrt'" in warning and "another engine is used" in warning
    assert net._flags["engine"] is None
    np.testing.assert_allclose(net(X).asnumpy(), result, rtol=1e-6)


def test_an_engine_that_is_here_is_kept_without_a_warning(saved, caplog):
    path, result = saved
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        net = gluon.load(path)
    assert net._flags["engine"] == "numpy" and not caplog.records
    np.testing.assert_allclose(net(X).asnumpy(), result, rtol=1e-6)


def test_a_layer_whose_arguments_are_refused_runs_by_its_graph_with_a_warning(saved, caplog):
    path, result = saved
    edit_tree(path, lambda tree: tree["blocks"][1]["config"].update(colour="red"))
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        net = gluon.load(path)
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.startswith("0: Dense could not be constructed again: ")
    np.testing.assert_allclose(net(X).asnumpy(), result, rtol=1e-6)


def test_an_argument_that_names_no_child_is_refused_with_a_warning(saved, caplog):
    path, result = saved
    edit_tree(path, lambda tree: tree["blocks"][1]["config"].update(units={"child": "cell"}))
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        net = gluon.load(path)
    assert "the argument units is no child of it" in caplog.text
    np.testing.assert_allclose(net(X).asnumpy(), result, rtol=1e-6)
