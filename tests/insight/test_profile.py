"""profile: times of every step beside eager's, shares and bytes; nothing of the model changes."""

import json
import re

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.engines.memory import copies
from hybrid_lab.engines.planned.watch import WatchedProgram
from hybrid_lab.gluon import nn
from hybrid_lab.ndarray.random_state import state
from tests.graph.building import evaluate, graph_of, uniform
from tests.insight.test_compare import Tags, engine_or_skip, images, make, sessions  # noqa: F401 - a fixture
from tests.triton_device import use_triton


@pytest.fixture(scope="module")
def trained():
    return mx.profile(make(), images(), train=True, runs=3)


def test_forward_and_backward_have_steps(trained):
    (call,) = trained.calls
    assert call.mode == "training, recorded" and call.runs == 3
    parts = [row.part for row in call.steps]
    assert parts == sorted(parts, key=["prologue", "forward", "backward"].index)
    names = [row.operator.partition("(")[0] for row in call.steps]
    assert {"Convolution", "BatchNorm", "Dropout", "FullyConnected", "softmax"} <= set(names)
    assert all(row.seconds >= 0 for row in call.steps) and call.hybrid_seconds > 0 and call.eager_seconds > 0


def test_shares_sum_to_one(trained):
    (call,) = trained.calls
    assert sum(row.share for row in call.steps if not row.inside) == pytest.approx(1)
    assert trained.slowest(3)[0].seconds == max(row.seconds for row in call.steps)


def test_where_each_step_comes_from(trained):
    row = next(row for row in trained.calls[0].steps if row.operator.startswith("Convolution("))
    assert row.block.endswith(".conv") and ":3" in row.line and row.runs_on == "numpy"
    assert row.bytes_moved == 4 * (2 * 3 * 64 + 4 * 27 + 4 + 2 * 4 * 64)


def test_eager_s_operators_stand_beside_their_steps(trained):
    rows = [row for row in trained.calls[0].steps if row.part == "forward"]
    eager = {row.operator.partition("(")[0]: row.eager_seconds for row in rows if row.eager_seconds is not None}
    assert {"Convolution", "BatchNorm", "FullyConnected", "softmax"} <= set(eager)
    assert all(spent > 0 for spent in eager.values())
    assert any(row.eager_seconds for row in trained.calls[0].steps if row.part == "backward")


def test_prediction_has_no_backward():
    (call,) = mx.profile(make(), images(), runs=3).calls
    assert call.mode == "prediction" and {row.part for row in call.steps} <= {"prologue", "forward"}


class Printing(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        print("called with", F.__name__)
        return F.relu(x) * 2


def test_what_the_code_prints_is_shown_once(capsys):
    mx.profile(Printing(), images(), train=True, runs=3)
    assert capsys.readouterr().out.splitlines() == ["called with hybrid_lab.ndarray", "called with hybrid_lab.symbol"]


def test_operators_inside_a_region_share_its_time(sessions):  # noqa: F811
    (call,) = mx.profile(make(engine=sessions), images(), runs=3).calls
    whole = [row for row in call.steps if row.operator.endswith(" operators")]
    assert whole and all(row.runs_on == "onnxruntime" for row in whole)
    for row in whole:
        inner = [item for item in call.steps if item.inside and (item.part, item.region) == (row.part, row.region)]
        assert sum(item.seconds for item in inner) == pytest.approx(row.seconds)
        assert all(item.estimated for item in inner)


def test_nothing_of_the_model_changes():
    net, x = make(), images()
    net(x)
    before = {key: parameter.data().asnumpy() for key, parameter in net.collect_params().items()}
    draws, programs = state.get_state(), len(net._graph_calls.programs)
    mx.profile(net, x, train=True, runs=3)
    assert state.get_state() == draws and len(net._graph_calls.programs) == programs
    assert all(np.array_equal(p.data().asnumpy(), before[key]) for key, p in net.collect_params().items())


def test_it_prints_within_a_screen(trained):
    lines = str(trained).splitlines()
    assert max(map(len, lines)) <= 120 and trained.name in lines[0]
    assert any("share" in line and "eager" in line and "moved" in line for line in lines)
    page = Tags(trained._repr_html_())
    assert page.seen <= {"div", "b", "details", "summary", "table", "thead", "tbody", "tr", "th", "td", "pre", "span"}
    assert "Convolution" in page.text


def test_data_is_plain(trained):
    data = json.loads(json.dumps(trained.data(), allow_nan=False))
    assert data["calls"][0]["steps"][0]["operator"].startswith("Convolution")


# -- the watched program -----------------------------------------------------------------------------------------------


def test_a_watched_program_computes_the_same_and_shows_every_step():
    def net(F, x, y):
        z = F.relu(x + y)
        return F.exp(F.Reshape(z, shape=(-1,))), F.sum(z, axis=1)

    graph, arrays = graph_of(net, (3, 4), (3, 4)), uniform((3, 4), (3, 4))
    watched, seen = WatchedProgram(graph), []
    results = watched.run(arrays, (0, 0), lambda step, values: seen.append((step, [np.array(v) for v in values])))
    for got, wanted in zip(results, evaluate(graph, arrays), strict=True):
        assert np.array_equal(got, wanted)
    assert [step for step, _ in seen] == list(range(-1, len(watched.steps)))
    assert np.array_equal(seen[1][1][0], arrays[0] + arrays[1])
    assert watched.times(arrays, (0, 0)).shape == (len(watched.steps),)


# -- kernels -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def on_triton(monkeypatch):
    use_triton(monkeypatch)
    return make(engine=engine_or_skip("triton"))


@pytest.mark.parametrize("train", [False, True])
def test_a_kernel_is_one_step_by_its_name(on_triton, train):
    (call,) = mx.profile(on_triton, images(), train=train, runs=3).calls
    kernels = [row for row in call.steps if row.runs_on == "triton"]
    assert {row.part for row in kernels} >= ({"forward", "backward"} if train else {"forward"})
    assert not any(row.inside for row in kernels) and all(row.seconds > 0 and row.bytes_moved for row in kernels)
    product = next(row for row in kernels if row.operator.startswith("k_fullyconnected"))
    assert product.eager_seconds > 0 and ":" in product.line
    several = next(row for row in kernels if row.operator.endswith(" operators"))
    assert re.fullmatch(r"\w+, \d+ operators", several.operator) and several.block
    assert product.operator in str(mx.profile(on_triton, images(), train=train, runs=1))


def test_an_operator_that_was_taken_apart_is_found_in_its_kernels(monkeypatch):
    use_triton(monkeypatch)
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.LayerNorm(in_channels=8))
    net.initialize()
    net.hybridize(engine=engine_or_skip("triton"))
    (call,) = mx.profile(net, mx.nd.ones((4, 8)), runs=3).calls
    assert call.removed == 0 and sum(row.eager_seconds or 0 for row in call.steps) > 0


def test_times_are_those_of_the_steps_of_a_call_and_copy_nothing_between_them(on_triton):
    on_triton(images())
    program = next(iter(on_triton._graph_calls.programs.values()))
    inputs = [np.zeros(value.shape, value.dtype) for value in program.forward.graph.inputs]
    watched = program.forward.watched()
    watched.times(inputs, (0, 0))
    before = copies.snapshot()
    assert len(watched.times(inputs, (0, 0))) == len(watched.steps)
    assert copies.snapshot() == before


def test_times_on_a_gpu_are_those_of_its_events(on_triton, monkeypatch):
    torch = pytest.importorskip("torch")
    made = []

    class Event:
        def __init__(self, enable_timing):
            made.append(self)

        def record(self):
            self.place = len(made)

        def synchronize(self):
            assert self is made[-1]

        def elapsed_time(self, later):
            return 2.0 * (later.place - self.place)

    waited = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "_sleep", waited.append)
    on_triton(images())
    program = next(iter(on_triton._graph_calls.programs.values()))
    watched = program.forward.watched()
    tensors = watched._tensors([np.zeros(value.shape, value.dtype) for value in program.forward.graph.inputs])
    assert watched.event_times(tensors, (0, 0)) == pytest.approx([0.002] * len(watched.steps))
    assert len(made) == len(watched.steps) + 1 and waited == [30_000 * len(watched.steps)]
