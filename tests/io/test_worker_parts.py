"""Each iterator with `num_parts` reads this worker's part by default, and all workers have equally many batches."""

from __future__ import annotations

import inspect
import struct
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.distributed import worker_group

IMAGES = Path(__file__).resolve().parent.parent / "golden" / "image" / "records.npz"


def _idx(values):
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


@pytest.fixture
def files(tmp_path):
    stored = np.load(IMAGES)
    for name in ("rec", "idx"):
        stored[name].tofile(tmp_path / f"images.{name}")
    objects = mx.recordio.MXIndexedRecordIO(str(tmp_path / "objects.idx"), str(tmp_path / "objects.rec"), "w")
    for number in range(7):
        image = np.full((12, 12, 3), number, np.uint8)
        header = mx.recordio.IRHeader(0, np.array([2, 5, number, 0, 0, 1, 1], np.float32), number, 0)
        objects.write_idx(number, mx.recordio.pack_img(header, image, 1, ".png"))
    objects.close()
    (tmp_path / "rows").write_text("".join(f"{number} 0:{number}\n" for number in range(7)))
    numbers = np.arange(7, dtype=np.uint8)
    (tmp_path / "images").write_bytes(_idx(np.tile(numbers[:, None, None], (1, 28, 28))))
    (tmp_path / "labels").write_bytes(_idx(numbers))
    return {each.name: str(each) for each in tmp_path.iterdir()}


RECORDS = {"data_shape": (3, 8, 8), "batch_size": 1}
BUILDERS = {
    **{
        name: lambda files, name=name, **part: getattr(mx.io, name)(
            path_imgrec=files["images.rec"], label_width=2, **RECORDS, **part
        )
        for name in (
            *("ImageRecordIter", "ImageRecordUInt8Iter", "ImageRecordInt8Iter"),
            *("ImageRecordIter_v1", "ImageRecordUInt8Iter_v1"),
        )
    },
    "ImageDetRecordIter": lambda files, **part: mx.io.ImageDetRecordIter(
        path_imgrec=files["objects.rec"], path_imgidx=files["objects.idx"], **RECORDS, **part
    ),
    "ImageIter": lambda files, **part: mx.image.ImageIter(
        path_imgrec=files["images.rec"], path_imgidx=files["images.idx"], label_width=2, **RECORDS, **part
    ),
    "ImageDetIter": lambda files, **part: mx.image.ImageDetIter(
        path_imgrec=files["objects.rec"], path_imgidx=files["objects.idx"], **RECORDS, **part
    ),
    "LibSVMIter": lambda files, **part: mx.io.LibSVMIter(files["rows"], (2,), **part),
    "MNISTIter": lambda files, **part: mx.io.MNISTIter(
        files["images"], files["labels"], batch_size=1, shuffle=False, **part
    ),
}


def _kinds(base):
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


def test_every_iterator_with_parts_is_here():
    mx.image.ImageDetIter, mx.io.ImageDetRecordIter  # noqa: B018  (imported when they are asked for)
    found = set()
    for kind in _kinds(mx.io.DataIter):
        own = kind.__module__.startswith("hybrid_lab.")
        inits = [base.__init__ for base in kind.__mro__ if "__init__" in vars(base) and base is not object]
        if own and any("num_parts" in inspect.signature(init).parameters for init in inits):
            found.add(kind.__name__)
    assert found == BUILDERS.keys()


class Joined:
    """Stands for the group of a worker."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size


def _labels(batches):
    return [tuple(np.ravel(batch.label[0].asnumpy()).tolist()) for batch in batches]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", BUILDERS)
def test_workers_share_the_file(name, size, files, monkeypatch):
    whole = _labels(BUILDERS[name](files))
    assert len(set(whole)) == 7
    shares = []
    for rank in range(size):
        monkeypatch.setattr(worker_group, "_group", Joined(rank, size))
        shares.append(_labels(BUILDERS[name](files)))
        assert _labels(BUILDERS[name](files, num_parts=1, part_index=0)) == whole
        explicit = _labels(BUILDERS[name](files, num_parts=7, part_index=6))
    assert {len(share) for share in shares} == {-(-7 // size)}
    assert {label for share in shares for label in share} == set(whole)
    monkeypatch.setattr(worker_group, "_group", None)
    assert explicit == _labels(BUILDERS[name](files, num_parts=7, part_index=6))


def test_records_without_an_index(files, monkeypatch):
    monkeypatch.setattr(worker_group, "_group", Joined(0, 2))
    with pytest.raises(ValueError, match="path_imgidx.*num_parts=1"):
        mx.image.ImageIter(1, (3, 8, 8), path_imgrec=files["images.rec"])
    assert len(list(mx.image.ImageIter(1, (3, 8, 8), 2, files["images.rec"], num_parts=1))) == 7
