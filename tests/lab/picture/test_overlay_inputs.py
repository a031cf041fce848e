"""What overlays are measured on: kept inputs of a call, variables, or random numbers, which are named as such."""

import gc
import weakref

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import access, nn
from hybrid_lab.insight.random_inputs import random_inputs
from hybrid_lab.ndarray.ndarray import NDArray

pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")


class Log(gluon.HybridBlock):
    """Finite on inputs above 0 alone."""

    def hybrid_forward(self, F, x):
        return F.log(x).sqrt()


def overlay(page, kind="values", program="p0:forward", data="", path=""):
    (model,) = page.ok("models")["models"]
    return page.ok("overlay", model=model["id"], path=path, program=program, kind=kind, data=data)


def keep(page, **body):
    (model,) = page.ok("models")["models"]
    return page.ok("keep_inputs", model=model["id"], **body)


@pytest.fixture
def log(namespace):
    net = namespace["net"] = Log()
    net.hybridize(engine="numpy")
    namespace["x"] = nd.array(np.linspace(1.5, 2, 6).reshape(2, 3))
    net(namespace["x"])
    return net


def test_nan_of_random_numbers_is_named_as_such_everywhere(page, log):
    reply = overlay(page)
    assert reply["measured_on"] == "random" and reply["marked"]
    assert "which may come from the random numbers alone" in reply["headline"]
    bad = [item for item in reply["items"] if item["bad"]]
    assert bad and all("random" in item["short"] and "random" in item["text"] for item in bad)
    assert overlay(page, "time")["measured_on"] == "random"
    for kind in ("memory", "gradients", "engine"):
        assert overlay(page, kind)["measured_on"] == ""


@pytest.mark.parametrize("program", ["traced", "p0:forward"])
def test_values_of_variables_and_kept_inputs_are_the_users(page, namespace, log, program):
    named = overlay(page, program=program, data="x")
    assert named["measured_on"] == "variables" and not named["marked"] and "all are finite" in named["headline"]
    assert keep(page) == {"on": False, "calls": []} and keep(page, on=True) == {"on": True, "calls": []}
    assert "no inputs of such a call are kept yet" in overlay(page, program=program)["headline"]
    log(namespace["x"])
    assert keep(page)["calls"] == [{"path": "", "inputs": "f32[2,3]", "bytes": 24}]
    namespace["x"][:] = -1  # what the user writes later does not reach the copies
    kept = overlay(page, program=program)
    assert kept["measured_on"] == "kept" and "on the kept inputs of a call" in kept["headline"] and not kept["marked"]
    assert [item["text"] for item in kept["items"]] == [item["text"] for item in named["items"]]
    assert overlay(page, "time", program)["measured_on"] == "kept"
    assert keep(page, on=False) == {"on": False, "calls": []}
    assert overlay(page, program=program)["measured_on"] == "random"


def test_each_kind_of_call_is_kept_once_and_tools_are_not(page, namespace, log):
    keep(page, on=True)
    mx.profile(log, nd.ones((7, 3)), runs=1)
    for rows in (2, 2, 3):
        log(nd.ones((rows, 3)))
    with autograd.record():
        log(nd.ones((4, 3)))
    assert [call["inputs"] for call in keep(page)["calls"]] == ["f32[2,3]", "f32[3,3]", "f32[4,3]"]
    for rows in range(5, 20):
        log(nd.ones((rows, 3)))
    assert len(keep(page)["calls"]) == 4


def test_the_copies_go_with_the_switch_and_with_the_model(page, namespace, log, monkeypatch):
    copies = []
    monkeypatch.setattr(
        NDArray, "copy", lambda self, real=NDArray.copy: copies.append(weakref.ref(made := real(self))) or made
    )
    keep(page, on=True)
    log(namespace["x"])
    assert [each() is not None for each in copies] == [True]
    keep(page, on=False)
    assert [each() is not None for each in copies] == [False]
    assert access.calls(log).interceptors == ()  # calls are as fast as before


def test_the_copies_go_with_the_model(page, namespace, monkeypatch):
    copies = []
    monkeypatch.setattr(
        NDArray, "copy", lambda self, real=NDArray.copy: copies.append(weakref.ref(x := real(self))) or x
    )
    net = namespace["net"] = Log()
    net.hybridize(engine="numpy")
    keep(page, on=True)
    net(nd.ones((2, 3)))
    assert copies[-1]() is not None
    del namespace["net"], net
    page.ok("models")
    gc.collect()
    assert copies[-1]() is None


def test_copies_of_a_model_keep_nothing(page, namespace, log):
    import copy
    import pickle

    keep(page, on=True)
    log(namespace["x"])
    for twin in (copy.deepcopy(log), copy.copy(log), pickle.loads(pickle.dumps(log))):
        assert access.calls(twin).interceptors == ()


def test_the_hybrid_blocks_of_a_plain_top_are_kept(page, namespace):
    class Plain(gluon.Block):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Dense(3), Log()

        def forward(self, x):
            return self.two(self.one(x).abs() + 2)

    net = namespace["net"] = Plain()
    net.initialize()
    net.hybridize(engine="numpy")
    net(nd.ones((2, 5)))
    keep(page, on=True)
    net(nd.ones((2, 5)))
    assert [(call["path"], call["inputs"]) for call in keep(page)["calls"]] == [
        ("one", "f32[2,5]"),
        ("two", "f32[2,3]"),
    ]
    assert not overlay(page, path="two")["marked"]
    net.two = Log()  # a Block that comes later is kept too
    net.two.hybridize(engine="numpy")
    keep(page)
    net(nd.ones((2, 5)))
    assert len(keep(page)["calls"]) == 2


WHOLE = {
    "embedding": (lambda F, x: F.Embedding(x.reshape((-1,)), F.ones((7, 2)), input_dim=7, output_dim=2), (0, 7)),
    "one hot": (lambda F, x: F.one_hot(F.cast(x, "int32"), depth=5), (0, 5)),
    "take": (lambda F, x: F.take(F.ones((4, 9)), x, axis=1), (0, 9)),
    "pick": (lambda F, x: F.pick(F.ones((2, 3, 11)), x), (0, 11)),
    "sequence length": (
        lambda F, x: F.SequenceMask(F.ones((6, 6)), x.reshape((-1,)), use_sequence_length=True),
        (1, 7),
    ),
    "label": (lambda F, x: F.softmax_cross_entropy(F.ones((6, 4)), x.reshape((-1,))), (0, 4)),
    "gather": (lambda F, x: F.gather_nd(F.ones((8, 5)), x), (0, 5)),
    "two readers": (lambda F, x: F.one_hot(x, depth=5).sum() + F.one_hot(x, depth=3).sum(), (0, 3)),
    "no index": (lambda F, x: x + x, None),
}


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("kind", WHOLE)
def test_whole_numbers_are_drawn_within_what_the_graph_allows(page, namespace, kind, dtype):
    compute, allowed = WHOLE[kind]

    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return compute(F, x)

    net = namespace["net"] = Net()
    net.hybridize(engine="numpy")
    net(nd.ones((2, 3), dtype=dtype))
    program = access.calls(net).compilations[-1].program
    from hybrid_lab.lab.picture.overlays.source import with_shapes

    big = [((2000,), np.dtype(dtype))]
    (drawn,) = random_inputs(with_shapes(program), big)
    if allowed is None:
        assert set(drawn) <= {0, 1} if dtype == "int32" else (drawn < 0).any()
    else:
        assert (drawn.min(), drawn.max() + 1) == allowed and drawn.dtype == dtype
        assert (drawn == drawn.astype(int)).all()
    for what in ("values", "time"):
        assert not overlay(page, what)["missing"]
