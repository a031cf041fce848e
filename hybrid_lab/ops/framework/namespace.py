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

        def call(*inputs: Any, **attributes: Any) -> Any:
            if record.scalars:
                inputs, attributes = record.split_scalars(inputs, attributes)
            return apply(record.bind(**attributes), inputs)

        call.__name__ = name
        self.__dict__[name] = call
        return call


#: F over raw NumPy arrays.
F = Namespace(apply_numpy)
