"""Kernels to look at: the text, the operators of each and the reasons, and - compiled - the GPU resources they use."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import prod
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.engines.report import format_bytes
from hybrid_lab.engines.triton import tuning
from hybrid_lab.engines.triton.build import compiling, internals
from hybrid_lab.engines.triton.build.binaries import Binary
from hybrid_lab.engines.triton.build.resources import Resources
from hybrid_lab.engines.triton.build.targets import CHIPS, name_of, target_of
from hybrid_lab.engines.triton.plan import traffic
from hybrid_lab.engines.triton.plan.by_vendor import VendorRule
from hybrid_lab.engines.triton.plan.fusion import Fusion
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.run import availability
from hybrid_lab.engines.triton.write.choose import write_kernels
from hybrid_lab.engines.triton.write.kinds import contraction_of, is_product, is_reduction
from hybrid_lab.engines.triton.write.source import KernelSource
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.graph.printer import format_type
from hybrid_lab.system.provided import Provided

if TYPE_CHECKING:
    from hybrid_lab.engines.triton.run.steps import KernelOperator

#: Why torch's call runs in the place of a kernel.
_MEASURED = "torch's own product was measured to be faster (mx.tune) and runs in the place of this kernel"
_BY_RULE = "the vendor's library computes this product by rule; hybridize(products='own') runs this kernel instead"

kernel_html: Provided[[FusedKernel], str] = Provided("kernel_html")


@dataclass(frozen=True)
class KernelNode:
    """An operator in a kernel. type : of its output; block : path of the Block that called it; line : `net.py:12`
    composite : the operator that it is a part of, "softmax3", or ""; view : it moves no data, it is another place to
        read at
    """

    operator: str
    type: str
    block: str
    line: str
    composite: str = ""
    view: bool = False

    def __str__(self) -> str:
        part = f"part of {self.composite}" if self.composite else ""
        origin = ", ".join(text for text in (self.block, part, self.line) if text)
        return f"{self.operator} -> {self.type}" + (f"   # {origin}" if origin else "")


@dataclass(eq=False)
class FusedKernel:
    """One launch of a kernel in a graph.

    name, kind : "sub_exp_mul", "pointwise"; part : of the model's call, "forward", "backward", "update" ...
    nodes : the operators in it, views too, in order
    why : why the operators are together, and why their neighbours are apart
    source : the generated text; blocks : elements of a tile along each axis; programs : along each axis of the launch
    bytes_moved : bytes read and written (see traffic.py); flops : operations, roughly: one for an element of a
        pointwise operator, two for each product
    target : what `ttir`, `asm` and `resources` are of: this machine's GPU, or None if there is none. `on("gfx942")`
        is the same kernel compiled for another one
    """

    name: str
    kind: str
    part: str
    nodes: tuple[KernelNode, ...]
    why: tuple[str, ...]
    source: str
    blocks: dict[str, int]
    programs: tuple[int, ...]
    bytes_moved: int
    flops: int
    dtype: str
    generated: KernelSource = field(repr=False)
    target: str | None = None
    problem: str = ""

    @property
    def operators(self) -> int:
        """How many operators it holds, views left out."""
        return sum(not node.view for node in self.nodes)

    def on(self, target: str) -> FusedKernel:
        """The kernel for a GPU that need not be here. It is compiled on first access to a result of the compilation.

        Raises EngineError for an unknown target.
        """
        return self.compiled_as(name_of(target_of(target)), None)

    def compiled_as(self, target: str, binary: Binary | None, problem: str = "") -> FusedKernel:
        """The same kernel with a target. binary : None compiles it when it is asked for; problem : why it has none"""
        kernel = replace(self, target=target, problem=problem)
        if binary is not None or problem:
            kernel.__dict__["binary"] = binary
        return kernel

    @functools.cached_property
    def binary(self) -> Binary | None:
        """The compiled kernel; None without a target. Raises EngineError if it does not compile."""
        if self.target is None:
            return None
        return compiling.compile_all([self.generated], self.target)[0]

    @property
    def ttir(self) -> str | None:
        """Triton's own form of it, or None without a target."""
        return None if self.binary is None else self.binary.ttir

    @property
    def asm(self) -> str | None:
        """AMD's instructions or NVIDIA's PTX, as text, or None without a target."""
        return None if self.binary is None else self.binary.assembly

    @property
    def resources(self) -> Resources | None:
        """Registers, spills, shared memory and the size of the binary, or None without a target."""
        return None if self.binary is None else self.binary.resources

    @property
    def estimate(self) -> float | None:
        """Seconds that the target's chip needs at the least, by its data sheet: an estimate. None for unknown chips."""
        chip = CHIPS.get(self.target or "")
        return None if chip is None else chip.seconds(self.bytes_moved, self.flops, self.dtype)

    @functools.cached_property
    def time(self) -> float | None:
        """Seconds of a launch on this machine's GPU, the median of 20; None if there is none, or it is another, and
        for an update, whose tables are of weights.
        """
        other = self.target is None or self.target != target_here()
        return None if other or self.kind == "update" else measured(self.generated)

    def data(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers; `time` is None until it was asked for."""
        names = ("name", "kind", "part", "target", "source", "bytes_moved", "flops", "dtype", "problem", "estimate")
        data: dict[str, Any] = {name: getattr(self, name) for name in names}
        resources = None if self.resources is None else self.resources.data()
        return data | {
            "nodes": [asdict(node) for node in self.nodes],
            "why": list(self.why),
            "blocks": dict(self.blocks),
            "programs": list(self.programs),
            "resources": resources,
            "time": self.__dict__.get("time"),
        }

    @property
    def headline(self) -> str:
        """`sub_exp, pointwise; 32 programs with BLOCK = 1024; 128.0 KiB moved`."""
        tiles = ", ".join(f"{name} = {size}" for name, size in self.blocks.items())
        programs = f"{' x '.join(map(str, self.programs))} programs" if prod(self.programs) != 1 else "1 program"
        head = f"{self.name}, {self.kind}; {programs}"
        return f"{head}{f' with {tiles}' * bool(tiles)}; {format_bytes(self.bytes_moved)} moved"

    def __str__(self) -> str:
        lines = [f"# {self.headline}", *(f"# {text}" for text in self.why)]
        if self.target is not None:
            lines.append(f"# on {self.target}: {self.problem.splitlines()[0] if self.problem else self.resources}")
        return "\n".join([*lines, self.source])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return kernel_html(self)


def target_here() -> str | None:
    """The name of this machine's GPU as a target, or None."""
    if availability.interpreting() or availability.missing() is not None:
        return None
    return name_of(internals.target_here())


def measured(source: KernelSource, runs: int = 20) -> float:
    """Seconds of a launch on this machine's GPU, with arrays of zeros: the median."""
    import torch

    from hybrid_lab.engines.memory import torch_dtype
    from hybrid_lab.engines.triton.run.kernel import Kernel

    where = availability.torch_device()
    values = (*source.inputs, *source.outputs)
    arrays = [torch.zeros(value.shape, dtype=torch_dtype(value.dtype), device=where) for value in values]
    launch, stream = Kernel(source).bound(arrays), availability.current_stream()
    times = []
    for _ in range(runs + 3):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        launch(stream)
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / 1e3)
    return statistics.median(times[3:])


def kernels_of_graphs(
    graphs: Mapping[str, Graph | None], precision: str = "ieee", tuned: bool = False, rule: VendorRule | None = None
) -> tuple[list[FusedKernel], list[tuple[str, Fusion]]]:
    """The kernels of graphs by the graph's role - "forward", "backward" ... - and the reasons of each fusion.

    precision : as of other_batches.kernels_of; tuned : with the tiles that `mx.tune` has found for this machine's GPU
    rule : which products the vendor's library computes; our own kernels for them are listed, and say so
    """
    kernels, fused = [], []
    for part, graph in graphs.items():
        if graph is not None:
            lowered, fusion, _ = kernels_of(graph, precision, rule)
            update = _update(graph, part) if part.startswith("update") else None
            kernels += kernels_in(lowered, fusion, part, tuned, precision) if update is None else [update]
            fused.append((part, fusion))
    return kernels, fused


def _update(graph: Graph, part: str) -> FusedKernel | None:
    """The launch that makes an optimizer's step for all weights; None if there is none."""
    from hybrid_lab.engines.triton.run.update import DeviceUpdate

    try:
        update = DeviceUpdate([graph])
    except EngineError:
        return None
    group, source = update.functions[0].group, update.for_elements(graph.inputs[0].shape[0])
    why = ("one launch for all weights, which finds them by tables of addresses and sizes",)
    return _kernel(source, group, 0, group.bytes_in + group.bytes_out, why, part, target_here())


def kernels_in(
    graph: Graph, fusion: Fusion, part: str = "", tuned: bool = False, precision: str = "ieee"
) -> list[FusedKernel]:
    """The kernels of a graph (see other_batches.kernels_of) in the order in which they run.

    tuned, precision : as kernels_of_graphs
    """
    users = graph.users()
    here = target_here()
    kernels = []
    position = {node: index for index, node in enumerate(fusion.graph.nodes)}
    for group in sorted((*fusion.groups, *fusion.by_vendor), key=lambda group: position[group.nodes[0]]):
        reads, why = traffic.looked_at(group.nodes), _why(group, fusion, users)
        by_rule = group not in fusion.kernels
        if by_rule and not is_product(group.nodes[-1]):
            continue  # a recurrent layer, which our own kernels compute in many parts
        plain = write_kernels(group, precision=precision) if by_rule else fusion.kernels[group]
        form: Any = plain
        if by_rule or tuned:
            form = tuning.chosen_by_vendor(group, precision) if by_rule else tuning.chosen(group, plain)
        if not isinstance(form[0], KernelSource):
            form = plain
            why.append(_BY_RULE if by_rule else _MEASURED)
        for number, source in enumerate(form):
            moved = traffic.moved_by(source, reads)
            kernels.append(_kernel(source, group, number, moved, tuple(why), part, here))
    return kernels


def launches_of(op: KernelOperator) -> list[FusedKernel]:
    """The kernels of one step of a device program - not the vendor's - without the reasons of the fusion, which it
    does not keep.
    """
    reads = traffic.looked_at(op.region.nodes)
    return [
        _kernel(kernel.source, op.region, number, traffic.moved_by(kernel.source, reads), (), "", None)
        for number, kernel in enumerate(op.kernels)
        if isinstance(kernel.source, KernelSource)
    ]


def moved_by_step(op: KernelOperator) -> int:
    """Bytes that a step of a device program reads and writes."""
    others = [kernel.source for kernel in op.kernels if not isinstance(kernel.source, KernelSource)]
    vendors = sum(value.nbytes for source in others for value in (*source.inputs, *source.outputs))
    return vendors + sum(launch.bytes_moved for launch in launches_of(op))


def compiled_for(kernels: Sequence[FusedKernel], target: str) -> list[FusedKernel]:
    """The kernels compiled for a target, all at once; a kernel that does not compile has the reason in its `problem`.

    Raises EngineError for an unknown target, EngineUnavailable if Triton is missing.
    """
    failed: dict[int, str] = {}
    binaries = compiling.compile_all([kernel.generated for kernel in kernels], target, failed)
    return [
        kernel.compiled_as(target, binary, failed.get(index, ""))
        for index, (kernel, binary) in enumerate(zip(kernels, binaries, strict=True))
    ]


def _kernel(
    source: KernelSource, group: Region, number: int, moved: int, why: tuple[str, ...], part: str, here: str | None
) -> FusedKernel:
    nodes = tuple(map(_node, group.nodes))
    # If several kernels make a group the first one does the work.
    flops = sum(map(flops_of, group.nodes)) if number == 0 else sum(prod(value.shape) for value in source.outputs)
    return FusedKernel(
        source.name, source.kind, part, nodes, why, source.text, dict(source.blocks), source.programs(source.blocks),
        moved, flops, _dtype(group), source, here,
    )  # fmt: skip


def _node(node: Node) -> KernelNode:
    place, output = node.location, node.outputs[0]
    line = f"{PurePath(place.file).name}:{place.line}" if place is not None else ""
    return KernelNode(
        repr(node.op).removesuffix("()"), format_type(output.shape, output.dtype), node.scope, line, node.composite,
        node.op.view,
    )  # fmt: skip


def flops_of(node: Node) -> int:
    """Operations of an operator, roughly: two for each product, else one for each element that it reads or makes."""
    if node.op.view:
        return 0
    product = contraction_of(node)
    if product is not None:
        return 2 * prod((*product.batch, *product.rows, *product.columns, *product.inner))
    if is_reduction(node):
        return prod(node.values_in[0].shape)
    return sum(prod(value.shape) for value in node.outputs)


def _dtype(group: Region) -> str:
    """The dtype in which the kernel computes, as the tables of chips name it."""
    dtypes = {value.dtype.name for node in group.nodes for value in node.values_in if value.dtype.kind not in "biu"}
    dtypes -= {"float64"} if "float32" in dtypes else set()
    if "float64" in dtypes:
        return "float64"
    return "float32" if "float32" in dtypes or not dtypes else "float16"


def _why(group: Region, fusion: Fusion, users: Any) -> list[str]:
    """Why the operators share a kernel, and why those before and after them do not."""
    inside = set(group.nodes)
    inner = [value for node in group.nodes if not node.op.view for value in node.outputs if value not in group.outputs]
    real = [node for node in group.nodes if not node.op.view]
    lines = []
    if len(real) > 1:
        spared = 2 * sum(value.nbytes for value in inner)
        lines.append(
            f"together: {count(len(real), 'operator')}, so that {format_bytes(spared)} between them are neither "
            "written nor read"
        )
    before: dict[str, None] = {}
    for value in group.inputs:
        node = _producer(value)
        if isinstance(node.op, (Input, Constant)):
            continue
        reason = fusion.refused.get(node) or fusion.apart.get(node)
        if reason:
            before[f"apart from {_called(node)} before it: {reason}"] = None
    after: dict[str, None] = {}
    for value in group.outputs:
        node = value.node
        if node in fusion.apart and any(reader not in inside for reader in users.get(value, ())):
            after[f"{_called(node)} is apart from what reads it: {fusion.apart[node]}"] = None
    return [*lines, *before, *after]


def _producer(value: Value) -> Node:
    """Who makes it, through views."""
    node = value.node
    while node.op.view and node.values_in:
        node = node.values_in[0].node
    return node


def _called(node: Node) -> str:
    return f"{node.op.name} in {node.scope}" if node.scope else node.op.name
