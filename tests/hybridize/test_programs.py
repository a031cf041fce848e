"""Programs of a Block: when they are made and why, what they hold of the parameters, and how one call is recorded."""

import itertools
import logging
import sys
import threading

import numpy as np
import pytest

from hybrid_lab import autograd, engines, gluon, nd
from hybrid_lab.diagnostics import AutogradError
from hybrid_lab.gluon import nn
from hybrid_lab.hybridize import program_cache
from hybrid_lab.hybridize.program_cache import MANY
from hybrid_lab.system.logger import logger


class Scaled(gluon.HybridBlock):
    """relu(x * w + 1), with a parameter of one number."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.w = self.params.get("w", shape=(1,), init="ones")

    def hybrid_forward(self, F, x, w):
        return F.relu(F.broadcast_mul(x, w) + 1)


def make(kind=Scaled, engine="numpy", **flags):
    net = kind()
    net.initialize()
    net.hybridize(engine=engine, **flags)
    return net


@pytest.fixture
def messages():
    """What the logger says, at any level."""
    found = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append((record.levelname, record.getMessage()))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(level)


# -- recompiles ------------------------------------------------------------------------------------------------------


def test_every_compile_has_a_reason_and_the_line_that_called():
    net = make()
    net(nd.ones((2, 3)))
    net(nd.ones((4, 3)))
    with autograd.record():
        net(nd.ones((4, 3)))
    net(nd.ones((2, 3), dtype="float64").astype("float32"))
    kinds = [(each.kind, each.reason) for each in net._graph_calls.compilations]
    assert kinds == [
        ("first", "first call"),
        ("shape", "input shape (4, 3) instead of (2, 3)"),
        ("mode", "training mode, recording for the backward"),
    ]
    assert all(each.place.file == __file__ for each in net._graph_calls.compilations)
    assert "net(nd.ones((4, 3)))" in net._graph_calls.compilations[1].place.source_line
    assert f"called at {__file__}, line {net._graph_calls.compilations[1].place.line}" in str(
        net._graph_calls.compilations[1]
    )


def test_the_reason_is_the_difference_to_the_nearest_signature():
    net = make()
    net(nd.ones((2, 3)))
    with autograd.record():
        net(nd.ones((5, 5)))
    net(nd.ones((2, 4)))
    assert net._graph_calls.compilations[-1].reason == "input shape (2, 4) instead of (2, 3)"


def test_reasons_of_calls_with_several_arrays():
    class Sum(gluon.HybridBlock):
        def hybrid_forward(self, F, x, others, scale):
            return (x + others[0]) * scale

    net = make(Sum)
    x = nd.ones((2, 3))
    net(x, [x], 2.0)
    net(x, [nd.ones((1, 3))], 2.0)
    net(x, [x], 3.0)
    y = nd.ones((2, 3))
    y.attach_grad()
    with autograd.record():
        net(x, [x], 2.0)
        net(x, [y], 2.0)
    reasons = [each.reason for each in net._graph_calls.compilations]
    assert reasons[1] == "input 1 shape (1, 3) instead of (2, 3)"
    assert reasons[2] == "the arguments (tensor, [tensor], 3.0) instead of (tensor, [tensor], 2.0)"
    assert reasons[4] == "input 1 needs a gradient"


def test_many_recompiles_are_a_warning_with_the_remedy(messages):
    net = make()
    for size in range(1, MANY + 3):
        net(nd.ones((size, 3)))
    warnings = [text for level, text in messages if level == "WARNING"]
    assert len(warnings) == 1
    assert warnings[0].startswith(
        f"{net.name} was compiled again {MANY} times, now because of input shape (9, 3) instead of (8, 3), called at "
    )
    assert "test_programs.py, line" in warnings[0] and "last_batch='discard'" in warnings[0]
    for size in range(MANY + 3, 2 * MANY + 2):
        net(nd.ones((size, 3)))
    assert len([text for level, text in messages if level == "WARNING"]) == 2
    assert net._graph_calls.compiled.recompiles == 2 * MANY


def test_a_changing_number_is_named(messages):
    class Times(gluon.HybridBlock):
        def hybrid_forward(self, F, x, scale):
            return x * scale

    net = make(Times)
    for number in range(MANY + 1):
        net(nd.ones((2,)), float(number))
    (warning,) = [text for level, text in messages if level == "WARNING"]
    assert "pass a number that changes as an array" in warning


def test_programs_called_last_stay(monkeypatch):
    monkeypatch.setattr(program_cache, "MAX_PROGRAMS", 3)
    net = make()

    def call(size):
        net(nd.ones((size, 3)))
        return len(net._graph_calls.compilations)

    assert [call(size) for size in (1, 2, 3, 1, 4, 1, 3, 4)] == [1, 2, 3, 3, 4, 4, 4, 4]  # 4 took the place of 2
    assert call(2) == 5
    assert net._graph_calls.compilations[-1].kind == "evicted"


def test_another_grad_req_makes_another_program():
    net = make()
    x = nd.ones((2, 3))

    def gradient():
        with autograd.record():
            y = net(x)
        y.backward()
        return net.w.grad().asscalar()

    assert gradient() == 6.0
    net.w.grad_req = "null"
    with autograd.record():
        y = net(x)
    with pytest.raises(AutogradError, match="not in a computational graph"):
        y.backward()
    net.w.grad_req = "write"
    assert gradient() == 6.0
    assert [each.kind for each in net._graph_calls.compilations] == ["first", "grad_req"]
    assert net._graph_calls.compilations[1].reason == f"the parameter {net.w.name} needs no gradient"


def test_two_threads_compile_once():
    net = make()
    barrier, results = threading.Barrier(4), []

    def call():
        barrier.wait()
        results.append(net(nd.ones((2, 3))).asnumpy())

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(net._graph_calls.compilations) == 1 and all((each == 2).all() for each in results)


# -- what is held of the parameters ----------------------------------------------------------------------------------


def folding():
    """A net in which prediction computes something from parameters alone."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, in_channels=2), nn.BatchNorm(in_channels=4), nn.Dense(3, in_units=4 * 4 * 4))
    net.initialize()
    return net


def images(batch, seed=0):
    return nd.array(np.random.default_rng(seed).normal(size=(batch, 2, 6, 6)))


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_written_parameters_are_read_anew(engine):
    pytest.importorskip(engine if engine == "onnxruntime" else "numpy")
    net, eager = folding(), folding()

    def agree():
        for path, parameter in eager._collect_params_with_prefix().items():
            parameter.set_data(net._collect_params_with_prefix()[path].data())
        for batch in (2, 3):
            expected = eager(images(batch)).asnumpy()
            for _ in range(3):  # the second and third call may run packed
                np.testing.assert_allclose(net(images(batch)).asnumpy(), expected, rtol=1e-4, atol=1e-5)

    net.hybridize(engine=engine)
    agree()
    for parameter in net.collect_params().values():
        parameter.set_data(parameter.data() * 1.5 + 0.1)
        agree()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    for _ in range(2):
        with autograd.record():
            loss = (net(images(4, 1)) ** 2).mean()
        loss.backward()
        trainer.step(1)
        agree()


def test_packing_waits_for_calm():
    """Packed at the second call with the same parameters, later the more often that was in vain."""
    net = make()
    x = nd.ones((2, 3))
    net(x)
    program = net._graph_calls.compilations[-1].program
    calls = []
    object.__setattr__(program, "forward", Recorder(program.forward, calls))  # past the refusal to change

    def calls_until_packed():
        before, count = calls.count("pack"), 0
        while calls.count("pack") == before:
            net(x)
            count += 1
        return count

    assert calls_until_packed() == 1
    net(x)
    assert calls == ["pack"]
    counts = []
    for _ in range(3):
        net.w.set_data(nd.ones((1,)))
        counts.append(calls_until_packed())
    assert counts == [3, 5, 9] and calls.count("unpack") == 3  # the first call with new values only reads them


class Recorder:
    """An executable that notes what it is told."""

    def __init__(self, executable, calls):
        self.executable, self.calls = executable, calls

    def pack(self, inputs, token=None):
        assert len(inputs) == 2
        self.calls.append("pack")

    def unpack(self):
        self.calls.append("unpack")

    def __getattr__(self, name):
        return getattr(self.executable, name)


def test_few_programs_are_packed():
    net = make()
    for size in range(1, 8):
        for _ in range(3):
            net(nd.ones((size, 3)))
    packed = [each.program.state.packed for each in net._graph_calls.compilations]
    assert packed == [False] * 3 + [True] * 4


def test_batch_sizes_share_what_depends_on_parameters_alone():
    net = folding()
    net.hybridize(engine="numpy")
    prologues = []
    for batch in (1, 2, 3):
        net(images(batch))
        prologues.append(net._graph_calls.compilations[-1].program.prologue)
    assert prologues[0] is not None and prologues[0] is prologues[1] is prologues[2]


def test_training_never_packs():
    net = make()
    with autograd.record():
        for _ in range(3):
            net(nd.ones((2, 3)))
    assert not net._graph_calls.compilations[-1].program.state.packed


def test_writes_of_another_library_are_seen():
    torch = pytest.importorskip("torch")
    net = folding()
    net.hybridize(engine="numpy")
    for _ in range(3):
        net(images(2))
    shared = torch.from_dlpack(net[0].weight.data())
    for factor in (2.0, 0.5):
        shared *= factor
        found = net(images(2)).asnumpy()
        with autograd.predict_mode():
            eager = net[2](net[1](net[0](images(2)))).asnumpy()
        np.testing.assert_allclose(found, eager, rtol=1e-4, atol=1e-5)


# -- the tape --------------------------------------------------------------------------------------------------------


class Two(gluon.HybridBlock):
    """Two outputs of two inputs."""

    def hybrid_forward(self, F, x, y):
        return x * y, F.exp(x)


def leaf(values, req="write"):
    array = nd.array(values)
    array.attach_grad(req)
    return array


def test_one_output_of_several():
    net = make(Two)
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    with autograd.record():
        product, power = net(x, y)
    product.backward(retain_graph=True)
    assert x.grad.asnumpy().tolist() == [3.0, 4.0] and y.grad.asnumpy().tolist() == [1.0, 2.0]
    autograd.backward([product, power], [nd.array([1.0, 0.0]), None])
    np.testing.assert_allclose(x.grad.asnumpy(), [3 + np.e, np.exp(2)], rtol=1e-6)
    assert y.grad.asnumpy().tolist() == [1.0, 0.0]
    with pytest.raises(AutogradError, match="used up"):
        power.backward()


def test_one_array_as_both_inputs():
    net = make(Two)
    x = leaf([3.0])
    with autograd.record():
        product, _ = net(x, x)
    product.backward()
    assert x.grad.asnumpy().tolist() == [6.0]


def test_gradients_that_add_up_and_that_nobody_wants():
    net = make(Two)
    x, y = leaf([1.0], "add"), leaf([2.0], "null")
    for _ in range(3):
        with autograd.record():
            product, _ = net(x, y)
        product.backward(nd.array([10.0]))
    assert x.grad.asnumpy().tolist() == [60.0] and y.grad is None


def test_a_write_to_what_the_backward_reads_names_it():
    net = make(Two)
    x, y = leaf([1.0]), leaf([2.0])
    with autograd.record():
        product, power = net(x, y)
    y[:] = 5.0
    with pytest.raises(AutogradError, match=f"the gradient of the hybridized block {net.name} needs input 1"):
        product.backward()
    with autograd.record():
        product, power = net(x, y)
    power[:] = 0.0
    with pytest.raises(AutogradError, match="needs output 1"):
        power.backward()


def test_a_parameter_written_between_forward_and_backward():
    net = make()
    x = leaf([[1.0]])
    with autograd.record():
        y = net(x)
    net.w.set_data(nd.array([2.0]))
    with pytest.raises(AutogradError, match="written to since"):
        y.backward()


def test_a_dropped_result_frees_what_was_saved():
    import gc
    import weakref

    net = make(Two)
    x, y = leaf([1.0]), leaf([2.0])
    gc.disable()
    try:
        with autograd.record():
            product, power = net(x, y)
        node = weakref.ref(product.tape_link.node)
        del product, power
        assert node() is None
    finally:
        gc.enable()


# -- gradients of gradients --------------------------------------------------------------------------------------------


class Cubic(gluon.HybridBlock):
    """tanh(x w) ^ 2 y, with a parameter."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.w = self.params.get("w", shape=(1,), init="ones")

    def hybrid_forward(self, F, x, y, w):
        return F.square(F.tanh(F.broadcast_mul(x, w))) * y


def penalty_gradients(net):
    """Gradients of sum(dx^2), where dx is itself a gradient; and a third derivative."""
    x, y = leaf([0.5, 1.0]), leaf([2.0, 3.0])
    with autograd.record():
        z = net(x, x * y)
        (dx,) = autograd.grad(z, [x], create_graph=True)
        (d2x,) = autograd.grad(dx, [x], create_graph=True)
        loss = (dx * dx).sum() + d2x.sum()
    loss.backward()
    return [each.asnumpy() for each in (dx, d2x, x.grad, y.grad, net.w.grad())]


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_gradients_of_gradients_are_compiled(engine):
    net = make(Cubic, engine)
    net.hybridize(False)
    eager = penalty_gradients(net)
    net.hybridize(engine=engine)
    for found, expected in zip(penalty_gradients(net), eager, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4)
    kinds = [each.kind for each in net._graph_calls.compilations]
    assert kinds == ["first", "second", "second"]
    assert net._graph_calls.compilations[1].reason == "gradients of gradients"
    penalty_gradients(net)
    assert len(net._graph_calls.compilations) == 3  # made once


def test_masks_are_those_of_the_forward():
    net = nn.HybridSequential()
    net.add(nn.Dropout(0.5))
    net.hybridize(engine="numpy")
    x = leaf(np.ones(64))
    with autograd.record():
        y = net(x)
        (dx,) = autograd.grad(y * y, [x], create_graph=True)
    assert np.array_equal(dx.asnumpy(), 4 * y.asnumpy())
    assert {each.kind for each in net._graph_calls.compilations} == {"first", "second"}


def test_operators_without_a_second_gradient_run_eagerly():
    class Pooled(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.square(F.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max"))

    results = []
    for active in (False, True):
        net = make(Pooled)
        net.hybridize(active, engine="numpy")
        x = leaf(np.arange(16.0).reshape(1, 1, 4, 4))
        with autograd.record():
            try:
                (dx,) = autograd.grad(net(x), [x], create_graph=True)
                (dx * dx).sum().backward()
                results.append(x.grad.asnumpy())
            except AutogradError as error:
                results.append(str(error))
    assert type(results[0]) is type(results[1])
    np.testing.assert_array_equal(*results)


def test_gradients_of_gradients_refuse_what_was_written_to():
    net = make(Cubic)
    x, y = leaf([0.5, 1.0]), leaf([2.0, 3.0])
    with autograd.record():
        z = net(x, y)
    x[:] = 3.0
    with pytest.raises(AutogradError, match="written to since"):
        autograd.grad(z, [x], create_graph=True)


# -- interrupts --------------------------------------------------------------------------------------------------------


def test_an_interrupt_leaves_the_statistics_of_all_layers_or_of_none(monkeypatch):
    import signal

    from hybrid_lab.ndarray.ndarray import NDArray

    net = nn.HybridSequential()
    net.add(nn.BatchNorm(in_channels=2), nn.BatchNorm(in_channels=2))
    net.initialize()
    net.hybridize(engine="numpy")
    states = {id(value.data()) for key, value in net.collect_params().items() if "running" in key}
    real, written = NDArray.assign, set()

    def interrupted(self, values):
        signal.raise_signal(signal.SIGINT)
        real(self, values)
        written.add(id(self))

    monkeypatch.setattr(NDArray, "assign", interrupted)
    with pytest.raises(KeyboardInterrupt), autograd.record():
        net(nd.array([[1.0, 2.0], [3.0, 5.0]]))
    assert written == states and len(states) == 4
    assert not autograd.is_recording()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("calls", [1, 2])
def test_an_interrupt_leaves_no_parameters_in_a_session(calls, monkeypatch):
    """Unchanged parameters are baked into a session at the second call, and taken out when they are written to. The
    call that is interrupted is one of the two, in each function that it enters.
    """
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(engines.get("onnxruntime"), "worth", lambda region: None)
    x = nd.ones((2, 3))
    # How many functions a call enters depends on what ran before it in the process: on the modules that it imports.
    for at in itertools.count(1):
        net = nn.Dense(4, in_units=3)
        net.initialize()
        net.hybridize(engine="onnxruntime")
        for _ in range(calls):
            net(x)
        if calls == 2:
            net.weight.set_data(nd.ones((4, 3)) * 2)
        finished = not interrupted(at, lambda net=net: net(x))
        net.weight.set_data(nd.ones((4, 3)))
        np.testing.assert_array_equal(net(x).asnumpy(), np.full((2, 4), 3.0))
        if finished:
            break
    assert at > 10


def interrupted(at, call):
    """Run a call and interrupt it in the function of this package that it enters as number `at`; whether it was."""
    left = at

    def count(frame, event, argument):
        nonlocal left
        if event == "call" and "hybrid_lab" in frame.f_globals.get("__name__", ""):
            left -= 1
            if left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(count)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


# -- gradients written where they belong ------------------------------------------------------------------------------


def wide():
    """Layers whose gradients are large enough to be written in place; the weight and the gradient of the last one."""
    net = nn.HybridSequential()
    net.add(nn.Dense(300, in_units=300, activation="tanh", flatten=False), nn.Dense(300, in_units=300, flatten=False))
    net.initialize()
    net.hybridize(engine="numpy")
    return net, net[1].weight.data(), net[1].weight.grad()


def test_nothing_is_written_where_a_later_step_refuses():
    """The layers' gradients come before that of the product, whose input has been written to."""
    (net, _, grad), x = wide(), leaf(np.ones((2, 300)))
    with autograd.record():
        z = net(x * x)
        loss = (z * z).sum()
    grad[:] = 7.0
    x[:] = 2.0
    with pytest.raises(AutogradError, match="written to since"):
        loss.backward()
    assert (grad.asnumpy() == 7.0).all()


def test_a_gradient_in_place_is_the_gradient():
    (net, weight, grad), x = wide(), leaf(np.ones((2, 300)))
    found = []
    for active in (False, True, True):
        net.hybridize(active, engine="numpy")
        with autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
        assert net[1].weight.grad() is grad and weight.grad is grad
        found.append(grad.asnumpy())
    assert net._graph_calls.compilations[-1].program.large_gradients
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-5)
    assert np.array_equal(found[1], found[2])


def test_the_gradient_itself_as_an_output_gradient():
    class Handed(autograd.Function):
        def forward(self, x):
            return x * 1

        def backward(self, dy):
            return handed

    (net, _, handed), x = wide(), nd.ones((300, 300))
    values = np.random.default_rng(0).normal(size=(300, 300)).astype("float32")
    handed[:] = nd.array(values)
    with autograd.record():
        y = Handed()(net(x))
    y.backward()
    hidden = net[0](x).asnumpy()
    np.testing.assert_allclose(handed.asnumpy(), values.T @ hidden, rtol=1e-3, atol=1e-3)
