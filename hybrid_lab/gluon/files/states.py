"""Parameters and states of a Block by path, as SINGA names them, and SINGA's file of states.

A *parameter* is an array that training updates: a weight, a bias. A *state* is an array of any Parameter: parameters,
the running statistics of BatchNorm, constants, and weights frozen with grad_req='null'. An *attribute* is any member of
the Python object: its Parameters and children, and values of the user's own. Archives hold all three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics import HybridLabError, SettingError
from hybrid_lab.gluon.files.loading import load_parameters
from hybrid_lab.gluon.parameter import Parameter, _contexts
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.context import Context, resolve

if TYPE_CHECKING:
    from hybrid_lab.gluon.block import Block

ZIP = ".zip"
"""The ending of names of files that are written as SINGA's."""

#: Our layer -> attribute -> SINGA's name of it, and whether SINGA keeps the transposed array.
_SINGA: dict[str, dict[str, tuple[str, bool]]] = {
    "Dense": {"weight": ("W", True), "bias": ("b", False)},
    "BatchNorm": {"gamma": ("scale", False), "beta": ("bias", False)},
    **{name: {"weight": ("W", False), "bias": ("b", False)} for name in ("Conv1D", "Conv2D", "Conv3D")},
}
_GATES = "ifgo"
"""SINGA's letters of the gates of an LSTM, in the order of our arrays."""


@dataclass(frozen=True)
class Renamed:
    """Arrays that have other names in SINGA, and another layout.

    paths : ours; names : SINGA's; write : our arrays -> SINGA's; read : SINGA's -> ours
    """

    paths: tuple[str, ...]
    names: tuple[str, ...]
    write: Callable[[list[np.ndarray]], list[np.ndarray]]
    read: Callable[[list[np.ndarray]], list[np.ndarray]]


def parameters_of(block: Block, learned_only: bool) -> dict[str, Parameter]:
    """The Parameters by path, 'features.0.weight'; with `learned_only`, without parameters that no training updates."""
    found = block._collect_params_with_prefix()
    return {path: each for path, each in found.items() if not (learned_only and each.grad_req == "null")}


def arrays_of(block: Block, learned_only: bool) -> dict[str, NDArray]:
    """Their arrays, which are the Block's own. Raises UninitializedError if one has no values yet."""
    return {path: parameter.data() for path, parameter in parameters_of(block, learned_only).items()}


def set_arrays(
    block: Block,
    values: Mapping[str, object],
    learned_only: bool,
    allow_missing: bool = False,
    source: str | None = None,
) -> None:
    """Copy values into the arrays, converted to their dtype. All or nothing: raises LoadMismatchError."""
    if not isinstance(values, Mapping):
        raise SettingError(f"values are given as a dict of paths and arrays, not as a {type(values).__name__}")
    targets = {path: [(path, parameter)] for path, parameter in parameters_of(block, learned_only).items()}
    arrays = {}
    for name, value in values.items():
        array = np.array(value.asnumpy() if isinstance(value, NDArray) else value)
        if array.dtype.kind not in "biufcV":
            raise SettingError(f"the value of {name!r} is a {type(value).__name__}, not an array of numbers")
        arrays[name] = array
    remedies = ("missing",) if source is None else ()  # what set_states takes, and load_states of SINGA's file
    load_parameters(targets, arrays, source, allow_missing=allow_missing, cast_dtype=True, remedies=remedies)


def save_singa(block: Block, path: str | PathLike[str], aux: Mapping[str, object]) -> str:
    """Write SINGA's file of all states and of the user's own arrays and numbers.

    Raises HybridLabError, ArchiveError.
    """
    from hybrid_lab.formats.singa import write_states

    if not isinstance(aux, Mapping) or not all(isinstance(name, str) for name in aux):
        raise SettingError("aux_states= takes a dict of your own values by names, which are texts")
    states = {place: array.asnumpy() for place, array in arrays_of(block, learned_only=False).items()}
    for each in _renamed(block):
        written = each.write([states.pop(place) for place in each.paths])
        states.update(zip(each.names, written, strict=True))
    write_states(path, states, {name: _as_array(name, value) for name, value in aux.items()})
    return fspath(path)


def load_singa(block: Block, path: str | PathLike[str]) -> dict[str, Any]:
    """Load SINGA's file into the Block; returns the user's own values, arrays as NDArrays.

    Raises ArchiveError for a damaged file, LoadMismatchError; nothing has changed then.
    """
    from hybrid_lab.formats.singa import read_states

    states, aux = read_states(path)
    for each in _renamed(block):
        if all(name in states for name in each.names) and not any(place in states for place in each.paths):
            read = each.read([states.pop(name) for name in each.names])
            states.update(zip(each.paths, read, strict=True))
    set_arrays(block, states, False, source=fspath(path))
    return {name: NDArray.wrap(np.array(array)) if array.ndim else array.item() for name, array in aux.items()}


def check_graph_alg(name: object) -> None:
    """Raise SettingError for another algorithm than SINGA's "sequence"."""
    if name != "sequence":
        raise SettingError(f"graph_alg must be 'sequence', which is SINGA's only algorithm, not {name!r}")


def usable(device: Context | Sequence[Context]) -> list[Context]:
    """The contexts, which this machine has. Raises EngineUnavailable, SettingError."""
    return [resolve(each) for each in _contexts(device)]


def _renamed(block: Block, path: str = "") -> Iterator[Renamed]:
    """The arrays of the layers that SINGA has, too. Recurrent layers of several layers or directions keep their paths:
    SINGA has none.
    """
    kind = type(block).__name__
    if kind in ("RNN", "LSTM"):
        yield from _recurrent(kind, path, [*block._collect_params_with_prefix()])
        return
    for attribute, (name, transposed) in _SINGA.get(kind, {}).items():
        if attribute in block._reg_params and name != attribute:
            turn = _transposed if transposed else list
            yield Renamed((path + attribute,), (path + name,), turn, turn)
    for child_name, child in block._children.items():
        yield from _renamed(child, f"{path}{child_name}.")


def _recurrent(kind: str, path: str, places: list[str]) -> Iterator[Renamed]:
    """RNN: Wx, Wh, b, which is the sum of our two biases. LSTM: Wx_i, Wx_f, Wx_o, Wx_g, the same of Wh, Bx and Bh."""
    start = "_unfused.0."
    if sorted(places) != sorted(f"{start}{side}2h_{what}" for side in "ih" for what in ("weight", "bias")):
        return
    for side, letter in (("i", "x"), ("h", "h")):
        weight, bias = f"{path}{start}{side}2h_weight", f"{path}{start}{side}2h_bias"
        if kind == "RNN":
            yield Renamed((weight,), (f"{path}W{letter}",), _transposed, _transposed)
            continue
        names = [tuple(f"{path}{what}{letter}_{gate}" for gate in _GATES) for what in "WB"]
        yield Renamed((weight,), names[0], lambda arrays: _transposed(np.split(arrays[0], 4)), _joined_weights)
        yield Renamed((bias,), names[1], lambda arrays: np.split(arrays[0], 4), lambda parts: [np.concatenate(parts)])
    if kind == "RNN":
        biases = (f"{path}{start}i2h_bias", f"{path}{start}h2h_bias")
        names_of_sum = (f"{path}b",)
        yield Renamed(
            biases, names_of_sum, lambda arrays: [arrays[0] + arrays[1]], lambda parts: [parts[0], 0 * parts[0]]
        )


def _transposed(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [array.T for array in arrays]


def _joined_weights(parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [np.concatenate(_transposed(parts))]


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
