"""F namespaces: `F.softmax(x, axis=1)` for gradients, lowerings and aux rules, over raw NumPy or any other values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_lab.ops.framework.operator import Operator, get
from hybrid_lab.ops.framework.run import apply_numpy


class Namespace:
    """Attribute access gives `function(*inputs, **attributes)`: it binds the operator and calls `apply(op, inputs)`."""

    def __init__(self, apply: Callable[[Operator, tuple[Any, ...]], Any]):
        self.apply = apply

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        record, apply = get(name), self.apply
        bind, scalars = record.bind, record.scalars

        def call(*inputs: Any, **attributes: Any) -> Any:
            if scalars:
                inputs, attributes = record.split_scalars(inputs, attributes)
            return apply(bind(**attributes), inputs)

        call.__name__ = name
        self.__dict__[name] = call
        return call


class Arithmetic:
    """Python's operators on the values that `F` computes with, which are calls of `F`."""

    __slots__ = ()
    F: Any

    def __add__(self, other: object) -> Any:
        return self.F.broadcast_add(self, other)

    def __radd__(self, other: object) -> Any:
        return self.F.broadcast_add(other, self)

    def __sub__(self, other: object) -> Any:
        return self.F.broadcast_sub(self, other)

    def __rsub__(self, other: object) -> Any:
        return self.F.broadcast_sub(other, self)

    def __mul__(self, other: object) -> Any:
        return self.F.broadcast_mul(self, other)

    def __rmul__(self, other: object) -> Any:
        return self.F.broadcast_mul(other, self)

    def __truediv__(self, other: object) -> Any:
        return self.F.broadcast_div(self, other)

    def __rtruediv__(self, other: object) -> Any:
        return self.F.broadcast_div(other, self)

    def __pow__(self, other: object) -> Any:
        return self.F.broadcast_power(self, other)

    def __rpow__(self, other: object) -> Any:
        return self.F.broadcast_power(other, self)

    def __neg__(self) -> Any:
        return self.F.negative(self)


#: F over raw NumPy arrays.
F = Namespace(apply_numpy)
