"""RNNCell, LSTMCell and GRUCell on Symbols."""

from __future__ import annotations

from typing import Any

from hybrid_lab import initializer as init
from hybrid_lab.gluon.rnn.steps import Activation, StepNames, elman_step, gru_step, lstm_step
from hybrid_lab.ops.rnn.packed import GATES

from .base import BaseRNNCell, F, RNNParams, StateInfo


class GatedCell(BaseRNNCell):
    """Base: inputs and states contribute to gates through weights and biases.

    num_hidden : units of output and states
    Variables: i2h_weight, h2h_weight, i2h_bias, h2h_bias, rows of all gates one behind the other.
    """

    _mode = "rnn_tanh"
    _num_states = 1

    def __init__(self, num_hidden: int, prefix: str, params: RNNParams | None, **i2h_bias: Any) -> None:
        super().__init__(prefix=prefix, params=params)
        self._num_hidden = num_hidden
        get = self.params.get if params is not None else self._params.get
        self._weights = {
            "i2h": (get("i2h_weight"), get("i2h_bias", **i2h_bias)),
            "h2h": (get("h2h_weight"), get("h2h_bias")),
        }

    @property
    def state_info(self) -> list[StateInfo]:
        return [{"shape": (0, self._num_hidden), "__layout__": "NC"} for _ in range(self._num_states)]

    @property
    def _gate_names(self) -> tuple[str, ...]:
        return GATES[self._mode]

    def _project(self, source: str, data: Any, names: StepNames) -> Any:
        weight, bias = self._weights[source]
        rows = self._num_hidden * len(self._gate_names)
        return F.FullyConnected(data, weight, bias, num_hidden=rows, name=names.part(source))

    def _activation_of(self, activation: Any) -> Activation:
        return lambda x, name: self._get_activation(x, activation, **({} if name is None else {"name": name}))


class RNNCell(GatedCell):
    """h' = activation(W x + b + U h + c), the Elman network. One state, h.

    activation : 'relu', 'tanh', 'sigmoid', 'softrelu', 'softsign', or a function of a Symbol and `name`
    """

    def __init__(
        self, num_hidden: int, activation: Any = "tanh", prefix: str = "rnn_", params: RNNParams | None = None
    ) -> None:
        super().__init__(num_hidden, prefix, params)
        self._activation = activation

    def __call__(self, inputs: Any, states: list[Any]) -> Any:
        names = self._step()
        i2h, h2h = self._project("i2h", inputs, names), self._project("h2h", states[0], names)
        output = elman_step(F, i2h, h2h, self._activation_of(self._activation), names)
        return output, [output]


class LSTMCell(GatedCell):
    """Long short-term memory. Two states, h and c; gates in the order i, f, g, o.

    forget_bias : the first value of the forget gate's i2h_bias (Jozefowicz et al. 2015)
    """

    _mode, _num_states = "lstm", 2

    def __init__(
        self, num_hidden: int, prefix: str = "lstm_", params: RNNParams | None = None, forget_bias: float = 1.0
    ) -> None:
        super().__init__(num_hidden, prefix, params, init=init.LSTMBias(forget_bias=forget_bias))

    def __call__(self, inputs: Any, states: list[Any]) -> Any:
        names = self._step()
        i2h, h2h = self._project("i2h", inputs, names), self._project("h2h", states[0], names)
        gate, tanh = self._activation_of("sigmoid"), self._activation_of("tanh")
        h, c = lstm_step(F, i2h, h2h, states[1], gate, tanh, tanh, names)
        return h, [h, c]


class GRUCell(GatedCell):
    """Gated recurrent unit, n = tanh(W x + b + r (U h + c)). One state; gates in the order r, z, n."""

    _mode = "gru"

    def __init__(self, num_hidden: int, prefix: str = "gru_", params: RNNParams | None = None) -> None:
        super().__init__(num_hidden, prefix, params)

    def __call__(self, inputs: Any, states: list[Any]) -> Any:
        names = self._step("_")
        i2h, h2h = self._project("i2h", inputs, names), self._project("h2h", states[0], names)
        gate, tanh = self._activation_of("sigmoid"), self._activation_of("tanh")
        output = gru_step(F, i2h, h2h, states[0], gate, tanh, names)
        return output, [output]
