"""Data sets of images from local files."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, recordio
from hybrid_lab.data.image_files import encode
from hybrid_lab.gluon.data.vision import DatasetFileError

vision = gluon.data.vision
RANDOM = np.random.RandomState(0)


def idx(values):
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


@pytest.mark.parametrize("kind", [vision.MNIST, vision.FashionMNIST])
@pytest.mark.parametrize("packed", [False, True])
def test_digits(tmp_path, kind, packed):
    images, labels = RANDOM.randint(0, 256, (4, 28, 28)).astype("uint8"), np.array([3, 1, 4, 1], "uint8")
    for name, values in (("train-images-idx3-ubyte", images), ("train-labels-idx1-ubyte", labels)):
        data = idx(values)
        (tmp_path / (name + ".gz" * packed)).write_bytes(gzip.compress(data) if packed else data)
    data = kind(root=tmp_path)
    assert len(data) == 4
    image, label = data[2]
    assert (image.shape, image.dtype, label, label.dtype) == ((28, 28, 1), np.uint8, 4, np.int32)
    np.testing.assert_array_equal(image.asnumpy()[..., 0], images[2])
    (batch, numbers) = next(iter(gluon.data.DataLoader(data, batch_size=3)))
    assert batch.shape == (3, 28, 28, 1)
    assert numbers.asnumpy().tolist() == [3, 1, 4]
    assert kind(tmp_path, True, lambda image, label: (image.astype("float32") / 255, label + 1))[0][1] == 4
    with pytest.raises(DatasetFileError, match=f"{kind.__name__} has no file t10k-images.* in {tmp_path}.*as root="):
        kind(root=tmp_path, train=False)


def test_labels_are_arrays_under_numpy_semantics(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(np.zeros((3, 28, 28), "uint8")))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.array([3, 1, 4], "uint8")))
    with mx.util.np_shape(), mx.util.np_array():
        data = vision.MNIST(tmp_path)
        images, labels = data[1:]
        assert type(images) is type(labels) is mx.np.ndarray
        assert labels.asnumpy().tolist() == [1, 4]
        assert data[2][1].shape == ()
        _, numbers = next(iter(gluon.data.DataLoader(data, batch_size=3)))
        assert (numbers.asnumpy().tolist(), numbers.dtype) == ([3, 1, 4], np.int32)


def test_the_default_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MXNET_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="datasets.cifar10"):
        vision.CIFAR10()
    assert mx.base.data_dir() == str(tmp_path)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("fine", [None, False, True])
def test_photographs(tmp_path, packed, fine):
    labels = 1 if fine is None else 2
    rows = RANDOM.randint(0, 256, (3, labels + 3072)).astype("uint8")
    rows[:, :labels] %= 10
    name = "test_batch.bin" if fine is None else "test.bin"
    archive = "cifar-10-binary.tar.gz" if fine is None else "cifar-100-binary.tar.gz"
    if packed:
        with tarfile.open(tmp_path / archive, "w:gz") as file:
            member = tarfile.TarInfo(f"cifar/{name}")
            member.size = rows.size
            file.addfile(member, io.BytesIO(rows.tobytes()))
    else:
        (tmp_path / name).write_bytes(rows.tobytes())
    data = vision.CIFAR10(tmp_path, False) if fine is None else vision.CIFAR100(tmp_path, fine, False)
    image, label = data[1]
    assert label == rows[1, int(bool(fine))]
    np.testing.assert_array_equal(image.asnumpy().transpose(2, 0, 1).reshape(-1), rows[1, labels:])
    with pytest.raises(DatasetFileError, match=f"{archive} in"):
        vision.CIFAR10(tmp_path) if fine is None else vision.CIFAR100(tmp_path)
    if not packed:
        (tmp_path / name).write_bytes(b"short")
        with pytest.raises(DatasetFileError, match="is damaged: 5 bytes"):
            vision.CIFAR10(tmp_path, False) if fine is None else vision.CIFAR100(tmp_path, fine, False)


def test_folders_lists_and_records(tmp_path):
    pytest.importorskip("cv2")
    images = RANDOM.randint(0, 256, (3, 5, 6, 3)).astype("uint8")
    names = ["cat/a.png", "cat/b.PNG", "dog/c.png"]
    with recordio.MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w") as file:
        for number, (name, image) in enumerate(zip(names, images, strict=True)):
            path = tmp_path / "data" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode(image, 1, ".png"))
            file.write_idx(number, recordio.pack_img((0, float(number == 2), 0, 0), image[..., ::-1], 1, ".png"))
    folders = vision.ImageFolderDataset(tmp_path / "data")
    assert folders.synsets == ["cat", "dog"]
    listed = vision.ImageListDataset(tmp_path / "data", [[0, names[0]], [0, names[1]], [1, names[2]]])
    recorded = vision.ImageRecordDataset(tmp_path / "a.rec")
    for data in (folders, listed, recorded):
        assert len(data) == 3
        for number in range(3):
            image, label = data[number]
            np.testing.assert_array_equal(image.asnumpy(), images[number])
            assert label == (number == 2)
    assert vision.ImageFolderDataset(tmp_path / "data", flag=0)[0][0].shape == (5, 6, 1)
    assert gluon.data.RecordFileDataset(tmp_path / "a.rec")[2].endswith(b"IEND\xaeB`\x82")
    (tmp_path / "data" / "dog" / "notes.txt").write_text("no image")
    (tmp_path / "data" / "notes.txt").write_text("no folder")
    with pytest.warns(UserWarning, match="notes.txt is left out"):
        assert len(vision.ImageFolderDataset(tmp_path / "data")) == 3
    with pytest.raises(DatasetFileError, match="is not a folder"):
        vision.ImageFolderDataset(tmp_path / "nowhere")
