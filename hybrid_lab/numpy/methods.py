"""The methods that arrays and Symbols of `mx.np` share: Python's operators, and functions that are also methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, cast

from hybrid_lab.numpy.types import ArrayLike, Axis, DType, Function, NumPyFunctions, Out, ShapeLike, Tensor
from hybrid_lab.system.provided import signed_like

FUNCTIONS = NumPyFunctions()
"""The functions of `mx.np`. The modules that define them fill it, because they import the classes that need it."""

METHODS = (
    *("abs", "all", "any", "argmax", "argmin", "argsort", "broadcast_to", "cumsum", "diagonal", "dot"),
    *("expand_dims", "flip", "max", "mean", "min", "nonzero", "prod", "ravel", "repeat", "round", "sign", "sort"),
    *("sqrt", "square", "squeeze", "std", "sum", "swapaxes", "take", "tile", "trace", "var", "exp", "log"),
    *("floor", "ceil", "rint", "fix", "trunc", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh"),
    *("tanh", "arcsinh", "arccosh", "arctanh", "log10", "log2", "log1p", "expm1", "cbrt", "reciprocal", "degrees"),
    *("radians", "zeros_like", "ones_like"),
)
"""Methods that are the function of the same name with the array as its first argument."""


def _binary(name: str) -> Callable[[object, object], Any]:
    def method(self: object, other: object) -> Tensor:
        return FUNCTIONS[name](self, other)

    return method


def _reflected(name: str) -> Callable[[object, object], Tensor]:
    def method(self: object, other: object) -> Tensor:
        return FUNCTIONS[name](other, self)

    return method


def _unary(name: str) -> Callable[[object], Any]:
    def method(self: object) -> Tensor:
        return FUNCTIONS[name](self)

    return method


def _method(name: str) -> Function:
    def method(self: object, *args: object, **keywords: object) -> Tensor:
        return FUNCTIONS[name](self, *args, **keywords)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`mx.np.{name}` of the array."
    return method


class Methods:
    """Mixin. Operands have NumPy's dtypes and broadcast; comparisons give bools."""

    __slots__ = ()

    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("subtract"), _reflected("subtract")
    __mul__, __rmul__ = _binary("multiply"), _reflected("multiply")
    __truediv__, __rtruediv__ = _binary("true_divide"), _reflected("true_divide")
    __floordiv__, __rfloordiv__ = _binary("floor_divide"), _reflected("floor_divide")
    __mod__, __rmod__ = _binary("mod"), _reflected("mod")
    __pow__, __rpow__ = _binary("power"), _reflected("power")
    __matmul__, __rmatmul__ = _binary("matmul"), _reflected("matmul")
    __and__, __rand__ = _binary("bitwise_and"), _reflected("bitwise_and")
    __or__, __ror__ = _binary("bitwise_or"), _reflected("bitwise_or")
    __xor__, __rxor__ = _binary("bitwise_xor"), _reflected("bitwise_xor")
    __eq__, __ne__ = _binary("equal"), _binary("not_equal")
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    __neg__, __abs__, __invert__ = _unary("negative"), _unary("abs"), _unary("invert")
    __hash__ = object.__hash__

    def __pos__(self) -> Self:
        return self

    @property
    def T(self) -> Tensor:  # noqa: N802 - NumPy's name
        """The array with its axes reversed."""
        return FUNCTIONS["transpose"](self)

    def reshape(self, *shape: ShapeLike, **options: object) -> Tensor:
        """`x.reshape(2, 3)` or `x.reshape((2, 3))`: the elements in another shape; -1 stands for the remaining size."""
        newshape = options.pop("newshape", shape[0] if len(shape) == 1 else shape)
        return FUNCTIONS["reshape"](self, newshape, **options)

    def reshape_view(self, *shape: ShapeLike, **options: object) -> Tensor:
        """As `reshape`."""
        return self.reshape(*shape, **options)

    def transpose(self, *axes: Axis) -> Tensor:
        """`x.transpose(1, 0)` or `x.transpose((1, 0))`: the axes in another order, reversed by default."""
        return FUNCTIONS["transpose"](
            self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        )

    def flatten(self, order: str = "C") -> Tensor:
        """A copy with one axis."""
        return FUNCTIONS["ravel"](self, order=order).copy() if hasattr(self, "_data") else FUNCTIONS["ravel"](self)

    def astype(
        self, dtype: DType, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Tensor:
        """The array with another dtype; copy=False gives the array itself if it has that dtype."""
        return FUNCTIONS["_astype"](self, dtype, copy)

    def clip(self, min: ArrayLike | None = None, max: ArrayLike | None = None, out: Out = None) -> Tensor:
        """The array with numbers below `min` raised to it and numbers above `max` lowered to it."""
        return FUNCTIONS["clip"](self, min, max, out)

    def split(self, indices_or_sections: ShapeLike, axis: int = 0) -> list[Tensor]:
        """`mx.np.split` of the array."""
        return cast("list[Tensor]", FUNCTIONS["split"](self, indices_or_sections, axis))


for _name in METHODS:
    setattr(Methods, _name, _method(_name))


def show_signatures() -> None:
    """Let the methods have the signatures of their functions, which are all there now."""
    for name in METHODS:
        if name in FUNCTIONS:
            signed_like(FUNCTIONS[name])(vars(Methods)[name])
