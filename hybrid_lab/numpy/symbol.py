"""The Symbols of `mx.np` code: what hybrid_forward sees in place of an `mx.np` array."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from hybrid_lab.numpy.methods import Methods
from hybrid_lab.symbol.symbol import Symbol


class _Symbol(Methods, Symbol):  # type: ignore[misc]  # methods with NumPy's arguments
    """A Symbol with the operators and methods of `mx.np.ndarray`."""

    __slots__ = ()
    is_np = True
    __hash__ = Symbol.__hash__

    def as_nd_ndarray(self) -> Symbol:
        """The same outputs for code that is not written for `mx.np`."""
        return Symbol(self.outputs)

    def as_np_ndarray(self) -> _Symbol:
        """The Symbol itself."""
        return self

    def __array_function__(self, function: Callable[..., object], *args: object) -> NoReturn:
        self._refuse_protocol("HL162", call=f"np.{function.__name__}")


def numpy_symbol_class() -> type[_Symbol]:
    """The class, for rooms below."""
    return _Symbol
