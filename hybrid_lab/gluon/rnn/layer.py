"""RNN, LSTM and GRU: recurrent layers over whole sequences, as one fused operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Unpack, cast

from numpy.typing import DTypeLike

from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics import AttributeSpecError, ShapeError
from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.gluon.block import BlockOptions
from hybrid_lab.initializer import InitializerLike
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.numpy_mode import in_mode
from hybrid_lab.ops.framework.protocols import Functions, Tensor

from ..hybrid import HybridBlock
from ..nn.registry import layer
from ..parameter import Parameter
from .cell import GRUCell, LSTMCell, RecurrentCell, RNNCell, StateInfo
from .modifier import BidirectionalCell, DropoutCell
from .sequence import Step, axes_of, is_tensor, zeros_for
from .stack import HybridSequentialRNNCell


class _Layer(HybridBlock):
    """Base of the three layers.

    x : (T, N, C), or (N, T, C) with layout='NTC'; states : list of (num_layers * directions, N, hidden_size)
    `layer(x)` returns the output, (T, N, directions * hidden_size) in the same layout; `layer(x, states)` the output
    and the list of the states after the last step
    sequence_length : (N,), with use_sequence_length=True; outputs behind a sequence's end are 0 and its states stay

    l0_i2h_weight : (gates * hidden_size, input_size); l0_h2h_weight : (gates * hidden_size, hidden_size); l0_i2h_bias,
    l0_h2h_bias : (gates * hidden_size,); r0_... of the backward direction; l1_... of the next layer
    """

    _gates = 1
    _num_states = 1
    _mode: str
    _cell_type: Callable[..., RecurrentCell]
    _clip: Mapping[str, Any] = {}
    """Attributes of the operator that bound the cell state."""
    _projection_size: int | None = None
    """Units P that an LSTM's outputs are projected to."""
    _h2r_weight_initializer: InitializerLike | None = None

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        i2h_weight_initializer: InitializerLike | None = None,
        h2h_weight_initializer: InitializerLike | None = None,
        i2h_bias_initializer: InitializerLike = "zeros",
        h2h_bias_initializer: InitializerLike = "zeros",
        dtype: DTypeLike | None = "float32",
        use_sequence_length: bool = False,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        check_switches("_Layer", bidirectional=bidirectional, use_sequence_length=use_sequence_length)
        super().__init__(**kwargs)
        dtype = "float32" if dtype is None else dtype
        check_choice(f"{type(self).__name__}: layout", layout, ("TNC", "NTC"), ShapeError)
        self._hidden_size, self._num_layers, self._layout = hidden_size, num_layers, layout
        self._dropout, self._directions, self._input_size = dropout, 2 if bidirectional else 1, input_size
        self._dtype, self._use_sequence_length = dtype, use_sequence_length
        self._initializers = {
            "i2h_weight": i2h_weight_initializer,
            "h2h_weight": h2h_weight_initializer,
            "i2h_bias": i2h_bias_initializer,
            "h2h_bias": h2h_bias_initializer,
        }
        if self._projection_size is not None:
            self._initializers["h2r_weight"] = self._h2r_weight_initializer
        rows, units = self._gates * hidden_size, self._projection_size or hidden_size
        for name, kind, number in self._names():
            width = input_size if number == 0 else units * self._directions
            shapes = {"i2h_weight": (rows, width), "h2h_weight": (rows, units), "h2r_weight": (units, hidden_size)}
            shape, init = shapes.get(kind, (rows,)), self._initializers[kind]
            setattr(self, name, self.params.get(name, shape=shape, init=init, dtype=dtype, allow_deferred_init=True))

    def _names(self) -> Iterator[tuple[str, str, int]]:
        """(parameter, its kind, its layer), in MXNet's order."""
        for number in range(self._num_layers):
            for direction in ("l", "r")[: self._directions]:
                for kind in self._initializers:
                    yield f"{direction}{number}_{kind}", kind, number

    def _collect_params_with_prefix(self, prefix: str = "") -> dict[str, Parameter]:
        """By MXNet's paths, in which each layer is a cell: `_unfused.0.i2h_weight`, `_unfused.0.l_cell.i2h_weight`."""
        start = f"{prefix}._unfused" if prefix else "_unfused"
        parameters = {}
        for name, kind, number in self._names():
            side = f"{name[0]}_cell." if self._directions == 2 else ""
            parameters[f"{start}.{number}.{side}{kind}"] = self._reg_params[name]
        return parameters

    def cast(self, dtype: DTypeLike | None) -> None:
        """Change the element type of all parameters, and of the states that `begin_state` makes."""
        super().cast(dtype)
        self._dtype = "float32" if dtype is None else dtype

    # -- states ------------------------------------------------------------------------------------------------

    def state_info(self, batch_size: int = 0) -> list[StateInfo]:
        """{"shape": ..., "__layout__": "LNC", "dtype": ...} of every state."""
        places, units = self._num_layers * self._directions, [self._projection_size or self._hidden_size]
        if self._num_states == 2:
            units.append(self._hidden_size)
        return [{"shape": (places, batch_size, size), "__layout__": "LNC", "dtype": self._dtype} for size in units]

    def begin_state(
        self, batch_size: int = 0, func: Callable[..., Tensor] = nd.zeros, **kwargs: object
    ) -> list[Tensor]:
        """States to begin with. func : makes one, `func(shape=..., dtype=..., **kwargs)`; default nd.zeros."""
        return [
            in_mode(func(**{"shape": info["shape"], "dtype": info["dtype"], **kwargs}))
            for info in self.state_info(batch_size)
        ]

    # -- calls -------------------------------------------------------------------------------------------------

    def __call__(self, inputs: Any, states: Any = None, sequence_length: Any = None) -> Any:
        """See the class. Raises ShapeError for inputs without three axes, or with other channels than before."""
        if isinstance(inputs, NDArray) and len(inputs.shape) != 3:
            words = ("time", "batch", "channels") if self._layout == "TNC" else ("batch", "time", "channels")
            batch = words.index("batch")
            single = f"; x.expand_dims({batch}) turns one sequence into a batch" if len(inputs.shape) == 2 else ""
            raise ShapeError(
                f"{self.name}: the input has shape {inputs.shape}; with layout={self._layout!r} it must be "
                f"({', '.join(words)}){single}"
            )
        if isinstance(inputs, NDArray):
            self._check_channels(inputs.shape[2])
        if is_tensor(states):
            states = [states]
        arguments: tuple[Any, ...] = (inputs, states, sequence_length)
        while arguments[-1] is None:
            arguments = arguments[:-1]
        return super().__call__(*arguments)

    def hybrid_forward(
        self,
        F: Functions,
        x: Tensor,
        states: Tensor | list[Tensor] | None = None,
        sequence_length: Tensor | None = None,
        **params: Tensor,
    ) -> Tensor | Step:
        batch = axes_of(self._layout)[1]
        if states is None:
            begin: list[Any] = [zeros_for(x, info["shape"], batch, 1) for info in self.state_info()]
        else:
            begin = [states] if is_tensor(states) else list(cast(list[Any], states))
            self._check_states(x, begin, batch)
        if batch == 0:
            x = F.SwapAxis(x, dim1=0, dim2=1)
        ordered = sorted(self._names(), key=lambda entry: entry[1].endswith("bias"))
        flat = [F.Reshape(params[name], shape=(-1,)) for name, _, _ in ordered]
        outputs: Any = F.RNN(
            x,
            F._rnn_param_concat(*flat, dim=0),
            sequence_length=sequence_length if self._use_sequence_length else None,
            **dict(zip(("state", "state_cell"), begin, strict=False)),
            state_size=self._hidden_size,
            num_layers=self._num_layers,
            bidirectional=self._directions == 2,
            p=self._dropout,
            state_outputs=True,
            mode=self._mode,
            use_sequence_length=self._use_sequence_length,
            projection_size=self._projection_size,
            **self._clip,
        )
        y = F.SwapAxis(outputs[0], dim1=0, dim2=1) if batch == 0 else outputs[0]
        return y if states is None else (y, [outputs[index] for index in range(1, 1 + self._num_states)])

    def _check_channels(self, channels: int) -> None:
        """The packed parameters may have the right number of elements in all though one weight has too few columns."""
        for side in "lr"[: self._directions]:
            shape = self._reg_params[f"{side}0_i2h_weight"].shape
            if shape and shape[1] > 0 and shape[1] != channels:
                raise ShapeError(
                    f"{self.name}: {side}0_i2h_weight has shape {shape}; the input has {channels} channels"
                )

    def _check_states(self, inputs: Any, states: list[Any], batch: int) -> None:
        if len(states) != self._num_states:
            raise ShapeError(f"{self.name} has {self._num_states} states, {len(states)} were given")
        if not isinstance(inputs, NDArray):
            return
        for info, state in zip(self.state_info(inputs.shape[batch]), states, strict=True):
            if state.shape != info["shape"]:
                raise ShapeError(
                    f"{self.name}: a state has shape {state.shape}; inputs {inputs.shape} need {info['shape']}"
                )

    # -- other forms -------------------------------------------------------------------------------------------

    def _cell(self, prefix: str, input_size: int) -> RecurrentCell:
        """A cell that shares the parameters of one layer and direction."""
        initializers: dict[str, Any] = {f"{kind}_initializer": init for kind, init in self._initializers.items()}
        return self._cell_type(self._hidden_size, input_size=input_size, prefix=prefix, **initializers)

    def _unfuse(self) -> HybridSequentialRNNCell:
        """The layers as cells that share the parameters. Raises AttributeSpecError for clipped or projected states."""
        if self._projection_size is not None:
            raise AttributeSpecError(
                f"{self.name}: the cells of gluon.rnn have no projection_size; gluon.contrib.rnn.LSTMPCell has one"
            )
        if self._clip:
            raise AttributeSpecError(f"{self.name}: cells do not clip their states (state_clip_min, state_clip_max)")
        stack = HybridSequentialRNNCell(prefix=self.prefix, params=self.params)
        with stack.name_scope():
            width = self._input_size
            for number in range(self._num_layers):
                cell = self._cell(f"l{number}_", width)
                if self._directions == 2:
                    cell = BidirectionalCell(cell, self._cell(f"r{number}_", width))
                stack.add(cell)
                if self._dropout > 0 and number + 1 < self._num_layers:
                    stack.add(DropoutCell(self._dropout))
                width = self._hidden_size * self._directions
        return stack

    def __repr__(self) -> str:
        columns = self._reg_params["l0_i2h_weight"].shape or (0, 0)
        parts = [f"{columns[1] or None} -> {self._hidden_size}", self._layout]
        if self._num_layers != 1:
            parts.append(f"num_layers={self._num_layers}")
        if self._dropout:
            parts.append(f"dropout={self._dropout}")
        if self._directions == 2:
            parts.append("bidirectional")
        return f"{type(self).__name__}({', '.join(parts)})"


@layer
class RNN(_Layer):
    """Elman layers, h' = activation(W x + b + U h + c). activation : 'relu' or 'tanh'

    hidden_size : units H; layout : 'TNC' or 'NTC'; dropout : between the layers; input_size : 0 takes it from the data
    x : (T, N, C) -> (T, N, directions * H); states : (num_layers * directions, N, H) each, returned if given
    Parameters: l0_i2h_weight, l0_h2h_weight, l0_i2h_bias, l0_h2h_bias, r0_... if bidirectional, l1_... and so on.
    """

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        activation: str = "relu",
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        i2h_weight_initializer: InitializerLike | None = None,
        h2h_weight_initializer: InitializerLike | None = None,
        i2h_bias_initializer: InitializerLike = "zeros",
        h2h_bias_initializer: InitializerLike = "zeros",
        input_size: int = 0,
        dtype: DTypeLike | None = "float32",
        use_sequence_length: bool = False,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        check_choice("RNN: activation", activation, ("relu", "tanh"), AttributeSpecError)
        sizes = (hidden_size, num_layers, layout, dropout, bidirectional, input_size)
        weights, biases = (i2h_weight_initializer, h2h_weight_initializer), (i2h_bias_initializer, h2h_bias_initializer)
        super().__init__(*sizes, *weights, *biases, dtype, use_sequence_length, **kwargs)
        self._mode = f"rnn_{activation}"
        self._cell_type = partial(RNNCell, activation=activation)


@layer
class LSTM(_Layer):
    """Long short-term memory (Hochreiter and Schmidhuber 1997); two states, h and c.

        layer = gluon.rnn.LSTM(8, num_layers=2)
        layer.initialize()
        output, states = layer(nd.ones((5, 2, 3)), layer.begin_state(batch_size=2))
        output.shape, [state.shape for state in states]

    state_clip_min, state_clip_max : bounds of c, both or none; state_clip_nan : NaN becomes a bound as well
    projection_size : P; outputs are projected to P units by l0_h2r_weight, (P, H) (arXiv 1402.1128). Outputs, h and the
    columns of h2h_weight then have P in place of H. None or 0 : no projection

    hidden_size : units H; layout : 'TNC' or 'NTC'; dropout : between the layers; input_size : 0 takes it from the data
    x : (T, N, C) -> (T, N, directions * H); states : (num_layers * directions, N, H) each, returned if given
    Parameters: l0_i2h_weight, l0_h2h_weight, l0_i2h_bias, l0_h2h_bias, r0_... if bidirectional, l1_... and so on.
    """

    _gates, _num_states, _mode, _cell_type = 4, 2, "lstm", LSTMCell

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        i2h_weight_initializer: InitializerLike | None = None,
        h2h_weight_initializer: InitializerLike | None = None,
        i2h_bias_initializer: InitializerLike = "zeros",
        h2h_bias_initializer: InitializerLike = "zeros",
        projection_size: int | None = None,
        h2r_weight_initializer: InitializerLike | None = None,
        state_clip_min: float | None = None,
        state_clip_max: float | None = None,
        state_clip_nan: bool = False,
        dtype: DTypeLike | None = "float32",
        use_sequence_length: bool = False,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        if projection_size is not None and projection_size < 0:
            raise AttributeSpecError(f"LSTM: projection_size={projection_size}; it must be at least 1, or None")
        if (state_clip_min is None) != (state_clip_max is None):
            raise AttributeSpecError("LSTM: state_clip_min and state_clip_max must be given together")
        sizes = (hidden_size, num_layers, layout, dropout, bidirectional, input_size)
        weights, biases = (i2h_weight_initializer, h2h_weight_initializer), (i2h_bias_initializer, h2h_bias_initializer)
        # The constructor of the base reads them when it declares the parameters.
        self._projection_size, self._h2r_weight_initializer = projection_size or None, h2r_weight_initializer
        super().__init__(*sizes, *weights, *biases, dtype, use_sequence_length, **kwargs)
        if state_clip_min is not None:
            self._clip = {
                "lstm_state_clip_min": state_clip_min,
                "lstm_state_clip_max": state_clip_max,
                "lstm_state_clip_nan": state_clip_nan,
            }


@layer
class GRU(_Layer):
    """Gated recurrent units (Cho et al. 2014), n = tanh(W x + b + r (U h + c)).

    hidden_size : units H; layout : 'TNC' or 'NTC'; dropout : between the layers; input_size : 0 takes it from the data
    x : (T, N, C) -> (T, N, directions * H); states : (num_layers * directions, N, H) each, returned if given
    Parameters: l0_i2h_weight, l0_h2h_weight, l0_i2h_bias, l0_h2h_bias, r0_... if bidirectional, l1_... and so on.
    """

    _gates, _mode, _cell_type = 3, "gru", GRUCell
