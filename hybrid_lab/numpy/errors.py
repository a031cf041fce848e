"""Errors of the functions of `mx.np` and `mx.npx`: they are typed, and begin with the function that the user called."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import ArrayIndexError, HybridLabError, InputError, SettingError
from hybrid_lab.numpy.types import Function

_CALLED = re.compile(r"[\w.]+: ")
"""How messages begin that name an operator or another function, such as "broadcast_add: " or "np.sum: "."""


class MatrixError(InputError, np.linalg.LinAlgError):
    """Matrices that a function of `np.linalg` cannot compute with."""


def named(name: str, function: Function) -> Function:
    """The function, with errors that name it, also where an operator or a function that it calls has raised them.

    name : as users write it, "np.sum". Errors that Python or NumPy raises inside become typed ones: an IndexError an
    ArrayIndexError, a ValueError an InputError, a LinAlgError a MatrixError, a TypeError or AttributeError a
    SettingError.
    """

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except HybridLabError as error:
            if error.args == (str(error),):  # other errors have texts of their own
                error.args = (_message(name, error),)
            raise
        except IndexError as error:
            raise ArrayIndexError(_message(name, error)) from error
        except np.linalg.LinAlgError as error:
            raise MatrixError(_message(name, error)) from error
        except ValueError as error:
            raise InputError(_message(name, error)) from error
        except (TypeError, AttributeError) as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise  # arguments that the function does not have: Python's message names it
            raise SettingError(_message(name, error)) from error

    return call


def _message(name: str, error: Exception) -> str:
    """What the error says, with this name in front, or in place of the name in front."""
    return f"{name}: {_CALLED.sub('', str(error), count=1) if _CALLED.match(str(error)) else error}"
