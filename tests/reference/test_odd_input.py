"""Odd but legal inputs - whole numbers, half precision, batches of one and of none - hybridized as eagerly, or the same
typed error.
"""

import numpy as np
import pytest

from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.gluon import contrib, loss, nn, rnn

LAYERS = {
    "Dense": (lambda: nn.Dense(3), (4, 5)),
    "Dense of rows": (lambda: nn.Dense(3, flatten=False), (2, 4, 5)),
    "Conv1D": (lambda: nn.Conv1D(2, 3), (2, 3, 6)),
    "Conv2D": (lambda: nn.Conv2D(4, 3, groups=2), (2, 2, 5, 5)),
    "Conv2DTranspose": (lambda: nn.Conv2DTranspose(2, 3, strides=2), (2, 3, 4, 4)),
    "MaxPool2D": (lambda: nn.MaxPool2D(), (2, 3, 4, 4)),
    "AvgPool2D": (lambda: nn.AvgPool2D(), (2, 3, 4, 4)),
    "GlobalAvgPool2D": (lambda: nn.GlobalAvgPool2D(), (2, 3, 4, 4)),
    "BatchNorm": (lambda: nn.BatchNorm(), (4, 3, 2)),
    "BatchNorm of the last axis": (lambda: nn.BatchNorm(axis=-1), (4, 3, 2)),
    "LayerNorm": (lambda: nn.LayerNorm(), (4, 3)),
    "GroupNorm": (lambda: nn.GroupNorm(3), (4, 3, 2)),
    "InstanceNorm": (lambda: nn.InstanceNorm(), (4, 3, 2)),
    "relu": (lambda: nn.Activation("relu"), (4, 3)),
    "softrelu": (lambda: nn.Activation("softrelu"), (4, 3)),
    "LeakyReLU": (lambda: nn.LeakyReLU(0.1), (4, 3)),
    "PReLU": (lambda: nn.PReLU(), (4, 3)),
    "GELU": (lambda: nn.GELU(), (4, 3)),
    "Swish": (lambda: nn.Swish(), (4, 3)),
    "Flatten": (lambda: nn.Flatten(), (4, 3, 2)),
    "ReflectionPad2D": (lambda: nn.ReflectionPad2D(1), (2, 2, 3, 3)),
    "PixelShuffle2D": (lambda: contrib.nn.PixelShuffle2D(2), (2, 4, 2, 2)),
    "LSTM": (lambda: rnn.LSTM(3, layout="NTC", input_size=2), (3, 2, 2)),
    "GRU": (lambda: rnn.GRU(3, layout="NTC", bidirectional=True), (2, 3, 2)),
    "rows by -1": (lambda: nn.HybridLambda(lambda F, x: F.reshape(x, shape=(0, -1))), (4, 3, 2)),
}
INPUTS = ["int32", "uint8", "int64", "float16", "float64", "batch of 1", "batch of 0"]


def outcome(make, arrays, engine):
    """Outputs and gradients of two recorded calls and a prediction; or the type of the error."""
    block = make()
    block.initialize()
    if engine is not None:
        block.hybridize(engine=engine)
    inputs = [nd.array(each, dtype=each.dtype) for each in arrays]
    try:
        block(*inputs)
        for place, parameter in enumerate(block.collect_params().values()):
            if "running" not in parameter.name:
                values = np.random.RandomState(place).uniform(-1, 1, parameter.shape)
                parameter.set_data(nd.array(values, dtype=parameter.dtype))
        for each in inputs:
            each.attach_grad()
        for _ in range(2):
            with autograd.record():
                y = block(*inputs)
            y.backward()
        parameters = [each for each in block.collect_params().values() if each.grad_req != "null"]
        arrays = (y, *(x.grad for x in inputs), *(p.grad() for p in parameters), block(*inputs))
        return [each.asnumpy() for each in arrays]
    except HybridLabError as error:
        return type(error)


def same(one, other):
    if isinstance(one, type) or isinstance(other, type):
        return one == other
    return len(one) == len(other) and all(close(a, b) for a, b in zip(one, other))


def close(one, other):
    tolerance = 2e-2 if one.itemsize < 4 else 1e-4
    alike = one.dtype == other.dtype and one.shape == other.shape
    pair = (each.astype("float64") for each in (one, other))
    return alike and np.allclose(*pair, tolerance, tolerance, equal_nan=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("kind", INPUTS)
def test_layers_do_with_it_what_they_do_eagerly(kind, engine):
    different = []
    for name, (make, shape) in LAYERS.items():
        shape = (int(kind[-1]), *shape[1:]) if kind.startswith("batch") else shape
        dtype = "float32" if kind.startswith("batch") else kind
        rng = np.random.RandomState(len(name))
        values = rng.normal(0, 1, shape) if dtype.startswith("float") else rng.randint(0, 5, shape)
        arrays = [values.astype(dtype)]
        if not same(outcome(make, arrays, None), outcome(make, arrays, engine)):
            different.append(name)
    assert not different


LOSSES = ("L2Loss", "L1Loss", "HuberLoss", "HingeLoss", "LogisticLoss", "SigmoidBCELoss", "PoissonNLLLoss", "KLDivLoss")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*LOSSES, "SoftmaxCELoss"])
def test_losses_do_with_odd_labels_what_they_do_eagerly(name):
    make = getattr(loss, name)
    rng = np.random.RandomState(len(name))
    shapes = [((4, 3), (4, 3)), ((4, 1), (4,)), ((4, 3), (12,)), ((4,), (4, 1)), ((0, 3), (0, 3)), ((4, 3), (4, 1))]
    if name == "SoftmaxCELoss":
        shapes = [((4, 3), (4,)), ((4, 3), (4, 1)), ((0, 3), (0,)), ((4, 3, 2), (4, 3)), ((4, 3), (2, 2))]
    different = []
    for pred_shape, label_shape in shapes:
        for dtype in ("float32", "int32", "uint8", "float64", "float16", "int64"):
            for pred_dtype in ("float32", dtype):
                pred = (rng.normal(0, 1, pred_shape) * 3).astype(pred_dtype)
                arrays = [pred, rng.randint(0, 2, label_shape).astype(dtype)]
                if not same(outcome(make, arrays, None), outcome(make, arrays, "numpy")):
                    different.append((pred_shape, pred_dtype, label_shape, dtype))
    assert not different


def test_cosine_embedding_of_rows_in_more_dimensions():
    """One label for each row, as in MXNet."""
    one, other = nd.array(np.arange(24.0).reshape(2, 3, 4)), nd.array(np.arange(24.0)[::-1].reshape(2, 3, 4).copy())
    label = nd.array([1, -1, 1, 1, -1, 1])
    expected = loss.CosineEmbeddingLoss()(one.reshape((6, 4)), other.reshape((6, 4)), label)
    for given in (label, label.reshape((2, 3))):
        found = loss.CosineEmbeddingLoss()(one, other, given)
        assert found.shape == (6, 1) and np.array_equal(found.asnumpy(), expected.asnumpy())


def test_minus_one_where_nothing_is_left():
    x = nd.zeros((0, 3, 2))
    assert x.reshape((0, -1)).shape == (0, 6)
    assert x.reshape((-1, 6)).shape == (0, 6)
    assert x.reshape((0, -1, 2)).shape == (0, 3, 2)
    assert nd.zeros((3, 0)).reshape((-1, 0)).shape == (3, 0)
    with pytest.raises(HybridLabError, match="must be at least 1"):
        nd.ones((4,)).reshape((-4, -1, 0))


IMAGE, TWO = (1, 4, 6, 6), np.int64(2)
SIZED = {
    "Dense": (lambda n: nn.Dense(n(2)), (2, 3)),
    "Conv2D": (lambda n: nn.Conv2D(n(2), n(3), n(2), n(1), groups=n(2)), IMAGE),
    "Conv2DTranspose": (lambda n: nn.Conv2DTranspose(n(2), n(3), n(2), n(1), n(1), in_channels=n(4)), IMAGE),
    "AvgPool2D": (lambda n: nn.AvgPool2D(n(2), n(1), n(1)), IMAGE),
    "BatchNorm": (lambda n: nn.BatchNorm(axis=n(1), in_channels=n(4)), IMAGE),
    "LayerNorm": (lambda n: nn.LayerNorm(axis=n(-1)), IMAGE),
    "GroupNorm": (lambda n: nn.GroupNorm(n(2)), IMAGE),
    "Embedding": (lambda n: nn.Embedding(n(5), n(2)), (2, 3)),
    "ReflectionPad2D": (lambda n: nn.ReflectionPad2D(n(1)), IMAGE),
    "PixelShuffle2D": (lambda n: contrib.nn.PixelShuffle2D(n(2)), IMAGE),
    "PReLU": (lambda n: nn.PReLU(in_channels=n(4)), IMAGE),
    "LSTM": (lambda n: rnn.LSTM(n(2), n(1), input_size=n(3)), (2, 1, 3)),
    "reshape": (lambda n: nn.Lambda(lambda x: x.reshape(shape=n(-1)).expand_dims(n(0))), (2, 3)),
}


@pytest.mark.parametrize("name", SIZED)
def test_sizes_may_be_numpys_numbers(name):
    make, shape = SIZED[name]
    results = []
    for kind in (int, np.int64, np.int32):
        block = make(kind)
        block.initialize("ones")
        results.append(block(nd.array(np.arange(np.prod(shape)).reshape(shape) % 5)).asnumpy())
    assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])


def test_sizes_of_a_convolutional_cell_may_be_numpys_numbers():
    cell = contrib.rnn.Conv1DLSTMCell((1, 5), TWO, np.int64(3), np.int64(3), i2h_pad=np.int64(1))
    cell.initialize()
    assert cell(nd.ones((1, 1, 5)), cell.begin_state(1))[0].shape == (1, 2, 5)


def test_weights_of_losses_may_be_numpys_numbers():
    pred, label = nd.array([[1.0, 2.0]]), nd.array([[3.0, 5.0]])
    for weight in (np.float32(2), np.float64(2), np.int64(2), 2, True + 1):
        assert loss.L1Loss(weight=weight)(pred, label).asnumpy().tolist() == [5.0]
        assert loss.L2Loss(weight=weight)(pred, label).asnumpy().tolist() == [6.5]


@pytest.mark.parametrize("engine", [None, "numpy"])
def test_ctc_with_the_lengths_of_labels_only(engine):
    pred, label = nd.array(np.random.RandomState(0).normal(0, 1, (2, 4, 3))), nd.array([[0, 1], [1, 0]])
    ctc = loss.CTCLoss()
    if engine is not None:
        ctc.hybridize(engine=engine)
    shorter = nd.array([[0, 1], [1, -1]])
    for _ in range(2):
        found = ctc(pred, label, None, nd.array([2, 1]))
        np.testing.assert_allclose(found.asnumpy(), loss.CTCLoss()(pred, shorter).asnumpy(), rtol=1e-6)
