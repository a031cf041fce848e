"""Calls of operators written in Python: `nd.Custom` on arrays, `sym.Custom` as a node of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hybrid_lab import autograd
from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics import DTypeError, HybridLabError
from hybrid_lab.graph.custom import Custom
from hybrid_lab.mxnet.operator.host_code import CustomCode
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.context import current_context
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.ops.framework.surface import MISSING
from hybrid_lab.symbol import Symbol, tracing
from hybrid_lab.symbol.attribute import AttrScope
from hybrid_lab.symbol.symbol import as_arrays, compose


def custom(*data: Any, op_type: str, name: str | None = None, **kwargs: Any) -> Any:
    """The operator that is registered as `op_type`, on arrays: its inputs, then its states.

    kwargs : inputs by name; the others go to the CustomOpProp as text, as in MXNet
    In traced code the arguments are Symbols, and so are the results.
    returns : the output; several in a list, as in MXNet
    """
    if any(isinstance(each, Symbol) for each in (*data, *kwargs.values())):
        return custom_symbol(*data, op_type=op_type, name=name, **kwargs)
    named = {key: value for key, value in kwargs.items() if isinstance(value, NDArray)}
    code = CustomCode(op_type, {key: str(value) for key, value in kwargs.items() if key not in named})
    names = [*code.inputs, *code.states]
    arrays = _in_order(op_type, names, data, named)
    if any(each is MISSING for each in arrays):
        raise _wrong_count(op_type, names, len(data) + len(named))
    result: NDArray | tuple[NDArray, ...] = _CustomFunction(code, arrays)(*arrays[: len(code.inputs)])
    return list(result) if isinstance(result, tuple) else result


def custom_symbol(
    *data: Any, op_type: str, name: str | None = None, attr: Mapping[str, str] | None = None, **kwargs: Any
) -> Symbol | list[Symbol]:
    """The operator that is registered as `op_type`, as a node of a graph: its inputs, then its states.

    Inputs left out become variables, as for every operator; in a hybridized Block they are an error, as in a call on
    arrays. An engine runs the node on the host, between its own kernels. Each forward has an operator of its own, as in
    a call on arrays.

    kwargs : inputs by name; the others go to the CustomOpProp as text
    attr : attributes of the node and of the variables that are made for inputs left out
    """
    named = {key: value for key, value in kwargs.items() if isinstance(value, Symbol)}
    own = {key: str(value) for key, value in kwargs.items() if key.startswith("__")} | dict(attr or {})
    keywords = {key: str(value) for key, value in kwargs.items() if key not in named and key not in own}
    code = CustomCode(op_type, keywords)
    operands = _in_order(op_type, [*code.inputs, *code.states], data, named)
    if tracing.stands_for_arrays() and any(each is MISSING for each in operands):
        raise _wrong_count(op_type, [*code.inputs, *code.states], len(data) + len(named))
    operator = Custom(code)
    for position, each in enumerate(operands):
        if isinstance(each, (bool, int, float)):
            raise DTypeError(f"{op_type}: {operator.signature.inputs[position]} must be a Symbol, not a number")
    with AttrScope(**own):
        return as_arrays(compose(operator, operands, name))


def custom_of_file(op_type: str, keywords: Mapping[str, str]) -> Custom:
    """The operator of a node in a file. Raises HybridLabError if nothing is registered as `op_type`."""
    return Custom(CustomCode(op_type, dict(keywords)))


def _in_order(op_type: str, names: Sequence[str], data: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """The inputs and states in their order, MISSING for arguments that were not given."""
    if len(data) > len(names) or not {*names[len(data) :]} >= named.keys():
        raise _wrong_count(op_type, names, len(data) + len(named))
    return [*data, *(named.get(each, MISSING) for each in names[len(data) :])]


def _wrong_count(op_type: str, names: Sequence[str], count: int) -> HybridLabError:
    return HybridLabError(f"{op_type} takes {len(names)} arrays ({', '.join(names)}), not {count}")


class _CustomFunction(autograd.Function):
    """One call of an operator on arrays, with its gradient."""

    def __init__(self, code: CustomCode, arrays: Sequence[NDArray]) -> None:
        super().__init__()
        self._graph_operator = node = Custom(code)  # it checks the types as in a graph
        count = len(code.inputs)
        shapes, dtypes = [each.shape for each in arrays], [np.dtype(each.dtype) for each in arrays]
        types = zip(node.infer_shape(*shapes), node.infer_type(*dtypes), strict=True)
        self._outputs = list(types)[: len(code.outputs)]
        self._states, self._aux = arrays[count:], [*map(_dense, arrays[count:])]
        self._with_heads = code.needs_heads
        self._context = arrays[0].context if arrays else current_context()
        self._custom = code.create(self._context, shapes[:count], dtypes[:count])

    def forward(self, *inputs: NDArray) -> NDArray | tuple[NDArray, ...]:
        """The outputs."""
        inputs = tuple(map(_dense, inputs))
        outputs = [nd.zeros(tuple(shape), ctx=self._context, dtype=dtype) for shape, dtype in self._outputs]
        with random_state.substream():  # as in a graph, if the node has one draw
            self._custom.forward(
                is_train=autograd.is_training(),
                req=["write"] * len(outputs),
                in_data=list(inputs),
                out_data=outputs,
                aux=self._aux,
            )
        self._write_states()
        self.save_for_backward(*inputs, *outputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def backward(self, *heads: NDArray) -> NDArray | tuple[NDArray, ...]:
        """The gradients of the inputs."""
        count = len(self.saved_tensors) - len(self._outputs)
        inputs, outputs = list(self.saved_tensors[:count]), list(self.saved_tensors[count:])
        gradients = [nd.zeros_like(each) for each in inputs]
        given = list(heads) if self._with_heads else []
        self._custom.backward(
            req=["write"] * len(inputs),
            out_grad=given,
            in_data=inputs,
            out_data=outputs,
            in_grad=gradients,
            aux=self._aux,
        )
        self._write_states()
        return gradients[0] if len(gradients) == 1 else tuple(gradients)

    def _write_states(self) -> None:
        """Give sparse states the values of the dense arrays that the code has in their place."""
        for state, dense in zip(self._states, self._aux, strict=True):
            if state is not dense:
                state[:] = dense


def _dense(array: NDArray) -> NDArray:
    return array if array.stype == "default" else array.tostype("default").detach()
