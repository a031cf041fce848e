"""MXNet's private functions for batches and their descriptions, which detectors and training loops import from
`mxnet.executor_manager`, `mxnet.module` and `mxnet.io`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.data.io import DataBatch, DataDesc
from hybrid_lab.data.io.array_iter import Arrays, named_arrays, rows_of
from hybrid_lab.diagnostics.errors import BindError, SettingError, ShapeError
from hybrid_lab.mxnet.base import as_list
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray import array as nd_array
from hybrid_lab.ndarray.sparse import CSRNDArray
from hybrid_lab.symbol import Symbol

_as_list = as_list
_PARAMETER_ENDINGS = ("_weight", "_bias", "_gamma", "_beta")


def _split_input_slice(batch_size: int, work_load_list: Sequence[float]) -> list[slice]:
    """Slices of a batch in the proportions of the loads, rounded each by itself, as in MXNet; the last gets the rest.

    Raises BindError, a ValueError, if a slice would be empty.
    """
    total = sum(work_load_list)
    sizes = [round(load * batch_size / total) for load in work_load_list]
    sizes[-1] += max(batch_size - sum(sizes), 0)
    edges = np.minimum(np.cumsum([0, *sizes]), batch_size).tolist()
    if any(start >= stop for start, stop in zip(edges, edges[1:], strict=False)):
        raise BindError(f"a batch of {batch_size} cannot be divided between {len(work_load_list)} contexts")
    return [slice(start, stop) for start, stop in zip(edges, edges[1:], strict=False)]


def _check_arguments(symbol: Symbol) -> None:
    """Raise BindError, a ValueError, if two arguments or two auxiliary states of a Symbol have one name."""
    for kind, names in (("argument", symbol.list_arguments()), ("auxiliary state", symbol.list_auxiliary_states())):
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise BindError(f"the {kind} {twice[0]!r} occurs twice; give the layers names of their own")


def _load_general(data: Sequence[NDArray], targets: Sequence[Any]) -> None:
    """Copy arrays to their targets: each an array, or a list of (slice of the batch, array) for several contexts.

    Raises ShapeError.
    """
    for source, target in zip(data, targets, strict=False):
        if isinstance(target, NDArray):
            source.copyto(target)
            continue
        wanted = target[-1][0].stop
        if wanted != source.shape[0]:
            raise ShapeError(f"the batch has {source.shape[0]} samples; {wanted} are needed")
        for part, array in target:
            source[part].copyto(array)


def _load_data(batch: DataBatch, targets: Sequence[Any]) -> None:
    """Copy the data of a batch to their targets: see `_load_general`."""
    _load_general(batch.data or [], targets)


def _load_label(batch: DataBatch, targets: Sequence[Any]) -> None:
    """Copy the labels of a batch to their targets: see `_load_general`."""
    _load_general(batch.label or [], targets)


def _check_input_names(symbol: Symbol, names: Sequence[str], typename: str, throw: bool) -> None:
    """Raise BindError, a ValueError, for a name that is no argument of a Symbol; throw=False: warn.

    typename : "data", "label", "state" or "fixed_param", for the message
    """
    arguments = symbol.list_arguments()
    inputs = [argument for argument in arguments if not argument.endswith(_PARAMETER_ENDINGS)]
    for name in names:
        if name not in arguments:
            text = f"{name!r} in {typename}_names is not an argument of the Symbol; its inputs are {', '.join(inputs)}"
            _raise_or_warn(text, throw)


def _check_names_match(data_names: Sequence[str], data_shapes: Sequence[Any], name: str, throw: bool) -> None:
    """Raise BindError, a ValueError, if the descriptions do not name the inputs `data_names`; throw=False: warn."""
    described = [each[0] for each in data_shapes]
    if sorted(data_names) != sorted(described):
        text = f"the {name} shapes describe {', '.join(described) or 'nothing'}; {name}_names are {list(data_names)}"
        _raise_or_warn(text, throw)


def _parse_data_desc(
    data_names: Sequence[str],
    label_names: Sequence[str],
    data_shapes: Sequence[Any],
    label_shapes: Sequence[Any] | None,
) -> tuple[list[DataDesc], list[DataDesc] | None]:
    """DataDescs of data and labels from DataDescs or pairs of a name and a shape; other names than those wanted are a
    BindError for data, a warning for labels.
    """
    data = [each if isinstance(each, DataDesc) else DataDesc(*each) for each in data_shapes]
    _check_names_match(data_names, data, "data", True)
    labels = None
    if label_shapes is not None:
        labels = [each if isinstance(each, DataDesc) else DataDesc(*each) for each in label_shapes]
    _check_names_match(label_names, labels or [], "label", False)
    return data, labels


def _init_data(data: Arrays | None, allow_empty: bool, default_name: str) -> list[tuple[str, NDArray]]:
    """Names and arrays of a data iterator, in the order of the names. data : an array, a list or a dict of arrays

    Raises SettingError if there are none, unless `allow_empty`.
    """
    empty = data is None or (isinstance(data, (list, tuple)) and not data)
    if empty and not allow_empty:
        raise SettingError(f"{default_name}: at least one array is needed")
    return [] if data is None else named_arrays(data, default_name)


def _has_instance(data: Sequence[tuple[str, Any]], dtype: type | tuple[type, ...]) -> bool:
    """Whether one of the arrays in pairs of a name and an array is of a class."""
    return any(isinstance(array, dtype) for _, array in data)


def _getdata_by_idx(data: Sequence[tuple[str, NDArray]], idx: Sequence[int] | np.ndarray) -> list[tuple[str, NDArray]]:
    """The rows `idx` of all arrays in pairs of a name and an array, in this order."""
    rows = np.asarray(idx)
    return [
        (
            name,
            rows_of(array, rows) if isinstance(array, CSRNDArray) else nd_array(array.asnumpy()[rows], array.context),
        )
        for name, array in data
    ]


def _raise_or_warn(text: str, throw: bool) -> None:
    if throw:
        raise BindError(text)
    warnings.warn(text, stacklevel=3)
