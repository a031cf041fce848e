"""Names of Blocks: prefixes and name scopes, numbered as MXNet numbers them.

Outside any scope a Block is named from the global counters (`dense0_`, `dense1_` ...); inside `with net.name_scope():`
from counters of `net`, behind its prefix (`net0_dense0_`). Parameters are named by the prefix of their Block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hybrid_lab.symbol import scopes

from .parameter_dict import ParameterDict

if TYPE_CHECKING:
    from .block import Block


class NameScope(scopes.NameManager):
    """The name scope of one Block: `with net.name_scope():`.

    The Block keeps the counters of its children, so its scopes may be nested and repeated; Symbols are numbered anew.
    """

    def __init__(self, block: Block) -> None:
        super().__init__()
        self._block = block
        self._before: list[tuple[int, dict[str, int]]] = []

    def get(self, name: str | None, hint: str) -> str:
        """The name, or without one the hint with a number, behind the prefix of the Block."""
        return self._block._prefix + super().get(name, hint)

    def next_prefix(self, hint: str) -> str:
        """`dense0_`, then `dense1_` ..."""
        counts = self._block._name_counts
        count = counts.get(hint, 0)
        counts[hint] = count + 1
        return f"{hint}{count}_"

    def __enter__(self) -> NameScope:
        managers = scopes.NameManager.stack
        self._before.append((len(managers), self._counter))
        if not self._block._empty_prefix:
            try:
                self._counter = {}
                managers.append(self)
            except BaseException:  # Ctrl-C, or Python's recursion limit: __exit__ will not be called
                self.__exit__()
                raise
        return self

    def __exit__(self, *exception: object) -> None:
        # Restore the lengths of before. This also removes inner scopes whose __exit__ was interrupted.
        depth, self._counter = self._before.pop()
        del scopes.NameManager.stack[depth:]

    @staticmethod
    def create(prefix: str | None, params: ParameterDict | None, hint: str) -> tuple[str, ParameterDict]:
        """The full prefix of a new Block and the dictionary its parameters go to.

        prefix : from the user, used without a counter, or None; params : the dictionary to share weights with;
        hint : the class's name in lower case
        """
        scope = next((item for item in reversed(scopes.NameManager.stack) if isinstance(item, NameScope)), None)
        if scope is None:
            full = scopes.NameManager.current.get(None, hint) + "_" if prefix is None else prefix
            return full, ParameterDict(full) if params is None else ParameterDict(params.prefix, params)
        if prefix is None:
            prefix = scope.next_prefix(hint)
        parent = scope._block
        if params is None:
            own = ParameterDict(parent.params.prefix + prefix, parent.params._shared)
        else:
            own = ParameterDict(params.prefix, params)
        return parent.prefix + prefix, own
