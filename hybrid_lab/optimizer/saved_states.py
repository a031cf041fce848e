"""The states of an Updater as bytes: a safetensors file with the structure of the states as JSON in its header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import ArchiveError
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray import array as nd_array

if TYPE_CHECKING:
    from .optimizer import Optimizer

_FORMAT = "hybrid_lab.updater"
_VERSION = 1


def pack(optimizer: Optimizer, states: Mapping[Any, object], dump_optimizer: bool = False) -> bytes:
    """All states of an Updater, and how often each weight was updated.

    states : index of a weight -> its state; dump_optimizer : write the optimizer's settings too
    """
    from hybrid_lab.formats.safetensors import encode

    arrays: dict[str, np.ndarray] = {}
    counts = {index: optimizer.settings_of(index)[2] for index in states}
    data: dict[str, Any] = {
        "version": _VERSION,
        "optimizer": type(optimizer).__name__,
        "states": [[index, _structure(state, arrays)] for index, state in states.items()],
        "counts": list(counts.items()),
        "num_update": optimizer.num_update,
    }
    if dump_optimizer:
        data["hyperparameters"] = optimizer.hyperparameters()
    return b"".join(encode(arrays, {_FORMAT: json.dumps(data)}).chunks())


def unpack(optimizer: Optimizer, states: bytes) -> dict[Any, Any]:
    """The states that `pack` wrote; the optimizer takes over its settings and how often each weight was updated.
    Raises ArchiveError; nothing changes then.
    """
    from hybrid_lab.formats.safetensors import SafetensorsFile
    from hybrid_lab.formats.source import Source

    if states[:1] == b"\x80":
        raise ArchiveError(
            "these states are a pickle, as MXNet writes them; reading one may run code. Load them in MXNet, save the "
            "arrays of `updater.states` with mx.nd.save, and assign them to `updater.states` here"
        )
    try:
        file = SafetensorsFile(Source(states))
        data = json.loads(file.metadata[_FORMAT])
        arrays = {name: file[name] for name in file}
        kind = type(optimizer).__name__
        if data["version"] != _VERSION or data["optimizer"] != kind:
            raise ArchiveError(f"these are states of {data['optimizer']}, and the optimizer is {kind}")
        loaded = {index: _state(structure, arrays) for index, structure in data["states"]}
        counts = {index: int(count) for index, count in data["counts"]}
        settings, num_update = dict(data.get("hyperparameters", {})), int(data["num_update"])
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, ArchiveError):
            raise
        raise ArchiveError(f"these are no states of an optimizer: {error}") from None
    known = optimizer.hyperparameters()
    for key, value in settings.items():
        if key in known:
            setattr(optimizer, key, value)
    for index, count in counts.items():
        optimizer.set_update_count(index, count)
    optimizer.num_update = max(optimizer.num_update, num_update)
    return loaded


def _structure(state: object, arrays: dict[str, np.ndarray]) -> Any:
    """A state with the names of its arrays in their places."""
    if isinstance(state, NDArray):
        name = str(len(arrays))
        arrays[name] = state.asnumpy()
        return name
    if isinstance(state, (list, tuple)):
        return [_structure(each, arrays) for each in state]
    return None


def _state(structure: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(structure, str):
        values = arrays[structure]
        return nd_array(values, dtype=values.dtype)
    if isinstance(structure, list):
        return tuple(_state(each, arrays) for each in structure)
    return None
