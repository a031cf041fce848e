"""Attributes that few programs use, with the numbers of the real MXNet 1.9.1."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, ShapeError

DATA = [[1.5, -2.25], [300.0, 4.0]]


@pytest.mark.parametrize(
    ("dtype", "out_dtype", "order", "expected", "gradient"),
    [  # with MXNET_SAFE_ACCUMULATION=1
        ("float32", "float16", 1, [3.75, 304.0], [[1, -1], [1, 1]]),
        ("float16", "float32", 2, [2.7041636, 300.02664], [[0.5546875, -0.83154297], [1.0, 0.01333618]]),
        ("float64", "float32", 2, [2.7041636, 300.02667], [[0.5547002, -0.8320503], [0.9999111, 0.01333215]]),
        ("float64", "int32", 2, [2, 300], [[0.75, -1.125], [1.0, 0.01333333]]),
    ],
)
def test_norm_in_another_dtype(dtype, out_dtype, order, expected, gradient):
    x = nd.array(DATA, dtype=dtype)
    x.attach_grad()
    with autograd.record():
        y = nd.norm(x, ord=order, axis=1, out_dtype=out_dtype)
    y.backward()
    assert (y.dtype, x.grad.dtype) == (np.dtype(out_dtype).type, np.dtype(dtype).type)
    np.testing.assert_allclose(y.asnumpy(), expected, 1e-3)
    np.testing.assert_allclose(x.grad.asnumpy(), gradient, 1e-3)


def test_norm_of_bfloat16_in_float32():
    x = nd.array(DATA).astype("bfloat16")
    y = nd.norm(x, axis=1, out_dtype="float32")
    np.testing.assert_array_equal(y.asnumpy(), nd.norm(nd.array(DATA), axis=1).asnumpy())
    with pytest.raises(DTypeError, match="norm: data is bool"):
        nd.norm(nd.array(DATA) > nd.array(DATA), out_dtype="float32").astype("bool").norm()


class Gemm2(gluon.HybridBlock):
    """linalg.gemm2 with rows at another axis, transposed."""

    def hybrid_forward(self, F, a, b):
        return F.linalg.gemm2(a, b, axis=1, transpose_b=True, alpha=0.5)


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime", "torch"])
def test_rows_at_another_axis(engine):
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(2, 3, 4, 5)), generator.normal(size=(2, 6, 4, 5))
    expected = 0.5 * np.einsum("bihk,bjhk->bihj", a, b)
    net = Gemm2()
    net.hybridize(engine=engine)
    np.testing.assert_allclose(net(nd.array(a), nd.array(b)).asnumpy(), expected, 1e-4)
    for axis in (-1, 3, -4 - 1):
        with pytest.raises(ShapeError, match="linalg_gemm2: axis="):
            nd.linalg.gemm2(nd.array(a), nd.array(b), axis=axis)


@pytest.mark.parametrize(
    ("attributes", "shape"),
    [
        ({"target_shape": (2, 0)}, (2, 75)),
        ({"target_shape": "(0, 5)"}, (30, 5)),
        ({"target_shape": (9, 0), "keep_highest": True}, (2, 75)),
        ({"target_shape": (9, 9), "shape": (0, -1)}, (2, 75)),
    ],
)
def test_reshape_as_older_files_write_it(attributes, shape):
    assert nd.Reshape(nd.zeros((2, 3, 5, 5)), **attributes).shape == shape
    assert mx.sym.Reshape(mx.sym.var("data"), **attributes).infer_shape(data=(2, 3, 5, 5))[1] == [shape]


def test_prelu_with_a_slope_for_each_sample_and_channel():
    x = nd.array([[[-1.0, 2.0], [-3.0, -4.0]], [[5.0, -6.0], [-7.0, -8.0]]])
    slopes = nd.array([[0.1, 0.2], [0.3, 0.4]])
    slopes.attach_grad()
    with autograd.record():
        y = nd.LeakyReLU(x, slopes, act_type="prelu")
    y.backward()
    np.testing.assert_allclose(y.asnumpy(), [[[-0.1, 2], [-0.6, -0.8]], [[5, -1.8], [-2.8, -3.2]]], 1e-6)
    np.testing.assert_allclose(slopes.grad.asnumpy(), [[-1, -7], [-6, -15]])
    with pytest.raises(ShapeError, match="gamma has shape"):
        nd.LeakyReLU(x, nd.zeros((2, 3)), act_type="prelu")


def test_split_v2_is_a_method():
    x = nd.arange(24).reshape((2, 12))
    assert [part.shape for part in x.split_v2((1, 5), axis=1)] == [(2, 1), (2, 4), (2, 7)]
    assert [part.shape for part in x.split_v2(2, 0, True)] == [(12,), (12,)]
    assert x.split_v2(1).shape == (2, 12)
    assert mx.sym.var("x").split_v2((1, 5), axis=1).infer_shape(x=(2, 12))[1] == [(2, 1), (2, 4), (2, 7)]


def test_broadcast_to_sizes_that_are_there():
    x = mx.np.zeros((1, 3))
    assert mx.np.broadcast_to(x, (2, -2, -2)).shape == (2, 1, 3)
    assert mx.np.broadcast_to(x, (4, -2)).shape == (4, 3)
    with pytest.raises(ShapeError, match="does not have"):
        mx.np.broadcast_to(mx.np.zeros((3,)), (-2, 3))
    with pytest.raises(AttributeSpecError, match="negative size"):
        nd.broadcast_to(nd.zeros((1, 3)), shape=(-1, 3))


def test_axes_of_slice_like_count_from_the_end_of_data():
    x = nd.zeros((4, 3, 6))
    assert nd.slice_like(x, nd.zeros((2, 3)), axes=(-2,)).shape == (4, 3, 6)
    assert nd.slice_like(x, nd.zeros((2, 3)), axes=(-3,)).shape == (2, 3, 6)
    assert nd.slice_like(x, nd.zeros((2, 2, 5, 1)), axes=(-1,)).shape == (4, 3, 5)
    with pytest.raises(ShapeError, match=r"axis -1 is axis 2 of \(4, 3, 6\), which \(2, 3\) does not have"):
        nd.slice_like(x, nd.zeros((2, 3)), axes=(-1,))


def test_smooth_l1_of_whole_numbers_rounds_its_scalar():
    x = nd.array([-3, -2, 0, 2, 3], dtype="int32")
    for scalar, wanted in ((0.5, [0, 0, 0, 0, 0]), (-0.5, [0, 0, 0, 0, 0]), (1.5, [2, 1, 0, 1, 2])):
        assert nd.smooth_l1(x, scalar=scalar).asnumpy().tolist() == wanted


@pytest.mark.parametrize("engine", [None, "numpy", "onnxruntime", "torch"])
def test_softmax_with_lengths_and_a_negative_temperature(engine):
    def probabilities(F, x, length):
        return F.softmax(x, length, axis=1, use_length=True, temperature=-0.5)

    x = nd.array([[[0.1, -0.7, 0.4], [0.9, 0.2, -0.3]]])
    x.attach_grad()
    net = mx.gluon.nn.HybridLambda(probabilities)
    if engine is not None:
        net.hybridize(engine=engine)
    with autograd.record():
        y = net(x, nd.array([[1, 2, 0]], dtype="int32"))
    y.backward(nd.array([[[0, 1, 2], [3, 4, 5]]]))
    np.testing.assert_allclose(y.asnumpy(), [[[1, 0.85815, 0], [0, 0.14185, 0]]], atol=1e-5)
    np.testing.assert_allclose(x.grad.asnumpy(), [[[0, 0.73038, 0], [0, -0.73038, 0]]], atol=1e-5)


def test_l2_normalization_of_a_vector_takes_every_number_for_a_sample():
    x = nd.array([1, -2, 0.5])
    x.attach_grad()
    with autograd.record():
        y = nd.L2Normalization(x)
    y.backward(nd.array([1, 2, 3]))
    np.testing.assert_allclose(y.asnumpy(), [1, -1, 1], 1e-6)
    np.testing.assert_allclose(x.grad.asnumpy(), [0, 0, 0], atol=1e-6)
    with pytest.raises(ShapeError, match="mode='channel' needs more dimensions"):
        nd.L2Normalization(x, mode="channel")


def test_axes_of_broadcast_like_come_in_pairs():
    with pytest.raises(ShapeError, match=r"lhs_axes=\(1,\) and rhs_axes=\(1, 0\)"):
        nd.broadcast_like(nd.ones((7, 1, 2)), nd.ones((7, 3, 2)), lhs_axes=(1,), rhs_axes=(1, 0))
