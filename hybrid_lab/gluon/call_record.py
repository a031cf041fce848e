"""The last calls of a plain Block: the Blocks and operators that it called, in order, and the arrays that flowed
between them.

A plain Block runs as Python, so it has no graph; the lab draws it from this record. A record has weak references,
numbers and shapes, and keeps no array alive. The first calls are noted in full (`CallRecorder`). Once they repeat one
another, a call only lists the Blocks that it called, and the list identifies the repeated call; another list, mode or
shape is noted in full again.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hybrid_lab.diagnostics import location
from hybrid_lab.diagnostics.location import Location, capture
from hybrid_lab.gluon.members import parents
from hybrid_lab.hybridize import events
from hybrid_lab.ndarray import invoke as invoking
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.tape import state as modes
from hybrid_lab.symbol.tracing import local
from hybrid_lab.system import forks

if TYPE_CHECKING:
    from hybrid_lab.gluon.block import Block
    from hybrid_lab.hybridize.block import Tree
    from hybrid_lab.ops.framework.operator import Operator

_SETTLED = 8
"""Calls in a row that are like earlier ones, after which calls are listed only."""
_KEPT = 8
"""Records of one Block; with more, the earlier ones are dropped."""
ITEMS = 1000
"""Blocks and operators of one record; what follows is not noted."""
_NOTED = 64
"""Calls of one Block that are noted in full without a pause between them."""
_DEPTH = 100
"""Levels of the tree in which a Block is looked for."""
_PAUSE = 1e-3
"""Seconds of pause for each item of a further record: noting one takes some microseconds."""
_CALLS_OF_CELL = 64
"""Calls of Blocks that are noted in one cell."""

_R = TypeVar("_R")
_Key = tuple[bool, bool, tuple[Any, ...], tuple[int, ...]]
"""Of a call: training, recording, shapes of the arguments, ids of the Blocks that it called."""
Types = tuple[tuple[tuple[int, ...], Any], ...]
"""(shape, dtype) of arrays."""


class ArraySource(NamedTuple):
    """The source of an array: output `output` of item number `item`; item -1 stands for the inputs of the call."""

    item: int
    output: int


@dataclass(eq=False, slots=True)
class RecordedCall:
    """A Block, or an operator in eager mode, that was called.

    block : of an operator None; name : of the operator, or the class of a Block that an archive does not hold
    attributes : of the operator, as written
    inputs : per array among the arguments its source, or None if unknown; takes, gives : the types of the arguments and
        of the results; gives is None if the call did not return
    training, recording : the mode of the call
    location : the line that called, or None; inside : the record of a plain Block's call, as far as there was one
    op, scalars : for an operator that can run again: the operator, and its numeric inputs, each with its position
    times : the number of similar calls that the item stands for; joined : per array the sources of all arrays joined in
    it
    """

    block: weakref.ref[Block] | None
    name: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[ArraySource | None, ...] = ()
    takes: Types = ()
    gives: Types | None = ()
    training: bool = False
    recording: bool = False
    location: Location | None = None
    inside: Record | None = None
    times: int = 1
    joined: tuple[tuple[ArraySource, ...], ...] = ()
    op: Operator | None = None
    scalars: tuple[tuple[int, float], ...] = ()


@dataclass(eq=False, slots=True)
class Record:
    """One call.

    items : in the order of the calls; inputs : types of the arrays among the arguments; outputs : source per result
    gives : types of the results; flows : whether sources are known; error : why the call failed, or ""
    number : grows with each record; is_saved : it was read from an archive
    """

    items: list[RecordedCall]
    inputs: Types = ()
    outputs: tuple[ArraySource | None, ...] = ()
    gives: Types = ()
    flows: bool = True
    training: bool = False
    recording: bool = False
    error: str = ""
    is_whole: bool = True
    number: int = 0
    is_saved: bool = False


listeners: list[weakref.WeakMethod[Callable[[Block], None]]] = []
"""Called with a Block before a call that is noted in full, as the first calls of each cell are. Held weakly."""

_lock = forks.lock()
_recorders = 0
_serial = 0


def _listener() -> Callable[..., Any] | None:
    """What hears the eager operators of this thread."""
    enclosing = local.enclosing
    return enclosing.operator if type(enclosing) is CallRecorder else None


def _listening(change: int) -> None:
    """Let `invoke` ask for listeners while there is an open CallRecorder in any thread."""
    global _recorders
    with _lock:
        _recorders += change
        invoking.set_listener(_listener if _recorders else None)


class CallRecorder:
    """Notes one call, or the code of a cell, in full.

    args : of the call; is_cell : whether it notes the code of a cell, up to some number of calls
    """

    __slots__ = ("_is_cell", "_is_open", "_most", "_of", "ids", "inputs", "items")

    def __init__(self, args: object, is_cell: bool = False):
        self.items: list[RecordedCall] = []
        self.ids: list[int] = []
        self._is_cell, self._is_open = is_cell, True
        self._most = _CALLS_OF_CELL if is_cell else ITEMS
        self._of: dict[int, tuple[weakref.ref[Any], ArraySource]] = {}
        self.inputs = self._note(args, -1)
        _listening(1)

    def close(self) -> None:
        """Note no more."""
        if self._is_open:
            self._is_open = False
            _listening(-1)

    @property
    def _has_room(self) -> bool:
        return self._is_open and len(self.items) < ITEMS and len(self.ids) <= self._most

    def _leave_cell(self) -> bool:
        """Whether this notes a cell and has no room left: nothing is noted in the rest of the cell."""
        if not self._is_cell or self._has_room:
            return False
        self.close()
        local.enclosing = None
        return True

    def _note(self, values: object, item: int) -> Types:
        types = []
        for output, array in enumerate(_arrays(values)):
            self._of[id(array.buffer)] = weakref.ref(array.buffer), ArraySource(item, output)
            types.append((array.host_view.shape, array.host_view.dtype))
        return tuple(types)

    def _source(self, array: NDArray) -> ArraySource | None:
        """The source of an array, or of the array that it is a view of."""
        known = self._of.get(id(array.buffer))
        return known[1] if known is not None and known[0]() is array.buffer else None

    def _begin(self, item: RecordedCall, values: object) -> RecordedCall:
        arrays = [*_arrays(values)]
        item.inputs, item.takes = tuple(map(self._source, arrays)), _types(arrays)
        item.training, item.recording = bool(modes.training), bool(modes.recording)
        item.location, item.gives = capture(), None
        self.items.append(item)
        return item

    def call(self, block: Block, function: Callable[..., _R], args: tuple[Any, ...], keywords: Mapping[str, Any]) -> _R:
        """Call a Block, whose call `function` does, and note it. Calls inside the Block are noted by the Block, if at
        all.
        """
        if self._leave_cell():
            return function(*args, **keywords)
        self.ids.append(id(block))
        for reference in listeners:
            if (listener := reference()) is not None:
                listener(block)
        item = self._begin(RecordedCall(weakref.ref(block)), (args, keywords)) if self._has_room else None
        number = len(self.items) - 1
        local.enclosing = None
        try:
            result = function(*args, **keywords)
        finally:
            local.enclosing = self
            if item is not None:
                item.inside = last_record(block)
        if item is not None:
            item.gives = self._note(result, number)
        return result

    def operator(self, op: Operator, inputs: Sequence[Any], run: Callable[[], _R]) -> _R:
        """Run an operator and note it."""
        if self._leave_cell() or not self._has_room:
            return run()
        number = len(self.items)
        item = self._begin(RecordedCall(None, op.name, op.written, scalars=_scalars(inputs)), inputs)
        item.op = op if len(item.takes) + len(item.scalars) == len(inputs) else None
        local.enclosing = None
        try:
            result = run()
        finally:
            local.enclosing = self
        item.gives = self._note(result, number)
        return result

    def record(self, result: object = None, error: str = "") -> Record:
        """The record of the call, which ended with this result or error."""
        arrays = [*_arrays(result)]
        blocks = sum(item.block is not None for item in self.items)
        return Record(
            [*self.items], self.inputs, tuple(map(self._source, arrays)), _types(arrays), True,
            bool(modes.training), bool(modes.recording), error, blocks == len(self.ids), _number(),
        )  # fmt: skip


def _types(arrays: list[NDArray]) -> Types:
    return tuple([(array.host_view.shape, array.host_view.dtype) for array in arrays])


def _scalars(inputs: Sequence[Any]) -> tuple[tuple[int, float], ...]:
    return tuple([(place, item) for place, item in enumerate(inputs) if isinstance(item, (bool, int, float))])


def _number() -> int:
    global _serial
    with _lock:
        _serial += 1
        return _serial


def _arrays(values: object) -> Iterator[NDArray]:
    if isinstance(values, NDArray):
        if not values.buffer.stored:
            yield values
    elif type(values) is dict or isinstance(values, Mapping):
        for each in values.values():
            yield from _arrays(each)
    elif isinstance(values, (tuple, list)):
        for each in values:
            yield from _arrays(each)


class Records:
    """The known calls of one plain Block.

    last : the record that tells of the last call
    expected : the Blocks that the next call should call, in order, while the Block has them all below it; else None
    """

    __slots__ = (
        "_ids",
        "_known",
        "_left",
        "_not_before",
        "_noted",
        "_owner",
        "_shapes",
        "_training",
        "expected",
        "last",
    )

    def __init__(self, owner: Block) -> None:
        self.last: Record | None = None
        self.expected: list[Block] | None = None
        self._owner = weakref.ref(owner)
        self._known: dict[_Key, Record] = {}
        #: mode, shapes and called Blocks of the last call
        self._training = False
        self._shapes: Any = None
        self._ids: list[int] = []
        self._left, self._noted, self._not_before = _SETTLED, 0, 0.0

    def are_like(self, args: tuple[Any, ...]) -> bool:
        """Whether a call with these arguments, in the mode of now, is expected to be like the last one."""
        if self._left or modes.training is not self._training:
            return False
        if len(args) == 1 and type(args[0]) is NDArray:
            return bool(args[0].host_view.shape == self._shapes)
        return bool(_shapes(args) == self._shapes)

    def begin(self, args: tuple[Any, ...]) -> list[Block] | CallRecorder:
        """What notes a call that is not expected to be like the last one."""
        if self._noted >= _NOTED and time.perf_counter() < self._not_before:
            return []
        return CallRecorder(args)

    def end(self, args: tuple[Any, ...], calls: list[Block] | CallRecorder, result: object) -> None:
        """Note that a call returned which is not known to be like the last one."""
        if type(calls) is list:
            if [*map(id, calls)] != self._ids:
                self._listed(args, calls)
            return
        assert isinstance(calls, CallRecorder)
        calls.close()
        key = _key(args, calls.ids)
        self._left = max(self._left - 1, 0) if key in self._known else _SETTLED
        self._noted += 1
        self._not_before = time.perf_counter() + _PAUSE * len(calls.items)
        record = calls.record(result)
        if len(self._known) >= _KEPT and key not in self._known:
            self._known.clear()
        self._known[key] = record
        self._take(key, record)

    def _take(self, key: _Key, record: Record) -> None:
        before = self._training, self._shapes, self._ids
        self.last, (self._training, _, self._shapes, ids) = record, key
        self._ids = [*ids]
        owner = self._owner()
        if owner is not None and before != (self._training, self._shapes, self._ids):
            for listener in events.changed:
                listener(owner)
        blocks = [item.block() for item in record.items if item.block is not None]
        self.expected = blocks if all(self._is_below(block) for block in blocks) else None  # type: ignore[assignment]

    def _is_below(self, block: Block | None) -> bool:
        """Whether `block` is the records' own Block or below it, and so is kept alive by it."""
        owner, seen = self._owner(), 0
        while block is not None and block is not owner and seen < _DEPTH:
            block, seen = next(iter(parents(block)), None), seen + 1
        return block is owner and owner is not None

    def forget(self) -> None:
        """The structure of the Block changed: expect nothing, and keep no Block."""
        self.expected, self._left = None, _SETTLED

    def _listed(self, args: tuple[Any, ...], calls: list[Block]) -> None:
        """A listed call that called other Blocks than the last one."""
        key = _key(args, map(id, calls))
        known = self._known.get(key)
        if known is None:
            known, self._left = self._bare(calls), _SETTLED
        self._take(key, known)

    def fail(self, calls: list[Block] | CallRecorder, error: BaseException, failed: Sequence[Block]) -> None:
        """Note that the call raised. failed : the Blocks that the exception left"""
        words = type(error).__name__ + (f": {text}" if (text := next(iter(str(error).splitlines()), "")) else "")
        if isinstance(calls, CallRecorder):
            calls.close()
            self.last = calls.record(None, words)
        else:
            self.last = self._bare(calls, words, failed)
        self._shapes, self._ids = None, []
        self.forget()
        if (owner := self._owner()) is not None:
            for listener in events.changed:
                listener(owner)

    def _bare(self, calls: list[Block], error: str = "", failed: Sequence[Block] = ()) -> Record:
        """The record of a listed call: the known items of the last call as far as both agree, then Blocks alone."""
        items = self._alike(calls)
        begun = sum(item.block is not None for item in items)
        items += [RecordedCall(weakref.ref(block), inside=last_record(block)) for block in calls[begun:ITEMS]]
        if items and any(block is calls[-1] for block in failed):
            items[-1] = replace(items[-1], gives=None, inside=last_record(calls[-1]))
        inputs = self.last.inputs if self.last is not None else ()
        return Record(
            items, inputs, (), (), begun == len(calls), bool(modes.training), bool(modes.recording), error,
            len(calls) <= ITEMS, _number(),
        )  # fmt: skip

    def _alike(self, calls: list[Block]) -> list[RecordedCall]:
        """The items of the last record up to the last Block that these calls have in common with it."""
        found: list[RecordedCall] = []
        if self.last is None:
            return found
        left, end = iter(calls), 0
        for place, item in enumerate(self.last.items, 1):
            if item.block is not None:
                if item.block() is not next(left, None):
                    break
                end = place
        return self.last.items[:end]


def _shapes(args: object) -> tuple[Any, ...]:
    shapes = tuple([array.host_view.shape for array in _arrays(args)])
    return shapes[0] if len(shapes) == 1 else shapes


def _key(args: tuple[Any, ...], ids: Iterable[int]) -> _Key:
    """What calls have in common that have equal modes, shapes and called Blocks."""
    return modes.training, modes.recording, _shapes(args), tuple(ids)


def records_of(block: Block) -> Records | None:
    """The known calls of a Block."""
    found: Records | None = block.__dict__.get("_calls_noted")
    return found


def last_record(block: Block) -> Record | None:
    """The record of the last call of a plain Block."""
    records = records_of(block)
    return None if records is None else records.last


def records_for(block: Block) -> Records:
    """The records of a plain Block that is called for the first time."""
    records = block.__dict__["_calls_noted"] = Records(block)
    called(block)
    return records


# -- Blocks that only the user's code called
# -------------------------------------------------------------------------------

_called: dict[int, tuple[weakref.ref[Any], int]] = {}


def called(block: Tree) -> None:
    """Note that a Block was called in a cell; kept weakly, unless another Block has it as a child."""
    if cell.runs and not parents(block):
        key = id(block)
        _called[key] = weakref.ref(block, lambda reference: _forget(key, reference)), cell.owner


def _note_called(block: Tree, outcome: object) -> None:
    """A call was compiled, or failed to be. outcome : as `events.compiled` and `events.failed` give it"""
    called(block)


def _forget(key: int, reference: object) -> None:
    if key in _called and _called[key][0] is reference:
        del _called[key]


def called_blocks(owner: int) -> list[weakref.ref[Block]]:
    """References to the Blocks that were called in cells of this notebook and were no child of another one.

    owner : as of `Cell.begin`
    """
    return [reference for reference, kernel in tuple(_called.values()) if kernel == owner]


# -- the calls of a cell -----------------------------------------------------------------------------------------------


class Cell:
    """The first calls of Blocks, and the arrays between them, of the code in a notebook's cell.

    runs : whether one runs; owner : id of the notebook's variables
    """

    def __init__(self) -> None:
        self.runs, self.owner = False, 0
        self._recorder: CallRecorder | None = None
        self._last: Record | None = None
        self._stop: Callable[[], None] | None = None
        if location.cell_runs:
            self.begin(location.cell_runs)

    def begin(self, owner: int) -> None:
        """A cell starts on this thread. owner : id of the notebook's variables"""
        self.end()
        self.runs, self.owner = True, owner
        self._stop = events.listen(compiled=_note_called, failed=_note_called)
        self._recorder = local.enclosing = CallRecorder((), is_cell=True)

    def end(self) -> None:
        """The cell ended."""
        self.runs = False
        if self._stop is not None:
            self._stop()
            self._stop = None
        self._last, recorder, self._recorder = self.last, self._recorder, None
        if recorder is not None:
            recorder.close()
            if local.enclosing is recorder:
                local.enclosing = None

    @property
    def last(self) -> Record | None:
        """The record of the running cell, or of the last one, that called a Block."""
        recorder = self._recorder
        return recorder.record() if recorder is not None and recorder.ids else self._last


cell = Cell()
"""Of the notebook's main thread."""
