"""Device programs: whole graphs on tensors of one device. Triton's interpreter stands in for a GPU, with memory that
is copied to and from as a GPU's is.
"""

from __future__ import annotations

import itertools
import threading
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

import hybrid_lab as mx
from hybrid_lab import autograd, engines, gluon, nd
from hybrid_lab.diagnostics import AutogradError, EngineError
from hybrid_lab.engines import memory
from hybrid_lab.engines.memory import copies
from hybrid_lab.engines.planned.training import JointTraining
from hybrid_lab.engines.triton.build import internals
from hybrid_lab.engines.triton.run import arena, availability, kernel
from hybrid_lab.gluon import nn
from tests.graph.building import graph_of
from tests.triton_device import ON_GPU, use_triton

GPU = mx.gpu(0)


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    use_triton(monkeypatch)


@pytest.fixture
def copied():
    """copied() -> (to the device, to the host) since the last time."""
    last = [copies.to_device, copies.to_host]

    def look():
        found = copies.to_device - last[0], copies.to_host - last[1]
        last[:] = copies.to_device, copies.to_host
        return found

    return look


def both(function, *shapes):
    """Inputs, what the numpy engine gives for them, and the triton engine's executable."""
    graph = graph_of(function, *shapes)
    arrays = [np.random.RandomState(0).randn(*shape).astype("float32") for shape in shapes]
    return arrays, engines.get("numpy").compile(graph)(arrays), engines.get("triton").compile(graph)


def tensors(arrays):
    return [torch.from_numpy(array).to(availability.torch_device(), copy=True) for array in arrays]


def close(found, expected):
    for one, other in zip(found, expected, strict=True):
        one, other = (item.cpu() if torch.is_tensor(item) else item for item in (one, other))
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5, atol=1e-5)


# -- one graph -----------------------------------------------------------------------------------------------------


def test_the_program_is_a_line_of_launches():
    arrays, expected, executable = both(lambda F, x, w: F.softmax(F.dot(F.tanh(x), w)), (4, 6), (6, 5))
    source = executable.report.program
    assert sum("k_dot" in line for line in source.splitlines()) == 1 and "empty((4, 5), float32)" in source
    found = executable.run(tensors(arrays), (0, 0))
    assert all(type(item) is torch.Tensor for item in found)
    close(found, expected)


def test_arrays_of_the_host_are_copied_there_and_back(copied):
    arrays, expected, executable = both(lambda F, x: F.exp(x), (3, 4))
    close(executable(arrays), expected)
    assert copied() == (1, 1)


def test_outputs_are_nobodys_memory_but_the_callers():
    arrays, expected, executable = both(lambda F, x: (F.exp(x), F.reshape(x, shape=(-1,)), x), (3, 4))
    given = tensors(arrays)
    first = executable.run(given, (0, 0))
    for item in first:
        item.fill_(9)
    close(executable.run(given, (0, 0)), expected)
    close(given, arrays)


def test_views_are_no_steps_and_other_orders_are_copies():
    arrays, expected, executable = both(
        lambda F, x: (F.sort(F.reshape(F.exp(x), shape=(2, 6))), F.sort(F.transpose(x)), F.sort(F.reverse(x, axis=1))),
        (3, 4),
    )
    close(executable.run(tensors(arrays), (0, 0)), expected)
    assert "is a view of" in executable.report.program


def test_constants_go_to_the_device_once(copied):
    table = np.arange(12, dtype="float32").reshape(3, 4)

    def function(F, x):
        return F.sum(x * F.array(table), axis=1), F.exp(x) + F.array(table)

    class Tabled(gluon.HybridBlock):
        hybrid_forward = staticmethod(function)

    net = Tabled()
    net.hybridize()
    x = nd.ones((3, 4), ctx=GPU)
    net(x)
    copied()
    found = net(x)
    assert copied() == (0, 0)
    close([item.asnumpy() for item in found], [table.sum(1), np.e + table])


def test_large_constants_that_were_computed_beforehand_lie_on_the_device(copied):
    class Shifted(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x - F.ones_like(x) * 1e9

    net = Shifted()
    net.hybridize(engine="triton")
    for size in (20000, 30000):  # too large to be part of the graph
        x = nd.ones((size,), ctx=GPU)
        net(x)
        copied()
        found = net(x)
        assert copied() == (0, 0)
        np.testing.assert_array_equal(found.asnumpy(), np.ones(size, "float32") - np.float32(1e9))


def test_parts_of_split_reductions_are_planned():
    arrays, expected, executable = both(lambda F, x: F.sum(x), (300_000,))
    assert executable.report.arena_bytes and executable.report.memory.steps[0].op.temporaries
    close(executable.run(tensors(arrays), (0, 0)), expected)


def test_operators_without_a_kernel_run_in_torch_or_on_the_host(copied):
    def on_the_device(F, x):
        return F.cumsum(x, axis=1) * 2.0

    arrays, expected, executable = both(on_the_device, (3, 4))
    copied()
    close(executable.run(tensors(arrays), (0, 0)), expected)
    assert executable.report.operators == {"triton": 1, "torch": 1, "numpy": 0} and copied() == (0, 0)
    with pytest.raises(EngineError, match="cumsum: the operator has no Triton kernel"):
        engines.get("triton").compile(graph_of(on_the_device, (3, 4)), strict=True)

    arrays, expected, executable = both(lambda F, x: F.sample_poisson(F.abs(x)) * 2.0, (3, 4))
    copied()
    close(executable.run(tensors(arrays), (0, 0)), expected)
    assert executable.report.operators["numpy"] == 0 and copied() == (0, 0)

    arrays, expected, executable = both(lambda F, x: F._image_resize(F.abs(x), size=(3, 2)) * 2.0, (4, 4, 3))
    copied()
    close(executable.run(tensors(arrays), (0, 0)), expected)
    report = executable.report
    assert report.operators["numpy"] == 1 and report.host_copies == {"_image_resize": 2} and copied() == (1, 1)
    assert "copies between device and host in each call: 2 for _image_resize" in str(report)


@pytest.mark.parametrize("name, attributes", [
    ("sort", {"axis": 0}), ("argsort", {"is_ascend": False}), ("topk", {"k": 2, "ret_typ": "both"}),
])  # fmt: skip
def test_orders_stay_on_the_device(copied, name, attributes):
    arrays, expected, executable = both(lambda F, x: getattr(F, name)(F.exp(x), **attributes), (3, 4))
    copied()
    close(executable.run(tensors(arrays), (0, 0)), expected)
    assert executable.report.operators["torch"] == 1 and not executable.report.host_copies and copied() == (0, 0)


def test_what_torch_computes_stays_on_the_device(copied, monkeypatch):
    monkeypatch.setattr("hybrid_lab.engines.triton.plan.other_batches.refusal", lambda node: "a test")
    arrays, expected, executable = both(lambda F, x: F.exp(x) + F.transpose(x), (4, 4))
    assert executable.report.operators == {"triton": 1, "torch": 2, "numpy": 0}
    assert not executable.report.host_copies
    copied()
    close(executable.run(tensors(arrays), (0, 0)), expected)
    assert copied() == (0, 0)


def test_static_alloc_keeps_its_arena():
    graph = graph_of(lambda F, x: F.sort(F.exp(x)) * 2.0, (300, 400))
    arrays = [np.random.RandomState(0).randn(300, 400).astype("float32")]
    arena.POOL.clear()
    engines.get("triton").compile(graph, static_alloc=True)(arrays)
    assert not arena.POOL.nbytes
    engines.get("triton").compile(graph)(arrays)
    assert arena.POOL.nbytes
    engines.get("triton").trim()
    assert not arena.POOL.nbytes


def test_threads_have_arenas_of_their_own():
    arrays, _, executable = both(lambda F, x, w: F.softmax(F.dot(F.tanh(x), w)), (4, 6), (6, 5))
    found = {}

    def work(number):
        given = tensors([arrays[0] * number, arrays[1]])
        found[number] = [executable.run(given, (0, 0))[0].clone() for _ in range(3)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, results in found.items():
        (expected,) = executable.run(tensors([arrays[0] * number, arrays[1]]), (0, 0))
        assert all(torch.equal(result, expected) for result in results)


def test_memory_that_runs_out_is_an_error_with_sizes(monkeypatch):
    def full(*arguments, **keywords):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")

    net = nn.Dense(3, in_units=4)
    net.initialize(ctx=GPU)
    net.hybridize()
    x = nd.ones((2, 4), ctx=GPU)
    expected = net(x).asnumpy()
    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", full)
        with pytest.raises(EngineError, match="memory .*24 B .*smaller batches"):
            net(x)
    np.testing.assert_array_equal(net(x).asnumpy(), expected)


def test_free_arenas_are_given_back_before_memory_runs_out(monkeypatch):
    graph = graph_of(lambda F, x: F.sort(F.exp(x)) * 2.0, (300, 400))
    engines.get("triton").compile(graph)([np.ones((300, 400), "float32")])
    assert arena.POOL.nbytes
    plain = torch.empty

    def full(*arguments, **keywords):
        if arena.POOL.nbytes:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(*arguments, **keywords)

    monkeypatch.setattr(torch, "empty", full)
    assert memory.empty((2, 3), torch.float32, "cpu").shape == (2, 3) and not arena.POOL.nbytes
    nd.ones((2,), ctx=GPU).context.empty_cache()


# -- training ------------------------------------------------------------------------------------------------------


def small_net():
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(3, 3, in_channels=1, activation="relu"),
        nn.BatchNorm(in_channels=3),
        nn.MaxPool2D(),
        nn.Dropout(0.3),
        nn.Dense(4, in_units=3 * 4 * 4),
    )
    return net


class Training:
    """Some steps of a small network on one engine and context: losses and parameters, and the copies of the last one.

    watch : called after each step
    """

    def __init__(self, engine, ctx, steps=3, optimizer="sgd", watch=lambda: None, **flags):
        mx.random.seed(0)
        settings = {"sgd": {"learning_rate": 0.1, "momentum": 0.9}, "adam": {"learning_rate": 0.01}}[optimizer]
        self.net, self.loss = small_net(), gluon.loss.SoftmaxCrossEntropyLoss()
        self.net.initialize(ctx=ctx)
        self.net.hybridize(engine=engine, **flags)
        self.loss.hybridize(engine=engine, **flags)
        self.trainer = gluon.Trainer(self.net.collect_params(), optimizer, settings)
        numbers = np.random.RandomState(0)
        mx.random.seed(7)
        self.losses = []
        for _ in range(steps):
            x, y = numbers.randn(2, 1, 10, 10), numbers.randint(0, 4, 2)
            x, y = nd.array(x, ctx=ctx), nd.array(y, ctx=ctx)
            with autograd.record():
                loss = self.loss(self.net(x), y)
            loss.backward()
            self.trainer.step(2)
            self.losses.append(loss)
            watch()
        self.losses = [loss.asnumpy() for loss in self.losses]
        self.values = [parameter.data(ctx).asnumpy() for parameter in self.net.collect_params().values()]


@pytest.fixture(scope="module")
def by_numpy():
    """The training by the numpy engine, by optimizer."""
    return {name: Training("numpy", mx.cpu(), optimizer=name) for name in ("sgd", "adam")}


@pytest.mark.parametrize("ctx", [mx.cpu(), GPU], ids=str)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_training_follows_numpy_and_stays_on_the_device(ctx, optimizer, by_numpy, copied):
    steps = []
    run = Training(None, ctx, 3, optimizer, lambda: steps.append(copied()))
    assert steps[1:] == [(2, 0)] * 2  # the batch and its labels
    close(run.losses, by_numpy[optimizer].losses)
    for found, expected in zip(run.values, by_numpy[optimizer].values, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    (update,) = run.trainer.updates
    assert "on the device" in update
    assert "copies so far" in str(mx.explain(run.net))


def test_weights_with_rates_of_their_own():
    values = []
    for ctx, engine in ((mx.cpu(), "numpy"), (GPU, "triton")):
        mx.random.seed(0)
        net = nn.Dense(3, in_units=4)
        net.initialize(ctx=ctx)
        net.bias.lr_mult = 10.0
        net.hybridize(engine=engine)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.5, "wd": 0.01})
        for step in range(3):
            with autograd.record():
                loss = net(nd.ones((2, 4), ctx=ctx) * (step + 1))
            loss.backward()
            trainer.set_learning_rate(0.1 / (step + 1))
            trainer.step(2)
        values.append([net.weight.data().asnumpy(), net.bias.data().asnumpy()])
    close(values[1], values[0])


def test_forward_and_backward_share_an_arena_and_give_what_they_give_apart():
    net = small_net()
    net.initialize(ctx=GPU)
    net.hybridize()
    x = nd.array(np.random.RandomState(0).randn(2, 1, 10, 10), ctx=GPU)
    mx.random.seed(1)
    with autograd.record():
        y = net(x)
    y.backward(retain_graph=True)
    apart = [parameter.grad().asnumpy() for parameter in net.collect_params().values() if parameter.grad_req != "null"]
    y.backward()
    joint = [parameter.grad().asnumpy() for parameter in net.collect_params().values() if parameter.grad_req != "null"]
    for one, other in zip(apart, joint, strict=True):
        np.testing.assert_array_equal(one, other)
    made = net._graph_calls.compilations[-1].program
    assert isinstance(made.together, JointTraining) and made.forward.report.shared_arena
    with pytest.raises(AutogradError):
        y.backward()


def test_gradients_add_up_and_several_outputs_go_backward(copied):
    class Two(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            y = F.tanh(x)
            return y * x, F.exp(y)

    results = []
    for ctx, engine in ((mx.cpu(), "numpy"), (GPU, "triton")):
        net = Two()
        net.hybridize(engine=engine)
        x = nd.array(np.random.RandomState(0).randn(3, 4), ctx=ctx)
        x.attach_grad("add")
        for _ in range(2):
            with autograd.record():
                a, b = net(x)
            autograd.backward([a, b])
        with autograd.record():
            a, b = net(x)
        b.backward()
        results.append(x.grad.asnumpy())
    close(results[1:], results[:1])
    x.grad[:] = 0
    copied()
    with autograd.record():
        a, b = net(x)
    autograd.backward([a, b])
    assert copied() == (1, 0)  # the zeros


@pytest.mark.parametrize("order", range(6))
def test_gradients_of_host_and_device_add_up_in_any_order(order):
    """A hybridized block's gradient is on the device, those of an index are on the host; the array gets their sum."""
    net = nn.HybridLambda("tanh")
    net.hybridize(engine="triton")
    x = nd.array([[0.0, 1.0], [2.0, 3.0]])
    x.attach_grad()
    steps = [lambda: net(x).sum(), lambda: x[0].sum() * 10, lambda: x[1].sum() * 100]
    with autograd.record():
        first, second, third = (step() for step in list(itertools.permutations(steps))[order])
        total = first + second + third
    total.backward()
    close([x.grad.asnumpy()], [1 - np.tanh(x.asnumpy()) ** 2 + [[10.0], [100.0]]])


def test_a_failed_launch_leaves_arrays_as_they_were(monkeypatch):
    net = small_net()
    net.initialize(ctx=GPU)
    net.hybridize()
    x = nd.array(np.random.RandomState(0).randn(2, 1, 10, 10), ctx=GPU)
    with autograd.record():
        net(x)
    before = [parameter.data(GPU).asnumpy() for parameter in net.collect_params().values()]
    calls = []

    def counted():
        calls.append(None)
        if len(calls) > 2:
            raise RuntimeError("a launch failed")

    def failing(self, tensors, numbers):
        counted()
        return plain(self, tensors, numbers)

    def failing_handles(compiled):
        run, *others = handles(compiled)
        return (lambda *given: (counted(), run(*given)), *others)

    plain, handles = kernel.Kernel.__call__, internals.handles
    with monkeypatch.context() as patch:
        patch.setattr(kernel.Kernel, "__call__", failing)
        patch.setattr(internals, "handles", failing_handles)
        # On a GPU a launch is bound when its program is written: here, for a batch that has none yet.
        with pytest.raises(RuntimeError, match="a launch failed"), autograd.record():
            net(nd.array(np.random.RandomState(0).randn(3, 1, 10, 10), ctx=GPU))
    for parameter, value in zip(net.collect_params().values(), before, strict=True):
        np.testing.assert_array_equal(parameter.data(GPU).asnumpy(), value)
    with autograd.record():
        net(x)


def test_steps_can_be_watched_with_arrays_of_the_host():
    net = nn.Dense(3, in_units=4, activation="tanh")
    net.initialize()
    net.hybridize()
    x = nd.array(np.random.RandomState(0).randn(2, 4))
    net(x)
    assert mx.compare(net, x).equal


def test_exhausted_names_other_errors_as_they_are():
    error = RuntimeError("something else")
    assert memory.exhausted(error, "cpu") is error


# -- launches on a GPU, without one ----------------------------------------------------------------------------------


class Launched:
    """Stands for a compiled kernel: notes what it is launched with, and computes on the addresses it is given."""

    packed_metadata = "metadata"

    def __init__(self, source):
        self.source, self.function, self.calls = source, f"function {source.name}", []

    def run(self, x, y, z, stream, function, metadata, launch_metadata, enter, leave, *arguments):
        import ctypes

        assert (function, metadata, launch_metadata, enter, leave) == (self.function, "metadata", None, None, None)
        pointers = [*self.source.inputs, *self.source.outputs]
        assert len(arguments) == len(self.source.signature) and all(type(item) is int for item in arguments)
        assert all(address % 16 == 0 for address in arguments[: len(pointers)])
        self.calls.append((x, y, z, stream, *arguments[len(pointers) :]))
        size = arguments[len(pointers)]
        arrays = [
            np.ctypeslib.as_array((ctypes.c_float * size).from_address(address))
            for address in arguments[: len(pointers)]
        ]
        arrays[-1][:] = np.exp(arrays[0]) if "exp" in self.source.name else arrays[0] * 2


@pytest.fixture
def compiled(monkeypatch):
    """Everything as on a GPU but for memory, kernels and streams; the kernels that were launched, by name."""
    if ON_GPU:
        pytest.skip("stands in for a GPU")
    from hybrid_lab.engines.triton import engine
    from hybrid_lab.engines.triton.build import compiling, internals

    found = {}

    def load(source):
        return found.setdefault(source.name, Launched(source))

    monkeypatch.setattr(availability, "device", lambda: availability.Device("sm90", "cpu", False))
    monkeypatch.setattr(kernel, "device", lambda: availability.Device("sm90", "cpu", False))
    monkeypatch.setattr(compiling, "load", load)
    monkeypatch.setattr(internals, "current_stream", lambda: SimpleNamespace(cuda_stream=77, device_index=0))
    monkeypatch.setattr(engine, "_prepare", lambda sources: None)
    return found


def test_handles_are_launched_with_addresses_and_numbers(compiled):
    arrays, expected, executable = both(lambda F, x: F.sort(F.exp(x), axis=1) * 2.0, (3, 5))
    given = tensors(arrays)
    close(executable.run(given, (0, 0)), expected)
    unaligned = torch.zeros(3 * 5 + 1)[1:].view(3, 5)
    unaligned.copy_(given[0])
    close(executable.run([unaligned], (0, 0)), expected)
    exp = compiled["k_exp"]
    assert exp.calls == [(1, 1, 1, 77, 15, exp.source.blocks["BLOCK"])] * 2
    block = exp.source.blocks["BLOCK"]
    line = f"launch(1, 1, 1, stream, k_exp, metadata, None, None, None, p_x_x0, p_t0, 15, {block})"
    assert line in executable.report.program


class Stream:
    """Stands for a stream of torch; notes what it waits for."""

    device_index = 0

    def __init__(self, cuda_stream):
        self.cuda_stream, self.waits = cuda_stream, []

    def record_event(self):
        return f"event of {self.cuda_stream}"

    def wait_event(self, event):
        self.waits.append(event)


@pytest.fixture
def streams(compiled, monkeypatch):
    """Two streams, of which the last of the list is torch's current one."""
    found = [Stream(7), Stream(0), Stream(7)]
    monkeypatch.setattr(internals, "current_stream", lambda: found[-1])
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: found[-1])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda stream, device: Stream(stream))
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: Stream(0))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: recorded.append(stream))
    recorded = []
    return found, recorded


def test_an_arena_that_goes_to_another_stream_is_waited_for(streams):
    (first, second, _), recorded = streams
    arrays, expected, executable = both(lambda F, x: F.sort(F.exp(x), axis=1) * 2.0, (3, 5))
    given = tensors(arrays)
    for current, waits in [(first, []), (first, []), (second, ["event of 7"]), (second, []), (first, ["event of 0"])]:
        streams[0][-1] = current
        first.waits, second.waits = [], []
        close(executable.run(given, (0, 0)), expected)
        assert current.waits == waits
    assert recorded == [second, first], "torch keeps the memory for the other stream, too"


def test_a_capture_waits_for_nothing(streams, monkeypatch):
    (first, second, _), recorded = streams
    arrays, _, executable = both(lambda F, x: F.sort(F.exp(x), axis=1) * 2.0, (3, 5))
    streams[0][-1] = first
    executable.run(tensors(arrays), (0, 0))
    streams[0][-1] = second
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    executable.run(tensors(arrays), (0, 0))
    assert not second.waits and not recorded
