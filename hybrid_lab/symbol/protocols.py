"""Attributes, methods and Python protocols that a Symbol refuses because they need numbers, each with its rule."""

from __future__ import annotations

import dis
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, cast

from hybrid_lab.diagnostics.location import Location, capture
from hybrid_lab.symbol.tracing import refuse

if TYPE_CHECKING:
    from hybrid_lab.symbol.symbol import Symbol

#: Attribute or method of an array -> the rule that says why a Symbol has none.
REFUSED_ATTRIBUTES: dict[str, str] = {
    "shape": "HL101",
    "size": "HL102",
    "ndim": "HL102",
    "dtype": "HL103",
    "context": "HL104",
    "ctx": "HL104",
    "device": "HL104",
    "T": "HL105",
    "stype": "HL105",
    "asnumpy": "HL111",
    "asscalar": "HL111",
    "item": "HL111",
    "tolist": "HL111",
    "numpy": "HL111",
    "wait_to_read": "HL112",
    "wait_to_write": "HL112",
    "copyto": "HL112",
    "as_in_context": "HL112",
    "as_in_ctx": "HL112",
    "copy": "HL113",
    "detach": "HL113",
    "attach_grad": "HL113",
    "grad": "HL113",
    "backward": "HL113",
    "zero_grad": "HL113",
    "drop_grad": "HL113",
}


def _unpacks(location: Location | None) -> bool:
    """Whether the user's instruction is `a, b = x`."""
    return location is not None and dis.opname[location.code.co_code[location.lasti]] in (
        "UNPACK_SEQUENCE",
        "UNPACK_EX",
    )


def _inplace(binary: str) -> Callable[[object, object], object]:
    def refuse_inplace(self: Any, other: object) -> Any:
        self._refuse_protocol("HL142", operator=f"{binary}=", binary=binary)

    return refuse_inplace


class Refusals:
    """Mixin: every protocol that would need the numbers raises the HybridizeError of its rule."""

    __slots__ = ()
    __array_priority__ = 1000.0  # `np.float64(2) * x` is x's business

    def _refuse_protocol(self, code: str, **facts: object) -> NoReturn:
        raise refuse(code, tensor=cast("Symbol", self), **facts)

    def __bool__(self) -> bool:
        self._refuse_protocol("HL121")

    def __float__(self) -> float:
        self._refuse_protocol("HL125", call="float")

    def __int__(self) -> int:
        self._refuse_protocol("HL125", call="int")

    def __round__(self, digits: int | None = None) -> Any:
        self._refuse_protocol("HL125", call="round")

    def __index__(self) -> int:
        self._refuse_protocol("HL126")

    def __contains__(self, item: object) -> bool:
        self._refuse_protocol("HL121")

    def __setitem__(self, key: Any, value: Any) -> None:
        self._refuse_protocol("HL141")

    def __delitem__(self, key: object) -> None:
        self._refuse_protocol("HL141", change="deleted", construct="del")

    def __array_function__(self, function: Any, *args: object) -> Any:
        self._refuse_protocol("HL162", call=f"np.{function.__name__}")

    def __array__(self, *args: object, **keywords: object) -> Any:
        self._refuse_protocol("HL162")

    __iadd__, __isub__, __imul__ = _inplace("+"), _inplace("-"), _inplace("*")
    __itruediv__, __imod__, __ipow__ = _inplace("/"), _inplace("%"), _inplace("**")

    def _refuse_iteration(self) -> NoReturn:
        self._refuse_protocol("HL106" if _unpacks(capture()) else "HL123")
