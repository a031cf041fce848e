"""BaseRNNCell: one step of a recurrent network on Symbols, its variables, and unrolling over a sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from hybrid_lab import ndarray as nd
from hybrid_lab import symbol as sym
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.gluon.rnn.sequence import axes_of, is_tensor, steps_of, zeros_for
from hybrid_lab.gluon.rnn.steps import StepNames, activated
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.symbol import Symbol
from hybrid_lab.symbol.attribute import AttrScope
from hybrid_lab.symbol.symbol import compose

F: Any = sym
"""The operators on Symbols, for calls whose attributes are known only when they run."""
StateInfo = dict[str, Any]
Weights = dict[str, NDArray]
Unrolled: TypeAlias = tuple[Any, list[Any]]
"""The outputs, one Symbol or a list of them, and the states after the last step."""


def open_zeros(name: str, shape: tuple[int, ...], dtype: Any = "float32", **kwargs: object) -> Symbol:
    """Zeros whose sizes of 0 follow from the operators that read them: the size of the batch."""
    if kwargs:
        raise TypeError(f"begin_state got unknown arguments {', '.join(kwargs)}; zeros take dtype")
    return compose(get("_zeros").bind(shape=shape, dtype=dtype).variant(_open=True), [], name)


def merged(outputs: Any, layout: str) -> Any:
    """A list of steps as one Symbol; one Symbol is returned unchanged."""
    if is_tensor(outputs):
        return outputs
    axis, _ = axes_of(layout)
    return sym.Concat(*(sym.expand_dims(step, axis=axis) for step in outputs), dim=axis)


def in_form(length: int, outputs: Any, layout: str, merge: bool | None) -> Any:
    """A sequence as one Symbol (merge True), as a list of its steps (False), or unchanged (None)."""
    if merge is None:
        return outputs
    return merged(outputs, layout) if merge else steps_of(length, outputs, layout)


class RNNParams:
    """The variables of a cell by name. Cells with the same RNNParams share their weights.

    prefix : begins the names of all variables
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._params: dict[str, Symbol] = {}

    def get(self, name: str, **kwargs: Any) -> Symbol:
        """The variable `prefix + name`, which is made when it is asked for first. kwargs : of `sym.var`"""
        name = self._prefix + name
        if name not in self._params:
            self._params[name] = sym.var(name, **kwargs)
        return self._params[name]


class BaseRNNCell:
    """Base of the cells on Symbols. A subclass defines `state_info` and one step, `__call__(inputs, states)`, which
    returns the output and the new states.

    prefix : begins the names of nodes, and of variables if the cell has its own
    params : variables to share with another cell, `other.params`
    """

    def __init__(self, prefix: str = "", params: RNNParams | None = None) -> None:
        self._own_params = params is None
        self._prefix = prefix
        self._params = RNNParams(prefix) if params is None else params
        self._modified = False
        self.reset()

    _cells: list[BaseRNNCell]
    _num_hidden: int
    _has_steps = True
    """Whether it can be called for one step."""

    def reset(self) -> None:
        """Number steps and states from 0 again, for another graph. `unroll` calls it."""
        self._init_counter = -1
        self._counter = -1
        for cell in getattr(self, "_cells", ()):
            cell.reset()

    def __call__(self, inputs: Any, states: list[Any]) -> Any:
        """One step: the output, and the list of new states. inputs : (N, C); states : (N, units) each"""
        raise NotImplementedError(f"{type(self).__name__} does not define a step")

    @property
    def params(self) -> RNNParams:
        """The cell's variables."""
        self._own_params = False
        return self._params

    @property
    def state_info(self) -> list[StateInfo]:
        """{"shape": ..., "__layout__": ...} of every state; the batch has size 0."""
        raise NotImplementedError(f"{type(self).__name__} does not define state_info")

    @property
    def state_shape(self) -> list[tuple[int, ...]]:
        """The shape of every state; the batch has size 0."""
        return [info["shape"] for info in self.state_info]

    @property
    def _gate_names(self) -> tuple[str, ...]:
        return ()

    def _step(self, separator: str = "") -> StepNames:
        """Count a step; returns the names of its nodes. separator : between the number and the names of parts"""
        self._counter += 1
        prefix = f"{self._prefix}t{self._counter}_"
        return StepNames(prefix, inner=False, part_prefix=prefix + separator)

    # -- states ------------------------------------------------------------------------------------------------

    def begin_state(self, func: Callable[..., Any] = sym.zeros, **kwargs: Any) -> list[Any]:
        """Symbols for the states before the first step.

        func : makes one, `func(name=..., shape=..., **kwargs)`: sym.zeros, sym.var to feed them as inputs ...
        """
        self._refuse_modified()
        make = open_zeros if func is sym.zeros else func
        states = []
        for info in self.state_info:
            with AttrScope(__layout__=info["__layout__"]):
                states.append(make(**{"name": self._next_state_name(), "shape": info["shape"], **kwargs}))
        return states

    def _zero_state(self, x: Symbol, batch: int = 0) -> list[Any]:
        """States of zeros for inputs whose batch is axis number `batch` of x."""
        self._refuse_modified()
        return [
            zeros_for(x, info["shape"], batch, info["__layout__"].index("N"), self._next_state_name())
            for info in self.state_info
        ]

    def _next_state_name(self) -> str:
        self._init_counter += 1
        return f"{self._prefix}begin_state_{self._init_counter}"

    def _refuse_modified(self) -> None:
        if self._modified:
            raise HybridLabError(
                f"the {type(self).__name__} {self._prefix!r} is wrapped by a modifier cell, such as ZoneoutCell; "
                "call that cell instead"
            )

    # -- weights -----------------------------------------------------------------------------------------------

    def unpack_weights(self, args: Mapping[str, NDArray]) -> Weights:
        """A copy of `args` in which each weight and bias of this cell is split into one array per gate:
        `lstm_i2h_weight` into `lstm_i2h_i_weight`, `lstm_i2h_f_weight` ...

        args : arrays by name, as `Module.get_params()[0]`. Raises KeyError if one of the cell's is missing.
        """
        unpacked = dict(args)
        for packed, gates in self._packed_names():
            array = unpacked.pop(packed)
            for number, name in enumerate(gates):
                unpacked[name] = array[number * self._num_hidden : (number + 1) * self._num_hidden].copy()
        return unpacked

    def pack_weights(self, args: Mapping[str, NDArray]) -> Weights:
        """The inverse of `unpack_weights`."""
        packed = dict(args)
        for name, gates in self._packed_names():
            packed[name] = nd.concat(*[packed.pop(gate) for gate in gates], dim=0)
        return packed

    def _packed_names(self) -> list[tuple[str, list[str]]]:
        """The name of each packed array, and the names of its gates' parts."""
        if not self._gate_names:
            return []
        return [
            (
                f"{self._prefix}{source}_{kind}",
                [f"{self._prefix}{source}{gate}_{kind}" for gate in self._gate_names],
            )
            for source in ("i2h", "h2h")
            for kind in ("weight", "bias")
        ]

    # -- sequences ---------------------------------------------------------------------------------------------

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: list[Any] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
    ) -> Unrolled:
        """Compose `length` steps; returns the outputs and the states after the last one.

        inputs : one Symbol in `layout`, or a list of steps, (N, C) each
        begin_state : the states to begin with; None means zeros
        merge_outputs : True gives one Symbol, False a list of steps, None the form that needs no conversion
        """
        self.reset()
        steps = given_steps(length, inputs, layout)
        states = self._zero_state(steps[0]) if begin_state is None else begin_state
        outputs = []
        for step in steps:
            output, states = self(step, states)
            outputs.append(output)
        return in_form(length, outputs, layout, merge_outputs), states

    def _get_activation(self, inputs: Any, activation: Any, **kwargs: str) -> Any:
        """`inputs` after an activation: the name of one, or a function."""
        if isinstance(activation, str):
            return F.Activation(inputs, act_type=activation, **kwargs)
        return activated(F, inputs, activation, kwargs.get("name"))


def given_steps(length: int, inputs: Any, layout: str) -> list[Any]:
    """The steps of a sequence. Raises HybridLabError if there is no sequence, ShapeError for another length."""
    if inputs is None:
        raise HybridLabError("unroll needs inputs: a Symbol for the whole sequence, or a list of one for each step")
    return steps_of(length, inputs, layout)
