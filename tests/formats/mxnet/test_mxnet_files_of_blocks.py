"""MXNet's files of every HybridBlock of a model, of one without a path, and arrays by other names and in parts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics import ArchiveError, HybridLabError, LoadMismatchError
from hybrid_lab.formats.safetensors import write_safetensors
from hybrid_lab.gluon import nn

ORACLE = Path(__file__).parents[3] / ".oracle" / "bin" / "python"


class Model(gluon.Block):
    """A plain Block with HybridBlocks below it, one nested."""

    def __init__(self):
        super().__init__()
        self.body = nn.HybridSequential()
        self.body.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Activation("relu"), nn.SeparableConv2D(5, 3))
        self.head = nn.Dense(3)

    def forward(self, x):
        return self.head(self.body(x))


@pytest.fixture
def x():
    return nd.array(np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32))


@pytest.fixture
def model(x):
    mx.random.seed(1)
    model = Model()
    model.compile([x])
    return model


STEMS = {"body", "body.0", "body.1", "body.2", "body.3", "body.3.depthwise", "body.3.pointwise", "head"}


def test_one_pair_of_files_for_each_hybrid_block(model, x, tmp_path):
    folder = mx.save_cached_graphs(model, tmp_path / "m", format="mxnet")
    assert {name.removesuffix("-symbol.json") for name in os.listdir(folder) if name.endswith(".json")} == STEMS
    assert {name.removesuffix("-0000.params") for name in os.listdir(folder) if name.endswith(".params")} == STEMS
    body = gluon.SymbolBlock.imports(f"{folder}/body-symbol.json", "data", f"{folder}/body-0000.params")
    np.testing.assert_allclose(body(x).asnumpy(), model.body(x).asnumpy(), rtol=1e-5, atol=1e-6)


def test_inputs_call_a_model_that_was_never_called(x, tmp_path):
    model = Model()
    model.initialize()
    folder = mx.save_cached_graphs(model, tmp_path / "m", inputs=x, format="mxnet")
    assert len(os.listdir(folder)) == 2 * len(STEMS)


def test_without_a_graph_no_folder_is_made(tmp_path):
    with pytest.raises(HybridLabError, match="no HybridBlock has a graph that MXNet can read"):
        mx.save_cached_graphs(Model(), tmp_path / "m", format="mxnet")
    with pytest.raises(HybridLabError, match="need .hlab"):
        mx.save_cached_graphs(Model(), tmp_path / "m", aux={}, format="mxnet")
    with pytest.raises(HybridLabError, match="format"):
        mx.save_cached_graphs(Model(), tmp_path / "m", format="keras")
    assert not os.listdir(tmp_path)


def test_a_block_with_an_operator_of_our_own_is_left_out(tmp_path, caplog):
    net = nn.HybridSequential()
    net.add(nn.Dense(2), nn.HybridLambda(lambda F, x: F.contrib.cond(x.sum() > 0, lambda: x, lambda: -x)))
    net.initialize()
    net(nd.ones((1, 3)))
    folder = mx.save_cached_graphs(net, tmp_path / "m", format="mxnet")
    assert "0-symbol.json" in os.listdir(folder)


@pytest.mark.skipif(not ORACLE.exists(), reason="the real MXNet is not installed in .oracle")
def test_the_real_mxnet_reads_each_of_them(model, x, tmp_path):
    folder = Path(mx.save_cached_graphs(model, tmp_path / "m", format="mxnet"))
    inputs, expected = {}, {}

    def noted(stem):
        def note(block, args, y):
            inputs[stem], expected[stem] = args, y

        return note

    hooks = [block.register_forward_hook(noted(stem)) for stem, block in blocks(model)]
    model.hybridize(False)
    model(x)
    for hook in hooks:
        hook.detach()
    for stem in STEMS:
        symbol = mx.sym.load(str(folder / f"{stem}-symbol.json"))
        (name,) = [each for each in symbol.list_inputs() if each.startswith(("data", "x"))]
        np.savez(folder / f"{stem}.npz", **{name: inputs[stem][0].asnumpy()})
    script = Path(__file__).with_name("run_blocks_in_mxnet.py")
    done = subprocess.run([ORACLE, script, folder], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for stem in STEMS:
        with np.load(folder / f"{stem}.out.npz") as file:
            np.testing.assert_allclose(file["0"], expected[stem].asnumpy(), rtol=1e-4, atol=1e-5, err_msg=stem)


def blocks(model):
    separable = model.body[3]
    return [
        ("body", model.body), *((f"body.{number}", model.body[number]) for number in range(4)),
        ("body.3.depthwise", separable.depthwise), ("body.3.pointwise", separable.pointwise), ("head", model.head),
    ]  # fmt: skip


def test_export_without_a_path_gives_symbol_and_arguments(model, x):
    symbol, arguments = model.body.export()
    assert set(arguments) == {
        f"{'aux' if 'running' in name else 'arg'}:{name}" for name in symbol.list_inputs() if name != "data"
    }
    block = gluon.SymbolBlock(symbol, mx.sym.var("data")) if "data" in symbol.list_inputs() else None
    block.params.load_dict(arguments)
    np.testing.assert_allclose(block(x).asnumpy(), model.body(x).asnumpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(HybridLabError, match="no graph yet"):
        nn.Dense(2).export()


# -- other names, several files ----------------------------------------------------------------------------------


@pytest.fixture
def dense():
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=3), nn.Dense(4, in_units=2))
    net.initialize()
    return net


def arrays(net):
    return {name: array.asnumpy() for name, array in net.get_states().items()}


def test_a_map_renames_paths_and_their_beginnings(dense, tmp_path):
    values = {name: array + 1 for name, array in arrays(dense).items()}
    file = tmp_path / "m.safetensors"
    foreign = {f"model.layers.{name}".replace("layers.1.bias", "layers.1.b"): array for name, array in values.items()}
    write_safetensors(file, foreign)
    dense.load_parameters(file, map={"model.layers": "", "model.layers.1.b": "1.bias"})
    assert all(np.array_equal(array, values[name]) for name, array in arrays(dense).items())
    with pytest.raises(LoadMismatchError, match="extra: model.layers.0.weight"):
        dense.load_parameters(file)
    with pytest.raises(LoadMismatchError, match="two arrays of the file become 0.weight"):
        dense.load_parameters(file, map={"model.layers": "", "model.layers.1": "0"})


def index(folder, parts):
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": parts}))
    return path


def test_safetensors_in_parts(dense, tmp_path):
    values = {name: array + 1 for name, array in arrays(dense).items()}
    parts = {name: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, name in enumerate(values)}
    for part in set(parts.values()):
        write_safetensors(tmp_path / part, {name: values[name] for name in values if parts[name] == part})
    dense.load_parameters(index(tmp_path, parts))
    assert all(np.array_equal(array, values[name]) for name, array in arrays(dense).items())


OUTSIDE = ["../m.safetensors", "/m.safetensors", "a/m.safetensors", "..\\m.safetensors", "m.params", ""]


@pytest.mark.parametrize("part", OUTSIDE)
def test_an_index_names_files_beside_it_only(dense, part, tmp_path):
    before = arrays(dense)
    with pytest.raises(ArchiveError, match="not the name of a file beside it"):
        dense.load_parameters(index(tmp_path, {"0.weight": part}))
    assert all(np.array_equal(array, before[name]) for name, array in arrays(dense).items())


@pytest.mark.parametrize("parts", [None, [], {"a": 1}, "x"])
def test_what_is_no_index(dense, parts, tmp_path):
    with pytest.raises(ArchiveError, match="no weight_map"):
        dense.load_parameters(index(tmp_path, parts))


def test_an_index_of_tensors_that_are_not_there(dense, tmp_path):
    write_safetensors(tmp_path / "m.safetensors", {"a": np.ones(1)})
    with pytest.raises(ArchiveError, match="does not hold it"):
        dense.load_parameters(index(tmp_path, {"0.weight": "m.safetensors"}))
    with pytest.raises(FileNotFoundError):
        dense.load_parameters(index(tmp_path, {"0.weight": "gone.safetensors"}))
