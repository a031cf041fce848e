"""Data sets, samplers and the loader that makes batches of them."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

from . import vision
from .batchify import default_batchify_fn, default_mp_batchify_fn
from .dataloader import DataLoader
from .dataset import ArrayDataset, Dataset, RecordFileDataset, SimpleDataset
from .sampler import (
    BatchSampler,
    DistributedSampler,
    FilterSampler,
    IntervalSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

__all__ = [
    "ArrayDataset",
    "BatchSampler",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "FilterSampler",
    "IntervalSampler",
    "RandomSampler",
    "RecordFileDataset",
    "Sampler",
    "SequentialSampler",
    "SimpleDataset",
    "default_batchify_fn",
    "default_mp_batchify_fn",
    "vision",
]

_suggest_names(__name__)
