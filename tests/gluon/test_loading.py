"""`.params` files: all or nothing, all differences at once. (Files of the real MXNet are in test_golden.py.)"""

import numpy as np
import pytest

from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics import ArchiveError, LoadMismatchError, UninitializedError
from hybrid_lab.gluon import nn


def model(units=4, extra=False):
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Dense(units, in_units=3), nn.Dense(2, in_units=units))
        if extra:
            net.add(nn.BatchNorm(in_channels=2))
    net.initialize()
    return net


def values(net):
    return {name: each.data().asnumpy() for name, each in net._collect_params_with_prefix().items()}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert np.array_equal(one[name], other[name]), name


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.params"


def test_there_and_back_into_another_instance(path):
    net, twin = model(), model()
    net.save_parameters(path)
    held = twin[0].weight, twin[0].weight.data()
    twin.load_parameters(path)
    assert_equal(values(twin), values(net))
    assert (twin[0].weight, twin[0].weight.data()) == held or twin[0].weight.data() is held[1]


def test_into_a_model_that_was_never_initialized(path):
    net = model()
    net.save_parameters(path)
    fresh = nn.HybridSequential()
    fresh.add(nn.Dense(4), nn.Dense(2))
    fresh.load_parameters(path)
    assert_equal(values(fresh), values(net))


def test_a_failed_load_changes_nothing_and_lists_everything(path):
    model(units=5, extra=True).save_parameters(path)
    net = model()
    before = values(net)
    with pytest.raises(LoadMismatchError) as caught:
        net.load_parameters(path)
    assert_equal(values(net), before)
    assert caught.value.differences == [
        "shape: 0.weight is (4, 3) in the model, (5, 3) in the file",
        "shape: 0.bias is (4,) in the model, (5,) in the file",
        "shape: 1.weight is (2, 4) in the model, (2, 5) in the file",
        "extra: 2.gamma (2,)",
        "extra: 2.beta (2,)",
        "extra: 2.running_mean (2,)",
        "extra: 2.running_var (2,)",
    ]
    assert str(path) in str(caught.value)
    assert "ignore_extra=True skips what is extra" in str(caught.value)


def test_missing_names_come_with_the_nearest(path):
    class Renamed(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.hidden = nn.Dense(4, in_units=3)

    class Original(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.hiden = nn.Dense(4, in_units=3)

    original, renamed = Original(), Renamed()
    original.initialize()
    renamed.initialize()
    original.save_parameters(path)
    with pytest.raises(LoadMismatchError, match=r"missing: hidden.weight \(4, 3\); the file has hiden.weight"):
        renamed.load_parameters(path)
    renamed.load_parameters(path, allow_missing=True, ignore_extra=True)


def test_dtypes_are_converted_on_request_only(path):
    model().save_parameters(path)
    net = model()
    net.cast("float64")
    with pytest.raises(LoadMismatchError, match="dtype: 0.weight .*float64 .*float32"):
        net.load_parameters(path)
    net.load_parameters(path, cast_dtype=True)
    assert net[0].weight.data().dtype == np.float64
    net.load_parameters(path, cast_dtype=True, dtype_source="saved")
    assert net[0].weight.data().dtype == np.float32


def test_shared_parameters_once_or_under_each_path(path):
    first = nn.Dense(3, in_units=3)
    net = nn.HybridSequential()
    net.add(first, nn.Dense(3, in_units=3, params=first.params))
    net.initialize()
    from hybrid_lab.formats.mxnet import read_params

    net.save_parameters(path)
    assert list(read_params(path)) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    net.save_parameters(path, deduplicate=True)
    assert list(read_params(path)) == ["0.weight", "0.bias"]
    net.load_parameters(path)


def test_files_by_parameter_name_load_too(path):
    net, twin = model(), model()
    net.collect_params().save(path, strip_prefix=net.prefix)
    twin.load_parameters(path)
    assert_equal(values(twin), values(net))
    net.collect_params().save(path)
    twin.collect_params().load(path, ignore_extra=True, allow_missing=True)
    net.load_parameters(path)


def test_exported_files_load_into_the_code(tmp_path):
    net = model()
    net.hybridize(engine="numpy")
    net(nd.ones((1, 3)))
    _, params = net.export(str(tmp_path / "net"))
    before = values(net)
    net.initialize(force_reinit=True)
    net.load_parameters(params)
    assert_equal(values(net), before)


def test_a_bare_layer(path):
    layer, twin = nn.Dense(2, in_units=2), nn.Dense(2, in_units=2)
    layer.initialize()
    layer.save_parameters(path)
    twin.load_parameters(path)
    assert np.array_equal(twin.weight.data().asnumpy(), layer.weight.data().asnumpy())


def test_nothing_is_written_for_an_uninitialized_model(path):
    with pytest.raises(UninitializedError):
        nn.Dense(2).save_parameters(path)
    assert not path.exists()


def test_a_damaged_file_is_refused(path):
    net = model()
    net.save_parameters(path)
    path.write_bytes(path.read_bytes()[:-9])
    before = values(net)
    with pytest.raises(ArchiveError):
        net.load_parameters(path)
    assert_equal(values(net), before)


def test_load_dict():
    net = nn.Dense(2, in_units=2, use_bias=False, prefix="d_")
    net.initialize()
    net.collect_params().load_dict({"arg:d_weight": nd.ones((2, 2))})
    assert net.weight.data().asnumpy().tolist() == [[1, 1], [1, 1]]
