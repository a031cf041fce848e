"""Forward and backward over one arena: right numbers in every order of calls, and little more memory than needed."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from hybrid_lab import autograd, engines, gluon, nd
from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines.engine import SeparateTraining, Training
from hybrid_lab.engines.planned.arena import POOL_LIMIT, Arena, ArenaPool, host_memory
from hybrid_lab.engines.planned.training import JointTraining
from hybrid_lab.gluon import nn
from hybrid_lab.graph import Graph
from hybrid_lab.graph.call_graphs import Specialized
from hybrid_lab.graph.memory.joint_plan import JointPlan
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.hybridize import compiled_call
from tests.engines.random_graphs import random_case
from tests.engines.test_random_graphs import RNG
from tests.graph.building import graph_of, uniform
from tests.graph.test_packing import overlaps


class Case:
    """A graph compiled for training, with arrays to run it on."""

    def __init__(self, graph: Graph, arrays: list[np.ndarray], engine: str = "numpy", static_alloc: bool = False):
        wrt = [index for index, value in enumerate(graph.inputs) if value.node.op.role != "aux"]
        self.parts: Specialized = specialize(graph, [a.shape for a in arrays], [a.dtype for a in arrays], True, wrt)
        self.arrays, self.num_outputs = arrays, len(graph.outputs)
        assert self.parts.backward is not None and self.parts.split is not None
        runner = engines.get(engine)
        self.training: Training = runner.compile_training(self.parts.split, static_alloc=static_alloc)
        self.separate = SeparateTraining(
            runner.compile(self.parts.forward), runner.compile(self.parts.backward), self.num_outputs
        )

    @property
    def plan(self) -> JointPlan:
        assert isinstance(self.training, JointTraining)
        return self.training.plan

    def operands(self, kept, results, scale: float = 1.0) -> list[np.ndarray]:
        """What the backward takes: head gradients are the outputs' own numbers times `scale`."""
        heads = [scale * result for result in results[: self.num_outputs]]
        given = {"input": self.arrays, "output": results, "saved": kept.saved, "head": heads}
        return [given[kind][index] for kind, index in self.parts.sources]

    def step(self, training: Training | None = None, last: bool = True) -> list[np.ndarray]:
        """Outputs, effects and gradients of one step."""
        training = training or self.training
        results, kept = training.begin(self.arrays, RNG)
        return [*results, *training.finish(kept, self.operands(kept, results), RNG, last)]


def same(one: list[np.ndarray], two: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, two, strict=True))


def net(F, x, w, v):
    y = F.tanh(F.dot(x, w))
    return F.dot(F.exp(y) * F.sigmoid(y), v)


def small(**options) -> Case:
    shapes = (4, 5), (5, 6), (6, 3)
    return Case(graph_of(net, *shapes, roles="data param param"), uniform(*shapes), **options)


@pytest.mark.parametrize("static_alloc", [False, True])
def test_a_step_gives_what_separate_programs_give(static_alloc):
    case = small(static_alloc=static_alloc)
    expected = case.step(case.separate)
    for _ in range(3):
        assert same(case.step(), expected)


def test_the_plan_of_both_is_one():
    text = str(small().plan)
    assert text.startswith("arena ") and "for forward and backward" in text and "kept between them" in text
    report = small().training.forward.report
    assert report.shared_arena and "shared by forward and backward" in str(report)
    assert report.arena_bytes == small().training.backward.report.arena_bytes


def test_several_forwards_before_their_backwards():
    case = small()
    expected = case.step(case.separate)
    begun = [case.training.begin(case.arrays, RNG) for _ in range(3)]
    for results, kept in (begun[1], begun[2], begun[0]):
        gradients = case.training.finish(kept, case.operands(kept, results), RNG)
        assert same([*results, *gradients], expected)


def test_a_retained_graph_runs_again_with_other_head_gradients():
    case = small()
    results, kept = case.training.begin(case.arrays, RNG)
    first = case.training.finish(kept, case.operands(kept, results), RNG, last=False)
    twice = case.training.finish(kept, case.operands(kept, results, 2.0), RNG, last=False)
    again = case.training.finish(kept, case.operands(kept, results), RNG, last=True)
    assert same(first, again)
    for one, two in zip(first, twice, strict=True):
        np.testing.assert_allclose(2 * one, two, rtol=1e-5)


def test_what_was_handed_out_is_never_touched_again():
    case = small()
    results, kept = case.training.begin(case.arrays, RNG)
    held = [result.copy() for result in results]
    gradients = case.training.finish(kept, case.operands(kept, results), RNG)
    copies = [gradient.copy() for gradient in gradients]
    for _ in range(2):
        case.step()
    assert same(results, held) and same(gradients, copies)


def test_gradients_are_written_where_the_caller_wants_them():
    case = small()
    expected = case.step(case.separate)[1:]
    results, kept = case.training.begin(case.arrays, RNG)
    out = [np.full_like(expected[0], 7.0), None, np.full_like(expected[2], 7.0)]
    found = case.training.finish(kept, case.operands(kept, results), RNG, out=out)
    assert same(found, expected)
    assert found[0] is out[0] and found[2] is out[2]


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime", "torch"])
def test_gradients_are_told_of_when_nothing_writes_to_them_any_more(engine):
    cases = [small(engine=engine)]
    for seed in range(20):
        found = random_case(seed)
        cases.append(Case(found.graph, found.arrays, engine))
    numbers = []
    for case in cases:
        expected = case.step()
        results, kept = case.training.begin(case.arrays, RNG)
        told = {}

        def ready(number, gradient):
            assert number not in told  # noqa: B023
            told[number] = gradient.copy()  # noqa: B023

        gradients = case.training.finish(kept, case.operands(kept, results), RNG, ready=ready)
        assert same([*results, *gradients], expected)
        assert all(np.array_equal(told[number], gradients[number], equal_nan=True) for number in told)
        numbers.append((len(told), len(gradients)))
    assert numbers[0] == (3, 3)
    assert sum(told for told, _ in numbers) > 10


def test_the_memory_of_a_forward_without_a_backward_comes_back():
    case = small()
    frames = case.training._frames
    for _ in range(3):
        results, kept = case.training.begin(case.arrays, RNG)
        assert kept.lease is not None and not frames.idle
        del kept
        gc.collect()
        assert len(frames.idle) == 1
    assert same(case.step(), case.step(case.separate))


def test_an_error_in_the_forward_leaves_the_program_usable():
    case = small()
    with pytest.raises(ValueError):
        case.training.begin([np.ones((4, 9), np.float32), *case.arrays[1:]], RNG)
    assert same(case.step(), case.step(case.separate))


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed):
    found = random_case(seed)
    case = Case(found.graph, found.arrays)
    expected = case.step(case.separate)
    for last in (True, False, True):
        assert same(case.step(last=last), expected)


def test_onnxruntime_regions_share_the_arena_too():
    shapes = (64, 50), (50, 60), (60, 30)
    case = Case(graph_of(net, *shapes, roles="data param param"), uniform(*shapes), engine="onnxruntime")
    for last in (True, False, True):
        for one, two in zip(case.step(last=last), case.step(case.separate), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


# -- how much memory ---------------------------------------------------------------------------------------------


def lenet(F, x, w1, b1, w2, b2, w3, b3, w4, b4):
    y = F.Pooling(F.tanh(F.Convolution(x, w1, b1, kernel=(5, 5), num_filter=20)), kernel=(2, 2), stride=(2, 2))
    y = F.Pooling(F.tanh(F.Convolution(y, w2, b2, kernel=(5, 5), num_filter=50)), kernel=(2, 2), stride=(2, 2))
    y = F.tanh(F.FullyConnected(y, w3, b3, num_hidden=500))
    return F.log_softmax(F.FullyConnected(y, w4, b4, num_hidden=10))


LENET = (64, 1, 28, 28), (20, 1, 5, 5), (20,), (50, 20, 5, 5), (50,), (500, 800), (500,), (10, 500), (10,)


def residual(F, x, *weights):
    """Four residual blocks of two convolutions each."""
    for first, second in zip(weights[::2], weights[1::2], strict=True):
        shape = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 16, "no_bias": True}
        y = F.relu(F.Convolution(x, first, **shape))
        x = F.relu(F.Convolution(y, second, **shape) + x)
    return F.mean(x, axis=(2, 3))


RESIDUAL = (8, 16, 12, 12), *[(16, 16, 3, 3)] * 8


def unrolled(F, x, w, u, b, h, c):
    """An LSTM of 20 steps: x (time, batch, features)."""
    outputs = []
    for index in range(20):
        now = F.Reshape(F.slice_axis(x, axis=0, begin=index, end=index + 1), shape=(-3, 0))
        gates = F.FullyConnected(now, w, b, num_hidden=64) + F.FullyConnected(h, u, num_hidden=64, no_bias=True)
        i, f, g, o = F.SliceChannel(gates, num_outputs=4, axis=1)
        c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
        h = F.sigmoid(o) * F.tanh(c)
        outputs.append(h)
    return F.stack(*outputs, axis=0)


UNROLLED = (20, 8, 12), (64, 12), (64, 16), (64,), (8, 16), (8, 16)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [(lenet, LENET), (residual, RESIDUAL), (unrolled, UNROLLED)],
    ids=["LeNet", "residual blocks", "unrolled LSTM"],
)
def test_planned_memory_of_a_training_step_is_near_the_least_possible(function, shapes):
    roles = "data" + " param" * (len(shapes) - 1)
    case = Case(graph_of(function, *shapes, roles=roles), [0.1 * array for array in uniform(*shapes)])
    assert 1.0 <= case.plan.ratio <= 1.1
    assert not overlaps([*case.plan.forward.allocations, *case.plan.backward.allocations])
    apart = case.separate.forward.report.arena_bytes + case.separate.backward.report.arena_bytes
    assert case.plan.arena_bytes <= apart + case.plan.kept_bytes
    assert same(case.step(), case.step(case.separate))


# -- through a hybridized block --------------------------------------------------------------------------------------


def dense_block() -> tuple[nn.HybridSequential, nd.NDArray]:
    net = nn.HybridSequential()
    net.add(nn.Dense(6, activation="tanh", in_units=4), nn.BatchNorm(), nn.Dense(2))
    net.initialize(init="uniform")
    x = nd.array(uniform((5, 4))[0])
    net(x)
    return net, x


def gradients_of(net: nn.HybridSequential) -> list[np.ndarray]:
    return [parameter.grad().asnumpy() for parameter in net.collect_params().values() if parameter.grad_req != "null"]


def test_retain_graph_of_a_hybridized_block():
    net, x = dense_block()
    with autograd.record():
        y = net(x)
    y.backward()
    expected = gradients_of(net)
    net.hybridize(engine="numpy")
    with autograd.record():
        y = net(x)
    for _ in range(3):
        y.backward(retain_graph=True)
        found = gradients_of(net)
        for one, two in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)
    y.backward()
    assert same(gradients_of(net), found)


def test_a_block_called_several_times_before_one_backward():
    net, _ = dense_block()
    inputs = [nd.array(uniform((5, 4), seed=seed)[0]) for seed in range(4)]

    def total():
        with autograd.record():
            loss = sum((net(x) ** 2).sum() for x in inputs)
        loss.backward()
        return gradients_of(net)

    expected = total()
    net.hybridize(engine="numpy")
    for _ in range(2):
        for one, two in zip(total(), expected, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


@pytest.fixture
def in_place(monkeypatch) -> None:
    """Gradients of any size are written into `grad` at once."""
    monkeypatch.setattr(compiled_call, "LARGE", 0)


@pytest.mark.usefixtures("in_place")
@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_gradients_written_in_their_place_are_the_same(engine):
    net, _ = dense_block()
    parameters = net.collect_params()
    inputs = [nd.array(uniform((5, 4), seed=seed)[0]) for seed in range(3)]

    def steps() -> list[np.ndarray]:
        found = []
        for weights in ([1.0], [1.0, 2.0], [0.5, 3.0, 1.0]):  # one call, or several whose gradients add up
            with autograd.record():
                loss = sum((net(x) ** 2).sum() * weight for x, weight in zip(inputs, weights, strict=False))
            loss.backward()
            found += gradients_of(net)
        with autograd.record():
            y = net(inputs[0])
        y.backward(nd.array(uniform(y.shape)[0]))
        found += gradients_of(net)
        first = next(iter(parameters.values()))
        first.grad_req = "add"
        for _ in range(2):
            with autograd.record():
                y = net(inputs[1])
            y.backward()
        found += gradients_of(net)
        first.grad_req = "write"
        return found

    states = {name: parameter.data().asnumpy() for name, parameter in parameters.items()}
    expected = steps()
    for name, value in states.items():
        parameters[name].set_data(nd.array(value))
    net.hybridize(engine=engine)
    for one, two in zip(steps(), expected, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-4 * max(np.abs(two).max(), 1e-2))


@pytest.mark.usefixtures("in_place")
def test_the_gradient_array_is_the_same_one_and_really_written():
    net, x = dense_block()
    net.hybridize(engine="numpy")
    grad = net[0].weight.grad()
    before, version = grad.host_view, grad.version
    with autograd.record():
        y = net(x)
    y.backward()
    assert net[0].weight.grad() is grad and grad.host_view is before and grad.version > version
    assert np.abs(before).max() > 0


@pytest.mark.usefixtures("in_place")
def test_a_gradient_array_that_the_backward_reads_is_not_written_early():
    class Product(gluon.HybridBlock):
        def hybrid_forward(self, F, x, y):
            return F.tanh(x) * y

    net = Product()
    net.hybridize(engine="numpy")
    x, y = (nd.array(array) for array in uniform((3,), (3,)))
    wanted = y.asnumpy() * (1 - np.tanh(x.asnumpy()) ** 2), np.tanh(x.asnumpy())
    other = nd.zeros((3,))
    autograd.mark_variables([x, y], [y, other])  # the gradient of x goes where y lies
    with autograd.record():
        z = net(x, y)
    z.backward()
    np.testing.assert_allclose(other.asnumpy(), wanted[1], rtol=1e-5)
    np.testing.assert_allclose(y.asnumpy(), wanted[0], rtol=1e-5)


def test_threads_train_side_by_side():
    case = small()
    expected = case.step(case.separate)
    wrong: list[int] = []

    def work() -> None:
        for turn in range(50):
            if not same(case.step(last=turn % 3 != 0), expected):
                wrong.append(turn)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_backward_that_fails_does_not_leave_wrong_numbers_behind():
    case = small()
    results, kept = case.training.begin(case.arrays, RNG)
    operands = case.operands(kept, results)
    with pytest.raises(ValueError):
        case.training.finish(kept, [np.ones((9, 9), np.float32) for _ in operands], RNG)
    with pytest.raises(EngineError, match="run the forward again"):
        case.training.finish(kept, operands, RNG)
    assert same(case.step(), case.step(case.separate))


def test_memory_that_comes_back_while_the_pool_is_busy():
    """The garbage collector may drop a forward's ForwardState at any moment, also while somebody takes an arena."""
    pool = ArenaPool()
    with pool._lock:
        pool.give(Arena(host_memory(100)))
    assert pool.nbytes == 100 and pool.take(50).nbytes == 100
    for size in range(1, POOL_LIMIT + 4):
        pool.give(Arena(host_memory(size)))
    assert len(pool._free) == POOL_LIMIT
