"""graphs/*.json: one neutral graph a member, in MXNet's symbol form, with the structure around it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics import ArchiveError, HybridLabError
from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.hybridize.neutral import NOTHING_OBSERVED, NeutralGraph, Observation
from hybrid_lab.hybridize.structure import Spec, count_leaves, from_json, plain, to_json
from hybrid_lab.ops.framework.dtypes import dtype_of, name_of

from .. import schema, strict_json
from ..mxnet import symbol_json
from ..mxnet.graph_reader import read_graph
from ..mxnet.graph_writer import in_order_of_use
from ..mxnet.operator_names import SCALAR_FORMS, as_in_files

if TYPE_CHECKING:
    from hybrid_lab.gluon import Parameter

    from .container import Container

STRUCTURE = "hybrid_lab"
"""Key of the structure among the graph's attributes, where MXNet's reader takes any text."""

DEPTH_LIMIT = 100
Types = tuple[tuple[tuple[schema.Size, ...], str], ...]
"""(shape, dtype name) of each data tensor."""


@dataclass
class Guard:
    """The condition under which a graph is valid, as an Observation has it."""

    types: Types | None
    training: bool | None
    recording: bool | None = None
    layout: Types | None = None


@dataclass
class Structure:
    """The JSON around a graph.

    in_, out : structure of arguments and results; inputs : names of the data variables
    parameters : variable -> id in the tree; draws : how many random draws a call takes
    updates : how many of the graph's heads, at their end, are `unused` of SavedGraph and not results
    """

    in_: Any
    out: Any
    inputs: list[str]
    parameters: dict[str, str]
    draws: int
    nested: bool = False
    named: bool = False
    types: Types | None = None
    guard: Guard | None = None
    updates: int = 0


@dataclass
class SavedGraph:
    """One graph of an archive.

    graph : inputs are the data tensors, then a variable per entry of `parameters`
    parameters : ids in the tree
    types : (shape, dtype name) of each data tensor, if known
    nested : whether it was recorded inside an outer graph's trace
    named : whether there are named tuples among its arguments
    unused : results that no output needs, of operators that update states
    """

    member: str
    graph: Graph
    in_spec: Spec
    out_spec: Spec
    parameters: list[str]
    observation: Observation = NOTHING_OBSERVED
    types: Types | None = None
    nested: bool = False
    named: bool = False
    unused: tuple[Value, ...] = ()

    @property
    def num_data(self) -> int:
        """How many of the inputs are data; the remaining inputs are parameters."""
        return len(self.graph.inputs) - len(self.parameters)

    def attach(self, parameters: Mapping[str, Parameter], name: str) -> NeutralGraph:
        """The graph of the block `name` on live parameters, by id, as a graph that wins over the code."""
        graph = Graph(self.graph.inputs, self.graph.outputs, draws=self.graph.draws, name=name)
        owners = tuple(parameters[key] for key in self.parameters)
        origin = () if self.nested else None
        return NeutralGraph(
            graph, self.in_spec, self.out_spec, owners, self.observation, "file", self.types, origin, unused=self.unused
        )


def write(
    member: str, neutral: NeutralGraph, ids: Mapping[int, str], types: Types | None, tensors: dict[str, np.ndarray]
) -> bytes:
    """The member's bytes; arrays inside the graph go to `tensors`. ids : id() of a Parameter -> its id in the tree.

    Raises HybridLabError if the graph reads a parameter missing in the tree.
    """
    strangers = [parameter.name for parameter in neutral.parameters if id(parameter) not in ids]
    if strangers:
        raise HybridLabError(
            f"{neutral.graph.name or member}: the graph reads {', '.join(strangers)} of a Block that is not a "
            "child; assign that Block to an attribute, or register it with register_child()"
        )
    constants: dict[str, np.ndarray] = {}
    attrs = {STRUCTURE: ["str", structure_text(neutral, ids, types)]}
    graph = neutral.graph
    updates = _updates(neutral)
    if updates:
        graph = Graph(graph.inputs, [*graph.outputs, *updates], draws=graph.draws, name=graph.name)
    text = symbol_json.dumps(graph, portable=False, constants=constants, attrs=attrs)
    tensors |= {f"{member}:{name}": array for name, array in constants.items()}
    return text.encode("utf-8")


def structure_text(neutral: NeutralGraph, ids: Mapping[int, str], types: Types | None) -> str:
    """The JSON around a graph. ids : id() of a Parameter -> its id in the tree"""
    inputs = [value.node.name for value in neutral.graph.inputs]
    data, variables = inputs[: neutral.num_data], inputs[neutral.num_data :]
    owners = [ids[id(parameter)] for parameter in neutral.parameters]
    observation = neutral.observation
    guard = Guard(observation.types, observation.training, observation.recording, observation.layout)
    structure = Structure(
        to_json(neutral.in_spec),
        to_json(neutral.out_spec),
        data,
        dict(zip(variables, owners, strict=True)),
        neutral.graph.draws,
        neutral.origin is not None,
        plain(neutral.in_spec) != neutral.in_spec,
        types,
        None if guard == Guard(None, None) else guard,
        len(_updates(neutral)),
    )
    return json.dumps(schema.write(structure), ensure_ascii=False, allow_nan=False)


def _updates(neutral: NeutralGraph) -> list[Value]:
    """A result of each operator that updates a state and that no output needs."""
    return [*dict.fromkeys(value for _, value in neutral.with_unused.effects)]


def parse(
    data: bytes,
    member: str,
    constants: Mapping[str, np.ndarray],
    known: Mapping[str, object] | None,
    path: str | None = None,
    what: str = "archive",
) -> SavedGraph:
    """The graph in the bytes of a member. Raises ArchiveError.

    constants : the arrays inside the graph, by name
    known : the parameters of the tree, by id; None takes any
    what : the kind of file, for messages
    """

    def error(message: str) -> ArchiveError:
        return ArchiveError(f"damaged {what}: {message}", path=path, member=member)

    document = strict_json.parse(data, path=path, member=member)
    graph = read_graph(document, constants, path=path, member=member)
    try:
        kind, text = document["attrs"][STRUCTURE]
    except (KeyError, TypeError, ValueError):
        raise error("the graph comes without its structure") from None
    if kind != "str" or not isinstance(text, str):
        raise error("the graph comes without its structure")
    members = strict_json.parse(text.encode("utf-8"), path=path, member=member)
    if text.count("[") + text.count("{") > DEPTH_LIMIT and _depth(members) > DEPTH_LIMIT:
        raise error(f"the graph's structure is nested more than {DEPTH_LIMIT} deep")
    try:
        structure = schema.read(Structure, members)
        in_spec, out_spec = from_json(structure.in_), from_json(structure.out)
        types, observation = _known(structure.types), _observation(structure.guard)
        variables = {value.node.name: value for value in graph.inputs}
        ordered: list[Value] = [variables.pop(name) for name in [*structure.inputs, *structure.parameters]]
        good = (
            structure.draws >= graph.draws
            and len(structure.inputs) == count_leaves(in_spec)
            and structure.updates >= 0
            and len(graph.outputs) == count_leaves(out_spec) + structure.updates
            and (types is None or len(types) == len(structure.inputs))
            and not variables
        )
    except (HybridLabError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as problem:
        raise error(f"the graph's structure does not fit it: {str(problem)[:200] or type(problem).__name__}") from None
    if not good:
        raise error("the graph's structure does not fit it")
    owners = list(structure.parameters.values())
    unknown = [key for key in owners if known is not None and key not in known]
    if unknown:
        raise error(f"the graph reads the parameter {str(unknown[0])[:80]!r}, which is not in the tree")
    results = len(graph.outputs) - structure.updates
    whole = Graph(ordered, graph.outputs[:results], draws=structure.draws, name=member)
    return SavedGraph(
        member, whole, in_spec, out_spec, owners, observation, types, structure.nested, structure.named,
        graph.outputs[results:],
    )  # fmt: skip


def count_operators(container: Container, member: str) -> int:
    """How many operators the graph of a member has, by the member's list of nodes alone. Raises ArchiveError."""
    document = container.read_json(member)
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        raise container.error("damaged archive: the graph has no list of nodes", member)
    return sum(node.get("op") != "null" for node in nodes)


def _depth(data: object) -> int:
    depth, level = 0, [data]
    while level:
        depth += 1
        level = [
            inner
            for item in level
            if isinstance(item, (list, dict))
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def _observation(guard: Guard | None) -> Observation:
    if guard is None:
        return NOTHING_OBSERVED
    types, layout = _known(guard.types), _known(guard.layout)
    observed = (("shape", types), ("mode", guard.training), ("recording", guard.recording), ("layout", layout))
    places = tuple([(what, None) for what, value in observed if value is not None])
    return Observation(types, guard.training, places, guard.recording, layout)


def _known(types: Types | None) -> Types | None:
    """The types with the names of dtypes as this version has them. Raises DTypeError for an unknown dtype."""
    return types and tuple([(shape, name_of(dtype_of(dtype))) for shape, dtype in types])


def listing(graph: Graph, num_data: int, owners: list[str]) -> list[str]:
    """The graph as text without names: one line per operator, equal exactly for graphs that compute the same way."""
    labels: dict[Any, str] = {value.node: f"input {index}" for index, value in enumerate(graph.inputs[:num_data])}
    labels |= {value.node: key for value, key in zip(graph.inputs[num_data:], owners, strict=True)}
    lines: list[str] = []
    # A graph cut out of an outer trace counts its draws from its own first one.
    nodes = in_order_of_use(graph)
    first = min([node.draw for node in nodes if node.draw is not None], default=0)
    for node in nodes:
        if isinstance(node.op, Input):
            continue
        if isinstance(node.op, Constant):
            array = node.op.array
            digest = hashlib.sha256(array.tobytes()).hexdigest()[:12]
            labels[node] = f"constant {array.dtype}{list(array.shape)} {digest}"
            continue
        inputs = [_label(item, labels) if type(item) is Value else repr(item) for item in node.inputs]
        labels[node] = f"%{len(lines)}"
        draw = "" if node.draw is None else f" draw {node.draw - first}"
        lines.append(f"%{len(lines)} = {_operation(node, inputs)}{draw}")
        for label, inside in node.op.subgraphs:
            lines += [f"  {label}: {line}" for line in listing(inside, len(inside.inputs), [])]
    return [*lines, f"return {', '.join([_label(value, labels) for value in graph.outputs])}"]


def _label(value: Value, labels: Mapping[object, str]) -> str:
    return f"{labels[value.node]}:{value.index}" if value.index else labels[value.node]


def _operation(node: Node, inputs: list[str]) -> str:
    """The operator and its operands in the form that files have them, in which `2 * x` is `x * 2`."""
    op = node.op
    numbers = {place: item for place, item in enumerate(node.inputs) if type(item) is not Value}
    if op.name in SCALAR_FORMS and len(numbers) == 1:
        ((place, number),) = numbers.items()
        return f"{SCALAR_FORMS[op.name][1 - place]}({number!r}) of ({inputs[1 - place]})"
    op = as_in_files(op)
    if op.scalars:  # attributes in files, which are read as floats
        inputs = [repr(float(numbers[place])) if place in numbers else item for place, item in enumerate(inputs)]
    return f"{op!r} of ({', '.join(inputs)})"


def first_difference(ours: list[str], theirs: list[str]) -> str | None:
    """Where two listings part, in words; None if they are equal."""
    for mine, other in zip(ours, theirs, strict=False):
        if mine != other:
            return f"the model has {mine!r}, the file {other!r}"
    if len(ours) != len(theirs):
        return f"the model has {count(len(ours) - 1, 'operator')}, the file {len(theirs) - 1}"
    return None
