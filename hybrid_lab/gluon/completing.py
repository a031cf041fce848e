"""`net.compile(inputs)`: parameters get their values, and graphs are made, before the first step of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hybrid_lab.ndarray import NDArray, tape
from hybrid_lab.ndarray.random_state import state as random_state

from . import access

if TYPE_CHECKING:
    from .block import Block


def complete(block: Block, args: tuple[Any, ...], is_train: bool) -> None:
    """Initialize parameters without values, and call the Block with these arguments. is_train : in a recorded call, too

    States and random numbers are as before afterwards: the calls leave no running statistics behind.
    """
    for parameter in block.collect_params().values():
        if access.arrays(parameter) is None and access.deferred_init(parameter) is None:
            parameter.initialize()
    with random_state.preserved(), tape.Mode(False, False):
        block(*args)
    if not is_train:
        return
    states = [each for each in block.collect_params().values() if each.grad_req == "null"]
    before: list[list[NDArray]] = [[array.copy() for array in access.arrays(each) or ()] for each in states]
    try:
        with random_state.preserved(), tape.Mode(True, True):
            block(*args)
    finally:
        for parameter, arrays in zip(states, before, strict=True):
            for array, values in zip(access.arrays(parameter) or (), arrays, strict=True):
                array[:] = values
