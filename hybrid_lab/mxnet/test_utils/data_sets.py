"""MNIST from local files, and downloads, as MXNet's tests and examples get their data."""

from __future__ import annotations

import os

import numpy as np

from hybrid_lab.data.io import MNISTIter
from hybrid_lab.data.io.file_iters import read_idx
from hybrid_lab.gluon import utils
from hybrid_lab.gluon.data.vision.datasets import DatasetFileError, mnist_file


def download(
    url: str, fname: str | None = None, dirname: str | None = None, overwrite: bool = False, retries: int = 5
) -> str:
    """`gluon.utils.download`; fname, dirname : the file's name and folder, by default the last part of the URL and the
    current folder. Returns the path. Raises DownloadError.
    """
    if dirname:
        os.makedirs(dirname, exist_ok=True)
    path = dirname if fname is None else os.path.join(dirname or "", fname)
    return utils.download(url, path, overwrite, retries=retries)


def get_mnist() -> dict[str, np.ndarray]:
    """The digits of MNIST: train_data, test_data (n, 1, 28, 28) of float32 in [0, 1], and train_label, test_label (n,)
    of int8. Read from `datasets/mnist` in the folder that the environment variable MXNET_HOME names, by default
    `~/.mxnet`; raises DatasetFileError if they are not there.
    """
    found = {}
    for part, name in (("train", "train"), ("test", "t10k")):
        images = read_idx(mnist_file(f"{name}-images-idx3-ubyte"))
        found[f"{part}_data"] = images[:, np.newaxis].astype(np.float32) / 255
        found[f"{part}_label"] = read_idx(mnist_file(f"{name}-labels-idx1-ubyte")).astype(np.int8)
    return found


def get_mnist_iterator(
    batch_size: int, input_shape: tuple[int, ...], num_parts: int | None = None, part_index: int | None = None
) -> tuple[MNISTIter, MNISTIter]:
    """Iterators over MNIST for training (shuffled) and for testing, from the files of `get_mnist`.

    input_shape : three sizes for images (batch, 1, 28, 28), else rows (batch, 784)
    num_parts, part_index : read one of equal parts; by default the part of this worker among the joined workers
    """

    def iterate(part: str, shuffle: bool) -> MNISTIter:
        return MNISTIter(
            mnist_file(f"{part}-images-idx3-ubyte"),
            mnist_file(f"{part}-labels-idx1-ubyte"),
            batch_size,
            shuffle,
            flat=len(input_shape) != 3,
            num_parts=num_parts,
            part_index=part_index,
        )

    return iterate("train", True), iterate("t10k", False)


def get_cifar10() -> None:
    """See that CIFAR10's records are in `data/cifar` below the current folder: train.rec, test.rec, train.lst and
    test.lst. Raises DatasetFileError if they are not; MXNet downloads them.
    """
    _require(*(f"data/cifar/{part}.{kind}" for kind in ("rec", "lst") for part in ("train", "test")))


def get_mnist_ubyte() -> None:
    """See that MNIST's four files, not compressed, are in `data` below the current folder. Raises DatasetFileError if
    they are not; MXNet downloads them.
    """
    _require(*(f"data/{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")))


def _require(*paths: str) -> None:
    missing = [path for path in paths if not os.path.exists(path)]
    if missing:
        raise DatasetFileError(
            f"there is no {' and no '.join(missing)} in {os.getcwd()}. Nothing is downloaded: put the files there"
        )
