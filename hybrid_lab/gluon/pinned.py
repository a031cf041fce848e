"""The graph from a file in the place of a HybridBlock's code: run eagerly, or as a part of the graph being traced.

`net.load(path, graphs="file")` pins such graphs, and so does `net._cached_graph = sym.load(path)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.gluon import access
from hybrid_lab.graph.node import Constant, Input, Value
from hybrid_lab.hybridize.known_calls import KnownCall, key_of
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.hybridize.structure import flatten, unflatten
from hybrid_lab.ndarray.interpret import interpret
from hybrid_lab.ndarray.tape import state as modes
from hybrid_lab.symbol import tracing
from hybrid_lab.symbol.symbol import Symbol, compose, constant

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Hybrid
    from hybrid_lab.hybridize.graphs import Graphs


def run_pinned(block: Hybrid, args: tuple[Any, ...], graphs: Graphs | None = None) -> Any:
    """Run the loaded graph for these arrays, operator by operator.

    graphs : the graphs among which it is found, by default the Block's own, which then know of the call
    Raises MissingGraphError if no pinned graph takes such arguments.
    """
    leaves, spec = flatten(args, f"the input of {block.name}")
    types = tuple((leaf.shape, leaf.host_view.dtype.name) for leaf in leaves)
    own = access.graphs(block)
    neutral = (graphs or own).pinned_for(spec, types, modes.training)
    access.complete_parameters(block, neutral, leaves)
    outputs = interpret(neutral.with_unused, [*leaves, *(parameter.data() for parameter in neutral.parameters)])
    if graphs is None and not own.calls.repeats(key := key_of(args)):
        own.calls.note(KnownCall(spec, types, bool(modes.training), bool(modes.recording)), key)
    return unflatten(neutral.out_spec, iter(outputs))


def inline_pinned(block: Hybrid, args: Sequence[object], graphs: Graphs | None = None) -> Any:
    """The result of the loaded graph on Symbols: its nodes become a part of the graph being traced.

    graphs : as for `run_pinned`. Raises MissingGraphError
    """
    leaves, spec = flatten(tuple(args), f"the input of {block.name}")
    trace = tracing.current()
    neutral = (graphs or access.graphs(block)).pinned_for(spec, *_types(trace, leaves))
    if trace is not None:
        trace.observed += neutral.observation.places
    read = trace.parameter if trace is not None else (lambda parameter: parameter.var())
    inputs = [*leaves, *(read(parameter) for parameter in neutral.parameters)]
    return unflatten(neutral.out_spec, iter(_made_anew(neutral, inputs)))


def _types(trace: tracing.Trace | None, leaves: Sequence[Symbol]) -> tuple[tuple[Any, ...] | None, bool]:
    """The types of the inputs of a loaded graph inside a trace, None if a type is unknown; and the mode."""
    traced_types = [trace.types.get(leaf.outputs[0]) if trace is not None else None for leaf in leaves]
    types = (
        None
        if None in traced_types
        else tuple((tuple(item[0]), np.dtype(item[1]).name) for item in traced_types if item)
    )
    return types, bool(trace.training) if trace is not None else modes.training


def _made_anew(neutral: NeutralGraph, inputs: Sequence[Symbol]) -> list[Symbol]:
    """The outputs of a graph on Symbols, with its nodes made anew in the running trace."""
    values: dict[Value, Symbol] = dict(zip(neutral.graph.inputs, inputs, strict=True))
    for node in neutral.with_unused.nodes:
        if isinstance(node.op, Input):
            continue
        if isinstance(node.op, Constant):
            values[node.outputs[0]] = constant(node.op.array)
            continue
        outputs = compose(
            node.op, [values[item] if isinstance(item, Value) else item for item in node.inputs], node.name or None
        )
        for output, value in zip(node.outputs, outputs.outputs, strict=False):
            values[output] = Symbol((value,))
    return [values[value] for value in neutral.graph.outputs]
