"""Executor: a Symbol bound to arrays, with its outputs and gradients in arrays of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import BindError, SettingError, ShapeError
from hybrid_lab.graph.node import Value
from hybrid_lab.graph.passes.differentiate import led_to
from hybrid_lab.mxnet.executor.monitoring import Callback, Monitoring, with_gradient
from hybrid_lab.mxnet.executor.programs import BoundGraph, Programs
from hybrid_lab.ndarray import creation, tape
from hybrid_lab.ndarray.backward import backward as run_backward
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ndarray.interpret import interpret
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.ops.framework.types import Shape
from hybrid_lab.symbol.symbol import Symbol

_NO_DRAWS = (0, 0)


class Executor:
    """A Symbol bound to arrays. `Symbol.bind` and `Symbol.simple_bind` make it.

        executor = symbol.simple_bind(mx.cpu(), data=(32, 10))
        executor.forward(is_train=True, data=batch)
        executor.backward()
        executor.grad_dict["fc_weight"]

    symbol : the bound Symbol; bound : its graph, which Executors that share it have in common
    arg_arrays, aux_arrays : the arrays that it reads, in the order of `list_arguments()`, `list_auxiliary_states()`
    grad_arrays : the arrays that `backward` writes to, None for an argument without a gradient
    outputs : the arrays that `forward` writes to

    All these arrays stay the same objects. The graph is compiled at the first call in each mode, as a hybridized Block
    is. With a sparse array among them it runs operator by operator; an output of another storage type than in the call
    before is then another object.
    """

    def __init__(
        self,
        symbol: Symbol,
        ctx: Context,
        args: Sequence[NDArray],
        grads: Sequence[NDArray | None],
        requests: Sequence[str],
        states: Sequence[NDArray],
        outputs: Sequence[NDArray],
        shared: Executor | None = None,
    ) -> None:
        self.symbol, self._ctx, self._requests = symbol, ctx, list(requests)
        self.arg_arrays, self.grad_arrays, self.aux_arrays = list(args), list(grads), list(states)
        self.outputs = list(outputs)
        self.bound: BoundGraph = shared.bound if shared is not None and shared.symbol is symbol else BoundGraph(symbol)
        by_value = dict(zip(_values(symbol, states=False), map(_tracked, args, grads, requests), strict=True))
        by_value |= dict(zip(_values(symbol, states=True), (array.detach() for array in states), strict=True))
        self._arrays = [by_value[value] for value in self.bound.graph.inputs]
        self._linked = [array for array in by_value.values() if array.tape_link is not None]
        # Whole numbers have no history, and a gradient of 0.
        self._zero = [
            grad
            for array, grad, request in zip(args, grads, requests, strict=True)
            if grad is not None and request == "write" and not is_floating(np.dtype(array.dtype))
        ]
        self._programs = Programs(self.bound, self._arrays)
        self._sparse = any(array.buffer.stored for array in (*args, *states, *grads) if array is not None)
        self._monitor: Monitoring | None = None
        self._recorded: list[NDArray] | None = None
        self._last: tuple[bool, tuple[int, int]] = (False, _NO_DRAWS)

    def __getstate__(self) -> dict[str, Any]:
        """Pickled and copied are the Symbol and the arrays, without programs and without a monitor."""
        names = ("symbol", "_ctx", "arg_arrays", "grad_arrays", "_requests", "aux_arrays", "outputs")
        return {name: vars(self)[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Executor.__init__(self, *state.values())

    # -- attributes ----------------------------------------------------------------------------------------------

    @cached_property
    def arg_dict(self) -> dict[str, NDArray]:
        """The arrays of the arguments by name. Raises BindError if two have one name."""
        return _by_name(self.symbol.list_arguments(), self.arg_arrays)

    @cached_property
    def grad_dict(self) -> dict[str, NDArray | None]:
        """The arrays of the gradients by the names of their arguments, None if there is none."""
        return _by_name(self.symbol.list_arguments(), self.grad_arrays)

    @cached_property
    def aux_dict(self) -> dict[str, NDArray]:
        """The arrays of the auxiliary states by name."""
        return _by_name(self.symbol.list_auxiliary_states(), self.aux_arrays)

    @cached_property
    def output_dict(self) -> dict[str, NDArray]:
        """The outputs by name."""
        return _by_name(self.symbol.list_outputs(), self.outputs)

    def __repr__(self) -> str:
        return f"<Executor of {self.symbol!r} on {self._ctx}>"

    def debug_str(self) -> str:
        """The graph, and the memory that dense arguments, gradients and outputs take."""
        arrays = [*self.arg_arrays, *self.aux_arrays, *self.grad_arrays, *self.outputs]
        stored = [array for array in arrays if array is not None and not array.buffer.stored]
        total = sum(array.host_view.nbytes for array in stored)
        return f"{self.bound.graph}\nTotal {total >> 20} MB allocated\n"

    def get_optimized_symbol(self) -> Symbol:
        """The Symbol itself: programs are compiled from it, and none is written back as a Symbol."""
        return self.symbol

    # -- calls ---------------------------------------------------------------------------------------------------

    def forward(self, is_train: bool = False, **kwargs: NDArray | np.ndarray) -> list[NDArray]:
        """Compute the outputs. `kwargs` are copied into arguments first.

        is_train : the mode; it also prepares a `backward`
        Raises SettingError for an unknown name, BindError for another shape.
        """
        if kwargs:
            self._assign(kwargs)
        training = bool(is_train)
        draws = self.bound.graph.draws
        self._last = training, random_state.next_draws(draws) if draws else _NO_DRAWS
        self._recorded = None  # frees the values kept by the last forward before this one allocates
        recording = training and bool(self._linked)
        outputs = self._run(recording)
        self._recorded = outputs if recording else None
        with tape.Mode(False, None):
            for index, (target, output) in enumerate(zip(self.outputs, outputs, strict=True)):
                if output.stype == target.stype:
                    output.copyto(target)
                else:
                    self.outputs[index] = output.detach()
                    self.__dict__.pop("output_dict", None)
        return self.outputs

    def _assign(self, values: Mapping[str, NDArray | np.ndarray]) -> None:
        known = self.arg_dict
        for name, array in values.items():
            if not isinstance(array, (NDArray, np.ndarray)):
                raise BindError(f"forward: {name} must be an NDArray or a NumPy array, not {type(array).__name__}")
            if name not in known:
                raise SettingError(f"forward: there is no argument {name!r}; there are {', '.join(known)}")
            if known[name].shape != array.shape:
                raise BindError(f"forward: {name} has shape {array.shape}; it is bound to {known[name].shape}")
        with tape.Mode(False, None):
            for name, array in values.items():
                known[name][:] = array

    def _run(self, recording: bool) -> list[NDArray]:
        """The outputs of a call in the mode, and with the random numbers, of the last `forward`."""
        training, rng = self._last
        with tape.Mode(recording, training):
            if self._monitor is None and not self._sparse:
                return self._programs.run(training, recording, rng)
            graph, arrays = self.bound.graph, self._arrays
            if self._monitor is None:
                return interpret(graph, arrays, rng)
            if recording:
                states = graph.states
                pairs = zip(graph.inputs, arrays, strict=True)
                arrays = [array if value in states else with_gradient(array) for value, array in pairs]
            return interpret(graph, arrays, rng, look=self._monitor.look)

    def backward(
        self,
        out_grads: NDArray | Sequence[NDArray | None] | Mapping[str, NDArray] | None = None,
        is_train: bool = True,
    ) -> None:
        """Write the gradients of the arguments.

        out_grads : the gradients of the outputs, needed if they are no losses (SoftmaxOutput, make_loss ...)
        is_train : accepted for MXNet's sake; the mode is taken from the last `forward`
        Raises BindError for an output gradient that is missing or has another shape. Further gradients, and gradients
        of outputs without a gradient such as shape_array, are not read.
        """
        for gradient in self._zero:
            gradient[:] = 0
        if not self._linked:
            return
        heads = self._heads(out_grads)
        outputs, self._recorded = self._recorded, None
        if outputs is None:  # the last forward was a prediction, or it has been differentiated before
            outputs = self._once_more()
        pairs = []
        for index, (output, head) in enumerate(zip(outputs, heads, strict=True)):
            if output.tape_link is not None and index in self._differentiable:
                if head is None and not self.bound.graph.outputs[index].node.op.own_gradient:
                    raise _missing_head(self.symbol.list_outputs()[index])
                if head is not None and head.shape != output.shape:
                    raise BindError(
                        f"backward: the gradient of {self.symbol.list_outputs()[index]} has shape {head.shape}, the "
                        f"output {output.shape}"
                    )
                pairs.append((output, head))
        links: list[Any] = [array.tape_link for array in self._linked]
        for link in links:
            link.fresh = False
        if pairs:
            run_backward([output for output, _ in pairs], [head for _, head in pairs], False, True)
        for link in links:
            if not link.fresh and link.req == "write":
                link.grad.fill(0)

    def _once_more(self) -> list[NDArray]:
        """The last call again, recorded, with the same random numbers; states are not changed."""
        states = [array.copy() for array in self.aux_arrays]
        try:
            return self._run(recording=True)
        finally:
            with tape.Mode(False, None):
                for array, before in zip(self.aux_arrays, states, strict=True):
                    before.copyto(array)

    @cached_property
    def _differentiable(self) -> set[int]:
        """The numbers of the outputs from which a gradient leads to an argument."""
        graph = self.bound.graph
        linked = [value for value, array in zip(graph.inputs, self._arrays, strict=True) if array.tape_link is not None]
        leading = led_to(graph, linked, differentiable=True)
        return {index for index, value in enumerate(graph.outputs) if value in leading}

    def _heads(self, given: NDArray | Sequence[NDArray | None] | Mapping[str, NDArray] | None) -> list[NDArray | None]:
        if given is None:
            return [None] * len(self.outputs)
        if isinstance(given, NDArray):
            given = [given]
        names = self.symbol.list_outputs()
        if isinstance(given, Mapping):
            given = [given.get(name) for name in names]
        # MXNet reads no gradients beyond the last output, nor gradients of outputs without a gradient.
        heads = [*given, *[None] * (len(self.outputs) - len(given))][: len(self.outputs)]
        for name, head in zip(names, heads, strict=True):
            if head is not None and not isinstance(head, NDArray):
                raise SettingError(f"backward: the gradient of {name} must be an NDArray, not {type(head).__name__}")
        return heads

    # -- monitor -------------------------------------------------------------------------------------------------

    def set_monitor_callback(self, callback: Callback | None, monitor_all: bool = False) -> None:
        """Call `callback(name, array)` for the outputs of every operator in each `forward`, and for the gradients of
        all their inputs in each `backward`; None ends it. See `Monitoring` for the names.

        monitor_all : for the inputs of operators too
        The graph then runs operator by operator, which is slower.
        """
        self._monitor = None if callback is None else Monitoring(callback, bool(monitor_all))

    # -- other arrays --------------------------------------------------------------------------------------------

    def copy_params_from(
        self,
        arg_params: Mapping[str, NDArray],
        aux_params: Mapping[str, NDArray] | None = None,
        allow_extra_params: bool = False,
    ) -> None:
        """Copy values into arguments and auxiliary states, converting dtypes.

        allow_extra_params : ignore names that the Symbol does not have, instead of raising BindError
        """
        pairs = []
        for given, known, kind in (
            (arg_params, self.arg_dict, "arguments"),
            (aux_params or {}, self.aux_dict, "auxiliary states"),
        ):
            for name, array in given.items():
                if name in known:
                    if array.shape != known[name].shape:
                        raise BindError(f"copy_params_from: {name} has shape {array.shape}, not {known[name].shape}")
                    pairs.append((array, known[name]))
                elif not allow_extra_params:
                    raise BindError(f"copy_params_from: {name!r} is not among the {kind}: {', '.join(known)}")
        with tape.Mode(False, None):
            for array, target in pairs:
                array.astype(target.dtype).copyto(target)

    def reshape(
        self, partial_shaping: bool = False, allow_up_sizing: bool = False, **kwargs: Sequence[int]
    ) -> Executor:
        """An Executor for inputs of other shapes. It shares all arrays whose shape stays, and the memory of those that
        get smaller.

        kwargs : new shapes by name
        partial_shaping : let arguments change that are not named
        allow_up_sizing : let arrays get larger; larger arrays are new
        Raises BindError.
        """
        shapes, outputs, states = self.symbol.infer_shape(**{name: tuple(shape) for name, shape in kwargs.items()})
        if shapes is None:
            raise BindError(f"reshape: the shapes of all arguments do not follow from {', '.join(kwargs)}")
        resize = _Resize(kwargs, partial_shaping, allow_up_sizing)
        names = self.symbol.list_arguments()
        args = [resize(*item) for item in zip(names, self.arg_arrays, shapes, strict=True)]
        grads = [
            None if grad is None else resize(name, grad, shape)
            for name, grad, shape in zip(names, self.grad_arrays, shapes, strict=True)
        ]
        state_names = self.symbol.list_auxiliary_states()
        new_states = [resize(*item) for item in zip(state_names, self.aux_arrays, states, strict=True)]
        new_outputs = [_sized(array, tuple(shape)) for array, shape in zip(self.outputs, outputs, strict=True)]
        executor = Executor(self.symbol, self._ctx, args, grads, self._requests, new_states, new_outputs, self)
        executor._monitor = self._monitor
        return executor


class _Resize:
    """Arrays of other shapes, as `Executor.reshape` allows them."""

    def __init__(self, named: Iterable[str], partial: bool, larger: bool) -> None:
        self.named, self.partial, self.larger = set(named), partial, larger

    def __call__(self, name: str, array: NDArray, shape: Shape) -> NDArray:
        if array.shape == tuple(shape):
            return array
        if name not in self.named and not self.partial:
            raise BindError(
                f"reshape: {name} would change from {array.shape} to {tuple(shape)}, so that it is shared no longer; "
                "partial_shaping=True allows it"
            )
        if prod(shape) > array.size and not self.larger:
            raise BindError(
                f"reshape: {name} would grow from {array.shape} to {tuple(shape)}. Bind the largest shapes first, "
                "which share their memory, or pass allow_up_sizing=True"
            )
        return _sized(array, tuple(shape))


def _sized(array: NDArray, shape: Shape) -> NDArray:
    """An array of another shape: the beginning of the same memory, or new memory if that is too small."""
    size = prod(shape)
    if array.shape == shape:
        return array
    if size > array.size:
        return creation.zeros(shape, ctx=array.context, dtype=array.dtype)
    return NDArray.view_of(array.buffer, array.host_view.reshape(-1)[:size].reshape(shape))


def _tracked(array: NDArray, grad: NDArray | None, request: str) -> NDArray:
    """The memory of an argument as an array of the executor's own, so that the user's array keeps its own history."""
    own = array.detach()
    if grad is not None and request != "null":
        if grad.shape != array.shape:
            raise ShapeError(f"bind: the gradient of an argument of shape {array.shape} has shape {grad.shape}")
        if is_floating(np.dtype(array.dtype)):
            own.tape_link = tape.Leaf(grad, request)
    return own


def _values(symbol: Symbol, states: bool) -> list[Value]:
    """The variables of a Symbol that are arguments, or (`states`) its auxiliary states, in their order."""
    graph = symbol.graph()
    known = graph.states
    return [value for value in graph.inputs if (value in known) == states]


def _by_name(names: Sequence[str], arrays: Sequence[Any]) -> dict[str, Any]:
    if len(set(names)) != len(names):
        raise BindError(f"two variables have one name; use the lists instead of the dicts: {', '.join(names)}")
    return dict(zip(names, arrays, strict=True))


def _missing_head(name: str) -> BindError:
    return BindError(
        f"backward: the output {name} is no loss, so its gradient must be given: executor.backward([gradient]). "
        "To minimize an output, bind mx.sym.make_loss(output)"
    )
