"""The arguments for which a HybridBlock is exported: from its calls, or given by the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError, MissingGraphError
from hybrid_lab.gluon import access
from hybrid_lab.gluon.files.graphs_of_calls import why_unknown
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.hybridize.structure import LEAF, Spec, flatten
from hybrid_lab.ndarray import NDArray, array
from hybrid_lab.ndarray.context import resolve
from hybrid_lab.ops.framework.dtypes import dtype_of

from .open_sizes import Described

_USUAL = (5, 7, 64, 48, 32)
"""A size for each axis of a shape with names, if the Block was never called: as small as most networks take."""

#: (shape, dtype) of each input
Types = Sequence[tuple[tuple[int, ...], Any]]


@dataclass
class Asked:
    """spec : the structure of the arguments; inputs : the tensors in it, in order"""

    spec: Spec
    inputs: list[Described]


def asked_of(net: HybridBlock, inputs: object) -> Asked:
    """The arguments to export `net` for. Raises MissingGraphError if there was no call, and `inputs` is None."""
    access.calls(net).follow_values()
    calls = _calls(net)
    if inputs is None:
        if not calls:
            unknown = why_unknown(net)
            if unknown is not None:
                raise MissingGraphError(f"there is no graph of {unknown}; pass inputs=")
            raise MissingGraphError(
                f"{net.name} was never called, so the shapes of its inputs are not known; call it once, or pass inputs="
            )
        spec, types = calls[-1]
        return Asked(spec, _compared(types, [other for known, other in calls if known == spec]))
    return _given(inputs, calls)


def _calls(net: HybridBlock) -> list[tuple[Spec, Types]]:
    """(structure, types) of the calls that are known, the latest one last; predictions count as later than training."""
    calls: list[tuple[Spec, Types]] = []
    for neutral in reversed(access.graphs(net).graphs()):
        if neutral.types and len(neutral.types) == neutral.num_data:
            calls.append((neutral.in_spec, neutral.types))
    return calls + [(call.spec, call.types) for call in access.calls(net).known_calls() if call.types is not None]


def _compared(types: Types, others: Sequence[Types]) -> list[Described]:
    """The inputs of a call, with the axes in which other calls of the same structure differ."""
    inputs = []
    for index, (shape, dtype) in enumerate(types):
        shapes = [other[index][0] for other in others if len(other[index][0]) == len(shape)]
        varying = frozenset(axis for axis, size in enumerate(shape) if any(each[axis] != size for each in shapes))
        inputs.append(Described(f"data{index}", tuple(shape), dtype_of(dtype), varying=varying))
    return inputs


def _given(inputs: object, calls: Sequence[tuple[Spec, Types]]) -> Asked:
    if isinstance(inputs, (NDArray, np.ndarray)) or _is_shape(inputs):
        inputs = (inputs,)
    if not isinstance(inputs, (list, tuple)):
        raise HybridLabError(
            "inputs= takes an array, a shape, or a list of them: inputs=('batch', 3, 224, 224), or inputs=[x, (8, 10)]"
        )
    shapes: dict[int, tuple[Any, ...]] = {}
    leaves, spec = flatten(_replaced(tuple(inputs), shapes), "inputs=")
    known = next((types for other, types in reversed(calls) if other == spec and len(types) == len(leaves)), None)
    if known is None and spec == ("tuple", (LEAF,) * len(leaves)):
        # A plain list for arguments with structure, such as the states of a cell: the structure of the last such call.
        spec, known = next((call for call in reversed(calls) if len(call[1]) == len(leaves)), (spec, None))
    values: dict[str, int] = {}
    described = []
    for index, leaf in enumerate(leaves):
        before = None if known is None else known[index]
        shape = shapes.get(id(leaf))
        if shape is None:
            described.append(Described(f"data{index}", leaf.shape, dtype_of(leaf.dtype)))
            continue
        dtype = np.dtype("float32") if before is None else dtype_of(before[1])
        names = {axis: size for axis, size in enumerate(shape) if isinstance(size, str)}
        sizes = [_size(size, axis, before, len(shape), values) for axis, size in enumerate(shape)]
        described.append(Described(f"data{index}", tuple(sizes), dtype, names, exact=bool(names)))
    return Asked(spec, described)


def _size(size: Any, axis: int, before: Any, rank: int, values: dict[str, int]) -> int:
    """A size with which the network is inferred: for a name the size in the last call, if there was a call."""
    if not isinstance(size, str):
        return int(size)
    if size not in values:
        called = before[0][axis] if before is not None and len(before[0]) == rank else 0
        values[size] = called if called > 1 else _USUAL[min(axis, len(_USUAL) - 1)]
    return values[size]


def _is_shape(item: object) -> bool:
    return isinstance(item, (list, tuple)) and bool(item) and all(map(_is_size, item))


def _is_size(item: object) -> bool:
    return isinstance(item, str) or (isinstance(item, (int, np.integer)) and not isinstance(item, bool))


def _replaced(item: object, shapes: dict[int, tuple[Any, ...]]) -> Any:
    """The arguments with an array in the place of each shape. shapes : id of the array -> the shape"""
    if isinstance(item, np.ndarray):
        return array(item, dtype=item.dtype)
    if _is_shape(item):
        stand_in = array(np.zeros(1, np.float32))
        shapes[id(stand_in)] = tuple(item)  # type: ignore[arg-type]
        return stand_in
    if isinstance(item, (list, tuple)):
        return type(item)(_replaced(part, shapes) for part in item)
    if isinstance(item, dict):
        return {key: _replaced(part, shapes) for key, part in item.items()}
    return item


def untouched(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """An array of this shape that takes no memory."""
    return NDArray.from_host(np.broadcast_to(np.zeros((), dtype_of(dtype)), shape), resolve(None))
