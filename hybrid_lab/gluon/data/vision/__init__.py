"""Data sets of images and their transforms."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

from . import transforms
from .datasets import (
    CIFAR10,
    CIFAR100,
    MNIST,
    DatasetFileError,
    FashionMNIST,
    ImageFolderDataset,
    ImageListDataset,
    ImageRecordDataset,
)

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "DatasetFileError",
    "FashionMNIST",
    "ImageFolderDataset",
    "ImageListDataset",
    "ImageRecordDataset",
    "transforms",
]

_suggest_names(__name__)
