"""What `Symbol.bind` and `Symbol.simple_bind` do: check or make the arrays of an Executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab.diagnostics.errors import AttributeSpecError, BindError, HybridLabError, SettingError
from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.graph.node import Value
from hybrid_lab.graph.partial import is_complete
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.mxnet.executor.executor import Executor
from hybrid_lab.ndarray import creation
from hybrid_lab.ndarray.context import Context, resolve
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.tape import GRAD_REQS
from hybrid_lab.ops.framework.types import Shape
from hybrid_lab.symbol.symbol import STORAGE_TYPES, Symbol

Arrays = Sequence[NDArray | None] | Mapping[str, NDArray]
GradReq = str | Sequence[str] | Mapping[str, str]


def bind(
    symbol: Symbol,
    ctx: Context,
    args: Arrays,
    args_grad: Arrays | None = None,
    grad_req: GradReq = "write",
    aux_states: Arrays | None = None,
    group2ctx: Mapping[str, Context] | None = None,
    shared_exec: Executor | None = None,
) -> Executor:
    """See `Symbol.bind`."""
    _check_context(ctx, group2ctx)
    names, state_names = symbol.list_arguments(), symbol.list_auxiliary_states()
    arrays = _complete("args", args, names)
    states = _complete("aux_states", [] if aux_states is None else aux_states, state_names)
    grads = [None] * len(names) if args_grad is None else _in_order("args_grad", args_grad, names)
    requests = _requests(grad_req, names)
    outputs = _outputs(symbol, arrays, states, ctx)
    return Executor(symbol, ctx, arrays, grads, requests, states, outputs, shared_exec)


def simple_bind(
    symbol: Symbol,
    ctx: Context,
    grad_req: GradReq = "write",
    type_dict: Mapping[str, DTypeLike] | None = None,
    stype_dict: Mapping[str, str] | None = None,
    group2ctx: Mapping[str, Context] | None = None,
    shared_arg_names: Sequence[str] | None = None,
    shared_exec: Executor | None = None,
    shared_buffer: dict[str, NDArray] | None = None,
    **kwargs: Sequence[int],
) -> Executor:
    """See `Symbol.simple_bind`."""
    _check_context(ctx, group2ctx)
    for what, value, kind in (("shared_arg_names", shared_arg_names, list), ("shared_buffer", shared_buffer, dict)):
        if value is not None and not isinstance(value, kind):
            raise BindError(f"simple_bind: {what} must be a {kind.__name__}, not {type(value).__name__}")
    names, state_names = symbol.list_arguments(), symbol.list_auxiliary_states()
    known = {*names, *state_names}
    given = {name: tuple(shape) for name, shape in kwargs.items() if name in known}
    try:
        shapes, output_shapes, state_shapes = symbol.known_shapes(**given)
        unknown = [
            name
            for name, shape in zip((*names, *state_names), (*shapes, *state_shapes), strict=True)
            if not is_complete(shape)
        ]
        if unknown:
            raise BindError(f"the shapes of {', '.join(unknown)} do not follow from those given")
        dtypes = {name: dtype for name, dtype in (type_dict or {}).items() if name in known}
        types, output_types, state_types = symbol.default_types(**dtypes)
    except HybridLabError as error:
        listed = "".join(f"\n{name}: {shape}" for name, shape in kwargs.items())
        raise BindError(f"simple_bind: {error}\nGiven shapes:{listed}") from error
    requests = _requests(grad_req, names)
    stypes, grad_stypes = storage_types(symbol, stype_dict or {})
    pool = _Pool(ctx, shared_exec, shared_arg_names, shared_buffer, _places(symbol, group2ctx))
    args = [pool.argument(*item, stypes.get(item[0])) for item in zip(names, shapes, types, strict=True)]
    wanted = zip(names, shapes, types, requests, strict=True)
    grads = [
        None if request == "null" else pool.gradient(name, shape, dtype, grad_stypes.get(name))
        for name, shape, dtype, request in wanted
    ]
    states = [pool.state(*item) for item in zip(state_names, state_shapes, state_types, strict=True)]
    outputs = [_zeros(*item, ctx) for item in zip(output_shapes, output_types, strict=True)]
    return Executor(symbol, ctx, args, grads, requests, states, outputs, shared_exec)


class _Pool:
    """New arrays for an Executor; or arrays of another Executor, or of a buffer, under the same name."""

    def __init__(
        self,
        ctx: Context,
        executor: Executor | None,
        names: Sequence[str] | None,
        buffer: dict[str, NDArray] | None,
        places: Mapping[str, Context],
    ) -> None:
        self.ctx, self.executor, self.buffer, self.places = ctx, executor, buffer, places
        self.names = set(names or ())

    def argument(self, name: str, shape: Shape, dtype: DTypeLike, stype: str | None) -> NDArray:
        if self.executor is not None and name in self.names:
            return _shared(name, self.executor.arg_dict.get(name), shape, dtype, self._ctx(name), stype)
        if stype is not None:
            return _zeros(shape, dtype, self._ctx(name), stype)
        if self.buffer is None or name in self.names:
            return _zeros(shape, dtype, self._ctx(name))
        held = self.buffer.get(name)
        if held is None or held.dtype != dtype or held.size < prod(shape):
            self.buffer[name] = held = _zeros(shape, dtype, self._ctx(name))
        return NDArray.view_of(held.buffer, held.host_view.reshape(-1)[: prod(shape)].reshape(shape))

    def gradient(self, name: str, shape: Shape, dtype: DTypeLike, stype: str | None) -> NDArray:
        shared = self.executor.grad_dict.get(name) if self.executor is not None and name in self.names else None
        return _shared(name, shared, shape, dtype, self._ctx(name), stype)

    def state(self, name: str, shape: Shape, dtype: DTypeLike) -> NDArray:
        shared = self.executor.aux_dict.get(name) if self.executor is not None else None
        if shared is None or shared.shape != tuple(shape) or shared.dtype != dtype:
            return _zeros(shape, dtype, self._ctx(name))
        return shared

    def _ctx(self, name: str) -> Context:
        return self.places.get(name, self.ctx)


def _places(symbol: Symbol, group2ctx: Mapping[str, Context] | None) -> dict[str, Context]:
    """The contexts of arguments and states whose attribute `ctx_group` has one."""
    if not group2ctx:
        return {}
    groups = {name: attributes.get("ctx_group", "") for name, attributes in symbol.attr_dict().items()}
    return {name: group2ctx[group] for name, group in groups.items() if group in group2ctx}


def _shared(
    name: str, array: NDArray | None, shape: Shape, dtype: DTypeLike, ctx: Context, stype: str | None
) -> NDArray:
    """The array of another executor; a new one if it has none."""
    if array is None:
        return _zeros(shape, dtype, ctx, stype)
    if array.shape != tuple(shape) or array.dtype != dtype:
        raise BindError(
            f"simple_bind: {name} cannot be shared with the other executor: there it is {np.dtype(array.dtype).name} "
            f"{array.shape}, here {np.dtype(dtype).name} {tuple(shape)}"
        )
    return array


def storage_types(symbol: Symbol, given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The sparse storage types of arguments, and of gradients, by name.

    given : the storage types that the caller asks for; all others come from `sym.var(name, stype=...)`
    The gradient of a weight that only embeddings with sparse_grad read is row_sparse.
    """
    attributes = symbol.attr_dict()
    found = {name: STORAGE_TYPES[int(each.get("__storage_type__", 0))] for name, each in attributes.items()} | {**given}
    readers: dict[str, set[bool]] = {}
    for node in symbol.graph().nodes:
        sparse = bool(node.op.attributes.get("sparse_grad"))
        for index, value in enumerate(node.inputs):
            if isinstance(value, Value):
                readers.setdefault(value.node.name, set()).add(sparse and index == 1)
    gradients = {name: "row_sparse" for name, kinds in readers.items() if kinds == {True}}
    return {name: stype for name, stype in found.items() if stype != "default"}, gradients


def _zeros(shape: Shape, dtype: DTypeLike, ctx: Context, stype: str | None = None) -> NDArray:
    return creation.zeros(tuple(shape), ctx=ctx, dtype=dtype, stype=stype)


def _outputs(symbol: Symbol, args: Sequence[NDArray], states: Sequence[NDArray], ctx: Context) -> list[NDArray]:
    """Arrays for the outputs. Raises ShapeError or DTypeError if arrays do not fit the Symbol."""
    graph = symbol.graph()
    known, arguments, auxiliary = graph.states, iter(args), iter(states)
    arrays = {value: next(auxiliary if value in known else arguments) for value in graph.inputs}
    shapes = {value: array.shape for value, array in arrays.items()}
    inferred = infer(graph, shapes, {value: np.dtype(array.dtype) for value, array in arrays.items()})
    return [_zeros(value.shape, value.dtype, ctx) for value in inferred.outputs]


def _check_context(ctx: Context, group2ctx: Mapping[str, Context] | None) -> None:
    if not isinstance(ctx, Context):
        raise SettingError(f"bind: ctx must be a Context such as mx.cpu(), not {type(ctx).__name__}")
    resolve(ctx)
    for group, other in (group2ctx or {}).items():
        if other.is_gpu != ctx.is_gpu:
            raise BindError(
                f"bind: group2ctx puts the group {group!r} on {other} and the rest on {ctx}; all arrays of a graph "
                "must be on one device"
            )


def _requests(grad_req: GradReq, names: Sequence[str]) -> list[str]:
    """The grad_req of each argument: write, add or null."""
    if isinstance(grad_req, str):
        requests = [grad_req] * len(names)
    elif not grad_req:
        raise BindError("bind: grad_req must not be empty")
    elif isinstance(grad_req, Mapping):
        requests = [grad_req.get(name, "null") for name in names]
    else:
        requests = list(grad_req)
        if len(requests) != len(names):
            raise BindError(f"bind: there are {len(requests)} grad_reqs for {len(names)} arguments")
    for request in requests:
        check_choice("bind: grad_req", request, GRAD_REQS, AttributeSpecError)
    return requests


def _in_order(what: str, given: Arrays, names: Sequence[str]) -> list[NDArray | None]:
    """The arrays in the order of `names`, None if there is none. Raises BindError or SettingError."""
    if isinstance(given, Mapping):
        arrays: list[NDArray | None] = [given.get(name) for name in names]
    elif isinstance(given, (list, tuple)):
        if len(given) != len(names):
            raise BindError(f"bind: {what} holds {len(given)} arrays, and there are {len(names)}: {', '.join(names)}")
        arrays = list(given)
    else:
        raise SettingError(f"bind: {what} must be a list or a dict of NDArrays, not {type(given).__name__}")
    for name, array in zip(names, arrays, strict=True):
        if array is not None and not isinstance(array, NDArray):
            raise SettingError(f"bind: {name} in {what} must be an NDArray, not {type(array).__name__}")
    return arrays


def _complete(what: str, given: Arrays, names: Sequence[str]) -> list[NDArray]:
    """`_in_order` if no array may be missing."""
    arrays = _in_order(what, given, names)
    missing = [name for name, array in zip(names, arrays, strict=True) if array is None]
    if missing:
        raise BindError(f"bind: {what} lacks {', '.join(missing)}")
    return [array for array in arrays if array is not None]
