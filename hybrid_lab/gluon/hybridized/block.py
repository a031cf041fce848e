"""What the cached graphs know of a Block: the protocols `Tree`, of any Block, and `Hybrid`, of a HybridBlock.

They are for type checkers, so that these files need not know the classes, which are built on them. The members have
the names that Block and HybridBlock give them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from hybrid_lab.gluon.parameter import Parameter
    from hybrid_lab.gluon.parameter_dict import ParameterDict


class Tree(Protocol):
    """A Block: its name, its children and parameters, the Blocks above it, its hooks."""

    @property
    def name(self) -> str: ...

    @property
    def params(self) -> ParameterDict: ...

    @property
    def _children(self) -> Mapping[str, Any]: ...

    @property
    def _parents(self) -> Sequence[Callable[[], Any]]: ...

    @property
    def _reg_params(self) -> Mapping[str, Parameter]: ...

    @property
    def _structure_version(self) -> int: ...

    @property
    def _forward_hooks(self) -> Mapping[int, Callable[..., Any]]: ...

    @property
    def _forward_pre_hooks(self) -> Mapping[int, Callable[..., Any]]: ...

    def collect_params(self, select: str | None = None) -> ParameterDict: ...

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
    def _code_style(self) -> str: ...

    @property
    def _entry_of_calls(self) -> tuple[Any, int]: ...

    def _call_eagerly(self, args: tuple[object, ...]) -> Any: ...

    def _run_symbolic(self, args: Sequence[object], part: Any = "call", keywords: Mapping[str, Any] = ...) -> Any: ...

    def _complete_from(self, neutral: Any, leaves: Any) -> None: ...

    def _let_code_run(self, aside: bool) -> None: ...

    def _set_shapes(self, neutral: Any, leaves: Any) -> None: ...
