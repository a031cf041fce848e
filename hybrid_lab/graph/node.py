"""Node and Value: the immutable, typed pieces of a graph. Scope: the call of a Block that a node belongs to."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.ops.framework.dtypes import dtype_of, is_floating
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import infer

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hybrid_lab.diagnostics.location import Location
    from hybrid_lab.graph.graph import Graph
    from hybrid_lab.graph.loops.composed import ControlFlow
    from hybrid_lab.ops.framework.sizes import Binding

_serial = itertools.count()


def next_serial() -> int:
    """A number larger than the `serial` of every node so far, and smaller than the `serial` of every later node."""
    return next(_serial)


class Value:
    """One output of a node. Equal only to itself: compilers compare and hash values, so nothing is overloaded here."""

    __slots__ = ("__weakref__", "index", "node")

    def __init__(self, node: Node, index: int):
        self.node, self.index = node, index

    @property
    def shape(self) -> Any:
        """The shape, or None before inference."""
        return None if self.node.shapes is None else self.node.shapes[self.index]

    @property
    def dtype(self) -> Any:
        return None if self.node.dtypes is None else self.node.dtypes[self.index]

    @property
    def shape_is_known(self) -> bool:
        """Whether every size of the shape is known."""
        return self.shape is not None and all(size is not None for size in self.shape)

    @property
    def is_input(self) -> bool:
        return isinstance(self.node.op, Input)

    @property
    def nbytes(self) -> int:
        """Size in bytes; the value must be inferred."""
        shapes, dtypes = self.node.shapes, self.node.dtypes
        assert shapes is not None and dtypes is not None
        return prod(shapes[self.index]) * dtypes[self.index].itemsize

    def __repr__(self) -> str:
        suffix = "" if len(self.node.outputs) == 1 else f":{self.index}"
        return f"<{self.node.name or self.node.op!r}{suffix}>"


class _Fields:
    """The fields of a Node while it is made. Setting them through object.__setattr__, around Node's __setattr__, takes
    three times as long.
    """

    __slots__ = (
        "__weakref__",
        "attrs",
        "composite",
        "draw",
        "dtypes",
        "inputs",
        "location",
        "name",
        "op",
        "outputs",
        "scope",
        "serial",
        "shapes",
        "values_in",
    )

    op: Operator
    inputs: tuple[Any, ...]
    outputs: tuple[Value, ...]
    name: str
    scope: str
    location: Location | None
    draw: int | None
    attrs: Mapping[str, str] | None
    shapes: tuple[Any, ...] | None
    dtypes: tuple[np.dtype, ...] | None
    composite: str
    serial: int
    values_in: tuple[Value, ...]
    """The inputs that are Values."""


class Node(_Fields):
    """One operator call in a graph.

    op : the Operator instance
    inputs : Values, or Python scalars (immediates)
    name : unique among a graph's named nodes; "" if the compiler made it
    scope : path of the Block that called it, "net0.fc1"; for a node from a trace a Scope, which tells calls apart
    location : its line in the user's source
    draw : its draw number within the graph, for random operators
    composite : the operator instance, "softmax3", of which it is a part after `decompose` expanded the operator; ""
    attrs : user attributes of a variable or node, such as MXNet's `__lr_mult__`
    shapes, dtypes : one per output, None before inference
    """

    __slots__ = ()

    def __new__(
        cls,
        op: Operator,
        inputs: Sequence[Any] = (),
        *,
        name: str = "",
        scope: str = "",
        location: Location | None = None,
        draw: int | None = None,
        attrs: Mapping[str, str] | None = None,
        shapes: tuple[Any, ...] | None = None,
        dtypes: tuple[np.dtype, ...] | None = None,
        composite: str = "",
    ) -> Node:
        node: Any = _Fields()
        node.op = op
        node.inputs = inputs = tuple(inputs)
        node.name, node.scope, node.location, node.composite = name, scope, location, composite
        node.draw, node.attrs, node.shapes, node.dtypes = draw, attrs, shapes, dtypes
        node.serial = next(_serial)
        values = tuple([item for item in inputs if type(item) is Value])
        node.values_in = inputs if len(values) == len(inputs) else values
        count = op.signature.outputs
        node.outputs = (Value(node, 0),) if count == 1 else tuple([Value(node, place) for place in range(count)])
        node.__class__ = cls
        return node

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("nodes are immutable; use node.replace(...)")

    def __copy__(self) -> Node:
        return self

    def __deepcopy__(self, memo: object) -> Node:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Raises HybridLabError: the objects that hold nodes define their own pickles."""
        raise HybridLabError("graphs are not pickled; save their Block with net.save(path), or pickle the Symbol")

    def leading(self, outputs: tuple[int, ...], differentiable: bool = False) -> Sequence[Value]:
        """The inputs that lead to one of these outputs: with control flow, or a check of inputs, an input need not lead
        to every output.

        differentiable : inside loops and branches, only through operators with a gradient

        No input leads to hidden outputs that are not floating, such as Dropout's mask: gradients take them for
        constants.
        """
        if all(self.is_mask(index) for index in outputs):
            return ()
        if self.op.passes_inputs:
            return [item for index in outputs if isinstance(item := self.inputs[index], Value)]
        if not self.op.subgraphs or any(index >= self.op.signature.visible for index in outputs):
            return self.values_in
        leading = self.op.leading(outputs, differentiable)  # type: ignore[attr-defined]
        return [item for index in sorted(leading) if isinstance(item := self.inputs[index], Value)]

    def is_mask(self, index: int) -> bool:
        """Whether an output is hidden and not floating."""
        dtype = self.outputs[index].dtype
        return index >= self.op.signature.visible and dtype is not None and not is_floating(dtype)

    @property
    def subgraphs(self) -> tuple[tuple[str, Graph], ...]:
        """The graphs inside a loop or branch, each with its role; with types if the node has types."""
        if not self.op.subgraphs or self.shapes is None:
            return self.op.subgraphs
        values = self.values_in
        return cast("ControlFlow", self.op).typed_subgraphs(
            [value.shape for value in values], [value.dtype for value in values]
        )

    def replace(self, **changes: Any) -> Node:
        """A copy with some fields changed; name, scope and location stay unless given."""
        if not changes.keys() <= _FIELDS:
            raise TypeError(f"a node has no {', '.join(sorted(changes.keys() - _FIELDS))}")
        get = changes.get
        return Node(
            get("op", self.op),
            get("inputs", self.inputs),
            name=get("name", self.name),
            scope=get("scope", self.scope),
            location=get("location", self.location),
            draw=get("draw", self.draw),
            attrs=get("attrs", self.attrs),
            shapes=get("shapes", self.shapes),
            dtypes=get("dtypes", self.dtypes),
            composite=get("composite", self.composite),
        )

    def __repr__(self) -> str:
        return f"Node({self.op!r}, name={self.name!r})"


_FIELDS = {"op", "inputs", "name", "scope", "location", "draw", "attrs", "shapes", "dtypes", "composite"}


class Scope(str):
    """`net0.features.0`: the Blocks that were running, from the outermost on. All calls of one Block have equal text.

    caller : the Scope of the call that made this one; None of the outermost
    call : which call of this Block by its caller it is, counted from 1
    calls : by text, how many calls were made from this one
    """

    __slots__ = ("call", "caller", "calls")

    caller: Scope | None
    call: int
    calls: dict[str, int]

    def __new__(cls, path: str, caller: Scope | None = None, call: int | None = None) -> Scope:
        """call : the number if it is known; by default the next one"""
        scope = super().__new__(cls, path)
        scope.caller, scope.call, scope.calls = caller, call or 1, {}
        if caller is not None and call is None:
            scope.call = caller.calls[path] = caller.calls.get(path, 0) + 1
        return scope

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    @property
    def numbers(self) -> str:
        """The numbers of the calls from the outermost on, itself left out: `2.1`; "" if all are first calls."""
        found: list[int] = []
        scope: Scope | None = self
        while scope is not None and scope.caller is not None:
            found.append(scope.call)
            scope = scope.caller
        return ".".join(map(str, reversed(found))) if any(number > 1 for number in found) else ""


class Input(Operator, name="null"):
    """A variable: data, a parameter, an auxiliary state, a saved value or a head gradient; "null" in MXNet's files."""

    role: str = "data"

    def infer_shape(self) -> Any:
        raise AssertionError("an input's shape is given, not inferred")

    def numpy(self) -> Any:
        raise AssertionError("an input's value is given, not computed")


class Constant(Operator):
    """An array inside the graph, held by reference. sized : whether the numbers depend on sizes of the data"""

    name: ClassVar[str] = "constant"
    array: np.ndarray
    sized: bool

    def __init__(self, array: np.ndarray, sized: bool = False):
        object.__setattr__(self, "array", array)
        object.__setattr__(self, "sized", sized)
        object.__setattr__(self, "attributes", {})
        object.__setattr__(self, "inferred", {})

    def at(self, binding: Binding) -> np.ndarray:
        """The array for these values of the symbolic sizes."""
        return self.array

    def infer_shape(self) -> Any:
        return self.array.shape

    def infer_type(self) -> np.dtype | None:
        return self.array.dtype

    def numpy(self) -> np.ndarray:
        return self.array

    def __repr__(self) -> str:
        if self.array.ndim and not any(self.array.strides):
            return f"shape{self.array.shape}"  # a stand-in, read for its shape only (see simplify)
        if self.array.size <= 4:
            return f"constant({self.array.tolist()})"
        return f"constant({self.array.dtype}{list(self.array.shape)})"


def input_node(
    name: str,
    role: str = "data",
    *,
    shape: Any = None,
    dtype: DTypeLike | None = None,
    attrs: Mapping[str, str] | None = None,
) -> Value:
    """A fresh variable."""
    shapes = None if shape is None else (tuple(shape),)
    dtypes = None if dtype is None else (dtype_of(dtype),)
    return Node(Input.bind(role=role), name=name, attrs=attrs, shapes=shapes, dtypes=dtypes).outputs[0]


def constant_node(array: np.ndarray, sized: bool = False, **fields: Any) -> Value:
    """A constant as a Value; the array must not change afterwards."""
    return Node(Constant(array, sized), shapes=(array.shape,), dtypes=(array.dtype,), **fields).outputs[0]


def infer_outputs(op: Operator, inputs: Sequence[object]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Shapes and dtypes of the outputs for inferred inputs (immediates have shape () and no dtype)."""
    return infer(
        op,
        tuple(item.shape if isinstance(item, Value) else () for item in inputs),
        tuple(item.dtype if isinstance(item, Value) else None for item in inputs),
    )
