"""Loops and branches in MXNet's symbol JSON: a node with a list `subgraphs`, and which input goes where.

`_foreach`: the inputs are data, states and captures; `in_data_locs`, `in_state_locs` and `remain_locs` give the indices
of the subgraph's variables for them. `_while_loop` (condition, body) and `_cond` (condition, then, else): for each
subgraph a list of the node's inputs that its own variables stand for; `func_var_locs` says which variables of the body
are the loop's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from hybrid_lab.diagnostics import Unmappable
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.loops.body import Body
from hybrid_lab.graph.loops.composed import ControlFlow
from hybrid_lab.graph.loops.control_flow import Cond, Foreach, WhileLoop
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.graph.partial import located
from hybrid_lab.ops.framework.operator import get

DRAWS = "__draws__"
"""The number of random draws in a step of each subgraph; unused draws count too."""
KINDS = {"_foreach": 1, "_while_loop": 2, "_cond": 3}
"""MXNet's operators of control flow, with the number of their subgraphs."""
MAX_DEPTH = 8
"""The deepest nesting of subgraphs in a file."""


# -- writing ---------------------------------------------------------------------------------------------------------


class FileNode(NamedTuple):
    """A node of control flow as the file has it. inputs : positions among the node's inputs"""

    name: str
    attributes: dict[str, Any]
    inputs: list[int]
    subgraphs: list[dict[str, Any]]


def write(node: Node, portable: bool, document: Callable[[Graph], dict[str, object]]) -> FileNode:
    """The node's form in the file. document : makes the JSON of a graph. Raises Unmappable for what MXNet lacks."""
    op: Any = node.op
    parts = [_Subgraph(graph, portable, document) for _, graph in op.subgraphs]
    if isinstance(op, Foreach):
        written = _write_foreach(node, op, parts[0])
    elif isinstance(op, WhileLoop):
        written = _write_while(node, op, parts[0], parts[1])
    else:
        written = _write_cond(op, parts[0], parts[1], document)
    count = len(written.inputs) + len(written.subgraphs)
    attributes = {"num_args": count, "num_outputs": op.signature.visible, **written.attributes}
    draws = [graph.draws for _, graph in op.subgraphs]
    live = [max((n.draw + 1 for n in graph.nodes if n.draw is not None), default=0) for _, graph in op.subgraphs]
    if not portable or draws != live:
        attributes[DRAWS] = json.dumps(draws)
    return written._replace(attributes=attributes)


class _Subgraph:
    """A subgraph as JSON. order : for each variable of it in the file, the variable's position among the body's
    inputs
    """

    def __init__(self, graph: Graph, portable: bool, document: Callable[[Graph], dict[str, Any]]):
        read = {value for node in graph.nodes for value in node.values_in} | set(graph.outputs)
        used = [value for value in graph.inputs if value in read or not portable]
        self.json = document(Graph(used, graph.outputs, (), graph.draws, graph.name))
        names = {value.node.name: index for index, value in enumerate(graph.inputs)}
        self.order = [names[item["name"]] for item in self.json["nodes"] if item["op"] == "null"]
        self.json.pop("attrs", None)


class UnreadInput(Unmappable, AssertionError):
    """An input of a loop that its body does not read; MXNet raises an AssertionError if the loop is made."""


def _unread(node: Node, what: str) -> Exception:
    message = f"{node.op.name}: MXNet's files cannot store {what} that the body does not read; leave it out"
    return located(UnreadInput(message), node)


def _write_foreach(node: Node, op: Foreach, part: _Subgraph) -> FileNode:
    own = op.num_data + op.num_states
    if not set(range(own)) <= set(part.order):
        raise _unread(node, "data or state")
    place = {index: position for position, index in enumerate(part.order)}
    captures = [index for index in range(own, len(node.inputs)) if index in place]
    locations = {
        "in_data_locs": [place[index] for index in range(op.num_data)],
        "in_state_locs": [place[index] for index in range(op.num_data, own)],
        "remain_locs": [place[index] for index in captures],
        "num_out_data": op.num_out,
    }
    return FileNode("_foreach", locations, [*range(own), *captures], [part.json])


def _write_while(node: Node, op: WhileLoop, condition: _Subgraph, body: _Subgraph) -> FileNode:
    if not set(range(op.num_states)) <= set(body.order):
        raise _unread(node, "loop variable")
    used = sorted({*condition.order, *body.order})
    place = {index: position for position, index in enumerate(used)}
    attributes = {
        "max_iterations": op.max_iterations,
        "cond_input_locs": [place[index] for index in condition.order],
        "func_input_locs": [place[index] for index in body.order],
        "func_var_locs": [body.order.index(index) for index in range(op.num_states)],
        "num_out_data": op.num_out,
    }
    return FileNode("_while_loop", attributes, used, [condition.json, body.json])


def _write_cond(
    op: Cond, then: _Subgraph, other: _Subgraph, document: Callable[[Graph], dict[str, object]]
) -> FileNode:
    number = input_node("number")
    decides = document(Graph([number], Node(get("identity").bind(), [number], name="condition").outputs))
    decides.pop("attrs", None)
    used = sorted({*then.order, *other.order})
    place = {index: position + 1 for position, index in enumerate(used)}
    attributes = {
        "cond_input_locs": [0],
        "then_input_locs": [place[index] for index in then.order],
        "else_input_locs": [place[index] for index in other.order],
    }
    return FileNode("_cond", attributes, [0, *(index + 1 for index in used)], [decides, then.json, other.json])


# -- reading ---------------------------------------------------------------------------------------------------------


class FileOperator(NamedTuple):
    """A node of control flow from a file.

    inputs : indices of the node's inputs in the file, in the operator's order; for Cond, the inputs of `decides` come
    first
    decides : the graph that computes the number of a Cond from them, or None
    """

    op: ControlFlow
    inputs: list[int]
    decides: Graph | None = None


def read(kind: str, attributes: Mapping[str, str], graphs: Sequence[Graph], count: int) -> FileOperator:
    """The operator of a node with `count` inputs. Raises ValueError describing the fault in the file."""
    if len(graphs) != KINDS[kind]:
        raise ValueError(f"{kind} has {len(graphs)} subgraphs, needs {KINDS[kind]}")
    graphs = _with_draws(graphs, attributes.get(DRAWS), kind)
    if kind == "_foreach":
        return _read_foreach(attributes, graphs[0], count)
    if kind == "_while_loop":
        return _read_while(attributes, graphs[0], graphs[1], count)
    return _read_cond(attributes, graphs[0], graphs[1], graphs[2], count)


def _read_foreach(attributes: Mapping[str, str], graph: Graph, count: int) -> FileOperator:
    data, states, rest = (_locations(attributes, f"{key}_locs", count) for key in ("in_data", "in_state", "remain"))
    order = [*data, *states, *rest]
    if sorted(order) != list(range(count)) or len(graph.inputs) != count or not data:
        raise ValueError("in_data_locs, in_state_locs and remain_locs do not name each input of the subgraph once")
    num_out = _outputs(attributes, len(states), graph)
    body = Graph([graph.inputs[index] for index in order], graph.outputs, (), graph.draws, graph.name)
    op = Foreach(bodies=(Body(body),), num_data=len(data), num_states=len(states), num_out=num_out)
    return FileOperator(op, list(range(count)))


def _read_while(attributes: Mapping[str, str], condition: Graph, body: Graph, count: int) -> FileOperator:
    check = _locations(attributes, "cond_input_locs", count, len(condition.inputs))
    inputs = _locations(attributes, "func_input_locs", count, len(body.inputs))
    variables = [inputs[index] for index in _locations(attributes, "func_var_locs", len(inputs))]
    if not variables or len(set(variables)) != len(variables) or len(condition.outputs) != 1:
        raise ValueError("func_var_locs does not name the loop variables, or the condition is not one number")
    num_out = _outputs(attributes, len(variables), body)
    order = [*variables, *(index for index in range(count) if index not in variables)]
    op = WhileLoop(
        bodies=(Body(_over(condition, check, order)), Body(_over(body, inputs, order))),
        num_states=len(variables),
        num_out=num_out,
        max_iterations=_number(attributes, "max_iterations"),
    )
    return FileOperator(op, order)


def _read_cond(attributes: Mapping[str, str], decides: Graph, then: Graph, other: Graph, count: int) -> FileOperator:
    number = _locations(attributes, "cond_input_locs", count, len(decides.inputs))
    taken = _locations(attributes, "then_input_locs", count, len(then.inputs))
    missed = _locations(attributes, "else_input_locs", count, len(other.inputs))
    if len(decides.outputs) != 1 or len(then.outputs) != len(other.outputs):
        raise ValueError("the condition is not one number, or the branches have different numbers of outputs")
    order = sorted({*taken, *missed})
    op = Cond(bodies=(Body(_over(then, taken, order)), Body(_over(other, missed, order))), num_out=len(then.outputs))
    return FileOperator(op, [*number, *order], decides)


def decided(graph: Graph, inputs: Sequence[Value]) -> Value:
    """The number of a Cond, computed outside of it; a mere copy of an input is that input."""
    output = graph.outputs[0]
    mapping = dict(zip(graph.inputs, inputs, strict=True))
    if output.node.op.identity and output.node.inputs[0] in mapping:
        return mapping[output.node.inputs[0]]
    return graph.substitute({**mapping}).outputs[0] if output not in mapping else mapping[output]


def _over(graph: Graph, locations: Sequence[int], order: Sequence[int]) -> Graph:
    """The graph with an input for each of `order`; `locations` gives the meaning of its own variables."""
    own = dict(zip(locations, graph.inputs, strict=True))
    if len(own) != len(graph.inputs):
        raise ValueError("two variables of a subgraph stand for the same input")
    inputs = [own[index] if index in own else input_node(f"unused{index}") for index in order]
    return Graph(inputs, graph.outputs, (), graph.draws, graph.name)


def _with_draws(graphs: Sequence[Graph], text: str | None, kind: str) -> list[Graph]:
    if text is None:
        return list(graphs)
    draws = _integers(text)
    own = list(graphs)[-len(draws) :] if draws else []
    if (
        draws is None
        or len(draws) != (2 if kind != "_foreach" else 1)
        or any(count < graph.draws for count, graph in zip(draws, own, strict=True))
    ):
        raise ValueError(f"{DRAWS} is {text[:60]!r}")
    others = list(graphs)[: len(graphs) - len(draws)]
    return [*others, *(Graph(g.inputs, g.outputs, (), n, g.name) for g, n in zip(own, draws, strict=True))]


def _integers(text: str) -> list[int] | None:
    match = re.fullmatch(r"[\[(]\s*((?:\d{1,9}\s*,\s*)*(?:\d{1,9})?)\s*[\])]", text, re.ASCII)
    return None if match is None else [int(part) for part in re.findall(r"\d+", match.group(1))]


def _locations(attributes: Mapping[str, str], key: str, below: int, wanted: int | None = None) -> list[int]:
    text = attributes.get(key, "")
    locations = _integers(text)
    if locations is None or any(index >= below for index in locations) or wanted not in (None, len(locations)):
        raise ValueError(f"{key} is {text[:60]!r}")
    return locations


def _number(attributes: Mapping[str, str], key: str) -> int:
    text = attributes.get(key, "")
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise ValueError(f"{key} is {text[:60]!r}")
    return int(text)


def _outputs(attributes: Mapping[str, str], states: int, graph: Graph) -> int:
    """The number of stacked outputs, which come before the states."""
    count = _number(attributes, "num_out_data")
    if count + states != len(graph.outputs):
        raise ValueError(f"the subgraph has {len(graph.outputs)} outputs, not {count} outputs and {states} states")
    return count
