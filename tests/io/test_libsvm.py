"""Batches of sparse rows: of LibSVM files, and of csr arrays in memory."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.diagnostics import HybridLabError

ROWS = "1 0:1 2:2\n1 3:8  # a comment\n\n# a whole line of comment\n-1 4:1.5 0:0.5\n-2.0\n3e0 1:2 2:-1.25\n"
DENSE = [[1, 0, 2, 0, 0], [0, 0, 0, 8, 0], [0.5, 0, 0, 0, 1.5], [0, 0, 0, 0, 0], [0, 2, -1.25, 0, 0]]
LABELS = [1, 1, -1, -2, 3]


@pytest.fixture
def write(tmp_path):
    def written(text, name="data.t"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return written


def test_batches_are_csr_arrays_and_the_last_is_filled_up(write):
    batches = mx.io.LibSVMIter(write(ROWS), (5,), batch_size=2)
    assert [tuple(each) for each in batches.provide_data] == [("data", (2, 5))]
    assert [tuple(each) for each in batches.provide_label] == [("softmax_label", (2,))]
    order = [0, 1, 2, 3, 4, 0]
    for _ in range(2):
        found = list(batches)
        assert [batch.data[0].stype for batch in found] == ["csr"] * 3
        assert [batch.pad for batch in found] == [0, 0, 1]
        rows = np.concatenate([batch.data[0].asnumpy() for batch in found])
        np.testing.assert_array_equal(rows, np.array(DENSE, "float32")[order])
        labels = np.concatenate([batch.label[0].asnumpy() for batch in found])
        np.testing.assert_array_equal(labels, np.array(LABELS, "float32")[order])
        batches.reset()
    assert batches.next().label[0].dtype == batches.getlabel().dtype == np.float32
    assert batches.getdata().stype == "csr"


def test_labels_can_be_sparse_and_rows_are_split_into_parts(write):
    labels = write("0 0:1\n0 1:3\n0 2:5\n0\n0 2:2\n", "labels.t")
    parts = [
        next(mx.io.LibSVMIter(write(ROWS), (5,), labels, (3,), batch_size=3 - part, num_parts=2, part_index=1 - part))
        for part in (1, 0)
    ]
    np.testing.assert_array_equal(np.concatenate([each.data[0].asnumpy() for each in parts]), DENSE)
    assert parts[1].label[0].stype == "csr"
    np.testing.assert_array_equal(parts[1].label[0].asnumpy(), [[0, 0, 5], [0, 0, 0], [0, 0, 2]])


def test_weights_queries_and_a_byte_order_mark_are_read_over(write):
    (batch,) = mx.io.LibSVMIter(write("\ufeff3:0.5 qid:7 1:2\n"), (5,))
    assert batch.label[0].asnumpy().tolist() == [3]
    assert batch.data[0].asnumpy().tolist() == [[0, 2, 0, 0, 0]]


@pytest.mark.parametrize(
    ("text", "keywords", "message"),
    [
        ("1 0:1\n1 5:1\n", {}, r"data\.t, line 2: the indices must differ and be from 0 to 4: 1 5:1"),
        ("1 -1:1\n", {}, "line 1: the indices must differ"),
        ("1 1:1 1:2\n", {}, "line 1: the indices must differ"),
        ("\n1 a:1\n", {}, "line 2: 1 a:1 is not a label with pairs like 3:1.5"),
        ("1 3\n", {}, "line 1: 1 3 is not a label"),
        ("x 1:1\n", {}, "line 1: x 1:1 is not a label"),
        ("", {}, r"data\.t has no rows$"),
        (ROWS, {"num_parts": 6}, "has 5 rows, too few for 6 parts"),
        (ROWS, {"num_parts": 0}, "num_parts=0 must be 1 or more"),
        (ROWS, {"batch_size": 0}, "batch_size=0 must be 1 or more"),
        (ROWS, {"data_shape": "5"}, "data_shape must have one size, .* not '5'"),
        ("1 1:\x00\n", {}, "line 1"),
        (ROWS, {"data_shape": (5, 2)}, r"data_shape must have one size, such as \(10,\), not \(5, 2\)"),
        (ROWS, {"label_shape": (3,)}, r"label_shape=\(3,\) needs label_libsvm="),
        (ROWS, {"round_batch": False}, "always fills the last batch up"),
        (ROWS, {"num_parts": 2, "part_index": 2}, "part_index=2 must be from 0 to num_parts - 1, which is 1"),
    ],
)
def test_damaged_files_and_bad_arguments_are_told(text, keywords, message, write):
    with pytest.raises(HybridLabError, match=message):
        mx.io.LibSVMIter(write(text), **{"data_shape": (5,), **keywords})


def test_labels_of_another_length_and_missing_files_are_told(write, tmp_path):
    with pytest.raises(HybridLabError, match="has 5 rows, .*has 1"):
        mx.io.LibSVMIter(write(ROWS), (5,), write("0 1:1\n", "labels.t"), (3,))
    with pytest.raises(FileNotFoundError, match="missing.t"):
        mx.io.LibSVMIter(tmp_path / "missing.t", (5,))


def test_array_iterators_keep_csr_arrays_sparse():
    scipy = pytest.importorskip("scipy.sparse")
    for data in (mx.nd.array(DENSE).tostype("csr"), scipy.csr_matrix(np.array(DENSE, "float32"))):
        found = list(mx.io.NDArrayIter(data, np.array(LABELS), batch_size=2, last_batch_handle="discard"))
        assert [batch.data[0].stype for batch in found] == ["csr"] * 2
        np.testing.assert_array_equal(found[1].data[0].asnumpy(), DENSE[2:4])
    np.random.seed(3)
    shuffled = mx.io.NDArrayIter(mx.nd.array(DENSE).tostype("csr"), np.arange(5), batch_size=5, shuffle=True)
    (batch,) = shuffled
    assert batch.label[0].asnumpy().tolist() != [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(batch.data[0].asnumpy(), np.array(DENSE)[batch.label[0].asnumpy().astype(int)])
