"""Checks of the arguments of the iterators over image records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

import numpy as np

from hybrid_lab.diagnostics import SettingError

_WHOLE = (int, np.integer)
_NUMBERS = (int, float, np.integer, np.floating)
LONGEST_SIDE = 32767
"""The most rows or columns that an image may be enlarged to. Three channels of such a square are 3 GiB."""


def check_number(name: str, value: object, least: float | None = None, whole: bool = False) -> None:
    """Raise SettingError unless the argument is a number that is not NaN, whole if so asked, and at least `least`."""
    kind = "a whole number" if whole else "a number"
    if not isinstance(value, _WHOLE if whole else _NUMBERS) or value != value:
        raise SettingError(f"{name} must be {kind}, not {value!r}")
    if least is not None and value < least:
        raise SettingError(f"{name} must be {kind} of {least} or more, not {value!r}")


def check_switches(given: Mapping[str, object]) -> None:
    """Raise SettingError unless each of the arguments is a bool, or 0 or 1."""
    for name, value in given.items():
        if not isinstance(value, (bool, np.bool_, *_WHOLE)) or value not in (0, 1):
            raise SettingError(f"{name} must be True or False, not {value!r}")


def check_data_shape(data_shape: object) -> None:
    """Raise SettingError unless data_shape is the shape of one image that an iterator over records can give."""
    sizes = tuple(data_shape) if isinstance(data_shape, (tuple, list)) else ()
    fits = len(sizes) == 3 and all(isinstance(size, _WHOLE) and size > 0 for size in sizes)
    if not fits or sizes[0] not in (1, 3):
        raise SettingError(f"data_shape is (3 or 1, height, width), not {data_shape!r}")


def check_path(name: str, value: object) -> None:
    """Raise SettingError unless the argument is the path of a file."""
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise SettingError(f"{name} must be the path of a file, not {value!r}")


def refuse_unknown(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise SettingError for the first argument that is not known; it names the arguments with the nearest names."""
    names = sorted(known)
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, n=3, cutoff=0.5)
            hint = f"did you mean {', '.join(near)}?" if near else "see its docstring for those that it has"
            raise SettingError(f"{where} has no argument {name!r}; {hint}")
