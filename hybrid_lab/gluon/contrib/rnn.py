"""More recurrent cells: convolutional cells, one dropout mask for all steps, an LSTM with a projected state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

from ..nn.conv import window
from ..nn.registry import layer
from ..rnn.cell import (
    ElmanStep,
    GatedCell,
    GRUStep,
    HybridRecurrentCell,
    LSTMStep,
    RecurrentCell,
    StateInfo,
    Unrolling,
)
from ..rnn.modifier import ModifierCell
from ..rnn.sequence import Step, axes_of, functions_of, masked, merged, steps_of
from ..rnn.steps import Activation, StepNames, lstm_step

if TYPE_CHECKING:  # else they would be names of this public module
    from hybrid_lab.gluon.parameter_dict import ParameterDict
    from hybrid_lab.initializer import InitializerLike
    from hybrid_lab.ops.framework.protocols import Functions, Tensor

__all__ = [
    "Conv1DGRUCell",
    "Conv1DLSTMCell",
    "Conv1DRNNCell",
    "Conv2DGRUCell",
    "Conv2DLSTMCell",
    "Conv2DRNNCell",
    "Conv3DGRUCell",
    "Conv3DLSTMCell",
    "Conv3DRNNCell",
    "LSTMPCell",
    "VariationalDropoutCell",
    "dynamic_unroll",
]


@layer
class VariationalDropoutCell(ModifierCell):
    """Dropout whose masks are the same at all steps of a sequence (arXiv 1512.05287).

    drop_inputs, drop_states, drop_outputs : probabilities of a zero; of the states only the first is dropped
    The masks are kept between calls until `reset()`; in a graph they are known within `unroll` only. A hybridized cell
    that is called or unrolled on arrays runs eagerly, its base cell as a graph.
    """

    def __init__(
        self,
        base_cell: RecurrentCell,
        drop_inputs: float = 0.0,
        drop_states: float = 0.0,
        drop_outputs: float = 0.0,
    ) -> None:
        super().__init__(base_cell)
        self.drop_inputs, self.drop_states, self.drop_outputs = drop_inputs, drop_states, drop_outputs
        self.reset()

    def _alias(self) -> str:
        return "vardrop"

    def reset(self) -> None:
        super().reset()
        object.__setattr__(self, "_masks", {})

    _masks: dict[str, Any]

    def _dropped(self, F: Functions, what: str, rate: float, x: Tensor) -> Tensor:
        if not rate:
            return x
        if what not in self._masks:
            self._masks[what] = F.Dropout(F.ones_like(x), p=rate)
        return x * self._masks[what]

    def hybrid_forward(self, F: Functions, x: Tensor, states: list[Tensor]) -> Step:
        self._check_earlier_steps("Variational dropout needs the masks of the first step")
        states = [self._dropped(F, "states", self.drop_states, states[0]), *states[1:]]
        output, states = self.base_cell(self._dropped(F, "inputs", self.drop_inputs, x), states)
        return self._dropped(F, "outputs", self.drop_outputs, output), states

    def _unroll(self, call: Unrolling) -> tuple[Any, list[Tensor]]:
        """Inputs and outputs are dropped as whole sequences if no state is dropped."""
        length, inputs, begin_state, layout, merge_outputs, valid_length = call
        if self.drop_states:
            try:
                return super()._unroll(call)
            finally:
                self.reset()
        axes = (layout.index("T"),)
        whole = merged(inputs, layout)
        F = functions_of(whole)
        if self.drop_inputs:
            whole = F.Dropout(whole, p=self.drop_inputs, axes=axes)
        outputs, states = self._unmodified(
            lambda: self.base_cell.unroll(length, whole, begin_state, layout, True, valid_length)
        )
        if self.drop_outputs:
            outputs = F.Dropout(outputs, p=self.drop_outputs, axes=axes)
        if valid_length is not None:
            outputs = masked(outputs, valid_length, layout)
        return (steps_of(length, outputs, layout) if merge_outputs is False else outputs), states


@layer
class LSTMPCell(HybridRecurrentCell):
    """An LSTM whose output and first state are projected to fewer units (arXiv 1402.1128).

    hidden_size : units H of the cell state; projection_size : units P of the output; input_size : 0 takes it from the
    first batch
    i2h_weight : (4 H, input_size); h2h_weight : (4 H, P); h2r_weight : (P, H); i2h_bias, h2h_bias : (4 H,)
    States: (N, P) and (N, H).
    """

    def __init__(
        self,
        hidden_size: int,
        projection_size: int,
        i2h_weight_initializer: InitializerLike | None = None,
        h2h_weight_initializer: InitializerLike | None = None,
        h2r_weight_initializer: InitializerLike | None = None,
        i2h_bias_initializer: InitializerLike = "zeros",
        h2h_bias_initializer: InitializerLike = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: ParameterDict | None = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._hidden_size, self._projection_size = hidden_size, projection_size
        rows = 4 * hidden_size
        self._declare(
            i2h_weight=((rows, input_size), i2h_weight_initializer),
            h2h_weight=((rows, projection_size), h2h_weight_initializer),
            h2r_weight=((projection_size, hidden_size), h2r_weight_initializer),
            i2h_bias=((rows,), i2h_bias_initializer),
            h2h_bias=((rows,), h2h_bias_initializer),
        )

    i2h_weight: Any

    def _alias(self) -> str:
        return "lstmp"

    def state_info(self, batch_size: int = 0) -> list[StateInfo]:
        return [
            {"shape": (batch_size, units), "__layout__": "NC"} for units in (self._projection_size, self._hidden_size)
        ]

    def hybrid_forward(self, F: Functions, x: Tensor, states: list[Tensor], **params: Tensor) -> Step:
        def act(kind: str) -> Activation:
            return lambda data, name: F.Activation(data, act_type=kind, name=name)

        names, rows = StepNames(f"t{max(self._counter, 0)}_", inner=False), 4 * self._hidden_size
        i2h = F.FullyConnected(x, params["i2h_weight"], params["i2h_bias"], num_hidden=rows, name=names.part("i2h"))
        h2h = F.FullyConnected(
            states[0], params["h2h_weight"], params["h2h_bias"], num_hidden=rows, name=names.part("h2h")
        )
        h, c = lstm_step(F, i2h, h2h, states[1], act("sigmoid"), act("tanh"), act("tanh"), names, out="hidden")
        output = F.FullyConnected(
            h, params["h2r_weight"], no_bias=True, num_hidden=self._projection_size, name=names.out
        )
        return output, [output, c]

    def __repr__(self) -> str:
        rows, columns = self.i2h_weight.shape or (0, 0)
        return f"{type(self).__name__}({columns or None} -> {rows} -> {self._projection_size})"


class _Convolved(GatedCell):
    """Base of the convolutional cells: convolutions of input and state instead of products (arXiv 1506.04214).

    input_shape : (channels, ...) of one input without its batch; hidden_channels : of output and states
    i2h_kernel, i2h_pad, i2h_dilate : the input's convolution; h2h_kernel (odd), h2h_dilate : the state's, padded so
    that its extent stays
    activation : 'relu', 'tanh', 'sigmoid', 'softrelu' or 'softsign'
    i2h_weight : (gates * hidden_channels, channels, *i2h_kernel); h2h_weight : (gates * hidden_channels,
    hidden_channels, *h2h_kernel); i2h_bias, h2h_bias : (gates * hidden_channels,)
    """

    _rank = 2
    _inner_names = False

    def __init__(
        self,
        input_shape: Sequence[int],
        hidden_channels: int,
        i2h_kernel: int | Sequence[int],
        h2h_kernel: int | Sequence[int],
        i2h_pad: int | Sequence[int] = 0,
        i2h_dilate: int | Sequence[int] = 1,
        h2h_dilate: int | Sequence[int] = 1,
        i2h_weight_initializer: InitializerLike | None = None,
        h2h_weight_initializer: InitializerLike | None = None,
        i2h_bias_initializer: InitializerLike = "zeros",
        h2h_bias_initializer: InitializerLike = "zeros",
        conv_layout: str | None = None,
        activation: str = "tanh",
        prefix: str | None = None,
        params: ParameterDict | None = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        name, rank = type(self).__name__, self._rank
        layout = "NC" + "DHW"[3 - rank :]
        if conv_layout not in (None, layout):
            raise HybridLabError(f"{name}: conv_layout={conv_layout!r}; only {layout!r} is supported")
        if len(input_shape) != rank + 1:
            raise HybridLabError(f"{name}: input_shape={tuple(input_shape)}; {layout[1:]} is needed, {rank + 1} sizes")
        self._layout, self._channels, self._activation = layout, hidden_channels, activation
        self._input_shape = tuple(input_shape)
        i2h, pad, dilate = (self._sizes(item) for item in (i2h_kernel, i2h_pad, i2h_dilate))
        h2h, spread = self._sizes(h2h_kernel), self._sizes(h2h_dilate)
        if any(size % 2 == 0 for size in h2h):
            raise HybridLabError(f"{name}: h2h_kernel={h2h}; the sizes must be odd, so that the state keeps its size")
        self._i2h = {"kernel": i2h, "pad": pad, "dilate": dilate}
        self._h2h = {
            "kernel": h2h,
            "pad": tuple(step * (size - 1) // 2 for size, step in zip(h2h, spread, strict=True)),
            "dilate": spread,
        }
        self._extent = tuple(
            size + 2 * p - d * (k - 1) for size, k, p, d in zip(input_shape[1:], i2h, pad, dilate, strict=True)
        )
        weights, biases = (i2h_weight_initializer, h2h_weight_initializer), (i2h_bias_initializer, h2h_bias_initializer)
        self._declare_gates(hidden_channels, (input_shape[0], *i2h), (hidden_channels, *h2h), *weights, *biases)

    def _sizes(self, item: int | Sequence[int]) -> tuple[int, ...]:
        return window(item, self._rank, type(self).__name__)

    def _alias(self) -> str:
        return f"conv_{self._short_name}"

    def state_info(self, batch_size: int = 0) -> list[StateInfo]:
        shape = (batch_size, self._channels, *self._extent)
        return [{"shape": shape, "__layout__": self._layout} for _ in range(self._num_states)]

    def _projections(
        self, F: Functions, inputs: Tensor, state: Tensor, params: dict[str, Tensor], names: StepNames
    ) -> tuple[Tensor, Tensor]:
        rows, i2h, h2h = self._gates * self._channels, names.part("i2h"), names.part("h2h")
        return (
            F.Convolution(inputs, params["i2h_weight"], params["i2h_bias"], num_filter=rows, name=i2h, **self._i2h),
            F.Convolution(state, params["h2h_weight"], params["h2h_bias"], num_filter=rows, name=h2h, **self._h2h),
        )

    def __repr__(self) -> str:
        rows = self._gates * self._channels
        return f"{type(self).__name__}({self._input_shape[0]} -> {rows}, {self._activation}, {self._layout})"


@layer
class Conv1DRNNCell(ElmanStep, _Convolved):
    """An Elman cell over sequences of (N, C, W)."""

    _rank = 1


@layer
class Conv2DRNNCell(ElmanStep, _Convolved):
    """An Elman cell over sequences of images, (N, C, H, W)."""


@layer
class Conv3DRNNCell(ElmanStep, _Convolved):
    """An Elman cell over sequences of volumes, (N, C, D, H, W)."""

    _rank = 3


@layer
class Conv1DLSTMCell(LSTMStep, _Convolved):
    """An LSTM cell over sequences of (N, C, W)."""

    _rank = 1


@layer
class Conv2DLSTMCell(LSTMStep, _Convolved):
    """An LSTM cell over sequences of images, (N, C, H, W)."""


@layer
class Conv3DLSTMCell(LSTMStep, _Convolved):
    """An LSTM cell over sequences of volumes, (N, C, D, H, W)."""

    _rank = 3


@layer
class Conv1DGRUCell(GRUStep, _Convolved):
    """A GRU cell over sequences of (N, C, W)."""

    _rank = 1


@layer
class Conv2DGRUCell(GRUStep, _Convolved):
    """A GRU cell over sequences of images, (N, C, H, W)."""


@layer
class Conv3DGRUCell(GRUStep, _Convolved):
    """A GRU cell over sequences of volumes, (N, C, D, H, W)."""

    _rank = 3


def dynamic_unroll(
    cell: RecurrentCell,
    inputs: Any,
    begin_state: Any,
    drop_inputs: float = 0.0,
    drop_outputs: float = 0.0,
    layout: str = "TNC",
    valid_length: Tensor | None = None,
) -> tuple[Any, Any]:
    """Run a cell over a sequence by one loop, `F.contrib.foreach`: in a graph its size does not grow with the sequence.

    inputs : one tensor in `layout`, 'TNC' (which needs no transposes) or 'NTC'
    begin_state : a tensor, or a list of tensors
    drop_inputs, drop_outputs : probabilities of a zero, with one mask for all steps
    valid_length : (N,) lengths of the sequences; outputs behind a sequence's end are 0 and its states stay
    returns : the outputs in `layout`, and the states after the last step
    """
    F, time = functions_of(inputs), axes_of(layout)[0]
    if time:
        inputs = F.SwapAxis(inputs, dim1=0, dim2=time)
    if drop_inputs:
        inputs = F.Dropout(inputs, p=drop_inputs, axes=(0,))
    if valid_length is None:
        outputs, states = F.contrib.foreach(cell, inputs, begin_state)
    else:
        outputs, states = _over_lengths(F, cell, inputs, begin_state, valid_length)
    if drop_outputs:
        outputs = F.Dropout(outputs, p=drop_outputs, axes=(0,))
    if valid_length is not None:
        outputs = F.SequenceMask(outputs, valid_length, use_sequence_length=True, axis=0)
    return (F.SwapAxis(outputs, dim1=0, dim2=time) if time else outputs), states


def _over_lengths(F: Any, cell: RecurrentCell, inputs: Any, begin_state: Any, valid_length: Tensor) -> tuple[Any, Any]:
    """The outputs of all steps, and each state at the last step of its sequence."""
    single = not isinstance(begin_state, (list, tuple))
    before = [begin_state] if single else list(begin_state)
    step_number = F.zeros_like(F.slice_axis(valid_length, axis=0, begin=0, end=1))

    def step(entry: Tensor, states: list[Tensor]) -> Step:
        *old, number = states
        output, new = cell(entry, old[0] if single else old)
        new = [new] if single else new
        goes_on = F.broadcast_greater(valid_length, number)
        kept = [F.where(goes_on, one, other) for one, other in zip(new, old, strict=True)]
        return output, [*kept, number + 1]

    outputs, (*states, _) = F.contrib.foreach(step, inputs, [*before, step_number])
    return outputs, states[0] if single else states


_suggest_names(__name__)
