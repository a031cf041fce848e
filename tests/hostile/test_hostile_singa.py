"""Hostile files of SINGA's states: a typed error, little memory, nothing unpacked, nothing loaded."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.formats.singa import read_states, write_states

MUTATIONS = int(os.environ.get("HYBRID_LAB_MUTATIONS", "1500"))
STATES = {"a.W": np.arange(6, dtype=np.float32).reshape(2, 3), "a.b": np.ones(3, np.float32)}


def npz(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def attributes(**shapes):
    return json.dumps({name: {"state_type": 0, "shape": shape, "dtype": 0} for name, shape in shapes.items()})


def outer(path, *members, **options):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zf:
        for name, content in members:
            zf.writestr(name, content, **options)
    return path


def npy(header, data=b""):
    text = header.encode("latin-1")
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + data


def inner(*members):
    stream = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(stream, "w") as zf:
        for name, content in members:
            zf.writestr(name, content)
    return stream.getvalue()


class Evil:
    def __reduce__(self):
        return os.mkdir, ("/tmp/evil-was-run",)


GOOD = ("states_attr.json", attributes(x=[2]))
TENSORS = "tensor_dict.npz"
TWO = (TENSORS, npz(x=np.ones(2)))


def header(descr="'<f4'", shape="(2,)"):
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n"


def array(text, data=b""):
    """Both members, the array with this header and these bytes."""
    return [(TENSORS, inner(("x.npy", npy(text, data)))), GOOD]


CASES = {
    "empty": [],
    "no attributes": [TWO],
    "no tensors": [GOOD],
    "further member": [TWO, GOOD, ("more", b"")],
    "traversal": [TWO, ("../states_attr.json", b"{}")],
    "absolute": [("/tensor_dict.npz", TWO[1]), GOOD],
    "twice": [TWO, TWO],
    "no zip inside": [(TENSORS, b"not a zip"), GOOD],
    "no array inside": [(TENSORS, inner(("x.txt", b"1"))), GOOD],
    "array twice": [(TENSORS, inner(("x.npy", b"1"), ("x.npy", b"1"))), GOOD],
    "no npy": [(TENSORS, inner(("x.npy", b"nothing"))), GOOD],
    "other names": [(TENSORS, npz(y=np.ones(2))), GOOD],
    "other shape": [(TENSORS, npz(x=np.ones(3))), GOOD],
    "other kind": [TWO, ("states_attr.json", '{"x": {"state_type": 7, "shape": [2]}}')],
    "kind no number": [TWO, ("states_attr.json", '{"x": {"state_type": [], "shape": [2]}}')],
    "json twice": [TWO, ("states_attr.json", '{"x": {}, "x": {}}')],
    "json deep": [TWO, ("states_attr.json", "[" * 100_000)],
    "json list": [TWO, ("states_attr.json", "[]")],
    "bomb": [(TENSORS, bytes(400 << 20)), GOOD],
    "bomb of json": [TWO, ("states_attr.json", b" " * (200 << 20))],
    "pickle": array(header("'|O'"), pickle.dumps(Evil())),
    "code": array("__import__('os').mkdir('/tmp/evil-was-run')\n"),
    "fields": array(header("[('a', '<f4')]"), bytes(8)),
    "huge": array(header(shape="(999999999999999, 999999999999999)")),
    "huge and empty": array(header(shape="(0, 999999999999999, 999999999999999)")),
    "negative": array(header(shape="(-2,)"), bytes(8)),
    "short": array(header(), bytes(7)),
    "bool of 7": array(header("'|b1'"), b"\7\7"),
    "odd type": array(header("'<f9'"), bytes(18)),
    "text": array(header("'<U1'"), bytes(8)),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", CASES)
def test_is_refused(name, tmp_path, monkeypatch):
    path = outer(tmp_path / "m.zip", *CASES[name])
    monkeypatch.chdir(tmp_path)
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveError) as error:
            read_states(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * path.stat().st_size + (64 << 20)
    assert str(path) in str(error.value)
    assert os.listdir(tmp_path) == ["m.zip"] and not os.path.exists("/tmp/evil-was-run")


def test_a_size_that_is_a_lie(tmp_path):
    """The headers announce 10 bytes; the data would give 200 MB."""
    path = outer(tmp_path / "m.zip", ("tensor_dict.npz", bytes(200 << 20)), GOOD)
    data = path.read_bytes().replace((200 << 20).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    path.write_bytes(data)
    with pytest.raises(ArchiveError):
        read_states(path)


def test_every_truncation(tmp_path):
    write_states(tmp_path / "m.zip", STATES)
    data = (tmp_path / "m.zip").read_bytes()
    for length in range(0, len(data), 3):
        (tmp_path / "m.zip").write_bytes(data[:length])
        with pytest.raises(ArchiveError):
            read_states(tmp_path / "m.zip")


def test_mutations(tmp_path):
    """A changed byte is a typed error, or the arrays are those that were written or of what the bytes say now."""
    write_states(tmp_path / "m.zip", STATES, {"epoch": np.array(3)})
    data, chance = (tmp_path / "m.zip").read_bytes(), random.Random(5)
    refused = 0
    for _ in range(MUTATIONS):
        changed = bytearray(data)
        for _ in range(chance.choice([1, 1, 2, 8])):
            place = chance.randrange(len(changed))
            kind = chance.randrange(3)
            if kind == 0:
                changed[place] = chance.randrange(256)
            elif kind == 1:
                del changed[place : place + chance.randrange(1, 9)]
            else:
                changed[place:place] = chance.randbytes(chance.randrange(1, 9))
        (tmp_path / "m.zip").write_bytes(changed)
        try:
            read_states(tmp_path / "m.zip")
        except ArchiveError:
            refused += 1
    assert refused > MUTATIONS // 2


def test_both_orders_and_all_types_come_back(tmp_path):
    kinds = ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool")
    arrays = {kind: np.ones((2, 3), kind) for kind in kinds} | {"none": np.zeros((0, 2)), "one": np.array(2.5)}
    arrays["fortran"] = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    write_states(tmp_path / "m.zip", arrays)
    states, aux = read_states(tmp_path / "m.zip")
    assert not aux and states.keys() == arrays.keys()
    assert all(np.array_equal(states[name], array) for name, array in arrays.items())
    assert all(states[name].dtype == array.dtype for name, array in arrays.items())
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    outer(tmp_path / "n.zip", (TENSORS, stream.getvalue()), ("states_attr.json", attributes(**shapes)))
    assert all(np.array_equal(array, arrays[name]) for name, array in read_states(tmp_path / "n.zip")[0].items())
