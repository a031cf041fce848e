"""Saving and loading whole models: the RFC's model, there and back, with and without its code."""

import doctest
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.diagnostics import ArchiveError, HybridLabError, LoadMismatchError
from hybrid_lab.gluon import nn

sys.path.insert(0, str(Path(__file__).parent))
import rfc_model  # noqa: E402

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def net():
    return rfc_model.called_net()


@pytest.fixture(scope="module")
def saved(net, tmp_path_factory):
    return Path(net.save(tmp_path_factory.mktemp("saved") / "rfc"))


def values(net):
    return {
        key: p.data().asnumpy().copy() for key, p in net._collect_params_with_prefix().items() if p._data is not None
    }


def equal(one, two):
    assert one.keys() == two.keys()
    return all(np.array_equal(one[key], two[key]) for key in one)


def test_the_members(saved):
    assert saved.name == "rfc.hlab"
    assert zipfile.ZipFile(saved).namelist() == [
        "tree.json",
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


def test_parameters_keep_their_identity_and_so_do_trainers(saved):
    other = rfc_model.called_net()
    before = dict(other._collect_params_with_prefix())
    trainer = gluon.Trainer([p for p in before.values() if p._data is not None], "sgd", {"learning_rate": 0.5})
    other.load(saved)
    assert all(before[key] is p for key, p in other._collect_params_with_prefix().items())
    loaded = values(other)
    with mx.autograd.record():
        loss = other(rfc_model.images(4)).square().sum()
    loss.backward()
    trainer.step(1, ignore_stale_grad=True)
    assert not np.array_equal(values(other)["head.out.weight"], loaded["head.out.weight"])


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


class Renamed(rfc_model.Inner):
    pass


class Changed(rfc_model.Net):
    """Another class in one place, a child less, a child more, another size, another dtype."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body.inner = Renamed()
            self.head.out = nn.Dense(4)
            self.shared.cast("float64")
            self.extra = nn.Dense(2)
        del self.unused


def test_one_error_lists_everything_and_nothing_is_loaded(saved):
    other = Changed()
    other.initialize()
    before = values(other)
    with pytest.raises(LoadMismatchError) as caught:
        other.load(saved)
    text = str(caught.value)
    for part in (
        "class: body.inner is a Inner in the file, a Renamed in the model",
        "missing block: unused (Dense)",
        "unexpected block: extra (Dense)",
        "shape: head.out.weight is (3, 6) in the file, (4, 0) in the model",
        "shape: head.out.bias is (3,) in the file, (4,) in the model",
        "dtype: shared.weight is float32 in the file, float64 in the model",
        "graph: head.out: the model has",
        "nothing was loaded",
        str(saved),
    ):
        assert part in text, text
    assert equal(values(other), before)


def test_without_strict_what_fits_is_loaded(net, saved):
    other = Changed()
    other.initialize()
    report = other.load(saved, strict=False)
    assert any("head.out.weight" in line for line in report.differences)
    assert np.array_equal(other.body.stem.weight.data().asnumpy(), net.body.stem.weight.data().asnumpy())
    assert other.head.out.bias.shape == (4,)


class OtherCode(rfc_model.Inner):
    def hybrid_forward(self, F, x):
        return F.sigmoid(self.norm(self.conv(x))) * 0.5


OtherCode.__name__ = "Inner"


class OtherNet(rfc_model.Net):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.body.name_scope():
            self.body.inner = OtherCode()

    def forward(self, x):
        return super().forward(x) + 1


OtherNet.__name__ = "Net"


def test_changed_code_is_a_difference_and_the_files_graph_may_win(net, saved):
    other = OtherNet()
    with pytest.raises(LoadMismatchError, match=r"graph: body\.inner: the model has '%\d = sigmoid"):
        other.load(saved)
    report = other.load(saved, graphs="file")
    assert any("forward()" in note for note in report.notes)
    expected = net(rfc_model.images()).asnumpy() + 1
    for active in (False, True):
        other.hybridize(active, engine="numpy") if active else None
        np.testing.assert_allclose(other(rfc_model.images()).asnumpy(), expected, rtol=1e-5)
    with other.body.name_scope():
        other.body.inner = OtherCode()
    other.body.inner.initialize()
    assert other.body._graphs.pinned == {}, "a replaced child gives the code its say again"


def test_code_that_does_not_trace_is_one_of_the_differences(saved):
    class Inner(rfc_model.Inner):
        def hybrid_forward(self, F, x):
            return x if x.shape[0] > 2 else x * 2

    other = rfc_model.Net()
    with other.body.name_scope():
        other.body.inner = Inner()
    with pytest.raises(LoadMismatchError, match="graph: body.inner: tracing the code raised.*HL101"):
        other.load(saved)


def test_a_different_sharing_is_a_difference(saved):
    other = rfc_model.Net()
    with other.head.name_scope():
        other.head.shared = nn.Dense(6)
    with pytest.raises(
        LoadMismatchError, match="sharing: shared and head.shared are one block in the file, two in the model"
    ):
        other.load(saved)


@pytest.mark.parametrize("engine", ["numpy", None])
def test_resuming_is_exact_to_the_bit(engine, tmp_path):
    def start():
        mx.random.seed(9)
        net = rfc_model.Net()
        net.initialize(mx.init.Xavier())
        net.hybridize(engine=engine)
        net(rfc_model.images(4))
        params = [p for p in net.collect_params().values() if p._data is not None]
        return net, gluon.Trainer(params, "adam", {"learning_rate": 0.01, "wd": 0.001})

    def train(net, trainer, steps):
        for step in steps:
            with mx.autograd.record():
                loss = net(rfc_model.images(4, seed=step)).square().sum()
            loss.backward()
            trainer.step(4, ignore_stale_grad=True)

    net, trainer = start()
    train(net, trainer, range(3))
    mx.save_cached_graphs(net, tmp_path / "step3", trainer=trainer, aux={"epoch": 3})
    train(net, trainer, range(3, 6))
    expected = values(net)

    for _ in range(11):
        nn.Dense(1)  # dense9 and dense10 come in another order, and so do a Trainer's parameters
    again, fresh = start()
    mx.random.seed(1)
    report = mx.load_cached_graphs(again, tmp_path / "step3", trainer=fresh)
    assert report.aux == {"epoch": 3} and fresh.learning_rate == 0.01
    train(again, fresh, range(3, 6))
    assert equal(values(again), expected)


def test_a_trainer_that_does_not_fit_is_a_difference(tmp_path):
    net = nn.Dense(2, in_units=2)
    net.initialize()
    mx.save_cached_graphs(net, tmp_path / "m", trainer=gluon.Trainer(net.collect_params(), "adam"))
    before = net.weight.data().asnumpy() + 1
    net.weight.set_data(before)
    other = gluon.Trainer([net.weight], "sgd")
    with pytest.raises(LoadMismatchError, match="trainer: 1 parameters in this Trainer, 2 in the file"):
        mx.load_cached_graphs(net, tmp_path / "m", trainer=other)
    with pytest.raises(LoadMismatchError, match="trainer: optimizer: SGD here, Adam in the file"):
        mx.load_cached_graphs(net, tmp_path / "m", trainer=gluon.Trainer(net.collect_params(), "sgd"))
    assert np.array_equal(net.weight.data().asnumpy(), before)
    report = mx.load_cached_graphs(net, tmp_path / "m")
    report.trainer_states.restore(gluon.Trainer(net.collect_params(), "adam"))


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A model and a Trainer after five updates, saved as run.hlab in the current folder; and a fresh pair."""
    monkeypatch.chdir(tmp_path)

    def start():
        net = nn.Dense(2, in_units=2)
        net.initialize()
        return net, gluon.Trainer(net.collect_params(), "adam")

    net, trainer = start()
    for _ in range(5):
        with mx.autograd.record():
            loss = net(mx.nd.ones((1, 2))).sum()
        loss.backward()
        trainer.step(1)
    mx.save_cached_graphs(net, "run", trainer=trainer, aux={"epoch": 3})
    return start()


def test_the_example_of_load_cached_graphs_is_true(trained):
    net, trainer = trained
    finder = doctest.DocTestFinder(recurse=False)
    (example,) = finder.find(mx.load_cached_graphs, globs={"net": net, "trainer": trainer})
    example.globs["load_cached_graphs"] = mx.load_cached_graphs
    failed, attempted = doctest.DocTestRunner().run(example)
    assert attempted == 5 and failed == 0


def test_a_trainer_takes_the_states_of_the_report(trained):
    net, trainer = trained
    report = net.load("run")
    assert str(report).endswith(
        "<trainer states: Adam after 5 updates of 2 parameters>: not restored; "
        "report.trainer_states.restore(trainer) does it"
    )
    trainer.set_states(report.trainer_states)
    assert trainer.optimizer.num_update == 5
    other = gluon.Trainer(net.collect_params(), "adam")
    report = net.load("run", trainer=other)
    assert report.restored and str(report).endswith("of 2 parameters>: restored")
    assert other.optimizer.num_update == 5


def test_the_save_line_counts_all_hybrid_blocks_and_names_those_never_called(tmp_path, caplog):
    class Heads(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Dense(2), nn.Dense(2)

        def hybrid_forward(self, F, x):
            return self.used(x)

    net = Heads()
    net.initialize()
    net.hybridize(engine="numpy")
    net(mx.nd.ones((1, 2)))
    caplog.clear()
    net.save(tmp_path / "m")
    saved, rest = (record.message for record in caplog.records)
    assert "saved 2 graphs of 2 of 3 HybridBlocks and 4 parameters to" in saved
    assert rest.endswith("without a graph, as never called: unused")
    net.unused(mx.nd.ones((1, 2)))
    caplog.clear()
    net.save(tmp_path / "m")
    (saved,) = (record.message for record in caplog.records if "saved" in record.message)
    assert "saved 3 graphs of 3 HybridBlocks and 4 parameters to" in saved
    assert "never called" not in caplog.text


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


def test_inputs_make_the_graphs_of_a_model_that_was_never_hybridized(tmp_path):
    net = rfc_model.Net()
    net.initialize()
    y = net(rfc_model.images())
    path = net.save(tmp_path / "eager", inputs=rfc_model.images())
    assert sum(name.startswith("graphs/") for name in zipfile.ZipFile(path).namelist()) == 9
    loaded = gluon.load(path)
    features = loaded.drop(loaded.body(rfc_model.images()))
    np.testing.assert_allclose(loaded.head((features, features * 2), None)["scores"].asnumpy(), y.asnumpy(), rtol=1e-5)


def test_a_model_that_only_ran_eagerly_is_saved_with_its_graphs_and_keeps_none(tmp_path):
    net = rfc_model.Net()
    net.initialize()
    net(rfc_model.images())
    path = net.save(tmp_path / "eager")
    assert sum(name.startswith("graphs/") for name in zipfile.ZipFile(path).namelist()) == 9
    assert net.body._graphs.graphs() == []


def test_code_that_does_not_trace_is_saved_without_its_graph(tmp_path, caplog):
    class Counting(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.dense = nn.Dense(2)

        def hybrid_forward(self, F, x):
            return self.dense(x) if x.shape[0] else x

    net = Counting()
    net.initialize()
    net(mx.nd.ones((1, 2)))
    path = net.save(tmp_path / "m")
    assert "graphs/dense.json" in zipfile.ZipFile(path).namelist()
    assert "graphs/__root__.json" not in zipfile.ZipFile(path).namelist()
    assert "no graph was saved of" in caplog.text and "HL101" in caplog.text


def test_a_hybrid_root_runs_whole_without_code(tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu"), nn.BatchNorm(), nn.HybridLambda(lambda F, x: F.tanh(x) * 2), nn.Dense(2))
    net.initialize()
    net.hybridize(engine="numpy", static_alloc=True)
    x = mx.nd.array(np.random.RandomState(0).rand(3, 5))
    y = net(x)
    path = net.save(tmp_path / "m.hlab")
    assert "graphs/__root__.json" in zipfile.ZipFile(path).namelist()
    loaded = gluon.load(path)
    assert np.array_equal(loaded(x).asnumpy(), y.asnumpy())
    assert loaded._active and loaded._flags["static_alloc"] is True
    loaded[0].weight.set_data(mx.nd.zeros((4, 5)))
    loaded.load(path)
    again = gluon.load(loaded.save(tmp_path / "again.hlab"))
    assert np.array_equal(again(x).asnumpy(), y.asnumpy())


def test_a_second_input_structure_and_guarded_graphs_are_variants(tmp_path):
    class TwoWays(gluon.HybridBlock):
        def forward(self, x, y=None):
            x = x + 1 if mx.autograd.is_training() else x * 3
            return x if y is None else x - y

    net = TwoWays()
    net.hybridize(engine="numpy")
    x = mx.nd.array([1.0, 2.0])
    net(x), net(x, x)
    with mx.autograd.train_mode():
        net(x)
    path = net.save(tmp_path / "m")
    assert [name for name in zipfile.ZipFile(path).namelist() if "graphs/" in name] == [
        "graphs/__root__.json",
        "graphs/__root__@2.json",
        "graphs/__root__@3.json",
    ]
    for loaded in (gluon.load(path), TwoWays()):
        loaded.load(path) if isinstance(loaded, TwoWays) else None
        assert loaded(x).asnumpy().tolist() == [3, 6] and loaded(x, x).asnumpy().tolist() == [2, 4]
        with mx.autograd.train_mode():
            assert loaded(x).asnumpy().tolist() == [2, 3]
    with mx.autograd.train_mode(), pytest.raises(HybridLabError, match="in training"):
        gluon.load(path)(x, x)


def test_graphs_for_recorded_calls_are_variants(tmp_path):
    class TwoWays(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x * 2 if mx.autograd.is_recording() else x * 3

    net = TwoWays()
    net.hybridize(engine="numpy")
    x = mx.nd.ones((1,))
    x.attach_grad()
    net(x)
    with mx.autograd.record(train_mode=False):
        net(x)
    path = net.save(tmp_path / "m")
    for loaded in (gluon.load(path), TwoWays()):
        loaded.load(path) if isinstance(loaded, TwoWays) else None
        with mx.autograd.record(train_mode=False):
            assert loaded(x).asscalar() == 2
        assert loaded(x).asscalar() == 3


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


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_damage_is_an_error_and_nothing_is_half_loaded(damage, saved, tmp_path):
    other = rfc_model.called_net()
    before = values(other)
    data = saved.read_bytes()
    path = tmp_path / "bad.hlab"
    for position in range(0, len(data), len(data) // 40):
        bad = bytearray(data)
        bad[position] ^= 4
        path.write_bytes(bytes(bad) if damage == "flip" else data[:position])
        for load in (lambda: other.load(path), lambda: gluon.load(path)):
            with pytest.raises(ArchiveError, match=r"bad\.hlab"):
                load()
    assert equal(values(other), before)


def test_the_summary(saved):
    from hybrid_lab.formats import archive

    found = archive.inspect(saved)
    assert (found["class"], found["blocks"], found["hybrid"], found["graphs"]) == ("Net", 11, 10, 9)
    assert found["without_graph"] == ["unused"] and not found["trainer"]
    archive.verify(saved)


def test_an_interrupt_while_values_are_set_leaves_all_of_them_set(net, saved, monkeypatch):
    other = rfc_model.called_net()
    for parameter in other.collect_params().values():
        if parameter._data is not None:
            parameter.set_data(parameter.data() + 1)
    calls, real = [], gluon.Parameter._load_init

    def interrupted(self, *args):
        calls.append(self)
        if len(calls) == 4:
            raise KeyboardInterrupt
        real(self, *args)

    monkeypatch.setattr(gluon.Parameter, "_load_init", interrupted)
    with pytest.raises(KeyboardInterrupt):
        other.load(saved)
    assert equal(values(other), values(net))


def test_a_failed_save_leaves_the_old_file(net, tmp_path, monkeypatch):
    path = Path(net.save(tmp_path / "m.hlab"))
    old = path.read_bytes()
    monkeypatch.setattr("hybrid_lab.formats.archive.container.ContainerWriter.finish", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        net.save(path)
    assert path.read_bytes() == old and list(tmp_path.iterdir()) == [path]


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


def test_an_example_that_does_not_come_out_is_refused(net, tmp_path, monkeypatch):
    monkeypatch.setattr("hybrid_lab.formats.archive.examples._numbers", lambda shape, dtype: np.full(shape, 0.5, dtype))
    real = __import__("hybrid_lab.formats.archive.examples", fromlist=["run"]).run
    monkeypatch.setattr("hybrid_lab.formats.archive.examples.run", lambda *args: [y + 0.1 for y in real(*args)])
    path = net.save(tmp_path / "lies")
    monkeypatch.setattr("hybrid_lab.formats.archive.examples.run", real)
    with pytest.raises(LoadMismatchError, match="graphs/body.json: output 0 of its example differs"):
        gluon.load(path)
