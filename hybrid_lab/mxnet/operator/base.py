"""CustomOp and CustomOpProp, the bases of operators written in Python, and the registry of their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.ndarray import NDArray
from hybrid_lab.system.provided import Provided

Shapes: TypeAlias = Sequence[Sequence[int]]
_registered: dict[str, type[CustomOpProp]] = {}
drop_custom_graphs: Provided[[str], None] = Provided("drop_custom_graphs")


class CustomOp:
    """Base of the operators: a subclass defines `forward`, and `backward` if it has a gradient.

    Both are called with keywords, as in MXNet: a subclass may have the arguments in another order, under these names.
    """

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
        """Names of the states, which are given after the inputs."""
        return []

    def infer_shape(self, in_shape: list[list[int]]) -> tuple[Shapes, ...]:
        """Shapes of inputs, outputs and states. Here: outputs are like the first input, and there are no states."""
        return in_shape, [in_shape[0]] * len(self.list_outputs()), []

    def infer_type(self, in_type: list[Any]) -> tuple[Sequence[Any], ...]:
        """Dtypes of inputs, outputs and states. Here: all dtypes are the first input's."""
        first = in_type[0]
        return in_type, [first] * len(self.list_outputs()), [first] * len(self.list_auxiliary_states())

    def create_operator(self, ctx: object, in_shapes: Shapes, in_dtypes: Sequence[Any]) -> CustomOp:
        """The operator for inputs of these shapes and dtypes."""
        return CustomOp()


def register(reg_name: str) -> Callable[[type[CustomOpProp]], type[CustomOpProp]]:
    """Decorator of a CustomOpProp: `nd.Custom(x, op_type=reg_name)` calls its operator from now on.

    The graphs of hybridized Blocks that call an earlier class of this name are dropped; the next call traces the new
    one. Earlier Symbols, and graphs from files, keep the earlier class, as in MXNet; graphs from files with a warning.
    """

    def add(prop: type[CustomOpProp]) -> type[CustomOpProp]:
        if not (isinstance(prop, type) and issubclass(prop, CustomOpProp)):
            raise TypeError(f"register({reg_name!r}) takes a subclass of CustomOpProp, not {prop!r}")
        before, _registered[reg_name] = _registered.get(reg_name, prop), prop
        if before is not prop:
            drop_custom_graphs(reg_name)
        return prop

    return add


def registered() -> Mapping[str, type[CustomOpProp]]:
    """The registered operators by name."""
    return _registered


def make_prop(op_type: str, keywords: Mapping[str, str]) -> CustomOpProp:
    """The description that is registered as `op_type`, made with these arguments. Raises HybridLabError."""
    if op_type not in _registered:
        known = ", ".join(sorted(_registered)) or "none"
        raise HybridLabError(f"no operator is registered as {op_type!r}; registered: {known}")
    make: Callable[..., CustomOpProp] = _registered[op_type]
    return make(**keywords)
