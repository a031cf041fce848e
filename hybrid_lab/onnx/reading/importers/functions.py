"""F for the importers: composes records into a graph, and computes at once what depends on constants only."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from hybrid_lab.diagnostics.formatting import dimensions
from hybrid_lab.graph.graph import reachable
from hybrid_lab.graph.node import Node, Scope, Value, constant_node, infer_outputs, input_node
from hybrid_lab.onnx import element_types
from hybrid_lab.onnx.errors import OpenValueError, UnsupportedOperatorError
from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.ops.framework.namespace import Arithmetic, Namespace
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import apply_numpy
from hybrid_lab.ops.framework.sizes import Guards, NeedsNumber, SymbolicSize
from hybrid_lab.ops.framework.sizes import Size as Size

LARGEST_FOLDED = 1 << 20
"""Elements of the largest array that is computed at the import; larger ones become nodes of the graph."""
LARGEST_TABLE = 1 << 22
"""Numbers in the largest table that an importer makes of sizes in the file: positions, windows, weights."""
ROOM = 7 << 20
"""Numbers in all tables and computed arrays of an import, besides twice the numbers in its initializers: a small file
cannot take much memory."""
_SMALL = 1 << 10
"""Arrays of so many elements take no room: they may be shapes, which must be known."""
FIRST_HINT, HINT_STEP = 1009, 62
"""Sizes assumed for open dimensions where a rule compares them: all different, and larger than a window."""
Shape: TypeAlias = tuple[Any, ...]
Result: TypeAlias = "Tensor | tuple[Tensor, ...]"
"""What the function of an operator with a varying number of outputs returns."""
Operand: TypeAlias = "Tensor | float"
Item: TypeAlias = "Tensor | list[Item] | None"
"""A value of a graph: a tensor, a sequence, or an optional one that is empty."""
Attributes: TypeAlias = Mapping[str, Any]
"""Attribute of a node -> Python data: numbers, texts, tuples, arrays with their element type, graphs."""


class Tensor(Arithmetic):
    """A value of an ONNX graph while it is imported.

    array : its elements, if they are known at the import; whole numbers that depend on open sizes are an object
        array of numbers and SymbolicSizes
    carries : the ONNX element type whose values it holds, if arrays have no such type ("UINT16"); else ""
    name : of the parameter or input that it is; "" for other values
    flattened : the same, with all axes but the first made one; None if it is no such thing
    every : of the numbers 0, n, 2n ... the step n; None for other values
    """

    __slots__ = ("F", "_value", "array", "carries", "every", "flattened", "is_parameter", "name")

    def __init__(
        self, F: Functions, value: Value | None = None, array: np.ndarray | None = None, carries: str = "",
        name: str = "", is_parameter: bool = False,
    ) -> None:  # fmt: skip
        self.F, self._value, self.array, self.carries = F, value, array, carries
        self.name, self.is_parameter = name, is_parameter
        self.flattened: Tensor | None = None
        self.every: int | None = None

    @property
    def shape(self) -> Shape:
        """Its sizes: numbers, or SymbolicSizes if the file leaves them open."""
        if self.array is not None:
            return self.array.shape
        assert self._value is not None
        shape: Shape = self._value.shape
        return shape

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype:
        """The element type; of sizes int64."""
        if self.array is not None:
            return np.dtype(np.int64) if self.array.dtype == object else self.array.dtype
        assert self._value is not None
        dtype: np.dtype = self._value.dtype
        return dtype

    @property
    def is_floating(self) -> bool:
        """Whether the elements have fractions."""
        return is_floating(self.dtype)

    @property
    def has_open_sizes(self) -> bool:
        """Whether elements are known, except for open sizes of the inputs."""
        return self.array is not None and self.array.dtype == object

    @property
    def is_constant(self) -> bool:
        """Whether its elements are known, and it is no parameter."""
        return self.array is not None and not self.is_parameter

    @property
    def is_in_graph(self) -> bool:
        """Whether it is a Value of the graph by now."""
        return self._value is not None

    @property
    def value(self) -> Value:
        """The Value in the graph, made when it is first asked for."""
        if self._value is None:
            self._value = self.F.materialize(self)
        return self._value

    def carrying(self, kind: str) -> Tensor:
        """The same values, with an element type that arrays lack."""
        return Tensor(self.F, self._value, self.array, kind, self.name, self.is_parameter)

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {self.dtype}{list(self.shape)})"


class Functions(Namespace):
    """F of one import: `F.exp(x)` on Tensors adds a node, or computes it if all its inputs are constants.

    parameters : name -> (variable, array) of the initializers that the graph reads
    training : whether the file's graph is for training; its BatchNormalization and Dropout are our operators of both
        modes
    conditions : on the symbols of the open sizes, under which the graph holds: "s0 <= 64"
    room : how many numbers may still be computed at the import
    """

    close_sizes = "give imports(..., shapes={...}) the shapes of the inputs"
    """What to do where an open size must be a number."""
    source: Literal["torch", "onnx"] = "onnx"
    """Where the graph comes from."""

    def __init__(self) -> None:
        super().__init__(self.apply)
        self.training = False
        self.guards = Guards()
        self.parameters: dict[str, tuple[Value, np.ndarray]] = {}
        self.states: set[str] = set()
        self.draws = 0
        self.conditions: list[str] = []
        self.room = ROOM
        self.scope = Scope("model")
        self.node_name = ""
        self.operator = ""
        self.version = 0
        self._hints = itertools.count(FIRST_HINT, HINT_STEP)
        self._dimensions: dict[Any, tuple[Value, int]] = {}
        self.made: list[Node] = []

    # -- leaves ------------------------------------------------------------------------------------------------

    def open_size(self) -> SymbolicSize:
        """A new open size."""
        return self.guards.symbol(next(self._hints))

    def input(self, name: str, shape: Shape, dtype: str, carries: str = "") -> Tensor:
        """A data input of the model."""
        value = input_node(name, "data", shape=shape, dtype=dtype)
        self._note_dimensions(value)
        return Tensor(self, value, None, carries, name)

    def constant(self, array: Any, dtype: Any = None, carries: str = "") -> Tensor:
        """A constant from a number, a list or an array."""
        return Tensor(self, None, np.asarray(array, dtype), carries)

    def tensor(self, item: Any) -> Tensor:
        """An operand of a node: an array becomes a constant."""
        return item if isinstance(item, Tensor) else self.constant(item)

    def own_copy(self, parameter: Tensor, name: str) -> Tensor:
        """A parameter of the same values under another name."""
        assert parameter.array is not None
        return Tensor(self, None, parameter.array.copy(), "", name, True)

    def materialize(self, tensor: Tensor) -> Value:
        """The Value of a Tensor whose elements are known."""
        array = tensor.array
        assert array is not None
        if tensor.is_parameter:
            if tensor.name not in self.parameters:
                value = input_node(tensor.name, "param", shape=array.shape, dtype=array.dtype)
                self.parameters[tensor.name] = value, array
            return self.parameters[tensor.name][0]
        if array.dtype == object:
            return self._sizes_in_graph(array).value
        if array.ndim and not any(array.strides):  # a stand-in without memory
            return constant_node(array)
        return constant_node(np.ascontiguousarray(array).reshape(array.shape))

    def _sizes_in_graph(self, array: np.ndarray) -> Tensor:
        """A tensor of whole numbers whose elements are computed from the shapes of tensors in the graph."""
        parts = [self._size_in_graph(size) for size in array.reshape(-1)]
        whole = parts[0] if len(parts) == 1 else self.Concat(*parts, dim=0)
        return self.reshape_to(whole, array.shape)

    def _size_in_graph(self, size: Any) -> Tensor:
        """A size as a tensor of shape (1,)."""
        if not isinstance(size, SymbolicSize):
            return self.constant([int(size)], np.int64)
        found = self._dimensions.get(size.terms)
        if found is not None:
            return self._dimension(*found)
        total: Any = None
        for product, number in size.terms:
            term: Any = self.constant([number], np.int64)
            for factor in product:
                item = size.guards.factors[factor]
                single = self._dimensions.get((((factor,), 1),))
                if single is not None:
                    term = term * self._dimension(*single)
                elif isinstance(item, int):
                    raise self.unsupported(f"the size {size!r} belongs to no tensor")
                else:
                    term = term * (self._size_in_graph(item[0]) / self._size_in_graph(item[1]))
            total = term if total is None else total + term
        made: Tensor = total
        return made

    def _dimension(self, value: Value, axis: int) -> Tensor:
        made: Tensor = self.slice_axis(self.shape_array(Tensor(self, value)), axis=0, begin=axis, end=axis + 1)
        return made

    # -- nodes -------------------------------------------------------------------------------------------------

    def apply(self, op: Operator, inputs: Sequence[object]) -> Result:
        """The visible outputs of an operator: one Tensor, or a tuple of them."""
        tensors = [item for item in inputs if isinstance(item, Tensor)]
        plain = not (op.random or op.mode_dependent or op.signature.aux)
        if plain and all(item.is_constant and not item.has_open_sizes for item in tensors):
            folded = self._folded(op, inputs)
            if folded is not None:
                return folded
        operands = [item.value if isinstance(item, Tensor) else item for item in inputs]
        operands = [constant_node(item) if isinstance(item, np.ndarray) else item for item in operands]
        draw = None
        if op.random or op.subgraphs:
            draw, self.draws = self.draws, self.draws + 1
        shapes, dtypes = self._inferred(op, operands)
        node = Node(op, operands, scope=self.scope, draw=draw, shapes=shapes, dtypes=dtypes)
        self.made.append(node)
        visible = node.outputs[: op.signature.visible]
        for value in visible:
            self._note_dimensions(value)
        made = tuple(Tensor(self, value) for value in visible)
        return made[0] if len(made) == 1 else made

    def _folded(self, op: Operator, inputs: Sequence[object]) -> Any:
        arrays: list[Any] = [item.array if isinstance(item, Tensor) else item for item in inputs]
        shapes, dtypes = self._inferred(op, arrays)
        size = sum(map(prod, shapes))
        if size > max(LARGEST_FOLDED, sum(np.size(item) for item in arrays)) or size > max(self.room, _SMALL):
            return None
        self.room -= size if size > _SMALL else 0
        with np.errstate(all="ignore"):
            results = apply_numpy(op, arrays)
        results = results if isinstance(results, tuple) else (results,)
        made = tuple(
            Tensor(self, array=np.asarray(array, dtype).reshape(shape))
            for array, dtype, shape in zip(results, dtypes, shapes, strict=False)
        )
        return made[0] if op.signature.visible == 1 else made

    def _inferred(self, op: Operator, operands: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        try:
            typed = [item if not isinstance(item, np.ndarray) else _Typed(item) for item in operands]
            return infer_outputs(
                op, [constant_node(item.array) if isinstance(item, _Typed) else item for item in typed]
            )
        except NeedsNumber:
            raise self.unsupported(f"needs a size as a number that is open ({op.name}); {self.close_sizes}") from None

    def _note_dimensions(self, value: Value) -> None:
        for axis, size in enumerate(value.shape):
            if isinstance(size, SymbolicSize):
                self._dimensions.setdefault(size.terms, (value, axis))

    # -- facts of a node ---------------------------------------------------------------------------------------

    def unsupported(self, message: str) -> UnsupportedOperatorError:
        """The error for a node that cannot be imported."""
        return UnsupportedOperatorError(f"node {self.node_name!r} ({self.operator}): {message}", self.operator)

    def known(self, tensor: Tensor, what: str) -> np.ndarray:
        """The elements of a tensor that decides a shape or the like. Raises OpenValueError."""
        if tensor.array is not None:
            return tensor.array
        nodes = reachable([tensor.value])
        inputs = [node.name for node in nodes if node.op.name == "null" and node.name not in self.parameters]
        depends = f"it is computed from {', '.join(inputs)}" if inputs else "it is drawn at random"
        raise OpenValueError(
            f"node {self.node_name!r} ({self.operator}): {what} must be known at the import; {depends}. "
            "Give imports(..., values={...}) the values of these inputs",
            inputs,
            self.operator,
        )

    def ints(self, tensor: Tensor, what: str) -> tuple[Any, ...]:
        """The same as a tuple of whole numbers; some may be symbolic sizes."""
        array = self.known(tensor, what).reshape(-1)
        return tuple(array) if array.dtype == object else tuple(map(int, array))

    def numbers(self, tensor: Tensor, what: str) -> tuple[int, ...]:
        """The same, if open sizes are not possible."""
        found = self.ints(tensor, what)
        if any(isinstance(item, SymbolicSize) for item in found):
            raise self.unsupported(f"{what} depends on an open size; {self.close_sizes}")
        return found

    def number(self, tensor: Tensor, what: str) -> Any:
        """The one element of a tensor as a Python number."""
        array = self.known(tensor, what)
        if array.size != 1:
            raise self.unsupported(f"{what} must be one number, it has the shape {array.shape}")
        return array.reshape(-1)[0] if array.dtype == object else array.reshape(-1)[0].item()

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front. Raises OnnxError."""
        if not -max(rank, 1) <= axis < max(rank, 1):
            raise self.unsupported(f"axis {axis} does not exist; the input has {dimensions(rank)}")
        return axis % rank if rank else 0

    def table(self, *shape: int) -> None:
        """Take room for a table of this shape. Raises UnsupportedOperatorError if there is too little."""
        size = prod(shape)
        if size > min(LARGEST_TABLE, max(self.room, _SMALL)):
            form = " x ".join(map(str, shape))
            raise self.unsupported(
                f"needs a table of {form} numbers at the import; one has up to {LARGEST_TABLE} and all together {ROOM}"
            )
        self.room -= size if size > _SMALL else 0

    def line(self, size: int, axis: int = 0, rank: int = 1) -> Tensor:
        """0, 1, ... size - 1 along one axis of `rank`."""
        self.table(size)
        return self.constant(np.arange(size).reshape([-1 if k == axis else 1 for k in range(rank)]), np.int64)

    def positions(self, shape: Sequence[int], axis: int) -> Tensor:
        """For each element of an array of this shape its position along an axis."""
        return self.expand_to(self.line(shape[axis], axis, len(shape)), shape)

    # -- what many importers need ------------------------------------------------------------------------------

    def cast(self, x: Any, dtype: Any) -> Tensor:
        """x converted to a dtype of NumPy."""
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x
        if x.array is not None and x.array.dtype == object and dtype.kind in "iu":
            return x
        return self.Cast(x, dtype=dtype.name)

    def like(self, number: float, x: Tensor) -> Tensor:
        """A number as a constant of the dtype of x."""
        return self.constant(number, x.dtype)

    def wrapped(self, x: Tensor, kind: str) -> Tensor:
        """Whole numbers wrapped around into the range of an element type that arrays carry in a wider one."""
        bits = element_types.BITS.get(kind, 64)
        if bits == 64 or x.dtype.itemsize * 8 <= bits:
            return x
        whole, least = 1 << bits, element_types.limits_of(kind)[0]
        shifted = x - self.like(least, x) if least else x
        made = self.broadcast_mod(shifted, self.like(whole, x)) if x.dtype.itemsize * 8 > bits + 1 else shifted
        made = made + self.like(least, x) if least else made
        made.carries = element_types.carried(kind)
        result: Tensor = made
        return result

    def to_even(self, x: Tensor) -> Tensor:
        """x rounded to whole numbers, halves to the even one."""
        low = self.floor(x)
        rest = x - low
        odd = self.broadcast_mod(low, 2.0)
        up = self.broadcast_greater(rest, 0.5) + self.broadcast_equal(rest, 0.5) * odd
        finite = self.broadcast_equal(x - x, 0.0)  # of infinity there is no rest
        made: Tensor = self.where(self.truth(finite), low + up, x) if x.rank else self.where(finite, low + up, x)
        return made

    def truth(self, x: Tensor) -> Tensor:
        """x as bool: whether elements are not 0."""
        made: Tensor = x if x.dtype == bool else self.cast(self.broadcast_not_equal(x, 0), "bool")
        return made

    def select(self, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """x if the condition holds, else y; all three broadcast as in NumPy."""
        rank = max(item.rank for item in (condition, x, y))
        if rank:
            condition = self.with_rank(condition, rank)  # the record takes a vector for a choice of rows
        made: Tensor = self.where(condition, x, y)
        return made

    def with_rank(self, x: Tensor, rank: int) -> Tensor:
        """x with dimensions of 1 in front, up to this rank."""
        return x if x.rank >= rank else self.reshape_to(x, ((1,) * (rank - x.rank)) + x.shape)

    def reshape_to(self, x: Tensor, shape: Sequence[Size]) -> Tensor:
        """x in another shape, of which some sizes may be open."""
        shape = tuple(shape)
        if _same(x.shape, shape):
            return x
        if x.is_constant and not any(isinstance(size, SymbolicSize) for size in shape):
            assert x.array is not None
            return Tensor(self, array=x.array.reshape(shape), carries=x.carries)
        codes: list[int] = []
        left = 0
        for index, size in enumerate(shape):
            if isinstance(size, SymbolicSize):
                stays = index < x.rank and _same((x.shape[index],), (size,))
                codes.append(0 if stays else -1)
                left += not stays
            else:
                codes.append(int(size))
        if left > 1 or any(
            code == 0 and not isinstance(size, SymbolicSize) for code, size in zip(codes, shape, strict=True)
        ):
            made: Tensor = self.reshape_like(x, self.stand_in(shape))
        else:
            made = self.Reshape(x, shape=tuple(codes))
        made.carries = x.carries
        return made

    def stand_in(self, shape: Sequence[Size]) -> Tensor:
        """A tensor of which only the shape is read."""
        numbers = tuple(1 if isinstance(size, SymbolicSize) else size for size in shape)
        made = self.constant(np.broadcast_to(np.float32(0), numbers))
        rank = len(numbers)
        for index, size in enumerate(shape):
            if isinstance(size, SymbolicSize):
                codes = (1,) * index + (-1,) + (1,) * (rank - index - 1)
                made = made + self.Reshape(self._zeros(size), shape=codes)
        return made

    def numbered(self, size: SymbolicSize) -> Tensor:
        """0, 1, ... up to an open size, int64."""
        made: Tensor = self.cast(self._contrib_arange_like(self._zeros(size), axis=0), np.int64)
        return made

    def _zeros(self, size: SymbolicSize) -> Tensor:
        """A vector of this open size: along the axis of a tensor that has it, or of a multiple of such sizes."""
        found = self._dimensions.get(size.terms)
        if found is not None:
            value, axis = found
            line = Tensor(self, value)
            for other in range(line.rank):
                if other != axis:
                    line = self.slice_axis(line, axis=other, begin=0, end=1)
            return self.cast(self.zeros_like(self.Reshape(line, shape=(-1,))), "float32")
        product, number = size.terms[0]
        singles = [self.guards.sum({(factor,): 1}, 0) for factor in product]
        found_all = all(isinstance(each, SymbolicSize) and each.terms in self._dimensions for each in singles)
        if len(size.terms) > 1 or not found_all or not 0 < number <= LARGEST_FOLDED or len(singles) * number == 1:
            raise self.unsupported(f"a shape has the open size {size!r}, which no tensor of the graph has")
        whole: Tensor = self.constant(np.zeros(number, np.float32))
        for each in singles:
            assert isinstance(each, SymbolicSize)
            grid = self.Reshape(self._zeros(each), shape=(-1, 1)) + self.Reshape(whole, shape=(1, -1))
            whole = self.Reshape(grid, shape=(-1,))
        return whole

    def expand_to(self, x: Tensor, shape: Sequence[Size]) -> Tensor:
        """x broadcast with a shape, as ONNX's Expand."""
        x = self.with_rank(x, len(shape))
        shape = ((1,) * (x.rank - len(shape))) + tuple(shape)
        wanted = tuple(own if _is_one(size) else size for own, size in zip(x.shape, shape, strict=True))
        if _same(x.shape, wanted):
            return x
        if any(isinstance(size, SymbolicSize) for size in wanted) or 0 in wanted:
            made: Tensor = self.broadcast_like(x, self.stand_in(wanted))
        else:
            made = self.broadcast_to(x, shape=wanted)
        made.carries = x.carries
        return made

    def transposed(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """x with its axes in this order."""
        if tuple(axes) == tuple(range(x.rank)):
            return x
        made: Tensor = self.transpose(x, axes=tuple(axes))
        made.carries = x.carries
        return made

    def reduced(self, name: str, x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
        """A reduction by the record `name`, with ONNX's shapes: of all axes without keepdims it has no dimensions."""
        axes = tuple(sorted({self.axis(axis, x.rank) for axis in axes}))
        if not axes:
            return x
        made: Tensor = getattr(self, name)(x, axis=axes, keepdims=True)
        if not keepdims:
            made = self.reshape_to(made, tuple(size for axis, size in enumerate(x.shape) if axis not in axes))
        return made


class _Typed:
    """An array whose shape and dtype are looked at."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


def _same(one: Shape, two: Shape) -> bool:
    """Whether two shapes are equal at all sizes."""
    return len(one) == len(two) and all(
        a is b or (not isinstance(a, SymbolicSize) and not isinstance(b, SymbolicSize) and a == b)
        or (isinstance(a, SymbolicSize) and isinstance(b, SymbolicSize) and a.terms == b.terms)
        for a, b in zip(one, two, strict=True)
    )  # fmt: skip


def _is_one(size: Any) -> bool:
    return not isinstance(size, SymbolicSize) and size == 1
