"""`net.compile(inputs)`: parameters get their values, and graphs are made, before the first step of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hybrid_lab.ndarray import NDArray, tape
from hybrid_lab.ndarray.random_state import state as random_state

from . import access
from .hybrid import HybridBlock

if TYPE_CHECKING:
    from .block import Block


def complete(block: Block, inputs: object, is_train: bool, use_graph: bool) -> None:
    """Initialize parameters without values, switch graphs on or off, and call the Block on the inputs.

    States and random numbers are as before afterwards: the calls leave no running statistics behind.
    """
    from .ahead import arguments, weight_dtype

    given = arguments(inputs, weight_dtype(block))
    for parameter in block.collect_params().values():
        if access.arrays(parameter) is None and access.deferred_init(parameter) is None:
            parameter.initialize()
    switch(block, use_graph)
    with random_state.preserved(), tape.Mode(False, False):
        block(*given)
    if not is_train:
        return
    states = [each for each in block.collect_params().values() if each.grad_req == "null"]
    before: list[list[NDArray]] = [[array.copy() for array in access.arrays(each) or ()] for each in states]
    try:
        with random_state.preserved(), tape.Mode(True, True):
            block(*given)
    finally:
        for parameter, arrays in zip(states, before, strict=True):
            for array, values in zip(access.arrays(parameter) or (), arrays, strict=True):
                array[:] = values


def switch(block: Block, on: bool) -> None:
    """Hybridize the outermost HybridBlocks, or switch them off; a Block already in that state keeps its flags."""
    if isinstance(block, HybridBlock):
        if bool(access.is_active(block)) is not on:
            block.hybridize(on)
        return
    for child in access.children(block).values():
        switch(child, on)
