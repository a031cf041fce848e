"""`mx.np.ndarray`: an NDArray with NumPy's shapes, dtypes, operators and indexing."""

import copy
import pickle

import numpy
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd, np
from hybrid_lab.diagnostics.errors import AutogradError, UnsupportedArgument


def test_shares_memory_and_history_with_an_ndarray():
    x = np.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        y = (x.as_nd_ndarray() * 3).as_np_ndarray().sum()
    y.backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert type(x.grad) is type(x.as_nd_ndarray().as_np_ndarray()) is np.ndarray
    x.as_nd_ndarray()[:] = 5
    assert x.tolist() == [5.0, 5.0]


def test_operators_of_nd_give_the_class_of_their_inputs():
    x = np.ones((2, 3))
    assert type(nd.softmax(x)) is np.ndarray
    assert type(nd.split(x, num_outputs=3)[0]) is np.ndarray
    assert type(nd.dot(x, nd.ones((3, 1)))) is np.ndarray
    assert type(nd.relu(nd.ones(2))) is nd.NDArray
    out = np.zeros((2, 3))
    assert nd.relu(x, out=out) is out
    assert out.tolist() == x.tolist()


@pytest.mark.parametrize(
    ("result", "shape", "dtype"),
    [
        (lambda x: x.sum(), (), "float32"),
        (lambda x: x.mean(axis=0), (3,), "float32"),
        (lambda x: x[0, 0], (), "float32"),
        (lambda x: x > 1, (2, 3), "bool"),
        (lambda x: x.argmax(), (), "int64"),
        (lambda x: (x > 1).sum(), (), "int64"),
        (lambda x: x.astype("int32") + 1, (2, 3), "int32"),
        (lambda x: x.astype("int32") * 1.5, (2, 3), "float32"),
        (lambda x: x.astype("int32") / 2, (2, 3), "float32"),
        (lambda x: x + x.astype("int64"), (2, 3), "float32"),
        (lambda x: x + x.astype("float64"), (2, 3), "float64"),
        (lambda x: x.astype("int32") // 2, (2, 3), "int32"),
        (lambda x: x.T @ x, (3, 3), "float32"),
        (lambda x: np.zeros((0, 3)), (0, 3), "float32"),
        (lambda x: x[:, None, ..., 1:2], (2, 1, 1), "float32"),
        (lambda x: x.reshape(3, -1), (3, 2), "float32"),
        (lambda x: x.squeeze(), (2, 3), "float32"),
        (lambda x: np.array(3), (), "float32"),
        (lambda x: np.array(numpy.arange(3)), (3,), "int64"),
    ],
)
def test_shapes_and_dtypes_are_those_of_numpy(result, shape, dtype):
    made = result(np.arange(6).reshape(2, 3))
    assert type(made) is np.ndarray
    assert (made.shape, made.dtype) == (shape, numpy.dtype(dtype))


@pytest.mark.parametrize(
    "key",
    [
        0, -1, slice(1, None), slice(None, None, -2), (0, 1), (slice(None), None, 0), Ellipsis, (Ellipsis, 1), None,
        True, [0, 1], ([0, 1], [1, 2]), (slice(None), [2, 0]), (0, 1, 2),
        numpy.array([[True, False, True], [False, True, True]]),
        (numpy.array([1, 0]), slice(None), 2),
    ],
)  # fmt: skip
def test_indexing_is_that_of_numpy_and_recorded(key):
    values = numpy.arange(24, dtype="float32").reshape(2, 3, 4)
    x = np.array(values)
    x.attach_grad()
    with autograd.record():
        y = x[key]
    assert y.shape == values[key].shape
    assert (y.asnumpy() == values[key]).all()
    y.backward(np.ones(y.shape) * 2)
    expected = numpy.zeros_like(values)
    numpy.add.at(expected, key, 2)
    assert (x.grad.asnumpy() == expected).all()
    x[key] = -1
    values[key] = -1
    assert (x.asnumpy() == values).all()


def test_masks_and_index_arrays_may_be_arrays_of_np():
    x = np.arange(4)
    assert x[x > 1].tolist() == [2.0, 3.0]
    assert x[np.array([2, 0], dtype="int32")].tolist() == [2.0, 0.0]
    x[x > 1] = 0
    assert x.tolist() == [0.0, 1.0, 0.0, 0.0]


def test_writes_in_place():
    x = np.ones((2, 2))
    view, same = x[0], x
    x += 1
    x[1] *= 3
    assert x.tolist() == [[2.0, 2.0], [6.0, 6.0]]
    assert view.tolist() == [2.0, 2.0]
    assert same is x
    np.add(x, 1, out=x)
    assert x.tolist() == [[3.0, 3.0], [7.0, 7.0]]


def test_python_protocols():
    x = np.array(2.5)
    assert (float(x), int(x), x.item(), f"{x:.1f}", bool(x)) == (2.5, 2, 2.5, "2.5", True)
    assert repr(np.array([1, 2], dtype="int32")) == "array([1, 2], dtype=int32)"
    assert repr(np.ones(2)) == "array([1., 1.])"
    with pytest.raises(TypeError, match="unsized"):
        len(x)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(np.ones(2))
    with pytest.raises(ValueError, match="size 1"):
        np.ones(2).item()
    with pytest.raises(AttributeError, match="has no attribute 'softmax'"):
        np.ones(2).softmax()
    assert [row.tolist() for row in np.eye(2)] == [[1.0, 0.0], [0.0, 1.0]]


def test_copies_keep_the_class():
    x = np.array([1.0, 2.0])
    x.attach_grad()
    for made in (x.copy(), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.detach(), x.as_in_ctx(mx.cpu())):
        assert type(made) is np.ndarray
        assert made.tolist() == [1.0, 2.0]
    with pytest.raises(UnsupportedArgument, match="order='F'"):
        x.copy(order="F")


def test_numpy_calls_the_functions_of_np():
    x = np.array([[1.0, 4.0]])
    assert type(numpy.sqrt(x)) is np.ndarray
    assert numpy.concatenate([x, x]).tolist() == [[1.0, 4.0], [1.0, 4.0]]
    assert type(numpy.ones((1, 2), "float32") + x) is np.ndarray
    assert numpy.linalg.norm(x).shape == ()
    assert numpy.median(x).tolist() == 2.5
    x.attach_grad()
    with autograd.record():
        y = numpy.sum(numpy.square(x))
    y.backward()
    assert x.grad.tolist() == [[2.0, 8.0]]


def test_gradients_of_functions_and_second_gradients():
    x = np.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        (first,) = autograd.grad((x**3).sum(), [x], create_graph=True)
        z = (first * x).sum()
    z.backward()
    assert type(first) is np.ndarray
    assert x.grad.tolist() == [9.0, 36.0]


class Cube(autograd.Function):
    def forward(self, x):
        self.save_for_backward(x)
        return x**3

    def backward(self, dy):
        (x,) = self.saved_tensors
        assert type(dy) is np.ndarray
        return 3 * x**2 * dy


def test_functions_of_users_get_arrays_of_np():
    x = np.array([2.0])
    x.attach_grad()
    with autograd.record():
        y = Cube()(x)
    y.backward()
    assert type(y) is np.ndarray
    assert x.grad.tolist() == [12.0]


def test_functions_that_run_in_numpy_refuse_to_lose_a_gradient():
    x = np.array([3.0, 1.0])
    x.attach_grad()
    assert np.median(x).item() == 2.0
    with autograd.record(), pytest.raises(AutogradError, match="no gradient"):
        np.median(x)


def test_a_slice_of_everything_writes_to_an_array_without_axes():
    x = np.array(3.0)
    view = x.as_nd_ndarray()
    view[:] = 4
    assert float(x) == 4
    assert float(np.array(5.0).copyto(x)) == float(x) == 5
    with pytest.raises(IndexError):
        view[:1] = 6
