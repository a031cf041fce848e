"""compare: eager and hybrid side by side, node by node, forward and gradient; the first node that differs by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import called
from hybrid_lab.engines import Executable
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node
from hybrid_lab.hybridize.stale.code import of_user
from hybrid_lab.insight.calls import Compiled, compile_call, gradients, outer_calls, run_eager, run_hybrid
from hybrid_lab.insight.checking import Check, CheckedProgram, check_program
from hybrid_lab.insight.difference import BlockDifference, ModelDifference, by_block
from hybrid_lab.insight.eager import listen
from hybrid_lab.insight.graph_diff import GraphSide, diff_graphs
from hybrid_lab.insight.origins import first_changed, first_miscompiled, first_untrue
from hybrid_lab.insight.reference import ROUNDING, changed, in_float64, nearness, tolerance, unlike
from hybrid_lab.insight.report import InsightReport
from hybrid_lab.insight.table import (
    Column,
    OperatorRow,
    Row,
    Table,
    code,
    count,
    folded,
    operator_text,
    row_of,
    short_line,
    types_text,
    wrapped,
)
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.interpret import interpret
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.system.progress import shows_work

_SHOWN = 40
"""Rows that are printed at most; `data()` has all of them."""
_DETAILED = 3
"""Differences beside the first that are printed in full."""


@dataclass
class NodeRow(OperatorRow):
    """One operator of a compiled program, or a region of several (`inside` is then False and `region` its number).

    difference : from eager; own : from the reference kernel on the same inputs; both relative to the largest value.
        An operator that agrees though `own` is large is as near to float64 as eager: its sums cancel
    """

    difference: float
    own: float
    tolerance: float
    agrees: bool
    region: int | None
    inside: bool
    remark: str


@dataclass
class ValueRow:
    """An output or gradient of the call ("output 0", "gradient of conv0_weight") and the distance of hybrid from eager.

    unlike : if the difference is infinite, why: "NaN in eager at 8 places, a number in hybrid"
    rounding : if it agrees though the difference is larger than the tolerance, because sums cancel and eager's own
        numbers are mostly rounding: hybrid's distance from the value in float64 by eager's rounding errors
    """

    value: str
    difference: float
    tolerance: float
    agrees: bool
    unlike: str = ""
    rounding: float | None = None

    def __str__(self) -> str:
        return f"{self.value}: {self.unlike}" if self.unlike else f"{self.value} differs by {self.difference:.1e}"


@dataclass
class Difference:
    """A place where eager and hybrid differ.

    layer : "kernel" (an operator computes something else), "pass" (a pass changed the numbers), "code" (the code no
        longer computes the graph) or "call" (the graphs are right, something around them is not)
    operator, type, block, line, place, excerpt : the operator and its source; text : the fault, as a sentence
    made_by : the class of the Block if the Block is a layer of this package, whose own code is not shown
    """

    layer: str
    operator: str
    type: str
    block: str
    line: str
    place: str
    excerpt: str
    text: str
    made_by: str = ""

    def __str__(self) -> str:
        lines = wrapped(f"{self.operator}{f' -> {self.type}' if self.type else ''}", "  ")
        block = f"made in block {self.block} ({self.made_by})" if self.made_by else f"block {self.block}"
        lines += wrapped(block, "  ") if self.block else []
        lines += wrapped(self.place, "  ") if self.place else []
        lines += self.excerpt.split("\n") if self.excerpt else []
        return "\n".join([*lines, *wrapped(self.text, "  ")])

    __repr__ = __str__


@dataclass
class CallComparison:
    """One call of an outermost HybridBlock in one mode."""

    name: str
    types: str
    mode: str
    engine: str
    where: str
    values: list[ValueRow] = field(default_factory=list)
    nodes: list[NodeRow] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether all values agree within the limits."""
        return not self.differences and all(row.agrees for row in self.values)

    @property
    def headline(self) -> str:
        """One line: whether hybrid equals eager, and the largest difference."""
        largest = max((row.difference for row in self.values if row.rounding is None), default=0.0)
        odd = next((row.unlike for row in self.values if row.unlike), "")
        rounded = [row.rounding for row in self.values if row.rounding is not None]
        nodes = sum(not (row.region is not None and not row.inside) for row in self.nodes)
        verdict = "equal" if self.equal else "NOT EQUAL"
        measures = [odd or f"largest difference {largest:.1e}"] if len(rounded) < len(self.values) else []
        if rounded:
            depend = "values depend" if len(rounded) > 1 else "value depends"
            measures.append(
                f"{len(rounded)} {depend} on rounding, in eager too: at most {max(rounded):.1f} times as far from "
                f"float64 as eager's rounding ({ROUNDING:.0f} is allowed)"
            )
        sizes = f"{count(nodes, 'node')}, {count(len(self.values), 'value')}"
        return f"{self.mode}, {self.where}: {verdict}; {sizes}, {'; '.join(measures)}"


@dataclass(repr=False)
class Comparison(InsightReport):
    """Eager against hybrid."""

    name: str
    calls: list[CallComparison]

    def __post_init__(self) -> None:
        self.graphs: list[tuple[Graph, Graph]] = []  # of each call: as traced, and after all passes

    def __getstate__(self) -> dict[str, Any]:
        """Pickles and copies have the text, without the graphs that `diff` works on."""
        return {**vars(self), "graphs": []}

    def diff(self, call: int = 0) -> ModelDifference:
        """The graph that eager mode computes beside the compiled forward graph of a call, operator by operator: the
        changes of the passes. The first operator with other numbers is a change of its Block.
        """
        if not self.graphs:
            raise HybridLabError("a copied comparison has no graphs; call mx.compare(net, *inputs) again")
        eager, hybrid = self.graphs[call]
        rows, results = diff_graphs(
            *(GraphSide(graph, "", [value.node.name for value in graph.inputs], True) for graph in (eager, hybrid))
        )
        blocks = {path: BlockDifference("same", path, "", [], own) for path, own in by_block(rows).items()}
        found = next(iter(self.calls[call].differences), None)
        if found is not None:
            path = found.block.partition(".")[2]
            text = f"{found.operator}: first with other numbers: {found.text}"
            blocks.setdefault(path, BlockDifference("same", path, "")).changes.append(text)
        return ModelDifference(f"{self.name} eager", f"{self.name} hybrid", list(blocks.values()), results)

    @property
    def equal(self) -> bool:
        """Whether hybrid gives eager's numbers within rounding."""
        return all(call.equal for call in self.calls)

    @property
    def first(self) -> Difference | None:
        """The first difference, or None."""
        return next((item for call in self.calls for item in call.differences), None)

    @property
    def headline(self) -> str:
        """One line: whether hybrid equals eager."""
        return f"{self.name}: hybrid {'equals' if self.equal else 'differs from'} eager"

    def data(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers; an infinite difference (another shape) is None."""
        return {"equal": self.equal} | {key: _plain(value) for key, value in asdict(self).items()}

    def _lines(self) -> list[str]:
        lines: list[str] = []
        if self.first is not None:
            lines += ["", "The first node that differs:", str(self.first), ""]
        for call in self.calls:
            lines += wrapped(f"{call.name}({call.types}), {call.headline}", "  ")
            others = [item for item in call.differences if item is not self.first]
            for item in others[:_DETAILED]:
                lines += ["", *(f"  {line}" for line in str(item).split("\n"))]
            lines += [f"    and {count(len(others) - _DETAILED, 'more node')} that differ"] * (len(others) > _DETAILED)
            wrong = [row for row in call.values if not row.agrees]
            lines += [f"    {row}" for row in wrong[:8]]
            lines += [f"    and {len(wrong) - 8} more values"] if len(wrong) > 8 else []
            if call.nodes and (not call.equal or call is self.calls[-1]):
                lines += ["", *_table(call, _SHOWN).lines("    ")]
                hidden = len(call.nodes) - len(_chosen(call.nodes, _SHOWN))
                lines += [f"    ... and {count(hidden, 'node')} more ..."] if hidden else []
        return lines

    def _parts(self) -> list[str]:
        parts = []
        if self.first is not None:
            parts.append(code(["The first node that differs:", *str(self.first).split("\n")]))
        for call in self.calls:
            wrong = [str(row) for row in call.values if not row.agrees]
            inner = (code(wrong) if wrong else "") + _table(call, 400).html()
            parts.append(folded(f"{call.name}({call.types}), {call.headline}", inner, not call.equal))
        return parts


@shows_work("comparing")
def compare(net: Block, *inputs: object, train: bool | None = None) -> Comparison:
    """Run `net` on the inputs eagerly and hybridized, and compare node by node, forward and gradient.

        net = nn.Dense(2, in_units=3, prefix="out_")
        net.initialize()
        net.hybridize()
        result = mx.compare(net, nd.ones((4, 3)))
        type(result).__name__

    train : only training mode (True) or prediction (False); None takes both - prediction without recording, as a
        deployed model runs, and training with the gradients of all parameters and inputs

    Neither the model's parameters, states and gradients nor the random numbers to come are changed, and the net need
    not be hybridized. Tolerances are relative to the largest value: 1e-5 forward and 1e-4 for gradients in float32;
    whole numbers, booleans and random masks must be equal bit for bit.

    Raises HybridLabError without a HybridBlock or inputs; HybridizeError if the code cannot become a graph.
    """
    calls = outer_calls(net, inputs)
    modes = [(False, False), (True, True)] if train is None else [(train, train)]
    comparison = Comparison(called(net), [])
    for call in calls:
        for training, recording in modes:
            compiled = compile_call(call, training, recording)
            comparison.calls.append(_compare_call(compiled))
            comparison.graphs.append((compiled.neutral.graph, compiled.special.forward))
    return comparison


def _compare_call(compiled: Compiled) -> CallComparison:
    call, heads = compiled.call, compiled.heads() if compiled.recording else None
    comparison = CallComparison(call.name, call.types, compiled.mode, compiled.program.engine, compiled.program.where)
    (outputs, eager_gradients), operations = listen(call.block, lambda: run_eager(compiled, heads))
    hybrid_outputs, hybrid_gradients = run_hybrid(compiled, heads)
    comparison.values = _value_rows(compiled, (hybrid_outputs, hybrid_gradients), (outputs, eager_gradients))

    untrue = first_untrue(compiled, operations, outputs)
    if untrue is not None:
        comparison.differences.append(_difference(call.block, "code", untrue[0], untrue[1]))
    for name, part in check_parts(compiled, heads):
        comparison.nodes += [_node_row(name, check) for check in part.checks]
        for check in part.checks:
            if not check.agrees and not check.whole:
                comparison.differences.append(_difference(call.block, "kernel", check.node, _explained(name, check)))
    if not comparison.equal and not comparison.differences:
        pass_, engine = first_changed(compiled, heads), first_miscompiled(compiled, heads)
        if pass_ is not None:
            comparison.differences.append(_difference(call.block, "pass", *pass_))
        elif engine is not None:
            comparison.differences.append(_difference(call.block, "kernel", *engine))
        else:
            wrong = next(row for row in comparison.values if not row.agrees)
            text = (
                f"{wrong}, but every operator and every pass is right: look at "
                "what is around the graphs - memory that forward and backward share, the tape, states, hooks"
            )
            comparison.differences.append(Difference("call", call.block.name, "", call.path, "", "", "", text))
    return comparison


def check_parts(compiled: Compiled, heads: Sequence[object] | None) -> list[tuple[str, CheckedProgram]]:
    """Prologue, forward and backward, each checked on the results of the parts before."""
    parts: list[tuple[str, CheckedProgram]] = []

    def check(part: str, executable: Executable, graph: Graph, inputs: list[list[Any]]) -> list[Sequence[Any]]:
        checked = check_program(executable, inputs[0], inputs[1], compiled.rng, part == "backward")
        parts.append((part, checked))
        return [checked.results, checked.wanted]

    compiled.run_parts(heads, check, sides=2)
    return parts


def _value_rows(compiled: Compiled, hybrid: tuple[Any, Any], eager: tuple[Any, Any]) -> list[ValueRow]:
    """Outputs and gradients of the real calls."""

    @cache
    def runs(change: int) -> tuple[Any, Any]:
        arrays = [changed(array, change) for array in compiled.arrays]
        return _run_again(compiled, list(map(in_float64, arrays))), _run_again(compiled, arrays)

    def again(index: int, change: int) -> tuple[Any, Any] | None:
        exact, rounded = runs(change)
        return None if exact is None or rounded is None else (exact[index], rounded[index])

    rows = []
    names = [f"output {index}" for index in range(len(eager[0]))]
    names += [f"gradient of {name}" for name in compiled.wrt_names]
    pairs = [*zip(hybrid[0], eager[0], strict=True), *zip(hybrid[1], eager[1], strict=True)]
    for index, (name, (got, want)) in enumerate(zip(names, pairs, strict=False)):
        if want is None or got is None:
            empty = not abs(got if want is None else want).any() if (got is None) != (want is None) else True
            odd = "" if empty else f"no gradient in {'eager' if want is None else 'hybrid'}, one in the other"
            rows.append(ValueRow(name, 0.0 if empty else float("inf"), 0.0, bool(empty), odd))
            continue
        allowed = tolerance(want.dtype, index >= len(eager[0]))
        fine, apart, rounding = nearness(got, want, allowed, partial(again, index))
        odd = unlike(got, want) if np.isinf(apart) else ""
        rows.append(ValueRow(name, apart, allowed, fine, odd, rounding if fine else None))
    return rows


def _run_again(compiled: Compiled, arrays: Sequence[object]) -> list[Any] | None:
    """Outputs, then gradients, of the traced graph run eagerly on these arrays; None if a kernel refuses them."""
    inputs = [NDArray.wrap(np.array(array)) for array in arrays]
    for index in compiled.special.wrt:
        inputs[index].attach_grad()
    try:
        with tape.Mode(compiled.recording, compiled.training):
            outputs = interpret(compiled.neutral.graph, inputs, compiled.rng, update=False)
        results = [output.asnumpy() for output in outputs]
        if not compiled.recording:
            return results
        heads = [head.astype(output.dtype) for head, output in zip(compiled.heads(), results, strict=True)]
        return [*results, *gradients(outputs, heads, [inputs[index] for index in compiled.special.wrt])]
    except Exception:  # a reference kernel may raise anything for float64, which it was not written for
        return None


def _explained(part: str, check: Check) -> str:
    where = f"in the {part} on {check.runs_on}" + (f" (region {check.region})" if check.region is not None else "")
    if check.unlike:
        text = f"{where}, for the inputs that it got: {check.unlike}"
    else:
        limit = f"{check.tolerance:.0e} is allowed" if check.tolerance else "it must be equal bit for bit"
        text = f"{where} it is off by {check.own:.2g} of the largest value for the inputs that it got; {limit}"
    return f"{text}; {check.remark}" if check.remark else text


def _difference(top: Block, layer: str, node: Node, text: str) -> Difference:
    location, path = node.location, _path(top, node.scope)
    difference = Difference(layer, operator_text(node), types_text(node), node.scope, "", "", "", text)
    if path and not of_user(type(path[-1]).__module__):
        difference.made_by = type(path[-1]).__name__
    if location is not None:
        difference.line, difference.place = str(location), location.describe()
        if not path or any(of_user(type(block).__module__) for block in path):
            difference.excerpt = location.excerpt("  ")
        else:  # no code of the user's makes it: all that is known is who called
            difference.place = f"called at {difference.place}"
    return difference


def _path(top: Block, scope: str) -> list[Block]:
    """The Blocks from the top to the one with this scope; none if a name is not found."""
    blocks = [top] if scope.partition(".")[0] == top.name else []
    for name in scope.split(".")[1:] if blocks else ():
        child = access.children(blocks[-1]).get(name)
        if child is None:
            return []
        blocks.append(child)
    return blocks


def _node_row(part: str, check: Check) -> NodeRow:
    row = NodeRow(
        *row_of(part, check.node, check.runs_on),
        check.difference,
        check.own,
        check.tolerance,
        check.agrees,
        check.region,
        check.region is not None and not check.whole,
        check.remark,
    )
    return replace(row, operator=f"region {check.region}") if check.whole else row


_COLUMNS = (
    Column("", right=True),
    Column("node", flexible=True),
    Column("type"),
    Column("block", flexible=True),
    Column("line", flexible=True),
    Column("from eager", right=True),
    Column("own", right=True),
    Column(""),
)


def _table(call: CallComparison, limit: int) -> Table:
    rows, part = [], ""
    sizes = Counter((row.part, row.region) for row in call.nodes if row.inside)
    for number, row in _chosen(call.nodes, limit):
        if row.part != part:
            part = row.part
            rows.append(Row(["", part, "", "", "", "", "", ""], strong=True))
        whole = row.region is not None and not row.inside
        cells = [
            str(number),
            f"{row.operator}: {count(sizes[row.part, row.region], 'operator')} run as one" if whole else row.operator,
            "" if whole else row.type,
            "" if whole else row.block,
            "" if whole else short_line(row.line),
            _amount(row.difference),
            _amount(row.own),
            "DIFFERS" if not row.agrees else "rounding" if row.own > row.tolerance else "",
        ]
        rows.append(Row(cells, depth=int(row.inside), strong=not row.agrees))
    return Table(_COLUMNS, rows)


def _chosen(nodes: Sequence[NodeRow], limit: int) -> list[tuple[int, NodeRow]]:
    """At most `limit` rows with their numbers: around the first that differs, else the first rows."""
    wrong = next((index for index, row in enumerate(nodes) if not row.agrees), 0)
    start = max(0, min(wrong - limit // 4, len(nodes) - limit))
    return list(enumerate(nodes))[start : start + limit]


def _amount(number: float) -> str:
    return "0" if number == 0 else "other" if number == float("inf") else f"{number:.1e}"


def _plain(item: object) -> object:
    """Data that JSON can hold."""
    if isinstance(item, dict):
        return {key: _plain(value) for key, value in item.items()}
    if isinstance(item, list):
        return [_plain(value) for value in item]
    return None if isinstance(item, float) and item in (float("inf"), float("-inf")) else item
