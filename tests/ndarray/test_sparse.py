"""Sparse arrays: what MXNet's answers (test_sparse_golden.py) do not show."""

import copy
import logging
import re
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.formats.mxnet.params import write_params
from hybrid_lab.gluon import nn
from hybrid_lab.ndarray import sparse
from hybrid_lab.test_utils import create_sparse_array, create_sparse_array_zd, rand_ndarray, rand_sparse_ndarray

X = [[0, 1.5, 0], [0, 0, 0], [-0.25, 0, 0.5]]


def csr():
    return nd.array(X).tostype("csr")


def rows():
    return nd.array(X).tostype("row_sparse")


@contextmanager
def logged(caplog):
    """Gives a function that returns the warnings logged in the `with` statement."""
    logger = logging.getLogger("hybrid_lab")
    logger.addHandler(caplog.handler)
    try:
        yield lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    finally:
        logger.removeHandler(caplog.handler)


def test_the_room_loads_when_it_is_used():
    code = (
        "import sys; from hybrid_lab import nd; nd.ones(2) + 1; assert 'hybrid_lab.ndarray.sparse' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_operators_are_those_of_dense_arrays():
    x = nd.ones((2, 3))
    assert sparse.dot(x, x, transpose_b=True).asnumpy().tolist() == [[3, 3], [3, 3]]
    assert sparse.zeros("default", (2,)).asnumpy().tolist() == [0, 0]
    assert not isinstance(x, sparse.BaseSparseNDArray) and mx.nd.sparse is sparse
    with pytest.raises(AttributeError, match="csr_matrix"):
        sparse.csr_matrx  # noqa: B018


def test_dense_copies_are_read_with_one_warning(caplog):
    with logged(caplog) as said:
        for _ in range(3):
            assert np.allclose(nd.log_softmax(csr()).asnumpy(), nd.log_softmax(nd.array(X)).asnumpy())
            csr() + 2  # 0 does not stay 0
    assert said() == [
        "log_softmax has no form for the storage types csr; it reads dense copies",
        "broadcast_add has no form for the storage types csr, number with these arguments; it reads dense copies",
    ]


def test_dense_memory_cannot_be_written_to():
    array = csr()
    with pytest.raises(ValueError, match="read-only"):
        array._data[0, 0] = 1
    before = array._data.copy()
    array[:] = nd.ones((3, 3))
    assert before.tolist() == X and array._data.tolist() == np.ones((3, 3)).tolist(), "a write is seen"


@pytest.mark.parametrize("make", [csr, rows])
def test_detached_and_copied_arrays(make):
    array = make()
    array.attach_grad()
    same, apart = array.detach(), copy.deepcopy(array)
    array[:] = nd.zeros((3, 3))
    assert same.asnumpy().sum() == 0 and apart.asnumpy().tolist() == X
    assert apart.grad.stype == array.stype


def parameter():
    weight = mx.gluon.Parameter("weight", shape=(2, 2), stype="row_sparse")
    weight.initialize()
    return weight


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (ValueError, lambda: csr().tostype("row_sparse")),
        (ValueError, lambda: nd.ones((2,)).tostype("csr")),
        (ValueError, lambda: nd.ones((2,)).tostype("dense")),
        (NotImplementedError, lambda: csr().reshape((9, 1))),
        (NotImplementedError, lambda: csr().size),
        (IndexError, lambda: rows()[0]),
        (IndexError, lambda: csr()[5]),
        (IndexError, lambda: csr().__setitem__(0, 1)),
        (TypeError, lambda: csr().copyto(rows())),
        (TypeError, lambda: sparse.retain(csr(), nd.array([0]))),
        (TypeError, lambda: csr().as_np_ndarray()),
        (ValueError, lambda: sparse.csr_matrix(([1.0, 2.0], [0, 7], [0, 2]), shape=(1, 3)).asnumpy()),
        (TypeError, lambda: sparse.csr_matrix(([1.0], [0.5], [0, 1]), shape=(1, 3))),
        (ValueError, lambda: nd.dot(csr(), nd.ones((2, 2)))),
        (IndexError, lambda: csr()[True]),
        (ValueError, lambda: bool(sparse.zeros("csr", (10**7, 10**7)))),
        (MemoryError, lambda: sparse.zeros("csr", (10**7, 10**7)).asnumpy()),
        (MemoryError, lambda: nd.exp(sparse.zeros("row_sparse", (10**10, 10**10)))),
        (TypeError, lambda: sparse.retain(rows(), [0])),
        (TypeError, lambda: sparse.retain(rows(), 0)),
        (TypeError, lambda: sparse.retain(rows(), nd.array([float("nan")]))),
        (ValueError, lambda: sparse.csr_matrix(([1.0], ([0], [1], [2])))),
        (ValueError, lambda: sparse.csr_matrix((np.ones((2, 1)), ([0, 1], [0, 1])))),
        (ValueError, lambda: sparse.csr_matrix((1.0, ([0, 1], [0, 1])))),
        (ValueError, lambda: sparse.csr_matrix(([1.0], ([0], [1])), shape=(2,))),
        (ValueError, lambda: sparse.csr_matrix(([1.0], ([0], [1])), shape=(2, 2, 2))),
        (ValueError, lambda: sparse.csr_matrix((2, 3), shape="ab")),
        (TypeError, lambda: sparse.csr_matrix(([1.0], ([[0], [1, 2]], [1])))),
        (TypeError, lambda: parameter().row_sparse_data([0])),
        (TypeError, lambda: parameter().list_row_sparse_data([0])),
        (AttributeError, lambda: mx.sym.var("x").tostype("csr")),
    ],
)
def test_errors_are_of_mxnet_and_of_python(error, wrong):
    with pytest.raises(error) as caught:
        wrong()
    assert isinstance(caught.value, mx.MXNetError)


INVALID = {
    "a column too large": lambda: sparse.csr_matrix(([1.0, 2.0], [0, 7], [0, 2]), shape=(1, 3)),
    "a negative column": lambda: sparse.csr_matrix(([1.0, 2.0], [0, -1], [0, 2]), shape=(1, 3)),
    "a column stored twice": lambda: sparse.csr_matrix(([1.0, 2.0], [2, 2], [0, 2]), shape=(1, 3)),
    "indptr that falls": lambda: sparse.csr_matrix(([1.0, 2.0], [0, 1], [0, 2, 1, 2]), shape=(3, 3)),
    "indptr too short": lambda: sparse.csr_matrix(([1.0, 2.0], [0, 1], [0, 2]), shape=(3, 3)),
    "indptr too long": lambda: sparse.csr_matrix(([1.0, 2.0], [0, 1], [0, 1, 2, 2, 2]), shape=(3, 3)),
    "indptr with another end": lambda: sparse.csr_matrix(([1.0, 2.0], [0, 1], [0, 1, 1, 4]), shape=(3, 3)),
    "a row too large": lambda: sparse.row_sparse_array(([[1.0], [2.0]], [0, 5]), shape=(3, 1)),
    "a negative row": lambda: sparse.row_sparse_array(([[1.0], [2.0]], [-1, 2]), shape=(3, 1)),
    "a row stored twice": lambda: sparse.row_sparse_array(([[1.0], [2.0]], [1, 1]), shape=(3, 1)),
}
READ = {
    "asnumpy": lambda x, path: x.asnumpy(),
    "check_format": lambda x, path: x.check_format(),
    "x * 2": lambda x, path: x * 2,
    "x + x": lambda x, path: x + x,
    "exp": lambda x, path: nd.exp(x),
    "dot": lambda x, path: nd.dot(x, nd.ones((x.shape[1], 2))),
    "dot of the transpose": lambda x, path: nd.dot(x, nd.ones((x.shape[0], 2)), transpose_a=True),
    "retain": lambda x, path: sparse.retain(x, nd.array([0])),
    "a row": lambda x, path: x[0] if x.stype == "csr" else x.asnumpy(),
    "a copy": lambda x, path: (x.copy() * 1).asnumpy(),
    "a cast": lambda x, path: x.astype("float64").asnumpy(),
    "tostype": lambda x, path: x.tostype("default"),
    "save": lambda x, path: nd.save(str(path / "x.params"), [x]),
    "an update": lambda x, path: mx.optimizer.SGD(momentum=0.5).update(
        0, w := nd.ones(x.shape).tostype(x.stype), x, mx.optimizer.SGD(momentum=0.5).create_state(0, w)
    ),
}


@pytest.mark.parametrize("make", INVALID.values(), ids=INVALID)
def test_invalid_parts_are_logged_when_made_and_an_error_when_read(make, caplog, tmp_path):
    """MXNet makes these arrays, too, and reads memory that is not theirs; test_sparse_nd_check_format of MXNet asks
    for the array first and for the error of check_format then.
    """
    with logged(caplog) as said:
        array = make()
    assert len(said()) == 1 and said()[0].startswith(f"invalid {array.stype} array of shape {array.shape}: ")
    for name, read in READ.items():
        with pytest.raises(ValueError, match=f"invalid {array.stype} array") as caught:
            read(array, tmp_path)
        assert isinstance(caught.value, mx.MXNetError), name


def test_the_quick_check_reads_shapes_only():
    INVALID["a column too large"]().check_format(full_check=False)
    INVALID["a row stored twice"]().check_format(full_check=False)
    with pytest.raises(mx.MXNetError, match="indptr has 2 numbers, 3 rows need 4"):
        INVALID["indptr too short"]().check_format(full_check=False)


def test_indices_need_not_rise(tmp_path):
    for array, values in (
        (sparse.row_sparse_array(([[1.0], [2.0]], [2, 0])), [[2], [0], [1]]),
        (sparse.csr_matrix(([1.0, 2.0], [2, 0], [0, 2, 2]), shape=(2, 3)), [[2, 0, 1], [0, 0, 0]]),
    ):
        nd.save(str(tmp_path / "x.params"), [array])
        for each in (array, nd.load(str(tmp_path / "x.params"))[0]):
            assert each.asnumpy().tolist() == values
            assert (each + each).asnumpy().tolist() == (2 * np.array(values)).tolist()
        with pytest.raises(mx.MXNetError, match="must rise"):
            array.check_format()


@pytest.mark.parametrize("make", INVALID.values(), ids=INVALID)
def test_files_with_invalid_parts_are_refused(make, tmp_path):
    parts = make().buffer.parts()
    write_params(tmp_path / "x.params", [parts])
    with pytest.raises(
        mx.MXNetError, match=rf"(csr|row_sparse) array of shape \(\d, \d\): {re.escape(parts.problem())}"
    ):
        nd.load(str(tmp_path / "x.params"))


@pytest.mark.parametrize("stype", ["csr", "row_sparse"])
@pytest.mark.parametrize(
    "call",
    [
        *(lambda x, item=item: x * item for item in ([1, 2, 3], np.ones(3), np.array(2.0), None, "a", 2j)),
        lambda x: [1, 2, 3] * x,
        lambda x: x / np.ones(3),
        lambda x: x > np.ones(3),
        lambda x: sparse.multiply(x, [1, 2, 3]),
        lambda x: x + [0, 0, 0],
        lambda x: x == None,  # noqa: E711
        lambda x: x + None,
        lambda x: x + "a",
        lambda x: nd.dot(x, None),
        lambda x: nd.slice(x, begin=(0, 0, 0), end=(1, 1, 1)),
        lambda x: nd.slice(x, begin=(0, 0), end=(1,)),
        lambda x: nd.sum(x, axis=5),
        lambda x: nd.take(x, nd.array([-1]), mode="raise"),
        lambda x: nd.add_n(x, nd.zeros((2, 3)).tostype(x.stype)),
        lambda x: nd.take(nd.zeros((0, 3)).tostype(x.stype), nd.array([0])),
        lambda x: x + x.astype("float64"),
        lambda x: nd.square(x, out=nd.zeros((1, 3)).tostype(x.stype)),
        lambda x: nd.square(x, out=nd.zeros((3, 3), dtype="int32").tostype(x.stype)),
        *(lambda x, name=name: getattr(nd, name)(x.astype("bool")) for name in ("sqrt", "sign", "negative", "tanh")),
    ],
)
def test_errors_of_operators_are_those_of_dense_arrays(stype, call):
    with pytest.raises(mx.MXNetError) as dense:
        call(nd.array(X))
    with pytest.raises(type(dense.value)) as caught:
        call(nd.array(X).tostype(stype))
    assert str(caught.value) == str(dense.value)


@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_take_reads_indices_as_of_dense_arrays(mode):
    indices = nd.array([1, -1, 7, -5, 1.7, 1e30] if mode == "clip" else [1, -1, 7, -5, 1.7])
    taken = nd.take(csr(), indices, mode=mode)
    assert (
        taken.stype == "csr" and taken.asnumpy().tolist() == nd.take(nd.array(X), indices, mode=mode).asnumpy().tolist()
    )


@pytest.mark.parametrize("number", [2, 2.5, True, np.float32(3), np.int64(3), np.bool_(True)])
def test_numbers_keep_the_storage_type(number):
    for array in (csr(), rows()):
        for result in (array * number, number * array):
            assert result.stype == array.stype and result.dtype is np.float32
            assert np.allclose(result.asnumpy(), np.array(X) * number)


@pytest.mark.parametrize("stype", ["csr", "row_sparse"])
@pytest.mark.parametrize("density", [0, 0.1, 0.5, 1])
def test_random_products_and_sums_are_those_of_dense_arrays(stype, density):
    np.random.seed(3)
    for shape in ((1, 1), (5, 3), (30, 40)):
        a, b = (rand_ndarray(shape, stype, density, "float64", shuffle_csr_indices=stype == "csr") for _ in range(2))
        x, y = a.asnumpy(), b.asnumpy()
        w, v = (nd.random.normal(shape=(size, 4), dtype="float64") for size in (shape[1], shape[0]))
        answers = [
            (a + b, x + y), (a - b, x - y), (a * b, x * y), (a * b.tostype("default"), x * y),
            (nd.add_n(a, b, a), 2 * x + y),
            (nd.dot(a, w), x @ w.asnumpy()), (nd.dot(a, v, transpose_a=True), x.T @ v.asnumpy()),
            (nd.dot(a, w.tostype("row_sparse")), x @ w.asnumpy()), (nd.dot(v.T, a), v.asnumpy().T @ x),
            (a.sum(axis=0), x.sum(0)), (a.mean(axis=1), x.mean(1)), (nd.concat(a, b, dim=0), np.concatenate([x, y])),
            (a.slice(begin=(0, 0), end=shape), x), (nd.sqrt(abs(a)), np.sqrt(abs(x))), (a.astype("float32"), x),
        ]  # fmt: skip
        for ours, theirs in answers:
            assert np.allclose(ours.asnumpy(), theirs, atol=1e-6)


def test_large_matrices_are_not_made_dense():
    places = ([1.0, 2.0, 3.0], ([0, 5, 10**5], [7, 10**6, 3]))
    large = sparse.csr_matrix(places, shape=(10**5 + 1, 10**9)).astype("float32")
    taken = (large * 2 + large - large)[0:6]
    assert taken.shape == (6, 10**9) and taken.data.asnumpy().tolist() == [2, 4]
    table = sparse.zeros("row_sparse", (10**9, 10**3))
    assert (table + table).data.shape == (0, 10**3) and repr(table) == "\n<RowSparseNDArray 1000000000x1000 @cpu(0)>"


def test_gradients_through_what_keeps_the_storage():
    array, w = rows(), nd.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    array.attach_grad()
    w.attach_grad(stype="row_sparse")
    with autograd.record():
        loss = (nd.square(array) * 3 + array).sum() + nd.dot(csr(), w).sum()
    loss.backward()
    assert array.grad.stype == "row_sparse" and np.allclose(array.grad.asnumpy(), 6 * np.array(X) + 1)
    assert w.grad.stype == "row_sparse" and np.allclose(w.grad.asnumpy(), np.array(X).T @ np.ones((3, 2)))


@pytest.mark.parametrize("make", [csr, rows])
def test_hybridized_blocks_read_dense_copies(make):
    net = nn.Dense(2)
    net.initialize()
    array = make()
    eager = net(array)
    net.hybridize()
    assert np.allclose(net(array).asnumpy(), eager.asnumpy())
    array[:] = nd.ones((3, 3))
    assert np.allclose(net(array).asnumpy(), net(nd.ones((3, 3))).asnumpy()), "new values are read"


def test_a_hybridized_block_warns_once_of_sparse_arrays(caplog):
    net = nn.Dense(2, prefix="layer_")
    net.initialize()
    net.hybridize()
    with logged(caplog) as said:
        net(nd.array(X))
        assert said() == []
        net(csr())
        net(rows())
    assert said() == ["layer: it is hybridized, and its graph reads a dense copy of a csr array"]
    with pytest.raises(mx.MXNetError, match=r"csr array of shape \(1000000, 3000000\) takes 11,175.9 GiB"):
        net(sparse.zeros("csr", (10**6, 3 * 10**6)))


def test_files(tmp_path):
    empty = sparse.zeros("csr", (2, 3), dtype="float64")
    nd.save(str(tmp_path / "a.params"), {"c": csr(), "r": rows(), "d": nd.ones(2), "e": empty})
    loaded = nd.load(str(tmp_path / "a.params"))
    assert [array.stype for array in loaded.values()] == ["csr", "row_sparse", "default", "csr"]
    assert loaded["c"].asnumpy().tolist() == X and loaded["e"].dtype is np.float64
    with pytest.raises(mx.MXNetError, match="'c' is sparse"):
        nd.save(str(tmp_path / "a.safetensors"), {"c": csr()})
    net = nn.Dense(3, in_units=3, use_bias=False)
    nd.save(str(tmp_path / "net.params"), {"weight": rows()})
    net.load_parameters(str(tmp_path / "net.params"))
    assert net.weight.data().stype == "default" and net.weight.data().asnumpy().tolist() == X


def test_scipy():
    scipy = pytest.importorskip("scipy.sparse")
    matrix = scipy.csr_matrix(([1.0, 2.0, 3.0], [2, 0, 0], [0, 3, 3]), shape=(2, 3))
    array = nd.array(matrix)
    assert array.data.asnumpy().tolist() == [5, 1] and array.indices.asnumpy().tolist() == [0, 2]
    assert (array.asscipy() != matrix).nnz == 0
    assert sparse.csr_matrix(scipy.coo_matrix(matrix)).asnumpy().tolist() == matrix.toarray().tolist()


def test_random_sparse_arrays():
    array, (values, numbers) = rand_sparse_ndarray((6, 2), "row_sparse", 0.5)
    assert array.data.asnumpy().tolist() == values.tolist() and array.indices.asnumpy().tolist() == numbers.tolist()
    power, _ = rand_sparse_ndarray((4, 20), "csr", 0.3, distribution="powerlaw")
    assert np.diff(power.indptr.asnumpy()).tolist() == [2, 4, 8, 10]
    assert create_sparse_array((3, 2), "row_sparse", 4, [2, 0]).asnumpy().tolist() == [[4, 4], [0, 0], [4, 4]]
    assert create_sparse_array_zd((3, 2), "row_sparse", 1.0).indices.shape == (0,)
    with pytest.raises(ValueError, match="density"):
        rand_sparse_ndarray((2, 100), "csr", 0.9, distribution="powerlaw")
