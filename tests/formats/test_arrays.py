"""Files of arrays are read by what they hold, whatever they are called."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.gluon import nn
from hybrid_lab.ops.framework.dtypes import bfloat16

numpy_files = pytest.importorskip("safetensors.numpy")


@pytest.mark.parametrize("name", ["m.safetensors", "m.params", "m"])
def test_nd_load_reads_safetensors(tmp_path, name):
    arrays = {"a": np.arange(6, dtype="float32").reshape(2, 3), "b": np.zeros((0, 4), "float16"), "c": np.array(3)}
    arrays |= {"d": np.ones(3, bfloat16())}
    numpy_files.save_file(arrays, tmp_path / name)
    for loaded in (nd.load(tmp_path / name), nd.load_frombuffer((tmp_path / name).read_bytes())):
        assert loaded.keys() == arrays.keys()
        for key, array in arrays.items():
            assert loaded[key].dtype == array.dtype and loaded[key].shape == array.shape
            np.testing.assert_array_equal(loaded[key].asnumpy(), array)
        loaded["a"][:] = 5  # a copy, not the file


def test_load_parameters_reads_safetensors(tmp_path):
    net, other = nn.HybridSequential(), nn.HybridSequential()
    for block in (net, other):
        block.add(nn.Dense(3, in_units=2), nn.BatchNorm(in_channels=3))
        block.initialize()
    arrays = {name: parameter.data().asnumpy() for name, parameter in net._collect_params_with_prefix().items()}
    numpy_files.save_file(arrays, tmp_path / "net.safetensors")
    other.load_parameters(tmp_path / "net.safetensors")
    np.testing.assert_array_equal(other[0].weight.data().asnumpy(), net[0].weight.data().asnumpy())


@pytest.mark.parametrize("shape", [(2**62, 0), (0, 2**62), (2**40, 2**40, 0), (2**63 - 1, 0)])
def test_empty_arrays_of_impossible_shapes_are_refused(shape):
    params = struct.pack("<QQQIii", 0x112, 0, 1, 0xF993FAC9, 0, len(shape)) + struct.pack(f"<{len(shape)}q", *shape)
    header = f'{{"a":{{"dtype":"F32","shape":{list(shape)},"data_offsets":[0,0]}}}}'.encode()
    for data in (params + struct.pack("<iiiQ", 1, 0, 0, 0), len(header).to_bytes(8, "little") + header):
        with pytest.raises(ArchiveError, match="larger than any memory"):
            nd.load_frombuffer(data)


@pytest.mark.parametrize("deduplicate", [False, True])
def test_the_name_of_a_file_makes_it_safetensors(tmp_path, deduplicate):
    net, other = nn.HybridSequential(), nn.HybridSequential()
    for block in (net, other):
        block.add(nn.Dense(2, in_units=2), nn.BatchNorm(in_channels=2))
        block.add(nn.Dense(2, in_units=2, params=block[0].params))
        block.initialize()
    path, plain = tmp_path / "net.safetensors", tmp_path / "net.params"
    for name in (path, plain):
        net.save_parameters(name, deduplicate=deduplicate)
    arrays, expected = numpy_files.load_file(path), nd.load(plain)
    assert arrays.keys() == expected.keys() and len(arrays) == 6 + 2 * (not deduplicate)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name].asnumpy())
    other.load_parameters(path, allow_missing=deduplicate)
    np.testing.assert_array_equal(other[2].weight.data().asnumpy(), net[0].weight.data().asnumpy())
    net.collect_params().save(str(path))
    assert numpy_files.load_file(path).keys() == net.collect_params().keys()
    other.load_parameters(path, ignore_extra=True, allow_missing=True)


def test_nd_save_writes_safetensors(tmp_path):
    path = tmp_path / "a.safetensors"
    arrays = {"a": nd.arange(6).reshape((2, 3)).T, "b": nd.zeros((0, 4), dtype="float16"), "c": nd.array(3)}
    arrays |= {"d": nd.ones((3,), dtype="bfloat16"), "e": nd.array([1, 0], dtype="bool"), "": nd.ones((1,))}
    nd.save(path, arrays)
    read, loaded = numpy_files.load_file(path), nd.load(str(path))
    assert read.keys() == loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        assert read[name].shape == loaded[name].shape == array.shape and loaded[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded[name].asnumpy(), array.asnumpy())
        np.testing.assert_array_equal(read[name], array.asnumpy())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([nd.ones((2,))], "a name for each array"),
        (nd.ones((2,)), "a name for each array"),
        ({1: nd.ones((2,))}, "names of arrays are strings, not 1"),
        ({"__metadata__": nd.ones((2,))}, "cannot be named __metadata__"),
    ],
)
def test_what_safetensors_cannot_hold_is_refused_before_the_file_is_replaced(tmp_path, data, message):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"before")
    with pytest.raises(ArchiveError, match=message):
        nd.save(path, data)
    assert path.read_bytes() == b"before" and len(list(tmp_path.iterdir())) == 1
