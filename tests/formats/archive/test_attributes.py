"""Attributes of Blocks: SINGA's whole-model save, in which a model comes back with its attributes."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, lr_scheduler, metric, nd
from hybrid_lab.diagnostics import ArchiveError, LoadMismatchError
from hybrid_lab.formats.archive import attributes
from hybrid_lab.gluon import nn
from hybrid_lab.gluon.files.registering import load_layers

Sizes = namedtuple("Sizes", "height width")


class Part(gluon.HybridBlock):
    def __init__(self, units=4):
        super().__init__()
        self.units = units
        self.scale = 2.0
        self.dense = nn.Dense(units)

    def hybrid_forward(self, F, x):
        return self.dense(x) * self.scale


class Model(gluon.HybridBlock):
    """Attributes of all kinds that are data, in a parent and in a child."""

    def __init__(self):
        super().__init__()
        self.part = Part()
        self.step = 0
        self.cfg = {"lr": 0.1, "sizes": [1, 2]}
        self.history = []
        self.mean = np.zeros(3)
        self.ema = nd.zeros((2,))
        self.best = None
        self.sizes = Sizes(1, 2)
        self.metric = metric.Accuracy()
        self.layers = [self.part.dense]
        self.trainer = None

    def hybrid_forward(self, F, x):
        return self.part(x)

    def train(self, x, number=1):
        if self.trainer is None:
            schedule = lr_scheduler.FactorScheduler(2, 0.5)
            settings = {"learning_rate": 0.1, "momentum": 0.9, "lr_scheduler": schedule}
            self.trainer = gluon.Trainer(self.collect_params(), "sgd", settings)
        for _ in range(number):
            with autograd.record():
                loss = (self(x) ** 2).mean()
            loss.backward()
            self.trainer.step(1)
            self.step += 1
            self.history.append(float(loss.asscalar()))
        return self.history


class Plain(gluon.Block):
    def __init__(self):
        super().__init__()
        self.inner = Model()
        self.note = "plain"

    def forward(self, x):
        return self.inner(x)


@pytest.fixture
def x():
    return nd.array(np.random.RandomState(0).rand(2, 3))


@pytest.fixture
def m(x):
    m = Model()
    m.initialize(mx.init.Xavier())
    m.hybridize()
    m.train(x, 3)
    m.mean += 5
    m.ema[:] = 7
    m.best = ("epoch", 2)
    m.metric.update(nd.array([1.0]), nd.array([[0.0, 1.0]]))
    m.part.note = "inside"
    return m


def check(loaded, m):
    assert loaded.step == 3 and loaded.history == m.history and loaded.best == ("epoch", 2)
    assert loaded.cfg == m.cfg and np.array_equal(loaded.mean, m.mean) and loaded.sizes == m.sizes
    assert type(loaded.sizes) is Sizes and type(loaded.ema) is nd.NDArray and loaded.ema.asnumpy().tolist() == [7, 7]
    assert loaded.metric.get() == m.metric.get() and loaded.part.note == "inside"


def test_without_code(m, x, tmp_path):
    loaded = gluon.load(m.save(tmp_path / "m"))
    check(loaded, m)
    assert loaded.part.units == 4 and loaded.part.scale == 2.0
    assert loaded.layers[0] is loaded.part.dense
    # The Trainer goes on where it was, with the schedule and the momentum.
    assert loaded.trainer.optimizer.num_update == 3 and loaded.trainer.learning_rate == m.trainer.learning_rate
    wanted = m.train(x, 2)
    with autograd.record():
        loss = (loaded(x) ** 2).mean()
    loss.backward()
    loaded.trainer.step(1)
    np.testing.assert_allclose(float(loss.asscalar()), wanted[3], rtol=1e-5)
    np.testing.assert_allclose(float((loaded(x) ** 2).mean().asscalar()), wanted[4], rtol=1e-5)


def test_into_a_model(m, x, tmp_path):
    path = m.save(tmp_path / "m")
    other = Model()
    report = other.load(path)
    check(other, m)
    assert report.attributes[""]["step"] == 3 and report.attributes["part"]["units"] == 4 and not report.notes
    assert other.layers[0] is other.part.dense
    assert other.train(x, 2) == m.train(x, 2)


def test_a_live_trainer_goes_on(m, x, tmp_path):
    """The Trainer that the model has already stays the same object and takes the file's states."""
    path = m.save(tmp_path / "m")
    other = Model()
    other.initialize()
    other.train(x)
    trainer = other.trainer
    other.load(path)
    assert other.trainer is trainer and trainer.optimizer.num_update == 3
    assert other.train(x, 2) == m.train(x, 2)


def test_inside_a_plain_block(x, tmp_path):
    top = Plain()
    top.initialize()
    top(x)
    top.inner.step, top.note = 8, "changed"
    path = top.save(tmp_path / "m")
    loaded, other = gluon.load(path), Plain()
    other.load(path)
    for found in (loaded, other):
        assert found.inner.step == 8 and found.note == "changed"


def test_library_layers_and_containers(x, tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Dense(2), nn.Dense(3))
    net.initialize()
    net(x)
    net.step, net[1].tag = 5, "head"
    path = net.save(tmp_path / "m")
    loaded = gluon.load(path)
    assert loaded.step == 5 and loaded[1].tag == "head"
    other = nn.HybridSequential()
    other.add(nn.Dense(2), nn.Dense(3))
    other.load(path)
    assert other.step == 5 and other[1].tag == "head"


def test_what_this_package_keeps_on_blocks_is_no_attribute():
    """Every registered layer and every network of the zoo: the attributes that they set themselves are not written."""
    load_layers()
    found = set()

    def collect(block):
        found.update((type(block).__name__, name) for name, _ in attributes.of(block))

    choices = ((), (2,), (2, 3), ("relu",), ("batch",), ((2, 4, 4), 2, 3, 3))
    made = 0
    for cls in nn.registry.classes().values():
        for arguments in choices if cls.__module__.startswith("hybrid_lab.") else ():
            try:
                layer = cls(*arguments)
            except Exception:
                continue
            made += 1
            collect(layer)
            break
    for name in ("resnet18_v1", "resnet18_v2", "mobilenet0.25", "densenet121", "inceptionv3", "squeezenet1.0"):
        gluon.model_zoo.vision.get_model(name).apply(collect)
    assert not found and made > 70


def test_calls_add_no_attribute(x):
    net = nn.HybridSequential()
    net.add(nn.Dense(2), gluon.rnn.HybridSequentialRNNCell(), nn.BatchNorm())
    del net._children["1"]
    net.initialize()
    net.hybridize()
    with autograd.record():
        net(x)
    mx.explain(net)
    net.register_forward_hook(lambda *args: None)
    net(x)
    assert [*attributes.of(net)] == [*attributes.of(net[0])] == []


class Setting(gluon.HybridBlock):
    """`scale` is a setting that the graph depends on; `step` is not read by forward."""

    def __init__(self, scale=2.0):
        super().__init__()
        self.scale, self.step = scale, 0

    def hybrid_forward(self, F, x):
        return self._scaled(x)

    def _scaled(self, x):
        return x * self.scale

    def describe(self):
        return f"at {self.step}"


def test_a_setting_of_the_code_is_not_overwritten(x, tmp_path, caplog):
    """Never called, so that no graph tells the difference."""
    net = Setting(3.0)
    net.step = 4
    path = net.save(tmp_path / "m")
    live = Setting()
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        report = live.load(path)
    assert (live.scale, live.step) == (2.0, 4)
    (note,) = report.notes
    assert note.startswith("attribute self.scale: 2.0 in the model, 3.0 in the file; the model's stays")
    assert note in caplog.text
    assert live(x).asnumpy() == pytest.approx(x.asnumpy() * 2)
    report = live.load(path, attributes="file")
    assert live.scale == 3.0 and "which was taken" in report.notes[0]
    assert live(x).asnumpy() == pytest.approx(x.asnumpy() * 3)
    live = Setting()
    live.load(path, attributes="code")
    assert (live.scale, live.step) == (2.0, 0)


def test_a_setting_that_makes_graphs_differ_is_named_in_the_error(x, tmp_path):
    net, other = Part(), Part()
    net.initialize()
    net(x)
    net.scale = 3.0
    net.save(tmp_path / "m")
    said = r"self\.scale: 2\.0 in the model, 3\.0 in the file.*attributes='file' takes the file's"
    with pytest.raises(LoadMismatchError, match=said):
        other.load(tmp_path / "m")
    assert other.load(tmp_path / "m", attributes="file") and other.scale == 3.0


def test_the_files_settings_are_taken_before_graphs_are_compared(x, tmp_path):
    net = Setting(3.0)
    net.hybridize()
    net(x)
    path = net.save(tmp_path / "m")
    live = Setting()
    live.hybridize()
    live(x)
    with pytest.raises(LoadMismatchError):
        live.load(path)
    assert (live.scale, live.step) == (2.0, 0)
    live.load(path, attributes="file")
    assert live.scale == 3.0 and live(x).asnumpy() == pytest.approx(x.asnumpy() * 3)


def test_a_failed_load_changes_no_attribute(m, x, tmp_path):
    path = m.save(tmp_path / "m")
    other = Model()
    other.part = Part(5)
    other.initialize()
    other.train(x)
    before = {name: (id(value), repr(value)) for name, value in attributes.of(other)}
    momentum = [array.asnumpy() for array in other.trainer._updaters[0].states.values()]
    for choice in ("state", "file"):
        with pytest.raises(LoadMismatchError):
            other.load(path, attributes=choice)
        assert {name: (id(value), repr(value)) for name, value in attributes.of(other)} == before
        after = [array.asnumpy() for array in other.trainer._updaters[0].states.values()]
        assert all(map(np.array_equal, momentum, after)) and other.trainer.optimizer.num_update == 1


class Tokenizer:
    pass


def test_one_warning_names_what_is_no_data(m, tmp_path, caplog):
    m.tokenizer, m.part.fn = Tokenizer(), len
    m.cfg["hook"] = lambda: None
    m.blocks = [nn.Dense(2)]
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        path = m.save(tmp_path / "m")
    (message,) = [each.getMessage() for each in caplog.records if "no data" in each.getMessage()]
    for part in (
        "self.tokenizer (Tokenizer)",
        "part.fn (builtin_function_or_method)",
        "self.cfg['hook'] (function)",
        "self.blocks[0] (Dense)",
    ):
        assert part in message
    loaded = gluon.load(path)
    assert loaded.step == 3 and not hasattr(loaded, "tokenizer") and not hasattr(loaded, "cfg")


def test_data_gives_no_warning(m, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        m.save(tmp_path / "m")
    assert not [each for each in caplog.records if "no data" in each.getMessage()]


def test_in_a_fresh_process(m, tmp_path):
    path = m.save(tmp_path / "m", aux={"trainer": m.trainer, "weight": m.part.dense.weight})
    program = f"""
import logging
from hybrid_lab import gluon
net, aux = gluon.load({path!r}, with_aux=True)
assert aux["weight"] is net.part.dense.weight
print(net.step, net.sizes, net.metric.get()[1], net.trainer.optimizer.num_update, aux["trainer"].learning_rate)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"3 Sizes(height=1, width=2) 1.0 3 {m.trainer.learning_rate}"


@gluon.register
class Registered(gluon.HybridBlock):
    def __init__(self, units=2):
        super().__init__()
        self.units, self.step = units, 0
        self.dense = nn.Dense(units)

    def hybrid_forward(self, F, x):
        return self.dense(x)


def test_a_registered_class(x, tmp_path):
    net = Registered(units=5)
    net.initialize()
    net(x)
    net.step = 9
    path = net.save(tmp_path / "m")
    for loaded in (gluon.load(path), Registered(path)):
        assert type(loaded) is Registered and (loaded.units, loaded.step) == (5, 9)


def test_attributes_cannot_replace_methods(x, tmp_path):
    """A name that means something else where the file is opened stays what it is there."""
    net = Registered()
    net.initialize()
    net(x)
    vars(net)["forward"] = vars(net)["collect_params"] = 5
    vars(net)["dense_"] = 1
    path = net.save(tmp_path / "m")
    loaded = gluon.load(path)
    assert callable(loaded.collect_params) and callable(loaded.forward) and loaded.dense_ == 1
    live = Registered()
    live.load(path)
    assert callable(live.collect_params) and live.dense_ == 1


def test_a_damaged_attribute(m, tmp_path, monkeypatch):
    from hybrid_lab.formats.archive import values

    monkeypatch.setattr(values.Encoder, "encode", lambda self, value, where="": {"nonsense": 1})
    path = m.save(tmp_path / "m")
    monkeypatch.undo()
    other = Model()
    for load in (gluon.load, other.load):
        with pytest.raises(ArchiveError, match=r"the attribute '\w+' of block.*is not a value"):
            load(path)
    assert other.step == 0


def test_diff_notes_attributes(m, x, tmp_path):
    """They are no difference of what the models compute, which is what a diff is about."""
    first = m.save(tmp_path / "a")
    assert mx.diff(first, m).notes == mx.diff(first, first).notes == []
    m.step, m.best, m.part.tag = 4, None, np.ones(2)
    m.ema[:] = 8
    second = m.save(tmp_path / "b")
    for other in (second, m):
        found = mx.diff(first, other)
        text = "\n".join(found.notes)
        assert "attribute self.step: 3 became 4" in text and "attribute part.tag: not there became" in text
        assert "attribute self.best: ('epoch', 2) became None" in text
        assert "attribute self.ema" in text and "self.cfg" not in text and not found
    m.trainer.set_learning_rate(0.5) if m.trainer.optimizer.lr_scheduler is None else m.train(x)
    assert "attribute self.trainer: another value" in mx.diff(second, m).notes


def test_diff_with_a_file_of_an_older_version(tmp_path, monkeypatch):
    from hybrid_lab.formats.archive import container

    net = Setting()
    net.step = 7
    monkeypatch.setattr(container, "SCHEMA", (1, 1))
    path = net.save(tmp_path / "m")
    monkeypatch.undo()
    net.step = 8
    assert "attribute" not in str(mx.diff(path, net))
