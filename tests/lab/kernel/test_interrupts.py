"""Interrupting a cell anywhere - eager or hybrid call, trace, compile, backward, step - leaves everything usable."""

import sys

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.gluon.naming import NameScope
from hybrid_lab.gluon.step import boundary
from hybrid_lab.insight.states import hybrid_blocks
from hybrid_lab.ndarray import tape
from hybrid_lab.symbol import scopes as names
from hybrid_lab.symbol import tracing
from tests.lab.conftest import Net, inputs

# An interrupt inside a generator that is being closed goes nowhere, and Python says so.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

POINTS = 24
"""Places at which one scenario is interrupted, spread over all Python calls that it makes."""


class Interrupt:
    """Raise KeyboardInterrupt at the n-th call of a Python function of this package, as a signal might."""

    def __init__(self, at):
        self.at, self.count = at, 0

    def __call__(self, frame, event, argument):
        # A signal is handled between two instructions; the start of a call is one of these places.
        if event == "call" and "hybrid_lab" in frame.f_code.co_filename and "tests" not in frame.f_code.co_filename:
            if frame.f_code is tape.Mode.__exit__.__code__:
                return  # nothing that is written in Python can leave `with autograd.record():` before this has begun
            self.count += 1
            if self.count == self.at:
                sys.setprofile(None)
                raise KeyboardInterrupt

    def run(self, action):
        """Whether the action was interrupted."""
        sys.setprofile(self)
        try:
            action()
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False


def build(engine, called):
    mx.random.seed(1)
    net = Net(prefix="net_")
    net.initialize()
    net(inputs())
    net.hybridize(engine=engine)
    if called:
        net(inputs())
    return net


def train(net, trainer):
    with autograd.record():
        loss = (net(inputs()) ** 2).sum()
    loss.backward()
    trainer.step(4)


def expect_usable(net, expected):
    """Nothing is locked or half done, and the next calls give the right numbers."""
    assert tracing.current() is None and tape.state.trace is None
    assert len(names.NameManager.stack) == 1
    assert not autograd.is_recording() and not autograd.is_training()
    assert boundary.lock.acquire(blocking=False)
    boundary.lock.release()
    for _, block in hybrid_blocks(net):
        assert block._graphs.lock.acquire(blocking=False)
        block._graphs.lock.release()
    np.testing.assert_allclose(net(inputs()).asnumpy(), expected(net), rtol=1e-5, atol=1e-6)
    with autograd.record():
        loss = (net(inputs()) ** 2).sum()
    loss.backward()
    assert np.isfinite(net.head.weight.grad().asnumpy()).all()


def eager(net):
    """What the model gives without graphs."""
    twin = Net(prefix="net_")
    twin.initialize()
    twin(inputs())
    for path, parameter in twin._collect_params_with_prefix().items():
        parameter.set_data(net._collect_params_with_prefix()[path].data())
    return twin(inputs()).asnumpy()


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("scenario", ["first call", "later call", "training"])
def test_interrupted_anywhere(engine, scenario):
    def act(net):
        if scenario == "training":
            train(net, gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}))
        else:
            net(inputs())

    called = scenario == "later call"
    measure = Interrupt(at=-1)
    net = build(engine, called)
    measure.run(lambda: act(net))
    interrupted = 0
    for at in sorted({1 + index * measure.count // POINTS for index in range(POINTS)}):
        net = build(engine, called)
        interrupted += Interrupt(at).run(lambda net=net: act(net))
        for _, block in hybrid_blocks(net):
            for neutral in block._graphs.graphs():
                assert neutral.graph.outputs and neutral.parameters is not None
        expect_usable(net, eager)
    assert interrupted >= min(3, measure.count)


class InterruptAtExit:
    """Raise KeyboardInterrupt where the n-th name scope is about to be left."""

    def __init__(self, at):
        self.at, self.count = at, 0

    def __call__(self, frame, event, argument):
        if event == "call" and frame.f_code is NameScope.__exit__.__code__:
            self.count += 1
            if self.count == self.at:
                sys.setprofile(None)
                raise KeyboardInterrupt

    run = Interrupt.run


def test_interrupted_where_a_name_scope_ends():
    """All scopes of a trace are left, also that of the model, which is the last."""
    ends = 1
    while InterruptAtExit(ends).run(lambda net=build("numpy", called=False): net(inputs())):
        expect_usable(build("numpy", called=False), eager)
        ends += 1
    assert ends > 3


def test_an_interrupted_cell_in_a_shell(shell, run):
    """The user's own code raises it in the middle of a trace; the next cell runs as if nothing was."""
    run(
        "import hybrid_lab as mx\nfrom hybrid_lab import gluon, nd\nfrom hybrid_lab.gluon import nn\nstop = True",
        """class Net(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.fc = nn.Dense(3)
    def hybrid_forward(self, F, x):
        y = self.fc(x)
        if stop:
            raise KeyboardInterrupt
        return y""",
        "net = Net(); net.initialize(); net.hybridize(); x = nd.ones((2, 5))",
    )
    assert isinstance(shell.run_cell("net(x)").error_in_exec, KeyboardInterrupt)
    assert run("net._graphs.graphs() + net.fc._graphs.graphs()") == []
    assert run("stop = False\nnet(x).shape") == (2, 3)
    assert run("y = net(x).asnumpy(); net.hybridize(False); abs(net(x).asnumpy() - y).max() < 1e-6")
