"""`mx.npx`: operators of neural networks on `mx.np` arrays, and the switch to NumPy semantics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.diagnostics.unknown_names import unknown_name as _unknown_name
from hybrid_lab.mxnet.util import is_np_array, is_np_shape, reset_np, set_np, use_np
from hybrid_lab.ndarray import storage as _storage
from hybrid_lab.ndarray.context import Context, cpu, cpu_pinned, current_context, gpu, num_gpus
from hybrid_lab.ndarray.creation import waitall
from hybrid_lab.ndarray.random_state import state as _state
from hybrid_lab.numpy.errors import named as _named
from hybrid_lab.numpy.extension import image, random
from hybrid_lab.numpy.host import run_on_host as _run_on_host
from hybrid_lab.numpy.operators import R as _R
from hybrid_lab.numpy.operators import as_tensor as _as_tensor
from hybrid_lab.numpy.operators import call as _call
from hybrid_lab.numpy.operators import has_no_axes as _has_no_axes
from hybrid_lab.numpy.operators import is_tensor as _is_tensor
from hybrid_lab.numpy.operators import write as _write
from hybrid_lab.ops.framework.operator import get as _get
from hybrid_lab.ops.framework.surface import make_function as _make_function

if TYPE_CHECKING:
    from hybrid_lab.ndarray.ndarray import NDArray
    from hybrid_lab.numpy.array import ndarray
    from hybrid_lab.numpy.types import ArrayLike, Out, Tensor
    from hybrid_lab.ops.framework.operator import Operator

seed = _state.seed

OPERATORS = {
    "activation": "Activation",
    "arange_like": "_contrib_arange_like",
    "batch_dot": "batch_dot",
    "batch_flatten": "Flatten",
    "batch_norm": "BatchNorm",
    "cast": "Cast",
    "convolution": "Convolution",
    "ctc_loss": "CTCLoss",
    "deconvolution": "Deconvolution",
    "dropout": "Dropout",
    "embedding": "Embedding",
    "erf": "erf",
    "erfinv": "erfinv",
    "fully_connected": "FullyConnected",
    "gamma": "gamma",
    "gammaln": "gammaln",
    "gather_nd": "gather_nd",
    "group_norm": "GroupNorm",
    "instance_norm": "InstanceNorm",
    "l2_normalization": "L2Normalization",
    "layer_norm": "LayerNorm",
    "leaky_relu": "LeakyReLU",
    "log_softmax": "log_softmax",
    "multibox_prior": "_contrib_MultiBoxPrior",
    "one_hot": "one_hot",
    "pick": "pick",
    "pooling": "Pooling",
    "relu": "relu",
    "reshape_like": "reshape_like",
    "rnn": "RNN",
    "roi_align": "_contrib_ROIAlign",
    "roi_pooling": "ROIPooling",
    "sequence_last": "SequenceLast",
    "sequence_mask": "SequenceMask",
    "sequence_reverse": "SequenceReverse",
    "shape_array": "shape_array",
    "sigmoid": "sigmoid",
    "slice": "slice",
    "smooth_l1": "smooth_l1",
    "softmax": "softmax",
    "softsign": "softsign",
    "topk": "topk",
}
"""Name in `mx.npx` -> record."""


def _dispatch(op: Operator, inputs: list[object], out: Out, name: str | None) -> Tensor:
    return _write(out, _call(op, inputs))


def _dispatch_along_axis(op: Operator, inputs: list[Any], out: Out, name: str | None) -> Tensor:
    """As `_dispatch`; an array of shape () counts as one with an axis of size 1."""
    if not (_is_tensor(inputs[0]) and _has_no_axes(inputs[0])):
        return _dispatch(op, inputs, out, name)
    return _write(out, _R._drop_axes(_call(op, [_R.expand_dims(inputs[0], axis=0), *inputs[1:]])))


_DISPATCHES = {"log_softmax": _dispatch_along_axis, "softmax": _dispatch_along_axis}
globals().update(
    {name: _make_function(_get(record), _DISPATCHES.get(name, _dispatch), name) for name, record in OPERATORS.items()}
)


def nonzero(a: ArrayLike) -> Tensor:
    """The places of the elements that are not 0, one row of int64 for each. Graphs refuse it."""
    import numpy

    return _run_on_host("nonzero", lambda x: numpy.argwhere(numpy.atleast_1d(x)).astype(numpy.int64), (a,), {})


def reshape(a: ArrayLike, newshape: int | Sequence[int], reverse: bool = False, order: str = "C") -> Tensor:
    """The elements in another shape, with codes: -1 the remaining size, -2 the same size, -3 drop an axis of 1, -4 all
    further axes, -5 two axes joined, -6 one axis split into the two numbers that follow.
    """
    sizes = [newshape] if isinstance(newshape, int) else list(newshape)
    codes, dropped, position = [], [], 0
    translated = {-2: 0, -4: -2, -5: -3, -6: -4}
    for size in sizes:
        if size == -3:
            dropped.append(position)
            codes.append(0)
        else:
            codes.append(translated.get(size, size))
        position += size not in (-6,)
    if dropped and (reverse or -4 in sizes):
        raise ShapeError("npx.reshape: -3 beside -4, or with reverse=True, is not supported")
    result = _R.Reshape(_as_tensor(a), shape=tuple(codes), reverse=reverse)
    return _R._drop_axes(result, axis=tuple(dropped)) if dropped else result


def constraint_check(input: ArrayLike, msg: str = "Constraint violated!") -> Tensor:
    """True if all elements hold. Raises ValueError with `msg` otherwise; not in graphs."""
    import numpy

    if not _run_on_host("constraint_check", numpy.all, (input,), {}).item():
        raise ValueError(msg)
    return _as_tensor(numpy.array(True))


def save(file: str | PathLike[str], arr: NDArray | Sequence[NDArray] | Mapping[str, NDArray]) -> None:
    """Write one array, a list of arrays, or a dict of names and arrays, in MXNet's `.params` form."""
    _storage.save(file, arr)


def load(file: str | PathLike[str]) -> list[ndarray | None] | dict[str, ndarray | None]:
    """The `mx.np` arrays that `save` (or MXNet) wrote: a list, or a dict if they have names."""
    loaded = _storage.load(file)
    if isinstance(loaded, Mapping):
        return {name: None if item is None else item.as_np_ndarray() for name, item in loaded.items()}
    return [None if item is None else item.as_np_ndarray() for item in loaded]


__all__ = [
    "Context",
    "constraint_check",
    "cpu",
    "cpu_pinned",
    "current_context",
    "gpu",
    "image",
    "is_np_array",
    "is_np_shape",
    "load",
    "nonzero",
    "num_gpus",
    "random",
    "reset_np",
    "reshape",
    "save",
    "seed",
    "set_np",
    "use_np",
    "waitall",
    *OPERATORS,
]
_NAMED = ("nonzero", "reshape", "save", "load", "seed", *OPERATORS)
globals().update({name: _named(f"npx.{name}", globals()[name]) for name in _NAMED})


def __getattr__(name: str) -> Any:
    raise _unknown_name("npx", name, __all__)
