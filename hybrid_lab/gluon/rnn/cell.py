"""Recurrent cells: RNNCell, LSTMCell and GRUCell make one step; `unroll` makes a whole sequence of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, NamedTuple, cast

from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.gluon.parameter_dict import ParameterDict
from hybrid_lab.initializer import InitializerLike
from hybrid_lab.ndarray.numpy_mode import in_mode
from hybrid_lab.ops.framework.protocols import Functions, Tensor
from hybrid_lab.symbol import tracing

from ..block import Block
from ..hybrid import HybridBlock
from ..nn.activation import LeakyReLU
from ..nn.registry import layer
from .sequence import Step, last_states, masked, merged, steps_of, zeros_for
from .steps import Activation, StepNames, activated, elman_step, gru_step, lstm_step

StateInfo = dict[str, Any]
_GATE_PARAMETERS = ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias")


class Unrolling(NamedTuple):
    """The arguments of `RecurrentCell.unroll`."""

    length: int
    inputs: Any
    begin_state: list[Tensor] | None = None
    layout: str = "NTC"
    merge_outputs: bool | None = None
    valid_length: Tensor | None = None


class RecurrentCell(Block):
    """Base of all cells. A subclass defines `state_info(batch_size)` and one step, `forward(inputs, states)`, which
    returns the output and the new states.

    inputs : (N, C); states : list of arrays, (N, units) each
    """

    _modified = False
    _unrolled_in: tuple[object, ...] = ()
    _steps_made = -1
    _states_made = -1

    @property
    def _counter(self) -> int:
        """The number of the step that runs, from 0 on; -1 before the first one. Nodes are named by it."""
        return self._steps_made

    @_counter.setter
    def _counter(self, value: int) -> None:
        object.__setattr__(self, "_steps_made", value)

    def __call__(self, *args: Any) -> Any:
        """Make one step: the output and the new states."""
        self._counter += 1
        return super().__call__(*args)

    def reset(self) -> None:
        """Begin a new sequence: steps are numbered from 0, and values of earlier steps are forgotten. `unroll` calls
        it.
        """
        self._counter = -1
        object.__setattr__(self, "_states_made", -1)
        for cell in self._children.values():
            if isinstance(cell, RecurrentCell):
                cell.reset()

    def state_info(self, batch_size: int = 0) -> list[StateInfo]:
        """{"shape": ..., "__layout__": ...} of every state."""
        raise NotImplementedError(f"{type(self).__name__} does not define state_info()")

    def begin_state(
        self, batch_size: int = 0, func: Callable[..., Tensor] = nd.zeros, **kwargs: object
    ) -> list[Tensor]:
        """The states before the first step.

        func : makes one, `func(name=..., shape=..., **kwargs)`: nd.zeros, nd.ones, sym.var ...; the name,
            `rnn0_begin_state_0`, is given to a function that takes a name
        """
        self._refuse_modified()
        takes_name = "name" in signature(func).parameters
        states = []
        for info in self.state_info(batch_size):
            name = self._next_state_name()
            states.append(in_mode(func(**{"shape": info["shape"], **({"name": name} if takes_name else {}), **kwargs})))
        return states

    def _next_state_name(self) -> str:
        object.__setattr__(self, "_states_made", self._states_made + 1)
        return f"{self.prefix}begin_state_{self._states_made}"

    def _refuse_modified(self) -> None:
        if self._modified:
            raise HybridLabError(
                f"{self.name} is wrapped by a modifier cell (ZoneoutCell, ResidualCell ...); call that cell instead"
            )

    def zero_state(self, x: object, batch: int = 0) -> list[Tensor]:
        """States of zeros for inputs whose batch is axis number `batch` of x, an array or a Symbol."""
        self._refuse_modified()
        return [
            zeros_for(x, info["shape"], batch, info.get("__layout__", "NC").index("N"), self._next_state_name())
            for info in self.state_info(0)
        ]

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: list[Tensor] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Tensor | None = None,
    ) -> tuple[Any, list[Tensor]]:
        """Run `length` steps; returns the outputs and the states after the last one.

        inputs : one tensor in `layout`, or a list of steps, (N, C) each
        begin_state : the states to begin with; None means zeros
        merge_outputs : True gives one tensor, False a list of steps, None the form that needs no conversion
        valid_length : (N,) lengths of the sequences; outputs behind a sequence's end are 0 and its states stay
        """
        self.reset()
        return self._unroll(Unrolling(length, inputs, begin_state, layout, merge_outputs, valid_length))

    def _unroll(self, call: Unrolling) -> tuple[Any, list[Tensor]]:
        """`unroll` after `reset`; subclasses override it."""
        length, inputs, begin_state, layout, merge_outputs, valid_length = call
        steps = steps_of(length, inputs, layout)
        states = self._beginning(begin_state, steps)
        outputs, history = [], []
        with self._unrolled():
            for step in steps:
                output, states = self(step, states)
                outputs.append(output)
                history.append(states)
        return self._finished(outputs, states, history, layout, merge_outputs, valid_length)

    def _beginning(self, begin_state: list[Tensor] | None, steps: Sequence[Any]) -> list[Tensor]:
        return self.zero_state(steps[0]) if begin_state is None else list(begin_state)

    @contextmanager
    def _unrolled(self) -> Iterator[None]:
        """Inside, steps follow one another, on arrays or in one graph: a cell may use values of earlier steps."""
        before = self._unrolled_in
        object.__setattr__(self, "_unrolled_in", (tracing.current(),))
        try:
            yield
        finally:
            object.__setattr__(self, "_unrolled_in", before)

    @staticmethod
    def _finished(
        outputs: list[object],
        states: list[Tensor],
        history: list[list[Tensor]],
        layout: str,
        merge_outputs: bool | None,
        valid_length: object,
    ) -> tuple[Any, list[Tensor]]:
        if valid_length is not None:
            states = last_states(history, valid_length) if states else states
            whole = masked(outputs, valid_length, layout)
            return (steps_of(len(outputs), whole, layout) if merge_outputs is False else whole), states
        return (merged(outputs, layout) if merge_outputs else outputs), states

    def _get_activation(self, F: Functions, inputs: Tensor, activation: Any, name: str | None = None) -> Tensor:
        """`inputs` after an activation: a name, a LeakyReLU, or a function of the inputs."""
        if isinstance(activation, LeakyReLU):
            return F.LeakyReLU(inputs, act_type="leaky", slope=activation._alpha, name=name)
        return activated(F, inputs, activation, name)


class CellOfCells(RecurrentCell):
    """Base of cells that contain cells. Its states are the states of these cells, in their order."""

    @property
    def _cells(self) -> list[RecurrentCell]:
        return cast("list[RecurrentCell]", list(self._children.values()))

    def state_info(self, batch_size: int = 0) -> list[StateInfo]:
        return [info for cell in self._cells for info in cell.state_info(batch_size)]

    def begin_state(
        self, batch_size: int = 0, func: Callable[..., Tensor] = nd.zeros, **kwargs: object
    ) -> list[Tensor]:
        self._refuse_modified()
        return [state for cell in self._cells for state in cell.begin_state(batch_size, func, **kwargs)]

    def zero_state(self, x: object, batch: int = 0) -> list[Tensor]:
        self._refuse_modified()
        return [state for cell in self._cells for state in cell.zero_state(x, batch)]


class HybridRecurrentCell(RecurrentCell, HybridBlock):
    """Base of cells that become graphs. A subclass defines `hybrid_forward(F, inputs, states, **params)`."""

    def _declare(self, **parameters: tuple[tuple[int, ...], object]) -> None:
        """Make parameters, each `name=(shape, initializer)`; a size of 0 is found at the first call."""
        for name, (shape, init) in parameters.items():
            setattr(self, name, self.params.get(name, shape=shape, init=init, allow_deferred_init=True))


class GatedCell(HybridRecurrentCell):
    """Base of cells whose inputs and states contribute to gates.

    One subclass says how they contribute (`_projections`), another how states follow from the gates (`hybrid_forward`);
    a cell inherits from both kinds.
    """

    _gates = 1
    _num_states = 1
    _short_name = "rnn"
    _activation: Any
    _recurrent_activation: Any
    _inner_names = True
    """Whether sums and products inside a step are named."""

    def _declare_gates(self, units: int, i2h: Sequence[int], h2h: Sequence[int], *inits: object) -> None:
        """Make the parameters of all gates.

        i2h, h2h : shapes of a gate's weights for one unit; inits : of i2h_weight, h2h_weight, i2h_bias and h2h_bias
        """
        rows = self._gates * units
        shapes = ((rows, *i2h), (rows, *h2h), (rows,), (rows,))
        self._declare(**dict(zip(_GATE_PARAMETERS, zip(shapes, inits, strict=True), strict=True)))

    def _alias(self) -> str:
        return self._short_name

    def _names(self) -> StepNames:
        """The names of the step that runs."""
        return StepNames(f"t{max(self._counter, 0)}_", self._inner_names)

    def _projections(
        self, F: Functions, inputs: Tensor, state: Tensor, params: dict[str, Tensor], names: StepNames
    ) -> tuple[Tensor, Tensor]:
        """What input and state contribute to the gates: gates * units along axis 1."""
        raise NotImplementedError

    def _activation_of(self, F: Functions, activation: Any) -> Activation:
        """The function for an activation as the user gives it: a name, a LeakyReLU, or a function."""
        return lambda x, name: self._get_activation(F, x, activation, name=name)

    def _as_operator(self, F: Functions, activation: Any) -> Activation:
        """As `_activation_of`, but the operator `Activation` for every name, as in some of MXNet's cells."""
        if not isinstance(activation, str):
            return self._activation_of(F, activation)
        return lambda x, name: F.Activation(x, act_type=activation, name=name)

    def _activate(self, F: Functions) -> Activation:
        """The activation of new values."""
        return self._activation_of(F, self._activation)

    def _gate(self, F: Functions) -> Activation:
        """The activation of a gate, between 0 and 1."""
        return self._as_operator(F, "sigmoid")


class ElmanStep(GatedCell):
    """h' = activation(i2h + h2h)."""

    def hybrid_forward(self, F: Functions, x: Tensor, states: list[Tensor], **params: Tensor) -> Step:
        names = self._names()
        i2h, h2h = self._projections(F, x, states[0], params, names)
        output = elman_step(F, i2h, h2h, self._activate(F), names)
        return output, [output]


class LSTMStep(GatedCell):
    """c' = f c + i g, h' = o activation(c')."""

    _gates, _num_states, _short_name = 4, 2, "lstm"

    def hybrid_forward(self, F: Functions, x: Tensor, states: list[Tensor], **params: Tensor) -> Step:
        names = self._names()
        i2h, h2h = self._projections(F, x, states[0], params, names)
        h, c = lstm_step(F, i2h, h2h, states[1], self._gate(F), self._activate(F), self._activate_cell(F), names)
        return h, [h, c]

    def _activate_cell(self, F: Functions) -> Activation:
        """The activation of the cell state before the output gate."""
        return self._activate(F)


class GRUStep(GatedCell):
    """h' = (1 - z) n + z h."""

    _gates, _short_name = 3, "gru"

    def hybrid_forward(self, F: Functions, x: Tensor, states: list[Tensor], **params: Tensor) -> Step:
        names = self._names()
        i2h, h2h = self._projections(F, x, states[0], params, names)
        output = gru_step(F, i2h, h2h, states[0], self._gate(F), self._activate(F), names)
        return output, [output]


class _Dense(GatedCell):
    """Base: weights and biases from input and state to the gates.

    hidden_size : units of output and states; input_size : of the input, 0 takes it from the first batch
    activation : of new values; recurrent_activation : of the gates; 'relu', 'tanh', 'sigmoid', 'softrelu' or 'softsign'
    i2h_weight : (gates * hidden_size, input_size); h2h_weight : (gates * hidden_size, hidden_size);
    i2h_bias, h2h_bias : (gates * hidden_size,)
    """

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: InitializerLike | None = None,
        h2h_weight_initializer: InitializerLike | None = None,
        i2h_bias_initializer: InitializerLike = "zeros",
        h2h_bias_initializer: InitializerLike = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: ParameterDict | None = None,
        activation: str = "tanh",
        recurrent_activation: str = "sigmoid",
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._hidden_size = hidden_size
        self._input_size = input_size
        self._activation, self._recurrent_activation = activation, recurrent_activation
        weights, biases = (i2h_weight_initializer, h2h_weight_initializer), (i2h_bias_initializer, h2h_bias_initializer)
        self._declare_gates(hidden_size, (input_size,), (hidden_size,), *weights, *biases)

    def state_info(self, batch_size: int = 0) -> list[StateInfo]:
        return [{"shape": (batch_size, self._hidden_size), "__layout__": "NC"} for _ in range(self._num_states)]

    def _projections(
        self, F: Functions, inputs: Tensor, state: Tensor, params: dict[str, Tensor], names: StepNames
    ) -> tuple[Tensor, Tensor]:
        rows, i2h, h2h = self._gates * self._hidden_size, names.part("i2h"), names.part("h2h")
        return (
            F.FullyConnected(inputs, params["i2h_weight"], params["i2h_bias"], num_hidden=rows, name=i2h),
            F.FullyConnected(state, params["h2h_weight"], params["h2h_bias"], num_hidden=rows, name=h2h),
        )

    def _gate(self, F: Functions) -> Activation:
        return self._activation_of(F, self._recurrent_activation)

    def __repr__(self) -> str:
        rows, columns = self.i2h_weight.shape or (0, 0)
        return f"{type(self).__name__}({columns or None} -> {rows})"

    i2h_weight: Any


@layer
class RNNCell(ElmanStep, _Dense):
    """h' = activation(W x + b + U h + c), the Elman network. One state, h.

    activation : 'relu', 'tanh', 'sigmoid', 'softrelu' or 'softsign'
    """

    def __init__(
        self,
        hidden_size: int,
        activation: str = "tanh",
        i2h_weight_initializer: InitializerLike | None = None,
        h2h_weight_initializer: InitializerLike | None = None,
        i2h_bias_initializer: InitializerLike = "zeros",
        h2h_bias_initializer: InitializerLike = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: ParameterDict | None = None,
    ) -> None:
        weights, biases = (i2h_weight_initializer, h2h_weight_initializer), (i2h_bias_initializer, h2h_bias_initializer)
        super().__init__(hidden_size, *weights, *biases, input_size, prefix, params, activation)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {self._activation})"


@layer
class LSTMCell(LSTMStep, _Dense):
    """Long short-term memory (Hochreiter and Schmidhuber 1997). Two states, h and c; gates in the order i, f, g, o.

        cell = gluon.rnn.LSTMCell(4)
        cell.initialize()
        output, states = cell(nd.ones((2, 3)), cell.begin_state(batch_size=2))
        output.shape

    activation : of g and of the cell state; recurrent_activation : of i, f and o
    """

    def _activate_cell(self, F: Functions) -> Activation:
        return self._as_operator(F, self._activation)


@layer
class GRUCell(GRUStep, _Dense):
    """Gated recurrent unit (Cho et al. 2014), n = tanh(W x + b + r (U h + c)). One state; gates in the order r, z, n.

    activation : of n; recurrent_activation : of r and z
    """

    def _activate(self, F: Functions) -> Activation:
        return self._as_operator(F, self._activation)

    def _gate(self, F: Functions) -> Activation:
        return self._as_operator(F, self._recurrent_activation)
