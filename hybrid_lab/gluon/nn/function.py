"""Lambda and HybridLambda: a function as a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_lab import ndarray as nd
from hybrid_lab.ops.framework.protocols import Functions, Tensor

from ..block import Block
from ..hybrid import HybridBlock
from .registry import layer


class _Function(Block):
    """Base of both layers. A function is a callable, or the name of one in `nd`."""

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        if isinstance(function, str) and not hasattr(nd, function):
            raise ValueError(f"there is no function {function!r} in nd")
        if not isinstance(function, str) and not callable(function):
            raise TypeError(f"a layer's function must be a callable or the name of an operator, not {function!r}")
        self._func = function
        self._func_name = function if isinstance(function, str) else getattr(function, "__name__", repr(function))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._func_name})"


@layer
class Lambda(_Function):
    """A function of arrays, or the name of one in `nd`: `nn.Lambda("tanh")`, `nn.Lambda(lambda x: x * 2)`."""

    def forward(self, *args: Any) -> Any:
        function = getattr(nd, self._func) if isinstance(self._func, str) else self._func
        return function(*args)


@layer
class HybridLambda(_Function, HybridBlock):
    """A function of F and tensors, or the name of an operator: `nn.HybridLambda(lambda F, x: F.tanh(x) * 2)`.

    ```python
    layer = nn.HybridLambda(lambda F, x: F.square(x) + 1)
    layer(nd.array([1.0, 2.0]))
    ```
    """

    def hybrid_forward(self, F: Functions, x: Tensor, *args: Tensor) -> Tensor:
        return getattr(F, self._func)(x, *args) if isinstance(self._func, str) else self._func(F, x, *args)
