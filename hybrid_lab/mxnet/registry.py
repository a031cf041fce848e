"""mx.registry: the tables of classes by name that `init.register` and `metric.register` fill, also for own classes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.diagnostics.formatting import lookup
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

__all__ = ["get_alias_func", "get_create_func", "get_register_func", "get_registry"]

Registered = TypeVar("Registered", bound=type)

_tables: dict[type, dict[str, Any]] = {}


def table(base_class: type) -> dict[str, Any]:
    """The classes that are registered below `base_class`, by name in lower case: the dict itself, which grows."""
    return _tables.setdefault(base_class, {})


def get_registry(base_class: type) -> dict[str, Any]:
    """The classes that are registered below `base_class`, by name in lower case: a copy."""
    return dict(table(base_class))


def get_register_func(base_class: type, nickname: str) -> Callable[..., Any]:
    """A decorator that registers subclasses of `base_class` by name; `nickname` is their name in messages.

        register = mx.registry.get_register_func(Shape, "shape")

        @register            # as "circle"; register(Circle, "round") takes another name
        class Circle(Shape): ...

    The decorator warns if it replaces a class. It raises SettingError for anything but a subclass of `base_class`.
    """
    classes = table(base_class)

    def register(klass: Registered, name: str | None = None) -> Registered:
        if not (isinstance(klass, type) and issubclass(klass, base_class)):
            raise SettingError(f"{klass!r} is not a subclass of {base_class.__name__}: it cannot be a {nickname}")
        key = (name or klass.__name__).lower()
        if key in classes:
            old = classes[key]
            warnings.warn(
                f"the {nickname} {key!r} is now {klass.__module__}.{klass.__name__}; before it was "
                f"{old.__module__}.{old.__name__}",
                UserWarning,
                stacklevel=2,
            )
        classes[key] = klass
        return klass

    register.__doc__ = f"Register a class as a {nickname}."
    return register


def get_alias_func(base_class: type, nickname: str) -> Callable[..., Any]:
    """A function of names that gives a decorator, which registers a subclass of `base_class` under these names."""
    register = get_register_func(base_class, nickname)

    def alias(*aliases: str) -> Callable[[Registered], Registered]:
        def add(klass: Registered) -> Registered:
            for name in aliases:
                register(klass, name)
            return klass

        return add

    return alias


def get_create_func(base_class: type, nickname: str) -> Callable[..., Any]:
    """A function that makes an instance of a registered class.

        create("circle", radius=2)
        create(shape="circle", radius=2)      # by the nickname
        create('["circle", {"radius": 2}]')   # from JSON text, or a dict {"shape": "circle", "radius": 2}
        create(Circle(2))                     # an instance is returned as it is

    It raises ValueError for an unknown name, and SettingError for arguments that are of no such form.
    """
    classes = table(base_class)

    def create(*args: Any, **kwargs: Any) -> object:
        if not args and nickname not in kwargs:
            raise SettingError(f"a name is missing: create('...') or create({nickname}='...')")
        name, *rest = args or (kwargs.pop(nickname),)
        if isinstance(name, base_class):
            if rest or kwargs:
                raise SettingError(f"{name!r} is a {nickname} already; it takes no further arguments")
            return name
        if isinstance(name, dict):
            return create(**name)
        if not isinstance(name, str):
            raise SettingError(f"a {nickname} is named by a string, not by {type(name).__name__}")
        if name.startswith(("[", "{")):
            if rest or kwargs:
                raise SettingError(f"JSON text has all arguments of a {nickname}; it takes no further ones")
            described = json.loads(name)
            return create(described[0], **described[1]) if isinstance(described, list) else create(**described)
        return lookup(nickname, name, classes)(*rest, **kwargs)

    create.__doc__ = f"Make a {nickname} by its name, from JSON text, or return the given one."
    return create


_suggest_names(__name__)
