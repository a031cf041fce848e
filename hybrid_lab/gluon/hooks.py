"""HookHandle: removes a forward hook."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable

_numbers = itertools.count()


class HookHandle:
    """One registered hook. `handle.detach()` removes it, as leaving `with handle:` does."""

    def __init__(self) -> None:
        self._hooks: weakref.ref[OrderedDict[int, Callable[..., object]]] | None = None
        self._number = -1

    def attach(self, hooks: OrderedDict[int, Callable[..., object]], hook: Callable[..., object]) -> HookHandle:
        """Add `hook` to `hooks`. Raises RuntimeError if this handle has one already."""
        if self._hooks is not None:
            raise RuntimeError("this handle belongs to a hook already")
        self._number = next(_numbers)
        hooks[self._number] = hook
        self._hooks = weakref.ref(hooks)
        return self

    def detach(self) -> None:
        """Remove the hook; a second time does nothing."""
        hooks = self._hooks() if self._hooks is not None else None
        if hooks is not None:
            hooks.pop(self._number, None)

    def __getstate__(self) -> tuple[OrderedDict[int, Callable[..., object]] | None, int]:
        return None if self._hooks is None else self._hooks(), self._number

    def __setstate__(self, state: tuple[OrderedDict[int, Callable[..., object]] | None, int]) -> None:
        hooks, self._number = state
        self._hooks = None if hooks is None else weakref.ref(hooks)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.detach()
