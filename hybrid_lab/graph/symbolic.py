"""Symbolic graphs: a graph whose shapes hold symbolic sizes, bound to the sizes of a call without running the passes.

The passes make it (see ops/framework/sizes.py):

    symbolic      y: f32[s0,10] = FullyConnected(%x, %w, num_hidden=10)      %x: f32[s0,4]
    s0 = 8        y: f32[8,10] = FullyConnected(%x, %w, num_hidden=10)       %x: f32[8,4]

All graphs that are bound from one symbolic graph (`Graph.bind`) have the same operators on the same inputs in the same
order; only `Node.shapes` and the constants that depend on sizes differ. They share `graph.symbolic`, whose `cache` may
keep an engine's decisions for all of them (`derived` runs passes of an engine's own).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Node, Value, constant_node, input_node
from hybrid_lab.ops.framework.run import run_kernel
from hybrid_lab.ops.framework.sizes import Binding, Guards, NeedsNumber, SymbolicSize, guards_of, shapes_key
from hybrid_lab.ops.framework.types import Shape


def derived(graph: Graph, key: Hashable, make: Callable[[Graph], Graph]) -> Graph:
    """`make(graph)`; for a bound graph `make` runs once, on the symbolic graph, as long as the guards hold.

    key : equal keys promise that `make` does the same; it must depend on nothing but the graph
    """
    symbolic, binding = graph.symbolic, graph.binding
    if symbolic is None or binding is None:
        return make(graph)
    key = "derived", key
    if key not in symbolic.cache:
        try:
            symbolic.cache[key] = make(symbolic), binding.guards.count
        except NeedsNumber as need:
            symbolic.cache[key] = None
            symbolic.needs_numbers.append(f"{need}; each batch compiles anew")
    known: tuple[Graph, tuple[int, int]] | None = symbolic.cache[key]
    return make(graph) if known is None or not binding.satisfies(known[1]) else known[0].bind(binding)


def ones(graph: Graph) -> tuple[bool, ...]:
    """For each symbolic size in the shapes of a bound graph's symbolic graph, whether it is 1; an axis of size 1 may be
    broadcast.
    """
    symbolic, binding = graph.symbolic, graph.binding
    assert symbolic is not None and binding is not None
    if "sizes" not in symbolic.cache:
        shapes = [shape for node in symbolic.nodes for shape in node.shapes or ()]
        sizes = [size for shape in shapes for size in shape if type(size) is SymbolicSize]
        symbolic.cache["sizes"] = list({size.terms: size for size in sizes}.values())
    return tuple([binding.size(size) == 1 for size in symbolic.cache["sizes"]])


def with_hints(node: Node) -> Node:
    """A node of a symbolic graph with the hints for its sizes, over variables of its inputs' types. For rules that
    need numbers: their answers need not hold for other sizes, and no guard is recorded.
    """
    guards = guards_of([value.shape for value in (*node.values_in, *node.outputs)])
    if guards is None:
        return node
    shape = guards.hints.shape
    inputs = {value: input_node("", shape=shape(value.shape), dtype=value.dtype) for value in node.values_in}
    inputs |= {value: value for value in node.values_in if isinstance(value.node.op, Constant)}
    return node.replace(
        inputs=[inputs[item] if isinstance(item, Value) else item for item in node.inputs],
        shapes=tuple([shape(value.shape) for value in node.outputs]),
    )


class SymbolicConstant(Constant):
    """A constant whose shape or elements depend on symbolic sizes.

    compute : Binding -> the array at these sizes
    key : hashable; constants with equal keys are equal at all sizes
    """

    guards: Guards
    shape: Shape
    dtype: np.dtype
    compute: Callable[[Binding], np.ndarray]
    key: Hashable

    def __init__(
        self, guards: Guards, shape: Shape, dtype: np.dtype, compute: Callable[[Binding], np.ndarray], key: Hashable
    ):
        fields = {"guards": guards, "shape": shape, "dtype": dtype, "compute": compute, "key": key, "sized": True}
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "attributes", {})
        object.__setattr__(self, "inferred", {})

    def at(self, binding: Binding) -> np.ndarray:
        """The array at these sizes, the same one each time."""
        if self not in binding.constants:
            binding.constants[self] = self.compute(binding)
        return binding.constants[self]

    def guarded(self, test: Callable[[np.ndarray], Any]) -> Any:
        """The outcome of `test` for the array, recorded as a guard."""
        outcome = test(self.at(self.guards.hints))
        self.guards.checks.append((self, test, outcome))
        return outcome

    @property
    def array(self) -> np.ndarray:  # type: ignore[override]
        """The array of the call at hand; that other sizes give the same one is recorded as a guard."""
        self.guarded(np.ndarray.tobytes)
        return self.at(self.guards.hints)

    def infer_shape(self, *shapes: Shape) -> Shape:
        return self.shape

    def infer_type(self, *dtypes: np.dtype | None) -> np.dtype:
        return self.dtype


def stand_in(shape: Shape, dtype: np.dtype) -> Value:
    """A constant without memory (all strides zero), for readers of a mere shape."""
    guards = guards_of((shape,))
    if guards is None:
        return constant_node(np.broadcast_to(np.zeros((), dtype), shape))
    key = "zeros", shapes_key((shape,)), dtype
    return _constant(guards, shape, dtype, lambda at: np.broadcast_to(np.zeros((), dtype), at.shape(shape)), key)


def computed(node: Node, inputs: Sequence[Any]) -> Value:
    """The one output of a node of which all inputs are constants, as a constant."""
    value = node.outputs[0]
    operators: list[Any] = [item.node.op for item in inputs if isinstance(item, Value)]
    guards = next((op.guards for op in operators if type(op) is SymbolicConstant), None) or guards_of((value.shape,))

    def compute(binding: Any) -> np.ndarray:
        arrays = iter([op.at(binding) if type(op) is SymbolicConstant else op.array for op in operators])
        operands = [next(arrays) if isinstance(item, Value) else item for item in inputs]
        return np.array(run_kernel(node.op, operands)[0], dtype=value.dtype)

    if guards is None:
        return constant_node(compute(None), scope=node.scope, location=node.location)
    key = node.op, value.dtype, tuple([_key(item) for item in inputs])
    return _constant(guards, value.shape, value.dtype, compute, key, scope=node.scope, location=node.location)


def _key(item: object) -> Hashable:
    if not isinstance(item, Value):
        return type(item), repr(item)
    return item.node.op.key if type(item.node.op) is SymbolicConstant else item


def _constant(
    guards: Guards,
    shape: Shape,
    dtype: np.dtype,
    compute: Callable[[Binding], np.ndarray],
    key: Hashable,
    **fields: Any,
) -> Value:
    op = SymbolicConstant(guards, shape, np.dtype(dtype), compute, key)
    return Node(op, shapes=(shape,), dtypes=(op.dtype,), **fields).outputs[0]
