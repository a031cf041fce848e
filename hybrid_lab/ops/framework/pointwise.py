"""Short forms for pointwise operators: one line of NumPy, gradient and kernel expression makes a whole record."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeGuard

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError
from hybrid_lab.ops.framework.dtypes import is_bfloat16, is_floating
from hybrid_lab.ops.framework.kernel import Kernel, Pointwise
from hybrid_lab.ops.framework.memory import into
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.protocols import Functions, Gradient, Gradients, Number, Scratch, Tensor, Wanted
from hybrid_lab.ops.framework.sample import Sample, sample
from hybrid_lab.ops.framework.shapes import broadcast_shapes, same_rank_shapes
from hybrid_lab.ops.framework.types import Array, Operand, PartialShape, PartialShapes, PartialSizes, Shape

Rule = Callable[..., Tensor]
#: The ONNX operator's name, or (op, g, inputs ...) -> the name of the output.
OnnxForm = str | Callable[..., str] | None


#: Kernel expressions of the larger and the smaller of two numbers; NaN if an operand is NaN, as in NumPy.
MAXIMUM = "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)"
MINIMUM = "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)"


def printed(number: float, dtype: np.dtype) -> str:
    """A Python number in the text of a kernel, as an operand of this dtype takes it: int32 * 0.5 multiplies by 0, and
    float16 * 1e-8 does, too.
    """
    if dtype.kind in "iu":
        return repr(int(_wrapped(number, dtype)))
    number = float(number)
    with np.errstate(over="ignore", under="ignore"):
        narrow: Any = np.float16(number) if dtype == np.float16 else np.float64(number)
        narrow = np.float32(number) if dtype == np.float32 or is_bfloat16(dtype) else narrow
    if dtype == np.float16 or narrow == 0 or np.isinf(narrow):  # else Triton rounds it alike, and it reads better
        number = float(narrow)
    return repr(number) if number - number == 0 else f"float({str(number)!r})"


class Elementwise(Operator):
    """A primitive of which each output element depends on one element of every input."""

    shaped_like = 0
    alias_safe = True

    def first_shape(self, *shapes: Shape) -> Shape:
        return shapes[-1]


class Unary(Elementwise):
    """y[i] = f(x[i]). data : any shape; returns : as data."""

    dtype_kinds = "fiu"
    ufunc: ClassVar[Callable[..., np.ndarray]]
    integers: ClassVar[bool] = False
    """Whether the kernel takes integer arrays itself; else they go through float64 and are cut back, as in MXNet."""

    def numpy(self, data: Array, out: np.ndarray | None = None) -> Array:
        if self.integers or data.dtype.kind == "f":
            return self.ufunc(data, out=out)
        result = self.ufunc(data.astype(np.float64))
        return into(result, out, data.dtype)


class Binary(Elementwise):
    """y = f(lhs, rhs) with NumPy's broadcasting. An immediate scalar takes the tensor's dtype first."""

    dtype_kinds = "fiu"
    assumes_equal_shapes = True
    ufunc: ClassVar[Callable[..., np.ndarray]]

    def infer_shape(self, lhs: Shape, rhs: Shape) -> Shape:
        return lhs if lhs == rhs else broadcast_shapes(self.name, lhs, rhs)

    def complete(self, *shapes: PartialShape) -> PartialShapes:
        return same_rank_shapes(*shapes)

    def complete_from(self, output: PartialSizes, *shapes: PartialShape) -> PartialShapes:
        """Fill in unknown sizes, and the shape if no operand has a known one, from the output."""
        if all(shape is None for shape in shapes):
            return (output,) * len(shapes)
        return tuple(
            shape
            if shape is None or len(shape) != len(output)
            else tuple(have if size is None else size for size, have in zip(shape, output, strict=True))
            for shape in shapes
        )

    def numpy(self, lhs: Operand, rhs: Operand, out: np.ndarray | None = None) -> Array:
        return self.ufunc(scalar_as(lhs, rhs), scalar_as(rhs, lhs), out=out)


class Comparison(Binary):
    """1 if the relation holds, else 0, in the dtype of the inputs (as MXNet)."""

    dtype_kinds = "fiub"

    def numpy(self, lhs: Operand, rhs: Operand, out: np.ndarray | None = None, scratch: Scratch = np.empty) -> Array:
        first, second = scalar_as(lhs, rhs), scalar_as(rhs, lhs)
        if out is None:
            dtype = first.dtype if hasattr(first, "dtype") else second.dtype
            return self.ufunc(first, second).astype(dtype, copy=False)
        if out.dtype == bool:
            return self.ufunc(first, second, out=out)
        holds = self.ufunc(first, second, out=scratch(out.shape, np.bool_))
        np.copyto(out, holds)
        return out


def is_scalar(value: object) -> TypeGuard[float]:
    """Whether `value` is an immediate: a Python number in place of a tensor."""
    return isinstance(value, (int, float))


def scalar_as(value: Any, other: Operand) -> Any:
    """An immediate Python scalar in the dtype of the other operand (int32 * 0.5 multiplies by 0, as in MXNet)."""
    kind = type(value)
    if kind is not float and kind is not int and not isinstance(value, (int, float)):
        return value
    dtype = getattr(other, "dtype", None)
    if dtype is None:  # two numbers; NumPy's own have come from arrays without dimensions
        return value if isinstance(value, np.generic) else np.float32(value)
    if is_floating(dtype):
        # NumPy takes plain Python numbers in the array's dtype; float subclasses (np.float64) it does not.
        return value if kind is float else dtype.type(value) if dtype.kind == "f" else float(value)
    return value if dtype.kind == "b" else _wrapped(value, dtype)


def _wrapped(number: float, dtype: np.dtype) -> Any:
    """A Python number as a whole number: without its fraction, beyond the dtype's range wrapped around."""
    try:
        return np.asarray(int(number)).astype(dtype)[()]
    except (OverflowError, ValueError):
        raise DTypeError(f"{number!r} does not fit {dtype.name}: whole numbers have at most 64 bits") from None


def unary(
    name: str, numpy: Callable[..., Array], grad: Rule | None, triton: str | Kernel | None, onnx: OnnxForm, doc: str,
    aliases: Sequence[str] = (), samples: Sequence[Sample] | None = None, integers: bool = False,
    whole: str | None = None, jumps: bool = False, **members: Any,
) -> type[Operator]:  # fmt: skip
    """A record for y[i] = f(x[i]).

    numpy : f(x, out=None), as NumPy's ufuncs
    grad : (F, x, y, dy) -> dx, or None if there is none
    triton : expression of a Pointwise kernel with {0}, or a kernel; whole, jumps : as of Pointwise
    onnx : the ONNX operator's name, (op, g, x) -> name, or None
    integers : whether `numpy` takes integer arrays and returns their dtype
    members : further class members of the record (mxnet=None for an operator MXNet does not have)
    """
    rule = None
    if grad is not None:

        def rule(self: Operator, F: Functions, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
            return grad(F, x, y, dy)

    members |= {"integers": integers, "onnx": onnx}
    members["triton"] = Pointwise(triton, whole, jumps, not integers) if isinstance(triton, str) else triton
    return _record(name, Unary, numpy, rule, doc, aliases, samples or [sample((3, 4))], members)


def binary(
    name: str, numpy: Callable[..., Array], grad: tuple[Rule | None, Rule | None] | None, triton: str | Kernel | None,
    onnx: OnnxForm, doc: str, aliases: Sequence[str] = (), samples: Sequence[Sample] | None = None,
    base: type[Binary] = Binary, whole: str | None = None, jumps: bool = False, floating: bool = False, **members: Any,
) -> type[Operator]:  # fmt: skip
    """A record for y = f(a, b) with broadcasting.

    grad : two rules (F, a, b, y, dy) -> gradient of a, of b, as if the shapes were equal (broadcasting is undone
    here); or None. triton, whole, jumps, floating : as of `unary` and Pointwise
    """
    full = None
    if grad is not None:
        rules = grad

        def full(
            self: Operator, F: Functions, a: Number, b: Number, y: Tensor, dy: Tensor, wanted: Wanted = None
        ) -> Gradients:
            made = []
            for index, (rule, value) in enumerate(zip(rules, (a, b), strict=True)):
                skip = is_scalar(value) or (wanted is not None and not wanted[index])
                made.append(None if skip or rule is None else F._sum_like(rule(F, a, b, y, dy), value))
            return made[0], made[1]

    default = [
        sample((3, 4), (3, 4)), sample((2, 3, 4), (3, 1)), sample((1, 4), (3, 1)), sample((3, 4), 0.75),
        sample(0.75, (3, 4)), sample((3, 4), (3, 4), dtype="int32", low=-5, high=5, gradient=False),
        sample((3, 4), 1.75, dtype="int32", low=-5, high=5, gradient=False), sample((2, 3), (2, 3), dtype="float16"),
    ]  # fmt: skip
    members["triton"] = Pointwise(triton, whole, jumps, floating) if isinstance(triton, str) else triton
    members["onnx"] = onnx
    return _record(name, base, numpy, full, doc, aliases, samples or default, members)


def _record(
    name: str, base: type[Operator], numpy: Callable[..., Array], grad: Callable[..., Gradient | Gradients] | None,
    doc: str, aliases: Sequence[str], samples: Sequence[Sample], members: dict[str, Any],
) -> type[Operator]:  # fmt: skip
    unknown = sorted(member for member in members if not hasattr(base, member) and member not in base.__annotations__)
    if unknown:
        raise TypeError(f"{name}: a record has no {', '.join(unknown)}")
    body: dict[str, Any] = {
        "__module__": sys._getframe(2).f_globals["__name__"],
        "__doc__": doc,
        "ufunc": staticmethod(numpy),
        "samples": list(samples),
        **members,
    }
    if grad is not None:
        body["grad"] = grad
    class_name = "".join(part.capitalize() for part in name.strip("_").split("_"))
    return types.new_class(
        class_name, (base,), {"name": name, "aliases": aliases}, lambda namespace: namespace.update(body)
    )
