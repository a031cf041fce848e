"""Checks of saved positions of iterators, which may come from a file."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics import HybridLabError


def whole_numbers(state: Mapping[str, Any], names: Sequence[str], most: int | None = None) -> list[int]:
    """The named entries, whole numbers from 0 to `most`. Raises HybridLabError for anything else."""
    numbers = [state.get(name) for name in names]
    if not all(type(each) is int and 0 <= each and (most is None or each <= most) for each in numbers):
        raise HybridLabError(f"this is not a saved position of an iterator: {', '.join(names)}")
    return numbers  # type: ignore[return-value]


def same_entries(saved: object, own: Sequence[Any]) -> list[Any]:
    """Saved entries, which must be the iterator's own entries in any order. Raises HybridLabError for other entries."""
    entries = saved.tolist() if isinstance(saved, np.ndarray) else list(saved) if isinstance(saved, list) else None
    if entries is None or sorted(entries, key=repr) != sorted(own, key=repr):
        raise HybridLabError("this is a saved position of an iterator over other samples")
    return entries


def generator_at(state: object) -> np.random.Generator:
    """A NumPy generator in this state of its bit generator. Raises HybridLabError for anything else."""
    generator = np.random.default_rng(0)
    try:
        generator.bit_generator.state = state  # type: ignore[assignment]
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise HybridLabError("this is not a saved position of a shuffled iterator") from error
    return generator


def random_state(saved: object) -> tuple[Any, Any]:
    """The states of Python's and NumPy's random numbers. Raises HybridLabError for anything else."""
    if not isinstance(saved, (tuple, list)) or len(saved) != 2:
        raise HybridLabError("this is not a saved position of an iterator that draws random numbers")
    of_python: Any = _tuples(saved[0])
    try:
        of_numpy: Any = saved[1] if isinstance(saved[1], dict) else tuple(saved[1])
        random.Random().setstate(of_python)
        np.random.RandomState().set_state(of_numpy)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise HybridLabError("this is not a saved position of an iterator that draws random numbers") from error
    return of_python, of_numpy


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value
