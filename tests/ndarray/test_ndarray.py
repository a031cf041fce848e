"""NDArray beyond what test_golden.py compares with MXNet: conversions, memory, errors, methods from the records."""

from __future__ import annotations

import copy
import pickle
import sys

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics import AttributeSpecError, DTypeError, HybridLabError, ShapeError
from hybrid_lab.ndarray.buffer import copies
from hybrid_lab.ndarray.indexing import ArrayIndexError


def test_values_come_out():
    x = nd.array([[1.5, 2]])
    assert x.tolist() == [[1.5, 2.0]]
    assert nd.array([[3.5]]).item() == 3.5 and type(nd.array([3], dtype="int32").item()) is int
    assert float(nd.array([2.5])) == 2.5 and int(nd.array([2.5])) == 2
    assert [10, 20, 30][nd.array([1], dtype="int32")] == 20
    assert 2.0 in nd.array([1, 2]) and 5 not in nd.array([1, 2])
    with pytest.raises(ShapeError, match=r"not a scalar: it has shape \(1, 2\)"):
        x.asscalar()
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x)
    with pytest.raises(TypeError):
        [1, 2][nd.array([1.0])]


def test_asnumpy_is_a_copy():
    x = nd.ones((2,))
    x.asnumpy()[:] = 5
    np.asarray(x)[:] = 5
    assert x.tolist() == [1, 1]


def test_numpy_and_dlpack_read_arrays():
    x = nd.array([1, 4, 9])
    assert np.sqrt(x).tolist() == [1, 2, 3]
    assert np.asarray(x, dtype="int64").dtype == np.int64
    assert np.from_dlpack(x).tolist() == [1, 4, 9]
    assert nd.from_dlpack(np.arange(3)).dtype is np.int64


def test_from_numpy_shares_and_freezes():
    values = np.arange(4.0)
    x = nd.from_numpy(values)
    x[0] = 7
    assert values[0] == 7 and not values.flags.writeable
    assert nd.from_numpy(np.arange(4.0), zero_copy=False).dtype is np.float64
    with pytest.raises(ShapeError, match="contiguous"):
        nd.from_numpy(np.ones((3, 4)).T)
    with pytest.raises(DTypeError, match="complex128"):
        nd.from_numpy(np.ones(2, complex))


def test_reads_are_counted():
    x = nd.ones((2,))
    before = copies.snapshot()
    x.asnumpy(), x.tolist(), np.asarray(x), repr(x), float(x[0])
    after = copies.snapshot()
    assert after["reads"] - before["reads"] == 5
    assert after["to_device"] == before["to_device"]


def test_copies_and_pickles():
    x = nd.array([1, 2], ctx=mx.cpu(1))
    x.attach_grad("add")
    for made in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        made[:] = 9
        assert x.tolist() == [1, 2] and made.ctx == mx.cpu(1)
    assert copy.deepcopy(x).grad is not None


def test_versions_grow_with_writes_through_any_view():
    x = nd.zeros((2, 2))
    y = x.reshape((4,))
    y[0] = 1
    x += 1
    assert x.version == y.version == 2


def test_boolean_arrays_mask():
    x = nd.array([[1, 2], [3, 4]])
    assert x[(x > 2).astype("bool")].tolist() == [3, 4]
    assert x[np.array([True, False])].tolist() == [[1, 2]]
    assert x[[False, True]].tolist() == [[3, 4]]
    x[x.asnumpy() > 2] = 0
    assert x.tolist() == [[1, 2], [0, 0]]
    with pytest.raises(ArrayIndexError, match="True is not an index"):
        x[True]


def test_index_errors_are_index_errors_and_ours():
    x = nd.zeros((2, 3))
    for key in (2, (0, 3), (0, 0, 0), 1.5, "a", [0, 5]):
        with pytest.raises(IndexError) as caught:
            x[key]
        assert isinstance(caught.value, HybridLabError)
    with pytest.raises(ShapeError, match=r"value of shape \(3, 2\) where the array has shape \(2, 3\)"):
        x[:] = nd.ones((3, 2))
    with pytest.raises(DTypeError, match="not str"):
        x[:] = "a"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1e20])
@pytest.mark.parametrize("make", [nd.array, mx.np.array, np.array, list])
def test_a_number_that_is_no_whole_number_of_64_bits_is_no_index(make, number):
    for x in (nd.zeros((2, 3)), mx.np.zeros((2, 3))):
        with pytest.raises(IndexError, match="cannot be an index: indices are whole numbers") as caught:
            x[make([0, number])]
        assert isinstance(caught.value, HybridLabError)
        with pytest.raises(IndexError, match="cannot be an index"):
            x[0, make([number])] = 1


def test_an_index_into_a_copy_of_an_index_array():
    """The key is kept for the backward, so a later write to it changes nothing."""
    x, key = nd.array([1, 2, 3]), nd.array([0, 1])
    x.attach_grad()
    with autograd.record():
        y = x[key] * 2
    key[:] = 2
    y.backward()
    assert x.grad.tolist() == [2, 2, 0]


def test_operators_are_methods():
    x = nd.array([[1, -2], [3, 4]])
    assert x.relu().tolist() == [[1, 0], [3, 4]]
    assert x.sum(axis=1).tolist() == [-1, 7]
    assert x.softmax().shape == (2, 2)
    assert x.clip(0, 2).tolist() == [[1, 0], [2, 2]]
    assert x.expand_dims(0).shape == (1, 2, 2)
    assert x.swapaxes(0, 1).tolist() == [[1, 3], [-2, 4]]
    assert x.one_hot(3).shape == (2, 2, 3) and x.argmax(axis=1).tolist() == [0, 1]
    assert {"relu", "softmax", "sum", "reshape"} <= set(dir(x))
    assert "axis" in type(x).softmax.__doc__
    assert not hasattr(x, "no_such_operator")


def test_python_operators_beyond_mxnet():
    a, b = nd.array([[1, 2], [3, 4]]), nd.array([[1, 0], [0, 1]])
    assert (a @ b).tolist() == a.tolist()
    assert (a // 2).tolist() == [[0, 1], [1, 2]] and (7 // a).tolist() == [[7, 3], [2, 1]]
    assert ((a > 1) & (a < 4)).tolist() == [[0, 1], [1, 0]]
    assert (a.astype("bool") | b.astype("bool")).shape == (2, 2)


def test_shape_and_dtype_errors_name_the_operator():
    with pytest.raises(ShapeError, match=r"broadcast_add.*\(2, 3\) and \(2,\)"):
        nd.ones((2, 3)) + nd.ones((2,))
    with pytest.raises(DTypeError, match="float32, int32"):
        nd.ones((2,)) * nd.ones((2,), dtype="int32")
    with pytest.raises(DTypeError, match=r"nd.array\(x\)"):
        nd.ones((2,)) + np.ones(2)
    with pytest.raises(DTypeError, match="NoneType"):
        nd.ones((2,)) == None  # noqa: B015, E711
    with pytest.raises(DTypeError, match="at least one input must be an NDArray"):
        nd.relu(3)
    with pytest.raises(AttributeSpecError, match="the input weight is missing"):
        nd.FullyConnected(nd.ones((2, 3)), num_hidden=4, no_bias=True)
    with pytest.raises(AttributeSpecError, match="did you mean axis"):
        nd.softmax(nd.ones((2,)), axiss=1)
    with pytest.raises(AttributeError, match="no_such"):
        nd.no_such_operator  # noqa: B018
    with pytest.raises(TypeError, match=r"nd.array\(values\)"):
        nd.NDArray([1, 2])


def test_out_is_checked():
    x = nd.ones((2,))
    with pytest.raises(ShapeError, match=r"\(2,\), out= has \(3,\)"):
        nd.exp(x, out=nd.zeros((3,)))
    with pytest.raises(DTypeError, match="float32, out= is int32"):
        nd.exp(x, out=nd.zeros((2,), dtype="int32"))
    with pytest.raises(AttributeSpecError, match="2 outputs, out= holds 1"):
        nd.split(nd.ones((2, 2)), num_outputs=2, out=nd.zeros((2, 1)))


def test_out_may_overlap_an_input():
    x = nd.array([1, 2, 3, 4])
    nd.broadcast_add(x[0:3], x[1:4], out=x[1:4])
    assert x.tolist() == [1, 3, 5, 7]
    y = nd.array([[1, 2], [3, 4]])
    nd.dot(y, y, out=y)
    assert y.tolist() == [[7, 10], [15, 22]]


def test_new_arrays_check_their_arguments():
    with pytest.raises(ShapeError, match="negative"):
        nd.zeros((2, -1))
    with pytest.raises(ShapeError, match="'ab'"):
        nd.zeros("ab")
    with pytest.raises(DTypeError, match="complex64"):
        nd.zeros((2,), dtype="complex64")
    with pytest.raises(DTypeError, match="None is not a dtype"):
        nd.ones((2,)).astype(None)
    with pytest.raises(ShapeError, match="row_sparse"):
        nd.zeros((2,), stype="row sparse")
    with pytest.raises(DTypeError, match="equal lengths"):
        nd.array([[1, 2], [3]])
    with pytest.raises(ShapeError, match="two dimensions"):
        nd.ones((2,)).tostype("csr")
    assert nd.array([nd.array([1, 2]), nd.array([3, 4])]).tolist() == [[1, 2], [3, 4]]


def test_module_functions():
    assert {"softmax", "Convolution", "add", "zeros", "random", "contrib"} <= set(dir(nd))
    assert nd.softmax is nd.softmax and nd.op.softmax(nd.zeros((2,))).tolist() == [0.5, 0.5]
    assert nd.add(nd.ones((2,)), 1, out=nd.zeros((2,))).tolist() == [2, 2]
    assert mx.ndarray.NDArray is nd.NDArray
    assert nd._mul_scalar(nd.ones((2,)), scalar=3).tolist() == [3, 3]
    assert (
        nd._internal._rminus_scalar(nd.ones((2,)), 3).tolist() == nd._RMinusScalar(nd.ones((2,)), 3).tolist() == [2, 2]
    )
    nd.waitall()


def test_save_and_load(tmp_path):
    x, y = nd.array([1, 2]), nd.ones((2, 3), dtype="int32")
    path = str(tmp_path / "arrays.params")
    nd.save(path, {"x": x, "arg:y": y})
    loaded = nd.load(path)
    assert list(loaded) == ["x", "arg:y"] and loaded["arg:y"].dtype is np.int32
    nd.save(path, [x, y])
    assert [array.shape for array in nd.load(path)] == [(2,), (2, 3)]
    nd.save(path, x)
    with open(path, "rb") as file:
        assert nd.load_frombuffer(file.read())[0].tolist() == [1, 2]
    with pytest.raises(DTypeError):
        nd.save(path, [1])


def _add(array):
    array += 1


@pytest.mark.parametrize("write", [
    lambda array: array.__setitem__(slice(None), 3),
    _add,
    lambda array: nd.dot(nd.ones((2, 2)), nd.ones((2, 2)), out=array),
    lambda array: array.assign(np.full((2, 2), 3, "float32")),
    lambda array: nd.ones((2, 2)).copyto(array),
])  # fmt: skip
def test_an_interrupt_right_after_a_write_does_not_hide_it(write):
    """Compiled calls keep what they made of a parameter until its version is another one."""
    array = nd.zeros((2, 2))
    before = array.version

    def interrupt(frame, event, argument):
        if event == "call" and frame.f_code.co_name == "written":
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            write(array)
    finally:
        sys.setprofile(None)
    assert array.asnumpy().min() > 0 and array.version > before


def test_a_write_that_is_refused_is_none():
    array = nd.zeros((2, 2))
    before = array.version
    for key, value in ((5, 1), (slice(None), np.ones((3, 3), "float32"))):
        with pytest.raises((IndexError, ValueError)):
            array[key] = value
    assert array.version == before


def test_strings_that_are_numbers_are_read():
    numbers = nd.array(["3", "14", "-5"], dtype="int32")
    assert numbers.dtype is np.int32 and numbers.asnumpy().tolist() == [3, 14, -5]
    assert nd.array(["1.5", "2"]).asnumpy().tolist() == [1.5, 2]
    for texts, dtype, message in (
        (["1", "three"], None, "^nd.array: 'three' is not a number$"),
        (["1", "1.5"], "int32", "^nd.array: '1.5' is not a number of the dtype int32$"),
        (["3", "300"], "uint8", "^nd.array: '300' is out of the range of uint8$"),
    ):
        with pytest.raises(DTypeError, match=message):
            nd.array(texts, dtype=dtype)
