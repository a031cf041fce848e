"""Cells on Symbols that hold other cells: stacks, both directions, dropout, zoneout, residual connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hybrid_lab import symbol as sym
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.gluon.rnn.sequence import axes_of, is_tensor, steps_of
from hybrid_lab.ndarray import NDArray
from hybrid_lab.symbol import Symbol

from .base import BaseRNNCell, F, RNNParams, StateInfo, Unrolled, Weights, given_steps, in_form


class CellOfCells(BaseRNNCell):
    """Base: its states are the states of its cells, in their order, and its variables are theirs."""

    def __init__(self, params: RNNParams | None) -> None:
        super().__init__(prefix="", params=params)
        self._override_cell_params = params is not None
        self._cells = []

    def _take(self, cell: BaseRNNCell) -> None:
        """Add a cell. Raises HybridLabError if both it and this cell were given `params`."""
        if self._override_cell_params:
            if not cell._own_params:
                raise HybridLabError(f"give params to the {type(self).__name__} or to its cells, not to both")
            cell.params._params.update(self._params._params)
        self._cells.append(cell)
        self._params._params.update(cell.params._params)

    @property
    def state_info(self) -> list[StateInfo]:
        return [info for cell in self._cells for info in cell.state_info]

    def begin_state(self, func: Callable[..., Any] = sym.zeros, **kwargs: Any) -> list[Any]:
        self._refuse_modified()
        return [state for cell in self._cells for state in cell.begin_state(func, **kwargs)]

    def _zero_state(self, x: Symbol, batch: int = 0) -> list[Any]:
        self._refuse_modified()
        return [state for cell in self._cells for state in cell._zero_state(x, batch)]

    def unpack_weights(self, args: Mapping[str, NDArray]) -> Weights:
        unpacked = dict(args)
        for cell in self._cells:
            unpacked = cell.unpack_weights(unpacked)
        return unpacked

    def pack_weights(self, args: Mapping[str, NDArray]) -> Weights:
        packed = dict(args)
        for cell in self._cells:
            packed = cell.pack_weights(packed)
        return packed


class SequentialRNNCell(CellOfCells):
    """Cells on top of one another. params : variables that the cells share"""

    def __init__(self, params: RNNParams | None = None) -> None:
        super().__init__(params)

    def add(self, cell: BaseRNNCell) -> None:
        """Put a cell on top: its inputs are the outputs of the cell below."""
        self._take(cell)

    def __call__(self, inputs: Any, states: list[Any]) -> Any:
        self._counter += 1
        states, after = list(states), []
        for cell in self._cells:
            count = len(cell.state_info)
            inputs, new = cell(inputs, states[:count])
            states = states[count:]
            after.extend(new)
        return inputs, after

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: list[Any] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> Unrolled:
        """See BaseRNNCell. Each cell runs over the whole sequence before the next one does."""
        self.reset()
        after: list[Any] = []
        for number, cell in enumerate(self._cells):
            count = len(cell.state_info)
            states = None if begin_state is None else begin_state[:count]
            begin_state = None if begin_state is None else begin_state[count:]
            wanted = merge_outputs if number + 1 == len(self._cells) else None
            inputs, new = cell.unroll(length, inputs, states, layout, wanted)
            after.extend(new)
        return inputs, after


class DropoutCell(BaseRNNCell):
    """Dropout of the inputs; no state. dropout : probability of a zero

    Unrolled over one Symbol it draws one mask for all steps together.
    """

    def __init__(self, dropout: float, prefix: str = "dropout_", params: RNNParams | None = None) -> None:
        super().__init__(prefix, params)
        self.dropout = dropout

    @property
    def state_info(self) -> list[StateInfo]:
        return []

    def __call__(self, inputs: Any, states: list[Any]) -> Any:
        return (F.Dropout(inputs, p=self.dropout) if self.dropout > 0 else inputs), states

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: list[Any] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> Unrolled:
        """See BaseRNNCell."""
        self.reset()
        inputs = in_form(length, inputs, layout, merge_outputs)
        if is_tensor(inputs):
            whole: Unrolled = self(inputs, [])
            return whole
        return super().unroll(length, inputs, begin_state or [], layout, merge_outputs)


class ModifierCell(BaseRNNCell):
    """Base of cells that wrap another one, `base_cell`, and share its variables and states."""

    def __init__(self, base_cell: BaseRNNCell) -> None:
        super().__init__()
        base_cell._modified = True
        self.base_cell = base_cell

    @property
    def params(self) -> RNNParams:
        """The variables of the wrapped cell."""
        self._own_params = False
        return self.base_cell.params

    @property
    def state_info(self) -> list[StateInfo]:
        return self.base_cell.state_info

    def reset(self) -> None:
        super().reset()
        if hasattr(self, "base_cell"):
            self.base_cell.reset()

    def begin_state(self, func: Callable[..., Any] = sym.zeros, **kwargs: Any) -> list[Any]:
        """See BaseRNNCell. MXNet's name of `func` here, `init_sym`, is understood too."""
        self._refuse_modified()
        func = kwargs.pop("init_sym", func)
        states: list[Any] = self._unmodified(lambda: self.base_cell.begin_state(func, **kwargs))
        return states

    def _zero_state(self, x: Symbol, batch: int = 0) -> list[Any]:
        self._refuse_modified()
        states: list[Any] = self._unmodified(lambda: self.base_cell._zero_state(x, batch))
        return states

    def _unmodified(self, call: Callable[[], Any]) -> Any:
        """Call a method of the wrapped cell, which refuses calls by others than its wrapper."""
        self.base_cell._modified = False
        try:
            return call()
        finally:
            self.base_cell._modified = True

    def unpack_weights(self, args: Mapping[str, NDArray]) -> Weights:
        return self.base_cell.unpack_weights(args)

    def pack_weights(self, args: Mapping[str, NDArray]) -> Weights:
        return self.base_cell.pack_weights(args)


class ZoneoutCell(ModifierCell):
    """In training, elements of output and states keep their value of the step before, with the given probabilities
    (arXiv 1606.01305).
    """

    def __init__(self, base_cell: BaseRNNCell, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0) -> None:
        if not base_cell._has_steps:
            kind = type(base_cell).__name__
            raise HybridLabError(f"a {kind} has no steps to zone out; apply ZoneoutCell to single cells")
        super().__init__(base_cell)
        self.zoneout_outputs, self.zoneout_states = zoneout_outputs, zoneout_states

    def reset(self) -> None:
        super().reset()
        self.prev_output = None

    prev_output: Any

    def __call__(self, inputs: Any, states: list[Any]) -> Any:
        output, after = self.base_cell(inputs, states)
        if self.zoneout_outputs:
            before = F.zeros_like(output) if self.prev_output is None else self.prev_output
            output = _mixed(self.zoneout_outputs, output, before)
        if self.zoneout_states:
            after = [_mixed(self.zoneout_states, new, old) for new, old in zip(after, states, strict=True)]
        self.prev_output = output
        return output, after


def _mixed(rate: float, new: Symbol, old: Symbol) -> Any:
    """The new value if a dropout mask keeps it, else the old one."""
    return F.where(F.Dropout(F.ones_like(new), p=rate), new, old)


class ResidualCell(ModifierCell):
    """Adds the input to the output of the wrapped cell (arXiv 1609.08144); both have the same size."""

    def __call__(self, inputs: Any, states: list[Any]) -> Any:
        output, states = self.base_cell(inputs, states)
        return _added(output, inputs), states

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: list[Any] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> Unrolled:
        """See BaseRNNCell."""
        self.reset()
        outputs, states = self._unmodified(
            lambda: self.base_cell.unroll(length, inputs, begin_state, layout, merge_outputs)
        )
        merge = is_tensor(outputs) if merge_outputs is None else merge_outputs
        inputs = in_form(length, inputs, layout, merge)
        if merge:
            return _added(outputs, inputs), states
        return [_added(output, step) for output, step in zip(outputs, inputs, strict=True)], states


def _added(output: Any, inputs: Symbol) -> Any:
    return F.elemwise_add(output, inputs, name=f"{output.name}_plus_residual")


class BidirectionalCell(CellOfCells):
    """One cell runs forwards and one backwards over the sequence; their outputs are joined. It can only be unrolled.

    params : variables that both cells share; output_prefix : begins the names of the outputs
    """

    _has_steps = False

    def __init__(
        self,
        l_cell: BaseRNNCell,
        r_cell: BaseRNNCell,
        params: RNNParams | None = None,
        output_prefix: str = "bi_",
    ) -> None:
        super().__init__(params)
        self._output_prefix = output_prefix
        self._take(l_cell)
        self._take(r_cell)

    def __call__(self, inputs: Any, states: Any) -> Any:
        raise NotImplementedError("a BidirectionalCell cannot be stepped; call unroll(length, inputs)")

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: list[Any] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> Unrolled:
        """See BaseRNNCell. The states are two lists: one for each direction."""
        self.reset()
        axis, _ = axes_of(layout)
        steps = given_steps(length, inputs, layout)
        forwards, turned = self._cells
        count = len(forwards.state_info)
        first, second = (None, None) if begin_state is None else (begin_state[:count], begin_state[count:])
        left, left_states = forwards.unroll(length, steps, first, layout, merge_outputs)
        right, right_states = turned.unroll(length, steps[::-1], second, layout, merge_outputs)
        merge = is_tensor(left) and is_tensor(right) if merge_outputs is None else merge_outputs
        states = [left_states, right_states]
        if merge:
            right = F.reverse(right, axis=axis)
            return F.Concat(left, right, dim=2, name=f"{self._output_prefix}out"), states
        left, right = steps_of(length, left, layout), steps_of(length, right, layout)[::-1]
        outputs = [
            F.Concat(one, other, dim=1, name=f"{self._output_prefix}t{number}")
            for number, (one, other) in enumerate(zip(left, right, strict=True))
        ]
        return outputs, states
