"""test_utils.get_mnist: the digits from local files."""

import gzip
import struct

import numpy as np
import pytest

from hybrid_lab import test_utils
from hybrid_lab.gluon.data.vision import DatasetFileError

COUNTS = {"train": 12, "t10k": 4}


@pytest.fixture
def digits(tmp_path, monkeypatch):
    monkeypatch.setenv("MXNET_HOME", str(tmp_path))
    folder = tmp_path / "datasets" / "mnist"
    folder.mkdir(parents=True)
    for part, count in COUNTS.items():
        images = np.arange(count, dtype="uint8").repeat(28 * 28).reshape(count, 28, 28)
        for kind, values in (("images-idx3", images), ("labels-idx1", np.arange(count, dtype="uint8") % 10)):
            head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(head + values.tobytes()))


def test_mnist(digits):
    data = test_utils.get_mnist()
    assert data["train_data"].shape == (12, 1, 28, 28) and data["test_data"].dtype == np.float32
    np.testing.assert_allclose(data["train_data"][:, 0, 3, 5], np.arange(12) / 255, rtol=1e-6)
    assert data["test_label"].tolist() == [0, 1, 2, 3] and data["train_label"].dtype == np.int8


@pytest.mark.parametrize(("shape", "expected"), [((784,), (4, 784)), ((1, 28, 28), (4, 1, 28, 28))])
def test_iterators(digits, shape, expected):
    train, test = test_utils.get_mnist_iterator(4, shape)
    assert len(list(train)) == 3
    (batch,) = test
    assert batch.data[0].shape == expected and batch.label[0].asnumpy().tolist() == [0, 1, 2, 3]
    assert len(list(test_utils.get_mnist_iterator(4, shape, num_parts=3, part_index=1)[0])) == 1


def test_files_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("MXNET_HOME", str(tmp_path))
    for call in (test_utils.get_mnist, lambda: test_utils.get_mnist_iterator(4, (784,))):
        with pytest.raises(DatasetFileError, match="MNIST has no file train-images-idx3-ubyte.gz or") as caught:
            call()
        assert "root=" not in str(caught.value), "neither function has this argument"
        assert "set the environment variable MXNET_HOME to a folder that has it in datasets/mnist" in str(caught.value)


def test_download_names_the_file(tmp_path):
    (tmp_path / "given").write_text("digits")
    path = test_utils.download((tmp_path / "given").as_uri(), "own.txt", str(tmp_path / "new"))
    assert path == str(tmp_path / "new" / "own.txt") and (tmp_path / "new" / "own.txt").read_text() == "digits"


@pytest.mark.parametrize(
    ("get", "files"),
    [
        (test_utils.get_cifar10, ["cifar/train.rec", "cifar/test.rec", "cifar/train.lst", "cifar/test.lst"]),
        (
            test_utils.get_mnist_ubyte,
            [f"{part}-{kind}-ubyte" for part in COUNTS for kind in ("images-idx3", "labels-idx1")],
        ),
    ],
    ids=["cifar10", "mnist"],
)
def test_files_below_the_current_folder(get, files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "cifar").mkdir(parents=True)
    for file in files:
        with pytest.raises(DatasetFileError, match=f"there is no .*data/{file}.*put the files there"):
            get()
        (tmp_path / "data" / file).touch()
    for file in ("train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"):
        (tmp_path / "data" / file).touch()
    get()
