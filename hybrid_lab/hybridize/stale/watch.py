"""Watch: what the graphs of one Block were traced from, and whether it has changed since. The entry to this folder.

`trace_guarded` is a trace together with a guard of the values that it read. Code that changes what it computes with has
no graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.hybridize_error import HybridizeError, hybridize_error
from hybrid_lab.diagnostics.location import Location
from hybrid_lab.graph.equal import equal
from hybrid_lab.hybridize.neutral import NeutralGraph, location_of, trace_block
from hybrid_lab.hybridize.stale.code import Reads, attributes_read, of_user, reads_of
from hybrid_lab.hybridize.stale.read_values import ClassSource, changed_values, class_source, is_plain, own_values
from hybrid_lab.hybridize.stale.trace_warnings import undoing_changes, warning_of_changes
from hybrid_lab.hybridize.stale.value_guard import ValueGuard
from hybrid_lab.hybridize.stale.watched_values import guard_of
from hybrid_lab.hybridize.structure import Spec
from hybrid_lab.ndarray.tape import state as modes
from hybrid_lab.system.logger import logger

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Hybrid, Tree
    from hybrid_lab.hybridize.stale.user_state import UserState

#: Source of the graphs of Blocks of one class -> the Watches of these graphs, if the code or a value that it reads may
#: change unnoticed: `find_changed` looks here. The package's own layers do not change, and an assignment to an
#: attribute is noticed; the contents of an attribute may change.
watched: weakref.WeakKeyDictionary[ClassSource, weakref.WeakSet[Watch]] = weakref.WeakKeyDictionary()


class Watch:
    """What the graphs of one Block were traced from.

    guard : of the values that each call compares with those at the trace; None if there are none
    source : the code, and the values of its class, at the first trace; None while there is no graph
    """

    def __init__(self, block: Hybrid) -> None:
        self.block = block
        self.guard: ValueGuard | None = None
        self.source: ClassSource | None = None
        self._values: dict[str, Any] = {}
        self._holds_values = False  # whether there are containers or objects among them, which may change unnoticed
        self._attributes = 0  # how many the Block had then

    def begin(self, guard: ValueGuard | None, is_guarded: bool) -> None:
        """A graph was traced. guard : of the values that the code read, if `is_guarded`; else it is made now"""
        if self.source is None:
            kind = type(self.block)
            self.source = class_source(kind)
            self._values = own_values(self.block, reads_of(kind))
            self._holds_values = not all(map(is_plain, self._values.values()))
            self._attributes = len(vars(self.block))
            if of_user(kind.__module__) or self._holds_values:
                watched.setdefault(self.source, weakref.WeakSet()).add(self)
        self.guard = guard if is_guarded else guard_of(self.block)

    def end(self) -> None:
        """The graphs were dropped."""
        if self.source is not None and (others := watched.get(self.source)):
            others.discard(self)
        self.source = self.guard = None
        self._values = {}

    def holds(self) -> bool:
        """Whether the values that calls compare are the trace's values."""
        return self.guard is None or self.guard.holds()

    def differences(self) -> list[str] | None:
        """What changed among the values that calls compare: `CONFIG['rate']: 0.2 instead of 0.1`.

        None if other containers and objects hold the same: they are what later calls compare with.
        """
        before = self.guard
        assert before is not None
        now = guard_of(self.block)
        changed = [] if now is None else now.without(before.excluded).differences(before)
        if now is not None and not changed:
            self.guard = now
            return None
        return changed

    def changed(self, now: ClassSource, reads: Reads) -> list[str]:
        """What the code reads and has another value than at the trace: `self.name`, or the name of a global.

        now : `class_source` of the Block's class; reads : `reads_of` it
        """
        if self.source is None:
            return []
        self._attributes = len(vars(self.block))
        own = own_values(self.block, reads)
        if now is self.source and own == self._values:
            return []
        return changed_values({**self.source.values, **self._values}, {**now.values, **own})

    @property
    def may_change_unnoticed(self) -> bool:
        """Whether the Block holds what may have changed without an assignment."""
        return self._holds_values or len(vars(self.block)) != self._attributes


def blocks_below(block: Tree) -> Iterator[Any]:
    """All Blocks below `block`, in order; a shared one as often as it occurs."""
    for child in block._children.values():
        yield child
        yield from blocks_below(child)


def changed_blocks(blocks: Iterable[Tree]) -> Iterator[tuple[Tree, list[str]]]:
    """The Blocks whose code reads a value that has changed since their trace, with the names of these values."""
    now: dict[type, tuple[ClassSource, Reads]] = {}
    for block in blocks:
        kind = type(block)
        if kind not in now:
            now[kind] = class_source(kind), reads_of(kind)
        names = block._graphs.watch.changed(*now[kind]) if hasattr(block, "_graphs") else []
        if names:
            yield block, names


def find_changed(values: bool) -> tuple[list[Hybrid], list[tuple[Hybrid, list[str]]]]:
    """Of all Blocks with graphs: Blocks whose code was replaced in place since the trace; and Blocks whose code now
    reads other values, with the names of these values.

    values : look for changed values, too
    """
    recoded: list[Watch] = []
    suspects: list[Watch] = []  # of the same code, whose values must be compared
    kinds: dict[type, tuple[ClassSource, Reads]] = {}
    for source, members in list(watched.items()):
        watches = list(members)
        if not watches:
            continue
        kind = type(watches[0].block)
        if kind not in kinds:
            kinds[kind] = class_source(kind), reads_of(kind)
        now, _ = kinds[kind]
        if now is not source:
            (recoded if now.code != source.code else suspects).extend(watches)
        elif values:
            # Assigning or deleting an attribute that the code reads drops the graph by itself. A change
            # inside a list or an object does not, nor does one in `vars(net)`: the Block may then have more or fewer.
            suspects += [each for each in watches if each.may_change_unnoticed]
    changed = [
        (each.block, names)
        for each in suspects
        if values and _is_own(each) and (names := each.changed(*kinds[type(each.block)]))
    ]
    return [each.block for each in recoded if _is_own(each)], changed


def _is_own(watch: Watch) -> bool:
    """Whether it is of the Block's own graphs, not of those that a tool traced."""
    return watch.block._graphs.watch is watch


# -- traces ------------------------------------------------------------------------------------------------------------

Types = Sequence[tuple[Any, Any]]
Watching = Callable[["Hybrid"], "AbstractContextManager[UserState]"]


def trace_guarded(
    block: Hybrid, spec: Spec, types: Types, watching: Watching = warning_of_changes, keep: bool = True,
    salvage: bool = False,
) -> tuple[NeutralGraph, ValueGuard | None]:  # fmt: skip
    """The graph of a call in the mode of now, and a guard of what the code read.

    watching : the context manager around the trace, which gives the state before
    keep, salvage : see `trace_block`

    Raises the errors of `trace_block`, and a HybridizeError if the code computes with values that it changes itself, or
    advances an iterator: its Block runs eagerly. All is as before the trace then.
    """
    guard = guard_of(block)
    if guard is not None and guard.iterators:
        name = guard.iterators[0]
        raise _error_of_iterator(block, name, guard.location_of(name) or location_of(block))
    try:
        with watching(block) as state:
            graph = trace_block(block, spec, types, modes.training, keep=keep, salvage=salvage)
            holds = guard is None or guard.holds()
            if not holds or _changed_what_it_reads(state):
                guard = _after_changes(block, graph, types, guard or ValueGuard(), state)
    except HybridizeError:
        if guard is not None:
            guard.restore()
        raise
    return graph, guard


def _changed_what_it_reads(state: UserState) -> bool:
    return any(name.sort == "global" or name.text in attributes_read(type(name.block)) for name in state.changed())


def _after_changes(
    block: Hybrid, graph: NeutralGraph, types: Types, before: ValueGuard, state: UserState
) -> ValueGuard:
    """The guard without what every trace changes. Raises HybridizeError if a second trace gives another graph."""
    now = guard_of(block) or ValueGuard()
    names = before.names(before.changed_places()) or [str(name) for name in state.changed()]
    changed: frozenset[object] = frozenset()
    again: NeutralGraph | None = None
    with undoing_changes(block):
        try:
            state.restore_random()
            again = trace_block(block, graph.in_spec, types, modes.training, keep=False)
        except Exception:  # noqa: BLE001 - as of a list that is empty now
            logger.debug(f"{block.name}: the second trace failed", exc_info=True)
        finally:
            changed = now.changed_places()
            now.restore()
    if again is None or again.out_spec != graph.out_spec or not equal(again.graph, graph.graph):
        _drop_graphs_below(block)
        raise _error_of_changes(block, names[0], now.location_of(names[0]) or location_of(block))
    for each in _hybrid_below(block):
        watch = each._graphs.watch
        if watch.guard is not None:
            watch.guard = watch.guard.without(changed)
    return now.without(changed)


def _hybrid_below(block: Hybrid) -> list[Any]:
    """The HybridBlocks below, each once."""
    return [each for each in {id(each): each for each in blocks_below(block)}.values() if hasattr(each, "_graphs")]


def _drop_graphs_below(block: Hybrid) -> None:
    """The code of a Block below may be the code that changes a value it reads: the next calls of these Blocks trace
    them alone.
    """
    for each in _hybrid_below(block):
        each._graph_calls.clear()


def _error_of_iterator(block: Hybrid, name: str, place: Location | None) -> HybridizeError:
    error = hybridize_error(
        "HL178",
        place,
        block=block.name,
        message=f"`{name}` is an iterator, and each call reads it on.",
        reason="A compiled call runs operators, not the Python code around them: it would read the iterator once only.",
        rewrite="pass what it gives as an argument: net(x, next(it))",
    )
    error.runs_eagerly = True
    return error


def _error_of_changes(block: Hybrid, name: str, place: Location | None) -> HybridizeError:
    error = hybridize_error(
        "HL173",
        place,
        block=block.name,
        message=f"The code changes `{name}` and computes with it, so that no two calls compute the same.",
        reason="A compiled call runs operators, not the Python code around them: the value would change once only.",
        rewrite="pass it as an argument      or      keep it as a parameter with grad_req='null'",
    )
    error.runs_eagerly = True
    return error


def tell_of_unwatched(block: Hybrid, guard: ValueGuard, told: set[Any]) -> None:
    """Warn once, in one message, of values that the code reads and no call compares. told : the names of earlier
    warnings
    """
    new = {name: why for name, why in guard.unwatched.items() if name not in told}
    told.update(new)
    if new:
        listed = []
        for name, why in list(new.items())[:5]:
            location = guard.location_of(name)
            listed.append(f"`{name}` ({why}; {location.describe()})" if location is not None else f"`{name}` ({why})")
        more = f"; {len(new) - 5} more" if len(new) > 5 else ""
        logger.warning(
            f"{block.name}: HL178: the graph keeps what the code reads in {'; '.join(listed)}{more}. Calls do not "
            "notice a change of it: pass it as an argument, or call hybridize() again after a change"
        )
