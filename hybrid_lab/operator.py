"""mx.operator: operators written in Python, as classes that MXNet code registers under a name and calls as `nd.Custom`.

They run eagerly, with a gradient of their own. They have no symbol: a graph cannot have them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args, get_origin

import numpy as np

from hybrid_lab import autograd
from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics import HybridLabError, ShapeError
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ops.framework.attributes import Field
from hybrid_lab.ops.framework.operator import find, registered_names

__all__ = [
    "CustomOp",
    "CustomOpProp",
    "OperatorArguments",
    "get_all_registered_operators",
    "get_operator_arguments",
    "register",
]

Shapes: TypeAlias = Sequence[Sequence[int]]
_registered: dict[str, type[CustomOpProp]] = {}


class CustomOp:
    """Base of the operators: a subclass defines `forward`, and `backward` if it has a gradient."""

    def forward(
        self,
        is_train: bool,
        req: Sequence[str],
        in_data: Sequence[NDArray],
        out_data: Sequence[NDArray],
        aux: Sequence[NDArray],
    ) -> None:
        """Write the outputs: `self.assign(out_data[0], req[0], result)`."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward()")

    def backward(
        self,
        req: Sequence[str],
        out_grad: Sequence[NDArray],
        in_data: Sequence[NDArray],
        out_data: Sequence[NDArray],
        in_grad: Sequence[NDArray],
        aux: Sequence[NDArray],
    ) -> None:
        """Write the gradients of the inputs: `self.assign(in_grad[0], req[0], gradient)`."""
        raise NotImplementedError(f"{type(self).__name__} does not define backward()")

    def assign(self, dst: NDArray, req: str, src: NDArray | float) -> None:
        """Write a result as `req` says: 'write' or 'inplace', 'add', or 'null'."""
        if req in ("write", "inplace"):
            dst[:] = src
        elif req == "add":
            dst[:] += src


class CustomOpProp:
    """Base of the descriptions of operators: names, shapes, dtypes, and how the operator is made.

    need_top_grad : whether `backward` reads the gradients of the outputs; a loss does not
    """

    def __init__(self, need_top_grad: bool = True) -> None:
        self.need_top_grad_ = need_top_grad

    def list_arguments(self) -> list[str]:
        """Names of the inputs."""
        return ["data"]

    def list_outputs(self) -> list[str]:
        """Names of the outputs."""
        return ["output"]

    def list_auxiliary_states(self) -> list[str]:
        """Names of the states, which are given behind the inputs."""
        return []

    def infer_shape(self, in_shape: list[list[int]]) -> tuple[Shapes, ...]:
        """Shapes of inputs, outputs and states, of the inputs' shapes. Here: all outputs are like the first input."""
        return in_shape, [in_shape[0]] * len(self.list_outputs()), []

    def infer_type(self, in_type: list[Any]) -> tuple[Sequence[Any], ...]:
        """Dtypes of inputs, outputs and states. Here: all are that of the first input."""
        first = in_type[0]
        return in_type, [first] * len(self.list_outputs()), [first] * len(self.list_auxiliary_states())

    def create_operator(self, ctx: object, in_shapes: Shapes, in_dtypes: Sequence[Any]) -> CustomOp:
        """The operator for inputs of these shapes and dtypes."""
        return CustomOp()


def register(reg_name: str) -> Callable[[type[CustomOpProp]], type[CustomOpProp]]:
    """Decorator of a CustomOpProp: `nd.Custom(x, op_type=reg_name)` calls its operator from now on."""

    def add(prop: type[CustomOpProp]) -> type[CustomOpProp]:
        if not (isinstance(prop, type) and issubclass(prop, CustomOpProp)):
            raise TypeError(f"register({reg_name!r}) takes a subclass of CustomOpProp, not {prop!r}")
        _registered[reg_name] = prop
        return prop

    return add


def get_all_registered_operators() -> list[str]:
    """The names of all operators, those written in Python among them."""
    return sorted({*registered_names(), *_registered})


class OperatorArguments(NamedTuple):
    """narg : how many arguments an operator has; names, types : of each, the inputs first"""

    narg: int
    names: list[str]
    types: list[str]


def get_operator_arguments(op_name: str) -> OperatorArguments:
    """The inputs and attributes of an operator, in words as MXNet's documents have them. Raises HybridLabError."""
    record = find(op_name)
    if record is None:
        raise HybridLabError(f"there is no operator {op_name!r}; see get_all_registered_operators()")
    arguments = dict.fromkeys(record.input_names, "NDArray-or-Symbol")
    arguments |= {name: _in_words(field) for name, field in record.fields.items() if not name.startswith("_")}
    return OperatorArguments(len(arguments), list(arguments), list(arguments.values()))


def _in_words(field: Field) -> str:
    """The type of an attribute: `{'relu', 'tanh'}, required`, or `int, optional, default=1`."""
    if get_origin(field.annotation) is Literal:
        kind = "{" + ", ".join(sorted(map(repr, get_args(field.annotation)))) + "}"
    else:
        kind = getattr(field.annotation, "__name__", str(field.annotation))
    return f"{kind}, required" if field.required else f"{kind}, optional, default={field.default!r}"


class _Call(autograd.Function):
    """One call of an operator, with its gradient."""

    def __init__(self, prop: CustomOpProp, inputs: Sequence[NDArray], aux: Sequence[NDArray]) -> None:
        super().__init__()
        shapes = prop.infer_shape([list(each.shape) for each in inputs])
        dtypes = prop.infer_type([np.dtype(each.dtype).type for each in inputs])
        if [tuple(each) for each in shapes[0]] != [each.shape for each in inputs]:
            raise ShapeError(
                f"{type(prop).__name__} takes inputs of the shapes {[tuple(each) for each in shapes[0]]}, "
                f"not {[each.shape for each in inputs]}"
            )
        self._outputs = list(zip(shapes[1], dtypes[1], strict=True))
        self._aux, self._with_heads = list(aux), prop.need_top_grad_
        self._operator = prop.create_operator(inputs[0].context, shapes[0], dtypes[0])
        self._kept: tuple[list[NDArray], list[NDArray]] = [], []

    def forward(self, *inputs: NDArray) -> NDArray | tuple[NDArray, ...]:
        """The outputs."""
        outputs = [nd.zeros(tuple(shape), ctx=inputs[0].context, dtype=dtype) for shape, dtype in self._outputs]
        self._operator.forward(autograd.is_training(), ["write"] * len(outputs), list(inputs), outputs, self._aux)
        self._kept = list(inputs), outputs
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def backward(self, *heads: NDArray) -> NDArray | tuple[NDArray, ...]:
        """The gradients of the inputs."""
        inputs, outputs = self._kept
        gradients = [nd.zeros_like(each) for each in inputs]
        given = list(heads) if self._with_heads else []
        self._operator.backward(["write"] * len(inputs), given, inputs, outputs, gradients, self._aux)
        return gradients[0] if len(gradients) == 1 else tuple(gradients)


def custom(*data: NDArray, op_type: str, name: str | None = None, **kwargs: Any) -> NDArray | tuple[NDArray, ...]:
    """The operator that is registered as `op_type`, on arrays: its inputs, then its states.

    kwargs : inputs by name; the others go to the CustomOpProp as text, as in MXNet
    """
    if op_type not in _registered:
        known = ", ".join(sorted(_registered)) or "none"
        raise HybridLabError(f"no operator is registered as {op_type!r}; registered: {known}")
    named = {key: value for key, value in kwargs.items() if isinstance(value, NDArray)}
    make: Callable[..., CustomOpProp] = _registered[op_type]
    prop = make(**{key: str(value) for key, value in kwargs.items() if key not in named})
    names = [*prop.list_arguments(), *prop.list_auxiliary_states()]
    arrays = [*data, *(named.pop(each) for each in names[len(data) :] if each in named)]
    if named or len(arrays) != len(names):
        wanted = f"{len(names)} arrays ({', '.join(names)})"
        raise HybridLabError(f"{op_type} takes {wanted}, not {len(arrays) + len(named)}")
    count = len(prop.list_arguments())
    call = _Call(prop, arrays[:count], arrays[count:])
    result: NDArray | tuple[NDArray, ...] = call(*arrays[:count])
    return result


_suggest_names(__name__)
