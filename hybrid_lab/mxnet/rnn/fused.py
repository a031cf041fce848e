"""FusedRNNCell: all layers and steps of a recurrent network as one operator, RNN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hybrid_lab import initializer as init
from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics.errors import AttributeSpecError, HybridLabError
from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.gluon.rnn.sequence import axes_of
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ops.rnn.packed import GATES, Packing
from hybrid_lab.symbol.attribute import AttrScope

from .base import BaseRNNCell, F, RNNParams, StateInfo, Unrolled, Weights, in_form, merged
from .gated import GRUCell, LSTMCell, RNNCell
from .modifier import BidirectionalCell, DropoutCell, SequentialRNNCell


class FusedRNNCell(BaseRNNCell):
    """Layers of one mode over a whole sequence. It can only be unrolled.

    mode : 'rnn_relu', 'rnn_tanh', 'lstm' or 'gru'; dropout : between the layers
    get_next_state : whether `unroll` returns the states after the last step; else it returns none
    forget_bias : the first value of the forget gates' biases
    Variable: `parameters`, all weights and biases packed in one vector.
    """

    _has_steps = False

    def __init__(
        self,
        num_hidden: int,
        num_layers: int = 1,
        mode: str = "lstm",
        bidirectional: bool = False,
        dropout: float = 0.0,
        get_next_state: bool = False,
        forget_bias: float = 1.0,
        prefix: str | None = None,
        params: RNNParams | None = None,
    ) -> None:
        check_choice("FusedRNNCell: mode", mode, tuple(GATES), AttributeSpecError)
        super().__init__(prefix=f"{mode}_" if prefix is None else prefix, params=params)
        self._num_hidden, self._num_layers, self._mode = num_hidden, num_layers, mode
        self._bidirectional, self._dropout = bidirectional, dropout
        self._get_next_state = get_next_state
        self._packing = Packing(mode, num_hidden, num_layers, bidirectional)
        start = init.FusedRNN(None, num_hidden, num_layers, mode, bidirectional, forget_bias)
        self._parameter = self._params.get("parameters", init=start)

    @property
    def state_info(self) -> list[StateInfo]:
        shape = (self._num_layers * len(self._packing.directions), 0, self._num_hidden)
        return [{"shape": shape, "__layout__": "LNC"} for _ in range(2 if self._mode == "lstm" else 1)]

    @property
    def _gate_names(self) -> tuple[str, ...]:
        return GATES[self._mode]

    def unpack_weights(self, args: Mapping[str, NDArray]) -> Weights:
        """A copy of `args` with each gate's weights and biases, `lstm_l0_i2h_i_weight` ..., instead of the packed
        vector. Raises ShapeError if the vector has another size.
        """
        unpacked = dict(args)
        vector = unpacked.pop(str(self._parameter.name))
        start = 0
        for name, shape in self._packing.parts(self._packing.num_input(vector.size)):
            size = shape[0] * (shape[1] if len(shape) > 1 else 1)
            unpacked[self._prefix + name] = vector[start : start + size].reshape(shape).copy()
            start += size
        return unpacked

    def pack_weights(self, args: Mapping[str, NDArray]) -> Weights:
        """The inverse of `unpack_weights`."""
        packed = dict(args)
        num_input = packed[f"{self._prefix}l0_i2h{self._gate_names[0]}_weight"].shape[1]
        parts = [packed.pop(self._prefix + name).reshape((-1,)) for name, _ in self._packing.parts(num_input)]
        packed[str(self._parameter.name)] = nd.concat(*parts, dim=0)
        return packed

    def __call__(self, inputs: Any, states: Any) -> Any:
        raise NotImplementedError("a FusedRNNCell cannot be stepped; call unroll(length, inputs), or unfuse() it")

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: list[Any] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> Unrolled:
        """See BaseRNNCell. Outputs are one Symbol unless merge_outputs is False."""
        self.reset()
        if inputs is None:
            raise HybridLabError("unroll needs inputs: a Symbol for the whole sequence, or a list of one for each step")
        axis, _ = axes_of(layout)
        whole = merged(inputs, layout)
        if axis == 1:
            whole = F.swapaxes(whole, dim1=0, dim2=1)
        states = self._zero_state(whole, 1) if begin_state is None else begin_state
        options = dict(zip(("state", "state_cell"), states, strict=False))
        with AttrScope(**({"__layout__": "LNC"} if self._get_next_state else {})):
            rnn = F.RNN(
                whole,
                self._parameter,
                **options,
                state_size=self._num_hidden,
                num_layers=self._num_layers,
                bidirectional=self._bidirectional,
                p=self._dropout,
                state_outputs=self._get_next_state,
                mode=self._mode,
                name=f"{self._prefix}rnn",
            )
        outputs = rnn[0] if self._get_next_state else rnn
        if axis == 1:
            outputs = F.swapaxes(outputs, dim1=0, dim2=1)
        after = [rnn[1 + number] for number in range(len(states))] if self._get_next_state else []
        return in_form(length, outputs, layout, merge_outputs), after

    def unfuse(self) -> SequentialRNNCell:
        """The same layers as a stack of cells, which have variables of their own: `pack_weights` and
        `unpack_weights` convert the values.
        """
        stack = SequentialRNNCell()
        for number in range(self._num_layers):
            cell = self._cell(f"{self._prefix}l{number}_")
            if self._bidirectional:
                backward = self._cell(f"{self._prefix}r{number}_")
                cell = BidirectionalCell(cell, backward, output_prefix=f"{self._prefix}bi_l{number}_")
            stack.add(cell)
            if self._dropout > 0 and number + 1 < self._num_layers:
                stack.add(DropoutCell(self._dropout, prefix=f"{self._prefix}_dropout{number}_"))
        return stack

    def _cell(self, prefix: str) -> BaseRNNCell:
        if self._mode == "lstm":
            return LSTMCell(self._num_hidden, prefix=prefix)
        if self._mode == "gru":
            return GRUCell(self._num_hidden, prefix=prefix)
        return RNNCell(self._num_hidden, activation=self._mode.removeprefix("rnn_"), prefix=prefix)
