"""The kinds of calls that a HybridBlock had. Whoever needs a graph that is not there traces it for one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab import forks
from hybrid_lab.gluon.hybridized.structure import Spec, flatten, plain
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.tape import state as modes
from hybrid_lab.ops.framework.dtypes import dtype_of, is_floating

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hybrid_lab.gluon.hybridized.neutral import NeutralGraph

#: How many kinds of calls of one Block are kept; the one that was noted longest ago is dropped first.
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

    @property
    def predicting(self) -> KnownCall:
        """The same call in prediction mode."""
        return replace(self, training=False, recording=False)

    def is_run_by(self, neutral: NeutralGraph) -> bool:
        """Whether this graph holds for the call."""
        observed = neutral.observation
        if neutral.in_spec != self.spec:
            return False
        if self.types is None and (observed.types is not None or observed.layout is not None):
            return False
        return observed.holds(self.types or (), self.training, self.recording)


class KnownCalls:
    """The latest kinds of calls of one Block, each once, in the order in which they were noted last."""

    def __init__(self) -> None:
        self._calls: dict[KnownCall, None] = {}
        #: Mode and (class, shape, dtype) of each argument of the call noted last, if all of them are arrays.
        self._last: tuple[bool, bool, list[tuple[type, tuple[int, ...], Any]]] | None = None

    def __iter__(self) -> Iterator[KnownCall]:
        """Earliest first."""
        return iter(tuple(self._calls))

    def __bool__(self) -> bool:
        return bool(self._calls)

    def was_last(self, args: Sequence[Any]) -> bool:
        """Whether the call noted last was of the same kind as one with these arguments, as far as that is quick."""
        last = self._last
        if last is None or modes.training is not last[0] or modes.recording is not last[1]:
            return False
        if len(args) != len(last[2]):
            return False
        for arg, (kind, shape, dtype) in zip(args, last[2], strict=True):
            if type(arg) is not kind or arg.host_view.shape != shape or arg.host_view.dtype is not dtype:
                return False
        return True

    def note(self, call: KnownCall, args: Sequence[object] = ()) -> None:
        """Keep the call as the latest one. args : its arguments, if it ran just now"""
        with _lock:
            self._calls.pop(call, None)
            self._calls[call] = None
            if len(self._calls) > MAX_CALLS:
                del self._calls[next(iter(self._calls))]
            self._last = None
            if args and all(isinstance(arg, NDArray) for arg in args):
                seen: Any = args
                kinds = [(type(arg), arg.host_view.shape, arg.host_view.dtype) for arg in seen]
                self._last = modes.training, modes.recording, kinds

    def cast(self, dtype: DTypeLike | None) -> None:
        """Assume from now on that the floating tensors of all these calls have this dtype."""
        name = dtype_of(dtype).name
        with _lock:
            self._last = None
            calls = [replace(call, types=call.types and cast_types(call.types, name)) for call in self._calls]
            self._calls = dict.fromkeys(calls)

    def without_classes(self) -> KnownCalls:
        """A copy without the calls that hold objects of the user's classes, for a pickle."""
        twin = KnownCalls()
        twin._calls = {call: None for call in self._calls if plain(call.spec) == call.spec}
        return twin

    def __copy__(self) -> KnownCalls:
        twin = KnownCalls()
        twin._calls = dict(self._calls)
        return twin

    def __deepcopy__(self, memo: object) -> KnownCalls:
        return self.__copy__()

    def __getstate__(self) -> list[KnownCall]:
        return [*self._calls]

    def __setstate__(self, calls: list[KnownCall]) -> None:
        self.__init__()  # type: ignore[misc]
        self._calls = dict.fromkeys(calls)


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
