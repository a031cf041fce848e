"""Saving and loading whole models: the RFC's model, there and back, with and without its code."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import rfc_model

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.diagnostics import HybridLabError, LoadMismatchError
from hybrid_lab.diagnostics.errors import MissingGraphError
from hybrid_lab.gluon import nn

HERE = Path(__file__).parents[1]


def test_the_members(saved):
    assert saved.name == "rfc.hlab"
    assert zipfile.ZipFile(saved).namelist() == [
        "tree.json",
        "calls.json",
        "graphs/shared.json",
        "graphs/body.json",
        "graphs/body.stem.json",
        "graphs/body.inner.json",
        "graphs/body.inner.conv.json",
        "graphs/body.inner.norm.json",
        "graphs/drop.json",
        "graphs/head.json",
        "graphs/head.out.json",
        "weights.safetensors",
        "histograms.safetensors",
        "examples/examples.safetensors",
        "manifest.json",
    ]


def test_saving_twice_gives_the_same_bytes(net, saved, tmp_path):
    assert Path(net.save(tmp_path / "again.hlab")).read_bytes() == saved.read_bytes()


def test_a_second_instance_loads_it(net, saved):
    other = rfc_model.Net()
    assert other.shared.prefix != net.shared.prefix
    report = other.load(saved)
    assert (report.graphs, report.differences, report.notes) == (9, [], [])
    y, wanted = other(rfc_model.images()).asnumpy(), net(rfc_model.images()).asnumpy()
    # The engine has packed the weights of the one that was called before: it may round otherwise.
    np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())
    assert other.unused.weight._data is None and other.unused.weight.shape == (5, 0)


@pytest.fixture(scope="module")
def golden(net, tmp_path_factory):
    path = tmp_path_factory.mktemp("golden") / "golden.npz"
    arrays = {}
    for suffix, count in (("", 2), ("_big", 7)):
        x = rfc_model.images(count)
        y, gradients = rfc_model.forward_and_gradients(net, x)
        arrays |= {f"x{suffix}": x.asnumpy(), f"y{suffix}": y}
        arrays |= {f"grad{suffix}:{key}": gradient for key, gradient in gradients.items()}
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("how", ["without code", "with raising code"])
def test_a_fresh_process_gives_outputs_gradients_and_another_batch_size(how, saved, golden, tmp_path):
    script = HERE / "reload_in_fresh_process.py"
    folder = tmp_path if how == "without code" else HERE
    shutil.copy(script, tmp_path)
    env = {**os.environ, "RFC_MODEL": "broken", "PYTHONPATH": f"{HERE.parents[1]}{os.pathsep}{folder}"}
    command = [sys.executable, tmp_path / script.name, how, saved, golden]
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "ok", done.stderr[-3000:]


def test_part_of_a_file_and_moved_blocks(net, saved):
    body = rfc_model.Body(nn.Dense(6))
    body.load(saved, subtree="body")
    x = rfc_model.images()
    np.testing.assert_allclose(body(x).asnumpy(), net.body(x).asnumpy(), rtol=1e-5)

    class Moved(gluon.Block):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            inner = rfc_model.Net()
            self.shared, self.backbone, self.drop, self.head = inner.shared, inner.body, inner.drop, inner.head
            self.unused = inner.unused

    Moved.__name__ = "Net"
    moved = Moved()
    with pytest.raises(LoadMismatchError, match="missing block: body.*\n.*unexpected block: backbone"):
        moved.load(saved)
    moved.load(saved, map={"body": "backbone"})
    np.testing.assert_allclose(moved.backbone(x).asnumpy(), net.body(x).asnumpy(), rtol=1e-5)
    with pytest.raises(HybridLabError, match="'bodi', which is not in the file; it has body"):
        moved.load(saved, map={"bodi": "backbone"})


def test_the_summary(saved):
    from hybrid_lab.formats import archive

    found = archive.inspect(saved)
    assert (found["class"], found["blocks"], found["hybrid"], found["graphs"]) == ("Net", 11, 10, 9)
    assert found["without_graph"] == ["unused"] and not found["trainer"]
    archive.verify(saved)


def test_the_default_name(net, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert mx.save_cached_graphs(net) == str(tmp_path / f"{net.name}.hlab")
    assert mx.load_cached_graphs(net).graphs == 9


def test_a_model_without_values_is_saved_as_such(tmp_path):
    net = rfc_model.Net()
    path = net.save(tmp_path / "raw")
    loaded = gluon.load(path)
    assert loaded.body.stem.weight.shape == (4, 0, 3, 3)
    with pytest.raises(NotImplementedError, match="not called before the model was saved"):
        loaded.body(rfc_model.images())


def test_shared_parameters_and_constants(tmp_path):
    class Tied(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.a = nn.Dense(3, in_units=3)
                self.b = nn.Dense(3, in_units=3, params=self.a.params)
                self.table = self.params.get_constant("table", [[1.0, 2.0, 3.0]])

        def hybrid_forward(self, F, x, table):
            return F.broadcast_add(self.b(self.a(x)), table) + F.array(np.float32([0.1, 0.2, 0.3]))

    net = Tied()
    net.initialize()
    net.hybridize(engine="numpy")
    y = net(mx.nd.ones((1, 3)))
    path = net.save(tmp_path / "m")
    loaded = gluon.load(path)
    assert loaded.a.weight is loaded.b.weight and isinstance(loaded.table, gluon.Constant)
    np.testing.assert_allclose(loaded(mx.nd.ones((1, 3))).asnumpy(), y.asnumpy(), rtol=1e-6)
    other = Tied()
    other.load(path)
    assert np.array_equal(other(mx.nd.ones((1, 3))).asnumpy(), y.asnumpy())


def test_any_name_of_a_child(tmp_path):
    class Odd(gluon.Block):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            for name in ("a.b", "a/b", "größe", "__root__", "..", "0", "a b"):
                self.register_child(nn.Dense(2, in_units=2), name)

        def forward(self, x):
            for child in self._children.values():
                x = child(x)
            return x

    net = Odd()
    net.initialize()
    net.hybridize(engine="numpy")
    y = net(mx.nd.ones((1, 2)))
    path = net.save(tmp_path / "odd")
    assert {name for name in zipfile.ZipFile(path).namelist() if "graphs/" in name} >= {
        "graphs/a%2Eb.json",
        "graphs/a%2Fb.json",
        "graphs/gr%C3%B6%C3%9Fe.json",
        "graphs/%5F_root__.json",
    }
    loaded, other = gluon.load(path), Odd()
    assert list(loaded._children) == list(net._children)
    other.load(path)
    assert np.array_equal(other(mx.nd.ones((1, 2))).asnumpy(), y.asnumpy())


def test_users_own_values(tmp_path):
    net = nn.Dense(2, in_units=2)
    net.initialize()
    states = {
        "epoch": 7,
        "best": 0.1 + 0.2,
        "nan": float("nan"),
        "big": 2**80,
        "history": [1.5, (None, True, "ü")],
        3: {"array": np.arange(3, dtype="int8"), "nd": mx.nd.ones((2, 1)), "scalar": np.float32(2.5)},
    }
    net.save_states(tmp_path / "a", states)
    found = net.load_states(tmp_path / "a")
    assert found["history"] == states["history"] and found["big"] == 2**80 and found["best"] == states["best"]
    assert np.isnan(found["nan"]) and list(found) == list(states)
    assert found[3]["array"].tolist() == [0, 1, 2] and found[3]["array"].dtype == np.int8
    assert isinstance(found[3]["nd"], mx.nd.NDArray) and found[3]["scalar"] == np.float32(2.5)
    with pytest.raises(HybridLabError, match=r"aux\['f'\]\[0\] is a function"):
        net.save_states(tmp_path / "b", {"f": [len.__call__ and (lambda: 0)]})
    assert not (tmp_path / "b.hlab").exists()


def test_without_a_path_only_an_archive_is_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = nn.Dense(2, in_units=2, prefix="net_")
    net.initialize()
    assert mx.save_cached_graphs(net) == mx.save_cached_graphs(net) == str(tmp_path / "net.hlab")
    for content in (b"", b"notes", b"PK\3\4"):
        (tmp_path / "net.hlab").write_bytes(content)
        with pytest.raises(HybridLabError, match="not an intact archive"):
            mx.save_cached_graphs(net)
        assert (tmp_path / "net.hlab").read_bytes() == content
    net.save("net.hlab")
    assert mx.save_cached_graphs(net)


def test_parameters_of_an_opened_model_are_in_the_order_of_the_saved_one(tmp_path):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(3, activation="relu"), gluon.nn.BatchNorm(), gluon.nn.Dense(2))
    net.initialize()
    net(mx.nd.ones((2, 4)))
    net.save(tmp_path / "net.hlab")
    assert list(gluon.load(tmp_path / "net.hlab").collect_params()) == list(net.collect_params())


class Masked(gluon.HybridBlock):
    """Its code has defaults, which the file does not know."""

    def hybrid_forward(self, F, x, mask=None, scale=None):
        x = x if mask is None else x * mask
        return x if scale is None else x * scale


def test_arguments_that_were_none_may_be_left_out(tmp_path):
    net, x = Masked(), mx.nd.array([[1, 2], [3, 4]])
    net.hybridize()
    net(x, None, None)
    net(x, x)
    net.save(tmp_path / "net.hlab")
    again = gluon.load(tmp_path / "net.hlab")
    for active in (False, True):
        again.hybridize(active)
        for args in ((x,), (x, None), (x, None, None)):
            np.testing.assert_array_equal(again(*args).asnumpy(), x.asnumpy())
        np.testing.assert_array_equal(again(x, x, None).asnumpy(), (x * x).asnumpy())
        with pytest.raises(MissingGraphError, match="takes"):
            again(x, None, x)


class Scaled(gluon.HybridBlock):
    def hybrid_forward(self, F, x, scale=5):
        return x * (7 if scale is None else scale)


def test_none_stands_for_no_other_default(tmp_path):
    net, x = Scaled(), mx.nd.ones((1,))
    net.hybridize()
    net(x, None)
    net.save(tmp_path / "net.hlab")
    again = Scaled()
    again.load(tmp_path / "net.hlab", graphs="file")
    assert again(x, None).asscalar() == 7
    with pytest.raises(MissingGraphError, match="takes"):
        again(x)


class OwnNorm(nn.BatchNorm):
    """A subclass, which is no registered layer."""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_models_without_code_cast_as_the_saved_one(tmp_path, dtype):
    """Every BatchNorm keeps its parameters in float32, as rounded by nothing, where the model becomes narrower."""
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(OwnNorm(), gluon.contrib.nn.SyncBatchNorm(), nn.BatchNorm(), nn.BatchNormReLU(), nn.Conv2D(2, 1))
        net.add(nn.LayerNorm())
    net.initialize(mx.init.Uniform(1.0))
    net.hybridize()
    x = mx.nd.random.normal(shape=(2, 3, 4, 4))
    with mx.autograd.record():
        net(x)
    net.save(tmp_path / "net.hlab")
    symbol, params = net.export(str(tmp_path / "net"))
    opened, imported = gluon.load(tmp_path / "net.hlab"), gluon.SymbolBlock.imports(symbol, ["data"], params)
    for block in (net, opened, imported):
        block.cast(dtype)
    values = {name: parameter.data() for name, parameter in net.collect_params().items()}
    assert sum(np.dtype(value.dtype) == np.float32 for value in values.values()) == (0 if dtype == "float64" else 16)
    for block in (opened, imported):
        assert {name: parameter.dtype for name, parameter in block.collect_params().items()} == {
            name: parameter.dtype for name, parameter in net.collect_params().items()
        }
        for name, value in values.items():
            np.testing.assert_array_equal(block.collect_params()[name].data().asnumpy(), value.asnumpy())
        np.testing.assert_array_equal(block(x.astype(dtype)).asnumpy(), net(x.astype(dtype)).asnumpy())
