"""Short forms for pointwise operators: one line of NumPy, gradient and kernel expression makes a whole record."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.ops.operator import Operator
from hybrid_lab.ops.sample import Sample, sample


def broadcast_shapes(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of broadcast operands. Raises ShapeError naming the operator and both shapes."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = " and ".join(str(shape) for shape in shapes)
        raise ShapeError(f"{name}: the shapes {text} do not broadcast; each dimension must be equal or 1") from None


class Pointwise(Operator):
    """A primitive of which each output element depends on one element of every input."""

    alias_safe = True


class Unary(Pointwise):
    """y[i] = f(x[i]). data : any shape, floating; returns : as data."""

    ufunc: Callable[..., np.ndarray]

    def infer_shape(self, data: tuple[int, ...]) -> tuple[int, ...]:
        return data

    def complete(self, *shapes: Any) -> tuple[Any, ...]:
        return shapes

    def numpy(self, data: Any, out: np.ndarray | None = None) -> Any:
        return self.ufunc(data, out=out)


class Binary(Pointwise):
    """y = f(lhs, rhs) with NumPy's broadcasting. An immediate scalar takes the tensor's dtype first."""

    ufunc: Callable[..., np.ndarray]

    def infer_shape(self, lhs: tuple[int, ...], rhs: tuple[int, ...]) -> tuple[int, ...]:
        return lhs if lhs == rhs else broadcast_shapes(self.name, lhs, rhs)

    def complete(self, *shapes: Any) -> tuple[Any, ...]:
        return same_rank_shapes(*shapes)

    def numpy(self, lhs: Any, rhs: Any, out: np.ndarray | None = None) -> Any:
        lhs, rhs = scalar_as(lhs, rhs), scalar_as(rhs, lhs)
        return self.ufunc(lhs, rhs, out=out)


class Comparison(Binary):
    """1 where the comparison holds, else 0, in the dtype of the inputs (as MXNet)."""

    def numpy(self, lhs: Any, rhs: Any, out: np.ndarray | None = None) -> Any:
        lhs, rhs = scalar_as(lhs, rhs), scalar_as(rhs, lhs)
        if out is None:
            dtype = lhs.dtype if hasattr(lhs, "dtype") else rhs.dtype
            out = np.empty(np.broadcast_shapes(np.shape(lhs), np.shape(rhs)), dtype)
        return self.ufunc(lhs, rhs, out=out, casting="unsafe")


def same_rank_shapes(lhs: Any, rhs: Any) -> tuple[Any, Any]:
    """Fill unknown dimensions of one operand from the other, as for equal shapes; a wholly unknown shape stays unknown next to a scalar."""
    if lhs is None or rhs is None:
        known = lhs if rhs is None else rhs
        return (known, known) if known else (lhs, rhs)
    if len(lhs) != len(rhs):
        return lhs, rhs
    return (
        tuple(b if a is None and b != 1 else a for a, b in zip(lhs, rhs, strict=True)),
        tuple(a if b is None and a != 1 else b for a, b in zip(lhs, rhs, strict=True)),
    )


def scalar_as(value: Any, other: Any) -> Any:
    """An immediate Python scalar in the dtype of the other operand (int32 * 0.5 multiplies by 0, as in MXNet)."""
    if isinstance(value, (int, float)) and hasattr(other, "dtype") and other.dtype.kind != "b":
        return other.dtype.type(value)
    return value


def unary(
    name: str,
    numpy: Callable[..., Any],
    grad: Callable[..., Any] | None,
    triton: str | None,
    onnx: Any,
    doc: str,
    aliases: Sequence[str] = (),
    samples: Sequence[Sample] | None = None,
) -> type[Operator]:
    """A record for y[i] = f(x[i]).

    numpy : f(x, out=None), as NumPy's ufuncs
    grad : (F, x, y, dy) -> dx, or None where there is none
    triton : kernel expression with {0}
    onnx : the ONNX operator's name, or (op, g, x) -> name
    """
    return _record(name, Unary, numpy, grad, triton, onnx, doc, aliases, samples or [sample((3, 4))])


def binary(
    name: str,
    numpy: Callable[..., Any],
    grad: Callable[..., Any] | None,
    triton: str | None,
    onnx: Any,
    doc: str,
    aliases: Sequence[str] = (),
    samples: Sequence[Sample] | None = None,
    base: type[Binary] = Binary,
) -> type[Operator]:
    """A record for y = f(a, b) with broadcasting.

    grad : (F, a, b, y, dy) -> (da, db) before broadcasting is undone (that is done here), or None
    """
    full = None
    if grad is not None:
        rule = grad

        def full(F: Any, a: Any, b: Any, y: Any, dy: Any) -> tuple[Any, Any]:
            da, db = rule(F, a, b, y, dy)
            return unbroadcast(F, da, a), unbroadcast(F, db, b)

    default = [sample((3, 4), (3, 4)), sample((2, 3, 4), (3, 1)), sample((1, 4), (3, 1))]
    return _record(name, base, numpy, full, triton, onnx, doc, aliases, samples or default)


def unbroadcast(F: Any, gradient: Any, like: Any) -> Any:
    """Sum a gradient over the axes along which `like` was broadcast; scalars (immediates) have no gradient."""
    if gradient is None or isinstance(like, (int, float)):
        return None
    return F._sum_like(gradient, like)


def _record(
    name: str,
    base: type[Operator],
    numpy: Callable[..., Any],
    grad: Callable[..., Any] | None,
    triton: str | None,
    onnx: Any,
    doc: str,
    aliases: Sequence[str],
    samples: Sequence[Sample],
) -> type[Operator]:
    caller_module = _calling_module()
    body: dict[str, Any] = {
        "__module__": caller_module,
        "__doc__": doc,
        "ufunc": staticmethod(numpy),
        "triton": triton,
        "onnx": onnx,
        "samples": list(samples),
    }
    if grad is not None:
        rule = grad
        body["grad"] = lambda self, F, *values: rule(F, *values)
    class_name = "".join(part.capitalize() for part in name.strip("_").split("_"))
    return types.new_class(class_name, (base,), {"name": name, "aliases": aliases}, lambda namespace: namespace.update(body))


def _calling_module() -> str:
    import sys

    frame = sys._getframe(1)
    while frame.f_globals["__name__"] == __name__:
        assert frame.f_back is not None
        frame = frame.f_back
    return frame.f_globals["__name__"]
