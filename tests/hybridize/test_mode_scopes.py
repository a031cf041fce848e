"""`with autograd.pause():` and its like inside hybrid_forward: the graph does what the eager call does."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import HybridizeError, autograd, gluon, nd
from hybrid_lab.gluon import nn

SCOPES = {
    "pause": lambda: autograd.pause(),
    "pause in training": lambda: autograd.pause(train_mode=True),
    "record": lambda: autograd.record(),
    "record in prediction": lambda: autograd.record(train_mode=False),
    "train_mode": lambda: autograd.train_mode(),
    "predict_mode": lambda: autograd.predict_mode(),
}


class Scoped(nn.HybridBlock):
    """y = dropout(2 x) * x, with the dropout inside the scope."""

    def __init__(self, scope, **kwargs):
        super().__init__(**kwargs)
        self._scope = scope

    def hybrid_forward(self, F, x):
        with self._scope():
            y = F.Dropout(x * 2, p=0.5)
        return y * x


def run(net, x, record, train_mode=True):
    """Output and gradient of a call with the same random numbers each time."""
    mx.random.seed(7)
    x.attach_grad()
    if not record:
        return net(x).asnumpy(), x.grad.asnumpy()
    with autograd.record(train_mode):
        y = net(x)
    y.backward()
    return y.asnumpy(), x.grad.asnumpy()


def assert_same_in_both_modes(net, x, **call):
    eager = run(net, x, **call)
    net.hybridize(engine="numpy")
    compiled = run(net, x, **call)
    net.hybridize(False)
    for one, other in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("call", [{"record": False}, {"record": True}, {"record": True, "train_mode": False}], ids=str)
def test_a_graph_has_the_gradient_and_the_dropout_of_the_eager_call(scope, call):
    assert_same_in_both_modes(Scoped(SCOPES[scope]), nd.arange(1, 65), **call)


def test_no_gradient_goes_through_what_is_paused():
    net = Scoped(SCOPES["pause"])
    net.hybridize(engine="numpy")
    x = nd.array([1.0, 2.0, 3.0])
    _, gradient = run(net, x, record=True)
    assert gradient.tolist() == [2.0, 4.0, 6.0]  # of 2x * x only the second factor counts


def test_record_inside_pause_computes_gradients_again():
    class Net(nn.HybridBlock):
        def hybrid_forward(self, F, x):
            with autograd.pause():
                a = x * 2
                with autograd.record():
                    b = a * x
            return b + x

    assert_same_in_both_modes(Net(), nd.array([1.0, 2.0]), record=True)


@pytest.mark.parametrize("scope", ["pause", "predict_mode"])
def test_batch_norm_in_a_scope_uses_the_running_statistics_and_leaves_them(scope):
    class Net(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm(in_channels=3)

        def hybrid_forward(self, F, x):
            with SCOPES[scope]():
                y = self.norm(x)
            return y * x

    net = Net()
    net.initialize()
    x = nd.random.normal(shape=(4, 3))
    assert_same_in_both_modes(net, x, record=True)
    assert net.norm.running_mean.data().asnumpy().tolist() == [0.0, 0.0, 0.0]


def test_train_mode_around_batch_norm_is_refused_only_in_a_call_that_predicts():
    class Net(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm(in_channels=3)

        def hybrid_forward(self, F, x):
            with autograd.train_mode():
                return self.norm(x)

    net = Net()
    net.initialize()
    net.hybridize(engine="numpy")
    x = nd.random.normal(shape=(4, 3))
    with autograd.record():
        assert abs(net(x).asnumpy().mean()) < 1e-6
    with pytest.raises(HybridizeError, match=r"train_mode\(\)` sets the mode of F.BatchNorm") as caught:
        net(x)
    assert caught.value.code == "HL175" and caught.value.location.file == __file__


def test_a_block_called_under_pause_gets_no_gradient_and_one_called_later_does():
    class Net(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.target, self.head = nn.Dense(3, in_units=3), nn.Dense(3, in_units=3)

        def hybrid_forward(self, F, x):
            with autograd.pause():
                target = self.target(x)
            return self.head(target) * target

    net = Net()
    net.initialize(mx.init.Xavier())
    assert_same_in_both_modes(net, nd.ones((2, 3)), record=True)
    net.hybridize(engine="numpy")
    run(net, nd.ones((2, 3)), record=True)
    assert not net.target.weight.grad().asnumpy().any() and net.head.weight.grad().asnumpy().any()
    assert "BlockGrad" not in str(net.head._graph_calls.neutral), "the child's own graph has no BlockGrad"


def test_the_mode_inside_a_scope_is_the_scopes():
    class Net(nn.HybridBlock):
        def hybrid_forward(self, F, x):
            with autograd.pause():
                factor = 2 if autograd.is_training() or autograd.is_recording() else 3
            return x * factor

    assert_same_in_both_modes(Net(), nd.ones((2,)), record=True)
    assert_same_in_both_modes(Net(), nd.ones((2,)), record=False)


def test_pause_around_and_inside_a_loop():
    class Net(nn.HybridBlock):
        def hybrid_forward(self, F, x):
            with autograd.pause():
                double = x * 2

            def step(row, state):
                with autograd.pause():
                    still = row * 3
                return still * row + state, state * row + double

            outputs, state = F.contrib.foreach(step, x, F.sum(double, axis=0, keepdims=True))
            return outputs.sum() + state.sum()

    assert_same_in_both_modes(Net(), nd.array([[1.0, 2.0]]), record=True)


def test_a_scope_survives_saving(tmp_path):
    net = nn.HybridSequential(prefix="net_")
    net.add(Scoped(SCOPES["pause"]))
    net.hybridize(engine="numpy")
    x = nd.array([1.0, 2.0, 3.0])
    net(x)
    mx.save_cached_graphs(net, tmp_path / "net.hlab")
    _, gradient = run(gluon.load(tmp_path / "net.hlab"), x, record=True)
    assert gradient.tolist() == [2.0, 4.0, 6.0]


@pytest.mark.parametrize("call", ["set_recording", "set_training"])
def test_a_mode_without_an_end_is_no_part_of_a_graph(call):
    class Net(nn.HybridBlock):
        def hybrid_forward(self, F, x):
            getattr(autograd, call)(False)
            return x * 2

    net = Net()
    net.hybridize(engine="numpy")
    with pytest.raises(HybridizeError, match=f"autograd.{call}") as caught:
        net(nd.ones((2,)))
    assert caught.value.code == "HL175"
