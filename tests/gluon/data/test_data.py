"""Data sets, samplers, loaders and transforms."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics import ShapeError
from hybrid_lab.gluon.data import (
    ArrayDataset,
    BatchSampler,
    DataLoader,
    IntervalSampler,
    SequentialSampler,
    SimpleDataset,
)
from hybrid_lab.gluon.data.vision import transforms

X, Y = np.arange(20, dtype="float32").reshape(10, 2), np.arange(10)


def batches(loader):
    return [[part.asnumpy().tolist() for part in batch] for batch in loader]


def test_samples_of_arrays_side_by_side():
    dataset = ArrayDataset(nd.array(X), Y)
    x, y = dataset[3]
    assert (x.asnumpy().tolist(), y) == ([6, 7], 3)
    assert len(dataset) == 10
    assert ArrayDataset([5, 6, 7])[1] == 6
    with pytest.raises(ValueError, match="the first has 10 samples, number 1 has 9"):
        ArrayDataset(X, Y[:9])


def test_views_of_a_dataset():
    numbers = SimpleDataset(list(range(10)))
    assert list(numbers.filter(lambda n: n % 3 == 0)) == [0, 3, 6, 9]
    assert list(numbers.take(3)) == [0, 1, 2]
    assert [list(numbers.shard(3, i)) for i in range(3)] == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert list(numbers.transform(lambda n: n * n, lazy=False))[3] == 9
    assert list(numbers.sample([7, 7, 1])) == [7, 7, 1]


def test_transforming_the_data_and_not_the_label():
    dataset = ArrayDataset(X, Y).transform_first(lambda x: x + 100)
    x, y = dataset[2]
    assert (x.tolist(), y) == ([104, 105], 2)


def test_batches_in_order():
    loader = DataLoader(ArrayDataset(X, Y), batch_size=4)
    assert len(loader) == 3
    found = batches(loader)
    assert [len(y) for _, y in found] == [4, 4, 2]
    assert found[1][0] == X[4:8].tolist()
    assert [y.dtype for _, y in loader][0] == np.int64


@pytest.mark.parametrize(("last", "sizes", "again"), [("keep", [4, 4, 2], [4, 4, 2]), ("discard", [4, 4], [4, 4])])
def test_the_last_batch(last, sizes, again):
    loader = DataLoader(Y, batch_size=4, last_batch=last)
    assert len(loader) == len(sizes)
    assert [len(batch) for batch in loader] == sizes
    assert [len(batch) for batch in loader] == again


def test_rollover_starts_the_next_epoch_with_what_was_left():
    sampler = BatchSampler(SequentialSampler(10), 4, "rollover")
    assert list(sampler) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(sampler) == 3
    assert next(iter(sampler)) == [8, 9, 0, 1]


def test_the_seed_decides_the_order():
    def order(**options):
        mx.random.seed(3)
        loader = DataLoader(Y, batch_size=10, shuffle=True, **options)
        return [batch.asnumpy().tolist() for _ in range(2) for batch in loader]

    first = order()
    assert first == order() == order(num_workers=2)
    assert first[0] != first[1]
    assert sorted(first[0]) == Y.tolist()


def test_workers_give_the_same_batches():
    dataset = ArrayDataset(X, Y).transform_first(lambda x: x * 2)
    assert batches(DataLoader(dataset, 3, num_workers=2)) == batches(DataLoader(dataset, 3))


def test_an_error_in_a_worker_arrives():
    def broken(x):
        raise KeyError("no such sample")

    with pytest.raises(KeyError, match="no such sample"):
        list(DataLoader(SimpleDataset([1, 2]).transform(broken), 1, num_workers=1))


def test_stopping_early_leaves_no_threads_waiting():
    for batch in DataLoader(Y, 1, num_workers=2):
        assert batch.shape == (1,)
        break


def test_samples_of_different_shapes_make_no_batch():
    with pytest.raises(ShapeError, match=r"samples of different shapes cannot become one batch: \(1,\), \(2,\)"):
        list(DataLoader(SimpleDataset([np.zeros(1), np.zeros(2)]), 2))


def test_a_sample_that_is_a_list_is_one_array_and_a_tuple_has_parts():
    assert next(iter(DataLoader([[1, 2], [3, 4]], 2))).asnumpy().tolist() == [[1, 2], [3, 4]]
    assert [part.asnumpy().tolist() for part in next(iter(DataLoader([(1, 2), (3, 4)], 2)))] == [[1, 3], [2, 4]]
    pairs = [[np.zeros(2), np.ones(2)]] * 3
    assert next(iter(DataLoader(pairs, 3))).shape == (3, 2, 2)
    with pytest.raises(ShapeError, match="return a tuple"):
        next(iter(DataLoader([[np.zeros(2), 1]], 1)))
    with pytest.raises(ValueError, match="-1 is not a number of samples"):
        SimpleDataset([1, 2]).take(-1)


def test_own_batchify_and_batch_sampler():
    loader = DataLoader(Y, batch_sampler=[[1, 2], [5]], batchify_fn=list)
    assert [list(map(int, batch)) for batch in loader] == [[1, 2], [5]]
    with pytest.raises(ValueError, match="batch_sampler replaces"):
        DataLoader(Y, batch_size=2, batch_sampler=[[1]])
    with pytest.raises(ValueError, match="needs batch_size"):
        DataLoader(Y)


def test_interval_sampler():
    assert list(IntervalSampler(7, 3)) == [0, 3, 6, 1, 4, 2, 5]
    assert list(IntervalSampler(7, 3, rollover=False)) == [0, 3, 6]


def test_image_transforms():
    image = np.full((4, 5, 3), 51, "uint8")
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(mean=(0.2, 0.1, 0.0), std=0.1)])
    result = transform(nd.array(image, dtype="uint8"))
    assert result.shape == (3, 4, 5)
    assert result.asnumpy()[:, 0, 0] == pytest.approx([0, 1, 2], abs=1e-6)
    assert transforms.ToTensor()(nd.zeros((2, 4, 5, 3))).shape == (2, 3, 4, 5)


def test_splitting_over_contexts():
    parts = gluon.utils.split_and_load(X, [mx.cpu(0), mx.cpu(1)])
    assert [(part.shape, part.ctx) for part in parts] == [((5, 2), mx.cpu(0)), ((5, 2), mx.cpu(1))]
    with pytest.raises(ShapeError, match="3 equal parts along axis 0; .*even_split=False"):
        gluon.utils.split_data(nd.array(X), 3)
    assert [len(part) for part in gluon.utils.split_data(nd.array(X), 3, even_split=False)] == [4, 3, 3]


def test_clipping_the_global_norm():
    arrays = [nd.array([3.0]), nd.array([4.0])]
    assert gluon.utils.clip_global_norm(arrays, 1.0) == 5.0
    assert [array.asscalar() for array in arrays] == pytest.approx([0.6, 0.8])
    assert gluon.utils.clip_global_norm(arrays, 10.0) == pytest.approx(1.0)
    with pytest.warns(UserWarning, match="nan or inf"):
        gluon.utils.clip_global_norm([nd.array([float("inf")])], 1.0)
    half = [nd.array([300, 400], dtype="float16")]
    norm = gluon.utils.clip_global_norm(half, 50.0, check_isfinite=False)
    assert norm.asscalar() == 500 and np.allclose(half[0].asnumpy(), [30, 40])
