"""All that this room knows of a Block and of a Parameter.

`AnyBlock` and `AnyParameter` are the bases of the two classes in `gluon/`, by which these files tell Blocks and
Parameters from other objects. `Tree`, `Hybrid` and `Weight` are protocols for type checkers: what the room reads of any
Block, of a HybridBlock, and of a Parameter. The members have the names that the classes give them.

Their names begin with an underscore because classes of users share them: a network may have attributes called `flags`
or `graphs`. MXNet's names among them, as `_children`, are also what ported code reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from hybrid_lab.ndarray.context import Context
    from hybrid_lab.ndarray.ndarray import NDArray
    from hybrid_lab.symbol.symbol import Symbol

#: Where a trace of a Block's code begins: with the whole call, behind a `__call__` of the user's, or behind a `forward`
#: of the user's, too.
Part = Literal["call", "forward", "hybrid_forward"]
NONE: Mapping[str, Any] = MappingProxyType({})
"""No arguments by keyword."""
#: Attributes of every Block that Gluon itself changes, and reports as a changed structure if it matters.
OWN = frozenset({
    "_active", "_children", "_empty_prefix", "_flags", "_forward_hooks", "_forward_pre_hooks", "_graph_calls",
    "_graph_inside", "_graphs", "_last_change", "_last_outputs", "_name", "_name_counts", "_operator_hook",
    "_own_call", "_params", "_parents", "_prefix", "_reg_params", "_set_aside", "_states_made", "_steps_made",
    "_structure_version", "_warned_containers",
})  # fmt: skip


class AnyBlock:
    """The base of Block."""

    __slots__ = ()


class AnyParameter:
    """The base of Parameter."""

    __slots__ = ()


def tree_of(block: Tree) -> list[Any]:
    """The Block and all Blocks below it, in order, each once."""
    found: dict[int, Any] = {}
    pending: list[Any] = [block]
    while pending:
        each = pending.pop()
        if id(each) not in found:
            found[id(each)] = each
            pending += reversed(each._children.values())
    return list(found.values())


class Weight(Protocol):
    """A Parameter: its values on each context."""

    name: str

    @property
    def shape(self) -> tuple[int, ...] | None: ...

    @property
    def dtype(self) -> Any: ...

    @property
    def _array(self) -> NDArray | None: ...

    @property
    def _data(self) -> list[NDArray] | None: ...

    def _on(self, arrays: list[NDArray] | None, ctx: Context | None) -> NDArray: ...

    def data(self, ctx: Context | None = None) -> NDArray: ...

    def var(self) -> Symbol: ...


class Tree(Protocol):
    """A Block: its name, its children and parameters, the Blocks above it, its hooks."""

    @property
    def name(self) -> str: ...

    @property
    def params(self) -> Any: ...

    @property
    def _children(self) -> Mapping[str, Any]: ...

    @property
    def _parents(self) -> Sequence[Callable[[], Any]]: ...

    @property
    def _reg_params(self) -> Mapping[str, Any]: ...

    @property
    def _structure_version(self) -> int: ...

    @property
    def _forward_hooks(self) -> Mapping[int, Callable[..., Any]]: ...

    @property
    def _forward_pre_hooks(self) -> Mapping[int, Callable[..., Any]]: ...

    def collect_params(self, select: str | None = None) -> Any: ...

    def name_scope(self) -> AbstractContextManager[Any]: ...

    def _structure_changed(self) -> None: ...

    def _note_output_types(self, types: Any) -> None: ...


class Hybrid(Tree, Protocol):
    """A HybridBlock: its flags, and its code eagerly and on Symbols."""

    @property
    def _active(self) -> bool: ...

    @property
    def _set_aside(self) -> bool: ...

    @property
    def _flags(self) -> dict[str, Any]: ...

    @property
    def _graphs(self) -> Any: ...

    @property
    def _graph_calls(self) -> Any: ...

    @property
    def _code_style(self) -> str: ...

    @property
    def _entry_of_calls(self) -> tuple[Any, int]: ...

    def _call_eagerly(self, args: tuple[object, ...]) -> Any: ...

    def _run_symbolic(self, args: Sequence[object], part: Any = "call", keywords: Mapping[str, Any] = ...) -> Any: ...

    def _complete_from(self, neutral: Any, leaves: Any) -> None: ...

    def _let_code_run(self, aside: bool) -> None: ...
