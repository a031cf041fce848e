"""Names of Blocks: prefixes and name scopes, numbered as MXNet numbers them.

Outside any scope a Block is named from the global counters (`dense0_`, `dense1_` ...); inside `with net.name_scope():`
from counters of `net`, behind its prefix (`net0_dense0_`). Parameters are named by the prefix of their Block.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from hybrid_lab.symbol import names

from .parameter_dict import ParameterDict

if TYPE_CHECKING:
    from .block import Block


class NameScope:
    """The name scope of one Block: `with net.name_scope():`.

    The Block keeps the counters, so its scopes may be nested and repeated.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._before: list[tuple[int, int]] = []

    def next_prefix(self, hint: str) -> str:
        """`dense0_`, then `dense1_` ..."""
        counts = self._block._name_counts
        count = counts.get(hint, 0)
        counts[hint] = count + 1
        return f"{hint}{count}_"

    def __enter__(self) -> NameScope:
        self._before.append((len(_local.scopes), names.depth()))
        if not self._block._empty_prefix:
            try:
                _local.scopes.append(self)
                names.Prefix(self._block.prefix).__enter__()
            except BaseException:  # Ctrl-C, or Python's recursion limit: nobody will leave this scope
                self.__exit__()
                raise
        return self

    def __exit__(self, *exception: object) -> None:
        # Cut to what was there: a scope inside that was broken off half-way goes with this one.
        depth, symbols = self._before.pop()
        del _local.scopes[depth:]
        names.cut(symbols)


class _Local(threading.local):
    def __init__(self) -> None:
        self.scopes: list[NameScope] = []


_local = _Local()


def open_scopes() -> list[NameScope]:
    """The scopes that this thread is in, outermost first: the list itself, which changes."""
    return _local.scopes


def name_block(prefix: str | None, params: ParameterDict | None, hint: str) -> tuple[str, ParameterDict]:
    """The full prefix of a new Block and the dictionary its parameters go to.

    prefix : given by the user, behind which the counter is not used; params : the dictionary it shares weights with;
    hint : its class's name in lower case
    """
    scope = _local.scopes[-1] if _local.scopes else None
    if scope is None:
        full = names.current().get(None, hint) + "_" if prefix is None else prefix
        return full, ParameterDict(full) if params is None else ParameterDict(params.prefix, params)
    if prefix is None:
        prefix = scope.next_prefix(hint)
    parent = scope._block
    if params is None:
        own = ParameterDict(parent.params.prefix + prefix, parent.params._shared)
    else:
        own = ParameterDict(params.prefix, params)
    return parent.prefix + prefix, own
