"""The layers that can be rebuilt from data: class name -> class, and constructor arguments as JSON-able values.

An archive names a layer by its class and gives its arguments; `build` makes it again. Nothing is imported by name.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.initializer import Initializer

__all__ = ["build", "classes", "layer"]

_classes: dict[str, Any] = {}
_NOT_CONFIG = ("prefix", "params")
_KERNELS = ("kernel_size", "pool_size", "i2h_kernel", "factor")
"""Arguments of the layers whose other spatial arguments have a number for each axis too."""
_SPATIAL = {
    *_KERNELS,
    *("strides", "padding", "dilation", "output_padding", "adj"),
    *("h2h_kernel", "i2h_pad", "i2h_dilate", "h2h_dilate"),
}
"""Arguments that are a number or one for each spatial axis."""

BlockClass = TypeVar("BlockClass", bound=type)


class NotData(HybridLabError, TypeError):
    """A constructor argument, such as a function, that cannot be written as data."""


def layer(cls: BlockClass) -> BlockClass:
    """Class decorator: register a layer under its class name and let its instances remember their arguments.

    The arguments are kept on instances of exactly this class: a subclass has other constructors and code.
    """
    target: Any = cls
    original = target.__init__
    parameters = inspect.signature(original).parameters
    names = tuple(parameters)[1:]
    switches = [name for name, parameter in parameters.items() if isinstance(parameter.default, bool)]

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        if switches:
            check_switches(cls.__name__, **{name: arguments[name] for name in switches if name in arguments})
        original(self, *args, **kwargs)
        if type(self) is cls:
            self.__dict__["_arguments"] = {name: value for name, value in arguments.items() if name not in _NOT_CONFIG}

    target.__init__ = __init__
    # The package's own modules load when they are used: a class of the user, registered before, keeps its name.
    if cls.__name__ not in _classes or not cls.__module__.startswith("hybrid_lab."):
        _classes[cls.__name__] = cls
    return cls


def config(block: Block) -> dict[str, Any] | None:
    """The arguments of a layer's constructor as JSON-able data; None if an argument is not data
    (for example a function), if the Block's class is not a registered layer, or if the Block was made before its class
    was registered.
    """
    arguments = block.__dict__.get("_arguments")
    if arguments is None or _classes.get(type(block).__name__) is not type(block):
        return None
    try:
        return {name: _as_argument(block, value) for name, value in arguments.items()}
    except NotData:
        return None


def child_name(argument: object) -> str | None:
    """The name of the child that an argument of `config` stands for; None for any other argument."""
    return argument.get("child") if isinstance(argument, dict) else None


def _as_argument(block: Block, value: object) -> Any:
    """An argument as data. A Block that is a child, as the cell in a ResidualCell, is {"child": its name}."""
    if isinstance(value, Block):
        for name, child in access.children(block).items():
            if child is value:
                return {"child": name}
    return _as_data(value)


def classes() -> Mapping[str, type]:
    """All registered layers by class name."""
    return MappingProxyType(_classes)


def build(name: str | type, config: Mapping[str, object], prefix: str | None = None) -> Any:
    """The layer `name` with the arguments that `config()` gave. A class itself needs no registration.

    Raises HybridLabError for an unknown name or argument.
    """
    cls: Any = name if isinstance(name, type) else _classes.get(name)
    if cls is None:
        raise HybridLabError(f"there is no registered layer {name!r}")
    check_arguments(cls, config)
    named = prefix is not None and _takes_prefix(cls)
    return cls(**config, **({"prefix": prefix} if named else {}))


def check_arguments(cls: type, config: Mapping[str, object]) -> None:
    """Raise HybridLabError if a constructor does not have the arguments that a file names."""
    allowed = _arguments_of(cls)
    unknown = [argument for argument in config if argument not in allowed]
    if unknown:
        raise HybridLabError(f"{cls.__name__} takes no argument {', '.join(unknown)}")


def settings(name: str | None, config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a layer for a comparison: with the defaults of the arguments that were not given. A convolution
    or pooling of this package takes `3` for `(3, 3)`, so a list of one number for each spatial axis is that number.

    name : of the layer; of a layer that is not registered, `config` has all that is known
    """
    cls = _classes.get(name or "")
    if cls is None:
        return dict(config)
    arguments = {**_defaults_of(cls), **config}
    if not cls.__module__.startswith("hybrid_lab.") or arguments.keys().isdisjoint(_KERNELS):
        return arguments
    found = re.search(r"([123])D", cls.__name__)
    axes = int(found[1]) if found else 2
    return {
        argument: _without_repetition(value, axes) if argument in _SPATIAL else value
        for argument, value in arguments.items()
    }


def _without_repetition(value: object, axes: int) -> object:
    repeats = isinstance(value, list) and len(value) == axes and all(type(n) is int and n == value[0] for n in value)
    return value[0] if repeats else value  # type: ignore[index]


@functools.cache
def _defaults_of(cls: Any) -> dict[str, Any]:
    """The defaults of a registered layer's arguments, as far as they are data."""
    defaults: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls.__init__).parameters.items():
        if parameter.default is not parameter.empty and name not in _NOT_CONFIG:
            with contextlib.suppress(NotData):
                defaults[name] = _as_data(parameter.default)
    return defaults


def _takes_prefix(cls: Any) -> bool:
    """Whether a constructor takes `prefix`: a user's Block may take no more than its own arguments."""
    arguments = inspect.signature(cls.__init__).parameters
    return "prefix" in arguments or any(each.kind is each.VAR_KEYWORD for each in arguments.values())


@functools.cache
def _arguments_of(cls: Any) -> frozenset[str]:
    """The names of a registered layer's arguments, of which a configuration may have any."""
    return frozenset(inspect.signature(cls.__init__).parameters) - {"self", "kwargs", *_NOT_CONFIG}


def _as_data(value: object) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_as_data(each) for each in value]
    if isinstance(value, Initializer):
        return value.dumps()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return np.dtype(value).name
    raise NotData(f"{value!r} is not data")
