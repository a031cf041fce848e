"""Kernel tuning: measure on the GPU with which tiles a kernel is fastest, and whether the vendor's library is faster.

Only `mx.tune` measures. Every later compile of the kernel on the same kind of chip uses the result, in later
processes too (tuning_results.py). A candidate is first compared with the kernel that has the rule's tiles, on the
same random numbers. A candidate that does not compile, gives other numbers or needs too much memory is left out, and
the result says so. If tuning ends early, the results so far are kept. On a CPU `mx.tune` measures engines instead
(insight/tune_engines.py).

Four parts need one another. The candidates, and the rule without measuring, are write/tiles.py and tiles.json. Here a
candidate is checked and timed: half of it sees that no candidate with other numbers is ever kept. tuning_results.py
keeps results by chip, and `chosen` and `chosen_by_vendor` apply them in every compile.

Products that are the vendor's by rule do not make the tiles needless: a product with short sums, attention in float32
and every product of `products="own"` stay ours (docs/rooms/triton.md, "Products that stay ours").
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import EngineError, EngineUnavailable
from hybrid_lab.diagnostics.formatting import first_line
from hybrid_lab.engines import memory
from hybrid_lab.engines.triton import tuning_results
from hybrid_lab.engines.triton.build import internals
from hybrid_lab.engines.triton.plan.by_vendor import rule_here
from hybrid_lab.engines.triton.plan.other_batches import kernels_of, values_of
from hybrid_lab.engines.triton.run import availability
from hybrid_lab.engines.triton.run.capture import same_bits
from hybrid_lab.engines.triton.run.kernel import Kernel
from hybrid_lab.engines.triton.run.vendor import VendorKernel, by_vendor, vendor_form
from hybrid_lab.engines.triton.tuning_results import RULE, TILES, VENDOR, TuningResult
from hybrid_lab.engines.triton.write import tiles
from hybrid_lab.engines.triton.write.choose import write_kernels
from hybrid_lab.engines.triton.write.kinds import is_product
from hybrid_lab.engines.triton.write.source import KernelSource, power_of_two
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Value
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.system.progress import Progress

#: How far results may lie apart, relative to the largest: sums in another order, by dtype; what tf32 rounds to 10 bits.
TOLERANCES = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
TF32 = 5e-3
#: A candidate must need less than this part of the rule's time.
MARGIN = 0.97
#: Seconds that a candidate is timed for, and how many runs that are at the least and at the most.
BUDGET, FEWEST, MOST = 0.05, 5, 30
#: More registers that go to memory are not worth a measurement.
SPILLS = 16
#: Bytes that are written between two runs, more than any chip's second-level cache holds.
FLUSH = 256 << 20

#: The form of a group: sources of kernels, or the vendor's call and kernels behind it.
Form = tuple[Any, ...]


@dataclass(frozen=True)
class TunedKernel:
    """A kernel and its fastest form. name, kind : of the kernel; measured : now, instead of read from the store"""

    name: str
    kind: str
    result: TuningResult
    measured: bool

    @property
    def best(self) -> str:
        """The candidate that won, by its name in the result's `seconds`."""
        return "rule" if self.result.way == RULE else "vendor" if self.result.way == VENDOR else _title(self.result)

    @property
    def gain(self) -> float:
        """The rule's time over the winner's."""
        seconds = self.result.seconds
        return seconds["rule"] / seconds[self.best] if seconds.get(self.best) else 1.0

    def __str__(self) -> str:
        times = ", ".join(f"{name} {1e6 * each:.1f} µs" for name, each in self.result.seconds.items())
        left = "".join(f"; left out {name}: {reason}" for name, reason in self.result.left_out.items())
        return f"{self.name}: {self.best}, {self.gain:.2f} x the rule ({times}{left})"


class GpuBench:
    """This machine's GPU, where candidates run and are timed.

    target : its architecture; chip : its name in the keys of results
    """

    def __init__(self) -> None:
        if (missing := availability.missing()) is not None:
            raise EngineUnavailable(f"tuning measures on a GPU: {missing}")
        if availability.interpreting():
            raise EngineUnavailable("tuning measures on a GPU; times of Triton's interpreter say nothing")
        self.target, self.chip = availability.device().name, availability.chip()
        self._flush = memory.empty((FLUSH,), memory.torch_dtype("uint8"), availability.torch_device())

    def prepare(self, sources: Sequence[KernelSource]) -> dict[int, str]:
        """Make kernels ready to run; by position, why one could not be."""
        from hybrid_lab.engines.triton.build import compiling

        failed: dict[int, str] = {}
        binaries = compiling.compile_all(sources, internals.target_here(), failed)
        for index, binary in enumerate(binaries):
            if binary is not None and binary.resources.spills > SPILLS and index not in failed:
                failed[index] = f"{binary.resources.spills} registers would go to memory"
        return failed

    def seconds(self, run: Callable[[], None]) -> float:
        """The median, with a cold cache; of a launch that takes the host longer than the GPU, the host's time."""
        import torch

        run()
        torch.cuda.synchronize()
        started = time.perf_counter()
        run()
        torch.cuda.synchronize()
        count = int(min(max(BUDGET / max(time.perf_counter() - started, 1e-6), FEWEST), MOST))
        host, pairs = [], []
        for _ in range(count):
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            self._flush.zero_()  # long enough for the host to launch ahead
            start.record()
            before = time.perf_counter()
            run()
            host.append(time.perf_counter() - before)
            stop.record()
            pairs.append((start, stop))
        torch.cuda.synchronize()
        device = statistics.median(start.elapsed_time(stop) for start, stop in pairs) / 1e3
        return max(device, statistics.median(host))


# -- the arguments of a compile ----------------------------------------------------------------------------------------


def chosen(group: Region, kernels: Sequence[KernelSource]) -> Form:
    """The kernels of a group with the tiles that tuning found fastest; the given kernels if they were not tuned."""
    if not kernels or tuning_results.is_empty() or not _is_tunable(kernels):
        return tuple(kernels)
    result = tuning_results.recall(tuning_results.key_of(kernels, availability.chip()))
    return tuple(kernels) if result is None else _form(result, group, kernels)


def chosen_by_vendor(group: Region, precision: str) -> Form:
    """The call for a product that is the vendor's by rule; our kernel if tuning has found it faster.

    precision : how float32 factors are multiplied
    """
    if not tuning_results.is_empty() and is_product(group.nodes[-1]):
        kernels = write_kernels(group, precision=precision)
        result = tuning_results.recall(tuning_results.key_of(kernels, availability.chip()))
        if result is not None and result.way != VENDOR:
            return _form(result, group, kernels)
    return (by_vendor(group, precision),)


def _is_tunable(kernels: Sequence[KernelSource]) -> bool:
    return bool({"INNER", "KEYS"} & set(kernels[0].tiled)) or kernels[0].kind == "rows"


def _form(result: TuningResult, group: Region, kernels: Sequence[KernelSource]) -> Form:
    if result.way == VENDOR:
        return vendor_form(group, kernels) or tuple(kernels)
    if result.way == TILES and set(result.blocks) == set(kernels[0].blocks):
        blocks = {name: _block(name, size, kernels[0]) for name, size in result.blocks.items()}
        return (replace(kernels[0], blocks=blocks, warps=result.warps, stages=result.stages), *kernels[1:])
    return tuple(kernels)


def _block(name: str, size: int, source: KernelSource) -> int:
    """A tile's size for these arrays, if it was found for others of about their size: none larger than they are."""
    if name not in source.tiled or source.kind == "rows":
        return source.blocks[name]
    return min(size, power_of_two(source.tiled[name], tiles.LEAST))


# -- measuring ---------------------------------------------------------------------------------------------------------


def tune(
    graphs: Iterable[Graph], precisions: Callable[[str], str], bench: GpuBench | None = None, again: bool = False,
    products: str | None = None,
) -> list[TunedKernel]:  # fmt: skip
    """Find the best candidate for each product, attention and row reduction of these graphs.

    precisions : target -> how float32 is multiplied there; again : those too that were found at an earlier time
    products : as hybridize() takes it
    Raises EngineUnavailable without a GPU. After an interrupt the results so far are kept.
    """
    bench = GpuBench() if bench is None else bench
    groups: dict[str, tuple[Region, tuple[KernelSource, ...]]] = {}
    for graph in graphs:
        precision = precisions(bench.target)
        fusion = kernels_of(graph, precision, rule_here(products, False, precision))[1]
        written = {group: tuple(fusion.kernels[group]) for group in fusion.groups}
        written |= {
            group: write_kernels(group, precision=precision)
            for group in fusion.by_vendor
            if is_product(group.nodes[-1])
        }
        for group, kernels in written.items():
            if _is_tunable(kernels):
                groups.setdefault(tuning_results.key_of(kernels, bench.chip), (group, kernels))
    known = {key: tuning_results.recall(key) for key in groups}
    waiting = [key for key in groups if again or known[key] is None]
    candidates = {key: candidates_of(*groups[key], bench.target) for key in waiting}
    broken = _prepared(candidates, bench)
    progress = Progress(f"tuning for {bench.target}", len(waiting))
    tuned = []
    try:
        for key, (group, kernels) in groups.items():
            name = kernels[-1].name
            result = known[key]
            if key in candidates:
                try:
                    result = _measured(group, kernels, candidates[key], broken[key], bench)
                    tuning_results.remember(key, name, result)
                except EngineError as error:  # its arrays are too large to be there a second time
                    result = TuningResult(RULE, left_out={"all": first_line(error)})
            assert result is not None
            tuned.append(TunedKernel(name, kernels[0].kind, result, key in candidates))
            progress.step(sum(each.measured for each in tuned), name)
    finally:
        progress.close()
    return tuned


def measure(
    group: Region, kernels: Sequence[KernelSource], bench: GpuBench, only: Sequence[str] | None = None
) -> TuningResult:
    """Check and time the candidates of one group; the result is not kept and changes no later compile.

    only : candidates by their names in reports, "rule" among them; None for all
    """
    form = tuple(kernels)
    forms = {
        title: item for title, item in candidates_of(group, form, bench.target).items() if only is None or title in only
    }
    return _measured(group, form, forms, _prepared({"": forms}, bench)[""], bench)


def candidates_of(
    group: Region, kernels: tuple[KernelSource, ...], target: str
) -> dict[str, tuple[TuningResult, Form]]:
    """The candidates, by their names in reports: the rule first."""
    candidates: dict[str, tuple[TuningResult, Form]] = {"rule": (TuningResult(RULE), kernels)}
    first = kernels[0]
    for item in tiles.configurations(first, target):
        if (dict(item.blocks), item.warps, item.stages) != (dict(first.blocks), first.warps, first.stages):
            result = TuningResult(TILES, dict(item.blocks), item.warps, item.stages)
            candidates[_title(result)] = (result, _form(result, group, kernels))
    form = vendor_form(group, kernels)
    if form is not None:
        candidates["vendor"] = (TuningResult(VENDOR), form)
    return candidates


def _title(result: TuningResult) -> str:
    stages = f", {result.stages} stages" if result.stages is not None else ""
    return f"{' x '.join(map(str, result.blocks.values()))}, {result.warps} warps{stages}"


def _prepared(
    candidates: Mapping[str, Mapping[str, tuple[TuningResult, Form]]], bench: GpuBench
) -> dict[str, dict[str, str]]:
    """Compile all candidates at once; key -> candidate -> why it is not to be tried."""
    places, sources = [], []
    for key, forms in candidates.items():
        for title, (_, form) in forms.items():
            for source in form:
                if not isinstance(source, VendorKernel):
                    places.append((key, title))
                    sources.append(source)
    broken: dict[str, dict[str, str]] = {key: {} for key in candidates}
    for index, reason in bench.prepare(sources).items():
        key, title = places[index]
        broken[key][title] = f"is not tried: {reason.splitlines()[0]}"
    return broken


def _measured(
    group: Region, kernels: Sequence[KernelSource], candidates: Mapping[str, tuple[TuningResult, Form]],
    broken: Mapping[str, str], bench: GpuBench,
) -> TuningResult:  # fmt: skip
    """Check and time the candidates of one group."""
    left_out = {title: reason for title, reason in broken.items() if title != "rule"}  # which runs anyway
    seconds: dict[str, float] = {}
    read = {value for _, form in candidates.values() for source in form for value in source.inputs}
    arrays, expected = _arrays(read, group), list[Any]()
    if not _finite(candidates["rule"][1], group, arrays):
        arrays = _arrays(read, group, positive=True)
    for title, (_, form) in candidates.items():
        if title in left_out:
            continue
        try:
            tensors, run = _bound(form, arrays)
            run()
            results = [tensors[value] for value in group.outputs]
            if title == "rule":
                expected = [tensor.clone() for tensor in results]
            elif reason := _differs(expected, results, kernels):
                left_out[title] = reason
                continue
            elif isinstance(form[0], VendorKernel):
                first = [tensor.clone() for tensor in results]
                run()
                if not all(map(same_bits, first, results)):
                    left_out[title] = "gives other numbers from run to run"
                    continue
            seconds[title] = bench.seconds(run)
        except Exception as error:  # torch, the driver and Triton's launcher have each their own
            if title == "rule":
                raise
            left_out[title] = f"fails: {first_line(error)}"
    best = min(seconds, key=lambda title: seconds[title] * (MARGIN if title == "rule" else 1.0))
    return replace(candidates[best][0], seconds=seconds, left_out=left_out)


def _finite(form: Form, group: Region, arrays: Mapping[Value, object]) -> bool:
    """Whether most results of the group for these numbers can be compared."""
    tensors, run = _bound(form, arrays)
    run()
    results = [tensors[value] for value in group.outputs if tensors[value].is_floating_point()]
    return all(float(tensor.isfinite().double().mean()) > 0.5 for tensor in results)


def _arrays(values: set[Value], group: Region, positive: bool = False) -> dict[Value, Any]:
    """Random numbers of a fixed seed for the inputs of the group; whole numbers are 0 and 1, which are valid indices
    everywhere.
    """
    import torch

    device = availability.torch_device()
    random = torch.Generator(device).manual_seed(0)
    inside = {value for node in group.nodes for value in node.outputs}
    arrays = {}
    for value in values_of(group.nodes):
        if value not in values or value in inside:
            continue
        if isinstance(value.node.op, Constant):
            arrays[value] = memory.to_device(np.ascontiguousarray(value.node.op.array), device)
            continue
        array = arrays[value] = memory.empty(value.shape, memory.torch_dtype(value.dtype), device)
        if value.dtype.kind in "iub":
            array.random_(0, 2, generator=random)
        else:
            array.normal_(generator=random)
            if positive:
                array.abs_().add_(0.1)
    return arrays


def _bound(form: Form, arrays: Mapping[Value, object]) -> tuple[dict[Value, Any], Callable[[], None]]:
    """Memory for the results of a candidate, and a function that runs it."""
    device = availability.torch_device()
    tensors = dict(arrays)
    for source in form:
        for value in source.outputs:
            tensors[value] = memory.empty(value.shape, memory.torch_dtype(value.dtype), device)
    launches: list[Callable[[int], None]] = []
    for source in form:
        kernel = source if isinstance(source, VendorKernel) else Kernel(source)
        if isinstance(kernel, Kernel):
            kernel.blocks = dict(source.blocks)  # in the interpreter, too
        launches.append(kernel.bound([tensors[value] for value in (*source.inputs, *source.outputs)]))
    interpreted = availability.device().interpreted

    def run() -> None:
        stream = 0 if interpreted else availability.current_stream()
        for launch in launches:
            launch(stream)

    return tensors, run


def _differs(expected: Sequence[Any], results: Sequence[Any], kernels: Sequence[KernelSource]) -> str:
    """Why results do not count as the rule's, or ""."""
    import torch

    for one, other in zip(expected, results, strict=True):
        if not one.is_floating_point():
            if not torch.equal(one, other):
                return "gives other numbers"
            continue
        name = str(one.dtype).removeprefix("torch.")
        allowed = max(TOLERANCES[name], TF32 if kernels[0].precision == "tf32" else 0.0)
        one, other = one.double(), other.double()
        finite = one[torch.isfinite(one)]
        scale = float(finite.abs().max()) if finite.numel() else 1.0
        if not torch.allclose(other, one, rtol=0, atol=allowed * (scale or 1.0), equal_nan=True):
            return "gives other numbers"
    return ""
