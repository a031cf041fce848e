"""The record of values and gradients in each archive: what is recorded, read without the weights, hostile records."""

from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.formats.archive import Container, SavedHistograms, layout, live_histograms
from hybrid_lab.formats.archive.container import ContainerWriter
from hybrid_lab.gluon import nn
from hybrid_lab.insight import summaries
from hybrid_lab.insight.summaries import WIDTH, summary_of_row, summary_table
from hybrid_lab.insight.summary import summarize

DTYPES = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "int8", "bool"]


def make(width=3):
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=width), nn.BatchNorm(in_channels=4))
    net.initialize()
    net.hybridize(engine="numpy")
    return net


def backward(net, width=3):
    with mx.autograd.record():
        loss = (net(mx.nd.random.normal(shape=(8, width))) ** 2).sum()
    loss.backward()


def saved(net, path):
    return SavedHistograms(Container.open(net.save(path)))


def one(array):
    return summary_of_row(summary_table([array])[0], tuple(array.shape), np.dtype(array.dtype))


# -- what a record says ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_of_small_arrays_it_is_the_summary(dtype):
    values = np.random.RandomState(0).standard_normal((7, 9)) * 50
    for array in (values, values * 0, values[:0], values[:1, :1], abs(values) % 5):
        found, exact = one(mx.nd.array(array, dtype=dtype)), summarize(mx.nd.array(array, dtype=dtype))
        assert (found.shape, found.dtype, found.size, found.looked) == (
            exact.shape,
            exact.dtype,
            exact.size,
            exact.looked,
        )
        assert (found.zeros, found.minimum, found.maximum, found.bins) == (
            exact.zeros, exact.minimum, exact.maximum, exact.bins,
        )  # fmt: skip
        if exact.mean is not None:
            np.testing.assert_allclose((found.mean, found.std), (exact.mean, exact.std), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ([np.nan, 1.0, 2.0], (1, 0, 1.0, 2.0)),
        ([np.inf, -np.inf, 3.0], (0, 2, 3.0, 3.0)),
        ([np.nan, np.nan], (2, 0, None, None)),
        ([np.finfo("f4").max, -np.finfo("f4").max], (0, 0, -np.finfo("f4").max, np.finfo("f4").max)),
        ([0.0, -0.0, 1e-45], (0, 0, 0.0, float(np.float32(1e-45)))),
    ],
    ids=str,
)
def test_what_is_not_finite_is_counted(values, numbers):
    found = one(np.array(values, "f4"))
    assert (found.nans, found.infinities, found.minimum, found.maximum) == numbers
    together = summary_table([np.array(values, "f4"), np.ones(len(values), "f4")])  # of equal sizes
    assert np.array_equal(together[0], summary_table([np.array(values, "f4")])[0])
    assert together[1, 5:9].tolist() == [1, 1, 1, 0]


def test_the_range_of_float64_does_not_overflow():
    largest = np.finfo("f8").max
    found = one(np.array([largest, -largest, 0.0]))
    assert (found.minimum, found.maximum, found.mean) == (-largest, largest, 0) and np.isfinite(found.std)


def test_of_large_arrays_a_sample_is_read_which_the_record_says():
    values = np.random.RandomState(0).standard_normal((512, 512)).astype("f4")
    for array in (values, values.T, values[::2], np.asfortranarray(values)):
        found = one(array)
        assert (found.size, found.looked) == (array.size, summaries.SAMPLE) and found.sample
        assert abs(found.mean) < 0.1 and abs(found.std - 1) < 0.1 and sum(found.bins) == found.looked


def test_many_arrays_at_once_are_as_one_by_one():
    random = np.random.RandomState(0)
    arrays = [random.standard_normal(random.choice([1, 5, 64, 3000])).astype("f4") for _ in range(300)]
    assert np.array_equal(summary_table(arrays), np.concatenate([summary_table([each]) for each in arrays]))


# -- in an archive -----------------------------------------------------------------------------------------------------


def test_a_gradient_is_recorded_where_a_backward_wrote_it(tmp_path):
    net = make()
    net(mx.nd.ones((2, 3)))
    assert saved(net, tmp_path / "a").of("0.weight").gradient is None
    backward(net)
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    trainer.step(8)
    record = saved(net, tmp_path / "a").of("0.weight")
    assert record.gradient.mean == pytest.approx(net[0].weight.grad().mean().asscalar(), rel=1e-5)
    assert record == live_histograms(net[0].weight)
    assert saved(net, tmp_path / "a").of("1.running_mean").gradient is None
    net.collect_params().zero_grad()
    assert saved(net, tmp_path / "a").of("0.weight").gradient is None
    net[0].weight.grad_req = "null"
    assert saved(net, tmp_path / "a").of("0.weight").gradient is None


def test_a_gradient_of_zeros_is_one(tmp_path):
    net = make()
    with mx.autograd.record():
        loss = (net(mx.nd.ones((2, 3))) * 0).sum()
    loss.backward()
    gluon.Trainer(net.collect_params(), "sgd").step(1)
    assert saved(net, tmp_path / "a").of("0.weight").gradient.zeros == 12


def test_of_a_sparse_gradient_the_stored_rows_are_recorded(tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Embedding(50, 4, sparse_grad=True))
    net.initialize()
    with mx.autograd.record():
        loss = net(mx.nd.array([3, 5, 3])).sum()
    loss.backward()
    record = saved(net, tmp_path / "a").of("0.weight")
    assert (record.values.size, record.gradient.size, record.gradient.maximum) == (200, 8, 2)


def test_parameters_without_values_have_no_record(tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Dense(3), nn.Dense(2, in_units=3))
    net.initialize()
    found = saved(net, tmp_path / "a")
    assert found.names == ["0.bias", "1.bias", "1.weight"] and found.of("0.weight") is None
    empty = nn.HybridSequential()
    assert saved(empty, tmp_path / "b").names == []


def test_a_checkpoint_has_it_too(tmp_path):
    net = make()
    backward(net)
    mx.checkpoint.Manager(tmp_path, net, gluon.Trainer(net.collect_params(), "sgd")).save(step=1)
    (path,) = tmp_path.glob("*.hlab")
    assert SavedHistograms(Container.open(path)).of("0.weight").gradient is not None


def test_of_older_archives_the_values_are_read():
    found = SavedHistograms(Container.open(Path(__file__).parents[2] / "golden" / "formats" / "v1_0.hlab"))
    assert not found.is_recorded and len(found.names) > 3
    for name in found.names:
        assert found.of(name).values.looked and found.of(name).gradient is None


def test_the_record_is_no_difference_of_its_own(tmp_path):
    net = make()
    net(mx.nd.ones((2, 3)))
    net.save(tmp_path / "a")
    before = {name: each.data().asnumpy() for name, each in net.collect_params().items()}
    backward(net)
    for name, each in net.collect_params().items():
        each.set_data(mx.nd.array(before[name]))
    net.save(tmp_path / "b")
    assert not mx.diff(tmp_path / "a.hlab", tmp_path / "b.hlab")


def test_weights_are_not_read_for_the_records(tmp_path, monkeypatch):
    net = make(width=512)
    path = net.save(tmp_path / "a")
    read = []
    own = Container.tensors
    monkeypatch.setattr(Container, "tensors", lambda self, name, *rest: read.append(name) or own(self, name, *rest))
    record = SavedHistograms(Container.open(path)).of("0.weight")
    assert record.values.size == 2048
    assert read.count(layout.WEIGHTS) == 1  # the header, for the shape


# -- hostile files -----------------------------------------------------------------------------------------------------


def rewritten(path, change):
    """The archive with other tensors in the member, with digests that are right."""
    archive = Container.open(path)
    with open(path.with_name("bad.hlab"), "w+b") as file:
        writer = ContainerWriter(file)
        for name in archive.names:
            if not archive.holds_tensors(name):
                writer.add(name, archive.read(name))
            elif name == layout.HISTOGRAMS:
                tensors = change({key: value.copy() for key, value in archive.read_tensors(name).items()})
                if isinstance(tensors, bytes):
                    writer.add(name, tensors)
                else:
                    writer.add_tensors(name, tensors)
            else:
                writer.add_tensors(name, archive.read_tensors(name))
        writer.finish({"writer": "", "model": ""})
    return path.with_name("bad.hlab")


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    net = make()
    backward(net)
    return Path(net.save(tmp_path_factory.mktemp("hostile") / "a"))


@pytest.mark.parametrize(
    "change",
    {
        "no tensors": lambda tensors: b"{}",
        "not a table": lambda tensors: tensors | {"values": np.zeros(3)},
        "missing": lambda tensors: {"gradients": tensors["gradients"]},
        "another type": lambda tensors: tensors | {"values": tensors["values"].astype("f4")},
        "too narrow": lambda tensors: tensors | {"values": tensors["values"][:, :-1]},
        "too wide": lambda tensors: tensors | {"values": np.repeat(tensors["values"], 2, axis=1)},
        "too many rows": lambda tensors: tensors | {"values": np.repeat(tensors["values"], 1000, axis=0)},
        "too few rows": lambda tensors: tensors | {"values": tensors["values"][1:]},
        "a gradient of no parameter": lambda tensors: tensors | {"gradients": tensors["gradients"] + 100},
        "a gradient of NaN": lambda tensors: tensors | {"gradients": tensors["gradients"] * np.nan},
        "two gradients of one": lambda tensors: tensors | {"gradients": tensors["gradients"][[0, 0]]},
    }.items(),
    ids=lambda item: item[0],
)
def test_a_damaged_member_is_refused_and_the_model_loads_all_the_same(archive, change):
    bad = rewritten(archive, change[1])
    with pytest.raises(ArchiveError, match=r"histograms\.safetensors"):
        SavedHistograms(Container.open(bad))
    assert make().load(bad).parameters == 6


SIZE, LOOKED, ZEROS, NANS, INFINITIES, LOW, HIGH, MEAN, STD, BIN = range(10)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *((column, value) for column in (*range(BIN + 1), WIDTH - 1) for value in (np.nan, np.inf, -np.inf)),
        *((column, value) for column in (*range(SIZE, LOW), BIN) for value in (-1, 0.5, 1e300, 2.0**53)),
        *((SIZE, 13), (LOOKED, 13), (LOOKED, 11), (ZEROS, 13), (NANS, 1), (INFINITIES, 13), (BIN, 13)),
        *((LOW, 1e9), (HIGH, -1e9), (STD, -1)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("table", ["values", "gradients"])
def test_a_damaged_record_is_refused_by_itself(archive, table, column, value):
    names = SavedHistograms(Container.open(archive)).names
    row = names.index("0.weight")

    def change(tensors):
        if table == "values":
            tensors["values"][row, column] = value
        else:
            (place,) = np.flatnonzero(tensors["gradients"][:, 0] == row)
            tensors["gradients"][place, 1 + column] = value
        return tensors

    found = SavedHistograms(Container.open(rewritten(archive, change)))
    with pytest.raises(ArchiveError, match=r"the record of '0\.weight'"):
        found.of("0.weight")
    assert found.of("0.bias") is not None


def test_whole_numbers_have_no_more_bins_than_values():
    row = summary_table([np.array([1, 2, 2], "i4")])[0]
    assert summary_of_row(row, (3,), np.dtype("i4")).bins == (1, 2)
    row[-1], row[9] = 1, 0
    with pytest.raises(ValueError, match="too many bins"):
        summary_of_row(row, (3,), np.dtype("i4"))
