"""The picture of a graph that ran tells the shapes of its last compile and what runs as one; Blocks have full paths."""

import pytest

import hybrid_lab as mx
from hybrid_lab.gluon import nn
from hybrid_lab.lab.graph_view import graph_view
from tests.triton_device import use_triton


def network():
    net, inner = nn.HybridSequential(), nn.HybridSequential()
    inner.add(nn.Dense(8, activation="relu"), nn.Dense(3))
    net.add(nn.Conv2D(6, 5), inner)
    net.initialize()
    net.hybridize()
    return net


def test_shapes_appear_with_the_first_call():
    net = network()
    before = {node["label"]: node["outputs"] for node in graph_view(net, "", "neutral")["nodes"]}
    assert before["0: Conv2D"] == [{"shape": None, "dtype": ""}]
    net(mx.nd.ones((2, 1, 28, 28)))
    after = {node["label"]: node["outputs"] for node in graph_view(net, "", "neutral")["nodes"]}
    assert after["0: Conv2D"] == [{"shape": [2, 6, 24, 24], "dtype": "float32"}]
    assert after["1: HybridSequential"] == [{"shape": [2, 3], "dtype": "float32"}]


def test_nested_blocks_have_full_paths():
    net = network()
    net(mx.nd.ones((2, 1, 28, 28)))
    blocks = [node["block"] for node in graph_view(net, "1", "neutral")["nodes"] if node["kind"] == "block"]
    assert blocks == ["1.0", "1.1"]


def normalized(engine):
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.Dense(8, activation="relu"), nn.LayerNorm(), nn.Dense(8, activation="relu"))
    net.initialize()
    net.hybridize(engine=engine)
    net(mx.nd.ones((4, 8)))
    return graph_view(net, "", "compiled")


@pytest.fixture
def kernels(monkeypatch):
    use_triton(monkeypatch)
    return normalized("triton")


def test_a_kernel_is_a_group_with_its_source(kernels):
    groups = {group["name"]: group for group in kernels["groups"]}
    assert {group["kind"] for group in groups.values()} == {"kernel"}
    assert f"{len(groups)} kernels, Triton in" in kernels["summary"]
    operators = [node for node in kernels["nodes"] if node["kind"] == "operator"]
    assert {node["group"] for node in operators} == set(groups) and {node["engine"] for node in operators} == {"triton"}
    norm = next(node["group"] for node in operators if node["op"] == "sqrt")
    assert groups[norm]["text"].count("@triton.jit") == 1 and "tl.sum(" in groups[norm]["text"]
    assert "operators, rows" in groups[norm]["summary"] and groups[norm]["notes"][0].startswith("1 program with ROWS")
    inside = [node["id"] for node in operators if node["group"] == norm]
    line = next(line for line in kernels["dot"].splitlines() if f'label="{norm[:12]}' in line)
    assert line.startswith(f"  subgraph cluster_{groups[norm]['id']} {{") and line.split(";")[3:-1] == [
        f" {node}" for node in inside
    ]


def test_the_parts_of_an_operator_name_it_and_shapes_are_no_numbers(kernels):
    (root,) = (node for node in kernels["nodes"] if node["op"] == "sqrt")
    assert root["attributes"]["part of"].endswith("layernorm0") and root["scope"] == "1"
    shown = [node["label"] for node in kernels["nodes"] if node["kind"] == "constant"]
    assert "shape(4, 8)" in kernels["text"] and not any(label.startswith("shape(") for label in shown)


def test_equal_kernels_have_names_of_their_own(monkeypatch):
    use_triton(monkeypatch)
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.Dense(8), nn.Dense(8))
    net.initialize()
    net.hybridize(engine="triton")
    net(mx.nd.ones((4, 8)))
    names = [group["name"] for group in graph_view(net, "", "compiled")["groups"]]
    assert names == ["k_fullyconnected", "k_fullyconnected (2)"]


def test_sessions_are_groups_too_and_what_runs_alone_is_in_none():
    pytest.importorskip("onnxruntime")
    found = normalized("onnxruntime")
    assert all(group["kind"] == "session" and not group["text"] for group in found["groups"])
    of = {node["group"]: node["engine"] for node in found["nodes"] if node["kind"] == "operator"}
    assert of.pop("", "numpy") == "numpy" and set(of.values()) <= {"onnxruntime"}
    assert set(of) == {group["name"] for group in found["groups"]}
    alone = normalized("numpy")
    assert alone["groups"] == [] and "cluster" not in alone["dot"]
    assert {node["engine"] for node in alone["nodes"] if node["kind"] == "operator"} == {"numpy"}
