"""mx.nd.sparse: dense operators under MXNet's names; whatever would be sparse is refused."""

import pytest

import hybrid_lab as mx
from hybrid_lab import nd
from hybrid_lab.ndarray import sparse


def test_operators_are_those_of_dense_arrays():
    x = nd.ones((2, 3))
    assert sparse.dot(x, x, transpose_b=True).asnumpy().tolist() == [[3, 3], [3, 3]]
    assert sparse.zeros("default", (2,)).asnumpy().tolist() == [0, 0]
    assert not isinstance(x, sparse.BaseSparseNDArray)
    assert mx.nd.sparse is sparse


@pytest.mark.parametrize(
    "make",
    [
        lambda: sparse.csr_matrix([[1, 0]]),
        lambda: sparse.row_sparse_array(([1.0], [0]), shape=(2, 1)),
        lambda: sparse.CSRNDArray(),
        lambda: sparse.zeros("csr", (2, 2)),
    ],
)
def test_sparse_arrays_are_refused(make):
    with pytest.raises(mx.MXNetError, match="arrays are dense here"):
        make()


def test_an_unknown_name_lists_near_ones():
    with pytest.raises(AttributeError, match="csr_matrix"):
        sparse.csr_matrx  # noqa: B018
