"""backward() from some of the outputs of a hybridized Block does not differentiate the others, on any engine."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics import AutogradError
from hybrid_lab.gluon import nn, rnn
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.ops.framework.namespace import F as RAW
from hybrid_lab.ops.framework.run import run_gradient, run_kernel
from tests.engines.test_random_graphs import engine_named
from tests.engines.test_samples import graph_of
from tests.hybridize.test_hybrid_equals_eager import Function, flat
from tests.ops.cases import RNG, close, each_sample
from tests.triton_device import use_triton

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
ENGINES = ["numpy", "onnxruntime", *(["torch"] if find_spec("torch") else []), None, "triton"]
X = np.array([[0.0, 0.5, 1.0], [-1.0, 0.0, 2.0]], np.float32)

#: Outputs whose gradient at X is infinite or NaN, or which have a gradient without anybody's asking.
HOSTILE = {
    "sqrt": lambda F, x, w: F.sqrt(x) * w,
    "rsqrt": lambda F, x, w: F.rsqrt(F.abs(x)) * w,
    "log": lambda F, x, w: F.log(x * w),
    "division": lambda F, x, w: w / x,
    "reciprocal": lambda F, x, w: F.reciprocal(x) * w,
    "power": lambda F, x, w: F.broadcast_power(x, w * 0.5),
    "cbrt": lambda F, x, w: F.cbrt(x) * w,
    "arcsin": lambda F, x, w: F.arcsin(x * w),
    "norm": lambda F, x, w: F.norm((x - x) * w, axis=1),
    "prod": lambda F, x, w: F.prod(1 / x * w, axis=1),
    "SoftmaxOutput": lambda F, x, w: F.SoftmaxOutput(x * w, F.argmax(x, axis=1)),
    "make_loss": lambda F, x, w: F.make_loss(x * w),
    "MakeLoss": lambda F, x, w: F.MakeLoss(x * w, grad_scale=3.0),
    "LinearRegressionOutput": lambda F, x, w: F.LinearRegressionOutput(x * w, F.zeros_like(x)),
    "MAERegressionOutput": lambda F, x, w: F.MAERegressionOutput(x * w, F.zeros_like(x)),
    "LogisticRegressionOutput": lambda F, x, w: F.LogisticRegressionOutput(x * w, F.zeros_like(x)),
    "SVMOutput": lambda F, x, w: F.SVMOutput(x * w, F.argmax(x, axis=1)),
    "gradientmultiplier": lambda F, x, w: F.contrib.gradientmultiplier(F.sqrt(x) * w, scalar=3.0),
    "BlockGrad": lambda F, x, w: F.BlockGrad(x * w),
    "argmax": lambda F, x, w: F.argmax(x * w, axis=1),
    "not recorded": lambda F, x, w: F.ones((2, 3)) * 2,
}


def subsets(count: int) -> list[tuple[int, ...]]:
    numbers = range(count)
    return [chosen for size in range(1, count + 1) for chosen in combinations(numbers, size)]


def leaves(*arrays: np.ndarray, requests: str = "write") -> list[Any]:
    made = [nd.array(array, dtype=array.dtype) for array in arrays]
    for item in made:
        item.attach_grad(requests)
        item.grad[:] = 7.0  # what nothing arrives at stays as it is
    return made


def gradients(net: Any, heads: tuple[int, ...], *arrays: np.ndarray, **how: Any) -> list[Any]:
    """The `grad` of every input after a backward from these outputs, or the error's type."""
    mx.random.seed(5)
    inputs = leaves(*arrays, **how)
    with autograd.record():
        outputs = flat(net(*inputs))
    try:
        autograd.backward([outputs[index] for index in heads])
    except AutogradError as error:
        return [type(error)]
    return [item.grad.asnumpy() for item in inputs]


def same(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        if isinstance(other, np.ndarray):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
        else:
            assert one is other


def pair(name: str, order: int) -> Function:
    def outputs(F: Any, x: Any, w: Any) -> Any:
        made = [F.tanh(x) * w, HOSTILE[name](F, x, w)]
        return made if order == 0 else made[::-1]

    return Function(outputs)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("order", [0, 1], ids=["before it", "behind it"])
def test_every_set_of_heads_beside_a_hostile_output(order: int, name: str, engine: str | None, monkeypatch):
    if engine == "triton":
        use_triton(monkeypatch)
    arrays = X, np.full_like(X, 1.5)
    eager, net = pair(name, order), pair(name, order)
    net.hybridize(engine=engine)
    wanted = {heads: gradients(eager, heads, *arrays) for heads in subsets(2)}
    # One set after the other on one Block, each twice: calls of all kinds of programs.
    for heads in [each for each in subsets(2) for _ in range(2)]:
        same(gradients(net, heads, *arrays), wanted[heads])
    fine = gradients(net, (order,), *arrays)
    assert all(np.isfinite(item).all() for item in fine)


def _several(case: Any) -> bool:
    return case.record.differentiable and case.sample.gradient and case.op.signature.visible > 1


@each_sample(_several)
def test_every_set_of_heads_of_every_record_with_several_outputs(case, totals):
    graph, arrays = graph_of(case)
    wrt = [index for index, array in enumerate(arrays) if is_floating(array.dtype)]
    if not wrt:
        return
    totals["sets of heads of records with several outputs"] += len(subsets(case.op.signature.visible))
    outputs = run_kernel(case.op, case.inputs(), rng=RNG)
    for heads in subsets(case.op.signature.visible):
        dtypes = [a.dtype for a in arrays]
        parts = specialize(graph, [a.shape for a in arrays], dtypes, True, wrt, heads=heads)
        douts = [
            np.linspace(-1, 1, y.size).reshape(y.shape).astype(y.dtype) if index in heads else None
            for index, y in enumerate(outputs[: case.op.signature.visible])
        ]
        assert all(kind != "head" or index in heads for kind, index in parts.sources)
        runner = engine_named("numpy")
        kept = runner.compile(parts.forward)(arrays, RNG)
        given = {"input": arrays, "output": kept, "saved": kept[case.op.signature.visible :], "head": douts}
        found = runner.compile(parts.backward)([given[kind][index] for kind, index in parts.sources], RNG)
        tensors = [i for i, item in enumerate(case.inputs()) if isinstance(item, np.ndarray)]
        wanted = run_gradient(case.op, RAW, case.inputs(), outputs, douts)
        for index, gradient in zip(wrt, found, strict=True):
            expected = wanted[tensors[index]]
            close(gradient, np.zeros_like(arrays[index]) if expected is None else np.asarray(expected), 1e-4)


# -- which programs there are ----------------------------------------------------------------------------------------


def three(F: Any, x: Any, w: Any) -> Any:
    return F.tanh(x) * w, F.exp(x), F.sqrt(w)


def forwards(net: Any, monkeypatch: Any) -> list[Any]:
    """Programs that ran a recorded forward again, one entry each time."""
    from hybrid_lab.hybridize.compiled_call import CompiledCall

    runs: list[Any] = []
    again = CompiledCall.run_again
    monkeypatch.setattr(CompiledCall, "run_again", lambda self, *a: runs.append(self) or again(self, *a))
    return runs


def hybrid(function: Any = three, **flags: Any) -> Function:
    net = Function(function)
    net.hybridize(**{"engine": "numpy", **flags})
    return net


def kinds(net: Any) -> list[str]:
    return [item.kind for item in net._graph_calls.compilations]


def test_a_training_loop_compiles_once_more_and_computes_nothing_twice_from_the_second_step_on(monkeypatch):
    net, runs = hybrid(), forwards(None, monkeypatch)
    for _ in range(4):
        gradients(net, (1,), X, X)
    assert kinds(net) == ["first", "heads"] and len(runs) == 1
    assert str(net._graph_calls.compilations[1]).startswith("backward() from output 1 of 3, called at")
    # Another batch starts with what the first one was asked for.
    for _ in range(2):
        gradients(net, (1,), X[:1], X[:1])
    assert kinds(net) == ["first", "heads", "shape"] and len(runs) == 1


def test_a_backward_from_all_outputs_compiles_nothing_more(monkeypatch):
    net, runs = hybrid(), forwards(None, monkeypatch)
    for _ in range(2):
        gradients(net, (0, 1, 2), X, X)
    assert kinds(net) == ["first"] and not runs


def test_outputs_that_have_no_gradient_are_no_reason_to_compile(monkeypatch):
    net, runs = hybrid(lambda F, x: (F.tanh(x), F.shape_array(x))), forwards(None, monkeypatch)
    for _ in range(2):
        gradients(net, (0,), X)
    assert kinds(net) == ["first"] and not runs


def test_losses_that_alternate_keep_both_programs(monkeypatch):
    net, runs = hybrid(), forwards(None, monkeypatch)
    for _ in range(6):
        for heads in ((0,), (1, 2)):
            gradients(net, heads, X, X)
    assert kinds(net) == ["first", "heads", "heads"]
    assert len(runs) <= 2 + 6


def test_a_loop_that_goes_over_to_another_loss(monkeypatch):
    net, runs = hybrid(), forwards(None, monkeypatch)
    for heads in [(0,)] * 3 + [(1,)] * 4:
        gradients(net, heads, X, X)
    assert kinds(net) == ["first", "heads", "heads"] and len(runs) == 3


def test_many_sets_of_heads_are_not_kept_for_ever():
    net = hybrid(lambda F, x: [F.exp(x * number) for number in range(1, 6)])
    for heads in subsets(5):
        gradients(net, heads, X)
    (program,) = net._graph_calls.programs.values()
    assert len(program.state.head_sets.programs) <= 8
    eager = Function(lambda F, x: [F.exp(x * number) for number in range(1, 6)])
    for heads in subsets(5)[:9]:
        same(gradients(net, heads, X), gradients(eager, heads, X))


# -- the ways back ---------------------------------------------------------------------------------------------------


def both(run: Any, function: Any, **flags: Any) -> None:
    """The same run eagerly and hybridized, three times each: with the programs of the first call and of later ones."""
    eager, net = Function(function), hybrid(function, **flags)
    wanted = run(eager)
    for _ in range(3):
        same(run(net), wanted)


def root(F: Any, x: Any) -> Any:
    return F.tanh(x), F.sqrt(x), F.Dropout(x, p=0.5) * 2


@pytest.mark.parametrize("flags", [{}, {"static_alloc": True, "static_shape": True}, {"engine": None}])
def test_every_way_back(flags):
    def retained(net: Any) -> list[Any]:
        mx.random.seed(1)
        (x,) = leaves(X)
        with autograd.record():
            a, b, c = net(x)
        found = []
        for heads, last in (([a], True), ([c], True), ([a, c], True), ([a], True), ([c], False)):
            autograd.backward(heads, retain_graph=last)
            found.append(x.grad.asnumpy())
        return found

    def added(net: Any) -> list[Any]:
        mx.random.seed(1)
        (x,) = leaves(X, requests="add")
        for heads in ((0,), (2,), (0, 2)):
            with autograd.record():
                outputs = net(x)
            autograd.backward([outputs[index] for index in heads])
        return [x.grad.asnumpy()]

    def asked(net: Any) -> list[Any]:
        mx.random.seed(1)
        (x,) = leaves(X)
        with autograd.record():
            y = x * 2
            a, b, c = net(y)
        return [
            autograd.grad([a], [y], retain_graph=True)[0].asnumpy(),
            autograd.grad([c, a], [x, y], head_grads=[nd.array(X), None])[1].asnumpy(),
        ]

    def twice(net: Any) -> list[Any]:
        mx.random.seed(1)
        (x,) = leaves(X)
        with autograd.record():
            a, b, c = net(x)
            (dx,) = autograd.grad([a], [x], create_graph=True)
            loss = (dx * dx).sum() + c.sum()
        loss.backward()
        return [dx.asnumpy(), x.grad.asnumpy()]

    def waiting(net: Any) -> list[Any]:
        mx.random.seed(1)
        inputs = [leaves(X + number)[0] for number in range(3)]
        with autograd.record():
            results = [net(x) for x in inputs]
        results[2][0].backward()
        results[0][2].backward()
        autograd.backward([results[1][0], results[1][2]])
        return [x.grad.asnumpy() for x in inputs]

    def nested(net: Any) -> list[Any]:
        mx.random.seed(1)
        (x,) = leaves(X)
        with autograd.record():
            a, _, c = net(x)
            _, d, _ = net(a * a + 1)
            loss = d.sum() + c.sum()
        loss.backward()
        return [x.grad.asnumpy()]

    for run in (retained, added, asked, twice, waiting, nested):
        both(run, root, **flags)


def test_triton_runs_the_forward_again_on_its_device(monkeypatch):
    use_triton(monkeypatch)
    eager, net = Function(root), hybrid(root, engine="triton", static_shape=True)
    with np.errstate(all="ignore"):
        for heads in ((0,), (2,), (0, 2), (2,), (2,), (0,)):
            same(gradients(net, heads, X), gradients(eager, heads, X))


def test_states_of_batch_norm_are_updated_once():
    class Net(nn.HybridSequential):
        def hybrid_forward(self, F, x):
            y = self[0](x)
            return F.tanh(y), F.sqrt(x - x)

    def run(active: bool) -> list[Any]:
        net = Net()
        net.add(nn.BatchNorm(in_channels=3))
        net.initialize()
        net.hybridize(active, engine="numpy")
        found = []
        for _ in range(3):
            x = nd.array(X)
            x.attach_grad()
            with autograd.record():
                y, _ = net(x)
                loss = (y * nd.array(X)).sum()
            loss.backward()
            found += [x.grad.asnumpy(), net[0].running_mean.data().asnumpy(), net[0].gamma.grad().asnumpy()]
        return found

    with np.errstate(all="ignore"):
        same(run(True), run(False))


def test_a_layer_whose_states_nobody_differentiates(monkeypatch):
    runs = forwards(None, monkeypatch)

    def run(active: bool) -> list[Any]:
        mx.random.seed(2)
        layer = rnn.LSTM(4, input_size=3)
        layer.initialize()
        layer.hybridize(active, engine="numpy")
        for _ in range(3):
            with autograd.record():
                y, _ = layer(nd.ones((5, 2, 3)), layer.begin_state(2))
            y.backward()
        return [item.grad().asnumpy() for item in layer.collect_params().values()]

    same(run(True), run(False))
    assert len(runs) == 1


def test_what_was_written_to_before_the_forward_runs_again_is_named():
    net = hybrid()
    x, w = leaves(X, X)
    with autograd.record():
        a, _, _ = net(x, w)
    w[:] = 1.0
    with pytest.raises(AutogradError, match="needs input 1, .* it has been written to since"):
        a.backward()


# -- what no output depends on -----------------------------------------------------------------------------------------


def test_an_input_that_no_output_depends_on_gets_no_gradient():
    class Net(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.used = self.params.get("used", shape=(3,), init="ones")
            self.idle = self.params.get("idle", shape=(3,), init="ones")

        def hybrid_forward(self, F, x, y, used, idle):
            F.exp(idle)
            return F.broadcast_mul(x, used)

    def run(active: bool) -> list[Any]:
        net = Net()
        net.initialize()
        net.hybridize(active, engine="numpy")
        net.idle.data().grad[:] = 7.0
        x, y = leaves(X, X)
        with autograd.record():
            z = net(x, y)
        for item in (y, net.idle.data()):
            with pytest.raises(AutogradError, match="the heads do not depend on it"):
                autograd.grad(z, [item], retain_graph=True)
            with pytest.raises(AutogradError, match="the heads do not depend on it"):
                autograd.grad(z, [item], retain_graph=True, create_graph=True)
        z.backward()
        return [x.grad.asnumpy(), y.grad.asnumpy(), net.used.grad().asnumpy(), net.idle.grad().asnumpy()]

    eager = run(False)
    same(run(True), eager)
    assert (eager[1] == 7).all() and (eager[3] == 7).all()


def test_a_second_gradient_that_is_not_written_down_is_an_error_and_not_zeros():
    def refuse(net: Any) -> None:
        (x,) = leaves(X)
        with autograd.record():
            y = net(x)
            (dx,) = autograd.grad(y, [x], create_graph=True)
            z = dx * dx
        with pytest.raises(AutogradError, match="has no gradient"):
            z.backward()

    def loss(F: Any, x: Any) -> Any:
        return F.LinearRegressionOutput(x, F.ones_like(x))

    refuse(Function(loss))
    refuse(hybrid(loss))


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime", "torch"])
@pytest.mark.parametrize("chosen", [[0], [1], [2], [0, 1], [1, 2]])
def test_a_layer_that_is_called_twice_updates_its_statistics_between_call_and_backward(chosen, engine):
    class Net(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm(in_channels=3)

        def forward(self, x):
            return self.norm(x), nd.tanh(self.norm(x * 2)), x * x

    def run(active: bool) -> list[Any]:
        net = Net()
        net.initialize()
        net.hybridize(active, engine=engine)
        (x,) = leaves(X)
        with autograd.record():
            outputs = net(x)
        autograd.backward([outputs[index] for index in chosen])
        return [x.grad.asnumpy(), net.norm.running_mean.data().asnumpy()]

    same(run(True), run(False))


@pytest.mark.parametrize("layer", [nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm, nn.BatchNorm])
def test_what_gradients_do_not_depend_on_keeps_its_gradient(layer):
    def run(active: bool) -> list[Any]:
        net = nn.HybridSequential()
        net.add(layer(), nn.Flatten())
        net.initialize()
        net.hybridize(active, engine="numpy")
        random = np.random.RandomState(1)
        x = nd.array(random.uniform(-1, 1, (2, 3, 4)))
        x.attach_grad()
        heads = nd.array(random.uniform(-1, 1, net(x).shape))
        for parameter in net.collect_params().values():
            if parameter.grad_req != "null":
                parameter.grad()[:] = 7.0
        with autograd.record():
            (gradient,) = autograd.grad(net(x), [x], heads, create_graph=True)
            z = (gradient * gradient).sum()
        z.backward()
        found = [p.grad().asnumpy() for p in net.collect_params().values() if p.grad_req != "null"]
        return [x.grad.asnumpy(), *found]

    same(run(True), run(False))


@pytest.mark.parametrize("name", ["zeros_like", "ones_like", "shape_array", "argmax", "stop_gradient"])
def test_outputs_without_a_gradient_give_zeros_in_both_modes(name):
    def run(active: bool) -> list[Any]:
        net = Function(lambda F, x: [F.cast(getattr(F, name)(x * 2), dtype="float32"), x * 3])
        net.hybridize(active, engine="numpy")
        (x,) = leaves(X)
        x.grad[:] = 7.0
        with autograd.record():
            first, _ = net(x)
        first.backward()
        return [x.grad.asnumpy()]

    same(run(True), run(False))
