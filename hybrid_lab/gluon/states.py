"""Parameters and states of a Block by path, as SINGA names them, and SINGA's file of states.

A *parameter* is an array that training updates: a weight, a bias. A *state* is an array of any Parameter: parameters,
the running statistics of BatchNorm, constants, and weights frozen with grad_req='null'. An *attribute* is any member of
the Python object: its Parameters and children, and values of the user's own. Archives hold all three.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics import HybridLabError, SettingError
from hybrid_lab.ndarray import NDArray

from . import access
from .loading import load_parameters
from .parameter import Parameter

if TYPE_CHECKING:
    from .block import Block

ZIP = ".zip"
"""The ending of names of files that are written as SINGA's."""

#: Our layer -> attribute -> SINGA's name of it, and whether SINGA keeps the transposed array.
_SINGA: dict[str, dict[str, tuple[str, bool]]] = {
    "Dense": {"weight": ("W", True), "bias": ("b", False)},
    "BatchNorm": {"gamma": ("scale", False), "beta": ("bias", False)},
    **{name: {"weight": ("W", False), "bias": ("b", False)} for name in ("Conv1D", "Conv2D", "Conv3D")},
}


def parameters_of(block: Block, learned_only: bool) -> dict[str, Parameter]:
    """The Parameters by path, 'features.0.weight'; without those that no training updates where `learned_only`."""
    found = access.parameters_by_path(block)
    return {path: each for path, each in found.items() if not (learned_only and each.grad_req == "null")}


def arrays_of(block: Block, learned_only: bool) -> dict[str, NDArray]:
    """Their arrays, which are the Block's own. Raises UninitializedError where one has no values yet."""
    return {path: parameter.data() for path, parameter in parameters_of(block, learned_only).items()}


def set_arrays(
    block: Block,
    values: Mapping[str, object],
    learned_only: bool,
    allow_missing: bool = False,
    source: str | None = None,
    names: Mapping[str, tuple[str, bool]] | None = None,
) -> None:
    """Copy values into the arrays, converted to their dtype. All or nothing: raises LoadMismatchError.

    names : further name -> path, and whether the value is transposed
    """
    if not isinstance(values, Mapping):
        raise SettingError(f"values are given as a dict of paths and arrays, not as a {type(values).__name__}")
    targets = {path: [(path, parameter)] for path, parameter in parameters_of(block, learned_only).items()}
    arrays = {}
    for name, value in values.items():
        array = np.array(value.asnumpy() if isinstance(value, NDArray) else value)
        if array.dtype.kind not in "biufcV":
            raise SettingError(f"the value of {name!r} is a {type(value).__name__}, not an array of numbers")
        path, transposed = (names or {}).get(name, (name, False)) if name not in targets else (name, False)
        arrays[path] = array.T if transposed else array
    remedies = ("missing",) if source is None else ()  # what set_states takes, and load_states of SINGA's file
    load_parameters(targets, arrays, source, allow_missing=allow_missing, cast_dtype=True, remedies=remedies)


def save_singa(block: Block, path: str | PathLike[str], aux: Mapping[str, object]) -> str:
    """Write SINGA's file of all states and of the user's own arrays and numbers.

    Raises HybridLabError, ArchiveError.
    """
    from hybrid_lab.formats.singa import write_states

    if not isinstance(aux, Mapping) or not all(isinstance(name, str) for name in aux):
        raise SettingError("aux_states= takes a dict of your own values by names, which are texts")
    paths = {place: (name, transposed) for name, (place, transposed) in _singa_names(block).items()}
    states = {}
    for place, array in arrays_of(block, learned_only=False).items():
        name, transposed = paths.get(place, (place, False))
        states[name] = array.asnumpy().T if transposed else array.asnumpy()
    write_states(path, states, {name: _as_array(name, value) for name, value in aux.items()})
    return fspath(path)


def load_singa(block: Block, path: str | PathLike[str]) -> dict[str, Any]:
    """Load SINGA's file into the Block; returns the user's own values, arrays as NDArrays.

    Raises ArchiveError for a damaged file, LoadMismatchError; nothing has changed then.
    """
    from hybrid_lab.formats.singa import read_states

    states, aux = read_states(path)
    set_arrays(block, states, False, source=fspath(path), names=_singa_names(block))
    return {name: NDArray.wrap(np.array(array)) if array.ndim else array.item() for name, array in aux.items()}


def _singa_names(block: Block, path: str = "") -> dict[str, tuple[str, bool]]:
    """SINGA's name -> path here, and whether SINGA keeps the transposed array."""
    found = {}
    for attribute in access.own_parameters(block):
        name, transposed = _SINGA.get(type(block).__name__, {}).get(attribute, (attribute, False))
        found[path + name] = path + attribute, transposed
    for child_name, child in access.children(block).items():
        found.update(_singa_names(child, f"{path}{child_name}."))
    return found


def _as_array(name: str, value: object) -> np.ndarray:
    if isinstance(value, NDArray):
        return value.asnumpy()
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise HybridLabError(
            f"aux_states[{name!r}] is a {type(value).__name__}; SINGA's file holds arrays and numbers only. "
            "A name that ends with .hlab writes an archive, which also holds texts, lists and dicts"
        )
    return array
