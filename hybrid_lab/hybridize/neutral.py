"""Neutral graphs: the result of one trace of a Block's code, without shapes and without a mode; and how a Block is
traced.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError, NestingError
from hybrid_lab.diagnostics.formatting import dimensions
from hybrid_lab.diagnostics.hybridize_error import HybridizeError, hybridize_error
from hybrid_lab.diagnostics.location import Location
from hybrid_lab.graph.graph import Graph, extract, reachable
from hybrid_lab.graph.node import Constant, Node, Value, input_node
from hybrid_lab.hybridize.block import NONE, Part
from hybrid_lab.hybridize.known_calls import KnownCall, Types
from hybrid_lab.hybridize.structure import (
    Spec,
    containers,
    contents,
    describe,
    flatten,
    is_named,
    outline,
    plain,
    same_objects,
    unflatten,
    without_defaults,
)
from hybrid_lab.ndarray.tape import state as modes
from hybrid_lab.symbol import scopes, tracing
from hybrid_lab.symbol.symbol import Symbol

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Hybrid


@dataclass(frozen=True)
class Observation:
    """The observations of the traced code; the graph holds only for calls with the same observations.

    types : (shape, dtype name) of every input tensor, or None; training : the mode, or None; recording : whether calls
    were recorded, or None; layout : ((number of axes,), dtype name) of every input tensor, for functions of `mx.np`
    that ask for it, or None
    """

    types: tuple[Any, ...] | None = None
    training: bool | None = None
    places: tuple[tuple[str, Location | None], ...] = field(default=(), compare=False)
    recording: bool | None = None
    layout: tuple[Any, ...] | None = None

    def describe(self) -> str:
        """` for float32(2, 3) in training, recorded`, or nothing."""
        shapes = "" if self.types is None else " for " + ", ".join(f"{dtype}{shape}" for shape, dtype in self.types)
        if self.types is None and self.layout is not None:
            shapes = " for " + ", ".join(f"{dtype} with {dimensions(rank)}" for (rank,), dtype in self.layout)
        mode = {True: " in training", False: " in prediction", None: ""}[self.training]
        return shapes + mode + {True: ", recorded", False: ", not recorded", None: ""}[self.recording]

    def includes(self, what: str) -> bool:
        """Whether the code asked for `what`: "shape", "dtype", "mode" or "recording"."""
        return any(kind == what for kind, _ in self.places)

    def holds(self, types: tuple[Any, ...], training: bool, recording: bool) -> bool:
        if self.types is not None and self.types != types:
            return False
        if self.layout is not None and self.layout != layout_of(types):
            return False
        return self.training in (None, training) and self.recording in (None, recording)


def layout_of(types: Iterable[tuple[Any, Any]]) -> tuple[Any, ...]:
    """((number of axes,), dtype name) of tensors with these shapes and dtypes."""
    return tuple([((len(shape),), dtype if isinstance(dtype, str) else np.dtype(dtype).name) for shape, dtype in types])


NOTHING_OBSERVED = Observation()
"""Of code that observed nothing: its graph always holds."""


@dataclass(frozen=True, eq=False)
class NeutralGraph:
    """The graph of one HybridBlock for one input structure.

    graph : inputs are the data tensors, then one variable per parameter
    parameters : the Parameters of these variables, in order; each is a Weight
    in_spec, out_spec : structure of the arguments and of the result
    source : "code" (a trace) or "file" (loaded; wins over the code)
    module : whether the graph comes from a PyTorch module, and not from a file
    types : (shape, dtype name) of the input tensors at the trace, or None
    bound : whether the operators are bound to one mode, with no states to update
    unused : values that the code computes and does not return, if states or shapes of parameters depend on them
    origin : for a graph recorded inside an outer trace, the Values of that trace that are its inputs
    (empty from a file)
    """

    graph: Graph
    in_spec: Spec
    out_spec: Spec
    parameters: tuple[Any, ...]
    observation: Observation = NOTHING_OBSERVED
    source: str = "code"
    types: tuple[Any, ...] | None = None
    origin: tuple[Value, ...] | None = None
    bound: bool = False
    unused: tuple[Value, ...] = ()
    module: bool = False

    @cached_property
    def form(self) -> tuple[object, ...]:
        """A key shared by graphs that differ only in shapes, dtypes, numbers or the lengths of lists; see KnownCall."""
        return outline(self.in_spec), self.observation.training, self.observation.recording

    def runs(self, call: KnownCall) -> bool:
        """Whether the graph holds for such a call."""
        observed = self.observation
        if self.source == "file":  # an argument that is None may be left out
            if without_defaults(self.in_spec) != without_defaults(plain(call.spec)):
                return False
        elif self.in_spec != call.spec:
            return False
        if call.types is None and (observed.types is not None or observed.layout is not None):
            return False
        return observed.holds(call.types or (), call.training, call.recording)

    @cached_property
    def with_unused(self) -> Graph:
        """The graph with the updates that a call makes besides its results, as effects:
        (state, a result of its operator).
        """
        needed = {*self.graph.nodes} if self.unused else set()
        effects = [
            (item, node.outputs[0])
            for node in reachable(self.unused)
            if node not in needed
            for name, item in zip(node.op.signature.inputs, node.inputs, strict=False)
            if name in node.op.signature.aux and isinstance(item, Value) and item.is_input
        ]
        if not effects:
            return self.graph
        return Graph(self.graph.inputs, self.graph.outputs, effects, self.graph.draws, self.graph.name)

    def without_unused(self) -> NeutralGraph:
        """The graph without parameters that affect no output, as in MXNet's files."""
        needed = {*reachable(self.graph.outputs)}
        variables = zip(self.graph.inputs[self.num_data :], self.parameters, strict=True)
        read = {value: parameter for value, parameter in variables if value.node in needed}
        if len(read) == len(self.parameters) and not self.unused:
            return self
        data = self.graph.inputs[: self.num_data]
        graph = Graph([*data, *read], self.graph.outputs, draws=self.graph.draws, name=self.graph.name)
        return replace(self, graph=graph, parameters=tuple(read.values()), unused=())

    @property
    def num_data(self) -> int:
        return len(self.graph.inputs) - len(self.parameters)

    def __repr__(self) -> str:
        return repr(self.graph)


def data_names(count: int) -> list[str]:
    """MXNet's names of the inputs: `data`, or `data0`, `data1` ..."""
    return ["data"] if count == 1 else [f"data{index}" for index in range(count)]


def trace_block(
    block: Hybrid, spec: Spec, types: Sequence[tuple[Any, Any]], training: bool, keep: bool = True,
    for_shapes: bool = False, part: Part = "call", salvage: bool = False,
) -> NeutralGraph:  # fmt: skip
    """Run the block's code once on Symbols.

    spec : structure of the arguments
    types : (shape, dtype) of each input tensor, for code that asks for them; (None, None) if unknown
    keep : let the HybridBlocks called on the way keep their graphs
    for_shapes : the graph only determines shapes and is never run. So the code may keep Symbols on the Block, which the
        caller then undoes, change its arguments, and have parameters whose class defines `data()`
    part : the part of the code that gets the arguments
    salvage : if the trace fails, let the HybridBlocks called before the failure keep their graphs all the same

    Raises HybridizeError or NestingError; the Block then keeps no graph, only the error's `partial` has one.
    """
    inputs = [input_node(name, "data") for name in data_names(len(types))]
    recording = bool(modes.recording)
    trace = tracing.Trace(training=training, composes=for_shapes)
    trace.for_shapes = for_shapes
    for value, (shape, dtype) in zip(inputs, types, strict=True):
        if shape is not None:
            trace.types[value] = (tuple(shape), dtype)
    managers = scopes.NameManager.stack
    depth = len(managers)
    try:
        with tracing.tracing(trace):
            args = unflatten(spec, iter([Symbol((value,)) for value in inputs]))
            try:
                result, alone = run_traced(block, trace, args, block.name, part)
            except RecursionError as error:
                raise NestingError(
                    f"{block.name}: its Blocks call one another deeper than Python's recursion limit of "
                    f"{sys.getrecursionlimit()} allows; each level takes seven Python calls. Nest them less deeply, or "
                    "call sys.setrecursionlimit() with a larger number first"
                ) from error
            if not alone and not for_shapes:
                raise _refused_change(block, spec, args)
            outputs, out_spec = flatten_outputs(result, block)
    except Exception as error:
        if salvage:
            _keep_nested(trace, training, recording)
        if isinstance(error, HybridizeError) and error.partial is None:
            from hybrid_lab.hybridize.partial import last_values

            values = last_values(error.__traceback__)
            read = [node.outputs[0] for node in reachable(values) if node.outputs[0] in trace.owners]
            graph = Graph([*inputs, *read], values, draws=trace.draws, name=block.name)
            error.partial = NeutralGraph(graph, spec, spec, tuple(trace.owners[value] for value in read))
        raise
    finally:  # without a call: a Ctrl-C at the start of NameScope.__exit__ would leave the scope open for good
        del managers[depth:]
    values = [trace.outside_pause(symbol.outputs[0]) for symbol in outputs]
    variables = [symbol.outputs[0] for symbol in trace.parameters.values()]
    graph = Graph([*inputs, *variables], values, draws=trace.draws, name=block.name)
    tracing.refuse_leaks(graph)
    observation = _observation(trace.observed, types, training, recording)
    known = known_types(types)
    if keep:
        _keep_nested(trace, training, recording)
    unused = _unused(trace.nodes, graph.inputs, trace.owners, values)
    return NeutralGraph(graph, spec, out_spec, tuple(trace.parameters), observation, types=known, unused=unused)


def _keep_nested(trace: tracing.Trace, training: bool, recording: bool) -> None:
    """Let the HybridBlocks called in a trace keep their graphs, and the calls."""
    for nested, graph in trace.nested.values():
        nested._graphs.note(graph)
        types = known_types([trace.types.get(value, (None, None)) for value in graph.origin or ()])
        nested._graphs.calls.note(KnownCall(graph.in_spec, types, training, recording))


def known_types(types: Sequence[tuple[Any, Any]]) -> Types | None:
    """(shape, dtype name) of some tensors; None if a dtype is unknown."""
    if any(shape is None for shape, _ in types):
        return None
    return tuple([(tuple(shape), np.dtype(dtype).name) for shape, dtype in types])


def run_traced(
    block: Hybrid, trace: tracing.Trace, args: Sequence[object], path: str, part: Part = "call",
    keywords: Mapping[str, Any] = NONE,
) -> tuple[Any, bool]:  # fmt: skip
    """The result of the block's own code on Symbols, inside its scopes; and whether a graph can stand for the call: no
    list or dict is passed twice, and the code changed none.
    """
    passed = containers(args) if any(isinstance(each, (list, dict, tuple)) for each in args) else []
    before = [contents(each) for each in passed]
    style = "1.x" if part == "hybrid_forward" else block._code_style
    with trace.inside(block, path, style), block.name_scope():
        result = block._run_symbolic(args, part, keywords)
    unchanged = all(map(same_objects, map(contents, passed), before))
    return result, unchanged and len({*map(id, passed)}) == len(passed)


def _refused_change(block: Hybrid, spec: Spec, args: object) -> HybridizeError:
    """The error for code that changes a list or dict out of the compiled call's reach; the Block runs eagerly then."""
    try:
        became = describe(flatten(args)[1])
        became = "has other tensors in its lists and dicts now" if became == describe(spec) else f"became {became}"
    except HybridLabError:
        became = "holds something else now"
    error = hybridize_error(
        "HL142",
        location_of(block),
        block=block.name,
        message=f"The code changes a list or dict that it was called with: {describe(spec)} {became}.",
        reason="In an eager call its caller's list changes too; a compiled call gets only the tensors. If another "
        "HybridBlock calls this one inside its own graph, it sees the change.",
        rewrite="change a copy: states = list(states)      or      return what is new",
    )
    error.runs_eagerly = True
    return error


def flatten_outputs(result: object, block: Hybrid) -> tuple[list[Symbol], Spec]:
    """The Symbols of a result and its structure; a Symbol with several outputs counts as a list of them."""
    leaves, spec = flatten(spread(result), f"the output of {block.name}")
    if any(not isinstance(leaf, Symbol) for leaf in leaves):
        raise hybridize_error("HL164", None, block=block.name, tensor="an output", expression="an output")
    if not leaves:
        raise hybridize_error(
            "HL192",
            location_of(block),
            block=block.name,
            message=f"The code returned {describe(spec)}, which holds no tensor.",
            reason="A graph computes tensors; without one there is nothing to compile.",
            rewrite="return a tensor, or a tuple, list or dict that holds one",
        )
    return leaves, spec


def location_of(block: Hybrid) -> Location | None:
    """The location at which the traced code begins."""
    code = getattr(inspect.unwrap(block._entry_of_calls[0]), "__code__", None)
    return None if code is None else Location.known(code.co_filename, code.co_firstlineno, function=code.co_qualname)


def spread(item: Any) -> Any:
    """Symbols with several outputs as lists of single ones."""
    if isinstance(item, Symbol) and len(item.outputs) > 1:
        return [type(item)((value,)) for value in item.outputs]
    if type(item) in (tuple, list):
        return type(item)(spread(part) for part in item)
    if is_named(item):
        return type(item)._make(spread(part) for part in item)
    if isinstance(item, dict):
        return {key: spread(part) for key, part in item.items()}
    return item


def _observation(
    observed: Sequence[tuple[str, Location | None]], types: Sequence[tuple[Any, Any]], training: bool, recording: bool
) -> Observation:
    if not observed:
        return NOTHING_OBSERVED
    kinds = {what for what, _ in observed}
    observed_types = tuple((tuple(shape), dtype.name) for shape, dtype in types) if kinds & {"shape", "dtype"} else None
    return Observation(
        observed_types,
        training if "mode" in kinds else None,
        tuple(observed),
        recording if "recording" in kinds else None,
        layout_of(types) if "layout" in kinds and observed_types is None else None,
    )


def _unused(
    nodes: Iterable[Node], inputs: Iterable[Value], owners: Container[Value], outputs: Sequence[Value]
) -> tuple[Value, ...]:
    """Results of operators that no output needs; empty if neither a state nor the shape of an input depends on the
    operators.

    nodes : the nodes of a trace, in order; inputs : the data; owners : the parameters of the trace
    """
    needed = {*reachable(outputs, {*inputs})}
    available = {*needed, *(value.node for value in inputs)}
    unused: list[Node] = []
    for node in nodes:
        # Not so in the body of a loop under trace.
        inside = all(
            item.node in available or item in owners or isinstance(item.node.op, Constant) for item in node.values_in
        )
        if inside and node not in available:
            available.add(node)
            unused.append(node)
    read = {item for node in needed for item in node.values_in} | {*outputs}
    has_effect = any(node.op.signature.aux for node in unused) or any(
        item not in read and item.is_input for node in unused for item in node.values_in
    )
    return tuple([node.outputs[0] for node in unused]) if has_effect else ()


def extract_nested(
    trace: tracing.Trace, block: Hybrid, spec: Spec, inputs: Sequence[Symbol], result: object, observed: int,
    nodes: Sequence[Node],
) -> NeutralGraph | None:  # fmt: skip
    """The graph of a nested block, cut out of the trace it was called in; None if the block reads tensors other than
    its inputs.

    nodes : the operators of the call
    """
    values = [value for symbol in inputs for value in symbol.outputs]
    outputs, out_spec = flatten_outputs(result, block)
    results = [trace.outside_pause(leaf.outputs[0]) for leaf in outputs]
    unused = _unused(nodes, values, trace.owners, results)
    graph = extract(values, [*results, *unused], data_names(len(values)), block.name)
    if unused:
        unused = graph.outputs[len(results) :]
        graph = Graph(graph.inputs, graph.outputs[: len(results)], draws=graph.draws, name=graph.name)
    variables = graph.inputs[len(values) :]
    owners = [trace.owners.get(value) for value in variables]
    if any(owner is None for owner in owners):
        return None
    types = [trace.types.get(value, (None, None)) for value in values]
    seen = trace.observed[observed:]
    if any(shape is None for shape, _ in types) and any(what in ("shape", "dtype", "layout") for what, _ in seen):
        return None  # it read shapes that are unknown here, so the calls for which the graph holds are unknown
    observation = _observation(seen, types, bool(trace.training), bool(modes.recording))
    parameters = tuple(owner for owner in owners if owner is not None)
    return NeutralGraph(graph, spec, out_spec, parameters, observation, origin=tuple(values), unused=unused)
