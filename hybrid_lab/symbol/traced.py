"""TracedArray: what a 2.x-style forward(x) gets during a trace - a Symbol whose shape and dtype are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.diagnostics.location import capture
from hybrid_lab.graph.control_flow import ControlFlow
from hybrid_lab.graph.infer import is_complete, is_open, located
from hybrid_lab.graph.mixed_precision import inside
from hybrid_lab.graph.node import Input, Node, Value
from hybrid_lab.ndarray import invoke as invoking
from hybrid_lab.ops.run import infer
from hybrid_lab.symbol import tracing
from hybrid_lab.symbol.symbol import Symbol


class TracedArray(Symbol):
    """A Symbol that also knows its shape and dtype for the inputs at hand.

    Reading them makes the trace a variant that holds only for these shapes; each read is noted with its line.
    """

    __slots__ = ("_dtypes", "_shapes")

    def __init__(self, values: tuple[Value, ...], shapes: tuple[Any, ...], dtypes: tuple[Any, ...]):
        super().__init__(values)
        self._shapes, self._dtypes = shapes, dtypes

    def _observe(self, what: str) -> None:
        trace = tracing.current()
        if trace is not None:
            trace.observed.append((what, capture()))

    @property
    def shape(self) -> tuple[int, ...]:
        self._observe("shape")
        return self._shapes[0]

    @property
    def size(self) -> int:
        self._observe("shape")
        return int(np.prod(self._shapes[0], dtype=np.int64))

    @property
    def ndim(self) -> int:
        self._observe("shape")
        return len(self._shapes[0])

    @property
    def dtype(self) -> Any:
        self._observe("dtype")
        return self._dtypes[0].type

    @property
    def T(self) -> Symbol:  # noqa: N802 - NumPy's name
        return self.transpose()

    def __len__(self) -> int:
        if len(self._values) > 1:
            return len(self._values)
        self._observe("shape")
        return self._shapes[0][0]

    def __iter__(self) -> Iterator[Symbol]:
        if len(self._values) > 1:
            return (
                TracedArray((v,), (s,), (d,)) for v, s, d in zip(self._values, self._shapes, self._dtypes, strict=True)
            )
        return (self[index] for index in range(len(self)))

    def __getitem__(self, key: Any) -> Symbol:
        if len(self._values) > 1 and isinstance(key, (int, np.integer)):
            return TracedArray((self._values[key],), (self._shapes[key],), (self._dtypes[key],))
        return super().__getitem__(key)


def wrap(trace: tracing.Trace, values: Sequence[Value]) -> Symbol:
    """What the running code sees for these Values: a TracedArray in 2.x style where all shapes are known, else a
    Symbol.
    """
    if not trace.arrays:
        return Symbol(values)
    types = [_known(trace, value) for value in values]
    if any(item is None for item in types):
        return Symbol(values)
    return TracedArray(
        tuple(values), tuple(item[0] for item in types if item), tuple(item[1] for item in types if item)
    )


def note_types(trace: tracing.Trace, node: Node) -> None:
    """Infer a new node's output types where its inputs are known, filling deferred parameter shapes on the way.

    Raises ShapeError or DTypeError with the source line.
    """
    if is_open(node):
        return
    pairs = [_known(trace, item) if isinstance(item, Value) else ((), None) for item in node.inputs]
    dtypes = tuple(
        pair[1] if pair else item.dtype or np.dtype("float32") for item, pair in zip(node.inputs, pairs, strict=True)
    )
    try:
        if any(pair is None for pair in pairs):
            if any(pair is None and not _is_parameter(item) for item, pair in zip(node.inputs, pairs, strict=True)):
                return
            partial = [item.shape if pair is None else pair[0] for item, pair in zip(node.inputs, pairs, strict=True)]
            shapes = tuple(node.op.complete(*partial))
            if not all(is_complete(shape) for shape in shapes):
                return
            for item, pair, shape, dtype in zip(node.inputs, pairs, shapes, dtypes, strict=True):
                if pair is None:
                    trace.types[item] = (tuple(shape), dtype)
        else:
            shapes = tuple(pair[0] for pair in pairs if pair)
        op, precision = node.op, invoking.precision
        if precision is not None:
            op = inside(op, dtypes, precision) if isinstance(op, ControlFlow) else op
            dtypes = precision.of(op, dtypes)
        out_shapes, out_dtypes = infer(op, shapes, dtypes)
    except (ShapeError, DTypeError) as error:
        raise located(error, node) from None
    for value, shape, dtype in zip(node.outputs, out_shapes, out_dtypes, strict=True):
        trace.types[value] = (shape, dtype)


def _is_parameter(value: Value) -> bool:
    """Whether its shape may be completed from the other inputs: that of a tensor on the way must not be guessed."""
    return isinstance(value.node.op, Input) and value.node.op.role != "data"


def _known(trace: tracing.Trace, value: Value) -> tuple[Any, Any] | None:
    found = trace.types.get(value)
    if found is None and is_complete(value.shape):
        return value.shape, value.dtype or np.dtype("float32")
    return found
