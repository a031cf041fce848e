"""Operators as methods of NDArrays: Python's (`x + 1`, `x += y`, `x @ y`), and one per record (`x.tanh()`)."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import hybrid_lab.ops  # noqa: F401  (declares the modules of records)
from hybrid_lab.diagnostics.unknown_names import unknown_method
from hybrid_lab.ndarray import calls
from hybrid_lab.ops.framework.operator import Operator, find, get, registered_names
from hybrid_lab.ops.framework.surface import make_function


def _forward(name: str) -> Any:
    op = get(name).bind()

    def method(self: object, other: object) -> Any:
        return calls.invoke_pair(op, self, other)

    return method


def _reflected(name: str) -> object:
    op = get(name).bind()

    def method(self: object, other: object) -> Any:
        return calls.invoke(op, (other, self))

    return method


def _in_place(name: str) -> object:
    op = get(name).bind()

    def method(self: object, other: object) -> Any:
        return calls.invoke(op, (self, other), self)

    return method


def _unary(name: str) -> object:
    op = get(name).bind()

    def method(self: object) -> Any:
        return calls.invoke(op, (self,))

    return method


def _floored(name: str, reflected: bool = False) -> object:
    op, floor = get(name).bind(), get("floor").bind()

    def method(self: object, other: object) -> Any:
        quotient = calls.invoke(op, (other, self) if reflected else (self, other))
        return calls.invoke(floor, (quotient,))

    return method


def methods() -> dict[str, type[Operator]]:
    """Method name -> record: every operator with a public name whose first input is an array."""
    return {name: record for name, record in registered_names().items() if _is_method(name, record)}


def _is_method(name: str, record: type[Operator]) -> bool:
    return not name.startswith("_") and bool(record.input_names) and not record.variadic


def _invoke(op: Operator, inputs: list[object], out: object, name: str | None) -> object:
    return calls.invoke(op, inputs, out, name)


class _Method:
    """A record's function as a method of NDArrays. Arrays of `mx.np`, which are NDArrays, have NumPy's methods only."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __get__(self, array: object, kind: Any) -> Callable[..., Any]:
        if kind.is_np:
            raise AttributeError  # Python then asks the class's own __getattr__
        return self.function if array is None else MethodType(self.function, array)


class Overloads:
    """Base of NDArray. Both operands broadcast; a Python number takes the array's dtype; `x += y` writes into x.

    `@` is `nd.dot`; comparisons and `& | ^ ~` give 0 and 1 in the dtype of the operands.
    """

    __slots__ = ()

    __add__, __radd__, __iadd__ = _forward("broadcast_add"), _reflected("broadcast_add"), _in_place("broadcast_add")
    __sub__, __rsub__, __isub__ = _forward("broadcast_sub"), _reflected("broadcast_sub"), _in_place("broadcast_sub")
    __mul__, __rmul__, __imul__ = _forward("broadcast_mul"), _reflected("broadcast_mul"), _in_place("broadcast_mul")
    __mod__, __rmod__, __imod__ = _forward("broadcast_mod"), _reflected("broadcast_mod"), _in_place("broadcast_mod")
    __truediv__, __rtruediv__ = _forward("broadcast_div"), _reflected("broadcast_div")
    __itruediv__ = _in_place("broadcast_div")
    __pow__, __rpow__ = _forward("broadcast_power"), _reflected("broadcast_power")
    __ipow__ = _in_place("broadcast_power")
    __floordiv__, __rfloordiv__ = _floored("broadcast_div"), _floored("broadcast_div", reflected=True)
    __matmul__, __rmatmul__ = _forward("dot"), _reflected("dot")

    __eq__ = _forward("broadcast_equal")
    __ne__ = _forward("broadcast_not_equal")
    __lt__ = _forward("broadcast_lesser")
    __le__ = _forward("broadcast_lesser_equal")
    __gt__ = _forward("broadcast_greater")
    __ge__ = _forward("broadcast_greater_equal")
    __hash__ = object.__hash__

    __and__, __rand__ = _forward("broadcast_logical_and"), _reflected("broadcast_logical_and")
    __or__, __ror__ = _forward("broadcast_logical_or"), _reflected("broadcast_logical_or")
    __xor__, __rxor__ = _forward("broadcast_logical_xor"), _reflected("broadcast_logical_xor")

    __neg__, __abs__, __invert__ = _unary("negative"), _unary("abs"), _unary("logical_not")

    def __pos__(self) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        record = None if name.startswith("_") else find(name)
        if record is None or not _is_method(name, record):
            raise unknown_method("NDArray", name)
        setattr(Overloads, name, _Method(make_function(record, _invoke, name)))  # found there the next time
        return getattr(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *methods()})
