"""Updater: an optimizer together with the states of the weights it updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray import array as nd_array

from .fused import FusedUpdate
from .optimizer import Optimizer
from .saved_states import pack, unpack


class Updater:
    """`updater(index, grad, weight)` changes the weight; states are made when an index is first seen.

    fused : the update of many weights at once, and why it is not used if it is not
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.states: dict[Any, Any] = {}
        self.fused = FusedUpdate(optimizer)

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        """Update one weight, or several at once if all three are lists."""
        if not isinstance(index, (list, tuple)):
            index, grad, weight = [index], [grad], [weight]
        if not weight:
            return
        self.optimizer._set_current_context(weight[0].ctx.device_id)
        for i, w in zip(index, weight, strict=True):
            if i not in self.states:
                self.states[i] = self.optimizer.create_state_multi_precision(i, w)
        if self.fused(index, grad, weight, self.states):
            return
        for i, g, w in zip(index, grad, weight, strict=True):
            self.optimizer.update_multi_precision(i, w, g, self.states[i])

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """All states, and how often each weight was updated, as bytes for a file.

        dump_optimizer : the optimizer's settings too
        """
        check_switches("Updater.get_states", dump_optimizer=dump_optimizer)
        return pack(self.optimizer, self.states, dump_optimizer)

    def set_states(self, states: bytes) -> None:
        """Take over what `get_states` gave. Raises ArchiveError for other bytes, such as a pickle of MXNet."""
        self.states = unpack(self.optimizer, states)

    def get_arrays(self) -> dict[str, np.ndarray]:
        """All states as NumPy arrays, named `<index>.<place>`: `0.0`, `0.1`; a nested state `0.1.0`."""
        arrays: dict[str, np.ndarray] = {}
        for index, state in self.states.items():
            _flatten(str(index), state, arrays)
        return arrays

    def set_arrays(self, arrays: Mapping[str, np.ndarray], weights: Mapping[Any, Any]) -> None:
        """Take over states that `get_arrays` gave, for the weights (NDArrays) by index.

        Raises KeyError for a missing state.
        """
        states = {}
        for index, weight in weights.items():
            state = self.optimizer.create_state_multi_precision(index, weight)
            states[index] = _refill(str(index), state, arrays)
        self.states = states


def get_updater(optimizer: Optimizer) -> Updater:
    """A new Updater of this optimizer."""
    return Updater(optimizer)


def _flatten(name: str, state: object, arrays: dict[str, np.ndarray]) -> None:
    if isinstance(state, NDArray):
        arrays[name] = state.asnumpy()
    elif isinstance(state, (list, tuple)):
        for number, each in enumerate(state):
            _flatten(f"{name}.{number}", each, arrays)


def _refill(name: str, state: object, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(state, NDArray):
        return nd_array(arrays[name], ctx=state.ctx, dtype=state.dtype)
    if isinstance(state, Sequence):
        return tuple(_refill(f"{name}.{number}", each, arrays) for number, each in enumerate(state))
    return state
