"""The safetensors reader and writer, against the reference package and against hostile files."""

import json
import struct
import sys

import numpy as np
import pytest

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.formats.safetensors import DTYPES, SafetensorsFile, read_safetensors, write_safetensors
from hybrid_lab.ops.framework.dtypes import bfloat16


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_the_reference_package_reads_what_is_written(tmp_path):
    from safetensors.numpy import load_file

    arrays = {f"x.{name}": np.arange(6).reshape(2, 3).astype(dtype) for name, dtype in DTYPES.items()}
    arrays |= {"scalar": np.asarray(2.5), "empty": np.zeros((0, 3), "float32"), "ünï/0": np.ones((2, 3), "float32").T}
    write_safetensors(tmp_path / "a.safetensors", arrays, {"b": "2", "a": "1"})
    theirs, ours = load_file(tmp_path / "a.safetensors"), read_safetensors(tmp_path / "a.safetensors")
    assert set(theirs) == set(ours) == set(arrays)
    for name, array in arrays.items():
        assert ours[name].dtype == theirs[name].dtype == array.dtype
        assert ours[name].shape == theirs[name].shape == array.shape
        assert np.array_equal(ours[name], array) and np.array_equal(theirs[name], array)


def test_what_the_reference_package_writes_is_read(tmp_path):
    from safetensors.numpy import save_file

    save_file({"w": np.ones((2, 2), "float16"), "b": np.zeros(3)}, tmp_path / "a.safetensors", {"format": "np"})
    file = SafetensorsFile.open(tmp_path / "a.safetensors")
    assert file.metadata == {"format": "np"}
    assert file["w"].tolist() == [[1, 1], [1, 1]]


def test_equal_content_gives_equal_bytes(tmp_path):
    arrays = {"b": np.ones(3, "float32"), "a": np.zeros(2, "float64"), "c": np.arange(3, dtype="int8")}
    write_safetensors(tmp_path / "1", arrays, {"x": "1", "a": "2"})
    write_safetensors(tmp_path / "2", dict(reversed(arrays.items())), {"a": "2", "x": "1"})
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_tensors_are_aligned_in_the_file_and_arrays_of_their_own_in_memory(tmp_path):
    write_safetensors(tmp_path / "a", {"w": np.arange(5.0)})
    file = SafetensorsFile.open(tmp_path / "a")
    assert len(file.header) % 64 == 0
    assert file["w"].flags.writeable and file["w"].flags.owndata
    assert file["w"].tolist() == [0, 1, 2, 3, 4]


HOSTILE = {
    "empty": b"",
    "short": b"\0" * 7,
    "header 2^63": struct.pack("<Q", 2**63) + b"{}",
    "header after the end": struct.pack("<Q", 100) + b"{}",
    "not json": file_of(b"{nope}"),
    "a list": file_of(b"[]"),
    "leading space": file_of(b" {}"),
    "not utf-8": file_of(b'{"\xff": 1}'),
    "deep": file_of(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "duplicate key": file_of(
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},' * 2 + b'"__metadata__":{}}', b"\0" * 4
    ),
    "duplicate field": file_of(b'{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b"\0" * 4),
    "overlap": file_of({"a": tensor(), "b": tensor(offsets=(2, 6))}, b"\0" * 6),
    "same bytes": file_of({"a": tensor(), "b": tensor()}, b"\0" * 4),
    "hole": file_of({"a": tensor(), "b": tensor(offsets=(5, 9))}, b"\0" * 9),
    "hole at the start": file_of({"a": tensor(offsets=(1, 5))}, b"\0" * 5),
    "trailing": file_of({"a": tensor()}, b"\0" * 5),
    "short data": file_of({"a": tensor()}, b"\0" * 3),
    "size": file_of({"a": tensor(shape=(2,))}, b"\0" * 4),
    "reversed": file_of({"a": tensor(shape=(0,), offsets=(4, 0))}, b"\0" * 4),
    "negative dim": file_of({"a": tensor(shape=(-1, -1))}, b"\0" * 4),
    "overflow": file_of({"a": tensor(shape=(2**40, 2**40, 2**40))}, b"\0" * 4),
    "huge int": file_of(b'{"a":{"dtype":"F32","shape":[' + b"9" * 100_000 + b'],"data_offsets":[0,4]}}', b"\0" * 4),
    "float dim": file_of(b'{"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}}', b"\0" * 4),
    "bool dim": file_of(b'{"a":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}}', b"\0" * 4),
    "infinite": file_of(b'{"a":{"dtype":"F32","shape":[1e999],"data_offsets":[0,4]}}', b"\0" * 4),
    "nan": file_of(b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', b"\0" * 4),
    "dtype": file_of({"a": tensor("F33")}, b"\0" * 4),
    "dtype of another kind": file_of({"a": tensor([1])}, b"\0" * 4),
    "complex": file_of({"a": tensor("C64", (2,))}, b"\0" * 16),
    "bfloat16 of another size": file_of({"a": tensor("BF16", (3,))}, b"\0" * 4),
    "extra field": file_of({"a": tensor() | {"x": 1}}, b"\0" * 4),
    "missing field": file_of({"a": {"dtype": "F32", "shape": []}}, b"\0" * 4),
    "metadata": file_of({"__metadata__": {"a": 1}}),
    "metadata list": file_of({"__metadata__": []}),
    "lone surrogate": file_of(b'{"\\ud800":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b"\0" * 4),
    "many": file_of(b"{" + b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},' * 300_000 + b'"b":0}'),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files(data, tmp_path):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    with pytest.raises(ArchiveError) as caught:
        SafetensorsFile.open(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 600


def test_bool_elements_are_checked_when_read():
    file = SafetensorsFile(file_of({"a": tensor("BOOL", (2,), (0, 2))}, b"\1\2"))
    with pytest.raises(ArchiveError, match="bool"):
        file["a"]


def test_truncation_at_every_offset(tmp_path):
    write_safetensors(tmp_path / "a", {"w": np.arange(5.0), "b": np.ones(3, "int8")})
    data = (tmp_path / "a").read_bytes()
    for length in range(len(data)):
        with pytest.raises(ArchiveError):
            SafetensorsFile(data[:length])


@pytest.mark.parametrize("array", [np.ones(2, "complex64"), np.array(["a"]), np.array([None])])
def test_foreign_element_types_are_refused(array, tmp_path):
    with pytest.raises(ArchiveError, match="'w'"):
        write_safetensors(tmp_path / "a", {"w": array})
    assert not any(tmp_path.iterdir())


def test_bfloat16_is_what_the_format_s_own_package_reads(tmp_path):
    path = tmp_path / "b.safetensors"
    values = np.array([[1, 2.5], [-3.14159, 3e38]]).astype(bfloat16())
    write_safetensors(path, {"b": values, "f": np.ones(3, np.float32)})
    found = read_safetensors(path)
    assert found["b"].dtype.name == "bfloat16" and found["b"].tolist() == values.tolist()
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    assert torch.equal(load_file(path)["b"].float(), torch.from_numpy(values.astype(np.float32)))


def test_bfloat16_without_ml_dtypes(tmp_path, monkeypatch):
    path = tmp_path / "b.safetensors"
    write_safetensors(path, {"b": np.ones(3).astype(bfloat16())})
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    bfloat16.cache_clear()
    with pytest.raises(ArchiveError, match="tensor 'b': bfloat16 .*pip install ml_dtypes"):
        read_safetensors(path)


@pytest.mark.parametrize("size", [0, 3, 1500, 600_000])
def test_an_array_is_found_equal_bit_for_bit(tmp_path, size):
    array = np.arange(size, dtype="float32")
    write_safetensors(tmp_path / "a", {"before": np.ones(5), "w": array, "n": np.full(2, np.nan, "float32")})
    file = SafetensorsFile.open(tmp_path / "a")
    assert file.holds("w", array) and file.holds("w", np.repeat(array, 2)[::2]) and file.holds("n", file["n"])
    assert not file.holds("w", array[None]) and not file.holds("w", array.view("int32"))
    for place in {0, size // 2, size - 1} if size else ():
        other = array.copy()
        other[place] = -0.0 if other[place] == 0 else -other[place]
        assert not file.holds("w", other)
    with pytest.raises(KeyError):
        file.holds("other", array)
