"""hybridize() and optimize_for refuse values that a flag does not take, on every kind of Block; counts in log lines."""

import logging
import re

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics.errors import EngineUnavailable, HybridLabError, SettingError
from hybrid_lab.gluon import nn
from hybrid_lab.gluon.flags import FLAGS, MXNET_FLAGS

X = nd.ones((2, 3))


def layers(kind):
    net = kind()
    if kind is not empty:
        net.add(nn.Dense(2))
        net.initialize()
    return net


def empty():
    return nn.Sequential()


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("value", ["nonsense", 3.5, [1]], ids=repr)
@pytest.mark.parametrize("flag", [*FLAGS, *MXNET_FLAGS])
@pytest.mark.parametrize("kind", [nn.HybridSequential, nn.Sequential, empty])
def test_a_value_that_a_flag_does_not_take(kind, flag, value, active):
    net = layers(kind)
    with pytest.raises(HybridLabError, match=r"engine|takes|context|device|ctx") as caught:
        net.hybridize(active, **{flag: value})
    if value == "nonsense" and flag in ("engine", "backend"):
        assert isinstance(caught.value, EngineUnavailable) and "the engines are" in str(caught.value)
    if kind is nn.HybridSequential and flag not in ("clear", "partition_if_dynamic", "backend_opts"):
        with pytest.raises(HybridLabError):
            net.optimize_for(X, **{flag: value})


@pytest.mark.parametrize("kind", [nn.HybridSequential, nn.Sequential])
@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_backend_is_mxnets_name_of_the_engine(kind, engine):
    pytest.importorskip(engine)
    net = layers(kind)
    net.hybridize(backend=engine, backend_opts={"a": 1}, inline_limit=2)
    net(X)
    block = net if kind is nn.HybridSequential else net[0]
    assert block._flags["engine"] == engine and "backend" not in block._flags
    with pytest.raises(SettingError, match="both name the engine"):
        net.hybridize(engine="numpy" if engine == "onnxruntime" else "onnxruntime", backend=engine)


# -- counts in log lines -------------------------------------------------------------------------------------------


class WithConstants(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x + F.array([1.0, 2.0, 3.0]) * F.array([2.0, 2.0, 3.0])


class OneParameter(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.w = self.params.get("w", shape=(3,))

    def hybrid_forward(self, F, x, w):
        return x * w + F.array([1.0, 1.0, 1.0])


class Unused(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.used, self.unused = nn.Dense(3), nn.Dense(4)

    def hybrid_forward(self, F, x):
        self.unused(x)
        return self.used(x)


class Shared(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.first = nn.Dense(3, in_units=3)
            self.second = nn.Dense(3, in_units=3, params=self.first.params)

    def hybrid_forward(self, F, x):
        return self.second(self.first(x)) + F.array([1.0, 1.0, 1.0])


class Plain(gluon.Block):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.first, self.second = OneParameter(), WithConstants()

    def forward(self, x):
        return self.second(self.first(x))


@pytest.mark.parametrize("initialized", [True, False])
@pytest.mark.parametrize("called", [True, False])
@pytest.mark.parametrize(
    "kind", [WithConstants, OneParameter, Unused, Shared, Plain, nn.BatchNorm, lambda: nn.Dense(2)]
)
def test_saved_and_loaded_are_counted(kind, called, initialized, tmp_path, caplog):
    if called and not initialized and kind is not WithConstants:
        return  # a call needs values
    net = kind()
    if initialized:
        net.initialize()
    net.hybridize(engine="numpy")
    if called:
        net(X)
    path = tmp_path / "net.hlab"
    with caplog.at_level(logging.INFO, "hybrid_lab"):
        net.save(path)
        fresh = kind()
        fresh.load(path)
    saved, loaded = (next(text for text in caplog.messages if word in text) for word in (": saved ", ": loaded "))
    parameters = net.collect_params().values()
    with_values = sum(parameter._array is not None for parameter in parameters)
    assert f" {with_values} parameter{'s' if with_values != 1 else ''}" in saved
    without = len(parameters) - with_values
    assert (f"{without} parameter{'s' if without != 1 else ''} without values" in saved) == bool(without)
    assert f" {with_values} parameter{'s' if with_values != 1 else ''}" in loaded
    for text in (saved, loaded):
        for number, noun in re.findall(r"(-?\d+) (\w+)", text.split(" to /")[0].split(" from /")[0]):
            assert int(number) >= 0 and (noun == "of" or noun.endswith("s") == (number != "1")), text
    assert mx.diff(net, path) is not None
