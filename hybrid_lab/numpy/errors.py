"""Errors of the functions of `mx.np` and `mx.npx`: they are typed, and begin with the function that the user called."""

from __future__ import annotations

import functools
import inspect
import re
import traceback
from collections.abc import Iterable
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import ArrayIndexError, HybridLabError, InputError, SettingError
from hybrid_lab.numpy.types import Function

_CALLED = re.compile(r"[\w.]+: ")
"""How messages begin that name an operator or another function, such as "broadcast_add: " or "np.sum: "."""


class MatrixError(InputError, np.linalg.LinAlgError):
    """Matrices that a function of `np.linalg` cannot compute with."""


#: Python's or NumPy's error -> the user's error. The first that fits counts: a LinAlgError is a ValueError, too.
_TYPES: dict[type[Exception], type[HybridLabError]] = {
    IndexError: ArrayIndexError,
    np.linalg.LinAlgError: MatrixError,
    ValueError: InputError,
    TypeError: SettingError,
    AttributeError: SettingError,
}


def named(name: str, function: Function) -> Function:
    """The function, with errors that name it, even if an operator or another function raises them inside.

    name : as users write it, "np.sum". Errors that Python or NumPy raises inside become typed errors: an IndexError an
    ArrayIndexError, a ValueError an InputError, a LinAlgError a MatrixError, a TypeError or AttributeError a
    SettingError. Errors of a function that the user passes, for example to `np.apply_along_axis`, are not changed.
    """

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except HybridLabError as error:
            has_its_text = error.args == (str(error),)  # others make their text when it is asked for
            if has_its_text and not _codes(error) & _codes_of_functions([*args, *keywords.values()]):
                error.args = (_message(name, error),)
            raise
        except tuple(_TYPES) as error:
            codes = _codes(error)
            if not codes or codes & _codes_of_functions([*args, *keywords.values()]):
                raise  # arguments that the function does not have, which Python's message names; an error of the user's
            typed = next(typed for kind, typed in _TYPES.items() if isinstance(error, kind))
            raise typed(_message(name, error)) from error

    return call


def _codes(error: Exception) -> set[CodeType]:
    """The code of the functions below the function that caught the error."""
    steps = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return {frame.f_code for frame in steps[1:]}


def _codes_of_functions(arguments: Iterable[object]) -> set[CodeType]:
    """The code of the Python functions among some arguments, and in lists of them: also of methods, of
    `functools.partial` and of objects whose class defines `__call__`.
    """
    items = [part for item in arguments for part in (item if isinstance(item, (list, tuple)) else [item])]
    return {function.__code__ for function in map(_function_of, items) if isinstance(function, FunctionType)}


def _function_of(item: object) -> object:
    """The function that runs when an argument is called; anything else for objects other than Python functions."""
    while isinstance(item, functools.partial):
        item = item.func
    if isinstance(item, MethodType):
        return item.__func__
    return item if isinstance(item, FunctionType) else inspect.getattr_static(type(item), "__call__", None)


def _message(name: str, error: Exception) -> str:
    """The error's text after the name of the function; a name at the beginning of the text is replaced."""
    return f"{name}: {_CALLED.sub('', str(error), count=1) if _CALLED.match(str(error)) else error}"
