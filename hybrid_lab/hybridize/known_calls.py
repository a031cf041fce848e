"""The kinds of calls that a HybridBlock had. A caller that needs a missing graph traces it for such a call."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.hybridize.structure import (
    Spec,
    flatten,
    is_picklable,
    outline,
)
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.tape import state as modes
from hybrid_lab.ops.framework.dtypes import dtype_of, is_floating
from hybrid_lab.system import forks

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

#: How many kinds of calls of one Block are kept. The first to go is the earliest call of the form that has the most.
MAX_CALLS = 64

_lock = forks.rlock()

Types = tuple[tuple[tuple[int, ...], str], ...]
"""(shape, dtype name) of each tensor."""


@dataclass(frozen=True)
class KnownCall:
    """One kind of call.

    spec : the structure of the arguments
    types : of its tensors; None if they are not known, as of a call inside the graph of another Block
    training, recording : the mode
    """

    spec: Spec
    types: Types | None
    training: bool = False
    recording: bool = False

    @functools.cached_property
    def form(self) -> tuple[object, ...]:
        """What calls share that differ in shapes, dtypes, numbers or the lengths of lists only."""
        return outline(self.spec), self.training, self.recording

    @property
    def predicting(self) -> KnownCall:
        """The same call in prediction mode."""
        return replace(self, training=False, recording=False)


class KnownCalls:
    """The latest kinds of calls of one Block, in the order in which they were made or noted last.

    refused : the arguments, in words, of the latest call that no graph can run; "" if there was none
    dropped : the call that was dropped last because there were too many
    """

    def __init__(self, calls: Iterable[KnownCall] = ()) -> None:
        #: `key_of` the arguments of a call, or the call itself -> the call
        self._calls: dict[object, KnownCall] = {call: call for call in calls}
        self._last: object = None
        self.refused = ""
        self.dropped: KnownCall | None = None

    def __iter__(self) -> Iterator[KnownCall]:
        """Each once, the earliest first."""
        latest_first = dict.fromkeys(reversed(tuple(self._calls.values())))
        return iter(tuple(latest_first)[::-1])

    def __bool__(self) -> bool:
        return bool(self._calls)

    def repeats(self, key: object) -> bool:
        """Whether a call with this key is known; it is the latest one then. key : `key_of` the arguments"""
        if key is not None and key == self._last:
            return True
        with _lock:
            call = self._calls.pop(key, None)
            if call is None:
                return False
            self._calls[key], self._last = call, key
        return True

    def note(self, call: KnownCall, key: object = None) -> None:
        """Keep the call as the latest one. key : `key_of` its arguments, if it ran just now"""
        key = call if key is None else key
        with _lock:
            self._calls.pop(key, None)
            self._calls[key], self._last = call, key
            if len(self._calls) > MAX_CALLS:
                forms = Counter(each.form for each in self._calls.values())
                most = max(forms.values())
                gone = next(key for key, each in self._calls.items() if forms[each.form] == most)
                self.dropped = self._calls.pop(gone)

    def cast(self, dtype: DTypeLike | None) -> None:
        """Assume from now on that the floating tensors of all these calls have this dtype."""
        name = dtype_of(dtype).name
        with _lock:
            calls = [replace(call, types=call.types and cast_types(call.types, name)) for call in self]
            self._calls, self._last = {call: call for call in calls}, None

    def for_pickle(self) -> KnownCalls:
        """A copy without the calls that a pickle cannot hold."""
        calls = KnownCalls([call for call in self if is_picklable(call.spec)])
        left_out = len(calls._calls) < len({*self})
        calls.refused = "a named tuple or a value whose class a pickle cannot name" if left_out else self.refused
        return calls

    def __copy__(self) -> KnownCalls:
        return KnownCalls(self)

    def __deepcopy__(self, memo: object) -> KnownCalls:
        return KnownCalls(self)

    def __reduce__(self) -> tuple[object, ...]:
        return KnownCalls, ([*self],), {"refused": self.refused}


_QUICK = (bool, int, str, type(None))


def key_of(args: tuple[object, ...]) -> object:
    """Something equal for calls of one kind in one mode, made faster than a KnownCall; None for unusual arguments."""
    try:
        return modes.training, modes.recording, tuple(map(_key, args))
    except TypeError:
        return None


def _key(item: object) -> object:
    kind = type(item)
    if isinstance(item, NDArray):
        return kind, item.host_view.shape, item.host_view.dtype
    if isinstance(item, (list, tuple)):
        return kind, *map(_key, item)
    if kind in _QUICK:
        return kind, item
    raise TypeError


def cast_types(types: Types, name: str) -> Types:
    """The types with the dtype `name` in the place of every floating one."""
    return tuple([(shape, name if is_floating(dtype_of(old)) else old) for shape, old in types])


def kind_of_call(args: Sequence[object], where: str) -> KnownCall | None:
    """The kind of a call with these arguments in the mode of now; None if there is something else than arrays among
    its tensors, or no tensor. where : "the input of dense0", for errors
    """
    leaves, spec = flatten(tuple(args), where)
    if not leaves or not all(isinstance(leaf, NDArray) for leaf in leaves):
        return None
    types = tuple([(leaf.host_view.shape, leaf.host_view.dtype.name) for leaf in leaves])
    return KnownCall(spec, types, bool(modes.training), bool(modes.recording))


def dtypes_of(call: KnownCall, count: int) -> list[tuple[Any, Any]]:
    """(shape, dtype) of each of `count` tensors, (None, None) if they are not known."""
    if call.types is None:
        return [(None, None)] * count
    return [(tuple(shape), np.dtype(dtype_of(dtype))) for shape, dtype in call.types]
