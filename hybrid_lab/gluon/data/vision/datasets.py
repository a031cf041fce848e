"""Data sets of images in local files. Nothing is downloaded: an error names a missing file and its folder."""

from __future__ import annotations

import os
import tarfile
import warnings
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, ClassVar, TypeAlias

import numpy as np

from hybrid_lab import ndarray as nd
from hybrid_lab.data import image, recordio
from hybrid_lab.data.image.iterating import as_table, read_list
from hybrid_lab.data.io.file_iters import read_idx
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.mxnet.base import data_dir
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.numpy_mode import in_mode, is_np_array

from ..dataset import Dataset, RecordFileDataset

#: Makes a sample of an image and its label.
Transform: TypeAlias = Callable[[Any, Any], Any]
_IMAGES = (".jpg", ".jpeg", ".png")


class DatasetFileError(HybridLabError, FileNotFoundError):
    """A file of a data set that is missing or damaged."""


class _Labelled(Dataset):
    """Images and labels in memory, with a transform. A sample is (image, label).

    As in MXNet, the labels are an `mx.np` array under NumPy semantics, and an array of NumPy otherwise.
    """

    _folder: ClassVar[str]
    _train: bool

    def __init__(self, root: str | PathLike[str] | None, transform: Transform | None) -> None:
        self._root = folder_of(self._folder) if root is None else os.path.expanduser(os.fspath(root))
        self._transform = transform
        data, label = self._read()
        self._data: NDArray = in_mode(nd.array(data, dtype="uint8"))
        self._label: np.ndarray | NDArray = in_mode(nd.array(label, dtype="int32")) if is_np_array() else label

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._label)

    def __getitem__(self, index: int) -> object:
        sample = self._data[index], self._label[index]
        return sample if self._transform is None else self._transform(*sample)

    def _missing(self, names: Sequence[str]) -> DatasetFileError:
        return missing_file(type(self).__name__, self._root, names, "give its folder as root=")


def folder_of(data_set: str) -> str:
    """The default folder of a data set: `datasets/<data_set>` in MXNet's data folder."""
    return os.path.expanduser(os.path.join(data_dir(), "datasets", data_set))


def missing_file(data_set: str, folder: str, names: Sequence[str], otherwise: str) -> DatasetFileError:
    """The error for a data set none of whose files `names` is in the folder.

    otherwise : the alternative to putting the file into the folder
    """
    return DatasetFileError(
        f"{data_set} has no file {' or '.join(names)} in {folder}. Nothing is downloaded: "
        f"put the file there, or {otherwise}"
    )


def mnist_file(name: str, folder: str | None = None, data_set: str = "MNIST") -> str:
    """The path of a file of MNIST, such as "train-images-idx3-ubyte", that may be compressed with gzip.

    folder : by default `datasets/mnist` in MXNet's data folder. Raises DatasetFileError.
    """
    place = folder_of("mnist") if folder is None else folder
    for each in (name + ".gz", name):
        if os.path.exists(path := os.path.join(place, each)):
            return path
    otherwise = "give its folder as root="
    if folder is None:
        otherwise = "set the environment variable MXNET_HOME to a folder that has it in datasets/mnist"
    raise missing_file(data_set, place, [name + ".gz", name], otherwise)


class MNIST(_Labelled):
    """The handwritten digits of MNIST: images (28, 28, 1) of uint8, labels of int32.

    root : the folder of `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
        `t10k-labels-idx1-ubyte`, also with the ending .gz; by default `datasets/mnist` in MXNet's data folder
    train : the training images, else the test images
    transform : a function of image and label
    """

    _folder = "mnist"

    def __init__(
        self, root: str | PathLike[str] | None = None, train: bool = True, transform: Transform | None = None
    ) -> None:
        check_switches("MNIST", train=train)
        self._train = train
        super().__init__(root, transform)

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        part = "train" if self._train else "t10k"
        images = read_idx(self._path(f"{part}-images-idx3-ubyte"))
        labels = read_idx(self._path(f"{part}-labels-idx1-ubyte"))
        if len(images) != len(labels):
            raise DatasetFileError(f"{self._root} has {len(images)} images and {len(labels)} labels")
        return images[..., None], labels.astype("int32")

    def _path(self, name: str) -> str:
        return mnist_file(name, self._root, type(self).__name__)


class FashionMNIST(MNIST):
    """Pictures of clothes in the form of MNIST; the default folder is `datasets/fashion-mnist`."""

    _folder = "fashion-mnist"


class CIFAR10(_Labelled):
    """The photographs of CIFAR-10: images (32, 32, 3) of uint8, labels of int32.

    root : the folder of `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`, or of the archive
        `cifar-10-binary.tar.gz`; by default `datasets/cifar10` in MXNet's data folder
    train : the training images, else the test images
    transform : a function of image and label
    """

    _folder = "cifar10"
    _archive = "cifar-10-binary.tar.gz"
    _train_files = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
    _test_files: tuple[str, ...] = ("test_batch.bin",)
    _labels = 1
    _label_place = 0

    def __init__(
        self, root: str | PathLike[str] | None = None, train: bool = True, transform: Transform | None = None
    ) -> None:
        check_switches("CIFAR10", train=train)
        self._train = train
        super().__init__(root, transform)

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        names = self._train_files if self._train else self._test_files
        rows = np.concatenate([self._rows(name) for name in names])
        images = rows[:, self._labels :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return images, rows[:, self._label_place].astype("int32")

    def _rows(self, name: str) -> np.ndarray:
        """The labels and the image of each line of a file."""
        data, width = self._bytes(name), 3 * 32 * 32 + self._labels
        if len(data) % width or not data:
            raise DatasetFileError(f"{name} in {self._root} is damaged: {len(data)} bytes are not images of {width}")
        return np.frombuffer(data, "uint8").reshape(-1, width)

    def _bytes(self, name: str) -> bytes:
        for folder in (self._root, os.path.join(self._root, self._archive.partition(".")[0])):
            if os.path.exists(path := os.path.join(folder, name)):
                with open(path, "rb") as stream:
                    return stream.read()
        archive = os.path.join(self._root, self._archive)
        if os.path.exists(archive):
            with tarfile.open(archive) as members:
                for member in members:
                    stream_of_member = members.extractfile(member) if member.isfile() else None
                    if stream_of_member is not None and os.path.basename(member.name) == name:
                        return stream_of_member.read()
        raise self._missing([name, self._archive])


class CIFAR100(CIFAR10):
    """The photographs of CIFAR-100, in `train.bin` and `test.bin`, or in `cifar-100-binary.tar.gz`.

    fine_label : 100 classes instead of 20
    """

    _folder = "cifar100"
    _archive = "cifar-100-binary.tar.gz"
    _train_files = ("train.bin",)
    _test_files = ("test.bin",)
    _labels = 2

    def __init__(
        self,
        root: str | PathLike[str] | None = None,
        fine_label: bool = False,
        train: bool = True,
        transform: Transform | None = None,
    ) -> None:
        check_switches("CIFAR100", fine_label=fine_label, train=train)
        self._label_place = int(fine_label)
        super().__init__(root, train, transform)


class ImageRecordDataset(RecordFileDataset):
    """The image records of a file with an index beside it. A sample is (image, label).

    flag : 1 for color, 0 for gray; transform : a function of image and label
    """

    def __init__(self, filename: str | PathLike[str], flag: int = 1, transform: Transform | None = None) -> None:
        super().__init__(filename)
        self._flag, self._transform = flag, transform

    def __getitem__(self, index: int) -> object:
        header, data = recordio.unpack(super().__getitem__(index))
        sample = image.imdecode(data, self._flag), header.label
        return sample if self._transform is None else self._transform(*sample)


class _ImageFiles(Dataset):
    """Image files with labels. items : pairs of path and label"""

    def __init__(self, root: str | PathLike[str], flag: int, transform: Transform | None) -> None:
        self._root = os.path.expanduser(os.fspath(root))
        self._flag, self._transform = flag, transform
        self.items: list[tuple[str, Any]] = []

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> object:
        path, label = self.items[index]
        sample = image.imread(path, self._flag), label
        return sample if self._transform is None else self._transform(*sample)


class ImageFolderDataset(_ImageFiles):
    """Images in one folder for each class: `root/cat/1.jpg`. A sample is (image, number of the class).

    flag : 1 for color, 0 for gray; transform : a function of image and label
    synsets : names of the classes, by number; items : pairs of path and number
    """

    def __init__(self, root: str | PathLike[str], flag: int = 1, transform: Transform | None = None) -> None:
        super().__init__(root, flag, transform)
        self.synsets: list[str] = []
        if not os.path.isdir(self._root):
            raise DatasetFileError(f"{self._root} is not a folder; give one with a folder of images for each class")
        for folder in sorted(os.listdir(self._root)):
            path = os.path.join(self._root, folder)
            if not os.path.isdir(path):
                warnings.warn(f"{path} is left out: it is not a folder", stacklevel=2)
                continue
            for name in sorted(os.listdir(path)):
                if name.lower().endswith(_IMAGES):
                    self.items.append((os.path.join(path, name), len(self.synsets)))
                else:
                    warnings.warn(
                        f"{os.path.join(path, name)} is left out: images end in {', '.join(_IMAGES)}", stacklevel=2
                    )
            self.synsets.append(folder)


class ImageListDataset(_ImageFiles):
    """Images of a list. A sample is (image, label).

    imglist : a list of [label, ..., path], or a file with lines "number TAB labels TAB path"
    root : the folder of the paths; flag : 1 for color, 0 for gray; transform : a function of image and label
    """

    def __init__(
        self,
        root: str | PathLike[str] = ".",
        imglist: str | PathLike[str] | Sequence[Sequence[Any]] = (),
        flag: int = 1,
        transform: Transform | None = None,
    ) -> None:
        super().__init__(root, flag, transform)
        if isinstance(imglist, str | PathLike):
            table = read_list(os.path.join(self._root, imglist), "float32")
        else:
            table = as_table(imglist, "float32")
        for labels, path in table.values():
            self.items.append((os.path.join(self._root, path), labels[0] if len(labels) == 1 else labels))
