"""Files of records, byte for byte those of the real MXNet (golden/recordio), and image records."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import recordio
from hybrid_lab.data.image_files import ImageError
from hybrid_lab.diagnostics import HybridLabError

GOLDEN = Path(__file__).parents[1] / "golden" / "recordio"
sys.path.insert(0, str(GOLDEN))
from cases import records  # noqa: E402

sys.path.remove(str(GOLDEN))
del sys.modules["cases"]
HEADERS = ((0, 4.5, 7, 0), (0, np.array([1.0, 2.5, -3.0]), 2**40, 1), (9, [0.5], 1, 2))


def test_files_are_those_of_mxnet_byte_for_byte(tmp_path):
    paths = [str(tmp_path / name) for name in ("plain.rec", "indexed.idx", "indexed.rec", "labelled.rec")]
    with (
        recordio.MXRecordIO(paths[0], "w") as plain,
        recordio.MXIndexedRecordIO(paths[1], paths[2], "w") as indexed,
        recordio.MXRecordIO(paths[3], "w") as labelled,
    ):
        for key, record in enumerate(records()):
            plain.write(record)
            indexed.write_idx(3 * key, record)
        for header in HEADERS:
            labelled.write(recordio.pack(recordio.IRHeader(*header), b"the image"))
    for path in paths:
        assert Path(path).read_bytes() == (GOLDEN / os.path.basename(path)).read_bytes()


def test_records_are_read_in_order():
    with mx.recordio.MXRecordIO(GOLDEN / "plain.rec", "r") as file:
        assert list(iter(file.read, None)) == records()
        assert file.read() is None
        file.reset()
        assert file.read() == records()[0]


def test_records_are_read_by_key():
    with recordio.MXIndexedRecordIO(GOLDEN / "indexed.idx", GOLDEN / "indexed.rec", "r") as file:
        assert file.keys == [3 * key for key in range(len(records()))]
        assert [file.read_idx(key) for key in reversed(file.keys)] == records()[::-1]
        with pytest.raises(KeyError, match="has no key 4"):
            file.read_idx(4)


def test_labels():
    with recordio.MXRecordIO(GOLDEN / "labelled.rec", "r") as file:
        for _, label, number, high in HEADERS:
            header, data = recordio.unpack(file.read())
            assert (header.id, header.id2, data) == (number, high, b"the image")
            assert header.flag == (0 if np.isscalar(label) else len(label))
            np.testing.assert_array_equal(header.label, label)


@pytest.mark.parametrize("cut", [3, 11])
def test_a_damaged_file_says_so(tmp_path, cut):
    path = tmp_path / "cut.rec"
    path.write_bytes((GOLDEN / "plain.rec").read_bytes()[20 : 20 + cut])
    with recordio.MXRecordIO(path, "r") as file, pytest.raises(recordio.RecordError, match="is damaged"):
        file.read()


def test_parts_out_of_order_are_damage(tmp_path):
    path = tmp_path / "parts.rec"
    with recordio.MXRecordIO(path, "w") as file:
        file.write(records()[5])
    path.write_bytes(path.read_bytes()[8:])  # without the first of three parts
    with recordio.MXRecordIO(path, "r") as file, pytest.raises(recordio.RecordError, match="out of order"):
        file.read()


def test_wrong_uses(tmp_path):
    path = tmp_path / "a.rec"
    with pytest.raises(ValueError, match="'r' or 'w', not 'a'"):
        recordio.MXRecordIO(path, "a")
    file = recordio.MXRecordIO(path, "w")
    with pytest.raises(recordio.RecordError, match="not open to be read; open it with 'r'"):
        file.read()
    with pytest.raises(recordio.RecordError, match="only a file that is read can be copied"):
        pickle.loads(pickle.dumps(file))
    file.close()
    with pytest.raises(recordio.RecordError, match="is closed"):
        file.write(b"")
    (tmp_path / "a.idx").write_text("1 2\n")
    with pytest.raises(recordio.RecordError, match="line 1 is not a key and an offset"):
        recordio.MXIndexedRecordIO(tmp_path / "a.idx", path, "r")
    with pytest.raises(recordio.RecordError, match="cannot have 9 labels"):
        recordio.unpack(bytes([9]) + bytes(30))
    with pytest.raises(recordio.RecordError, match="at least 24 bytes"):
        recordio.unpack(b"short")


def test_a_copy_reads_for_itself():
    with recordio.MXIndexedRecordIO(GOLDEN / "indexed.idx", GOLDEN / "indexed.rec", "r") as file:
        file.read()
        copy = pickle.loads(pickle.dumps(file))
        assert copy.read() == records()[0]
        assert file.read() == records()[1]
        copy.close()


@pytest.mark.parametrize("shape", [(5, 7, 3), (5, 7)])
def test_image_records(shape):
    pytest.importorskip("cv2")
    image = np.random.RandomState(0).randint(0, 255, shape).astype("uint8")
    record = recordio.pack_img((0, 3.0, 1, 0), image, quality=5, img_fmt=".png")
    header, again = recordio.unpack_img(record)
    assert header.label == 3
    np.testing.assert_array_equal(again, image)
    assert recordio.unpack_img(record, 1)[1].shape == (5, 7, 3)
    assert recordio.unpack_img(record, 0)[1].shape == (5, 7)
    assert recordio.unpack_img(recordio.pack_img((0, 3.0, 1, 0), image))[1].shape == shape
    with pytest.raises(ImageError, match="not '.gif'"):
        recordio.pack_img((0, 3.0, 1, 0), image, img_fmt=".gif")
    with pytest.raises(HybridLabError, match="cannot be decoded as an image"):
        recordio.unpack_img(recordio.pack((0, 3.0, 1, 0), b"no image"))
