"""Archives that are intact as files and lie in their contents: typed errors, models untouched, nothing else written."""

import io
import json
import os
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.diagnostics import ArchiveError, HybridLabError
from hybrid_lab.formats.archive.container import Container, ContainerWriter
from hybrid_lab.gluon import nn


def model():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(3, in_units=2, activation="relu"), nn.Dense(2, in_units=3))
    net.initialize()
    net.hybridize(engine="numpy")
    net(mx.nd.ones((1, 2)))
    return net


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return Path(model().save(tmp_path_factory.mktemp("good") / "m.hlab"))


def rewritten(path, edits):
    """The archive with some members changed and every digest made right again."""
    source, file = Container.open(path), io.BytesIO()
    writer = ContainerWriter(file)
    members = {
        name: {k: v.copy() for k, v in ((t, source.tensors(name)[t]) for t in source.tensors(name))}
        if name.endswith(".safetensors")
        else source.read_json(name)
        for name in source.names
    }
    for name, edit in edits.items():
        replaced = edit(members.get(name))
        members[name] = members.get(name) if replaced is None else replaced
    for name, content in members.items():
        if content is REMOVED:
            continue
        if isinstance(content, bytes):
            writer.add(name, content)
        elif name.endswith(".safetensors"):
            writer.add_tensors(name, content)
        else:
            writer.add_json(name, content)
    writer.finish({})
    return file.getvalue()


REMOVED = object()
TREE, ROOT, WEIGHTS = "tree.json", "graphs/__root__.json", "weights.safetensors"


def tree(edit):
    return {TREE: edit}


def block(index, **fields):
    return {TREE: lambda data: data["blocks"][index].update(fields)}


def parameter(name, **fields):
    return {TREE: lambda data: data["parameters"][name].update(fields)}


def structure(**fields):
    """Change the structure inside the root's graph."""

    def edit(data):
        inner = json.loads(data["attrs"]["hybrid_lab"][1])
        inner.update(fields)
        data["attrs"]["hybrid_lab"][1] = json.dumps(inner)

    return {ROOT: edit}


def calls(content):
    return {"calls.json": lambda data: content}


def one_call(**fields):
    return calls({"records": [{"items": [fields]}], "last": {"0": 0}})


HOSTILE = {
    "tree missing": tree(lambda data: REMOVED),
    "tree a list": tree(lambda data: []),
    "tree empty": tree(lambda data: {}),
    "no blocks": tree(lambda data: {"blocks": [], "parameters": {}}),
    "tree deep": tree(lambda data: b"[" * 5000 + b"]" * 5000),
    "tree not json": tree(lambda data: b"\xff"),
    "child of itself": block(0, children=[["0", 0], ["1", 2]]),
    "child out of range": block(0, children=[["0", 1], ["1", 99]]),
    "child negative": block(0, children=[["0", -1], ["1", 2]]),
    "child twice by name": block(0, children=[["0", 1], ["0", 3]]),
    "child dropped": block(0, children=[["0", 1]]),
    "children of another kind": block(0, children={"0": 1}),
    "cycle": block(1, children=[["act", 2], ["up", 0]]),
    "id": block(1, id=7),
    "id of another kind": block(1, id="1"),
    "path": block(1, path="elsewhere"),
    "kind": block(1, kind="evil"),
    "class of another kind": block(1, **{"class": 3}),
    "config of another kind": block(1, config=["x"]),
    "unknown parameter": block(1, parameters={"weight": "nowhere"}),
    "parameter of another kind": block(1, parameters={"weight": ["x"]}),
    "graph not there": block(0, graphs=["graphs/nothing.json"]),
    "graph named twice": block(1, graphs=["graphs/__root__.json"]),
    "graph outside": block(0, graphs=["../../x"]),
    "shape": parameter("0.weight", shape=[3, 3]),
    "shape negative": parameter("0.weight", shape=[-3, 2]),
    "shape huge": parameter("0.weight", shape=[2**60, 2]),
    "shape of another kind": parameter("0.weight", shape="(3, 2)"),
    "dtype": parameter("0.weight", dtype="float64"),
    "dtype object": parameter("0.weight", dtype="object"),
    "state": parameter("0.weight", state="deferred"),
    "state unknown": parameter("0.weight", state="cursed"),
    "grad_req": parameter("0.weight", grad_req="eval"),
    "lr_mult": parameter("0.weight", lr_mult="1.0"),
    "weight missing": {WEIGHTS: lambda data: {k: v for k, v in data.items() if k != "0.weight"}},
    "weight of another shape": {WEIGHTS: lambda data: {**data, "0.weight": np.zeros((2, 3), "float32")}},
    "graph empty": {ROOT: lambda data: {}},
    "graph unknown operator": {ROOT: lambda data: data["nodes"][-1].update(op="os.system")},
    "graph cycle": {ROOT: lambda data: data["nodes"][-1].update(inputs=[[len(data["nodes"]) - 1, 0, 0]] * 3)},
    "graph without structure": {ROOT: lambda data: data.pop("attrs")},
    "graph structure of another kind": {ROOT: lambda data: data["attrs"].update(hybrid_lab=["int", 3])},
    "graph structure no json": {ROOT: lambda data: data["attrs"].update(hybrid_lab=["str", "{"])},
    "structure inputs": structure(inputs=["nothing"]),
    "structure too many inputs": structure(inputs=["data", "data"]),
    "structure parameters": structure(parameters={"net_dense0_weight": "nowhere"}),
    "structure parameter swapped away": structure(parameters={}),
    "structure in": structure(**{"in": {"tuple": ["tensor", "tensor"]}}),
    "structure out": structure(out={"tuple": ["tensor", "tensor"]}),
    "structure out of another kind": structure(out={"object": "x"}),
    "structure draws": structure(draws=-1),
    "structure types": structure(types=[[[2**60], "float32"]]),
    "structure types dtype": structure(types=[[[1, 2], "nonsense"]]),
    "structure guard": structure(guard={"types": None, "training": "maybe"}),
    "structure guard on recording": structure(guard={"types": None, "training": None, "recording": 2}),
    "structure guard of another kind": structure(guard=[1]),
    "structure deep": structure(out=json.loads('{"tuple":[' * 400 + '"tensor"' + "]}" * 400)),
    "another result": {ROOT: lambda data: data["nodes"][-1]["attrs"].update(num_hidden="7")},
    "example of another value": {"examples/examples.safetensors": lambda data: {k: v + 1 for k, v in data.items()}},
    "aux": {"train/aux.json": lambda data: {"dict": [["a", {"nd": "9"}]]}, "train/aux.safetensors": lambda data: {}},
    "aux of another kind": {"train/aux.json": lambda data: {"eval": "1+1"}, "train/aux.safetensors": lambda data: {}},
    "aux no dict": {"train/aux.json": lambda data: {"list": []}, "train/aux.safetensors": lambda data: {}},
    "calls of another kind": calls([]),
    "calls without records": calls({"last": {}}),
    "calls out of range": calls({"records": [], "last": {"0": 0}}),
    "calls negative": calls({"records": [{"items": []}], "last": {"0": -1}}),
    "call of a Block and an operator": one_call(block=1, operator="relu"),
    "call of nothing": one_call(),
    "call inside itself": one_call(block=1, inside=0),
    "call from nowhere": one_call(block=1, inputs=[[-2, 0]]),
    "call with an odd source": one_call(block=1, inputs=[[0]]),
    "call of another dtype": one_call(block=1, takes=[[[1], "object"]]),
    "call of another shape": one_call(block=1, takes=[[[-1], "float32"]]),
    "call times": one_call(block=1, times=0),
    "call with too many items": calls({"records": [{"items": [{"block": 1}] * 1001}], "last": {"0": 0}}),
    "trainer of another kind": {"train/trainer.json": lambda data: [], "train/trainer.safetensors": lambda data: {}},
    "trainer without tensors": {"train/trainer.json": lambda data: {"format": "x"}},
}


@pytest.mark.parametrize("edits", HOSTILE.values(), ids=HOSTILE)
def test_refused(edits, good, tmp_path):
    path = tmp_path / "bad.hlab"
    path.write_bytes(rewritten(good, edits))
    net = model()
    before = {name: p.data().asnumpy() for name, p in net.collect_params().items()}
    loads = [lambda: net.load(path), lambda: net.load(path, graphs="file")]
    if not any(name.startswith("train/") for name in edits):
        loads.append(lambda: gluon.load(path))
    for load in loads:
        with pytest.raises(HybridLabError) as caught:
            load()
        assert isinstance(caught.value, ArchiveError), caught.value
        assert str(path) in str(caught.value)
    assert all(np.array_equal(before[name], p.data().asnumpy()) for name, p in net.collect_params().items())
    assert os.listdir(tmp_path) == ["bad.hlab"]


def test_names_in_the_file_are_never_imported_or_called(good, tmp_path):
    """Class and layer names, initializers and configurations are looked up in our own tables only."""

    def edit(data):
        data["blocks"][1].update(
            {"class": "subprocess.Popen", "layer": "subprocess.Popen", "config": {"args": "touch x"}}
        )
        data["blocks"][3].update({"layer": "Dense", "config": {"units": "__import__('os')", "self": 1}})
        data["parameters"]["0.weight"]["init"] = '["os.system", {"command": "touch x"}]'

    path = tmp_path / "names.hlab"
    path.write_bytes(rewritten(good, tree(edit)))
    before = set(sys.modules)
    net = gluon.load(path)
    assert net(mx.nd.ones((1, 2))).shape == (1, 2)
    assert not {name for name in set(sys.modules) - before if "subprocess" in name}
    assert os.listdir(tmp_path) == ["names.hlab"]


def test_flags_and_functions_of_a_file_are_checked(good, tmp_path):
    def edit(data):
        data["blocks"][0]["flags"] = {"engine": ["x"], "static_alloc": "yes", "device": "gpu(0)", "note": 1}
        data["blocks"][1].update({"layer": "Lambda", "config": {"function": "save"}})
        data["blocks"][3].update({"layer": "HybridLambda", "config": {"function": "__import__"}})

    path = tmp_path / "flags.hlab"
    path.write_bytes(rewritten(good, tree(edit)))
    net = gluon.load(path)
    assert net._flags == {"note": 1}
    assert type(net[0]).__name__ == type(net[1]).__name__ == "ArchivedBlock"
    assert net(mx.nd.ones((1, 2))).shape == (1, 2)


def test_attribute_names_do_not_replace_methods(good, tmp_path):
    def edit(data):
        data["blocks"][0]["children"] = [["forward", 1], ["__class__", 3]]
        data["blocks"][1]["path"], data["blocks"][3]["path"] = "forward", "__class__"
        data["blocks"][2]["path"] = "forward.act"

    path = tmp_path / "names.hlab"
    path.write_bytes(rewritten(good, tree(edit)))
    net = gluon.load(path)
    assert list(net._children) == ["forward", "__class__"]
    assert isinstance(net, nn.HybridSequential)
    assert callable(net.forward) and not isinstance(net.forward, nn.Dense)


def test_a_shape_bomb_takes_no_memory(good, tmp_path):
    def edit(data):
        data["parameters"]["0.weight"].update(shape=[2**31, 2**31], state="deferred")

    path = tmp_path / "bomb.hlab"
    weights = {WEIGHTS: lambda data: {k: v for k, v in data.items() if k != "0.weight"}}
    path.write_bytes(rewritten(good, tree(edit) | weights))
    tracemalloc.start()
    with pytest.raises(HybridLabError):
        gluon.load(path)
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
    tracemalloc.stop()
