"""mx.io: iterators that give DataBatches, as `mx.mod` and older training loops take them."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.provided import Provided as _Provided

from .array_iter import NDArrayIter
from .batch import DataBatch, DataDesc, DataIter, MXDataIter
from .combined import PrefetchingIter, ResizeIter
from .file_iters import CSVIter, MNISTIter
from .libsvm_iter import LibSVMIter

#: Batches of images and the objects in them: `hybrid_lab.image.detection_record_iter.ImageDetRecordIter`.
ImageDetRecordIter: _Provided[..., DataIter] = _Provided("image_det_record_iter")
#: Batches of augmented images from a file of image records: `hybrid_lab.image.record_iter.ImageRecordIter`.
ImageRecordIter: _Provided[..., DataIter] = _Provided("image_record_iter")
#: The first versions of MXNet, in float32 and uint8.
ImageRecordIter_v1: _Provided[..., DataIter] = _Provided("image_record_iter_v1")
ImageRecordUInt8Iter_v1: _Provided[..., DataIter] = _Provided("image_record_uint8_iter_v1")
#: The same with pixels of int8 and of uint8.
ImageRecordInt8Iter: _Provided[..., DataIter] = _Provided("image_record_int8_iter")
ImageRecordUInt8Iter: _Provided[..., DataIter] = _Provided("image_record_uint8_iter")

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

_suggest_names(__name__)
