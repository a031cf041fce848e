"""Fixtures of the lab's tests: an IPython shell in this process, a session over a namespace, and small models."""

import sys

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn
from hybrid_lab.lab.kernel import hooks
from hybrid_lab.lab.kernel.comm import handle
from hybrid_lab.lab.kernel.session import Session
from hybrid_lab.lab.messages.connection import PROTOCOL
from hybrid_lab.lab.training.current import runs


class Net(gluon.HybridBlock):
    """A body with running statistics, and a head."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(nn.Dense(8, activation="relu"), nn.BatchNorm())
            self.head = nn.Dense(3)

    def hybrid_forward(self, F, x):
        return self.head(self.body(x))


class Stubborn(gluon.HybridBlock):
    """Reads a shape, which a graph cannot."""

    def hybrid_forward(self, F, x):
        return x.reshape((x.shape[0], -1))


def make_net(kind=Net, called=True):
    net = kind()
    net.initialize()
    net.hybridize()
    if called:
        net(inputs())
    return net


def inputs(rows=4):
    return mx.nd.array(np.random.RandomState(0).rand(rows, 5).astype("float32"))


def weights(net):
    """Copies of all parameters by path."""
    return {path: each.data().asnumpy().copy() for path, each in net._collect_params_with_prefix().items()}


def same(one, two):
    """Whether two of `weights` are equal to the last bit."""
    return one.keys() == two.keys() and all(one[key].tobytes() == two[key].tobytes() for key in one)


@pytest.fixture(autouse=True)
def no_run_is_left():
    """No page watches trainings after a test, and no run is under way."""
    yield
    runs.watch(False)
    runs.finish()
    runs.kept.clear()


@pytest.fixture
def net():
    return make_net()


class Page:
    """A front end: asks a session and keeps every message it gets."""

    def __init__(self, session):
        self.session, self.messages, self.count = session, [], 0

    def send(self, data):
        """Send one message as it is; the replies to it."""
        before = len(self.messages)
        handle(self.session, data, self.messages.append)
        return self.messages[before:]

    def ask(self, kind, /, **body):
        """The one reply to a request, without progress."""
        self.count += 1
        identity = f"r{self.count}"
        replies = self.send(
            {"hybrid_lab": PROTOCOL, "kernel_id": self.session.kernel, "id": identity, "type": kind, "body": body}
        )
        assert all(reply["id"] == identity for reply in replies)
        final = [reply for reply in replies if reply["type"] != "progress"]
        assert len(final) == 1
        return final[0]

    def ok(self, kind, /, **body):
        reply = self.ask(kind, **body)
        assert reply["type"] == "ok", reply
        return reply["body"]

    def error(self, kind, /, **body):
        reply = self.ask(kind, **body)
        assert reply["type"] == "error", reply
        assert set(reply["body"]) == {"code", "message", "next", "details"}
        return reply["body"]


@pytest.fixture
def namespace(tmp_path, monkeypatch):
    """The user's variables; the notebook's folder is an empty one."""
    monkeypatch.chdir(tmp_path)
    return {"__name__": "__main__"}


@pytest.fixture
def page(namespace):
    return Page(Session(lambda: namespace))


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """The IPython shell of this process, with the lab's hooks; a fresh one per test."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # put back afterwards
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    made = InteractiveShell.instance(config=config)
    hooks.register(made)
    yield made
    hooks.unregister(made)
    InteractiveShell.clear_instance()


@pytest.fixture
def run(shell):
    """run(cell, ...) -> value of the last expression; an error in a cell is raised."""

    def run_cells(*cells):
        for cell in cells:
            result = shell.run_cell(cell, store_history=True)
            result.raise_error()
        return result.result

    return run_cells


IMPORTS = """import numpy as np
import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn
x = nd.array(np.random.RandomState(0).rand(4, 5).astype("float32"))"""

CLASS = """class Net(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.fc = nn.Dense(3)

    def hybrid_forward(self, F, x):
        return self.fc(x)"""

MAKE = "net = Net(); net.initialize(); net.hybridize(); y = net(x)"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A Jupyter server of its own, with the extension."""
    pytest.importorskip("jupyter_server")
    pytest.importorskip("tornado")
    from tests.lab.jupyter_server import serve

    with serve(tmp_path_factory.mktemp("server")) as running:
        yield running
