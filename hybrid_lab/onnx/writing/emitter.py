"""FileEmitter: `g` of the records' `onnx` for files, in which sizes may be open and the opset may be another one.

The sizes of an open axis are SymbolicSizes (ops/framework/sizes.py). A record's form computes with them as with whole
numbers; if it writes one into the graph, the emitter adds the nodes that compute it while the file runs:

    n = g.shape(x)[0]                      g.Expand(y, [n, 3])  adds  Expand(y, Concat(Gather(Shape(x), [0]), [3]))

If a form needs a size as a number, it raises NeedsNumber, and the axis cannot be open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.graph.custom import Custom
from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.ops.framework.dtypes import dtype_of, name_of
from hybrid_lab.ops.framework.lowering import emit_lowering
from hybrid_lab.ops.framework.onnx_emit import DATA_TYPES, OPSET, OnnxEmitter, OnnxNode
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import infer
from hybrid_lab.ops.framework.sizes import NeedsNumber, Size, SymbolicSize
from hybrid_lab.ops.layers.norm import BatchNorm

from ..opsets import TYPES, output_types, translated
from . import batch_norm, control_flow, detection, samplers
from .nodes import FunctionCall

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class FileEmitter(OnnxEmitter):
    """Collects the nodes of one body: of the file's graph, or of a function of the file.

    opset : of the file
    taken : names that stand for other things already
    wanted_sizes : symbolic sizes that nothing in the body tells, by the name of the input that the body needs for each
    operators : for each node of ONNX, the node of our graph that it is a part of
    """

    def __init__(self, opset: int = OPSET, taken: Sequence[str] = ()):
        super().__init__()
        self.opset = opset
        self.wanted_sizes: dict[str, SymbolicSize] = {}
        self.operators: list[Node | None] = []
        self._taken = set(taken)
        self._types: dict[str, str | None] = {}
        self._vectors: dict[object, str] = {}
        self._lists: dict[str, list[Size]] = {}
        self._node: Node | None = None
        self._widened: dict[str, str] = {}

    # -- names and types -----------------------------------------------------------------------------------------

    def _name(self, stem: str) -> str:
        name = super()._name(stem)
        return name if name not in self._taken else self._name(stem)

    def unused(self, stem: str) -> str:
        """A name for a value that no node computes, such as an input of a loop's body."""
        return self._name(stem)

    def declare(self, name: str, shape: Sequence[int], dtype: DTypeLike) -> str:
        self._types[name] = TYPES[_held(dtype)]
        return super().declare(name, shape, dtype)

    def cast(self, value: str, dtype: DTypeLike) -> str:
        _held(dtype)
        return super().cast(value, dtype)

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _add(self, op_type: str, inputs: Sequence[Any], outputs: int, attributes: dict[str, Any]) -> Any:
        operands = [self.const(item, "int64") if _has_symbols(item) else item for item in inputs]
        for value in attributes.values():
            _refuse_symbols(value)
        narrow = self._narrow(operands[0]) if op_type == "Cast" else None
        if narrow is not None and DATA_TYPES[self.dtype(narrow).name] == attributes["to"]:
            # Also because ONNX Runtime 1.32 loses the second of two such Casts if a branch reads its result.
            op_type, operands, attributes = "Identity", [narrow], {}
        result = super()._add(op_type, operands, outputs, attributes)
        if op_type == "Cast" and operands[0] in self._known:
            self._widened[result] = operands[0]
        node = self.nodes[-1]
        given, attributes = translated(node.op_type, node.inputs, node.attributes, self.opset, self._whole)
        types = [self._types.get(name) for name in given]
        found = output_types(node.op_type, types, attributes, self.opset, len(node.outputs))
        self.nodes[-1] = node._replace(inputs=tuple(given), attributes=attributes)
        self._types.update(zip(node.outputs, found, strict=True))
        self.operators.append(self._node)
        return result

    def _narrow(self, value: str) -> str | None:
        """The value that was cast without loss to give `value`, or None."""
        source = self._widened.get(value)
        if source is None or value not in self._known:
            return None
        one, two = self.dtype(source), self.dtype(value)
        return source if one.kind == two.kind and one.itemsize <= two.itemsize else None

    def _whole(self, numbers: Sequence[int]) -> str:
        return self.const(list(numbers), "int64")

    def add(
        self, op_type: str, inputs: Sequence[str], outputs: int, attributes: Mapping[str, Any] | None = None
    ) -> tuple[str, ...]:
        """Add a loop or branch, which every opset has, or without attributes the call of a function of the file.

        Returns the names of its outputs.
        """
        kind = FunctionCall if attributes is None else OnnxNode
        names = tuple(self._name(op_type.lower()) for _ in range(outputs))
        self.nodes.append(kind(op_type, tuple(inputs), names, dict(attributes or {}), self._name(op_type)))
        self.operators.append(self._node)
        return names

    def emit_node(self, node: Node, names: dict[Value, str]) -> None:
        """Emit a node of a graph; adds the names of its outputs to `names`. Raises Unmappable, NeedsNumber."""
        around, self._node = self._node, node
        operands = [self.operand(item, names) for item in node.inputs]
        if node.op.subgraphs:
            results = control_flow.emit(self, node, operands)
        elif node.op.name in detection.FORMS:
            results = detection.FORMS[node.op.name](self, node, operands)
        elif isinstance(node.op, BatchNorm):
            results = batch_norm.emit(self, node.op, operands)
        elif isinstance(node.op, Custom):
            raise Unmappable(f"{node.op.code.op_type!r} is an operator in Python, which has no ONNX form")
        elif node.op.random:
            results = samplers.emit(self, node, operands)
        else:
            results = self.emit(node.op, operands)
        names.update(zip(node.outputs, results, strict=False))
        self._node = around

    def operand(self, item: Any, names: Mapping[Value, str]) -> Any:
        """The name of a Value; constants are made where they are read. Numbers stay numbers."""
        if not isinstance(item, Value):
            return item
        if item not in names and isinstance(item.node.op, Constant):
            return self.const(item.node.op.array, item.dtype)
        return names[item]

    def emit(self, op: Operator, inputs: Sequence[Any], scope: str = "") -> tuple[str, ...]:
        """As OnnxEmitter's; an operator whose form this opset lacks is emitted as its lowering, if that will do."""
        start, known = len(self.nodes), set(self._known)
        try:
            return super().emit(op, inputs, scope)
        except Unmappable as error:
            if not op.is_composite or getattr(op.onnx, "__func__", None) is emit_lowering:
                raise
            self._undo(start, known)
            reason = error
        operands = self._immediates(op, inputs)
        try:
            results = emit_lowering(op, self, *operands)
        except Unmappable:
            raise reason from None
        shapes, dtypes = infer(op, tuple(map(self.shape, operands)), tuple(map(self.dtype, operands)))
        for name, shape, dtype in zip(results, shapes, dtypes, strict=False):
            self.declare(name, shape, dtype)
        return results

    def _undo(self, start: int, known: Collection[str]) -> None:
        """Drop the nodes from number `start` on, and the facts known of their outputs."""
        gone = {name for node in self.nodes[start:] for name in node.outputs}
        del self.nodes[start:], self.operators[start:]
        self._known = {name: item for name, item in self._known.items() if name not in gone or name in known}
        self._vectors = {terms: name for terms, name in self._vectors.items() if name not in gone}

    @contextmanager
    def inside(self) -> Iterator[list[OnnxNode]]:
        """Collect the nodes of a subgraph. It sees the values around it, and nothing around it sees its own values."""
        around = self.nodes, self.operators, dict(self._known), dict(self._types), dict(self._vectors), self._node
        self.nodes, self.operators = [], []
        constants = dict(self._constants)
        try:
            yield self.nodes
        finally:
            inner = {name: self._known[name] for name in self.initializers if name in self._known}
            self.nodes, self.operators, self._known, self._types, self._vectors, self._node = around
            self._known.update(inner)
            self._types.update({name: TYPES[_held(dtype)] for name, (_, dtype) in inner.items()})
            assert constants.keys() <= self._constants.keys()

    # -- open sizes ----------------------------------------------------------------------------------------------

    def const(self, value: Any, dtype: DTypeLike) -> str:
        if not _has_symbols(value):
            return super().const(value, dtype)
        if isinstance(value, SymbolicSize):
            return self._as(self._add("Squeeze", (self.vector(value), [0]), 1, {}), dtype)
        parts: list[list[int] | SymbolicSize] = []
        for size in value:
            if isinstance(size, SymbolicSize):
                parts.append(size)
            elif parts and isinstance(parts[-1], list):
                parts[-1].append(int(size))
            else:
                parts.append([int(size)])
        names = [self._whole(part) if isinstance(part, list) else self.vector(part) for part in parts]
        name = names[0] if len(names) == 1 else self._add("Concat", names, 1, {"axis": 0})
        self._lists[name] = list(value)
        return self._as(name, dtype)

    def arange(self, count: Size) -> str:
        if not isinstance(count, SymbolicSize):
            return super().arange(count)
        name = self._add("Range", [self.const(item, "int64") for item in (0, count, 1)], 1, {})
        return self.declare(name, (count,), "int64")  # type: ignore[arg-type]

    def _as(self, name: str, dtype: DTypeLike) -> str:
        return name if np.dtype(dtype) == np.int64 else self.cast(name, dtype)

    def vector(self, size: Size) -> str:
        """The name of a size as a vector of one whole number."""
        if not isinstance(size, SymbolicSize):
            return self._whole([size])
        name = self._vectors.get(size.terms)
        if name is None:
            name = self._vectors[size.terms] = self._read(size) or self._computed(size)
        return name

    def _read(self, size: SymbolicSize) -> str | None:
        """The size as an axis of some value has it."""
        for name, (shape, _) in self._known.items():
            for axis, other in enumerate(shape):
                if isinstance(other, SymbolicSize) and other.terms == size.terms:
                    return str(self._add("Gather", (self._add("Shape", (name,), 1, {}), [axis]), 1, {"axis": 0}))
        return None

    def _computed(self, size: SymbolicSize) -> str:
        """The size from the symbols that it is made of."""
        if len(size.terms) == 1 and size.terms[0][1] == 1 and len(size.terms[0][0]) == 1:
            factor = size.guards.factors[size.terms[0][0][0]]
            if not isinstance(factor, int):
                return str(self._add("Div", tuple(map(self.vector, factor)), 1, {}))
            return self._symbol(size)
        total = None
        for product, number in size.terms:
            part = None if number == 1 and product else self._whole([number])
            for index in product:
                each = self.vector(size.guards.sum({(index,): 1}, 0))
                part = each if part is None else self._add("Mul", (part, each), 1, {})
            total = part if total is None else self._add("Add", (total, part), 1, {})
        assert total is not None
        return total

    def _symbol(self, size: SymbolicSize) -> str:
        """A symbol that is no axis of a value: a part of one, or an input of its own."""
        for name, (shape, _) in self._known.items():
            for axis, other in enumerate(shape):
                if isinstance(other, SymbolicSize) and len(other.terms) == 1 and other.terms[0][0] == size.terms[0][0]:
                    read = self._add("Gather", (self._add("Shape", (name,), 1, {}), [axis]), 1, {"axis": 0})
                    return str(self._add("Div", (read, [other.terms[0][1]]), 1, {}))
        name = self._name("size")
        self.wanted_sizes[name] = size
        return self.declare(name, (1,), "int64")

    def Reshape(self, value: str, shape: str | Sequence[Size], **attributes: Any) -> str:
        """With 0 for leading sizes that stay and -1 for one other open size, so that few sizes are computed."""
        wanted = self._lists.get(shape) if isinstance(shape, str) else list(shape)
        if wanted is not None and any(isinstance(size, SymbolicSize) for size in wanted):
            have = self._known[value][0] if value in self._known else ()
            for axis, (old, new) in enumerate(zip(have, wanted, strict=False)):
                if old is not new and (isinstance(old, SymbolicSize) or isinstance(new, SymbolicSize) or old != new):
                    break
                wanted[axis] = 0
            places = [axis for axis, size in enumerate(wanted) if isinstance(size, SymbolicSize)]
            if places and not any(type(size) is int and size == -1 for size in wanted):
                wanted[places[0]] = -1
            shape = wanted
        return str(self._add("Reshape", (value, shape), 1, attributes))

    def reshape_batched(self, value: str, shape: Sequence[int]) -> str:
        return self.Reshape(value, shape)


def _held(dtype: DTypeLike) -> str:
    """The name of a dtype. Raises Unmappable for a dtype that files do not hold."""
    name = name_of(dtype_of(dtype))
    if name not in DATA_TYPES:
        raise Unmappable(f"files have no {name}")
    return name


def _has_symbols(item: object) -> bool:
    if isinstance(item, (list, tuple)):
        return any(isinstance(each, SymbolicSize) for each in item)
    return isinstance(item, SymbolicSize)


def _refuse_symbols(value: object) -> None:
    """Attributes of ONNX' nodes are numbers."""
    for item in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(item, SymbolicSize):
            raise NeedsNumber(item.guards.symbols_of(item), "an attribute of ONNX")
