"""Higher order: the gradients of a compiled call as a graph of their own, to be called and recorded like any other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.errors import AutogradError
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.passes.bind_mode import bind_mode
from hybrid_lab.graph.passes.differentiate import differentiate_present, gradients_add_up
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.graph.passes.mixed_precision import mixed_precision
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.hybridize.structure import LEAF
from hybrid_lab.ndarray import tape

if TYPE_CHECKING:
    from hybrid_lab.hybridize.compiled_call import CompiledCall
    from hybrid_lab.hybridize.head_sets import Heads
    from hybrid_lab.ndarray.ndarray import NDArray


def _bound_graph(program: CompiledCall) -> Graph:
    """The graph of a call: inferred, in its mode, with the conversions of its mixed precision."""
    neutral, graph = program.neutral, program.neutral.graph
    shapes, dtypes = program.types
    types = dict(zip(graph.inputs, dtypes, strict=True))
    if program.precision is not None and not neutral.bound:
        graph = mixed_precision(graph, types, program.precision)
    inferred = infer(graph, dict(zip(graph.inputs, shapes, strict=True)), types)
    return inferred if neutral.bound else bind_mode(inferred, program.training)


def one_step(program: CompiledCall) -> bool:
    """Whether a call may stay one step of the history if its gradients are differentiated: these go backward through
    the call in two steps, once from its outputs and once from its gradients.
    """
    bound = _bound_graph(program)
    return gradients_add_up(bound, [bound.inputs[index] for index in program.special.wrt])


def gradient_graph(program: CompiledCall, heads: Heads, wrt: Sequence[int]) -> tuple[NeutralGraph, tuple[int, ...]]:
    """The graph that computes a call's gradients with respect to the inputs numbered in `wrt`, as far as a gradient
    arrives, and the numbers of these inputs.

    heads : numbers of the outputs that have a gradient
    Its arguments are all inputs and parameters and then one gradient per output in `heads`; it has no parameters,
    updates no states, and draws the numbers of the forward if it is run with the forward's rng. Raises AutogradError if
    an operator has no gradient of its gradient.
    """
    bound = _bound_graph(program)
    joint, present = differentiate_present(bound, [bound.inputs[index] for index in wrt], heads)
    count = len(bound.inputs)
    inputs = [*joint.inputs[:count], *(joint.inputs[count + index] for index in sorted(heads))]
    gradients = [value for value, here in zip(joint.outputs[len(bound.outputs) :], present, strict=True) if here]
    gradient = Graph(inputs, gradients, (), joint.draws, f"{bound.name} gradient".strip())
    in_spec, out_spec = ("tuple", (LEAF,) * len(inputs)), ("tuple", (LEAF,) * len(gradients))
    graph_of = NeutralGraph(gradient, in_spec, out_spec, (), source=program.neutral.source, bound=True)
    return graph_of, tuple([index for index, here in zip(wrt, present, strict=True) if here])


def gradient_program(
    program: CompiledCall, inputs: Sequence[NDArray], heads: Heads, wrt: tuple[int, ...]
) -> tuple[CompiledCall | None, tuple[int, ...]]:
    """The program of a call's gradients with respect to the inputs and parameters numbered in `wrt`, on all of them and
    the gradients of the outputs `heads`; None if an operator has no gradient of its gradient.

    Also returns the numbers in `wrt` at which a gradient arrives: the program computes these gradients.
    """
    key = heads, wrt, tuple([tape.link(array) is not None for array in inputs])
    if key not in program.state.gradients:
        start, cache = time.perf_counter(), program.cache
        try:
            graph, present = gradient_graph(program, heads, wrt)
            name, compiled = f"{program.block_name} (gradient)", None
            if present:
                kind, flags = type(program), program.flags
                compiled = kind(name, flags, graph, inputs, program.training, True, cache, program.asked)
        except AutogradError:
            program.state.gradients[key] = None, wrt
        else:
            program.state.gradients[key] = compiled, present
            if compiled is not None:
                cache.note_further(compiled, time.perf_counter() - start, "second", "gradients of gradients")
    found, present = program.state.gradients[key]
    return found if found is None or found.state.head_sets is None else found.state.head_sets.current, present
