"""What a page sees while a tool runs a model: the model's own state, not that of the tool's run."""

import contextlib
import threading
import time

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics.errors import NonFiniteError
from hybrid_lab.engines import registry
from hybrid_lab.gluon import access, nn
from hybrid_lab.insight.states import hybrid_blocks

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class Looked(gluon.HybridBlock):
    """Takes its time in the middle of each run of its code."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(nn.Dense(4, activation="relu"), nn.BatchNorm())
            self.head = nn.Dense(3)

    def hybrid_forward(self, F, x):
        y = self.body(x)
        time.sleep(0.02)
        return self.head(y)


class Plain(gluon.Block):
    """The plain top of a model, with two Blocks that have graphs of their own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.one, self.two = Looked(), nn.Dense(2)

    def forward(self, x):
        return self.two(self.one(x))


def shown(page):
    """All that a page shows of the models, without the numbers of revisions."""
    (model,) = page.ok("models")["models"]
    return {key: item for key, item in model.items() if key != "revision"}, page.ok("tree", model=model["id"])["root"]


@contextlib.contextmanager
def looking(page):
    """What another thread sees meanwhile, as a page does on a subshell."""
    seen, ended = [], threading.Event()

    def look():
        while not ended.is_set():
            seen.append(shown(page))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def stopped(net, x):
    """The search for the operator that made a NaN runs the call again."""
    with mx.watch_nan(net), pytest.raises(NonFiniteError):
        net(x * float("nan"))


def explained_passes(net, x):
    for path, block in hybrid_blocks(net):
        if access.calls(block).programs:
            str(mx.explain(net).passes(path))


#: These run the model for themselves.
TOOLS = {
    "profile": lambda net, x: mx.profile(net, x, runs=1),
    "profile of a training": lambda net, x: mx.profile(net, x, train=True, runs=1),
    "compare": lambda net, x: mx.compare(net, x),
    "compare of a training": lambda net, x: mx.compare(net, x, train=True),
    "passes": explained_passes,
    "summary": lambda net, x: net.summary(x),
}


def captured(net, x):
    with mx.capture(net, "*", grad=True):
        net(x)


def watched(net, x):
    with mx.watch_nan(net):
        net(x)


#: These look at calls of the user's own.
WATCHES = {
    "capture": captured,
    "watch_nan": watched,
    "watch_nan, which stops": stopped,
    "explain": lambda net, x: mx.explain(net, x),
}


def model(kind, state, x):
    net = kind()
    net.initialize()
    net(x)
    if state != "eager":
        net.hybridize(engine="numpy")
    if state == "hybrid":
        net(x)
    return net


@pytest.fixture
def x():
    return nd.array(np.random.RandomState(0).rand(2, 5))


@pytest.mark.parametrize("kind", [Looked, Plain])
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("state", ["eager", "waiting", "hybrid"])
def test_a_tool_shows_nothing_of_its_own_runs(page, namespace, x, capsys, kind, tool, state):
    net = namespace["net"] = model(kind, state, x)
    before = shown(page)
    with looking(page) as seen:
        TOOLS[tool](net, nd.array(np.random.RandomState(0).rand(3, 5)))  # another shape than that of the last call
    assert seen
    for each in (*seen, shown(page)):
        assert each == before


@pytest.mark.parametrize("kind", [Looked, Plain])
@pytest.mark.parametrize("tool", WATCHES)
@pytest.mark.parametrize("state", ["eager", "hybrid"])
def test_a_watched_call_shows_what_a_call_does(page, namespace, x, kind, tool, state):
    net = namespace["net"] = model(kind, state, x)
    before = shown(page)
    with looking(page) as seen:
        WATCHES[tool](net, x)
    assert seen
    for each in (*seen, shown(page)):
        assert each == before


@pytest.mark.parametrize("train", [False, True])
def test_tuning_shows_the_models_own_state(page, namespace, x, tmp_path, monkeypatch, train):
    monkeypatch.setenv("HYBRID_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "default", lambda on_cpu: None)
    net = namespace["net"] = Looked()
    net.initialize()
    net.hybridize()
    net(x)
    states = set()
    with looking(page) as seen:
        mx.tune(net, nd.ones((3, 5)), train=train)
    for _, root in (*seen, shown(page)):
        states |= {(root["state"], root["output"][0]["shape"][0])}
    assert states <= {("active", 2), ("waiting", 2)}  # the next call takes the engine that was chosen
