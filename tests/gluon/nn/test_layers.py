"""Layers: eager equals hybrid, rebuilt from data, bad arguments. (Numbers against the real MXNet: test_golden.py.)"""

import json

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics import HybridizeError, HybridLabError, ShapeError
from hybrid_lab.gluon import nn

IMAGES = (2, 4, 7, 6)
LAYERS = {
    "Dense": (lambda: nn.Dense(3, activation="tanh", weight_initializer=mx.init.Normal(0.1)), (2, 5)),
    "Dense, last axis only": (lambda: nn.Dense(3, flatten=False, use_bias=False), (2, 4, 5)),
    "Conv1D": (lambda: nn.Conv1D(3, 3, padding=1, dilation=2), (2, 4, 9)),
    "Conv2D": (lambda: nn.Conv2D(6, (3, 2), strides=2, padding=(1, 0), groups=2, activation="relu"), IMAGES),
    "Conv3D": (lambda: nn.Conv3D(2, 2, use_bias=False), (1, 2, 4, 4, 4)),
    "Conv1DTranspose": (lambda: nn.Conv1DTranspose(3, 3, strides=2, output_padding=1, activation="tanh"), (2, 4, 5)),
    "Conv2DTranspose": (lambda: nn.Conv2DTranspose(6, 4, strides=2, padding=1, groups=2, use_bias=False), IMAGES),
    "Conv3DTranspose": (lambda: nn.Conv3DTranspose(2, 2, dilation=2), (1, 2, 3, 2, 3)),
    "ReflectionPad2D": (lambda: nn.ReflectionPad2D(2), IMAGES),
    "MaxPool1D": (lambda: nn.MaxPool1D(3, 2), (2, 3, 8)),
    "MaxPool2D": (lambda: nn.MaxPool2D(3, 2, padding=1, ceil_mode=True), IMAGES),
    "MaxPool3D": (lambda: nn.MaxPool3D(), (1, 2, 4, 4, 4)),
    "AvgPool1D": (lambda: nn.AvgPool1D(), (2, 3, 8)),
    "AvgPool2D": (lambda: nn.AvgPool2D(3, 2, padding=1, count_include_pad=False), IMAGES),
    "AvgPool3D": (lambda: nn.AvgPool3D(), (1, 2, 4, 4, 4)),
    "GlobalMaxPool1D": (lambda: nn.GlobalMaxPool1D(), (2, 3, 8)),
    "GlobalMaxPool2D": (lambda: nn.GlobalMaxPool2D(), IMAGES),
    "GlobalMaxPool3D": (lambda: nn.GlobalMaxPool3D(), (1, 2, 4, 4, 4)),
    "GlobalAvgPool1D": (lambda: nn.GlobalAvgPool1D(), (2, 3, 8)),
    "GlobalAvgPool2D": (lambda: nn.GlobalAvgPool2D(), IMAGES),
    "GlobalAvgPool3D": (lambda: nn.GlobalAvgPool3D(), (1, 2, 4, 4, 4)),
    "BatchNorm": (lambda: nn.BatchNorm(momentum=0.8, epsilon=1e-3), IMAGES),
    "BatchNorm, not learned": (lambda: nn.BatchNorm(center=False, scale=False), IMAGES),
    "LayerNorm": (lambda: nn.LayerNorm(), (2, 3, 5)),
    "BatchNormReLU": (lambda: nn.BatchNormReLU(momentum=0.8), IMAGES),
    "GroupNorm": (lambda: nn.GroupNorm(num_groups=2), IMAGES),
    "InstanceNorm": (lambda: nn.InstanceNorm(scale=True), IMAGES),
    "InstanceNorm, channels last": (lambda: nn.InstanceNorm(axis=-1), (2, 5, 3, 4)),
    "Dropout": (lambda: nn.Dropout(0.4), (3, 5)),
    "Dropout, shared mask": (lambda: nn.Dropout(0.4, axes=(1,)), (3, 5)),
    "Dropout, none": (lambda: nn.Dropout(0.0), (3, 5)),
    "Embedding": (lambda: nn.Embedding(9, 3), (2, 4)),
    "Flatten": (lambda: nn.Flatten(), IMAGES),
    "Activation": (lambda: nn.Activation("softrelu"), (2, 3)),
    "LeakyReLU": (lambda: nn.LeakyReLU(0.2), (2, 3)),
    "PReLU": (lambda: nn.PReLU(in_channels=4), IMAGES),
    "ELU": (lambda: nn.ELU(0.5), (2, 3)),
    "SELU": (lambda: nn.SELU(), (2, 3)),
    "GELU": (lambda: nn.GELU(), (2, 3)),
    "Swish": (lambda: nn.Swish(1.5), (2, 3)),
    "HybridLambda": (lambda: nn.HybridLambda("tanh"), (2, 3)),
}
each_layer = pytest.mark.parametrize("name", LAYERS)


def made(name):
    make, shape = LAYERS[name]
    mx.random.seed(0)
    layer = make()
    layer.initialize()
    values = np.random.RandomState(0).uniform(-2, 2, shape).astype("float32")
    return layer, nd.array(np.abs(values).astype("int32") if name == "Embedding" else values)


def run(layer, x, train):
    mx.random.seed(1)
    x.attach_grad()
    with autograd.record(train_mode=train):
        y = layer(x)
    y.backward(y * 1)
    gradients = [each.grad().asnumpy() for each in layer.collect_params().values() if each.grad_req != "null"]
    return [y.asnumpy(), x.grad.asnumpy(), *gradients]


@each_layer
@pytest.mark.parametrize("train", [False, True], ids=["predict", "train"])
def test_hybrid_equals_eager(name, train):
    layer, x = made(name)
    eager = run(layer, x, train)
    for parameter in layer.collect_params().values():
        if parameter.name.endswith(("running_mean", "running_var")):
            parameter.initialize(force_reinit=True)
    layer.hybridize(engine="numpy")
    for one, other in zip(eager, run(layer, x, train), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


@each_layer
def test_a_layer_is_rebuilt_from_data(name):
    layer, x = made(name)
    y = layer(x)
    config = json.loads(json.dumps(nn.registry.config(layer)))
    twin = nn.registry.build(type(layer).__name__, config, prefix=layer.prefix)
    assert type(twin) is type(layer)
    assert list(twin.collect_params()) == list(layer.collect_params())
    twin.initialize()
    twin(x)
    assert repr(twin) == repr(layer)
    for name, parameter in twin.collect_params().items():
        parameter.set_data(layer.collect_params()[name].data())
    assert np.array_equal(twin(x).asnumpy(), y.asnumpy())


def test_a_function_or_a_subclass_is_not_data():
    class Mine(nn.Dense):
        pass

    assert nn.registry.config(nn.HybridLambda(lambda F, x: x)) is None
    assert nn.registry.config(Mine(3)) is None
    with pytest.raises(HybridLabError, match="no registered layer 'Mine'"):
        nn.registry.build("Mine", {})
    with pytest.raises(HybridLabError, match="Dense takes no argument secret"):
        nn.registry.build("Dense", {"units": 1, "secret": 2})


# -- containers ----------------------------------------------------------------------------------------------------


def test_a_sequential_is_indexed_sliced_and_counted():
    net = nn.HybridSequential()
    net.add(nn.Dense(4), nn.Activation("relu"), nn.Dense(2))
    net.initialize()
    x = nd.ones((1, 3))
    assert len(net) == 3
    assert net[0] is net._children["0"] and net[-1] is net._children["2"]
    part = net[:2]
    assert isinstance(part, nn.HybridSequential) and part[0] is net[0]
    assert np.array_equal(net[2](part(x)).asnumpy(), net(x).asnumpy())
    assert [type(block).__name__ for block in net] == ["Dense", "Activation", "Dense"]
    with pytest.raises(IndexError):
        net[3]


def test_a_plain_sequential_hybridizes_its_parts():
    net = nn.Sequential()
    net.add(nn.Dense(4), nn.Lambda(lambda x: x * 2), nn.Dense(2))
    net.initialize()
    y = net(nd.ones((1, 3))).asnumpy()
    net.hybridize(engine="numpy")
    assert net[0]._active
    np.testing.assert_allclose(net(nd.ones((1, 3))).asnumpy(), y, rtol=1e-6)


def test_all_hybrid_parts_suggest_a_hybrid_sequential():
    net = nn.Sequential()
    net.add(nn.Dense(4))
    with pytest.warns(UserWarning, match="as a HybridSequential they would become one graph"):
        net.hybridize()


def test_a_plain_block_is_no_part_of_a_hybrid_sequential():
    with pytest.raises(HybridizeError, match="HL181"):
        nn.HybridSequential().add(nn.Lambda("relu"))


# -- details -------------------------------------------------------------------------------------------------------


def test_lambdas_by_name_or_function():
    x = nd.array([-1.0, 2.0])
    assert nn.Lambda("relu")(x).asnumpy().tolist() == [0, 2]
    assert nn.HybridLambda(lambda F, x, y: F.broadcast_add(x, y))(x, x).asnumpy().tolist() == [-2, 4]
    assert repr(nn.Lambda("relu")) == "Lambda(relu)"
    with pytest.raises(ValueError, match="there is no function 'rleu' in nd"):
        nn.Lambda("rleu")
    with pytest.raises(TypeError, match="callable or the name of an operator, not 3"):
        nn.Lambda(3)


def test_batch_norm_keeps_float32_beside_float16():
    layer = nn.BatchNorm(in_channels=2)
    layer.initialize()
    layer.cast("float16")
    assert layer.gamma.data().dtype == np.float32


def test_batch_norm_statistics_follow_the_batches():
    layer = nn.BatchNorm(momentum=0.5, in_channels=1)
    layer.initialize()
    with autograd.record():
        layer(nd.array([[1.0], [3.0]]))
    assert layer.running_mean.data().asscalar() == pytest.approx(1.0)
    assert layer.running_var.data().asscalar() == pytest.approx(1.0)
    layer(nd.array([[100.0]]))
    assert layer.running_mean.data().asscalar() == pytest.approx(1.0)


def test_the_running_variance_of_a_constant_channel_does_not_fall_below_zero():
    layer = nn.BatchNorm(momentum=0.0, epsilon=1e-5, in_channels=2)
    layer.initialize()
    with autograd.record():
        layer(nd.full((4, 2), 3.0))
    assert layer.running_var.data().asnumpy().tolist() == [0.0, 0.0]


def test_sizes_that_do_not_fit():
    with pytest.raises(ShapeError, match="kernel_size must be a number or 2 numbers, not .1, 2, 3."):
        nn.Conv2D(3, (1, 2, 3))
    with pytest.raises(ShapeError, match="multiples of groups=2"):
        nn.Conv2D(3, 3, groups=2)
    with pytest.raises(ValueError, match="layout of MaxPool2D .*'NCW'"):
        nn.MaxPool2D(layout="NCW")
    with pytest.raises(ValueError, match="slope of LeakyReLU must not be negative"):
        nn.LeakyReLU(-0.1)


def test_an_input_of_the_wrong_size_names_the_shapes():
    layer = nn.Dense(2, in_units=3)
    layer.initialize()
    with pytest.raises(ShapeError, match=r"\(2, 3\)"):
        layer(nd.ones((1, 4)))


def test_channels_last():
    layer = nn.Conv2D(3, 2, layout="NHWC", in_channels=4)
    assert layer.weight.shape == (3, 2, 2, 4)
    assert repr(layer) == "Conv2D(4 -> 3, kernel_size=(2, 2), stride=(1, 1))"


def test_batch_norm_relu_is_batch_norm_and_relu():
    mx.random.seed(0)
    whole, norm = nn.BatchNormReLU(), nn.BatchNorm()
    x = nd.random.normal(shape=IMAGES)
    results = []
    for layer, last in ((whole, lambda y: y), (norm, nd.relu)):
        layer.initialize()
        x.attach_grad()
        with autograd.record():
            y = last(layer(x))
        y.backward(y * 1)
        results.append([y, x.grad, layer.gamma.grad(), layer.beta.grad(), layer.running_mean.data()])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-5, atol=1e-6)


def test_transposed_convolutions_take_their_inputs_from_the_first_batch():
    layer = nn.Conv2DTranspose(6, 3, groups=2)
    assert layer.weight.shape == (0, 3, 3, 3)
    layer.initialize()
    assert layer(nd.zeros((1, 4, 2, 2))).shape == (1, 6, 4, 4)
    assert layer.weight.shape == (4, 3, 3, 3)


def test_reflection_of_more_than_there_is():
    with pytest.raises(ShapeError, match="cannot make a border of 3 from the 3"):
        nn.ReflectionPad2D(3)(nd.zeros((1, 1, 3, 9)))
