"""A region as an ONNX model, by the records' own mapping, with all dimensions of its inputs and outputs left open."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.engines.onnxruntime import messages
from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.ops.framework.dtypes import is_bfloat16
from hybrid_lab.ops.framework.onnx_emit import DATA_TYPES, OnnxEmitter, OnnxNode

#: (name, shape, dtype)
Tensor = tuple[str, tuple[int, ...], np.dtype]

#: Constants up to this many elements may differ between models that share a session (see `Model.skeleton`): sizes,
#: and numbers computed from sizes.
SMALL = 16

_POOLS = frozenset({"MaxPool", "GlobalMaxPool"})
_RECURRENT = frozenset({"RNN", "LSTM", "GRU"})
#: Operators of ONNX whose kernels compare numbers and drop NaN, which compares with nothing: maxima, and the clipped
#: activations of recurrent layers.
LOSE_NAN = frozenset({"MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK"}) | _RECURRENT
#: The form of one operator has at most this many nodes and bytes of constants, apart from some for each input and
#: output: the time for making a session grows faster than its number of nodes.
MOST_NODES, MOST_BYTES = 256, 1 << 25
#: Images of more elements are averaged per channel first, which ONNX Runtime does in the layout of its convolutions.
_LARGE = 1 << 15


class Model:
    """A region as ONNX nodes.

    nodes : in order, without nodes that no output and no check needs
    constants : name -> array
    inputs, outputs : (name, shape, dtype), in the region's order
    checks : further outputs, one number each, that are finite if ONNX Runtime loses no NaN
    region : the region
    checked : per check the Value that it looks at
    """

    def __init__(
        self,
        nodes: Sequence[OnnxNode],
        constants: dict[str, np.ndarray],
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
        region: Region,
        checks: Mapping[Tensor, Value],
    ):
        needed = {output[0] for output in (*outputs, *checks)}
        kept: list[OnnxNode] = []
        for item in reversed(nodes):
            if needed.intersection(item.outputs):
                needed.update(item.inputs)
                kept.append(item)
        self.nodes = tuple(reversed(kept))
        self.constants = {name: array for name, array in constants.items() if name in needed}
        self.inputs, self.outputs, self.region = inputs, outputs, region
        self.checks, self.checked = tuple(checks), tuple(checks.values())

    def without_checks(self, values: Collection[Value]) -> Model:
        """The same for when these values hold no NaN."""
        left = {check: value for check, value in zip(self.checks, self.checked, strict=True) if value not in values}
        return Model(self.nodes, self.constants, self.inputs, self.outputs, self.region, left)

    @cached_property
    def small(self) -> dict[str, np.ndarray]:
        """The constants that the skeleton leaves out."""
        return {name: array for name, array in self.constants.items() if array.size <= SMALL}

    @cached_property
    def _nodes(self) -> list[bytes]:
        return [messages.node(node) for node in self.nodes]

    @cached_property
    def skeleton(self) -> bytes:
        """A digest of the model without the sizes of its inputs and outputs and without the values of its small
        constants.

        ONNX operators take sizes from their operands as they run. So two models with one skeleton and equal small
        constants compute the same at every shape. If some constants differ, this holds for the model that takes these
        constants as inputs.
        """
        digest = hashlib.sha256()
        for name, shape, dtype in (*self.inputs, *self.outputs, *self.checks):
            digest.update(f"{name} {len(shape)} {dtype} ".encode())
        for name, array in self.constants.items():
            digest.update(f"{name} {array.shape} {array.dtype} ".encode())
            if name not in self.small:
                digest.update(array.tobytes())
        for node in self._nodes:
            digest.update(len(node).to_bytes(4, "little") + node)
        return digest.digest()

    def serialize(self, fed: Collection[str] = (), weights: Mapping[str, object] | None = None) -> bytes:
        """The model as an ONNX file.

        fed : constants that become inputs, behind the region's own
        weights : inputs that become initializers, handed over when the session is made
        """
        weights = weights or {}
        given = [(name, len(shape), dtype) for name, shape, dtype in self.inputs if name not in weights]
        given += [(name, array.ndim, array.dtype) for name, array in self.constants.items() if name in fed]
        initializers = [messages.tensor(name, array) for name, array in self.constants.items() if name not in fed]
        initializers += [messages.external_tensor(*item) for item in self.inputs if item[0] in weights]
        results = (*self.outputs, *self.checks)
        outputs = [messages.value_info(name, len(shape), dtype) for name, shape, dtype in results]
        inputs = [messages.value_info(*item) for item in given]
        return messages.model(self._nodes, initializers, inputs, outputs, "region")


class RegionEmitter(OnnxEmitter):
    """Every shape is known here, so asking for one is a constant; constants are never shared, so that names do not
    depend on which sizes happen to be equal.
    """

    def Shape(self, value: str) -> str:
        return self.const(self.shape(value), "int64")

    def Size(self, value: str) -> str:
        return self.const(math.prod(self.shape(value)), "int64")

    def Reshape(self, value: str, shape: str | Sequence[int]) -> str:
        """With 0 for unchanged leading sizes and -1 for the first changed size, so that the batch size is not written
        down.
        """
        wanted = self.initializers.get(shape) if isinstance(shape, str) else shape
        if value in self._known and wanted is not None and min(wanted, default=0) > 0:
            have = self.shape(value)
            changed = (index for index, (old, new) in enumerate(zip(have, wanted, strict=False)) if old != new)
            kept = min(next(changed, len(have)), len(wanted) - 1)
            shape = [0] * kept + [-1] + list(wanted[kept + 1 :])
        return self._add("Reshape", (value, shape), 1, {})

    def reshape_batched(self, value: str, shape: Sequence[int]) -> str:
        return self.Reshape(value, shape)

    def const(self, value: Any, dtype: Any) -> str:
        array = np.asarray(value).astype(dtype, order="C")
        name = self._name("const")
        self.initializers[name] = array
        return self.declare(name, array.shape, array.dtype)


def refusal(node: Node) -> str | None:
    """Why the node cannot become part of a model, or None: as far as it shows without writing the node's ONNX form."""
    op = node.op
    if op.random:
        return "random numbers come from the counter-based generator that all engines share"
    if op.onnx is None:
        return "the operator has no ONNX form"
    if op.attributes.get("mode") == "rnn_tanh":
        return "RNN with tanh: ONNX Runtime's kernel is off by 1e-7 however small the result is"
    for value in (*node.values_in, *node.outputs):
        if 0 in value.shape:
            return "arrays without elements"
        if value.dtype.name == "float16":
            return "float16: ONNX Runtime would compute in float32 on a CPU"
        if is_bfloat16(value.dtype):
            return "bfloat16: ONNX Runtime does not compute in it on a CPU"
        if value.dtype.name not in DATA_TYPES:
            return f"ONNX has no {value.dtype.name}"
    return None


def refusal_of_form(node: Node) -> str | None:
    """Why a node that `refusal` lets through has no ONNX form that ONNX Runtime can use, or None."""
    try:
        emit(RegionEmitter(), node, {})
    except Unmappable as error:
        return str(error)
    return None


def emit(emitter: OnnxEmitter, node: Node, names: dict[Value, str]) -> None:
    """Emit one node; unknown inputs are declared under fresh names. Adds the names of its outputs to `names`.

    Raises Unmappable if the node has no ONNX form, or one over which ONNX Runtime would take too long.
    """
    num_nodes, num_constants = len(emitter.nodes), len(emitter.initializers)
    operands: list[Any] = []
    for index, item in enumerate(node.inputs):
        if not isinstance(item, Value):
            operands.append(item)
        elif item in names:
            operands.append(names[item])
        elif isinstance(item.node.op, Constant) and node.op.reads_values(index):
            operands.append(emitter.const(item.node.op.array, item.dtype))
        else:
            # A constant of which only the shape is read may stand for gigabytes: it gets a name, never a value.
            operands.append(emitter.declare(f"shape_of_{len(names)}_{index}", item.shape, item.dtype))
    results = emitter.emit(node.op, operands)
    if len(results) < len(node.outputs):
        raise Unmappable(f"{node.op.name}: its ONNX form lacks hidden outputs")
    names.update(zip(node.outputs, results, strict=False))
    values = {*node.values_in, *node.outputs}
    num_nodes = len(emitter.nodes) - num_nodes
    if num_nodes > MOST_NODES + 4 * len(values):
        raise Unmappable(f"its ONNX form has {num_nodes} nodes, over which ONNX Runtime would take too long")
    nbytes = sum(array.nbytes for array in list(emitter.initializers.values())[num_constants:])
    if nbytes > MOST_BYTES + 4 * sum(value.nbytes for value in values):
        raise Unmappable(f"its ONNX form has {nbytes >> 20} MB of constants")


def build_model(region: Region) -> Model:
    """The region's model. Raises Unmappable."""
    emitter = RegionEmitter()
    names: dict[Value, str] = {}
    inputs: list[Tensor] = []
    for index, value in enumerate(region.inputs):
        names[value] = emitter.declare(f"x{index}", value.shape, value.dtype)
        inputs.append((names[value], value.shape, value.dtype))
    watched: dict[tuple[str, str], tuple[Value, Callable[..., str]]] = {}
    for node in region.nodes:
        start = len(emitter.nodes)
        emit(emitter, node, names)
        for kind in {item.op_type for item in emitter.nodes[start:]} & LOSE_NAN:
            look = _sum if kind in _POOLS else _scaled_sum if kind in _RECURRENT else _nan_count
            for value in node.values_in:
                if value.dtype.kind == "f" and value in names:
                    watched.setdefault((names[value], look.__name__), (value, look))
    checks: dict[Tensor, Value] = {}
    for (name, _), (value, look) in watched.items():
        dtype = np.dtype("float32") if look is _nan_count else value.dtype
        checks[look(emitter, name, value), (), dtype] = value
    outputs: list[Tensor] = []
    for index, value in enumerate(region.outputs):
        # A name of its own for every output: a mapping may hand its input on, or give one name to two outputs.
        emitter.nodes.append(OnnxNode("Identity", (names[value],), (f"y{index}",), {}, f"out{index}"))
        outputs.append((f"y{index}", value.shape, value.dtype))
    return Model(tuple(emitter.nodes), emitter.initializers, tuple(inputs), tuple(outputs), region, checks)


# Checks: each function returns the name of a number that is finite if the operators behind the value lose no NaN.


def _nan_count(emitter: OnnxEmitter, name: str, value: Value) -> str:
    """Finite if no NaN is in the value. Masks of -inf are common there."""
    count = emitter.ReduceSum(emitter.cast(emitter.IsNaN(name), "float32"), keepdims=0)
    return str(emitter.Sqrt(emitter.Neg(count)))


def _sum(emitter: OnnxEmitter, name: str, value: Value) -> str:
    """The sum of the value. Pooled values are large and have no infinities in sound networks, so a sum will do."""
    total = name
    if value.dtype == np.float32 and len(value.shape) == 4 and math.prod(value.shape[1:]) > _LARGE:
        total = emitter.GlobalAveragePool(name)
    return str(emitter.ReduceSum(total, keepdims=0))


def _scaled_sum(emitter: OnnxEmitter, name: str, value: Value) -> str:
    """The sum of the value times a large number: infinite if products inside a recurrent layer might be infinite, whose
    sum is NaN.
    """
    large = emitter.const(np.sqrt(np.finfo(value.dtype).max), value.dtype)
    return str(emitter.ReduceSum(emitter.Mul(name, large), keepdims=0))
