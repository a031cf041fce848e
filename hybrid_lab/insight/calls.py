"""One call of a model, run eagerly and as hybridize() compiles it, without changing the model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import called, variable_of
from hybrid_lab.engines import Executable
from hybrid_lab.engines.memory import is_tensor, to_host
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.graph.call_graphs import Specialized
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.printer import format_type
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.hybridize.calls import GraphCalls
from hybrid_lab.hybridize.compiled_call import CompiledCall
from hybrid_lab.hybridize.events import tool_runs
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.hybridize.structure import Spec, flatten, unflatten
from hybrid_lab.insight.states import blocks_below, hybrid_blocks
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.backward import run_backward
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.ops.framework.dtypes import is_floating


@dataclass
class OutermostCall:
    """One call of a HybridBlock that no other HybridBlock makes.

    path : attribute names from the top of the model, "" for the top itself
    args : of the call
    """

    path: str
    block: HybridBlock
    args: tuple[Any, ...]
    title: str = ""
    leaves: list[NDArray] = field(init=False)
    spec: Spec = field(init=False)

    def __post_init__(self) -> None:
        self.leaves, self.spec = flatten(self.args, f"the input of {self.block.name}")

    @property
    def name(self) -> str:
        """What to call the Block in a report: the title, else its own name, and its path unless it is the top."""
        return self.title or (f"{self.block.name} ({self.path})" if self.path else self.block.name)

    @property
    def types(self) -> str:
        """`f32[64,1,28,28], f32[64]`."""
        return ", ".join(format_type(leaf.shape, np.dtype(leaf.dtype)) for leaf in self.leaves)

    def tracked(self) -> list[NDArray]:
        """Copies of the input arrays; floating-point arrays have a gradient attached."""
        copies = [leaf.copy() for leaf in self.leaves]
        for leaf in copies:
            leaf.tape_link = None
            if is_floating(np.dtype(leaf.dtype)):
                leaf.attach_grad()
        return copies

    def arguments(self, leaves: Sequence[NDArray]) -> tuple[Any, ...]:
        """The arguments with other arrays in the place of the tensors."""
        return unflatten(self.spec, iter(leaves))


def outer_calls(net: Block, inputs: Sequence[object]) -> list[OutermostCall]:
    """The calls of outermost HybridBlocks in `net(*inputs)`, the first call of each Block, in order.

    Raises HybridLabError if `net` is no Block, has no HybridBlock, or calls none on these inputs.
    """
    if not isinstance(net, Block):
        raise HybridLabError(f"a Block is needed, not {type(net).__name__}")
    if not inputs:
        raise HybridLabError(f"give inputs to call {called(net)} on, as in net(x)")
    if isinstance(net, HybridBlock):
        with as_eager(net), unchanged(net), tape.Mode(False, False):
            net(*inputs)  # finishes a deferred initialization, and reports faults of the inputs
        return [OutermostCall("", net, tuple(inputs), variable_of(net))]
    if not hybrid_blocks(net):
        raise HybridLabError(f"{called(net)} has no HybridBlock: there is nothing to hybridize")
    calls: dict[int, OutermostCall] = {}
    handles = []
    for path, block in hybrid_blocks(net):
        inner = any(path.startswith(f"{outer}.") for outer, other in hybrid_blocks(net) if other is not block)
        if not inner:
            note = lambda block, args, path=path: calls.setdefault(  # noqa: E731
                id(block), OutermostCall(path, block, args, variable_of(net, path))
            )
            handles.append(block.register_forward_pre_hook(note))
    try:
        with as_eager(net), unchanged(net), tape.Mode(False, False):
            net(*inputs)
    finally:
        for handle in handles:
            handle.detach()
    if not calls:
        raise HybridLabError(f"{called(net)} called none of its HybridBlocks on these inputs")
    return list(calls.values())


@contextlib.contextmanager
def as_eager(net: Block) -> Iterator[None]:
    """Let every HybridBlock of the model run its code. The lab's view of the model does not change."""
    blocks = [block for _, block in hybrid_blocks(net) if access.runs_graphs(block)]
    try:
        for block in blocks:
            access.set_aside(block, True)
        yield
    finally:
        for block in blocks:
            access.set_aside(block, False)


@contextlib.contextmanager
def unchanged(net: Block) -> Iterator[None]:
    """Restore the values that a call may change: states without gradients (running statistics) and the count of draws.
    The lab does not show the results of the calls.
    """
    before = []
    for _, block in blocks_below(net):
        for parameter in access.own_parameters(block).values():
            if parameter.grad_req == "null":
                for array in access.arrays(parameter) or ():  # one per context
                    before.append((array, array.version, array.asnumpy().copy()))
    with random_state.preserved(), tool_runs():
        try:
            yield
        finally:
            for array, version, values in before:
                if array.version != version:
                    array.assign(values)


#: Runs one part of a compiled call; see Compiled.run_parts.
RunPart = Callable[[str, Executable, Graph, list[list[Any]]], Sequence[Sequence[Any]]]


@dataclass
class Compiled:
    """One call compiled as hybridize() does it: the program that runs, with the passes that led to it.

    call, training, recording : the compiled call; calls : a call of them runs `program`
    special : as the program's, with the stages of all passes
    arrays : NumPy arrays, one per input of the neutral graph; wrt_names : names of the backward's gradients
    alone : no other call uses `program`, so its parameters may be packed, and its draws are the next call's
    """

    call: OutermostCall
    training: bool
    recording: bool
    calls: GraphCalls
    program: CompiledCall
    special: Specialized
    arrays: list[np.ndarray]
    alone: bool = True

    @property
    def neutral(self) -> NeutralGraph:
        """The traced graph, without shapes and mode."""
        return self.program.neutral

    @property
    def prologue(self) -> Executable | None:
        """The part that runs again only when a parameter changed; None if there is none."""
        return self.program.prologue.executable if self.program.prologue is not None else None

    @property
    def forward(self) -> Executable:
        """The compiled forward graph."""
        return self.program.forward

    @property
    def backward(self) -> Executable | None:
        """The compiled backward graph; None in prediction."""
        return self.program.backward

    @property
    def wrt_names(self) -> list[str]:
        """Names of the inputs that get a gradient."""
        return [self.neutral.graph.inputs[index].node.name for index in self.special.wrt]

    @property
    def mode(self) -> str:
        """training or prediction, and whether the call is recorded."""
        return ("training" if self.training else "prediction") + (", recorded" if self.recording else "")

    @property
    def rng(self) -> tuple[int, int]:
        """Seed and first draw of the next call, without using them up."""
        if not self.alone:
            return 0, 0
        with random_state.preserved():
            return random_state.next_draws(self.neutral.graph.draws)

    def run_parts(self, heads: Sequence[object] | None, run: RunPart, sides: int = 1) -> None:
        """Run prologue, forward and - with head gradients - backward, each on the results of the parts before.

        run(part, executable, graph, inputs) : returns the results; part is "prologue", "forward" or "backward", graph
            the source of the executable. inputs and results are lists of arrays, one for each side
        sides : 2 runs every part twice, as a comparison does: on the results of either side
        """
        special, count = self.special, len(self.neutral.graph.outputs)
        hoisted: Sequence[Sequence[Any]] = [()] * sides
        if self.prologue is not None and special.prologue is not None:
            inputs = [[self.arrays[index] for index in special.prologue_sources]] * sides
            hoisted = run("prologue", self.prologue, special.prologue, inputs)
        inputs = [inputs_from(special.forward_sources, input=self.arrays, hoisted=side) for side in hoisted]
        packs = self.alone and not self.recording and not self.training
        if packs:
            self.forward.pack(inputs[0])
        results = run("forward", self.forward, special.forward, inputs)
        if packs:
            self.forward.unpack()
        if self.backward is not None and special.backward is not None and heads is not None:
            inputs = [
                inputs_from(special.sources, input=self.arrays, output=side[:count], saved=side[count:], head=heads)
                for side in results
            ]
            run("backward", self.backward, special.backward, inputs)

    def heads(self) -> list[np.ndarray]:
        """Head gradients: fixed random numbers, so that no sum of them vanishes by symmetry."""
        random = np.random.RandomState(5)
        outputs = self.special.forward.outputs[: len(self.neutral.graph.outputs)]
        return [random.uniform(-1, 1, value.shape).astype(value.dtype) for value in outputs]


def inputs_from(sources: Iterable[tuple[str, int]], **arrays: Sequence[object]) -> list[Any]:
    """The inputs of a graph from their sources: pairs of a kind of arrays and a position among them."""
    return [arrays[kind][index] for kind, index in sources]


def compile_call(call: OutermostCall, training: bool, recording: bool) -> Compiled:
    """Compile a call as hybridize() does. Raises HybridizeError if the code cannot become a graph.

    Existing traces are used, as in a call; the Block's own programs, flags and counts do not change.
    """
    block = call.block
    calls = access.calls(block).twin(traces=access.is_active(block) or bool(access.graphs(block).pinned))
    with unchanged(block), tape.Mode(recording, training):
        calls(call.arguments(call.tracked() if recording else call.leaves))
    if calls.failures.refusal is not None:
        raise calls.failures.refusal  # the call ran eagerly
    (program,) = calls.programs.values()
    context = call.leaves[0].context if call.leaves else None
    parameters = [parameter.data(context) for parameter in program.neutral.parameters]
    arrays = [array.raw() for array in (*call.leaves, *parameters)]
    shapes, dtypes = [array.shape for array in arrays], [array.dtype for array in arrays]
    wrt, count = program.special.wrt, program.neutral.num_data
    graph, precision = program.neutral.graph, program.precision
    special = specialize(graph, shapes, dtypes, training, wrt, num_data=count, keep=True, precision=precision)
    # The passes run again for their stages alone; the graphs are the program's own.
    special = replace(program.special, stages=special.stages)
    return Compiled(call, training, recording, calls, program, special, arrays)


def running_call(path: str, block: HybridBlock, program: CompiledCall, leaves: Sequence[NDArray]) -> Compiled:
    """A program that calls of the Block use, on these inputs, to be run part by part while others may call it too.

    Nothing of the model is called or changed. Raises UninitializedError for parameters without values.
    """
    neutral = program.neutral
    call = OutermostCall(path, block, unflatten(neutral.in_spec, iter(leaves)))
    parameters = [parameter.data(program.context) for parameter in neutral.parameters]
    arrays = [array.raw() for array in (*leaves, *parameters)]
    calls = access.calls(block)
    return Compiled(call, program.training, program.recording, calls, program, program.special, arrays, alone=False)


def run_hybrid(compiled: Compiled, heads: Sequence[np.ndarray] | None) -> tuple[list[np.ndarray], list[Any]]:
    """Outputs and gradients of a call of the compiled programs, through the tape."""
    with unchanged(compiled.call.block):
        return _run(compiled, heads, compiled.calls)


def run_eager(compiled: Compiled, heads: Sequence[np.ndarray] | None) -> tuple[list[np.ndarray], list[Any]]:
    """Outputs and gradients of the same call in eager mode."""
    block = compiled.call.block
    with as_eager(block), unchanged(block):
        return _run(compiled, heads, lambda args: block(*args))


def _run(
    compiled: Compiled, heads: Sequence[np.ndarray] | None, call: Callable[[tuple[Any, ...]], object]
) -> tuple[list[np.ndarray], list[object]]:
    leaves = compiled.call.tracked() if compiled.recording else compiled.call.leaves
    with tape.Mode(compiled.recording, compiled.training):
        result = call(compiled.call.arguments(leaves))
    outputs, _ = flatten(result, f"the output of {compiled.call.block.name}")
    arrays = [output.asnumpy() for output in outputs]
    if not compiled.recording or heads is None:
        return arrays, []
    parameters = [parameter.data() for parameter in compiled.neutral.parameters]
    sources = [*leaves, *parameters]
    return arrays, gradients(outputs, heads, [sources[index] for index in compiled.special.wrt])


def gradients(outputs: Sequence[NDArray], heads: Sequence[np.ndarray], sources: Sequence[NDArray]) -> list[Any]:
    """The gradient of each source as an array, None if no output depends on it."""
    pairs = [(output, head) for output, head in zip(outputs, heads, strict=True) if tape.link(output) is not None]
    if not pairs:
        return [None] * len(sources)
    links, head_arrays = zip(*pairs, strict=True)
    wrapped = [NDArray.wrap(np.array(head)) for head in head_arrays]
    wrapped = [head.as_np_ndarray() if link.is_np else head for head, link in zip(wrapped, links, strict=True)]
    by_link, _ = run_backward(links, wrapped, None, False, False)
    gradients = [None if array.tape_link is None else by_link.get(array.tape_link) for array in sources]
    return [to_host(item) if is_tensor(item) else item for item in gradients]
