"""Lambda and HybridLambda: a function as a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_lab import ndarray as nd
from hybrid_lab.ops.framework.protocols import Functions, Tensor

from ..block import Block
from ..hybrid import HybridBlock
from .registry import layer


@layer
class Lambda(Block):
    """A function of arrays, or the name of one in `nd`: `nn.Lambda("tanh")`, `nn.Lambda(lambda x: x * 2)`."""

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        if isinstance(function, str):
            self._func = _named(nd, function)
            self._func_name = function
        else:
            self._func = _checked(function)
            self._func_name = getattr(function, "__name__", repr(function))

    def forward(self, *args: Any) -> Any:
        return self._func(*args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._func_name})"


@layer
class HybridLambda(HybridBlock):
    """A function of F and tensors, or the name of an operator: `nn.HybridLambda(lambda F, x: F.tanh(x) * 2)`."""

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        if isinstance(function, str):
            _named(nd, function)
            self._func: Callable[..., Any] = lambda F, *args: getattr(F, function)(*args)
            self._func_name = function
        else:
            self._func = _checked(function)
            self._func_name = getattr(function, "__name__", repr(function))

    def hybrid_forward(self, F: Functions, x: Tensor, *args: Tensor) -> Tensor:
        return self._func(F, x, *args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._func_name})"


def _named(namespace: object, name: str) -> Callable[..., Any]:
    function = getattr(namespace, name, None)
    if function is None:
        raise ValueError(f"there is no function {name!r} in nd")
    return function


def _checked(function: Callable[..., object]) -> Callable[..., object]:
    if not callable(function):
        raise TypeError(f"a layer's function must be a callable or the name of an operator, not {function!r}")
    return function
