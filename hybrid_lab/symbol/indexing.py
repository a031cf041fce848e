"""Indexing a Symbol: the same result as indexing an array.

A key of numbers, ranges, None and `...` becomes `slice`, `slice_axis`, `expand_dims` and `squeeze`, which MXNet has,
too. A key that these cannot express - a step behind `...`, a list of positions, a mask - becomes one `_index`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import ArrayIndexError
from hybrid_lab.ndarray.indexing import index_array
from hybrid_lab.ops.arrays.constant_index import key_text
from hybrid_lab.ops.framework.operator import Operator, get
from hybrid_lab.symbol import tracing

if TYPE_CHECKING:
    from hybrid_lab.symbol.symbol import Symbol

_DROPPING = {False: "squeeze", True: "_drop_axes"}
"""The operator that removes the axes of numbers; in `mx.np` code all axes may go."""


def index_operators(symbol: Symbol, key: object) -> list[Operator]:
    """The operators that compute `symbol[key]` one after the other: `x[i]`, `x[..., None]`, `x[:, [0, 2]]`; never none.

    Raises HybridizeError HL133 for a key that holds a tensor, ArrayIndexError for anything but a key.
    """
    keys = key if isinstance(key, tuple) else (key,)
    places = [place for place, item in enumerate(keys) if item is Ellipsis]
    if len(places) > 1:
        raise ArrayIndexError("an index can have only one ellipsis ('...')")
    place = places[0] if places else len(keys)
    front, back = ([_part(symbol, item) for item in items] for items in (keys[:place], keys[place + 1 :]))
    if any(isinstance(part, (bool, np.ndarray)) for part in (*front, *back)) or any(
        isinstance(part, slice) and part.step not in (None, 1) for part in back
    ):
        parts = (*front, Ellipsis, *back) if places else (*front,)
        return [get("_index").bind(key=key_text(parts), vectors=not symbol.is_np)]
    return _basic_operators(front, back, symbol.is_np) or [get("identity").bind()]


def _part(symbol: Symbol, item: object) -> None | bool | int | slice | np.ndarray:
    """One part of a key; a list of numbers becomes an array. Raises HybridizeError or ArrayIndexError."""
    if hasattr(item, "_data") or tracing.holds_symbols(item):
        raise tracing.refuse("HL133", tensor=symbol)
    if item is None:
        return None
    if isinstance(item, slice):
        bounds = [_bound(symbol, bound) for bound in (item.start, item.stop, item.step)]
        if bounds[2] == 0:
            raise ArrayIndexError("the step of a slice cannot be 0")
        return slice(*bounds)
    if isinstance(item, (bool, np.bool_)):
        if not symbol.is_np:
            raise ArrayIndexError(f"{item} is not an index; to mask, use a boolean array")
        return bool(item)
    if isinstance(item, (int, np.integer)):
        return int(item)
    return index_array(item)


def _bound(symbol: Symbol, bound: object) -> int | None:
    if bound is None:
        return None
    if isinstance(bound, (int, np.integer)):
        return int(bound)
    if hasattr(bound, "_data") or tracing.holds_symbols(bound):
        raise tracing.refuse("HL133", tensor=symbol)
    raise ArrayIndexError(f"the bounds of a slice are whole numbers or None, not {bound!r}")


def _basic_operators(front: Sequence[Any], back: Sequence[Any], is_np: bool) -> list[Operator]:
    """The operators of a key without arrays, whose parts stand before and behind `...`. The number of axes is not
    known, so that axes of the parts behind are counted from the end.
    """
    head = [part for part in front if part is not None]
    tail = [part for part in back if part is not None]
    operators: list[Operator] = []
    cuts = [_range(part) for part in head]
    if tail and (head or len(tail) > 1 or is_np):
        cuts += [slice(None)] * len(tail)  # `slice` refuses an array that has fewer axes than the key
    if any(cut != slice(None) for cut in cuts) or len(cuts) > 1 or (cuts and is_np):
        attributes: dict[str, Any] = {
            "begin": tuple(cut.start for cut in cuts), "end": tuple(cut.stop for cut in cuts)
        }  # fmt: skip
        if any(cut.step is not None for cut in cuts):
            attributes["step"] = tuple(cut.step for cut in cuts)
        operators.append(get("slice").bind(**attributes))
    for axis, part in zip(range(-len(tail), 0), tail, strict=True):
        cut = _range(part)
        if cut.start is not None or cut.stop is not None:
            operators.append(get("slice_axis").bind(axis=axis, begin=cut.start or 0, end=cut.stop))
    # Axes are added before axes are dropped: `squeeze` of a Symbol that is no `mx.np` one leaves at least one axis.
    added = [axis for axis, part in enumerate(front) if part is None]
    added += [axis - len(back) for axis, part in reversed([*enumerate(back)]) if part is None]
    operators += [get("expand_dims").bind(axis=axis) for axis in added]
    dropped = [axis for axis, part in enumerate(front) if isinstance(part, int)]
    dropped += [axis - len(back) for axis, part in enumerate(back) if isinstance(part, int)]
    if dropped:
        operators.append(get(_DROPPING[is_np]).bind(axis=tuple(dropped)))
    return operators


def _range(part: int | slice) -> slice:
    """The range of a part of a key along its axis; of a number, the range of that one place."""
    return part if isinstance(part, slice) else slice(part, part + 1 if part != -1 else None)
