"""mx.random: seeds, the state of all random numbers, and the functions of nd.random."""

from __future__ import annotations

from typing import Any

from hybrid_lab.ndarray import random as _arrays
from hybrid_lab.ndarray.random import normal, randint, randn, shuffle, uniform
from hybrid_lab.ndarray.random_state import state as _state

__all__ = ["get_state", "normal", "randint", "randn", "seed", "set_state", "shuffle", "uniform"]

seed = _state.seed
get_state = _state.get_state
set_state = _state.set_state


def __getattr__(name: str) -> Any:
    return getattr(_arrays, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(_arrays)})
