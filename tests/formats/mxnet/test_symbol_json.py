"""Graphs as MXNet's symbol JSON, there and back, and what the real MXNet and its older versions wrote."""

import json
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import sym
from hybrid_lab.diagnostics import ArchiveError, Unmappable
from hybrid_lab.formats.mxnet import fused, load_params, load_symbol, symbol_json
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, constant_node, input_node
from hybrid_lab.ndarray.interpret import interpret
from hybrid_lab.ops import get

GOLDEN = Path(__file__).parents[2] / "golden" / "formats"


def nodes(symbol):
    return {node["name"]: node for node in json.loads(symbol.tojson())["nodes"]}


def run(graph, **arrays):
    return [y.asnumpy() for y in interpret(graph, [mx.nd.array(arrays[v.node.name]) for v in graph.inputs])]


def test_a_model_of_the_real_mxnet_gives_its_outputs():
    graph = load_symbol(GOLDEN / "net-symbol.json")
    params = load_params(GOLDEN / "net-0001.params")
    golden = np.load(GOLDEN / "net.npz")
    assert [v.node.name for v in graph.inputs if v.node.op.role == "aux"] == [
        "net0_batchnorm0_running_mean",
        "net0_batchnorm0_running_var",
    ]
    outputs = run(graph, data=golden["x"], **params)
    for index, output in enumerate(outputs):
        np.testing.assert_allclose(output, golden[f"y{index}"], rtol=1e-5, atol=1e-6)


def test_what_mxnet_wrote_is_written_the_same_again():
    theirs = json.loads((GOLDEN / "net-symbol.json").read_text())
    ours = json.loads(symbol_json.dumps(load_symbol(GOLDEN / "net-symbol.json")))
    for key in ("arg_nodes", "heads", "attrs"):
        assert ours[key] == theirs[key]
    for mine, node in zip(ours["nodes"], theirs["nodes"], strict=True):
        assert (mine["op"], mine["name"]) == (node["op"], node["name"])
        for entry, given in zip(mine["inputs"], node["inputs"], strict=True):
            # The version counts the operators that change a state; what matters is that it is not 0.
            assert (entry[:2], entry[2] > 0) == (given[:2], given[2] > 0)
        assert mine.get("attrs", {}).items() <= node.get("attrs", {}).items() | {("num_args", "2")}


def test_numbers_become_scalar_operators_and_come_back_on_their_side():
    x = sym.var("data")
    graph = symbol_json.loads(sym.Group([x - 2, 2 - x, x > 1.5, 1.5 > x]).tojson())
    assert [node.inputs[1:] or node.inputs[:1] for node in graph.operators][0] == (2,)
    for output, expected in zip(run(graph, data=np.float32([1, 2])), [[-1, 0], [1, 0], [0, 1], [1, 0]], strict=True):
        assert output.tolist() == expected


def test_equal_shapes_are_written_elementwise_only_where_that_is_certain():
    x, bias = sym.var("data"), sym.var("bias", shape=(1, 4))
    same = nodes(sym.broadcast_add(sym.relu(x), x, name="sum"))
    maybe = nodes(sym.broadcast_add(x, bias, name="sum"))
    assert same["sum"]["op"] == "elemwise_add"
    assert maybe["sum"]["op"] == "broadcast_add"


def test_a_residual_connection_is_elementwise():
    x = sym.var("data")
    stem = sym.Convolution(x, kernel=(3, 3), num_filter=8, name="stem")
    body = sym.relu(sym.Convolution(stem, kernel=(3, 3), pad=(1, 1), num_filter=8, name="a"))
    wider = sym.Convolution(stem, kernel=(3, 3), pad=(1, 1), num_filter=16, name="b")
    shrunk = sym.Convolution(stem, kernel=(3, 3), num_filter=8, name="c")
    found = nodes(sym.Group([sym.broadcast_add(stem, y, name=f"to_{y.name}") for y in (body, wider, shrunk)]))
    assert [node["op"] for name, node in found.items() if name.startswith("to_")] == [
        "elemwise_add",
        "broadcast_add",
        "broadcast_add",
    ]


def test_auxiliary_states_follow_from_the_operator():
    written = json.loads(sym.BatchNorm(sym.var("data"), name="bn").tojson())
    assert [entry[2] for entry in written["nodes"][-1]["inputs"]] == [0, 0, 0, 1, 1]
    assert written["node_row_ptr"][-1] - written["node_row_ptr"][-2] == 3


def test_constants_travel_as_numbers_or_as_arrays():
    array = np.float32([[0.1, 2], [3, 1e-8]])
    x = input_node("data")
    graph = Graph([x], Node(get("broadcast_add").bind(), [x, constant_node(array, name="table")], name="y").outputs)
    inline = symbol_json.loads(symbol_json.dumps(graph))
    beside: dict = {}
    text = symbol_json.dumps(graph, constants=beside)
    for again in (inline, symbol_json.loads(text, beside)):
        assert [v.node.name for v in again.inputs] == ["data"]
        assert np.array_equal(run(again, data=np.zeros((2, 2), "float32"))[0], array)
    assert "__init__" not in text and list(beside) == ["table"]


def test_scopes_survive_in_archives_only_and_draw_numbers_everywhere():
    x = input_node("x")
    noise = Node(get("Dropout").bind(p=0.5), [x], name="drop", scope="net0.drop", draw=4)
    graph = Graph([x], [noise.outputs[0]], draws=7)
    kept = symbol_json.loads(symbol_json.dumps(graph, portable=False)).outputs[0].node
    assert (kept.draw, kept.scope) == (4, "net0.drop")
    exported = symbol_json.loads(symbol_json.dumps(graph)).outputs[0].node
    assert (exported.draw, exported.scope) == (4, "")


def test_files_for_mxnet_hold_a_draw_number_only_where_it_is_not_the_next_one():
    x = input_node("x")
    drops = [Node(get("Dropout").bind(p=0.5), [x], name=f"drop{draw}", draw=draw) for draw in range(2)]
    for order, count in ((drops, 0), (drops[::-1], 2)):
        text = symbol_json.dumps(Graph([x], [node.outputs[0] for node in order], draws=2))
        assert text.count("__draw__") == count
        assert [value.node.draw for value in symbol_json.loads(text).outputs] == [node.draw for node in order]


def test_an_operator_that_mxnet_lacks_is_refused_for_export_and_kept_in_archives():
    x = input_node("data")
    node = Node(get("_sum_like").bind(), [x, x], name="s", scope="net0")
    graph = Graph([x], node.outputs)
    with pytest.raises(Unmappable, match="_sum_like.*\n.*net0"):
        symbol_json.dumps(graph)
    assert symbol_json.loads(symbol_json.dumps(graph, portable=False)).operators[0].op is node.op


def test_inputs_that_nothing_reads_stay_inputs():
    x, y = input_node("data0"), input_node("data1")
    graph = symbol_json.loads(symbol_json.dumps(Graph([x, y], Node(get("relu").bind(), [x]).outputs)))
    assert [v.node.name for v in graph.inputs] == ["data0", "data1"]


def old_style(key, **extra):
    """The form of MXNet 0.8 (`param`) and 0.9 to 1.1 (`attr`): auxiliary states are not listed."""
    return json.dumps(
        {
            "nodes": [
                {"op": "null", key: {}, "name": "data", "inputs": [], "backward_source_id": -1},
                {"op": "null", key: {}, "name": "fc_weight", "inputs": [], "backward_source_id": -1},
                {"op": "null", key: {}, "name": "fc_bias", "inputs": [], "backward_source_id": -1},
                {
                    "op": "FullyConnected",
                    key: {"num_hidden": "2L", "no_bias": "False", "weight_lr_mult": "2.0", **extra},
                    "name": "fc",
                    "inputs": [[0, 0], [1, 0], [2, 0]],
                    "backward_source_id": -1,
                },
                {"op": "null", key: {}, "name": "bn_gamma", "inputs": [], "backward_source_id": -1},
                {"op": "null", key: {}, "name": "bn_beta", "inputs": [], "backward_source_id": -1},
                {
                    "op": "BatchNorm",
                    key: {"eps": "0.001", "fix_gamma": "True"},
                    "name": "bn",
                    "inputs": [[3, 0], [4, 0], [5, 0]],
                    "backward_source_id": -1,
                },
            ],
            "arg_nodes": [0, 1, 2, 4, 5],
            "heads": [[6, 0]],
        }
    )


@pytest.mark.parametrize("key", ["param", "attr", "attrs"])
def test_older_files(key):
    graph = symbol_json.loads(old_style(key))
    assert [v.node.name for v in graph.inputs][-2:] == ["bn_moving_mean", "bn_moving_var"]
    assert graph.operators[0].op.num_hidden == 2


@pytest.mark.parametrize(
    ("name", "attributes", "cuts"),
    [
        ("relu", {}, True),
        ("sigmoid", {}, False),
        ("Activation", {"act_type": "relu"}, True),
        ("Activation", {"act_type": "tanh"}, False),
        ("clip", {"a_min": 0, "a_max": 6}, True),
        ("clip", {"a_min": 1, "a_max": 6}, False),
    ],
)
def test_a_fused_convolution_ends_with_what_cuts_off_at_zero(name, attributes, cuts):
    inputs = [input_node(each) for each in ("x", "w", "b")]
    convolution = Node(get("Convolution").bind(kernel=(1, 1), num_filter=2), inputs).outputs
    graph = Graph(inputs, Node(get(name).bind(**attributes), convolution).outputs)
    written = {"quantized": "true", "min_calib_range": "0", "max_calib_range": "1", "with_act": "true"}
    if cuts:
        assert fused.read(written, graph).attributes["kernel"] == (1, 1)
    else:
        with pytest.raises(ValueError, match=name):
            fused.read(written, graph)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_damaged_utf16_is_refused_and_changes_no_name(encoding):
    text = "\ufeff" + sym.var("data").tojson()
    assert symbol_json.loads(text.encode(encoding)).inputs[0].node.name == "data"
    lone = text.replace("data", "d\ud800ta").encode(encoding, "surrogatepass")
    for damaged in (lone, text.encode(encoding) + b"\n"):
        with pytest.raises(ArchiveError, match="not UTF-16 text"):
            symbol_json.loads(damaged)
