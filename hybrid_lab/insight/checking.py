"""Check a compiled program step by step against the records' kernels, and look into the regions that hide operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.engines import Engine, Executable
from hybrid_lab.engines import registry as engines
from hybrid_lab.graph.custom import is_call_number
from hybrid_lab.graph.graph import Graph, extract
from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.insight.reference import (
    Values,
    changed,
    difference,
    in_float64,
    nearness,
    operands_of,
    region_in,
    region_values,
    run_node,
    tolerance,
    unlike,
)


@dataclass
class Check:
    """One operator of a compiled program, or a region of several.

    node : the operator; region : the number of its region; `whole` if the row is about the region itself; else None
    runs_on : the engine
    difference : from eager, relative to the largest value; what came before is in it
    own : the same, if the reference kernel got the very inputs that this operator got
    agrees : whether `own` is off by no more than rounding; remark : further facts
    unlike : why `own` is infinite, if it is
    """

    node: Node
    runs_on: str
    difference: float
    own: float
    tolerance: float
    agrees: bool
    region: int | None = None
    whole: bool = False
    remark: str = ""
    unlike: str = ""


@dataclass
class CheckedProgram:
    """A checked program: its checks in program order, its results, and the results of the reference."""

    checks: list[Check]
    results: list[np.ndarray]
    wanted: list[Any]


def check_program(
    executable: Executable,
    inputs: Sequence[Any],
    reference: Sequence[object],
    rng: tuple[int, int],
    gradient: bool,
) -> CheckedProgram:
    """Run a program and the reference kernels side by side.

    inputs : of the program; reference : the same inputs in eager mode; gradient : its tolerances
    """
    graph = executable.graph
    watched = executable.watched()
    hybrid: Values = dict(zip(graph.inputs, inputs, strict=True))
    wanted: Values = dict(zip(graph.inputs, reference, strict=True))
    for node in graph.nodes:
        if isinstance(node.op, Constant):
            hybrid[node.outputs[0]] = wanted[node.outputs[0]] = node.op.array

    def look(step: int, values: tuple[object, ...]) -> None:
        if step >= 0:
            for value, array in zip(watched.steps[step].outputs, values, strict=True):
                hybrid[value] = None if array is None else np.array(array)

    results = watched.run(inputs, rng, look)
    checker = _Checker(rng, gradient)
    for node in watched.steps:
        checker.step(node, hybrid, wanted)
    return CheckedProgram(checker.checks, results, [wanted[value] for value in graph.roots])


class _Checker:
    def __init__(self, rng: tuple[int, int], gradient: bool):
        self.rng, self.gradient = rng, gradient
        self.checks: list[Check] = []
        self.regions = 0

    def step(self, node: Node, hybrid: Values, wanted: Values) -> None:
        """Check one step; puts the reference's values of its outputs into `wanted`."""
        region = region_in(node)
        if region is None:
            wanted.update(zip(node.outputs, run_node(node, operands_of(node, wanted), self.rng), strict=False))
            alone = dict(zip(node.outputs, run_node(node, operands_of(node, hybrid), self.rng)))
            self.checks.append(self.check(node, hybrid, alone, wanted, "numpy"))
            return
        number, self.regions = self.regions, self.regions + 1
        inner_wanted = region_values(region, operands_of(node, wanted), self.rng)
        operands = operands_of(node, hybrid)
        inner_own = region_values(region, operands, self.rng)
        # Behind a region's outputs, a node may have the intermediate results of its kernels.
        outer = dict(zip(region.outputs, node.outputs, strict=False))
        wanted.update({out: inner_wanted[value] for value, out in outer.items()})
        own = {out: inner_own[value] for value, out in outer.items()}
        values = [value for inner in region.nodes for value in inner.outputs if inner_wanted.get(value) is not None]
        seen = expose(engines.find(node.op.name), region, values, operands, self.rng)
        inside = [] if seen is None else self.look_inside(region, operands, seen, inner_wanted, node.op.name)
        right: Values = {}
        if seen is not None and all(check.agrees for check in inside):
            right = {out: seen.get(value) for value, out in outer.items()}
        whole = self.check(node, hybrid, own, wanted, node.op.name, right)
        whole.whole = True
        if not whole.agrees:
            self.blame(whole, region, operands, inner_own, inside, outer, hybrid)
        for check in (whole, *inside):
            check.region = number
            self.checks.append(check)

    def check(
        self, node: Node, hybrid: Values, own: Values, wanted: Values, runs_on: str, right: Values | None = None
    ) -> Check:
        """Compare the outputs of one node that were computed.

        right : values known to be right within rounding; values near them need no second run of a region
        """
        apart = alone = allowed = 0.0
        fine, odd, runs = True, "", cache(partial(self.again, node, hybrid))

        def again(index: int, change: int) -> tuple[Any, Any] | None:
            pair = runs(change)
            return pair and (pair[0][index], pair[1][index])

        for index, value in enumerate(node.outputs):
            got = hybrid.get(value)
            if got is None or own.get(value) is None or is_call_number(value):
                continue
            limit = tolerance(got.dtype, self.gradient)
            allowed = max(allowed, limit)
            apart = max(apart, difference(got, wanted[value]))
            known = (right or {}).get(value)
            sure = known is not None and difference(got, known) <= limit
            good, distance, _ = nearness(got, own[value], limit, None if sure else partial(again, index))
            good = good or sure
            fine, alone = fine and good, max(alone, distance)
            odd = odd or unlike(got, own[value]) if np.isinf(distance) else odd
        return Check(node, runs_on, apart, alone, allowed, fine, unlike=odd)

    def again(self, node: Node, hybrid: Values, change: int) -> tuple[Any, Any] | None:
        """All outputs in float64 and in their dtypes; None if a kernel does not take float64."""
        try:
            operands = [changed(item, change) for item in operands_of(node, hybrid)]
            exact = run_node(node, [in_float64(item) for item in operands], self.rng)
            return exact, run_node(node, operands, self.rng)
        except Exception:  # a reference kernel may raise anything for float64, which it was not written for
            return None

    # -- inside regions --------------------------------------------------------------------------------------------

    def look_inside(
        self, region: Region, operands: Sequence[object], seen: Values, wanted: Values, runs_on: str
    ) -> list[Check]:
        """A check per operator of a region.

        seen : its values, from compiling it once more with all values as outputs
        """
        hybrid = dict(zip(region.inputs, operands, strict=True)) | seen
        checks = []
        for node in region.nodes:
            for item in node.values_in:
                if isinstance(item.node.op, Constant):
                    hybrid.setdefault(item, item.node.op.array)
            own = dict(zip(node.outputs, run_node(node, operands_of(node, hybrid), self.rng)))
            checks.append(self.check(node, hybrid, own, wanted, runs_on))
        return checks

    def blame(
        self,
        whole: Check,
        region: Region,
        operands: Sequence[object],
        own: Values,
        inside: list[Check],
        outer: dict[Value, Value],
        hybrid: Values,
    ) -> None:
        """Find the operator behind a wrong region whose operators are right by themselves: wrong only if fused."""
        if any(not check.agrees for check in inside):
            return

        def wrong(count: int) -> bool:
            last = [value for value in region.nodes[count - 1].outputs if own.get(value) is not None]
            seen = expose(engines.find(whole.runs_on), region, last, operands, self.rng) or {}
            return any(
                not nearness(seen[value], own[value], tolerance(value.dtype, self.gradient)).agrees
                for value in last
                if value in seen
            )

        first = _first_true(wrong, len(region.nodes))
        if first is not None:
            node, remark = region.nodes[first - 1], "only where it is compiled together with what comes before it"
        else:
            bad = next(
                value
                for value in region.outputs
                if not nearness(hybrid[outer[value]], own[value], tolerance(value.dtype, self.gradient)).agrees
            )
            node, remark = bad.node, "in the region as it runs; compiled separately it is right"
        for check in inside:
            if check.node is node:
                check.agrees, check.own, check.remark, check.unlike = False, whole.own, remark, whole.unlike
                return
        inside.append(replace(whole, node=node, agrees=False, whole=False, remark=remark))


def _first_true(test: Callable[[int], bool], count: int) -> int | None:
    """The smallest number in 1..count that passes, for a test that stays true once it is; None if none does."""
    low, high = 1, count
    while low < high:
        middle = (low + high) // 2
        if test(middle):
            high = middle
        else:
            low = middle + 1
    return low if count and test(low) else None


def expose(
    engine: Engine, region: Region, values: Sequence[Value], operands: Sequence[Any], rng: tuple[int, int]
) -> Values | None:
    """Values inside a region as the engine computes them; None if it cannot compile them as outputs."""
    if not values:
        return {}
    try:
        graph = extract(region.inputs, values, [f"x{index}" for index in range(len(region.inputs))], "inside")
        first = min((node.draw for node in region.nodes if node.draw is not None), default=0)
        results = always(engine).compile(graph)(list(operands), (rng[0], rng[1] + first))
    except HybridLabError:
        return None
    return dict(zip(values, results, strict=False))


def always(engine: Engine) -> Engine:
    """The engine without its minimum of work per region, so that it compiles single operators too."""
    worth = getattr(engine, "worth", None)
    return type(engine)(worth=lambda region: None) if worth is not None else engine  # type: ignore[call-arg]


def alone(engine: Engine, node: Node) -> tuple[Graph, Executable] | None:
    """One operator compiled by itself; None if the engine cannot."""
    inputs = tuple(dict.fromkeys(v for v in node.values_in if not isinstance(v.node.op, Constant)))
    try:
        graph = extract(inputs, node.outputs[: node.op.signature.visible], None, node.op.name)
        return graph, always(engine).compile(graph)
    except HybridLabError:
        return None
