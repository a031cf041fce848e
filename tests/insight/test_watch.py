"""watch_nan: the first NaN or infinity is found forward and backward, with its Block, operator, line and inputs."""

import copy
import gc
import inspect
import re
import weakref

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import HybridLabError, NonFiniteError
from hybrid_lab.gluon import nn
from hybrid_lab.hybridize.compiled_call import LARGE
from hybrid_lab.insight.states import blocks_below
from hybrid_lab.ndarray import backward as reverse
from hybrid_lab.ndarray.random_state import state

pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")

MODES = ["eager", "numpy", "onnxruntime", "torch"]

#: Operator -> its argument, at which the value is not finite.
FORWARD = {
    "log": -1.0,
    "log1p": -1.0,
    "log2": 0.0,
    "sqrt": -1.0,
    "rsqrt": 0.0,
    "reciprocal": 0.0,
    "exp": 1000.0,
    "expm1": 1000.0,
    "arcsin": 2.0,
    "arctanh": 1.0,
    "gamma": 0.0,
    "square": 1e30,
}
#: Operator -> its argument, at which the value is finite and the derivative is not.
BACKWARD = {"sqrt": 0.0, "cbrt": 0.0, "arcsin": 1.0, "arccosh": 1.0, "norm": 0.0}


class One(gluon.HybridBlock):
    """One operator between two others, at a line of its own."""

    def __init__(self, operator, **kwargs):
        super().__init__(**kwargs)
        self.operator = operator

    def hybrid_forward(self, F, x):
        y = F.identity(x)
        z = getattr(F, self.operator)(y)  # the line
        return F.identity(z)


def model(operator, mode):
    net = nn.HybridSequential(prefix="top_")
    net.add(nn.Flatten(), One(operator), nn.Flatten())
    if mode != "eager":
        net.hybridize(engine=mode)
    return net


def the_line(kind=One):
    lines, first = inspect.getsourcelines(kind)
    return first + next(index for index, text in enumerate(lines) if "# the line" in text)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operator", FORWARD)
def test_the_operator_of_a_forward(operator, mode):
    net = model(operator, mode)
    x = nd.array([[0.5, FORWARD[operator]]])
    net(nd.array([[0.5, 0.5]]))
    with mx.watch_nan(net), pytest.raises(NonFiniteError) as raised:
        net(x)
    error = raised.value
    assert (error.block, error.operator, error.part) == ("1", operator, "forward")
    assert error.location.line == the_line() and error.location.file == __file__
    assert "among 2 values" in str(error) and re.search(r"float32\[1,2\]: ", error.inputs[0])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operator", BACKWARD)
def test_the_operator_of_a_backward(operator, mode):
    net = model(operator, mode)
    x = nd.array([[BACKWARD[operator], BACKWARD[operator]]])
    x.attach_grad()
    with mx.watch_nan(net):
        net(x)
        with autograd.record():
            y = net(x) * 2
        with pytest.raises(NonFiniteError) as raised:
            y.backward()
    error = raised.value
    assert (error.block, error.operator, error.part) == ("1", operator, "backward")
    assert error.location.line == the_line() and error.inputs[-1].startswith("gradient float32")


@pytest.mark.parametrize("mode", MODES)
def test_draws_come_again(mode):
    """log(dropout(1)) is infinite where the mask is zero: as often in the search as in the call."""

    class Dropped(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.log(F.Dropout(x, p=0.5))

    net = Dropped()
    if mode != "eager":
        net.hybridize(engine=mode)
    with mx.watch_nan(net), autograd.train_mode():
        mx.random.seed(11)
        with pytest.raises(NonFiniteError) as raised:
            net(nd.ones((50,)))
        after = state.get_state()
        mx.random.seed(11)
        mask = nd.Dropout(nd.ones((50,)), p=0.5).asnumpy() == 0
    assert after == state.get_state()
    assert f"log gives {mask.sum()} infinite among 50 values" in str(raised.value)


class Loop(gluon.HybridBlock):
    """The bad value comes from a later step of a loop."""

    def hybrid_forward(self, F, x):
        def body(entry, states):
            new = F.sqrt(states - entry)  # the line
            return new, new

        return F.contrib.foreach(body, x, F.ones_like(F.sum(x, axis=0)))[0]


@pytest.mark.parametrize("mode", MODES[:2])
def test_inside_a_loop(mode):
    net = Loop()
    if mode != "eager":
        net.hybridize(engine=mode)
    with mx.watch_nan(net), pytest.raises(NonFiniteError) as raised:
        net(nd.array([[0.1], [0.2], [3]]))
    assert raised.value.operator == "sqrt" and raised.value.location.line == the_line(Loop)


class Masked(gluon.HybridBlock):
    """Infinities that are meant, and a result that is finite."""

    def hybrid_forward(self, F, x):
        mask = F.where(x > 0, F.zeros_like(x), F.log(F.zeros_like(x)))
        return F.softmax(x + mask)


class Both(gluon.HybridBlock):
    """As Masked; and a wrong value behind it."""

    def __init__(self):
        super().__init__()
        self.masked = Masked()

    def hybrid_forward(self, F, x):
        return F.log(self.masked(x) - 1)


@pytest.mark.parametrize("mode", MODES)
def test_infinities_that_do_not_reach_a_result_are_meant(mode):
    net = Both()
    if mode != "eager":
        net.hybridize(engine=mode)
    x = nd.array([[1, -1, 2]])
    with mx.watch_nan(net.masked):
        assert np.isfinite(net.masked(x).asnumpy()).all()
    with mx.watch_nan(net), pytest.raises(NonFiniteError) as raised:
        net(x)
    assert (raised.value.operator, raised.value.block) == ("log", "")


def test_nan_alone():
    net = model("log", "numpy")
    with mx.watch_nan(net, infinite=False):
        assert np.isinf(net(nd.array([[0.0]])).asnumpy()).all()
        with pytest.raises(NonFiniteError, match="1 NaN among 2 values"):
            net(nd.array([[-1.0, 1.0]]))


class Plain(gluon.Block):
    """Hybrid children in a plain Block, whose own code makes the bad value."""

    def __init__(self):
        super().__init__()
        self.body = nn.Dense(3)
        self.head = nn.Dense(1)

    def forward(self, x):
        y = self.body(x)
        z = nd.sqrt(y * 0)  # the line
        return self.head(z)


@pytest.mark.parametrize("hybridized", [False, True])
def test_the_code_of_a_plain_block(hybridized):
    net = Plain()
    net.initialize()
    net(nd.ones((2, 2)))
    net.hybridize(hybridized)
    with mx.watch_nan(net):
        with autograd.record():
            y = net(nd.ones((2, 2)))
        with pytest.raises(NonFiniteError) as raised:
            y.backward()
    error = raised.value
    assert (error.block, error.operator, error.location.line) == ("", "sqrt", the_line(Plain))
    assert "zeros 6 (100.0%)" in error.inputs[0]


@pytest.mark.parametrize("hybridized", [False, True])
def test_bad_parameters_and_inputs_are_told(hybridized):
    net = nn.HybridSequential()
    net.add(nn.Dense(2), nn.Dense(2))
    net.initialize()
    net(nd.ones((1, 2)))
    net.hybridize(hybridized)
    with mx.watch_nan(net):
        with pytest.raises(NonFiniteError, match="input 0 of .* holds 1 NaN among 2 values before the call"):
            net(nd.array([[np.nan, 1]]))
        net[1].weight.set_data(nd.array([[np.inf, 1], [1, 1]]))
        told = f"the parameter {net[1].weight.name} of .* holds 1 infinite"
        with pytest.raises(NonFiniteError, match=told) as raised:
            net(nd.ones((1, 2)))
    assert (raised.value.block, raised.value.parameter, raised.value.operator) == ("1", "weight", "")
    assert "create or load the model again" in str(raised.value)


@pytest.mark.parametrize("hybridized", [False, True])
def test_code_outside_of_the_models(hybridized):
    net = nn.Dense(2)
    net.initialize()
    net(nd.ones((1, 2)))
    net.hybridize(hybridized)
    with mx.watch_nan(net):
        with autograd.record():
            loss = nd.sqrt(net(nd.ones((1, 2))) * 0).sum()
        with pytest.raises(
            NonFiniteError, match="gradient of sqrt gives 2 infinite .* outside of the models"
        ) as raised:
            loss.backward()
        assert raised.value.block is None and raised.value.location.file == __file__
        with autograd.record():
            y = net(nd.ones((1, 2)))
        with pytest.raises(NonFiniteError, match="starts from is not finite"):
            y.backward(nd.array([[np.nan, 0]]))


def small(hybridized):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(3, 3), nn.BatchNorm(), nn.Activation("relu"), nn.Dropout(0.3), nn.Dense(1500), nn.Dense(4))
    net.initialize(mx.init.Normal(0.2))
    net(nd.ones((2, 1, 6, 6)))
    net.hybridize(hybridized)
    return net


@pytest.mark.parametrize("hybridized", [False, True])
def test_a_sound_training_is_not_changed(hybridized):
    """Weights after some steps, with the watch and without, to the last bit; nothing is left behind."""
    before = list(reverse.watchers)  # of other tests
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    data = np.random.RandomState(3).normal(size=(4, 2, 1, 6, 6)).astype(np.float32)

    def weights(watched):
        mx.random.seed(1)
        net = small(hybridized)
        assert net[4].weight.data().size * 4 > LARGE  # so that gradients are written in place
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
        watch = mx.watch_nan(net, loss) if watched else None
        for batch in data:
            with autograd.record():
                value = loss(net(nd.array(batch)), nd.array([0, 1]))
            value.backward()
            trainer.step(2)
        if watch is not None:
            assert watch.on
            watch.close()
            watch.close()
            assert not watch.on
        assert not any(block._forward_hooks or block._forward_pre_hooks for _, block in blocks_below(net))
        return [parameter.data().asnumpy() for parameter in net.collect_params().values()]

    for one, other in zip(weights(True), weights(False), strict=True):
        np.testing.assert_array_equal(one, other)
    assert reverse.watchers == before


def test_second_gradients_and_retained_graphs():
    net = small(True)
    x = nd.random.normal(shape=(2, 1, 6, 6))
    x.attach_grad()
    with mx.watch_nan(net):
        with autograd.record():
            y = net(x)
        y.backward(retain_graph=True)
        y.backward()
        cube = model("sqrt", "numpy")
        z = nd.array([[4.0]])
        z.attach_grad()
        with autograd.record():
            (first,) = autograd.grad(cube(z), [z], create_graph=True)
        first.backward()
        np.testing.assert_allclose(z.grad.asnumpy(), [[-1 / 32]])


@pytest.mark.parametrize("hybridized", [False, True])
def test_the_first_call_of_a_model_and_its_copies(hybridized):
    net = nn.HybridSequential()
    net.add(nn.Dense(3), One("log"))
    net.initialize(mx.init.One())
    net.hybridize(hybridized)
    with mx.watch_nan(net):
        assert net(nd.ones((2, 2))).shape == (2, 3)
        twin = copy.deepcopy(net)
        for each in (twin, net):
            with pytest.raises(NonFiniteError, match="log gives 6 NaN"):
                each(-nd.ones((2, 2)))


def test_a_model_that_is_watched_can_go():
    net = small(True)
    watch, weak = mx.watch_nan(net), weakref.ref(net)
    net(nd.ones((2, 1, 6, 6)))
    del net
    gc.collect()
    assert weak() is None and not watch.on
    watch.close()


def test_arguments():
    with pytest.raises(HybridLabError, match="name the models"):
        mx.watch_nan()
    with pytest.raises(HybridLabError, match="needs Blocks, not int"):
        mx.watch_nan(3)
    watch = mx.watch_nan(nn.Dense(2, prefix="d_"))
    assert repr(watch) == "<watch for NaN in d: on>"
    watch.close()
    assert repr(watch) == "<watch for NaN in d: off>"


def test_with_a_capture_inside():
    net = model("log", "numpy")
    with mx.watch_nan(net), mx.capture(net, "1"), pytest.raises(NonFiniteError, match="log gives 1 NaN"):
        net(nd.array([[-1.0]]))
