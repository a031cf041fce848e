"""A `__call__` of the user's: `net(x)` runs the graph of the whole method, not only of the part that
`super().__call__(...)` reaches.

    class Halved(HybridBlock):
        def __call__(self, x):
            return super().__call__(x / 2)      # part of the graph, as hybrid_forward is

Python looks `__call__` up on the class. So in a class with a `__call__` of the user's, `_entrance` takes its place.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from hybrid_lab.hybridize.stale.code import of_user


def take_over(kind: type) -> None:
    """Let the calls of a HybridBlock class begin with its graphs, if its `__call__`, or a base's, is the user's.

    Sets `kind._own_call`: whether the class has its own `__call__`. Nothing else changes if there is none.
    """
    users = any(of_user(base.__module__) and "__call__" in vars(base) for base in kind.__mro__ if base is not object)
    function = inspect.getattr_static(kind, "__call__")
    if users and not is_entrance(function):
        kind.__call__ = _entrance(function)  # type: ignore[method-assign]
    kind._own_call = users  # type: ignore[attr-defined]


def is_entrance(function: object) -> bool:
    """Whether it is what `take_over` puts in the place of a `__call__`."""
    return hasattr(function, "_entrance_of_calls")


def own_call(block: Any) -> Callable[..., Any]:
    """The user's `__call__` of a Block whose class has one, bound to the Block."""
    entrance: Any = type(block).__call__
    return _bound(entrance.__wrapped__, block)


def _entrance(function: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def __call__(self: Any, *args: Any, **keywords: Any) -> Any:
        # A subclass calls super().__call__(...) from its own, or a reload gave the class another function.
        if type(self).__call__ is not __call__:
            return _bound(__call__.__wrapped__, self)(*args, **keywords)
        if keywords:
            args, keywords = _by_position(__call__.__wrapped__, args, keywords)
        return self._call_of_own(args, keywords)

    __call__._entrance_of_calls = True  # type: ignore[attr-defined]
    return __call__


def _bound(function: Any, block: object) -> Callable[..., Any]:
    bound: Callable[..., Any] = function.__get__(block, type(block)) if hasattr(function, "__get__") else function
    return bound


def _by_position(
    function: Any, args: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments by position as far as the function takes them so, with its defaults in between; and the remaining
    arguments.
    """
    names = _positional(function)[1 + len(args) :]
    last = max((place for place, (name, _) in enumerate(names, 1) if name in keywords), default=0)
    values = [keywords.get(name, default) for name, default in names[:last]]
    if any(value is inspect.Parameter.empty for value in values):  # the call itself raises the error
        return args, keywords
    taken = {name for name, _ in names[:last]}
    return (*args, *values), {name: value for name, value in keywords.items() if name not in taken}


@functools.lru_cache(maxsize=1024)
def _positional(function: Any) -> list[tuple[str, Any]]:
    """(name, default) of the parameters that may be given by position."""
    parameters = inspect.signature(function).parameters.values()
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [(parameter.name, parameter.default) for parameter in parameters if parameter.kind in kinds]
