"""SequentialRNNCell and HybridSequentialRNNCell: cells on top of one another."""

from __future__ import annotations

from typing import Any

from hybrid_lab.ops.framework.protocols import Functions, Tensor

from ..nn.container import Stack
from ..nn.registry import layer
from .cell import CellOfCells, HybridRecurrentCell, Unrolling
from .sequence import Step, axes_of, is_tensor, steps_of


class _Stack(Stack, CellOfCells):
    """Base of both: containers of cells."""

    _is_container = False

    def _step(self, inputs: Tensor, states: list[Tensor]) -> Step:
        states, after = list(states), []
        for cell in self._cells:
            count = len(cell.state_info())
            inputs, new = cell(inputs, states[:count])
            states = states[count:]
            after.extend(new)
        return inputs, after

    def _unroll(self, call: Unrolling) -> tuple[Any, list[Tensor]]:
        """Each cell runs over the whole sequence before the next one does."""
        length, inputs, begin_state, layout, merge_outputs, valid_length = call
        if begin_state is not None:
            states = list(begin_state)
        elif is_tensor(inputs):
            states = self.zero_state(inputs, axes_of(layout)[1])
        else:
            states = self.zero_state(steps_of(length, inputs, layout)[0])
        after = []
        for number, cell in enumerate(self._cells):
            count = len(cell.state_info())
            wanted = merge_outputs if number == len(self._cells) - 1 else None
            inputs, new = cell.unroll(length, inputs, states[:count], layout, wanted, valid_length)
            states = states[count:]
            after.extend(new)
        return inputs, after


@layer
class SequentialRNNCell(_Stack):
    """Cells on top of one another; they may be plain RecurrentCells."""

    def forward(self, inputs: Tensor, states: list[Tensor]) -> Step:
        return self._step(inputs, states)


@layer
class HybridSequentialRNNCell(_Stack, HybridRecurrentCell):
    """Hybrid cells on top of one another; hybridized, a step becomes one graph."""

    def hybrid_forward(self, F: Functions, inputs: Tensor, states: list[Tensor]) -> Step:
        return self._step(inputs, states)
