"""Cells that change the results of other cells: dropout, zoneout, residual connections, both directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.hybridize_error import hybridize_error
from hybrid_lab.gluon.parameter_dict import ParameterDict
from hybrid_lab.ops.framework.protocols import Functions, Tensor
from hybrid_lab.symbol import tracing

from ..nn.registry import layer
from .cell import CellOfCells, HybridRecurrentCell, RecurrentCell, StateInfo, Unrolling
from .sequence import Step, backwards, functions_of, is_tensor, masked, merged, steps_of


@layer
class DropoutCell(HybridRecurrentCell):
    """Dropout of the inputs; no state. rate : probability of a zero; axes : along which one mask is shared.

    Unrolled over one tensor it draws one mask for all steps together.
    """

    def __init__(
        self, rate: float, axes: tuple[int, ...] = (), prefix: str | None = None, params: ParameterDict | None = None
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._rate, self._axes = rate, tuple(axes)

    def _alias(self) -> str:
        return "dropout"

    def state_info(self, batch_size: int = 0) -> list[StateInfo]:
        return []

    def hybrid_forward(self, F: Functions, inputs: Tensor, states: list[Tensor]) -> Step:
        return self._dropped(F, inputs), list(states)

    def _dropped(self, F: Functions, inputs: Tensor) -> Tensor:
        return (
            F.Dropout(inputs, p=self._rate, axes=self._axes, name=f"t{self._counter}_fwd") if self._rate > 0 else inputs
        )

    def _unroll(self, call: Unrolling) -> tuple[Any, list[Tensor]]:
        length, inputs, begin_state, layout, merge_outputs, valid_length = call
        if merge_outputs is not None:
            inputs = merged(inputs, layout) if merge_outputs else steps_of(length, inputs, layout)
        if is_tensor(inputs):
            return self._dropped(functions_of(inputs), inputs), list(begin_state or [])
        return super()._unroll(Unrolling(length, inputs, begin_state or [], layout, merge_outputs))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rate={self._rate}, axes={self._axes})"


class ModifierCell(HybridRecurrentCell):
    """Base of cells that wrap another one, `base_cell`, and share its parameters and states."""

    def __init__(self, base_cell: RecurrentCell) -> None:
        if base_cell._modified:
            raise HybridLabError(f"{base_cell.name} is wrapped by a modifier cell already; wrap that cell instead")
        super().__init__(prefix=base_cell.prefix + self._alias(), params=None)
        object.__setattr__(base_cell, "_modified", True)
        self.base_cell = base_cell

    base_cell: Any

    def _alias(self) -> str:
        return "modifier"

    @property
    def params(self) -> Any:
        """The parameters of the wrapped cell."""
        return self.base_cell.params

    def state_info(self, batch_size: int = 0) -> list[StateInfo]:
        return self.base_cell.state_info(batch_size)

    def begin_state(
        self, batch_size: int = 0, func: Callable[..., Tensor] = nd.zeros, **kwargs: object
    ) -> list[Tensor]:
        self._refuse_modified()
        return self._unmodified(lambda: self.base_cell.begin_state(batch_size, func, **kwargs))

    def zero_state(self, x: object, batch: int = 0) -> list[Tensor]:
        self._refuse_modified()
        return self._unmodified(lambda: self.base_cell.zero_state(x, batch))

    def _unmodified(self, call: Callable[[], object]) -> Any:
        """Call a method of the wrapped cell, which refuses calls by others than its wrapper."""
        object.__setattr__(self.base_cell, "_modified", False)
        try:
            return call()
        finally:
            object.__setattr__(self.base_cell, "_modified", True)

    def _check_earlier_steps(self, need: str) -> None:
        """Raise HybridizeError HL173 if a graph of one step is made: it cannot keep values for the next one. The cell
        then runs eagerly, its base cell as a graph.
        """
        trace = tracing.current()
        if trace is not None and not trace.composes and self._unrolled_in != (trace,):
            error = hybridize_error(
                "HL173",
                None,
                block=self.name,
                message=f"{need}, which a graph of one step lacks.",
                reason="The cell keeps values of a step for the next one; a graph of the whole sequence has them.",
                rewrite="cell.unroll(length, inputs) inside hybrid_forward",
            )
            error.runs_eagerly = True
            raise error

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_cell!r})"


@layer
class ZoneoutCell(ModifierCell):
    """In training, elements of output and states keep their value of the step before, with the given probabilities
    (arXiv 1606.01305).

    The output of the step before is kept between calls until `reset()`; in a graph it is known within `unroll` only. A
    hybridized cell that is called or unrolled on arrays runs eagerly, its base cell as a graph.
    """

    def __init__(self, base_cell: RecurrentCell, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0) -> None:
        if isinstance(base_cell, BidirectionalCell):
            raise HybridLabError("BidirectionalCell has no steps to zone out; apply ZoneoutCell to the cells inside it")
        super().__init__(base_cell)
        self._zoneout_outputs, self._zoneout_states = zoneout_outputs, zoneout_states
        self.reset()

    def _alias(self) -> str:
        return "zoneout"

    def reset(self) -> None:
        super().reset()
        object.__setattr__(self, "_previous", None)

    _previous: Tensor | None

    def hybrid_forward(self, F: Functions, inputs: Tensor, states: list[Tensor]) -> Step:
        output, after = self.base_cell(inputs, states)
        if self._zoneout_states:
            rate = self._zoneout_states
            after = [_mixed(F, rate, new, old) for new, old in zip(after, states, strict=True)]
        if self._zoneout_outputs:
            self._check_earlier_steps("zoneout_outputs needs the output of the previous step")
            before = F.zeros_like(output) if self._previous is None else self._previous
            output = _mixed(F, self._zoneout_outputs, output, before)
            object.__setattr__(self, "_previous", output)
        return output, after

    def _unroll(self, call: Unrolling) -> tuple[Any, list[Tensor]]:
        try:
            return super()._unroll(call)
        finally:
            self.reset()

    def __repr__(self) -> str:
        rates = f"p_out={self._zoneout_outputs}, p_state={self._zoneout_states}"
        return f"{type(self).__name__}({rates}, {self.base_cell!r})"


def _mixed(F: Functions, rate: float, new: Tensor, old: Tensor) -> Tensor:
    """The new value if a dropout mask keeps it, else the old one."""
    return F.where(F.Dropout(F.ones_like(new), p=rate), new, old)


@layer
class ResidualCell(ModifierCell):
    """Adds the input to the output of the wrapped cell (arXiv 1609.08144); both have the same size."""

    def hybrid_forward(self, F: Functions, inputs: Tensor, states: list[Tensor]) -> Step:
        output, states = self.base_cell(inputs, states)
        return F.elemwise_add(output, inputs, name=f"t{max(self._counter, 0)}_fwd"), states

    def _unroll(self, call: Unrolling) -> tuple[Any, list[Tensor]]:
        outputs, states = self._unmodified(lambda: self.base_cell.unroll(*call))
        length, inputs, layout, valid_length = call.length, call.inputs, call.layout, call.valid_length
        add = functions_of(outputs).elemwise_add
        if is_tensor(outputs):
            whole = merged(inputs, layout)
            return add(outputs, whole if valid_length is None else masked(whole, valid_length, layout)), states
        steps = inputs if valid_length is None else masked(inputs, valid_length, layout)
        return [
            add(output, step) for output, step in zip(outputs, steps_of(length, steps, layout), strict=True)
        ], states


@layer
class BidirectionalCell(CellOfCells, HybridRecurrentCell):
    """One cell runs forwards and one backwards over the sequence; their outputs are joined. It can only be unrolled.

    ```python
    cell = gluon.rnn.BidirectionalCell(gluon.rnn.LSTMCell(4), gluon.rnn.LSTMCell(4))
    cell.initialize()
    outputs, states = cell.unroll(5, nd.ones((2, 5, 3)), layout="NTC", merge_outputs=True)
    outputs.shape
    ```
    """

    def __init__(
        self,
        l_cell: RecurrentCell,
        r_cell: RecurrentCell,
        params: ParameterDict | None = None,
        output_prefix: str = "bi_",
    ) -> None:
        super().__init__(prefix="", params=params)
        self.register_child(l_cell, "l_cell")
        self.register_child(r_cell, "r_cell")
        self._output_prefix = output_prefix

    def __call__(self, *args: Any) -> Any:
        raise NotImplementedError("a BidirectionalCell cannot be stepped; call unroll(length, inputs)")

    def _unroll(self, call: Unrolling) -> tuple[Any, list[Tensor]]:
        """With lengths, the backward cell begins at the end of each sequence."""
        length, inputs, begin_state, layout, merge_outputs, valid_length = call
        steps = steps_of(length, inputs, layout)
        states = self._beginning(begin_state, steps)
        forwards, turned = self._cells
        count = len(forwards.state_info())
        left, left_states = forwards.unroll(length, steps, states[:count], layout, merge_outputs, valid_length)
        right, right_states = turned.unroll(
            length, backwards(steps, valid_length), states[count:], layout, False, valid_length
        )
        right = backwards(steps_of(length, right, layout), valid_length)
        F = functions_of(steps)
        if is_tensor(left):
            outputs = F.Concat(left, merged(right, layout), dim=2, name=f"{self._output_prefix}out")
        else:
            outputs = [
                F.Concat(one, other, dim=1, name=f"{self._output_prefix}t{number}")
                for number, (one, other) in enumerate(zip(left, right, strict=True))
            ]
        if valid_length is not None:
            outputs = masked(outputs, valid_length, layout)
            outputs = steps_of(length, outputs, layout) if merge_outputs is False else outputs
        return outputs, [*left_states, *right_states]

    def __repr__(self) -> str:
        forwards, turned = self._cells
        return f"{type(self).__name__}(forward={forwards!r}, backward={turned!r})"
