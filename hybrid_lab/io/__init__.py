"""mx.io: iterators that give DataBatches, as `mx.mod` and older training loops take them."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

from .array_iter import NDArrayIter
from .batch import DataBatch, DataDesc, DataIter
from .combined import PrefetchingIter, ResizeIter
from .file_iters import CSVIter, MNISTIter

__all__ = [
    "CSVIter",
    "DataBatch",
    "DataDesc",
    "DataIter",
    "MNISTIter",
    "NDArrayIter",
    "PrefetchingIter",
    "ResizeIter",
]

_suggest_names(__name__)
