"""mx.io: iterators that give DataBatches, as `mx.mod` and older training loops take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.system.provided import Provided as _Provided

from .array_iter import NDArrayIter
from .batch import DataBatch, DataDesc, DataIter, MXDataIter
from .combined import PrefetchingIter, ResizeIter
from .file_iters import CSVIter, MNISTIter
from .libsvm_iter import LibSVMIter

if TYPE_CHECKING:
    ImageDetRecordIter: Callable[..., DataIter]
    ImageRecordInt8Iter: Callable[..., DataIter]
    ImageRecordIter: Callable[..., DataIter]
    ImageRecordIter_v1: Callable[..., DataIter]
    ImageRecordUInt8Iter: Callable[..., DataIter]
    ImageRecordUInt8Iter_v1: Callable[..., DataIter]

#: The iterators of files of image records, which `hybrid_lab.data.image` has.
_OF_RECORDS: dict[str, _Provided[..., object]] = {
    "ImageDetRecordIter": _Provided("image_det_record_iter"),
    "ImageRecordInt8Iter": _Provided("image_record_int8_iter"),
    "ImageRecordIter": _Provided("image_record_iter"),
    "ImageRecordIter_v1": _Provided("image_record_iter_v1"),
    "ImageRecordUInt8Iter": _Provided("image_record_uint8_iter"),
    "ImageRecordUInt8Iter_v1": _Provided("image_record_uint8_iter_v1"),
}

__all__ = [
    "CSVIter",
    "DataBatch",
    "DataDesc",
    "DataIter",
    "ImageDetRecordIter",
    "ImageRecordInt8Iter",
    "ImageRecordIter",
    "ImageRecordIter_v1",
    "ImageRecordUInt8Iter",
    "ImageRecordUInt8Iter_v1",
    "LibSVMIter",
    "MNISTIter",
    "MXDataIter",
    "NDArrayIter",
    "PrefetchingIter",
    "ResizeIter",
]

_suggest_names(__name__, later=_OF_RECORDS)
