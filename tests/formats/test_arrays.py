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
