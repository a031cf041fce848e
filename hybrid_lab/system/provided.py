"""Functions that a module calls and a module above it provides, so that imports only go downward.

The caller declares the function with its types, `block_html: Provided[[Block], str] = Provided("block_html")`.
The package's `__init__` has the one table of who provides what.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Generic, ParamSpec, TypeVar

from hybrid_lab.system.imports import load

P = ParamSpec("P")
R = TypeVar("R")

_providers: dict[str, tuple[str, str]] = {}


def register(providers: Mapping[str, tuple[str, str]]) -> None:
    """Add to the table: name of the function -> module and attribute that provide it."""
    _providers.update(providers)


F = TypeVar("F", bound=Callable[..., object])


def signed_like(function: object) -> Callable[[F], F]:
    """A decorator for a function that hands its arguments on to another one: help texts and completion show the
    signature of `function`, which may be Provided. Its first argument is `self` in the signature of a method.
    """

    def decorate(other: F) -> F:
        other.__wrapped__ = function  # type: ignore[attr-defined]  # what inspect.signature follows
        return other

    return decorate


class _Joined:
    """The signature that `inspect.signature` follows for `options_of`; it is made on first use, because the other
    function's module is not imported before.
    """

    def __init__(self, own: Callable[..., object], function: object, without: Collection[str]) -> None:
        self._own, self._function, self._without = own, function, without

    def __call__(self, *args: object, **options: object) -> object:
        return self._own(*args, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        own = inspect.signature(self._own, follow_wrapped=False)
        named = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        taken = {each.name for each in named} | {*self._without}
        options = [
            each.replace(kind=each.KEYWORD_ONLY)
            for each in inspect.signature(self._function).parameters.values()  # type: ignore[arg-type]
            if each.name not in taken and each.default is not each.empty
        ]
        return own.replace(parameters=[*named, *options])


def options_of(function: object, without: Collection[str] = ()) -> Callable[[F], F]:
    """A decorator for a function whose **options are another function's, which may be Provided: help texts and
    completion show them by their names. without : options that the function gives itself
    """

    def decorate(other: F) -> F:
        other.__wrapped__ = _Joined(other, function, without)  # type: ignore[attr-defined]
        return other

    return decorate


class Provided(Generic[P, R]):
    """A function whose module is imported when it is called.

    name : its name in the table; raises KeyError for an unknown name
    """

    def __init__(self, name: str) -> None:
        self._module, self._attribute = _providers[name]

    @property
    def function(self) -> Callable[P, R]:
        """The function itself. Its module is imported now."""
        function: Callable[P, R] = getattr(load(self._module), self._attribute)
        return function

    @property
    def __wrapped__(self) -> Callable[P, R]:
        """The function, for `inspect.signature` and help texts."""
        return self.function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)
