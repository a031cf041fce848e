"""Specialize: the passes in order, from a neutral graph to the forward and backward graphs of one call signature."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from hybrid_lab.graph.bind_mode import bind_mode
from hybrid_lab.graph.differentiate import differentiate_present
from hybrid_lab.graph.dump import dump
from hybrid_lab.graph.fold_norm import fold_norm
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.hoist import STEADY_ROLES, hoist
from hybrid_lab.graph.infer import infer
from hybrid_lab.graph.layout import layout
from hybrid_lab.graph.mixed_precision import mixed_precision
from hybrid_lab.graph.node import Value, input_node
from hybrid_lab.graph.simplify import simplify
from hybrid_lab.graph.specialized import Source, Specialized
from hybrid_lab.graph.split import Cutter
from hybrid_lab.graph.stages import Stage, run_pass
from hybrid_lab.ops.framework.precision import Precision
from hybrid_lab.ops.framework.sizes import guards_of
from hybrid_lab.ops.framework.types import Shape


def specialize(
    graph: Graph,
    shapes: Sequence[Shape],
    dtypes: Sequence[np.dtype],
    train: bool,
    wrt: Sequence[int] = (),
    num_data: int | None = None,
    keep: bool = False,
    bound: bool = False,
    precision: Precision | None = None,
    heads: Collection[int] | None = None,
) -> Specialized:
    """Run the passes for inputs of these shapes, which may be symbolic, and dtypes (in the order of graph.inputs).

    train : the mode
    wrt : indices of the inputs that need gradients; empty means that nothing is recorded
    num_data : inputs from this one on are parameters, whatever their roles say (graphs from files do not know); None:
        the roles tell
    keep : remember every pass in `stages`
    bound : the graph was bound to its mode before, and converted to its precision; its operators update no states
    precision : which operators compute in a low precision; None leaves all in what their inputs are
    heads : numbers of the outputs that the backward differentiates; None: all
    """
    stages: list[Stage] | None = [] if keep else None
    start = _started(stages, graph, shapes, dtypes, train, num_data, bound, precision)
    straight: tuple[Source, ...] = tuple(("input", index) for index in range(len(start.inputs)))
    guards = guards_of(shapes)
    if wrt:
        absent: set[int] = set()

        def differentiate(start: Graph) -> Graph:
            joint, present = differentiate_present(start, [start.inputs[index] for index in wrt], heads)
            absent.update(index for index, here in zip(wrt, present, strict=True) if not here)
            return joint

        joint = _simplified(stages, run_pass(stages, "differentiate", differentiate, start))
        cutter = Cutter(joint, len(start.inputs), len(start.outputs))
        parts = run_pass(stages, "split", lambda _: cutter.split(None if guards is None else guards.hints), joint)
        special = Specialized(
            parts.forward,
            parts.backward,
            parts.sources,
            tuple(wrt),
            forward_sources=straight,
            heads=None if heads is None else tuple(sorted(heads)),
            absent=frozenset(absent),
            cutter=None if guards is None else cutter,
        )
    else:
        simple = _simplified(stages, start)
        if train:
            special = Specialized(simple, forward_sources=straight)
        else:
            folded = run_pass(stages, "fold_norm", fold_norm, simple)
            if folded.nodes != simple.nodes:
                simple = run_pass(stages, "simplify", simplify, folded)
            special = run_pass(stages, "hoist", hoist, simple)
    count = None if guards is None else guards.count
    return replace(special, given=Graph(start.inputs, ()), stages=tuple(stages or ()), guards=count)


def _started(
    stages: list[Stage] | None,
    graph: Graph,
    shapes: Sequence[Shape],
    dtypes: Sequence[np.dtype],
    train: bool,
    num_data: int | None,
    bound: bool,
    precision: Precision | None,
) -> Graph:
    """The graph, inferred and bound to its mode."""
    if num_data is not None:
        graph = _with_parameters(graph, num_data)
    dump("neutral", graph)
    if precision is not None and not bound:
        types = dict(zip(graph.inputs, dtypes, strict=True))
        graph = run_pass(stages, "mixed_precision", mixed_precision, graph, types, precision)
    given_shapes = dict(zip(graph.inputs, shapes, strict=True))
    given_dtypes = dict(zip(graph.inputs, dtypes, strict=True))
    inferred = run_pass(stages, "infer", infer, graph, given_shapes, given_dtypes)
    return inferred if bound else run_pass(stages, "bind_mode", bind_mode, inferred, train)


def _simplified(stages: list[Stage] | None, graph: Graph) -> Graph:
    """Without what changes nothing; once more where layout found something to do."""
    simple = run_pass(stages, "simplify", simplify, graph)
    moved = run_pass(stages, "layout", layout, simple)
    return simple if moved.nodes == simple.nodes else run_pass(stages, "simplify", simplify, moved)


def _with_parameters(graph: Graph, num_data: int) -> Graph:
    """The graph with the roles that the inputs' positions tell: data first, then parameters."""
    fresh: dict[Value, Value] = {}
    for index, value in enumerate(graph.inputs):
        steady = value.node.op.role in STEADY_ROLES  # type: ignore[attr-defined]
        if steady != (index >= num_data):
            role = "data" if index < num_data else "param"
            variable = input_node(value.node.name, role, shape=value.shape, dtype=value.dtype, attrs=value.node.attrs)
            fresh[value] = variable
    return graph.substitute(fresh) if fresh else graph
