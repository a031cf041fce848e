"""Specialize: the passes in order, from a neutral graph to the forward and backward graphs of one call signature.
Another batch reuses the graphs of an earlier batch, without the passes.

    specialize_call(specializations, graph, shapes with a batch of 64, ...)      runs the passes, on symbolic sizes
    specialize_call(specializations, graph, shapes with a batch of 37, ...)      the same graphs, with 37 in the shapes

The first two sizes of each data input (batch and time, in either layout) are symbols. While the passes run, every
comparison of symbols is recorded as a guard (ops/framework/sizes.py). A later call whose sizes satisfy the guards gets
the same graphs, bound to its sizes; only the minimum cut of `split` is computed again, because it weighs bytes. If a
guard fails, the passes run again, and the new graphs are kept beside the earlier graphs. If a rule of an operator or a
pass needs a size as a number (`NeedsNumber`), that size is not a symbol in further calls of this kind, and each value
of the size has graphs of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.graph.call_graphs import Source, Specialized
from hybrid_lab.graph.dump import Stage, dump, is_dumping
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Value, input_node
from hybrid_lab.graph.passes.bind_mode import bind_mode
from hybrid_lab.graph.passes.differentiate import differentiate_present
from hybrid_lab.graph.passes.fold_norm import fold_norm
from hybrid_lab.graph.passes.hoist import STEADY_ROLES, hoist
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.graph.passes.layout import layout
from hybrid_lab.graph.passes.mixed_precision import mixed_precision
from hybrid_lab.graph.passes.simplify import simplify
from hybrid_lab.ops.framework.precision import Precision
from hybrid_lab.ops.framework.sizes import Guards, NeedsNumber, guards_of
from hybrid_lab.ops.framework.types import Shape

T = TypeVar("T")

#: The properties of operators that give a pass work: a graph without such an operator skips the pass. Other passes run
#: on every graph.
WORKS_ON = {
    "bind_mode": ("mode_dependent", "signature.aux", "channels_last", "by_shapes"),
    "layout": ("permutes", "in_order"),
    "fold_norm": ("signature.aux",),
    "decompose": ("is_composite",),
}


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
    wrt : indices of the inputs that need gradients; empty for a call that is not recorded
    num_data : inputs from this index on are parameters, whatever their roles say (graphs from files do not know); None:
        the roles tell
    keep : remember every pass in `stages`
    bound : the graph was bound to its mode and converted to its precision before; its operators update no states
    precision : which operators compute in a low precision; None leaves every operator in the dtype of its inputs
    heads : indices of the outputs that the backward differentiates; None: all
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
        from hybrid_lab.graph.passes.split import Cutter

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
    """The graph without superfluous nodes; simplified once more if `layout` changed the graph."""
    simple = run_pass(stages, "simplify", simplify, graph)
    moved = run_pass(stages, "layout", layout, simple)
    return simple if moved.nodes == simple.nodes else run_pass(stages, "simplify", simplify, moved)


def run_pass(stages: list[Stage] | None, name: str, function: Callable[..., T], before: Graph, *arguments: object) -> T:
    """`function(before, *arguments)`, or `before` if the pass has no work; printed if HYBRID_LAB_DUMP asks for it.

    stages : get the Stage, if not None
    """
    works_on = WORKS_ON.get(name)
    try:
        result: Any = before if works_on and not before.has(*works_on) else function(before, *arguments)
        after: T = dump(name, result)
    except NeedsNumber as need:
        raise NeedsNumber(need.symbols, need.rule or f"{name}: the pass") from None
    if stages is not None:
        stages.append(Stage(name, before, after))
    return after


def _with_parameters(graph: Graph, num_data: int) -> Graph:
    """The graph with roles by the inputs' positions: data first, then parameters."""
    fresh: dict[Value, Value] = {}
    for index, value in enumerate(graph.inputs):
        steady = value.node.op.role in STEADY_ROLES  # type: ignore[attr-defined]
        if steady != (index >= num_data):
            role = "data" if index < num_data else "param"
            variable = input_node(value.node.name, role, shape=value.shape, dtype=value.dtype, attrs=value.node.attrs)
            fresh[value] = variable
    return graph.substitute(fresh) if fresh else graph


# -- the specializations of a graph ------------------------------------------------------------------------------------

#: Number of specializations with symbolic sizes kept for one kind of call; the latest is tried first.
MAX_SPECIALIZATIONS = 8
#: Number of kinds of call that are kept.
MAX_KINDS = 64
#: The leading sizes of a data input that may differ from call to call.
LEADING = 2
#: (data input, axis)
Axis = tuple[int, int]


#: By the kind of call (graph, mode, dtypes, wanted gradients, shapes of the parameters): the graphs, the last used
#: first, and, for each leading size that a rule needs as a number, (data input, axis) -> the reason.
Specializations = dict[Hashable, tuple[list[Specialized], dict[Axis, str]]]


def specialize_call(
    specializations: Specializations,
    graph: Graph,
    shapes: Sequence[Shape],
    dtypes: Sequence[np.dtype],
    train: bool,
    wrt: Sequence[int] = (),
    num_data: int = 0,
    precision: Precision | None = None,
    heads: Collection[int] | None = None,
) -> Specialized:
    """As `specialize.specialize`, with the graphs of earlier calls if their guards hold.

    specializations : of earlier calls; the specialization of this call is added
    num_data : the number of data inputs, which come first; the remaining inputs are parameters
    """
    ranks = tuple(map(len, shapes[:num_data]))
    head_set = None if heads is None else frozenset(heads)
    key = graph, ranks, tuple(shapes[num_data:]), tuple(dtypes), train, tuple(wrt), num_data, precision, head_set
    candidates, numbers = specializations.setdefault(key, ([], {}))
    if len(specializations) > MAX_KINDS:
        del specializations[next(iter(specializations))]
    for candidate in candidates:
        special = None if is_dumping() else candidate.bind(shapes)
        if special is not None:
            candidates.remove(candidate)
            candidates.insert(0, candidate)
            return special
    axes = [(index, axis) for index in range(num_data) for axis in range(len(shapes[index][:LEADING]))]
    # Printed passes show the sizes of each call.
    while symbols := [axis for axis in axes if axis not in numbers and not is_dumping()]:
        try:
            marked = _with_symbols(shapes, symbols)
            latest = specialize(graph, marked, dtypes, train, wrt, num_data, precision=precision, heads=heads)
        except NeedsNumber as need:
            numbers.update({symbols[number]: _reason(need, *symbols[number]) for number in need.symbols})
        except HybridLabError:  # the call is wrong: without symbols below, the error has the sizes
            break
        else:
            candidates.insert(0, replace(latest, needs_numbers=tuple(dict.fromkeys(numbers.values()))))
            del candidates[MAX_SPECIALIZATIONS:]
            special = candidates[0].bind(shapes)
            assert special is not None
            return special
    special = specialize(graph, shapes, dtypes, train, wrt, num_data, precision=precision, heads=heads)
    return replace(special, needs_numbers=tuple(dict.fromkeys(numbers.values())))


def _with_symbols(shapes: Sequence[Shape], symbols: Sequence[Axis]) -> list[Shape]:
    """The shapes with new symbols at the axes `symbols`."""
    guards, marked = Guards(), [list[Any](shape) for shape in shapes]
    for index, axis in symbols:
        marked[index][axis] = guards.symbol(shapes[index][axis])
    return [tuple(shape) for shape in marked]


def _reason(need: NeedsNumber, index: int, axis: int) -> str:
    return f"{need} (axis {axis} of input {index}); each value of it compiles anew"
