"""ConvRNNCell, ConvLSTMCell and ConvGRUCell on Symbols: convolutions of inputs and states instead of products."""

from __future__ import annotations

from functools import partial
from typing import Any

from hybrid_lab import symbol as sym
from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.gluon.rnn.steps import Activation, StepNames, elman_step, gru_step, lstm_step
from hybrid_lab.ops.rnn.packed import GATES

from .base import BaseRNNCell, F, RNNParams, StateInfo

_LEAKY = partial(F.LeakyReLU, act_type="leaky", slope=0.2)


class BaseConvRNNCell(BaseRNNCell):
    """Base of the convolutional cells over images (arXiv 1506.04214).

    input_shape : (N, C, H, W) of the input of one step; num_hidden : channels of output and states
    h2h_kernel (odd), h2h_dilate : the convolution of the state, padded so that its size stays
    i2h_kernel, i2h_stride, i2h_pad, i2h_dilate : the convolution of the input
    activation : of new values, the name of one or a function of a Symbol and `name`
    conv_layout : 'NCHW'
    """

    _mode = "rnn_tanh"
    _num_states = 1
    _default_prefix = ""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_hidden: int,
        h2h_kernel: tuple[int, int] = (3, 3),
        h2h_dilate: tuple[int, int] = (1, 1),
        i2h_kernel: tuple[int, int] = (3, 3),
        i2h_stride: tuple[int, int] = (1, 1),
        i2h_pad: tuple[int, int] = (1, 1),
        i2h_dilate: tuple[int, int] = (1, 1),
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        activation: Any = _LEAKY,
        prefix: str | None = None,
        params: RNNParams | None = None,
        conv_layout: str = "NCHW",
    ) -> None:
        super().__init__(prefix=self._default_prefix if prefix is None else prefix, params=params)
        if any(size % 2 == 0 for size in h2h_kernel):
            raise ShapeError(f"h2h_kernel={h2h_kernel}: the sizes must be odd, so that the state keeps its size")
        pad = tuple(step * (size - 1) // 2 for size, step in zip(h2h_kernel, h2h_dilate, strict=True))
        self._num_hidden, self._activation, self._conv_layout = num_hidden, activation, conv_layout
        self._options: dict[str, dict[str, Any]] = {
            "i2h": {"kernel": i2h_kernel, "stride": i2h_stride, "pad": i2h_pad, "dilate": i2h_dilate},
            "h2h": {"kernel": h2h_kernel, "stride": (1, 1), "pad": pad, "dilate": h2h_dilate},
        }
        data = sym.var("data")
        output = F.Convolution(data, num_filter=num_hidden, layout=conv_layout, **self._options["i2h"])
        self._state_shape = (0, *output.infer_shape(data=input_shape)[1][0][1:])
        get = self._params.get
        self._weights = {
            "i2h": (get("i2h_weight", init=i2h_weight_initializer), get("i2h_bias", init=i2h_bias_initializer)),
            "h2h": (get("h2h_weight", init=h2h_weight_initializer), get("h2h_bias", init=h2h_bias_initializer)),
        }

    @property
    def state_info(self) -> list[StateInfo]:
        return [{"shape": self._state_shape, "__layout__": self._conv_layout} for _ in range(self._num_states)]

    @property
    def _gate_names(self) -> tuple[str, ...]:
        return GATES[self._mode]

    def _project(self, source: str, data: Any, names: StepNames) -> Any:
        weight, bias = self._weights[source]
        rows, options = self._num_hidden * len(self._gate_names), self._options[source]
        name = f"{names.prefix}{source}"
        return F.Convolution(data, weight, bias, num_filter=rows, layout=self._conv_layout, name=name, **options)

    def _activate(self, x: Any, name: str | None) -> Any:
        return self._get_activation(x, self._activation, **({} if name is None else {"name": name}))

    def _gate(self) -> Activation:
        return lambda x, name: F.Activation(x, act_type="sigmoid", name=name)


class ConvRNNCell(BaseConvRNNCell):
    """h' = activation(W * x + b + U * h + c). One state, h."""

    _default_prefix = "ConvRNN_"

    def __call__(self, inputs: Any, states: list[Any]) -> Any:
        names = self._step()
        i2h, h2h = self._project("i2h", inputs, names), self._project("h2h", states[0], names)
        output = elman_step(F, i2h, h2h, self._activate, names)
        return output, [output]


class ConvLSTMCell(BaseConvRNNCell):
    """A convolutional LSTM. Two states, h and c."""

    _mode, _num_states, _default_prefix = "lstm", 2, "ConvLSTM_"

    def __call__(self, inputs: Any, states: list[Any]) -> Any:
        names = self._step()
        i2h, h2h = self._project("i2h", inputs, names), self._project("h2h", states[0], names)
        h, c = lstm_step(F, i2h, h2h, states[1], self._gate(), self._activate, self._activate, names)
        return h, [h, c]


class ConvGRUCell(BaseConvRNNCell):
    """A convolutional GRU. One state, h."""

    _mode, _default_prefix = "gru", "ConvGRU_"

    def __call__(self, inputs: Any, states: list[Any]) -> Any:
        names = self._step("_")
        i2h, h2h = self._project("i2h", inputs, names), self._project("h2h", states[0], names)
        output = gru_step(F, i2h, h2h, states[0], self._gate(), self._activate, names)
        return output, [output]
