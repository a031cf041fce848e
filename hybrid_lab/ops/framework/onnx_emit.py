"""ONNX emission: `g` in a record's `onnx(self, g, *inputs)`. Collects nodes and initializers without importing onnx.

Opset 17. `g.Softmax(x, axis=1)` adds a node and returns the name of its output; `outputs=2` gives a tuple of names; an
input that is None or "" is left out; a list or tuple of whole numbers is an int64 constant: `g.Reshape(x, [-1, 2])`.
The collected nodes are plain data (`nodes`, `initializers`), from which an engine or exporter makes its model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hybrid_lab.diagnostics.errors import RecordError, Unmappable
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.pointwise import Unary
from hybrid_lab.ops.framework.run import infer

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

OPSET = 17

#: ONNX' TensorProto.DataType by NumPy name.
DATA_TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
}


_REDUCTIONS = frozenset({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"})


class OnnxNode(NamedTuple):
    """One ONNX node. inputs : value names, "" if an optional one is left out."""

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    name: str


def _are_whole(item: object) -> bool:
    """Whether an input is a list or tuple of whole numbers."""
    return isinstance(item, (list, tuple)) and all(isinstance(each, (int, np.integer)) for each in item)


class OnnxEmitter:
    """Collects one ONNX graph.

    prefix : starts every name that is made here, so that several emitters can share a graph
    batch : the size that stands for a symbolic batch, or None. Reshapes that keep a first dimension of this size are
        then written so that they hold for every batch.
    """

    def __init__(self, prefix: str = "", batch: int | None = None):
        self.nodes: list[OnnxNode] = []
        self.initializers: dict[str, np.ndarray] = {}
        self.prefix, self.batch = prefix, batch
        self._known: dict[str, tuple[tuple[int, ...], np.dtype]] = {}
        self._constants: dict[object, str] = {}
        self._count = 0
        self._scope = ""

    # -- values ------------------------------------------------------------------------------------------------

    def declare(self, name: str, shape: Sequence[int], dtype: DTypeLike) -> str:
        """Make shape and dtype of a value known: a graph input, or what inference says of an output."""
        self._known[name] = (tuple(shape), np.dtype(dtype))
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        """The known shape of an operator's input."""
        return self._known[name][0]

    def dtype(self, name: str) -> np.dtype:
        """The known dtype of an operator's input."""
        return self._known[name][1]

    def const(self, value: ArrayLike, dtype: DTypeLike) -> str:
        """The name of an initializer with that value; equal initializers are shared."""
        array = np.asarray(value).astype(dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        name = self._constants.get(key)
        if name is None:
            name = self._constants[key] = self._name("const")
            self.initializers[name] = array
            self.declare(name, array.shape, array.dtype)
        return name

    def arange(self, count: int) -> str:
        """The whole numbers from 0 up to but without `count`, as int64."""
        return self.const(np.arange(count), "int64")

    def _name(self, stem: str) -> str:
        self._count += 1
        return f"{self.prefix}{self._scope}{stem}_{self._count}"

    # -- nodes -------------------------------------------------------------------------------------------------

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)

        def add(*inputs: str | Sequence[int] | None, outputs: int = 1, **attributes: Any) -> Any:
            return self._add(op_type, inputs, outputs, attributes)

        return add

    def _add(self, op_type: str, inputs: Sequence[Any], outputs: int, attributes: dict[str, Any]) -> Any:
        operands = ["" if item is None else self.const(item, "int64") if _are_whole(item) else item for item in inputs]
        if op_type in _REDUCTIONS and self._without_axes(operands, attributes):
            op_type, operands, attributes = "Identity", operands[:1], {}
        names = tuple(self._name(op_type.lower()) for _ in range(outputs))
        self.nodes.append(OnnxNode(op_type, tuple(operands), names, attributes, self._name(op_type)))
        return names[0] if outputs == 1 else names

    def _without_axes(self, inputs: Sequence[Any], attributes: dict[str, Any]) -> bool:
        """Whether a reduction is over no axes, as a BatchNorm of a vector has none: ONNX would take all for none."""
        axes = attributes.get("axes")
        if axes is None and len(inputs) > 1:
            axes = self.initializers.get(inputs[1])
        return axes is not None and len(axes) == 0

    def cast(self, value: str, dtype: DTypeLike) -> str:
        """`value` converted to a NumPy dtype."""
        return self._add("Cast", (value,), 1, {"to": DATA_TYPES[np.dtype(dtype).name]})

    def reshape_batched(self, value: str, shape: Sequence[int]) -> str:
        """`value` reshaped; a first dimension that is the batch stays whatever it is."""
        wanted = list(shape)
        if self.batch is not None and wanted and wanted[0] == self.batch and self.shape(value)[:1] == (self.batch,):
            wanted[0] = 0
        return self._add("Reshape", (value, wanted), 1, {})

    def emit(self, op: Operator, inputs: Sequence[Any], scope: str = "") -> tuple[str, ...]:
        """Emit one bound operator. inputs : declared names, or Python numbers (immediates). Returns one name per
        output, declared.

        Raises Unmappable with the operator's name if there is no mapping.
        """
        if op.onnx is None:
            raise Unmappable(f"{op.name}: it has no ONNX form")
        if (
            isinstance(op, Unary)
            and not op.integers
            and any(isinstance(item, str) and self.dtype(item).kind != "f" for item in inputs)
        ):
            raise Unmappable(f"{op.name}: it has no ONNX form for integers")
        before, self._scope = self._scope, f"{scope}/" if scope else self._scope
        count = len(self.nodes)
        try:
            names = self._immediates(op, inputs)
            if isinstance(op.onnx, str):
                result = self._add(op.onnx, names, 1, {})
            else:
                result = op.onnx(self, *names)
        finally:
            self._scope = before
        for node in self.nodes[count:]:
            for item in node.inputs:
                if not isinstance(item, str):
                    raise RecordError(
                        op.name, "onnx", f"calls g.{node.op_type} with {item!r}; write g.const({item!r}, g.dtype(x))"
                    )
        result = result if isinstance(result, tuple) else (result,)
        known = [self._known[item] if isinstance(item, str) else ((), None) for item in inputs]
        shapes, dtypes = infer(op, tuple(shape for shape, _ in known), tuple(dtype for _, dtype in known))
        for name, shape, dtype in zip(result, shapes, dtypes):
            self.declare(name, shape, dtype)
        return result

    def _immediates(self, op: Operator, inputs: Sequence[Any]) -> list[str]:
        tensors = [self.dtype(item) for item in inputs if isinstance(item, str)]
        dtype = next((item for item in tensors if item != np.bool_), tensors[0] if tensors else np.dtype("float32"))
        return [item if isinstance(item, str) else self.const(item, dtype) for item in inputs]
