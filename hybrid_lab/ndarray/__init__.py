"""The ndarray room, and `nd` itself: arrays, and every operator as a function on them.

`nd.<name>` is made from the operator's record when it is first used; `dir(nd)` lists all functions.
"""

from __future__ import annotations

import importlib
from typing import Any

from hybrid_lab.diagnostics.unknown_names import unknown_name as _unknown_name
from hybrid_lab.ndarray import composed, creation, indexing, namespace, ndarray, random
from hybrid_lab.ndarray.composed import Custom, cast_storage, histogram, reset_arrays, split_v2
from hybrid_lab.ndarray.context import Context, cpu, current_context, gpu, num_gpus
from hybrid_lab.ndarray.creation import (
    arange,
    array,
    concatenate,
    empty,
    eye,
    from_dlpack,
    from_numpy,
    full,
    linspace,
    moveaxis,
    onehot_encode,
    ones,
    to_dlpack_for_read,
    to_dlpack_for_write,
    waitall,
    zeros,
)
from hybrid_lab.ndarray.namespace import OperatorNamespace
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.storage import STORAGE_TYPES as _STORAGE_TYPE_STR_TO_ID  # noqa: F401  (MXNet's name of it)
from hybrid_lab.ndarray.storage import load, load_frombuffer, save
from hybrid_lab.system.provided import Provided as _Provided

_LATER = {
    **dict.fromkeys(("foreach", "while_loop", "cond"), f"{__name__}.control_flow"),
    **dict.fromkeys(
        ("multi_adamw_update", "multi_mp_adamw_update", "multi_lamb_update", "multi_mp_lamb_update"),
        f"{__name__}.update_lists",
    ),
}
contrib = OperatorNamespace("nd.contrib", "_contrib_", "contrib_", later=_LATER)
contrib.boolean_mask = composed.boolean_mask
contrib.getnnz = composed.getnnz
contrib.SyncBatchNorm = composed.sync_batch_norm
contrib.rand_zipfian = composed.rand_zipfian
linalg = OperatorNamespace("nd.linalg", "_linalg_", "linalg_")
image = OperatorNamespace("nd.image", "_image_", "image_")
op = OperatorNamespace("nd.op", "")
_internal = OperatorNamespace("nd._internal", "", "_")

__all__ = [
    "Context",
    "Custom",
    "NDArray",
    "arange",
    "array",
    "cast_storage",
    "concatenate",
    "contrib",
    "cpu",
    "creation",
    "current_context",
    "empty",
    "eye",
    "from_dlpack",
    "from_numpy",
    "full",
    "gpu",
    "histogram",
    "image",
    "linalg",
    "linspace",
    "load",
    "load_frombuffer",
    "moveaxis",
    "namespace",
    "ndarray",
    "num_gpus",
    "onehot_encode",
    "ones",
    "op",
    "random",
    "reset_arrays",
    "save",
    "sparse",
    "split_v2",
    "to_dlpack_for_read",
    "to_dlpack_for_write",
    "waitall",
    "zeros",
]
own_names = tuple(__all__)
"""Names that this module defines itself; the other functions are made from the records."""
del __all__  # `__getattr__` completes it


numpy_room: _Provided[[str, bool], Any] = _Provided("numpy_room")
"""`nd.np` and `nd.npx`: the modules `mx.np` and `mx.npx`."""


def __getattr__(name: str) -> Any:
    if name in ("np", "npx"):
        return numpy_room(name, False)
    if name == "__all__":  # for `from hybrid_lab.ndarray import *`; it loads all records
        globals()[name] = names = [*own_names, *sorted({*namespace.function_names()} - {*own_names})]
        return names
    if name == "sparse":
        return importlib.import_module("hybrid_lab.ndarray.sparse")
    function = namespace.find_function(name)
    if function is None:
        raise _unknown_name("nd", name, () if name.startswith("_") else __dir__())
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return sorted({*globals(), *namespace.function_names(), "np", "npx", "sparse"})
