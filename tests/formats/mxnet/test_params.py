"""MXNet's .params files, against files the real MXNet wrote."""

import struct
from pathlib import Path

import numpy as np
import pytest

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.formats.mxnet import read_params, write_params

GOLDEN = Path(__file__).parents[2] / "golden" / "formats"
V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA


def file_of(*records, names=()):
    data = struct.pack("<QQQ", 0x112, 0, len(records)) + b"".join(records) + struct.pack("<Q", len(names))
    return data + b"".join(struct.pack("<Q", len(name)) + name for name in names)


def record(shape, elements=b"", *, magic=V2, storage=0, flag=0):
    return (
        struct.pack("<Iii", magic, storage, len(shape))
        + struct.pack(f"<{len(shape)}q", *shape)
        + struct.pack("<iii", 1, 0, flag)
        + elements
    )


def test_a_named_file_of_mxnet():
    arrays = read_params(GOLDEN / "named.params")
    assert list(arrays)[:2] == ["arg:float32_weight", "arg:float64_weight"]
    for name in list(arrays)[:8]:
        assert name == f"arg:{arrays[name].dtype}_weight"
        assert arrays[name].shape == (2, 3)
    assert arrays["größe.0.weight"].shape == (1, 1, 1, 1, 2)
    assert arrays["arg:float32_weight"].flags.writeable


@pytest.mark.parametrize("name", ["named.params", "list.params"])
def test_written_bytes_are_those_of_mxnet(name, tmp_path):
    write_params(tmp_path / name, read_params(GOLDEN / name))
    assert (tmp_path / name).read_bytes() == (GOLDEN / name).read_bytes()


def test_np_shape_scalars_and_empty_arrays(tmp_path):
    empty, scalar = read_params(GOLDEN / "np_shape.params")
    assert empty.shape == (0, 3)
    assert scalar.shape == () and scalar == 1
    write_params(tmp_path / "again.params", [empty, scalar], np_shape=True)
    assert (tmp_path / "again.params").read_bytes() == (GOLDEN / "np_shape.params").read_bytes()


def test_sparse_arrays_become_dense():
    assert read_params(GOLDEN / "row_sparse.params")["w"].tolist() == [[1, 2], [0, 0], [3, 4], [0, 0]]
    assert read_params(GOLDEN / "csr.params")["m"].tolist() == [[1, 0], [0, 2], [0, 0]]
    assert read_params(GOLDEN / "row_sparse_empty.params")[0].tolist() == [[0, 0]] * 4


def test_older_forms():
    values = np.float32([3, 4]).tobytes()
    v1 = struct.pack("<Iiqiii", V1, 1, 2, 1, 0, 0) + values
    v0 = struct.pack("<IIiii", 1, 2, 1, 0, 0) + values
    none = struct.pack("<Iii", V2, 0, 0)
    arrays = read_params(file_of(v1, v0, none))
    assert arrays[0].tolist() == arrays[1].tolist() == [3, 4]
    assert arrays[2] is None


def test_none_survives(tmp_path):
    write_params(tmp_path / "a.params", {"x": None, "y": np.ones(2, "float32")})
    arrays = read_params(tmp_path / "a.params")
    assert arrays["x"] is None and arrays["y"].tolist() == [1, 1]


def test_non_contiguous_and_big_endian_arrays(tmp_path):
    x = np.arange(6, dtype=">f4").reshape(2, 3).T
    write_params(tmp_path / "a.params", [x])
    assert read_params(tmp_path / "a.params")[0].tolist() == x.tolist()


@pytest.mark.parametrize(
    ("array", "hint"),
    [
        (np.ones(2, "complex64"), "complex64"),
        (np.ones(2, "uint32"), "uint32"),
        (np.asarray(1, "float32"), r"shape \(\)"),
    ],
)
def test_what_the_format_cannot_hold_is_refused_before_writing(array, hint, tmp_path):
    with pytest.raises(ArchiveError, match=hint) as caught:
        write_params(tmp_path / "a.params", {"w": array})
    assert caught.value.member == "w"
    assert not any(tmp_path.iterdir())


HOSTILE = {
    "empty": b"",
    "wrong magic": struct.pack("<QQQQ", 0x113, 0, 0, 0),
    "reserved": struct.pack("<QQQQ", 0x112, 1, 0, 0),
    "count": struct.pack("<QQQQ", 0x112, 0, 2**60, 0),
    "array magic": file_of(struct.pack("<I", 0xF993FAC7)),
    "dimensions": file_of(struct.pack("<Iii", V2, 0, 2**31 - 1)),
    "negative dimensions": file_of(struct.pack("<Iii", V2, 0, -1)),
    "negative dim": file_of(record((-1, 2))),
    "huge dim": file_of(record((2**62, 2**62))),
    "type flag": file_of(record((1,), b"\0" * 4, flag=13)),
    "storage": file_of(record((1,), b"\0" * 4, storage=3)),
    "bool 2": file_of(record((1,), b"\2", flag=7)),
    "duplicate name": file_of(record((1,), b"\0" * 4), record((1,), b"\0" * 4), names=(b"a", b"a")),
    "names": file_of(record((1,), b"\0" * 4), names=(b"a", b"b")),
    "name not utf-8": file_of(record((1,), b"\0" * 4), names=(b"\xff",)),
    "trailing": file_of(record((1,), b"\0" * 4)) + b"x",
    "sparse bomb": file_of(
        struct.pack("<Iii2qi2qiiiiiq", V2, 1, 2, 0, 8, 2, 2**40, 8, 1, 0, 0, 6, 1, 0),
    ),
    "sparse row": file_of(
        struct.pack("<Iii2qi2qiiiiiq", V2, 1, 2, 1, 1, 2, 2, 1, 1, 0, 0, 6, 1, 1) + b"\0" * 4 + struct.pack("<q", 7)
    ),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files(data, tmp_path):
    path = tmp_path / "bad.params"
    path.write_bytes(data)
    with pytest.raises(ArchiveError) as caught:
        read_params(path)
    assert str(path) in str(caught.value)
    if data:
        assert "offset" in str(caught.value)


def test_truncation_at_every_offset():
    data = (GOLDEN / "csr.params").read_bytes()
    for length in range(len(data)):
        with pytest.raises(ArchiveError):
            read_params(data[:length])


def test_bfloat16_as_mxnet_writes_it(tmp_path):
    """`nd.save` of MXNet 1.9.1, of nd.cast(nd.array([1, 2.5, -3.14159]), np.dtype([("bfloat16", np.uint16)]))."""
    data = bytes.fromhex(
        "120100000000000000000000000000000100000000000000c9fa93f9000000000100000003000000000000000100000000000000"
        "0c000000803f204049c00100000000000000010000000000000062"
    )
    arrays = read_params(data)
    assert arrays["b"].dtype.name == "bfloat16" and arrays["b"].tolist() == [1, 2.5, -3.140625]
    path = tmp_path / "b.params"
    write_params(path, arrays)
    assert path.read_bytes() == data
