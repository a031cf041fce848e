"""Forms: a finished graph at other sizes, without its passes.

A form is what passes made of a graph whose shapes hold `Size`s (see ops/size.py):

    form      y: f32[n,10] = FullyConnected(%x, %w, num_hidden=10)      %x: f32[n,4]
    at n=8    y: f32[8,10] = FullyConnected(%x, %w, num_hidden=10)      %x: f32[8,4]

All graphs of one form have the same operators on the same inputs in the same order; what differs is `Node.shapes` and
the constants that shapes decide. `graph.form` is one object for them, so that an engine may keep what it decided for
one of them and use it for the next (`derived` for its own passes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybrid_lab import forks
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value, constant_node, input_node
from hybrid_lab.ops.operator import Operator
from hybrid_lab.ops.run import run_kernel
from hybrid_lab.ops.size import Answers, At, Size, answers_of


class Form:
    """What graphs have in common that are one graph at several sizes.

    graph : with Sizes in its shapes
    answers : all that was asked of them
    kept : what engines keep for the graphs of this form, by keys of theirs; goes with the form
    """

    __slots__ = ("__weakref__", "_derived", "_lasting", "_sizes", "answers", "graph", "kept")

    def __init__(self, graph: Graph, answers: Answers):
        self.graph, self.answers = graph, answers
        self.kept: dict[Any, Any] = {}
        self._derived: dict[Any, tuple[Form, tuple[int, int]] | None] = {}
        self._sizes: list[Size] | None = None
        self._lasting: set[Node] | None = None

    def at(self, at: At) -> Graph:
        """The graph at these sizes, made when somebody looks into it. Its answers must be the same there (see
        `At.agrees`).
        """
        return _Later(self, at)

    def made(
        self, at: At, make: Callable[[Node, list[Any]], Node | None] = lambda node, inputs: None, shared: bool = False
    ) -> Graph:
        """The same, made now.

        make : gives other nodes in the place of some, with as many outputs or more
        shared : whether graphs of other sizes may have the same nodes for parameters and constants; these are older
            then than what program order (see graph.reachable) would have it
        """
        old = self.graph
        new: dict[Value, Value] = {}
        nodes: list[Node] = []
        shape, size, lasting = at.shape, at.size, self._same_at_all_sizes() if shared else ()
        for node in old.nodes:
            op: Operator = node.op
            if node in lasting:
                nodes.append(node)
                new[node.outputs[0]] = node.outputs[0]
                continue
            if type(op) is Sized:
                made = constant_node(op.at(at), True, scope=node.scope, location=node.location).node
                nodes.append(made)
                new[node.outputs[0]] = made.outputs[0]
                continue
            inputs = [new[item] if type(item) is Value else size(item) for item in node.inputs]
            replaced = make(node, inputs)
            if replaced is not None:
                made = replaced
            else:
                made = Node(
                    op,
                    inputs,
                    name=node.name,
                    scope=node.scope,
                    location=node.location,
                    draw=node.draw,
                    attrs=node.attrs,
                    shapes=tuple([shape(each) for each in node.shapes]),  # type: ignore[union-attr]
                    dtypes=node.dtypes,
                    composite=node.composite,
                )
            nodes.append(made)
            for value, other in zip(node.outputs, made.outputs, strict=replaced is None):
                new[value] = other
        graph = Graph(
            [new[value] for value in old.inputs],
            [new[value] for value in old.outputs],
            [(new[target], new[value]) for target, value in old.effects],
            old.draws,
            old.name,
        )
        graph.form, graph.at, graph._nodes = self, at, tuple(nodes)
        return graph

    def _same_at_all_sizes(self) -> set[Node]:
        """Parameters and constants."""
        if self._lasting is None:
            self._lasting = {
                node
                for node in self.graph.nodes
                if type(node.op) in (Input, Constant) and not any(type(size) is Size for size in node.outputs[0].shape)
            }
        return self._lasting

    def ones(self, at: At) -> tuple[bool, ...]:
        """Of each Size in the shapes of the graph, whether it is 1 there: which axes may broadcast."""
        if self._sizes is None:
            shapes = [shape for node in self.graph.nodes for shape in node.shapes or ()]
            self._sizes = list({size.form: size for shape in shapes for size in shape if type(size) is Size}.values())
        return tuple([at.size(size) == 1 for size in self._sizes])

    def derive(self, key: Any, make: Callable[[Graph], Graph]) -> tuple[Form, tuple[int, int]] | None:
        """The form of what `make` makes of the graph, and the answers that it depends on; None where it cannot."""
        if key not in self._derived:
            try:
                made = make(self.graph)
            except Exception:  # something in it does not know Sizes
                self._derived[key] = None
            else:
                self._derived[key] = Form(made, self.answers), self.answers.count
        return self._derived[key]


_making = forks.rlock()


class _Later(Graph):
    """A graph of a form, made when somebody looks into it."""

    __slots__ = ()

    def __init__(self, form: Form, at: At):
        self.form, self.at = form, at
        self.draws, self.name = form.graph.draws, form.graph.name

    def __getattr__(self, name: str) -> Any:
        # Asked for what is not there yet.
        if name not in ("inputs", "outputs", "effects", "_nodes"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with _making:
            try:
                return object.__getattribute__(self, name)
            except AttributeError:  # no other thread was faster
                assert self.form is not None and self.at is not None
                made = self.form.made(self.at)
            self.inputs, self.outputs, self.effects = made.inputs, made.outputs, made.effects
            self._nodes = made._nodes
            return object.__getattribute__(self, name)


def derived(graph: Graph, key: Any, make: Callable[[Graph], Graph]) -> Graph:
    """`make(graph)`; where the graph has a form, made once for all sizes that answer alike.

    key : equal keys promise that `make` does the same; it must depend on nothing but the graph
    """
    form, at = graph.form, graph.at
    if form is None or at is None:
        return make(graph)
    found = form.derive(key, make)
    return make(graph) if found is None or not at.agrees(found[1]) else found[0].at(at)


def present(node: Node) -> Node:
    """A node of a form as it is at the sizes that the passes ran for, over variables of its inputs' types: for rules
    that know no Sizes. What they say need not hold at other sizes, and nothing is noted.
    """
    answers = answers_of([value.shape for value in (*node.values_in, *node.outputs)])
    if answers is None:
        return node
    shape = answers.now.shape
    inputs = {value: input_node("", shape=shape(value.shape), dtype=value.dtype) for value in node.values_in}
    inputs |= {value: value for value in node.values_in if isinstance(value.node.op, Constant)}
    return node.replace(
        inputs=[inputs[item] if isinstance(item, Value) else item for item in node.inputs],
        shapes=tuple([shape(value.shape) for value in node.outputs]),
    )


class Sized(Constant):
    """A constant that sizes decide: a stand-in of which only the shape is read, or what was computed of such.

    shape, dtype : of the array, with Sizes
    compute : At -> the array at these sizes
    """

    answers: Answers
    shape: tuple[Any, ...]
    dtype: np.dtype
    compute: Callable[[At], np.ndarray]

    def __init__(self, answers: Answers, shape: tuple[Any, ...], dtype: Any, compute: Callable[[At], np.ndarray]):
        for name, value in (("answers", answers), ("shape", shape), ("dtype", dtype), ("compute", compute)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "sized", True)
        object.__setattr__(self, "attributes", {})
        object.__setattr__(self, "inferred", {})

    def at(self, at: At) -> np.ndarray:
        """The array at these sizes, the same one each time."""
        if self not in at.constants:
            at.constants[self] = self.compute(at)
        return at.constants[self]

    def holds(self, test: Callable[[np.ndarray], Any]) -> Any:
        """What `test` says of the array; noted, and asked again at other sizes."""
        found = test(self.at(self.answers.now))
        self.answers.tests.append((self, test, found))
        return found

    @property
    def array(self) -> np.ndarray:  # type: ignore[override]
        """The array as it is now; from here on no other will do."""
        self.holds(np.ndarray.tobytes)
        return self.at(self.answers.now)

    def infer_shape(self, *shapes: tuple[int, ...]) -> Any:
        return self.shape

    def infer_type(self, *dtypes: np.dtype | None) -> Any:
        return self.dtype


def stand_in(shape: tuple[Any, ...], dtype: np.dtype) -> Value:
    """A constant without memory (all strides zero), for readers of a mere shape."""
    answers = answers_of((shape,))
    if answers is None:
        return constant_node(np.broadcast_to(np.zeros((), dtype), shape))
    return _sized(answers, shape, dtype, lambda at: np.broadcast_to(np.zeros((), dtype), at.shape(shape)))


def computed(node: Node, inputs: Sequence[Any]) -> Value:
    """The one output of a node of which all inputs are constants, as a constant."""
    value = node.outputs[0]
    operators: list[Any] = [item.node.op for item in inputs if isinstance(item, Value)]
    answers = next((op.answers for op in operators if type(op) is Sized), None) or answers_of((value.shape,))

    def compute(at: Any) -> np.ndarray:
        arrays = iter([op.at(at) if type(op) is Sized else op.array for op in operators])
        operands = [next(arrays) if isinstance(item, Value) else item for item in inputs]
        return np.array(run_kernel(node.op, operands)[0], dtype=value.dtype)

    if answers is None:
        return constant_node(compute(None), scope=node.scope, location=node.location)
    return _sized(answers, value.shape, value.dtype, compute, scope=node.scope, location=node.location)


def _sized(answers: Answers, shape: Any, dtype: Any, compute: Callable[[At], np.ndarray], **fields: Any) -> Value:
    op = Sized(answers, shape, np.dtype(dtype), compute)
    return Node(op, shapes=(shape,), dtypes=(op.dtype,), **fields).outputs[0]
