"""A neutral Graph as MXNet's symbol JSON."""

from __future__ import annotations

import json
import unicodedata
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from hybrid_lab.diagnostics import Unmappable
from hybrid_lab.graph.custom import Custom
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Scope, Value
from hybrid_lab.graph.partial import located
from hybrid_lab.ops.framework.dtypes import TYPE_FLAGS, is_floating
from hybrid_lab.ops.framework.pointwise import is_scalar

from . import control_flow, fused
from .equal_shapes import Key, shape_classes
from .index_steps import with_index_steps
from .operator_names import ALWAYS_WRITTEN, EQUAL_SHAPE_FORMS, EQUIVALENTS, OUTPUT_COUNTS, REWRITTEN, SCALAR_FORMS

MXNET_VERSION = 10901
CONSTANT = "__constant__"
DRAW = "__draw__"
SCOPE = "__scope__"
CALLS = "__calls__"
"""Which calls of the Blocks in the path a node belongs to, where one of them is not the first: Scope.numbers."""
IMMEDIATES = "__immediates__"
EMPTY = "__empty__"
"""On an array of one number, what a 0 in its shape means. "1": the size is 0. "open": the size follows from the
operators that use the array, and is 0 where nothing follows. Without this attribute, as in MXNet's files, it must
follow.
"""


class GraphWriter:
    """Turns one graph into MXNet's lists of nodes.

    portable : refuse (Unmappable) operators that the real MXNet does not know; otherwise such operators are written
    under our own names, and hidden attributes have the nodes' block paths and draw numbers. Portable files have a draw
    number only if it is not the next one
    constants : where arrays inside the graph go, by name; None writes their numbers into the JSON
    in_program_order : number the nodes as the program runs, and not depth-first from the outputs as MXNet does
    """

    def __init__(
        self, graph: Graph, portable: bool = True, constants: dict[str, np.ndarray] | None = None,
        in_program_order: bool = False,
    ) -> None:  # fmt: skip
        self.graph = with_index_steps(graph) if portable else graph
        self.portable = portable
        self.constants = constants
        self.in_program_order = in_program_order
        self.nodes: list[dict[str, Any]] = []
        self.counts: list[int] = []
        self._places: dict[Node, int] = {}
        self._draws = 0
        self._taken = {node.name for node in graph.nodes if node.name}
        self._variables: dict[str, Node] = {}
        self._inputs = {comparable(node.name) for node in graph.nodes if isinstance(node.op, Input)}

    @cached_property
    def _classes(self) -> dict[Value, Key]:
        return shape_classes(self.graph)

    def document(self) -> dict[str, Any]:
        """The whole file as JSON data."""
        for node in self.graph.nodes if self.in_program_order else in_order_of_use(self.graph):
            self._places[node] = len(self.nodes)
            written = self._variable(node) if isinstance(node.op, (Input, Constant)) else self._operator(node)
            self.nodes.append(written)
            self.counts.append(OUTPUT_COUNTS.get(written["op"], node.op.signature.visible))
        row_ptr = [0]
        for count in self.counts:
            row_ptr.append(row_ptr[-1] + count)
        return {
            "nodes": self.nodes,
            "arg_nodes": [index for index, node in enumerate(self.nodes) if node["op"] == "null"],
            "node_row_ptr": row_ptr,
            "heads": [self._entry(value, 0) for value in self.graph.outputs],
            "attrs": {"mxnet_version": ["int", MXNET_VERSION]},
        }

    def _entry(self, value: Value, version: int) -> list[int]:
        return [self._places[value.node], value.index, version]

    def _fresh(self, hint: str) -> str:
        count = 0
        while f"{hint}{count}" in self._taken:
            count += 1
        self._taken.add(f"{hint}{count}")
        return f"{hint}{count}"

    def _variable(self, node: Node) -> dict[str, Any]:
        is_constant = isinstance(node.op, Constant)
        name = node.name or self._fresh("constant" if is_constant else "var")
        if is_constant:
            name = self._name_of_constant(name)
        elif comparable(name) in self._variables:
            raise two_variables(self._variables[comparable(name)], node)
        self._variables[comparable(name)] = node
        attrs = {str(key): str(value) for key, value in (node.attrs or {}).items()}
        if isinstance(node.op, Constant):
            attrs |= self._constant(name, node.op.array)
        return _node("null", name, attrs, [])

    def _name_of_constant(self, name: str) -> str:
        """The name, or a numbered name if the name is taken: a Block that is called twice gives its arrays the same
        names.
        """

        def is_taken(name: str) -> bool:
            key = comparable(name)
            return key in self._variables or key in self._inputs or name in (self.constants or ())

        original, count = name, 0
        while is_taken(name) or (count and name in self._taken):
            count += 1
            name = f"{original}_{count}"
        return name

    def _constant(self, name: str, array: np.ndarray) -> dict[str, str]:
        if array.dtype.name not in TYPE_FLAGS:
            raise Unmappable(f"the constant {name!r} has dtype {array.dtype}, which MXNet's files do not support")
        attrs = {CONSTANT: "1", "__shape__": str(array.shape), "__dtype__": str(TYPE_FLAGS[array.dtype.name])}
        if self.constants is not None:
            self.constants[name] = array
            return attrs
        if is_floating(array.dtype) and not np.isfinite(array).all():
            raise Unmappable(
                f"the constant {name!r} holds NaN or infinity; pass it as an input or a Constant parameter"
            )
        return {**attrs, "__init__": json.dumps(["constant", {"value": array.tolist()}])}

    def _operator(self, node: Node) -> dict[str, Any]:
        op = node.op
        if op.subgraphs:
            return self._control_flow(node)
        if op.name == fused.CONVOLUTION and self.portable:
            return self._fused(node)
        attributes = {key: op.attributes[key] for key in ALWAYS_WRITTEN.get(op.name, ())} | op.written
        for key, value in attributes.items():
            if (op.name, key) in REWRITTEN:
                attributes[key] = REWRITTEN[op.name, key](value)
        scalars = {index: item for index, item in enumerate(node.inputs) if is_scalar(item)}
        values = [item for item in node.inputs if isinstance(item, Value)]
        name: str | None = op.mxnet
        hidden: dict[str, str] = {}
        if op.name in SCALAR_FORMS and len(scalars) == 1:
            (position, number), *_ = scalars.items()
            name = SCALAR_FORMS[op.name][1 - position]
            attributes["scalar"] = repr(number) if isinstance(number, bool) else number
        elif scalars and op.scalars and {op.signature.inputs[index] for index in scalars} == op.scalars.keys():
            attributes |= {op.signature.inputs[index]: number for index, number in scalars.items()}
        elif scalars:
            if self.portable:
                raise self._unmappable(node, "with a number in place of a tensor")
            hidden[IMMEDIATES] = json.dumps({str(index): number for index, number in scalars.items()})
        elif op.name in EQUAL_SHAPE_FORMS and len({self._classes[value] for value in values}) == 1:
            name = EQUAL_SHAPE_FORMS[op.name]
        elif op.name in EQUIVALENTS:
            name, extra = EQUIVALENTS[op.name]
            attributes |= extra
        if name is None:
            if self.portable:
                raise self._unmappable(node, "")
            name = op.name
        if op.variadic and not {"num_args", "num_weights", "num_arrays", "num_outputs"} & op.fields.keys():
            attributes["num_args"] = len(values)
        written = {key: str(value) for key, value in attributes.items()} | self._hidden(node) | hidden
        names = op.signature.inputs if not op.variadic else ()
        inputs = []
        for index, item in enumerate(node.inputs):
            if isinstance(item, Value):
                aux = index < len(names) and names[index] in op.signature.aux
                inputs.append(self._entry(item, int(aux)))
        return _node(name, node.name or self._fresh(op.name.strip("_").lower()), written, inputs)

    def _fused(self, node: Node) -> dict[str, Any]:
        attributes, subgraphs = fused.write(node, lambda graph: GraphWriter(graph, self.portable).document())
        entries = [
            self._entry(value, int(name in node.op.signature.aux))
            for name, value in zip(node.op.signature.inputs, node.values_in, strict=True)
        ]
        name = node.name or self._fresh("quantized_conv")
        return {**_node(fused.CONVOLUTION, name, attributes | self._hidden(node), entries), "subgraphs": subgraphs}

    def _control_flow(self, node: Node) -> dict[str, Any]:
        def document(graph: Graph) -> dict[str, Any]:
            return GraphWriter(graph, self.portable, self.constants).document()

        loop = control_flow.write(node, self.portable, document)
        names = node.op.signature.inputs
        entries = [self._entry(node.inputs[index], int(names[index] in node.op.signature.aux)) for index in loop.inputs]
        written = {key: str(value) for key, value in loop.attributes.items()} | self._hidden(node)
        name = node.name or self._fresh(node.op.name.strip("_"))
        return {**_node(loop.name, name, written, entries), "subgraphs": loop.subgraphs}

    def _hidden(self, node: Node) -> dict[str, str]:
        attrs = {str(key): str(value) for key, value in (node.attrs or {}).items()}
        if node.draw is not None:
            draw = node.draw
            if self.portable and isinstance(node.op, Custom):
                draw = self._draws  # MXNet would hand the attribute to the user's code
            if not self.portable or draw != self._draws:  # a reader numbers the other draws in the file's order
                attrs[DRAW] = str(draw)
            self._draws = max(self._draws, draw + 1)
        if not self.portable:
            if node.scope:
                attrs[SCOPE] = str(node.scope)
                if isinstance(node.scope, Scope) and node.scope.numbers:
                    attrs[CALLS] = node.scope.numbers
            if "_open" in node.op.attributes and 0 in node.op.attributes["shape"]:
                if not node.op.attributes["_open"]:
                    attrs[EMPTY] = "1"
                elif node.op.attributes["_or_empty"]:
                    attrs[EMPTY] = "open"
        return attrs

    def _unmappable(self, node: Node, how: str) -> Exception:
        text = f"MXNet's files have no operator {node.op.name} {how}".rstrip()
        return located(
            Unmappable(f"{text}; write that part with other operators, or save the block with net.save(path)"), node
        )


def comparable(name: str) -> str:
    """What two names of variables must differ in: names that look alike count as equal."""
    return name if name.isascii() else unicodedata.normalize("NFKC", name)


def two_variables(first: Node, second: Node) -> Unmappable:
    """The error for two variables of a graph that have one name, by which MXNet's files tell them apart."""
    places = [node.location.describe() for node in (first, second) if node.location is not None]
    made = f", made at {' and at '.join(dict.fromkeys(places))}" if places else ""
    names = repr(first.name) if first.name == second.name else f"{first.name!r} and {second.name!r}, which look alike"
    return Unmappable(
        f"two variables of the graph are named {names}{made}, and a file tells variables apart by their names. If "
        f"they are meant to be one, make it once, {first.name} = sym.var({first.name!r}), and use it in both places; "
        "otherwise give one of them, or the Block that it belongs to, another name"
    )


def _node(op: str, name: str, attrs: dict[str, str], inputs: list[list[int]]) -> dict[str, Any]:
    written: dict[str, Any] = {"op": op, "name": name}
    if attrs:
        written["attrs"] = dict(sorted(attrs.items()))
    return {**written, "inputs": inputs}


def in_order_of_use(graph: Graph) -> tuple[Node, ...]:
    """Nodes depth-first from the outputs, as MXNet numbers them; inputs that nothing reads come last.

    Nodes that read an updated state stay in program order: a BatchNorm called twice updates its running statistics in
    the order of the calls.
    """
    before = _before_it(graph)
    ordered: dict[Node, None] = {}
    stack = [(value.node, False) for value in reversed(graph.outputs)]
    while stack:
        node, ready = stack.pop()
        if node in ordered:
            continue
        waits_for = [] if ready else [value.node for value in reversed(node.values_in) if value.node not in ordered]
        if before and not ready:
            waits_for += [earlier for earlier in before.get(node, ()) if earlier not in ordered]
        if waits_for:
            stack.append((node, True))
            stack += [(other, False) for other in waits_for]
        else:
            ordered[node] = None
    for value in graph.inputs:
        ordered.setdefault(value.node)
    return tuple(ordered)


def _before_it(graph: Graph) -> dict[Node, list[Node]]:
    """Node -> for each state that it reads and a node updates, the last node before it that reads the state."""
    readers: dict[Value, list[Node]] = {state: [] for state in graph.states}
    for node in graph.nodes if readers else ():
        for item in dict.fromkeys(node.values_in):
            if item in readers:
                readers[item].append(node)
    before: dict[Node, list[Node]] = {}
    for nodes in readers.values():
        for earlier, later in pairwise(nodes):
            before.setdefault(later, []).append(earlier)
    return before
