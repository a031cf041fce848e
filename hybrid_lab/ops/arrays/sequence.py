"""Sequences of different lengths in one array: SequenceMask, SequenceLast, SequenceReverse."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError, Unmappable
from hybrid_lab.ops.arrays.reduce import chosen
from hybrid_lab.ops.framework import Adjoint, Element, Operator, Signature, into, ints, sample
from hybrid_lab.ops.framework.protocols import Elements, Functions, Gradient, Gradients, Index, OnnxGraph, Place, Tensor
from hybrid_lab.ops.framework.types import Array, PartialShape, PartialShapes, Shape


class _Sequence(Operator):
    """Base: steps on axis 0 or 1, the batch on the other axis; the lengths are an input if `use_sequence_length` is
    set.
    """

    typed_like = 0
    use_sequence_length: bool = False
    axis: int = 0

    def check(self) -> None:
        if self.axis not in (0, 1):
            raise AttributeSpecError(f"{self.name}: axis={self.axis}; the steps are on axis 0 or 1")

    @cached_property
    def signature(self) -> Signature:
        return Signature(("data", "sequence_length") if self.use_sequence_length else ("data",))

    def complete(self, data: PartialShape, sequence_length: PartialShape = None) -> PartialShapes:
        if not self.use_sequence_length:
            return (data,)
        if data is not None and len(data) > 1 and (sequence_length is None or None in sequence_length):
            sequence_length = (data[1 - self.axis],)
        return data, sequence_length

    def check_shapes(self, data: tuple[int, ...], sequence_length: tuple[int, ...] | None) -> None:
        """Raise ShapeError if steps, batch or lengths are missing."""
        if len(data) < 1 + max(self.axis, int(self.use_sequence_length)):
            raise ShapeError(f"{self.name}: data {data} has no steps and batch; (steps, batch, ...) is needed")
        if sequence_length is not None and sequence_length != (data[1 - self.axis],):
            raise ShapeError(
                f"{self.name}: sequence_length has shape {sequence_length}; data {data} needs {(data[1 - self.axis],)}"
            )

    def places(self, shape: Shape, length: Array | None) -> tuple[Array | slice | int, ...]:
        """The index of the last steps."""
        if length is None:
            return (*(slice(None),) * self.axis, shape[self.axis] - 1)
        last = np.clip(length.astype(np.int64), 1, shape[self.axis]) - 1
        batch = np.arange(shape[1 - self.axis])
        return (last, batch) if self.axis == 0 else (batch, last)

    def last(self, elements: Elements, number: int, place: Place, steps: int) -> Index:
        """In kernels: the index of a sequence's last step. number : the input with the lengths; place : the batch's"""
        if not self.use_sequence_length:
            return elements.zero + (steps - 1)
        length = elements.whole(elements.read(number, place), number)
        return elements.computed(f"tl.minimum(tl.maximum({length}, 1), {steps}).to(tl.int32) - 1", steps, *place)


class SequenceMask(_Sequence, name="SequenceMask", aliases=("sequence_mask",)):
    """data with `value` written behind the end of each sequence; without use_sequence_length a copy.

    data : (steps, batch, ...), or (batch, steps, ...) with axis=1; sequence_length : (batch,)
    """

    use_sequence_length: bool = False
    value: float = 0.0
    axis: int = 0
    samples = [
        sample((4, 3, 2), ints((3,), 1, 5), use_sequence_length=True, value=-1.0),
        sample((3, 4), ints((3,), 1, 5), use_sequence_length=True, axis=1),
        sample((4, 3)),
    ]

    def infer_shape(self, data: Shape, sequence_length: tuple[int, ...] | None = None) -> Shape:
        self.check_shapes(data, sequence_length)
        return data

    def _behind(self, shape: tuple[int, ...], length: np.ndarray) -> np.ndarray:
        steps = np.arange(shape[self.axis])
        grid = steps[:, None] >= length[None, :] if self.axis == 0 else steps[None, :] >= length[:, None]
        return grid.reshape(*grid.shape, *(1,) * (len(shape) - 2))

    def numpy(self, data: Array, sequence_length: Array | None = None, out: Array | None = None) -> Array:
        result = data.copy() if out is None else into(data, out)
        if self.use_sequence_length:
            assert sequence_length is not None
            np.copyto(result, self.value, casting="unsafe", where=self._behind(data.shape, sequence_length))
        return result

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        data = elements.read(0, place)
        if not self.use_sequence_length:
            return str(data)
        length = elements.read(1, (place[1 - self.axis],))
        return f"tl.where(({place[self.axis]}) >= {length}, {elements.literal(self.value)}, {data})"

    def grad(self, F: Functions, data: Tensor, *rest: Tensor) -> Gradient | Gradients:
        dy = rest[-1]
        if not self.use_sequence_length:
            return dy
        return F.SequenceMask(dy, rest[0], use_sequence_length=True, axis=self.axis), None

    def onnx(self, g: OnnxGraph, data: str, sequence_length: str | None = None) -> str:
        if not self.use_sequence_length:
            return g.Identity(data)
        assert sequence_length is not None
        shape = g.shape(data)
        if None in shape:
            raise Unmappable("SequenceMask: the number of steps must be known")
        steps = g.Unsqueeze(g.arange(shape[self.axis]), [1 - self.axis])
        length = g.Reshape(g.cast(sequence_length, "int64"), [1, -1] if self.axis == 0 else [-1, 1])
        behind = g.GreaterOrEqual(steps, length)
        behind = g.Unsqueeze(behind, list(range(2, len(shape)))) if len(shape) > 2 else behind
        return g.Where(behind, g.const(self.value, g.dtype(data)), data)


class SequenceLast(_Sequence, name="SequenceLast"):
    """The last step of each sequence: y[i] = data[sequence_length[i] - 1, i]; without use_sequence_length data[-1].

    data : (steps, batch, ...), or (batch, steps, ...) with axis=1; sequence_length : (batch,), from 1 to steps;
    returns : (batch, ...)
    """

    samples = [
        sample((4, 3, 2), ints((3,), 1, 5), use_sequence_length=True),
        sample((3, 4), ints((3,), 1, 5), use_sequence_length=True, axis=1),
        sample((3, 4, 2, 2), ints((3,), 1, 5, "int32"), use_sequence_length=True, axis=1),
        sample((4, 3, 2)),
        sample((2, 4, 3), axis=1),
    ]

    def infer_shape(self, data: Shape, sequence_length: tuple[int, ...] | None = None) -> Shape:
        self.check_shapes(data, sequence_length)
        return chosen(self, data, (*data[: self.axis], *data[self.axis + 1 :]))

    def numpy(self, data: Array, sequence_length: Array | None = None, out: Array | None = None) -> Array:
        return into(data[self.places(data.shape, sequence_length)].copy(), out)

    def grad(self, F: Functions, data: Tensor, *rest: Tensor) -> Gradients:
        flags = {"use_sequence_length": self.use_sequence_length, "axis": self.axis}
        lengths = rest[:-2]
        dx = F._sequence_last_grad(rest[-1], data, *lengths, **flags)
        return (dx, *(None for _ in lengths))

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        last = self.last(elements, 1, place[:1], elements.shape(0)[self.axis])
        return str(elements.read(0, (*place[: self.axis], last, *place[self.axis :])))

    def onnx(self, g: OnnxGraph, data: str, sequence_length: str | None = None) -> str:
        shape = g.shape(data)
        if not self.use_sequence_length:
            return g.Gather(data, g.const(shape[self.axis] - 1, "int64"), axis=self.axis)
        if self.axis == 0:
            data = g.Transpose(data, perm=[1, 0, *range(2, len(shape))])
        assert sequence_length is not None
        last = g.Sub(g.cast(sequence_length, "int64"), g.const(1, "int64"))
        last = g.Max(g.Min(last, g.const(shape[self.axis] - 1, "int64")), g.const(0, "int64"))
        return g.GatherND(data, g.Unsqueeze(last, [1]), batch_dims=1)


class SequenceLastGrad(Adjoint, _Sequence, name="_sequence_last_grad"):
    """The gradient of SequenceLast: dy at the last steps, 0 elsewhere.

    dy : (batch, ...); like : SequenceLast's data, read for its shape; returns : that shape
    """

    adjoint_of = "SequenceLast"
    samples = [
        sample((3, 2), (4, 3, 2), ints((3,), 1, 5), use_sequence_length=True),
        sample((3,), (3, 4), ints((3,), 1, 5), use_sequence_length=True, axis=1),
        sample((3,), (4, 3)),
    ]

    @cached_property
    def signature(self) -> Signature:
        return Signature(("dy", "like", "sequence_length") if self.use_sequence_length else ("dy", "like"))

    def complete(self, *shapes: PartialShape) -> PartialShapes:
        return shapes

    def numpy(self, dy: Array, like: Array, sequence_length: Array | None = None, out: Array | None = None) -> Array:
        out = np.empty(like.shape, dy.dtype) if out is None else out
        out.fill(0)
        out[self.places(like.shape, sequence_length)] = dy
        return out

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        last = self.last(
            elements, 2, (place[1 - self.axis],) if self.use_sequence_length else (), elements.shape(1)[self.axis]
        )
        dy = elements.read(0, (*place[: self.axis], *place[self.axis + 1 :]))
        return f"tl.where(({place[self.axis]}) == ({last}), {dy}, {elements.literal(0)})"

    def onnx(self, g: OnnxGraph, dy: str, like: str, sequence_length: str | None = None) -> str:
        shape, dtype = g.shape(like), g.dtype(dy)
        steps = np.arange(shape[self.axis]).reshape((-1, 1) if self.axis == 0 else (1, -1))
        last: Any = g.const(shape[self.axis] - 1, "int64")
        if self.use_sequence_length:
            assert sequence_length is not None
            given = g.Sub(g.cast(sequence_length, "int64"), g.const(1, "int64"))
            given = g.Max(g.Min(given, last), g.const(0, "int64"))
            last = g.Unsqueeze(given, [self.axis])
        hit = g.Equal(g.const(steps, "int64"), last)
        if len(shape) > 2:
            hit = g.Unsqueeze(hit, list(range(2, len(shape))))
        return g.Where(hit, g.Unsqueeze(dy, [self.axis]), g.const(0, dtype))


class SequenceReverse(_Sequence, name="SequenceReverse"):
    """Each sequence backwards, elements behind its end stay; without use_sequence_length all steps backwards.

    data : (steps, batch, ...); sequence_length : (batch,), up to steps; returns : as data
    """

    samples = [
        sample((4, 3, 2), ints((3,), 0, 5), use_sequence_length=True),
        sample((4, 3), ints((3,), 1, 5, "int32"), use_sequence_length=True), sample((4, 3)), sample((4, 3, 2)),
    ]  # fmt: skip

    def check(self) -> None:
        if self.axis != 0:
            raise AttributeSpecError(
                f"SequenceReverse: axis={self.axis}; the steps are on axis 0, use F.SwapAxis(x, dim1=0, dim2=1) first"
            )

    def infer_shape(self, data: Shape, sequence_length: tuple[int, ...] | None = None) -> Shape:
        self.check_shapes(data, sequence_length)
        return data

    def numpy(self, data: Array, sequence_length: Array | None = None, out: Array | None = None) -> Array:
        if not self.use_sequence_length:
            return into(data[::-1].copy(), out)
        assert sequence_length is not None
        steps = np.arange(len(data))[:, None]
        length = np.minimum(sequence_length.astype(np.int64), len(data))[None, :]
        source = np.where(steps < length, length - 1 - steps, steps)
        return into(data[source, np.arange(data.shape[1])], out)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        step, steps = place[0], elements.shape(0)[0]
        if not self.use_sequence_length:
            return str(elements.read(0, (step * -1 + (steps - 1), *place[1:])))
        length = f"tl.minimum(tl.maximum({elements.whole(elements.read(1, place[1:2]), 1)}, 0), {steps}).to(tl.int32)"
        source = elements.computed(f"tl.where(({step}) < {length}, {length} - 1 - ({step}), {step})", steps, *place[:2])
        return str(elements.read(0, (source, *place[1:])))

    def grad(self, F: Functions, data: Tensor, *rest: Tensor) -> Gradients:
        lengths = rest[:-2]
        dx = F.SequenceReverse(rest[-1], *lengths, use_sequence_length=self.use_sequence_length)
        return (dx, *(None for _ in lengths))

    def onnx(self, g: OnnxGraph, data: str, sequence_length: str | None = None) -> str:
        steps = g.shape(data)[0]
        if not self.use_sequence_length:
            return g.Slice(data, [-1], [-(2**31)], [0], [-1])
        assert sequence_length is not None
        if not steps:
            return g.Identity(data)
        # ONNX requires lengths of at least 1. Reversing a sequence of 1 step changes nothing, as for 0 steps.
        length = g.Max(g.Min(g.cast(sequence_length, "int64"), g.const(steps, "int64")), g.const(1, "int64"))
        return g.ReverseSequence(data, length, time_axis=0, batch_axis=1)
