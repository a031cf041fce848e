"""Arrays on a GPU context: where their numbers are, what is copied when, eager operators and autograd there.

Triton's interpreter stands in for the GPU.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import hybrid_lab as mx  # noqa: E402
from hybrid_lab import autograd, gluon, nd  # noqa: E402
from hybrid_lab.diagnostics import DTypeError, EngineUnavailable, UninitializedError  # noqa: E402
from hybrid_lab.engines.memory import copies  # noqa: E402
from hybrid_lab.gluon import nn  # noqa: E402
from hybrid_lab.ndarray import on_device  # noqa: E402
from hybrid_lab.ndarray.buffer import DeviceBuffer  # noqa: E402
from tests.triton_device import use_triton  # noqa: E402

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


def pair(shape=(3, 4), seed=0):
    """The same numbers on the CPU and on the GPU."""
    values = np.random.RandomState(seed).randn(*shape)
    return nd.array(values), nd.array(values, ctx=GPU)


def close(found, expected):
    np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-5, atol=1e-6)


def test_the_interpreter_is_one_gpu():
    assert mx.num_gpus() == 1 and mx.context.gpu() is mx.gpu(0)
    with pytest.raises(EngineUnavailable, match=r"gpu\(1\) cannot be used: there is 1 GPU, gpu\(0\)"):
        nd.ones((2,), ctx=mx.gpu(1))


def test_numbers_go_there_once_and_come_back_when_they_are_read(copied):
    _, x = pair()
    assert copied() == (0, 0)
    y = x * 2 + x
    assert copied() == (1, 0) and y.context == GPU
    np.testing.assert_allclose(y.asnumpy(), 3 * x.asnumpy(), rtol=1e-6)
    assert copied() == (0, 1)  # x is on the host still
    y.asnumpy()
    assert copied() == (0, 0)
    (y + 1).wait_to_read()
    assert copied() == (0, 0)


def test_every_way_to_make_an_array(copied):
    made = [nd.zeros((2,), ctx=GPU), nd.ones((2,), ctx=GPU), nd.full((2,), 3, ctx=GPU), nd.array([1, 2], ctx=GPU)]
    made += [nd.ones((2,)).as_in_context(GPU), nd.ones((2,)).copyto(GPU), nd.random.uniform(shape=(2,), ctx=GPU)]
    with GPU:
        made += [nd.zeros((2,)), nd.arange(2), nd.random.normal(shape=(2,))]
    made += [made[0][:1], made[0].reshape((2, 1)), made[0].copy(), made[0].astype("float64"), nd.zeros_like(made[0])]
    assert all(x.context == GPU and type(x.buffer) is DeviceBuffer for x in made)
    back = made[1].as_in_context(mx.cpu())
    assert back.context == mx.cpu() and type(back.buffer) is not DeviceBuffer and back.tolist() == [1, 1]


def test_random_numbers_are_those_of_the_host():
    def draw(ctx):
        mx.random.seed(5)
        return [nd.random.uniform(shape=(40,), ctx=ctx).asnumpy(), nd.random.normal(shape=(3, 5), ctx=ctx).asnumpy()]

    (uniform, normal), (there, normal_there) = draw(mx.cpu()), draw(GPU)
    np.testing.assert_array_equal(uniform, there)
    np.testing.assert_allclose(normal, normal_there, rtol=1e-5, atol=1e-6)


def test_arrays_of_two_contexts_do_not_meet():
    x, y = pair()
    for mix in (lambda: x + y, lambda: y + x, lambda: nd.dot(y, x.T)):
        with pytest.raises(DTypeError, match=r"are on .*pu\(0\) and .*as_in_context\(mx\..pu\(0\)\)"):
            mix()
    for mix in (lambda: nd.sin(x, out=y), lambda: nd.sin(y, out=x)):
        with pytest.raises(DTypeError, match=r"another context than out="):
            mix()


def test_eager_operators_are_kept_by_operator_and_shape(copied):
    _, x = pair((5, 7))
    on_device._executables.clear()
    for _ in range(3):
        y = nd.softmax(x * 2)
    assert len(on_device._executables) == 2
    nd.softmax(nd.ones((2, 7), ctx=GPU))
    assert len(on_device._executables) == 3
    close(y, nd.softmax(x.as_in_context(mx.cpu()) * 2))


def test_writes_on_either_side_are_seen_on_the_other(copied):
    x, y = pair()
    copied()
    x += 1
    y += 1
    assert copied() == (1, 0)
    y[0] = 7
    x[0] = 7
    assert copied() == (0, 1)
    close(y * 2, x * 2)
    close(y[1] * 2, x[1] * 2)
    y[:] = 0
    assert (y + 1).asnumpy().sum() == 12


def test_views_share_memory_on_the_device():
    x, y = pair((4, 6))
    for array in (x, y):
        row = array[1:3]
        row *= 2
        array += row[0].reshape((1, 6))
    close(y, x)
    version = y.version
    y[2]._take(nd.ones((6,), ctx=GPU).raw(y.buffer.device.device))
    assert y.version == version + 1 and y[2].asnumpy().sum() == 6


def test_eager_autograd_stays_on_the_device(copied):
    gradients = []
    for x in pair((3, 5)):
        x.attach_grad()
        w = nd.ones((5, 2), ctx=x.context)
        w.attach_grad("add")
        x.asnumpy()
        copied()
        for _ in range(2):
            with autograd.record():
                y = nd.sum(nd.tanh(nd.dot(x, w)) * nd.softmax(nd.dot(x, w)))
            y.backward()
        gradients.append((x.grad, w.grad))
        if x.context == GPU:
            assert copied() == (3, 0)  # x, w, and the zeros that w's gradients are added to
    for one, other in zip(*gradients, strict=True):
        close(other, one)
    assert gradients[1][0].context == GPU


def test_gradients_of_gradients():
    found = []
    for x in pair((4,)):
        x.attach_grad()
        with autograd.record():
            y = nd.sum(nd.sigmoid(x) * x)
            (first,) = autograd.grad([y], [x], create_graph=True, retain_graph=True)
            z = nd.sum(first * first)
        z.backward()
        found.append(x.grad)
    close(found[1], found[0])


def test_states_of_an_eager_layer_are_updated_there():
    found = []
    for ctx in (mx.cpu(), GPU):
        net = nn.BatchNorm(in_channels=3)
        net.initialize(ctx=ctx)
        x = nd.array(np.random.RandomState(0).randn(4, 3), ctx=ctx)
        x.attach_grad()
        with autograd.record():
            y = net(x)
            loss = nd.sum(y * y * y)
        loss.backward()
        found.append([net.running_mean.data(ctx), net.running_var.data(ctx), x.grad, net.gamma.grad(ctx)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other.asnumpy(), one.asnumpy(), rtol=1e-4, atol=1e-5)


def test_operators_without_a_kernel_come_to_the_host_and_are_counted(copied):
    x, y = pair((4, 4, 3))
    y + 0  # it goes there
    copied()
    found = nd.image.resize(y * y, size=(3, 2))
    assert copied() == (1, 1) and found.context == GPU
    close(found, nd.image.resize(x * x, size=(3, 2)))


def test_operators_without_a_kernel_run_on_the_device(copied):
    x, y = pair()
    y + 0  # it goes there
    copied()
    found = nd.gammaln(y)
    assert copied() == (0, 0) and found.context == GPU
    close(found, nd.gammaln(x))


def test_parameters_live_where_they_are_asked_for():
    net = nn.Dense(2, in_units=3)
    net.initialize(ctx=GPU)
    assert net.weight.data().context == GPU == net.weight.grad().context and net.weight.list_ctx() == [GPU]
    with pytest.raises(UninitializedError, match=r"not initialized on cpu\(0\)"):
        net(nd.ones((1, 3)))
    net.hybridize(engine="numpy")
    with pytest.raises(EngineUnavailable, match=r"'numpy' runs on the CPU, and the input is on gpu\(0\)"):
        net(nd.ones((1, 3), ctx=GPU))
    net.collect_params().reset_ctx(mx.cpu())
    assert net(nd.ones((1, 3))).context == mx.cpu()


def test_an_unhybridized_training_on_a_gpu():
    values = []
    for ctx in (mx.cpu(), GPU):
        mx.random.seed(0)
        net = nn.Sequential()
        net.add(nn.Dense(4, in_units=3, activation="relu"), nn.Dense(2, in_units=4))
        net.initialize(ctx=ctx)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "wd": 0.01})
        x = nd.array(np.random.RandomState(0).randn(5, 3), ctx=ctx)
        for _ in range(2):
            with autograd.record():
                loss = gluon.loss.L2Loss()(net(x), nd.ones((5, 2), ctx=ctx))
            loss.backward()
            trainer.step(5)
        values.append([parameter.data(ctx) for parameter in net.collect_params().values()])
    for one, other in zip(*values, strict=True):
        close(other, one)


def test_saving_and_pickling(tmp_path):
    import pickle

    _, x = pair()
    twin = pickle.loads(pickle.dumps(x))
    assert twin.context == GPU and type(twin.buffer) is DeviceBuffer
    nd.save(str(tmp_path / "x"), [x + 0])
    (read,) = nd.load(str(tmp_path / "x"))
    np.testing.assert_array_equal(read.asnumpy(), x.asnumpy())


def test_a_hybrid_block_between_eager_ones(copied):
    """On the CPU's context eager operators compute on the host: each border is a counted copy."""
    net = nn.Dense(4, in_units=3)
    net.initialize()
    net.hybridize()
    x = nd.ones((2, 3))
    x.attach_grad()
    for _ in range(2):
        copied()
        with autograd.record():
            y = nd.sum(net(x * 2) ** 2)
        y.backward()
    assert copied() == (2, 2)  # there: the product, the output's gradient; back: the output, the product's gradient
    expected = 2 * 2 * (net.weight.data().asnumpy().T @ (net(x * 2).asnumpy().T)).T
    np.testing.assert_allclose(x.grad.asnumpy(), expected, rtol=1e-4)


@pytest.mark.parametrize("places", list(itertools.product("hd", repeat=4)), ids="".join)
def test_gradients_that_arrive_from_the_host_and_from_the_device_in_any_order_add_up(places):
    on_device = gluon.nn.HybridLambda("tanh")
    on_device.hybridize(engine="triton")
    x = nd.array([0.5, -1.0])
    x.attach_grad()
    with autograd.record():
        middle = x * 2
        parts = [(on_device if place == "d" else nd.tanh)(middle) * (number + 1) for number, place in enumerate(places)]
        y = nd.add_n(*parts)
    y.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), 20 * (1 - np.tanh([1.0, -2.0]) ** 2), rtol=1e-5)


@pytest.mark.parametrize("read", [(0,), (1,), (0, 1)])
def test_the_gradient_of_an_operator_with_several_outputs_of_which_some_are_read(read):
    x = nd.array([[1.0, 2.0], [3.0, 4.0]], ctx=GPU)
    x.attach_grad()
    with autograd.record():
        parts = nd.split(x, num_outputs=2, axis=1)
        y = nd.add_n(*[parts[index] * (index + 2) for index in read])
    y.backward()
    assert x.grad.asnumpy().tolist() == [[2.0 * (0 in read), 3.0 * (1 in read)]] * 2


# -- DLPack ----------------------------------------------------------------------------------------------------------


def test_dlpack_hands_over_the_memory_on_the_device():
    x = nd.array([1.0, 2.0, 3.0, 4.0], ctx=mx.gpu(0)).reshape((2, 2)) * 2
    tensor = torch.from_dlpack(x)
    assert x.__dlpack_device__() == tuple(map(int, tensor.__dlpack_device__()))
    assert tensor.data_ptr() == x.raw(tensor.device).data_ptr()
    np.testing.assert_array_equal(x.asnumpy(), [[2, 4], [6, 8]])
    tensor += 1  # not noticed, and read all the same
    np.testing.assert_array_equal(x.asnumpy(), [[3, 5], [7, 9]])
    np.testing.assert_array_equal((x + 1).asnumpy(), [[4, 6], [8, 10]])


def test_from_dlpack_takes_memory_of_the_device():
    tensor = torch.arange(6.0).reshape(2, 3)
    with mx.gpu(0):
        x = nd.from_dlpack(tensor)
    assert x.context == mx.gpu(0)
    assert x.raw(tensor.device).data_ptr() == tensor.data_ptr()
    x += 1
    np.testing.assert_array_equal(tensor.numpy(), [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(nd.from_dlpack(torch.ones(2)).asnumpy(), [1, 1])


def test_a_hybridized_block_reads_what_others_wrote_to_the_device():
    net = nn.Dense(2, in_units=2, use_bias=False)
    net.initialize(mx.init.One(), ctx=mx.gpu(0))
    net.hybridize()
    x = nd.ones((1, 2), ctx=mx.gpu(0))
    for _ in range(2):
        np.testing.assert_array_equal(net(x).asnumpy(), [[2, 2]])
    weight = torch.from_dlpack(net.weight.data())
    weight *= 3
    np.testing.assert_array_equal(net(x).asnumpy(), [[6, 6]])
    np.testing.assert_array_equal(net.weight.data().asnumpy(), [[3, 3], [3, 3]])
    net.weight.set_data(nd.ones((2, 2), ctx=mx.gpu(0)))
    np.testing.assert_array_equal(net(x).asnumpy(), [[2, 2]])


class OnAnotherGPU:
    """A fake of memory on CUDA device 1, for which no GPU is here. stream : what it was asked with"""

    stream = None

    def __dlpack_device__(self):
        return 2, 1

    def __dlpack__(self, **keywords):
        raise AssertionError("memory of a GPU that cannot be used is not read")


def test_memory_of_a_gpu_that_cannot_be_used_is_refused():
    with pytest.raises(EngineUnavailable, match=r"gpu\(1\)"):
        nd.from_dlpack(OnAnotherGPU())


class OnAStream:
    """A fake of a tensor on CUDA device 0."""

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **keywords):
        return keywords


def test_the_stream_of_the_receiver_is_honoured(monkeypatch):
    x = nd.ones((2,), ctx=GPU)
    monkeypatch.setattr(nd.NDArray, "_for_others", lambda self: OnAStream())
    assert x.__dlpack_device__() == (2, 0)
    assert x.__dlpack__(stream=7, max_version=(1, 0)) == {"stream": 7, "max_version": (1, 0)}
    assert np.from_dlpack(x, device="cpu").tolist() == [1, 1]  # a copy on the host
    with pytest.raises(BufferError, match="without a copy"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
