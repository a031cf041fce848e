"""The graph in the metadata of exported files: it comes back where the file's nodes are its own, and only there."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import onnx
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.gluon import nn, rnn
from hybrid_lab.onnx import own_graph
from hybrid_lab.onnx.errors import OnnxError

from .networks import Detector, WithStates, call, floats


def exported(net, folder, *arrays):
    """The file of a network, as onnx reads it."""
    net.initialize(mx.init.Xavier())
    net.hybridize()
    call(net, arrays)
    return onnx.load(mx.onnx.export(net, folder / "m.onnx").path)


def imported(model, folder):
    onnx.save(model, folder / "n.onnx")
    return mx.onnx.imports(folder / "n.onnx")


def graph_text(model):
    return next(item for item in model.metadata_props if item.key == own_graph.METADATA)


def operators(block):
    """The names of the operators in an imported graph."""
    (neutral,) = block._graphs.pinned.values()
    return [node.op.name for node in neutral.graph.operators]


def small():
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu", in_units=3), nn.Dense(2, in_units=4))
    return net


def test_operators_come_back_as_they_were(tmp_path):
    model = exported(rnn.LSTM(7, 2, input_size=5), tmp_path, floats(4, 3, 5))
    assert operators(imported(model, tmp_path)).count("RNN") == 1
    names = operators(imported(exported(Detector(), tmp_path, floats(2, 3, 32, 32)), tmp_path))
    assert {"_contrib_MultiBoxPrior", "_contrib_box_nms", "_contrib_box_decode"} <= {*names}


def test_a_loop_of_any_length_comes_back(tmp_path):
    """By its nodes it would be unrolled, for which its length must be known."""

    class Sums(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.contrib.foreach(lambda item, total: (item + total, item + total), x, F.zeros_like(x[0]))

    net = Sums()
    again = imported(exported(net, tmp_path, floats(5, 3)), tmp_path)
    assert "_foreach" in operators(again)
    for x in (floats(5, 3), floats(8, 3)):
        for one, two in zip(call(net, [x]), call(again, [x]), strict=True):
            np.testing.assert_array_equal(one, two)
    mx.onnx.export(net, tmp_path / "first.onnx", ("time", 3))
    mx.onnx.export(again, tmp_path / "second.onnx", ("time", 3))
    assert (tmp_path / "first.onnx").read_bytes() == (tmp_path / "second.onnx").read_bytes()


def test_weights_that_were_changed_are_read(tmp_path):
    model = exported(small(), tmp_path, floats(2, 3))
    model.graph.initializer[0].raw_data = np.full((4, 3), 2.0, "<f4").tobytes()
    again = imported(model, tmp_path)
    assert (again.collect_params()[model.graph.initializer[0].name].data().asnumpy() == 2).all()
    assert "FullyConnected" in operators(again)


def test_nodes_that_were_changed_are_what_is_imported(tmp_path):
    net, x = small(), floats(2, 3)
    model = exported(net, tmp_path, x)
    nodes = [node for part in (model.graph, *model.functions) for node in part.node if node.op_type == "Relu"]
    nodes[0].op_type = "Sigmoid"
    again = imported(model, tmp_path)
    y = nd.sigmoid(nd.FullyConnected(nd.array(x), net[0].weight.data(), net[0].bias.data(), num_hidden=4))
    np.testing.assert_allclose(call(again, [x])[0], net[1](y).asnumpy(), rtol=1e-5, atol=1e-6)


def rewritten(change):
    """The text of a graph after a change to its JSON."""

    def apply(text):
        document = json.loads(text)
        change(document)
        return json.dumps(document)

    return apply


def operator(document, name):
    return next(node for node in document["nodes"] if node["op"] == name)


LIES = {
    "nothing": lambda text: "",
    "no JSON": lambda text: text[:100],
    "no graph": lambda text: "[]",
    "deep": lambda text: "[" * 100_000,
    "another operator": lambda text: text.replace("relu", "tanh"),
    "an unknown operator": lambda text: text.replace('"FullyConnected"', '"None"'),
    "another attribute": lambda text: text.replace('"num_hidden": "4"', '"num_hidden": "5"'),
    "another parameter": rewritten(lambda document: document["nodes"][1].update(name="p")),
    "a loop of nodes": rewritten(lambda document: operator(document, "Activation").update(inputs=[[7, 0, 0]])),
    "no heads": rewritten(lambda document: document.update(heads=[])),
    "other heads": rewritten(lambda document: document.update(heads=[[0, 0, 0]])),
    "many nodes": rewritten(lambda document: document["nodes"].extend([document["nodes"][0]] * 1000)),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_graph_that_does_not_tell_the_nodes_is_ignored(lie, tmp_path):
    net, x = small(), floats(2, 3)
    model = exported(net, tmp_path, x)
    item = graph_text(model)
    changed = LIES[lie](item.value)
    assert changed != item.value
    item.value = changed
    np.testing.assert_allclose(call(imported(model, tmp_path), [x])[0], call(net, [x])[0], rtol=1e-6)


TABLES = {
    "LRN": ("LRN", {"nsize": "3"}, (1, 1 << 22, 1, 1)),
    "im2col": ("im2col", {"kernel": "(16, 16)"}, (1, 1 << 14, 16, 16)),
    "MultiBoxPrior": ("_contrib_MultiBoxPrior", {"sizes": "(0.5, 0.2)"}, (1, 1, 1 << 15, 1 << 15)),
    "one_hot": ("one_hot", {"depth": "2147483647"}, (1,)),
    "arange": ("_arange", {"start": "0", "stop": "4000000000"}, None),
    "diag": ("diag", {"k": "1000000"}, (1 << 20,)),
}


@pytest.mark.parametrize("name", TABLES)
def test_large_tables_of_a_hostile_graph_are_not_made(name, tmp_path):
    kind, attributes, shape = TABLES[name]
    model = exported(small(), tmp_path, floats(2, 3))
    dimensions = model.graph.input[0].type.tensor_type.shape
    del dimensions.dim[:]
    for size in shape or (2, 3):
        dimensions.dim.add(dim_value=size)
    document = json.loads(graph_text(model).value)
    variables = [node for node in document["nodes"] if node["op"] == "null"]
    inputs = [] if shape is None else [[0, 0, 0]]
    document["nodes"] = [*variables, {"op": kind, "name": "table", "attrs": attributes, "inputs": inputs}]
    document["heads"] = [[len(variables), 0, 0]]
    graph_text(model).value = json.dumps(document)
    onnx.save(model, tmp_path / "n.onnx")
    tracemalloc.start()
    try:
        mx.onnx.imports(tmp_path / "n.onnx")
    except OnnxError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 64 << 20


def test_a_file_that_only_holds_for_its_shapes(tmp_path):
    class Flat(gluon.HybridBlock):
        def forward(self, x):
            return x.reshape((x.shape[0] * x.shape[1],))

    net, x = Flat(), floats(2, 3)
    again = imported(exported(net, tmp_path, x), tmp_path)
    np.testing.assert_array_equal(call(again, [x])[0], x.reshape(-1))


def test_results_inside_have_the_names_of_the_file(tmp_path):
    x = [floats(4, 3, 5), floats(1, 3, 7), floats(1, 3, 7)]
    net = WithStates()
    again = imported(exported(net, tmp_path, *x), tmp_path)
    assert {"y", "states.0", "states.1"} <= {*again.tensor_names}
    inner = again.with_outputs(["states.1"])(*map(nd.array, x))
    np.testing.assert_allclose(inner[-1].asnumpy(), call(net, x)[-1], rtol=1e-5, atol=1e-6)
