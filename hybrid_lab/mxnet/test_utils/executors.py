"""Checking Symbols: forward and backward beside expected arrays, numeric gradients, and other dtypes."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab import ndarray as nd
from hybrid_lab import symbol as sym_room
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.context import Context, current_context

from .comparing import Tolerance, assert_almost_equal, default_numeric_eps, get_tolerance, get_tols

Location: TypeAlias = "Mapping[str, np.ndarray | NDArray] | Sequence[np.ndarray | NDArray]"
GradReq: TypeAlias = "str | Sequence[str] | Mapping[str, str]"
AS_GIVEN = "asnumpy"
"""For `dtype`: every array keeps its own."""


class Executor(Protocol):
    """The members of an Executor that the checks use."""

    outputs: list[NDArray]
    arg_dict: dict[str, NDArray]
    aux_dict: dict[str, NDArray]
    grad_dict: dict[str, NDArray | None]
    output_dict: dict[str, NDArray]
    grad_arrays: list[NDArray | None]

    def forward(self, is_train: bool = False) -> object: ...
    def backward(self, out_grads: Any = None) -> object: ...


class Bindable(Protocol):
    """The members of a Symbol that the checks use."""

    def list_arguments(self) -> list[str]: ...
    def list_outputs(self) -> list[str]: ...
    def list_auxiliary_states(self) -> list[str]: ...
    def infer_shape(self, **shapes: Any) -> Any: ...
    def bind(
        self, ctx: Context, args: Any, args_grad: Any = None, grad_req: Any = "write", aux_states: Any = None
    ) -> Any: ...
    def simple_bind(self, ctx: Context, grad_req: Any = "write", type_dict: Any = None, **shapes: Any) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...


def simple_forward(
    sym: Bindable, ctx: Context | None = None, is_train: bool = False, **inputs: np.ndarray
) -> np.ndarray | list[np.ndarray]:
    """The outputs of a Symbol for NumPy arrays by name; the array itself for a single output."""
    arrays = {name: nd.array(values) for name, values in inputs.items()}
    executor: Executor = sym.bind(ctx or current_context(), args=arrays)
    executor.forward(is_train=is_train)
    outputs = [each.asnumpy() for each in executor.outputs]
    return outputs[0] if len(outputs) == 1 else outputs


def _array(values: np.ndarray | NDArray, ctx: Context, dtype: DTypeLike) -> NDArray:
    array: NDArray = nd.array(values, ctx=ctx, dtype=values.dtype if dtype == AS_GIVEN else dtype)
    return array


def _arguments(sym: Bindable, location: Location, ctx: Context, dtype: DTypeLike) -> dict[str, NDArray]:
    """The arguments by name. Raises ValueError if a mapping has other names than the Symbol."""
    names = sym.list_arguments()
    if isinstance(location, Mapping):
        if set(location) != set(names):
            raise ValueError(f"the Symbol has the arguments {sorted(names)}, the location {sorted(location)}")
    else:
        location = dict(zip(names, location))
    return {
        name: _array(location[name], ctx, dtype) if isinstance(location[name], np.ndarray) else location[name]  # type: ignore[misc]
        for name in sorted(location)
    }


def _states(sym: Bindable, states: Location | None, ctx: Context, dtype: DTypeLike) -> dict[str, NDArray] | None:
    """The auxiliary states by name. Raises ValueError if a mapping has other names than the Symbol."""
    if states is None:
        return None
    names = sym.list_auxiliary_states()
    if not isinstance(states, Mapping):
        states = dict(zip(names, states))
    elif set(states) != set(names):
        raise ValueError(f"the Symbol has the auxiliary states {sorted(names)}, not {sorted(states)}")
    return {name: _array(values, ctx, dtype) for name, values in states.items()}


def _requests(sym: Bindable, grad_req: GradReq) -> dict[str, str]:
    names = sym.list_arguments()
    if isinstance(grad_req, str):
        return dict.fromkeys(names, grad_req)
    return dict(grad_req) if isinstance(grad_req, Mapping) else dict(zip(names, grad_req))


def _stored(arrays: dict[str, NDArray], stypes: Mapping[str, str] | None) -> dict[str, NDArray]:
    """The arrays in these storage types; all other arrays unchanged."""
    kinds = stypes or {}
    return {name: array.tostype(kinds[name]) if kinds.get(name) else array for name, array in arrays.items()}


def numeric_grad(
    executor: Executor,
    location: Mapping[str, np.ndarray],
    aux_states: Mapping[str, np.ndarray] | None = None,
    eps: float = 1e-4,
    use_forward_train: bool = True,
    dtype: DTypeLike = np.float32,
    grad_nodes: Collection[str] | None = None,
) -> dict[str, np.ndarray]:
    """Gradients of the sum of the first output by central differences, by argument; zeros for whole numbers.

    location : the values of all arguments, which the executor holds again afterwards
    eps : the distance of the two points of a difference
    grad_nodes : the arguments whose gradients are computed, the others get zeros; default: all
    """
    gradients = {}
    for name, values in location.items():
        executor.arg_dict[name][:] = nd.array(values, dtype=dtype)

    def total(name: str, values: np.ndarray) -> np.ndarray:
        executor.arg_dict[name][:] = nd.array(values, dtype=dtype)
        for state, saved in (aux_states or {}).items():
            executor.aux_dict[state][:] = nd.array(saved, dtype=dtype)
        executor.forward(is_train=use_forward_train)
        return executor.outputs[0].asnumpy()

    for name, values in location.items():
        gradient = np.zeros(values.shape, dtype)
        gradients[name] = gradient
        if values.dtype.kind != "f" or (grad_nodes is not None and name not in grad_nodes):
            continue
        point = np.array(values, order="C")
        for index in np.ndindex(point.shape):
            before = point[index]
            point[index] = before + eps / 2
            above = total(name, point)
            point[index] = point[index] - eps
            gradient[index] = (above - total(name, point)).sum() / eps
            point[index] = before
        executor.arg_dict[name][:] = nd.array(values, dtype=dtype)
    return gradients


def check_numeric_gradient(
    sym: Bindable,
    location: Location,
    aux_states: Location | None = None,
    numeric_eps: Tolerance = None,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    grad_nodes: Sequence[str] | Mapping[str, str] | None = None,
    use_forward_train: bool = True,
    ctx: Context | None = None,
    grad_stype_dict: Mapping[str, str] | None = None,
    dtype: DTypeLike = np.float32,
) -> None:
    """Raise AssertionError if a Symbol's backward differs from a numeric gradient at `location`.

    The gradient of a random projection of the first output is checked.

    grad_nodes : the arguments whose gradients are compared, or argument -> 'write', 'add' or 'null'; default: all
    use_forward_train : whether the numeric gradient runs the forward in train mode
    grad_stype_dict : the storage types of gradients by argument
    """
    ctx = ctx or current_context()
    arguments = _arguments(sym, location, ctx, dtype)
    states = _states(sym, aux_states, ctx, dtype)
    values = {name: array.asnumpy() for name, array in arguments.items()}
    state_values = None if states is None else {name: array.asnumpy() for name, array in states.items()}
    if isinstance(grad_nodes, Mapping):
        requests = dict(grad_nodes)
    else:
        requests = dict.fromkeys(sym.list_arguments() if grad_nodes is None else grad_nodes, "write")
    shape = sym.infer_shape(**{name: array.shape for name, array in arguments.items()})[1][0]
    projected = _projected(sym)
    projection = nd.array(np.random.rand(*shape) + 0.1, ctx=ctx, dtype=dtype)
    before = {name: np.random.normal(0, 0.01, arguments[name].shape) for name in requests}
    before["__random_proj"] = np.random.normal(0, 0.01, shape)
    executor: Executor = projected.bind(
        ctx,
        args={**arguments, "__random_proj": projection},
        args_grad=_stored(
            {name: nd.array(array, ctx=ctx, dtype=dtype) for name, array in before.items()}, grad_stype_dict
        ),
        grad_req={**dict.fromkeys(projected.list_arguments(), "write"), **requests},
        aux_states=states,
    )
    executor.forward(is_train=True)
    eps = get_tolerance(executor.outputs[0], numeric_eps, default_numeric_eps())
    executor.backward()
    found = {name: executor.grad_dict[name] for name in requests}
    found_values = {name: None if array is None else array.asnumpy().copy() for name, array in found.items()}
    compared = [name for name, request in requests.items() if request != "null"]
    numeric = numeric_grad(executor, values, state_values, eps, use_forward_train, dtype, compared)
    for name, request in requests.items():
        wanted = _after(request, numeric[name], before[name], name)
        assert_almost_equal(wanted, found_values[name], rtol, atol, (f"NUMERICAL_{name}", f"BACKWARD_{name}"))  # type: ignore[arg-type]


def _projected(sym: Bindable) -> Any:
    """The Symbol times a random array, as a loss whose gradient is one."""
    projection: Any = sym_room.var("__random_proj")
    to_np = getattr(projection, "as_np_ndarray", None)
    kind: type = type(sym)
    numpy_symbol = kind is not sym_room.Symbol and to_np is not None
    product: Any = sym * (to_np() if numpy_symbol and to_np is not None else projection)
    return sym_room.make_loss(product.as_nd_ndarray() if numpy_symbol else product)


def _after(request: str, gradient: np.ndarray, before: np.ndarray, name: str) -> np.ndarray:
    """The content of a gradient's array after a backward. Raises ValueError for an unknown request."""
    if request == "write":
        return gradient
    if request == "add":
        return gradient + before.astype(gradient.dtype)
    if request == "null":
        return before
    raise ValueError(f"the gradient of {name} cannot be {request!r}; use 'write', 'add' or 'null'")


def check_symbolic_forward(
    sym: Bindable,
    location: Location,
    expected: Location,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    aux_states: Location | None = None,
    ctx: Context | None = None,
    equal_nan: bool = False,
    dtype: DTypeLike = np.float32,
) -> list[NDArray]:
    """Raise AssertionError if the outputs in predict mode differ from those expected; returns the outputs.

    location, expected, aux_states : arrays in the Symbol's order, or by name
    dtype : of all inputs; "asnumpy" keeps each array's
    """
    ctx = ctx or current_context()
    arguments = _arguments(sym, location, ctx, dtype)
    executor: Executor = sym.bind(
        ctx,
        args=arguments,
        args_grad={name: nd.zeros(array.shape, ctx=ctx, dtype=array.dtype) for name, array in arguments.items()},
        aux_states=_states(sym, aux_states, ctx, dtype),
    )
    executor.forward(is_train=False)
    names = sym.list_outputs()
    wanted = [expected[name] for name in names] if isinstance(expected, Mapping) else expected
    for name, expect, output in zip(names, wanted, executor.outputs):
        assert_almost_equal(expect, output, rtol, atol, (f"EXPECTED_{name}", f"FORWARD_{name}"), equal_nan)
    return executor.outputs


def check_symbolic_backward(
    sym: Bindable,
    location: Location,
    out_grads: Location | None,
    expected: Location,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    aux_states: Location | None = None,
    grad_req: GradReq = "write",
    ctx: Context | None = None,
    grad_stypes: Mapping[str, str] | None = None,
    equal_nan: bool = False,
    dtype: DTypeLike = np.float32,
) -> dict[str, NDArray]:
    """Raise AssertionError if gradients differ from those expected; returns the gradients by argument.

    out_grads : gradients of the outputs, in order or by name
    expected : gradients of the arguments, in order or by name
    grad_stypes : the storage types of gradients by argument
    """
    ctx = ctx or current_context()
    wanted = dict(expected) if isinstance(expected, Mapping) else dict(zip(sym.list_arguments(), expected))
    before = {name: np.random.normal(size=wanted[name].shape) for name in sorted(wanted)}
    gradients = {
        name: nd.array(values, ctx=ctx, dtype=wanted[name].dtype if dtype == AS_GIVEN else dtype)
        for name, values in before.items()
    }
    gradients = _stored(gradients, grad_stypes)
    before = {name: array.asnumpy() for name, array in gradients.items()}
    requests = _requests(sym, grad_req)
    executor: Executor = sym.bind(
        ctx,
        args=_arguments(sym, location, ctx, dtype),
        args_grad=gradients,
        grad_req=requests,
        aux_states=_states(sym, aux_states, ctx, dtype),
    )
    executor.forward(is_train=True)

    def given(values: np.ndarray | NDArray) -> NDArray:
        return _array(values, ctx, dtype) if isinstance(values, np.ndarray) else values

    if isinstance(out_grads, Mapping):
        executor.backward({name: given(values) for name, values in out_grads.items()})
    else:
        executor.backward(None if out_grads is None else [given(values) for values in out_grads])
    for name, values in wanted.items():
        after = _after(requests[name], np.asarray(getattr(values, "asnumpy", lambda v=values: v)()), before[name], name)
        labels = (f"EXPECTED_{name}", f"BACKWARD_{name}")
        assert_almost_equal(after, gradients[name], rtol, atol, labels, equal_nan)
    return gradients


def check_speed(
    sym: Bindable,
    location: Mapping[str, np.ndarray] | None = None,
    ctx: Context | None = None,
    N: int = 20,
    grad_req: GradReq | None = None,
    typ: str = "whole",
    **kwargs: tuple[int, ...],
) -> float:
    """Seconds for one forward (typ='forward'), or for a forward and a backward (typ='whole'), the mean of N.

    location : values by argument; without it `kwargs` are shapes of arguments, and the values are random
    """
    if typ not in ("whole", "forward"):
        raise ValueError(f"typ is 'whole' or 'forward', not {typ!r}")
    shapes = kwargs if location is None else {name: values.shape for name, values in location.items()}
    executor: Executor = sym.simple_bind(ctx or current_context(), grad_req=grad_req or "write", **shapes)
    values = location or {name: np.random.normal(size=array.shape) for name, array in executor.arg_dict.items()}
    for name, each in values.items():
        executor.arg_dict[name][:] = each.astype(executor.arg_dict[name].dtype)

    def once() -> None:
        executor.forward(is_train=typ == "whole")
        if typ == "whole":
            executor.backward(executor.outputs)

    once()
    nd.waitall()
    start = time.perf_counter()
    for _ in range(N):
        once()
    nd.waitall()
    return (time.perf_counter() - start) / N


def check_consistency(
    sym: Bindable | Sequence[Bindable],
    ctx_list: Sequence[Mapping[str, Any]],
    scale: float = 1.0,
    grad_req: GradReq = "write",
    arg_params: dict[str, np.ndarray] | None = None,
    aux_params: dict[str, np.ndarray | float] | None = None,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    raise_on_err: bool = True,
    ground_truth: Mapping[str, NDArray] | None = None,
    equal_nan: bool = False,
    use_uniform: bool = False,
    rand_type: DTypeLike = np.float64,
) -> Mapping[str, NDArray | None]:
    """Raise AssertionError if a Symbol gives other outputs or gradients in another context or dtype.

    ctx_list : arguments of `simple_bind`: {'ctx': mx.cpu(), 'data': (2, 3), 'type_dict': {'data': 'float16'}}
    scale : standard deviation of random values, or of uniform ones (use_uniform) the half width
    arg_params, aux_params : values of arguments and states; default: random, and 0
    ground_truth : what to compare with; default: the run with the widest dtype
    raise_on_err : print differences only if it is False
    """
    if len(ctx_list) < 2:
        raise ValueError("check_consistency needs at least two entries in ctx_list to compare")
    symbols: list[Any] = list(sym) if isinstance(sym, (list, tuple)) else [sym] * len(ctx_list)
    executors: list[Executor] = [each.simple_bind(grad_req=grad_req, **ctx) for each, ctx in zip(symbols, ctx_list)]
    values = {} if arg_params is None else arg_params
    states = {} if aux_params is None else aux_params
    for name, array in sorted(executors[0].arg_dict.items()):
        if name not in values:
            half = 0.92 * scale
            drawn = np.random.uniform(-half, half, array.shape) if use_uniform else None
            values[name] = (np.random.normal(0, scale, array.shape) if drawn is None else drawn).astype(rand_type)
    for executor in executors:
        for name, array in executor.arg_dict.items():
            array[:] = values[name]
        for name, array in executor.aux_dict.items():
            array[:] = states.get(name, 0)
        for gradient in executor.grad_arrays if grad_req == "add" else ():
            if gradient is not None:
                gradient[:] = 0

    truth_at = int(np.argmax([np.dtype(each.outputs[0].dtype).itemsize for each in executors]))
    comparing = _Consistency(rtol, atol, equal_nan, raise_on_err)
    for executor in executors:
        executor.forward(is_train=False)
    truth: Mapping[str, NDArray | None] = ground_truth or executors[truth_at].output_dict
    others = [each for number, each in enumerate(executors) if number != truth_at]
    for executor in others:
        comparing.compare(executor.output_dict, truth)
    if grad_req == "null":
        return truth
    for executor in executors:
        executor.forward(is_train=True)
    narrowest = [
        min((np.dtype(each.outputs[number].dtype) for each in executors), key=lambda dtype: dtype.itemsize)
        for number in range(len(executors[0].outputs))
    ]
    heads = [out.astype(dtype).asnumpy() for out, dtype in zip(executors[0].outputs, narrowest)]
    for executor in executors:
        executor.backward(
            [nd.array(head, ctx=out.context, dtype=out.dtype) for head, out in zip(heads, executor.outputs)]
        )
    reference = executors[truth_at]
    truth = ground_truth or {**reference.output_dict, **reference.grad_dict}
    for executor in others:
        comparing.compare({**executor.output_dict, **executor.grad_dict}, truth, np.dtype(executor.outputs[0].dtype))
    return truth


class _Consistency:
    """Compares dictionaries of arrays under the tolerances of the narrower dtype."""

    def __init__(self, rtol: Tolerance, atol: Tolerance, equal_nan: bool, strict: bool) -> None:
        self._rtol, self._atol, self._equal_nan, self._strict = rtol, atol, equal_nan, strict

    def compare(
        self,
        arrays: Mapping[str, NDArray | None],
        truth: Mapping[str, NDArray | None],
        narrow: np.dtype[np.generic] | None = None,
    ) -> None:
        """narrow : dtype of the run's outputs, whose tolerances apply to wider gradients too"""
        for name, array in arrays.items():
            wanted = truth.get(name)
            if wanted is None or array is None:
                continue
            rtol, atol = self._rtol, self._atol
            if narrow is not None and narrow.itemsize < np.dtype(array.dtype).itemsize:
                rtol, atol = get_tols(array.astype(narrow), wanted, rtol, atol)
            try:
                assert_almost_equal(array, wanted, rtol, atol, equal_nan=self._equal_nan)
            except AssertionError as error:
                print(f"{name} differs: {error}")
                if self._strict:
                    raise
