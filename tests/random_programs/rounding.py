"""Eager runs whose operators round otherwise: what differs between two of them is decided by rounding alone.

A kernel runs once more in the next wider dtype: an element that this gives too was not rounded and stays as it is, so
that copies, comparisons, maxima, masks and whole numbers keep every relation between them. Each other element becomes
what the kernel gives for inputs that are off by a few roundings, rounded otherwise itself. What is computed in float32
for a narrower dtype, and sums of gradients, are off by roundings too.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics import Unmappable
from hybrid_lab.ndarray.backward import _Gradients
from hybrid_lab.ndarray.invoke import EagerEntry
from hybrid_lab.ndarray.tape import Output
from hybrid_lab.ops.framework.contract import read_outputs
from hybrid_lab.ops.framework.namespace import Namespace
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import InFloat32, apply_numpy

_WIDER = {"float16": np.float32, "float32": np.float64, "float64": np.longdouble}
#: The distance of 1 to the next number.
_NARROW = {"bfloat16": 2.0**-7, "float16": 2.0**-10}

#: By how many rounding errors inputs and results are off, in one run or another; and whether a result that such
#: errors could as well have made 0 becomes 0.
_WAYS = [(3.0, False), (1.0, False), (3.0, True), (1.0, True)]

#: Records that subtract a mean and divide by a deviation, and gradients of such, by their files or names. Nothing that
#: they give is a copy of an input, and no input counts anything. Where a row is all 1, only (x - mean) / deviation
#: gives 0, not other formulas for it; the same is true of a gradient whose heads are all 1.
_NORMALIZATIONS = {"norm", "group_norm", "_batch_norm_grad", "_layer_norm_grad"}

#: Records that choose one of their inputs. Which zero they choose from 0 and -0 is the kernel's; docs/differences.md.
_CHOICES = {"relu", "LeakyReLU", "broadcast_maximum", "broadcast_minimum"}

#: Families and records that add up products or numbers. With numbers near the largest one, fused additions and another
#: order give an infinity where others give the other infinity or NaN. The sign of a sum of zeros is that of the zero
#: which the kernel starts with.
_SUMS = {"reduce", "dot", "batch_dot", "FullyConnected", "Convolution", "Deconvolution", "linalg_gemm", "linalg_gemm2"}

#: Records whose lowering compares numbers, which other roundings would make unequal, and gives an index or a bool.
_INDICES = {"argmax", "argmin", "argmax_channel", "_ravel_multi_index", "_unravel_index", "all_finite"}

_thread = threading.local()


class Rounding:
    """How the operators of one run round. seed : another way for each"""

    def __init__(self, seed: int):
        self.random = np.random.RandomState(seed)
        self.size, self.snaps = _WAYS[seed % len(_WAYS)]

    def off(self, values: Any, error: float, whole: bool = False) -> Any:
        """The values off by a few roundings; whole numbers, which may count something, stay unless `whole`."""
        moved = values * (1 + self.size * error * self.random.uniform(-1, 1, np.shape(values)))
        return moved if whole else np.where(values == np.rint(values), values, moved)

    def again(
        self, op: Operator, kernel: Callable[..., Any], inputs: Sequence[Any], outputs: dict[int, Any], dtype: np.dtype
    ) -> dict[int, Any]:
        """Outputs of a kernel with other roundings. inputs : in a wider dtype; outputs : what it gave, by number, all
        of this dtype
        """
        error = float(np.finfo(dtype).eps)
        norm = op.family in _NORMALIZATIONS or op.name in _NORMALIZATIONS
        near = [self._off(item, error, norm) for item in inputs]
        exact, moved = (read_outputs(op, kernel(op, *items)) for items in (inputs, near))
        compound = type(op).lower is not Operator.lower and op.name not in _INDICES
        if compound:
            with contextlib.suppress(Unmappable):
                moved = self._lowered(op, near, error, norm)
        return {
            place: self._moved(op, inputs, found, np.asarray(exact[place]), np.asarray(moved[place]), compound, norm)
            for place, found in outputs.items()
        }

    def _moved(
        self,
        op: Operator,
        inputs: Sequence[Any],
        found: np.ndarray,
        true: np.ndarray,
        moved: np.ndarray,
        compound: bool,
        norm: bool,
    ) -> Any:
        """One output with other roundings. true : in a wider dtype; moved : the same for inputs that are off"""
        rounded = true != found
        if compound:
            copied = np.isin(found, np.concatenate([np.ravel(item) for item in inputs])) & (found != 0)
            rounded |= ~copied | norm
        other = moved * (1 + self.size * float(np.finfo(found.dtype).eps) * self.random.uniform(-1, 1, moved.shape))
        if self.snaps:
            other = np.where(np.abs(found) <= 2 * np.abs(moved - true), 0, other)
        other = np.where(rounded & (moved != true) & np.isfinite(found) & np.isfinite(moved), other, found)
        if op.family in _SUMS or op.name in _SUMS:
            overflows = ~np.isfinite(found) & np.isfinite(true)
            other = np.where(overflows, self.random.choice([np.nan, np.inf, -np.inf], found.shape), other)
            other = np.where((found == 0) & (true == 0), self.random.choice([0.0, -0.0], found.shape), other)
        if getattr(op, "plain", op).name in _CHOICES:
            either = np.all(np.broadcast_arrays(found == 0, *[item == 0 for item in inputs]), axis=0)
            other = np.where(either, self.random.choice([0.0, -0.0], found.shape), other)
        return other

    def _lowered(self, op: Operator, inputs: Sequence[Any], error: float, whole: bool) -> Sequence[Any]:
        """What the operators give that a compound one stands for, each of them off by a few roundings: other formulas
        for the same, `x * scale - mean * scale` for `(x - mean) * scale`, are off where this one is exact.
        whole : whether whole numbers are off, too: float32 has no others above 2 ** 23
        """

        def step(op: Operator, inputs: Sequence[Any]) -> Any:
            made = apply_numpy(op, inputs)
            if isinstance(made, tuple):
                return tuple(self._off(item, error, whole) for item in made)
            # Added up one after another, n numbers are off by about the square root of n roundings.
            count = np.size(inputs[0]) / max(1, np.size(made)) if op.family == "reduce" else 1
            return self._off(made, error * max(1.0, count) ** 0.5, whole)

        made = op.lower(Namespace(step), *inputs)
        return made if isinstance(made, (tuple, list)) else [made]

    def _off(self, item: Any, error: float, whole: bool = False) -> Any:
        if isinstance(item, np.ndarray) and item.dtype.kind == "f":
            return self.off(item, error, whole).astype(item.dtype)
        return item

    def narrowed(self, value: Any, dtype: np.dtype) -> Any:
        """A float32 result as it is before it becomes a narrower number: off by a few roundings of that, unless it is
        such a number, but for roundings of float32.
        """
        if not isinstance(value, np.ndarray) or value.dtype != np.float32 or dtype.name not in _NARROW:
            return value
        near = value.astype(dtype).astype(np.float32)
        with np.errstate(invalid="ignore"):
            exact = np.abs(value - near) <= 8 * np.finfo(np.float32).eps * np.abs(value)
        return np.where(exact | ~np.isfinite(value), value, self.off(value, _NARROW[dtype.name])).astype(np.float32)

    def add(self, first: Any, second: Any, total: np.ndarray, parts: np.dtype | None) -> None:
        """Move a sum of two gradients, in place: others add up the gradients of an array in another order. parts : the
        dtype of an array of which this is the gradient of a wider copy. Where others copy it twice, the gradients of
        the copies are rounded before they are added up.
        """
        wide = _WIDER.get(total.dtype.name, np.float32)
        sums = first.astype(wide) + np.asarray(second, wide)
        error = _NARROW.get(total.dtype.name) or float(np.finfo(total.dtype).eps)
        moved = np.where(sums == total.astype(wide), total, self.off(sums, error))
        if parts is not None:
            moved = self.narrowed(first, parts) + self.narrowed(np.asarray(second), parts)
        total[...] = np.where(np.isfinite(moved), moved, total).astype(total.dtype)

    def results(self, op: Operator, kernel: Callable[..., Any], inputs: Sequence[Any], keywords: dict[str, Any]) -> Any:
        """What a kernel returns, with other roundings."""
        # Before the kernel runs: it may write its result to where an input is.
        dtypes = {item.dtype.name for item in inputs if isinstance(item, np.ndarray) and item.dtype.name in _WIDER}
        wide = [_widened(item) for item in inputs]
        answer = kernel(op, *inputs, **keywords)
        if not dtypes or op.view or op.random or op.subgraphs:
            return answer
        single = not isinstance(answer, (tuple, list))
        outputs = [answer] if single else list(answer)
        rest = {name: value for name, value in keywords.items() if name not in ("out", "need")}
        floats: dict[np.dtype, dict[int, Any]] = {}
        for place, found in enumerate(outputs):
            if isinstance(found, (np.ndarray, np.generic)) and found.dtype.name in _WIDER:
                floats.setdefault(found.dtype, {})[place] = np.asarray(found)
        for dtype, same in floats.items():
            others: dict[int, Any] = {}
            with contextlib.suppress(Exception):  # a kernel that takes no wider dtype
                others = self.again(op, functools.partial(kernel, **rest), wide, same, dtype)
            for place, other in others.items():
                found = outputs[place]
                if isinstance(found, np.ndarray) and found.flags.writeable and found.flags.c_contiguous:
                    found[...] = other.astype(found.dtype)
                else:
                    outputs[place] = other.astype(found.dtype)
        return outputs[0] if single else tuple(outputs)


def _copied_from(link: Any) -> np.dtype | None:
    """The dtype of the array that a wider copy was made from, if the link is one to such a copy."""
    entry = link.node.entry if type(link) is Output else None
    if not isinstance(entry, EagerEntry) or entry.op.name not in ("Cast", "_cast_like"):
        return None
    source = entry._values[0]  # a shape and a dtype: all that the gradient of a cast reads
    return source[1] if isinstance(source, tuple) and source[1].name in _NARROW else None


def _widened(item: Any) -> Any:
    if isinstance(item, np.ndarray) and item.dtype.name in _WIDER:
        return item.astype(_WIDER[item.dtype.name])
    return item


@contextlib.contextmanager
def other_rounding(seed: int) -> Iterator[None]:
    """In `with`, all kernels of operators round in the way of this seed."""
    rounding = Rounding(seed)

    def wrapped(kernel: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(kernel)
        def numpy(op: Operator, *inputs: Any, **keywords: Any) -> Any:
            if getattr(_thread, "inside", False):  # a kernel that calls another one
                return kernel(op, *inputs, **keywords)
            _thread.inside = True
            try:
                return rounding.results(op, kernel, inputs, keywords)
            finally:
                _thread.inside = False

        return numpy

    def rounded(self: InFloat32, outputs: Sequence[Any], out: Any = None) -> tuple[Any, ...]:
        return plain_rounded(self, [rounding.narrowed(*pair) for pair in zip(outputs, self.dtypes, strict=True)], out)

    def arrive(self: _Gradients, link: Any, gradient: Any) -> None:
        before = self.get(link)
        first = before.copy() if isinstance(before, np.ndarray) else before
        plain_arrive(self, link, gradient)
        total = self.get(link)
        if isinstance(first, np.ndarray) and isinstance(total, np.ndarray):
            rounding.add(first, gradient, total, _copied_from(link))

    plain_rounded, plain_arrive = InFloat32.rounded, _Gradients.arrive
    records = {record: vars(record)["numpy"] for record in _records(Operator) if callable(vars(record).get("numpy"))}
    try:
        InFloat32.rounded, _Gradients.arrive = rounded, arrive  # type: ignore[method-assign]
        for record, kernel in records.items():
            record.numpy = wrapped(kernel)  # type: ignore[method-assign]
        yield
    finally:
        InFloat32.rounded, _Gradients.arrive = plain_rounded, plain_arrive  # type: ignore[method-assign]
        for record, kernel in records.items():
            record.numpy = kernel  # type: ignore[method-assign]


def _records(record: type[Operator]) -> set[type[Operator]]:
    return {record}.union(*map(_records, record.__subclasses__()))
