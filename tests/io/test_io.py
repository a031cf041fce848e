"""mx.io: what the iterators give, beside what the real MXNet gave."""

import gzip
import pickle
import re
import struct

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.io import CSVIter, DataBatch, DataDesc, DataIter, MNISTIter, NDArrayIter, PrefetchingIter, ResizeIter


def epochs(iterator, count=2):
    """Data of the first column and the padding of each batch, by epoch."""
    found = []
    for _ in range(count):
        found.append([(batch.data[0].asnumpy().astype(int).tolist(), batch.pad) for batch in iterator])
        iterator.reset()
    return found


def test_pad_fills_the_last_batch_up_from_the_beginning():
    first, second = epochs(NDArrayIter(np.arange(5), batch_size=2))
    assert first == second == [([0, 1], 0), ([2, 3], 0), ([4, 0], 1)]
    assert epochs(NDArrayIter(np.arange(2), batch_size=5), 1) == [[([0, 1, 0, 1, 0], 3)]]


def test_discard_leaves_it_out():
    assert epochs(NDArrayIter(np.arange(5), batch_size=2, last_batch_handle="discard"))[1] == [([0, 1], 0), ([2, 3], 0)]


def test_roll_over_puts_it_before_the_next_epoch():
    """As MXNet: an epoch ends at the incomplete batch, whose samples begin the next one."""
    iterator = NDArrayIter(np.arange(5), batch_size=2, last_batch_handle="roll_over")
    first, second, third = epochs(iterator, 3)
    assert first == [([0, 1], 0), ([2, 3], 0)]
    assert second == [([4, 0], 1), ([1, 2], 0), ([3, 4], 0)]
    assert third == first
    next(iterator)
    iterator.hard_reset()
    assert epochs(iterator, 1) == [first]


def test_arrays_stand_in_the_order_of_their_names():
    iterator = NDArrayIter({"b": np.zeros((4, 3)), "a": np.ones((4, 2))}, np.arange(4), batch_size=2)
    assert [desc.name for desc in iterator.provide_data] == ["a", "b"]
    assert iterator.provide_data[1].shape == (2, 3) and iterator.provide_label == [("softmax_label", (2,))]
    batch = next(iterator)
    assert [array.shape for array in batch.data] == [(2, 2), (2, 3)] and batch.label[0].asnumpy().tolist() == [0, 1]
    several = NDArrayIter([np.zeros(2), np.zeros(2)], batch_size=1)
    assert [desc.name for desc in several.provide_data] == ["_0_data", "_1_data"]


def test_shuffle_keeps_data_and_labels_together():
    np.random.seed(1)
    iterator = NDArrayIter(np.arange(20), np.arange(20) * 2, batch_size=4, shuffle=True)
    first = [(batch.data[0].asnumpy(), batch.label[0].asnumpy()) for batch in iterator]
    assert all((label == 2 * data).all() for data, label in first)
    order = np.concatenate([data for data, _ in first])
    assert sorted(order) == list(range(20)) and list(order) != list(range(20))


@pytest.mark.parametrize("data", ["no array", None, []])
def test_what_is_no_data_is_an_error(data):
    with pytest.raises((TypeError, ValueError)):
        NDArrayIter(data)


def test_different_lengths_are_an_error():
    with pytest.raises(ValueError, match="softmax_label 3"):
        NDArrayIter(np.zeros(4), np.zeros(3))


def test_resize():
    iterator = ResizeIter(NDArrayIter(np.arange(4), batch_size=2), 3)
    assert [data for data, _ in epochs(iterator, 1)[0]] == [[0, 1], [2, 3], [0, 1]]
    assert len(list(iterator)) == 3


def test_prefetching():
    def parts():
        return [NDArrayIter(np.arange(4), batch_size=2), NDArrayIter(np.arange(4) * 10, batch_size=2)]

    iterator = PrefetchingIter(parts(), rename_data=[{"data": "x"}, {"data": "y"}])
    assert [desc.name for desc in iterator.provide_data] == ["x", "y"] and iterator.batch_size == 2
    for _ in range(2):
        assert [[each.asnumpy().tolist() for each in batch.data] for batch in iterator] == [
            [[0, 1], [0, 10]],
            [[2, 3], [20, 30]],
        ]
        iterator.reset()
    uneven = PrefetchingIter([NDArrayIter(np.arange(4), batch_size=2), NDArrayIter(np.arange(2), batch_size=2)])
    next(uneven)
    with pytest.raises(ValueError, match="different numbers"):
        next(uneven)


def test_an_iterator_of_ones_own():
    class Counting(DataIter):
        def __init__(self):
            super().__init__(2)
            self.left = 2

        def iter_next(self):
            self.left -= 1
            return self.left >= 0

        def getdata(self):
            return [mx.nd.array([self.left])]

        def getlabel(self):
            return []

        def getpad(self):
            return 0

    assert [int(batch.data[0].asscalar()) for batch in Counting()] == [1, 0]
    with pytest.raises(NotImplementedError):
        next(DataIter())


def test_descriptions():
    desc = DataDesc("data", (2, 3), "float16", "TN")
    name, shape = desc
    assert (name, shape, desc.dtype, desc.layout) == ("data", (2, 3), "float16", "TN")
    assert desc == ("data", (2, 3)) and DataDesc.get_batch_axis("TN") == 1 and DataDesc.get_batch_axis(None) == 0
    assert DataDesc.get_list([("x", (1,))], [("x", "int8")])[0].dtype == "int8"
    with pytest.raises(TypeError, match="list of arrays"):
        DataBatch(mx.nd.zeros((1,)))
    assert str(DataBatch([mx.nd.zeros((2, 3))])) == "DataBatch: data shapes: [(2, 3)] label shapes: None"


def test_csv(tmp_path):
    (tmp_path / "data.csv").write_text("1,2,3,4\n5,6,7,8\n9,10,11,12\n")
    (tmp_path / "label.csv").write_text("0\n1\n2\n")
    iterator = CSVIter(str(tmp_path / "data.csv"), (2, 2), str(tmp_path / "label.csv"), batch_size=2)
    batches = list(iterator)
    assert batches[0].data[0].asnumpy().tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    assert batches[1].label[0].asnumpy().tolist() == [2, 0] and batches[1].pad == 1
    with pytest.raises(mx.diagnostics.HybridLabError, match="data.csv, line 1: a row has 3 numbers; here are 4"):
        CSVIter(str(tmp_path / "data.csv"), (3,))


def test_whole_numbers_of_csv_files_keep_their_dtype(tmp_path):
    (tmp_path / "data.csv").write_text("2147483649\n")
    batch = next(CSVIter(str(tmp_path / "data.csv"), (1,), dtype="int64"))
    assert batch.data[0].dtype is batch.label[0].dtype is np.int64 and batch.data[0].asnumpy().item() == 2**31 + 1


def idx(path, values):
    head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    path.write_bytes(gzip.compress(head + values.tobytes()) if path.suffix == ".gz" else head + values.tobytes())
    return str(path)


def test_mnist(tmp_path):
    images = np.arange(5 * 4 * 4, dtype="uint8").reshape(5, 4, 4)
    paths = idx(tmp_path / "images.gz", images), idx(tmp_path / "labels", np.arange(5, dtype="uint8"))
    batch = next(MNISTIter(*paths, batch_size=2, shuffle=False))
    assert batch.data[0].shape == (2, 1, 4, 4) and batch.label[0].asnumpy().tolist() == [0, 1]
    assert batch.data[0].asnumpy()[1, 0, 0, 0] == pytest.approx(16 / 256)
    assert next(MNISTIter(*paths, batch_size=2, flat=True)).data[0].shape == (2, 16)
    for shape in ("input_shape", "data_shape"):  # without an effect, as in MXNet
        assert next(MNISTIter(*paths, batch_size=2, **{shape: (16,)})).data[0].shape == (2, 1, 4, 4)
    assert len(list(MNISTIter(*paths, batch_size=2))) == 2
    (tmp_path / "cut").write_bytes((tmp_path / "labels").read_bytes()[:-1])
    with pytest.raises(mx.diagnostics.HybridLabError, match="damaged"):
        MNISTIter(paths[0], str(tmp_path / "cut"))
    with pytest.raises(mx.diagnostics.HybridLabError, match="not an IDX file"):
        MNISTIter(str(tmp_path / "labels.txt") if (tmp_path / "labels.txt").write_text("x") else "", paths[1])


def test_iterators_over_files_give_their_array_itself(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("1,2\n3,4\n5,6\n")
    rows = mx.io.CSVIter(data_csv=str(path), data_shape=(2,), batch_size=2)
    assert rows.iter_next()
    assert rows.getdata().asnumpy().tolist() == [[1, 2], [3, 4]]
    assert rows.getlabel().shape == (2,)
    rows.reset()
    assert [batch.data[0].shape for batch in rows] == [(2, 2), (2, 2)]


@pytest.mark.parametrize(
    "text", ["1,2,\n3,4,\n", "\ufeff1,2,\n3,4,\n", "1,2,,\n3,4\n", "1,2\r\n\r\n3,4, \r\n", "1,2,  # two\n3,4,"]
)
@pytest.mark.parametrize("packed", [False, True])
def test_commas_behind_the_last_number_of_a_row_do_not_count(tmp_path, text, packed):
    path = tmp_path / ("table.csv.gz" if packed else "table.csv")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert next(CSVIter(path, (2,), batch_size=2)).data[0].asnumpy().tolist() == [[1, 2], [3, 4]]
    with pytest.raises(mx.MXNetError, match="line 1: a row has 3 numbers; here are 2"):
        CSVIter(path, (3,))


WRONG_TABLES = {
    "a text": ("1,2\n3,a\n", "line 2: 'a' is no number of the dtype float32"),
    "a head line": ("x,y\n1,2\n", "line 1: 'x' is no number"),
    "a missing number": ("1,2\n\n# more\n3\n", "line 4: a row has 2 numbers; here are 1"),
    "a number too many": ("1,2\n3,4,5\n", "line 2: a row has 2 numbers; here are 3"),
    "another shape": ("1,2,3\n4,5,6\n", "line 1: a row has 2 numbers; here are 3"),
    "an empty field": ("1,2\n,3\n", "line 2: '' is no number"),
    "commas only": ("1,2,\n,,\n", "line 2: '' is no number"),
    "an empty field before a last comma": ("1,2,\n3,,4,\n", "line 2: '' is no number"),
    "no rows": ("\n\n", "there are no rows of numbers"),
    "an empty file": ("", "there are no rows of numbers"),
    "bytes": ("\0\1\2\xff", "line 1: .* is no number"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("text", "message"), WRONG_TABLES.values(), ids=WRONG_TABLES)
@pytest.mark.parametrize("packed", [False, True])
def test_wrong_tables_name_the_file_and_the_line(tmp_path, text, message, packed):
    path = tmp_path / ("table.csv.gz" if packed else "table.csv")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    with pytest.raises(mx.MXNetError, match=rf"{re.escape(str(path))}(, |: ){message}") as caught:
        CSVIter(str(path), (2,))
    assert isinstance(caught.value, ValueError) and caught.value.path == str(path)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.line) == (str(caught.value), caught.value.line)


def test_whole_numbers_and_labels_of_tables(tmp_path):
    (tmp_path / "data.csv").write_text("1,2\n3,4.5\n")
    (tmp_path / "label.csv").write_text("1\n2\n3\n")
    with pytest.raises(ValueError, match="data.csv, line 2: '4.5' .*int32"):
        CSVIter(tmp_path / "data.csv", (2,), dtype="int32")
    with pytest.raises(mx.MXNetError, match="label.csv: .*3 .*data.csv.* 2"):
        CSVIter(tmp_path / "data.csv", (2,), tmp_path / "label.csv")
    with pytest.raises(mx.MXNetError, match="data_csv .*NoneType"):
        CSVIter(None, (2,))
    assert next(CSVIter(tmp_path / "label.csv", 1)).data[0].shape == (1, 1)


def test_files_that_cannot_be_read_are_typed_errors(tmp_path):
    for make in (lambda path: CSVIter(path, (2,)), lambda path: MNISTIter(path, path)):
        with pytest.raises(FileNotFoundError, match="there is no file") as caught:
            make(str(tmp_path / "missing"))
        assert isinstance(caught.value, mx.MXNetError)
        with pytest.raises(IsADirectoryError, match="is a folder") as caught:
            make(str(tmp_path))
        assert isinstance(caught.value, mx.MXNetError)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"0" * 99)[:20])
    with pytest.raises(mx.MXNetError, match="cut.gz is damaged"):
        MNISTIter(str(tmp_path / "cut.gz"), str(tmp_path / "cut.gz"))
