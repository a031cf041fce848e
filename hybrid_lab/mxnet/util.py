"""Switching NumPy semantics on and off, under the name MXNet gives this module."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, TypeVar

from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.ndarray import numpy_mode
from hybrid_lab.ndarray.context import num_gpus as _num_gpus
from hybrid_lab.ndarray.numpy_mode import is_np_array, is_np_shape

__all__ = [
    "get_gpu_count",
    "getenv",
    "is_np_array",
    "is_np_shape",
    "np_array",
    "np_shape",
    "reset_np",
    "set_np",
    "set_np_shape",
    "setenv",
    "use_np",
    "use_np_array",
    "use_np_shape",
]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def set_np(shape: bool = True, array: bool = True) -> None:
    """Switch NumPy semantics on, in all threads: parameters, data loaders and files then give `mx.np` arrays.

    Arrays that exist keep their class. Raises SettingError for array=True with shape=False.
    """
    if array and not shape:
        raise SettingError("set_np: NumPy's arrays need NumPy's shapes: set_np(shape=True, array=True)")
    numpy_mode.defaults.update(array=bool(array), shape=bool(shape))
    numpy_mode.state.array = numpy_mode.state.shape = None


def reset_np() -> None:
    """Switch NumPy semantics off again."""
    set_np(shape=False, array=False)


def set_np_shape(active: bool) -> bool:
    """Switch NumPy's shapes on or off in this thread; returns what they were."""
    before = is_np_shape()
    numpy_mode.state.shape = bool(active)
    return before


class _Scope:
    """`with` these settings in this thread; None leaves a setting unchanged."""

    def __init__(self, array: bool | None = None, shape: bool | None = None) -> None:
        self._wanted = array, shape
        self._before: list[tuple[bool | None, bool | None]] = []

    def __enter__(self) -> None:
        state, (array, shape) = numpy_mode.state, self._wanted
        self._before.append((state.array, state.shape))
        state.array = state.array if array is None else array
        state.shape = state.shape if shape is None else shape

    def __exit__(self, *error: object) -> None:
        numpy_mode.state.array, numpy_mode.state.shape = self._before.pop()


class _CurrentScope(type):
    """Metaclass: `_NumpyArrayScope._current` is this thread's current scope; libraries read and set it."""

    @property
    def _current(cls) -> _NumpyArrayScope:
        return _NumpyArrayScope(is_np_array())

    @_current.setter
    def _current(cls, scope: _NumpyArrayScope) -> None:
        numpy_mode.state.array = scope._is_np_array  # noqa: SLF001 - MXNet's name


class _NumpyArrayScope(_Scope, metaclass=_CurrentScope):
    """`np_array()` under the name of MXNet's class."""

    def __init__(self, is_np_array: bool) -> None:
        super().__init__(array=bool(is_np_array))

    @property
    def _is_np_array(self) -> bool:
        return bool(self._wanted[0])


def np_array(active: bool = True) -> _NumpyArrayScope:
    """`with np_array():` parameters, data loaders and files give `mx.np` arrays; with False they give NDArrays."""
    check_switches("np_array", active=active)
    return _NumpyArrayScope(active)


def np_shape(active: bool = True) -> _Scope:
    """`with np_shape():` NumPy's meaning of shapes."""
    check_switches("np_shape", active=active)
    return _Scope(shape=bool(active))


def _using(decorated: Any, array: bool | None, shape: bool | None) -> Any:
    """A function that runs in a scope, or a class whose methods do."""
    if inspect.isclass(decorated):
        for name, member in list(vars(decorated).items()):
            if inspect.isfunction(member) and (not name.startswith("__") or name in ("__init__", "__call__")):
                setattr(decorated, name, _using(member, array, shape))
        return decorated

    @functools.wraps(decorated)
    def inside(*args: Any, **keywords: Any) -> Any:
        with _Scope(array, shape):
            return decorated(*args, **keywords)

    return inside


def use_np_array(func: Decorated) -> Decorated:
    """Decorator of a function or a class: it runs with `np_array()`."""
    decorated: Decorated = _using(func, True, None)
    return decorated


def use_np_shape(func: Decorated) -> Decorated:
    """Decorator of a function or a class: it runs with `np_shape()`."""
    decorated: Decorated = _using(func, None, True)
    return decorated


def use_np(func: Decorated) -> Decorated:
    """Decorator of a function or a class: it runs with `np_array()` and `np_shape()`."""
    decorated: Decorated = _using(func, True, True)
    return decorated


def getenv(name: str) -> str | None:
    """The environment variable of this name, or None."""
    return os.environ.get(name)


def setenv(name: str, value: str | None) -> None:
    """Set an environment variable of this process; None removes it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def get_gpu_count() -> int:
    """The number of GPUs that can be used."""
    return _num_gpus()


_suggest_names(__name__)
