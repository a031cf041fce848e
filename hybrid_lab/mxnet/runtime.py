"""mx.runtime: the features of MXNet's list that this installation has on this machine."""

from __future__ import annotations

import importlib.util
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.ndarray.context import num_gpus

__all__ = ["Feature", "Features", "feature_list"]


class UnknownFeature(SettingError, RuntimeError):
    """A name that is no feature of MXNet's."""


@dataclass(frozen=True)
class Feature:
    """One feature. name : MXNet's name of it; enabled : whether it can be used here"""

    name: str
    enabled: bool

    def __repr__(self) -> str:
        return f"{'✔' if self.enabled else '✖'} {self.name}"


def _cuda() -> bool:
    """Whether a GPU of NVIDIA's can be used."""
    if not num_gpus() or importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.version.cuda is not None and torch.cuda.is_available()


def _cudnn() -> bool:
    """Whether torch's kernels on that GPU can use cuDNN."""
    if not _cuda():
        return False
    import torch

    return bool(torch.backends.cudnn.is_available())


def _processor(name: str) -> bool:
    """Whether NumPy's loops may use these instructions of this processor."""
    try:
        from numpy._core._multiarray_umath import __cpu_features__ as found
    except ImportError:
        return False
    features: Mapping[str, bool] = found
    return features.get(name, False)


def _blas(name: str) -> bool:
    """Whether NumPy's matrix products come from the library with this name."""
    return name in np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {}).get("name", "").lower()


#: MXNet's features in its order -> whether this installation has them.
_FEATURES: dict[str, bool | Callable[[], bool]] = {
    "CUDA": _cuda,
    "CUDNN": _cudnn,
    "NCCL": False,
    "CUDA_RTC": False,
    "TENSORRT": False,
    "CPU_SSE": lambda: _processor("SSE"),
    "CPU_SSE2": lambda: _processor("SSE2"),
    "CPU_SSE3": lambda: _processor("SSE3"),
    "CPU_SSE4_1": lambda: _processor("SSE41"),
    "CPU_SSE4_2": lambda: _processor("SSE42"),
    "CPU_SSE4A": False,
    "CPU_AVX": lambda: _processor("AVX"),
    "CPU_AVX2": lambda: _processor("AVX2"),
    "OPENMP": False,
    "SSE": lambda: _processor("SSE"),
    "F16C": lambda: _processor("F16C"),
    "JEMALLOC": False,
    "BLAS_OPEN": lambda: _blas("openblas"),
    "BLAS_ATLAS": lambda: _blas("atlas"),
    "BLAS_MKL": lambda: _blas("mkl"),
    "BLAS_APPLE": lambda: _blas("accelerate"),
    "LAPACK": True,
    "MKLDNN": False,
    "OPENCV": lambda: importlib.util.find_spec("cv2") is not None,
    "CAFFE": False,
    "PROFILER": False,
    "DIST_KVSTORE": False,
    "CXX14": False,
    "INT64_TENSOR_SIZE": True,
    "SIGNAL_HANDLER": False,
    "DEBUG": False,
    "TVM_OP": False,
}


def feature_list() -> list[Feature]:
    """MXNet's features in its order.

    CUDA, CUDNN : a GPU of NVIDIA's can be used; CPU_..., F16C : NumPy's loops may use these instructions;
    BLAS_... : the library of NumPy's matrix products; LAPACK : `nd.linalg`; INT64_TENSOR_SIZE : arrays may have more
    than 2**31 elements; OPENCV : images can be read and resized. Libraries that only MXNet uses are off, such as oneDNN
    (MKLDNN).
    """
    return [Feature(name, found() if callable(found) else found) for name, found in _FEATURES.items()]


class Features(OrderedDict[str, Feature]):
    """The features by name. There is one object of this class, which is filled when it is first asked for.

    features = mx.runtime.Features()
    features.is_enabled("CUDA")
    """

    instance: Features | None = None

    def __new__(cls) -> Features:
        """The one object."""
        if cls.instance is None:
            cls.instance = super().__new__(cls)
            OrderedDict.__init__(cls.instance, [(feature.name, feature) for feature in feature_list()])
        return cls.instance

    def __init__(self) -> None:
        """The object is filled already."""

    def __repr__(self) -> str:
        return str(list(self.values()))

    def is_enabled(self, feature_name: str) -> bool:
        """Whether the feature can be used here; names may be in any case. Raises UnknownFeature."""
        feature = self.get(feature_name.upper())
        if feature is None:
            raise UnknownFeature(f"there is no feature {feature_name!r}; there are {', '.join(self)}")
        return feature.enabled


_suggest_names(__name__)
