"""explain: every Block of a model, hybridized or why not; graphs, engines, regions, fallbacks, recompiles, memory."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import called, count, dimensions
from hybrid_lab.diagnostics.hybridize_error import HybridizeError
from hybrid_lab.engines import Fallback, libraries, registry
from hybrid_lab.engines.launches import launches
from hybrid_lab.engines.report import Report
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.trainer import trainers
from hybrid_lab.graph.call_graphs import Specialized
from hybrid_lab.graph.printer import format_type
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.hybridize.program_cache import Compilation
from hybrid_lab.hybridize.structure import describe
from hybrid_lab.insight.kernel_table import Kernels
from hybrid_lab.insight.passes import Passes
from hybrid_lab.insight.report import InsightReport
from hybrid_lab.insight.states import STATES, State, block_state, class_name, walk
from hybrid_lab.insight.table import Column, Row, Table, code, folded, short_line, wrapped
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.buffer import copies
from hybrid_lab.system.progress import shows_work

if TYPE_CHECKING:
    from hybrid_lab.graph.graph import Graph

_DETAILED = 2
"""Programs of a Block whose reports are printed in full: the first ones and the latest one."""
_LISTED = 12
"""Programs of a Block that are printed at all."""


@dataclass
class ProgramRow:
    """One compiled program.

    engine, choice : the engine that runs it, and why this one; where : with the device
    reason : why it was compiled; place : the line that called, or ""
    forward, backward : the engines' reports as text, without choice and fallbacks; plan : the memory plan
    arena_bytes, ideal_bytes : planned memory, and the most that is alive at once; bytes_moved : read and written a call
    needs_numbers : why some leading sizes of the data are no symbols: each value of them compiles anew
    fallbacks : operators that run elsewhere than on the engine, equal ones together, `fallback_count` their number
    """

    inputs: str
    mode: str
    engine: str
    where: str
    reason: str
    seconds: float
    forward: str
    backward: str
    fallbacks: list[Fallback]
    fallback_count: int
    place: str = ""
    choice: str = ""
    plan: str = ""
    arena_bytes: int = 0
    ideal_bytes: int = 0
    bytes_moved: int = 0
    needs_numbers: list[str] = field(default_factory=list)


@dataclass
class GraphRow:
    """One neutral graph.

    structure : of the arguments; source : "code", "file" or "module"
    guard : the condition under which it is valid, or ""
    """

    structure: str
    operators: int
    source: str
    guard: str
    text: str


@dataclass
class BlockRow:
    """One Block. path : attribute names joined by dots, "" for the top; recompiled : how often, in all."""

    path: str
    name: str
    kind: str
    state: State
    why: str
    shared_with: str | None
    output: str
    graphs: list[GraphRow] = field(default_factory=list)
    programs: list[ProgramRow] = field(default_factory=list)
    recompiled: int = 0

    @property
    def word(self) -> str:
        """The name of the state."""
        return STATES[self.state].word

    @property
    def own_graphs(self) -> list[GraphRow]:
        """The graphs that calls of this Block run; empty for a Block that runs inside the graph of another one."""
        return self.graphs if self.state in ("active", "file", "imported") else []


@dataclass(repr=False)
class Explanation(InsightReport):
    """The state of a model: its Blocks, graphs and programs, where they run and why.

    copies : between host and device, in this process so far; error : why the call on the inputs could not be traced
    updates : how each Trainer of these parameters makes its steps
    launches : kernels, replays of captured graphs and others on a device, in this process so far
    problems : unexpected behaviour of an installed library
    """

    name: str
    blocks: list[BlockRow]
    copies: dict[str, int]
    error: str = ""
    updates: list[str] = field(default_factory=list)
    launches: dict[str, int] = field(default_factory=launches.snapshot)
    problems: list[str] = field(default_factory=libraries.problems)

    def __post_init__(self) -> None:
        self.recipes: dict[tuple[str, int], Callable[[], Passes]] = {}
        self.on_triton: list[tuple[dict[str, Graph | None], dict[str, Any]]] = []

    def __getstate__(self) -> dict[str, Any]:
        """Pickles and copies have the text, without the graphs that `passes` and `kernels` work on."""
        return {**vars(self), "recipes": {}, "on_triton": []}

    @functools.cached_property
    def kernels(self) -> Kernels:
        """The kernels of the latest program of each Block that runs on Triton, in the order in which they run: their
        text, their operators and the reasons for the fusion, and - on a GPU, or with `kernel.on("gfx942")` - the result
        of their compilation. Without kernels, the list prints the reason.
        """
        from hybrid_lab.engines.triton.kernels import kernels_of_graphs, target_here
        from hybrid_lab.engines.triton.plan.by_vendor import rule_here
        from hybrid_lab.engines.triton.write import tiles

        kernels = []
        for graphs, flags in self.on_triton:
            precision = tiles.precision(bool(flags.get("tf32")), target_here() or "")
            rule = rule_here(flags.get("products"), bool(flags.get("strict")), precision)
            kernels += kernels_of_graphs(graphs, precision, tuned=True, rule=rule)[0]
        return Kernels(kernels, self._no_kernels())

    def _no_kernels(self) -> str:
        where = sorted({program.where for row in self.blocks for program in row.programs})
        if self.on_triton:
            return "no kernels: nothing is computed, or none of the operators has one; see fallbacks"
        ran = f"{self.name} runs on {', '.join(where)}" if where else f"{self.name} was not called hybridized so far"
        return f"no kernels here: {ran}. {self.name}.compile_for('gfx942', inputs=x).kernels has those for a GPU"

    @property
    def fallbacks(self) -> list[str]:
        """The operators of all Blocks that do not run on the chosen engine."""
        return [str(item) for block in self.blocks for program in block.programs for item in program.fallbacks]

    @property
    def recompiles(self) -> list[str]:
        """The reasons of the compiles after a Block's first compile, as far as still known."""
        return [f"{block.name}: {program.reason}" for block in self.blocks for program in block.programs[1:]]

    def graph(self, path: str = "") -> str:
        """The first graph of the Block at `path` as a program a person can read; "" if it has none."""
        for row in self.blocks:
            if row.path == path and row.graphs:
                return row.graphs[0].text
        return ""

    def passes(self, path: str = "", number: int = -1) -> Passes:
        """The passes of a program of the Block at `path`, with the graph before and after each.

        number : index among its known programs; the latest by default. Raises HybridLabError without one.
        """
        rows = self._programs(path)
        if not -len(rows) <= number < len(rows):
            raise HybridLabError(f"{path or self.name} has {count(len(rows), 'program')}; call it hybridized first")
        if not self.recipes:
            raise HybridLabError("a copied explanation has no graphs; call mx.explain(net) again")
        return self.recipes[path, number % len(rows)]()

    def plan(self, path: str = "", number: int = -1) -> str:
        """The memory plan of a program of the Block at `path`; "" if it has none."""
        rows = self._programs(path)
        return rows[number].plan if -len(rows) <= number < len(rows) else ""

    def _programs(self, path: str) -> list[ProgramRow]:
        return next((row.programs for row in self.blocks if row.path == path), [])

    def _lines(self) -> list[str]:
        lines: list[str] = []
        width = max((2 * _depth(row) + len(_label(row)) for row in self.blocks), default=0)
        for row in self.blocks:
            label = "  " * _depth(row) + _label(row)
            if row.shared_with is not None:
                lines.append(f"  {label:<{width}}  the same Block as {row.shared_with or self.name}")
                continue
            parts = [f"{label:<{width}}  {row.word:<9}", row.output, row.why]
            lines += wrapped("  ".join(part for part in parts if part).rstrip(), "  ")
            indent = "  " * _depth(row) + "      "
            lines += [part for line in _details(row) for part in wrapped(line, indent)]
        lines += [part for text in self.updates for part in wrapped(f"update by {text}", "  ")]
        lines += [part for text in self.problems for part in wrapped(text, "  ")]
        lines.append("  in this process, copies so far: " + _copies(self.copies))
        if any(self.launches.values()):
            lines.append("  in this process, launches so far: " + _launches(self.launches))
        if self.error:
            lines += ["", self.error]
        return lines

    @property
    def headline(self) -> str:
        """`net0: 1 graph, 1 program, 0 fallbacks, 0 recompiles`."""
        counts = {
            "graph": sum(len(row.own_graphs) for row in self.blocks),
            "program": sum(len(row.programs) for row in self.blocks),
            "fallback": sum(program.fallback_count for row in self.blocks for program in row.programs),
            "recompile": sum(row.recompiled for row in self.blocks),
        }
        text = ", ".join(count(number, word) for word, number in counts.items())
        states = [row.state for row in self.blocks if row.shared_with is None]
        if failed := states.count("failed"):
            text += f", {count(failed, 'Block')} that cannot be hybridized"
        if refused := states.count("refused"):
            text += f", {count(refused, 'Block')} without a graph"
        return f"{self.name}: {text}"

    def _parts(self) -> list[str]:
        table = Table([Column("block", flexible=True), *map(Column, ("state", "output", "graphs")), Column("runs on")])
        for row in self.blocks:
            where = "; ".join(sorted({program.where for program in row.programs})) or row.why
            cells = [_label(row), row.word, row.output, str(len(row.graphs) or ""), where]
            table.rows.append(Row(cells, depth=_depth(row)))
        error = [code(self.error.splitlines())] if self.error else []
        return [*error, table.html(), folded("everything", code(str(self).splitlines()))]


def _details(row: BlockRow) -> list[str]:
    """The graphs and programs of a Block in lines of text."""
    lines = []
    for graph in row.own_graphs:
        guard = f", only for {graph.guard}" if graph.guard else ""
        operators = count(graph.operators, "operator")
        lines.append(f"graph of a call with {graph.structure}: {operators}, from the {graph.source}{guard}")
    last, choice = len(row.programs) - 1, ""
    for number, program in enumerate(row.programs):
        if _LISTED <= number < last:
            if number == _LISTED:
                lines.append(f"... {count(last - _LISTED, 'more program')} ...")
            continue
        place = f", called at {_short(program.place)}" if program.place else ""
        head = f"{program.mode} {program.inputs}: {program.where}, {program.seconds:.2f} s ({program.reason}{place})"
        lines.append(head)
        if program.choice != choice:
            choice = program.choice
            lines.append(f"  engine: {choice}")
        if number >= _DETAILED and number != last:
            continue
        for title, report in (("forward", program.forward), ("backward", program.backward)):
            if report:
                first, *rest = report.split("\n")
                lines += [f"  {title}: {first}", *(f"    {line.strip()}" for line in rest)]
        lines += [f"  fallback: {text}" for text in _together(program.fallbacks)]
    reasons = Counter(reason for program in row.programs for reason in program.needs_numbers)
    return lines + [f"sizes in {count(times, 'program')}: {reason}" for reason, times in reasons.items()]


def _short(place: str) -> str:
    """`net.py, line 12`: without the folder and the function."""
    return short_line(place.partition(", in ")[0])


def _together(fallbacks: Sequence[Fallback]) -> list[str]:
    """Fallbacks with one engine and reason in one line: the operators, then the reason."""
    operators_by_reason: dict[tuple[str, str], dict[str, int]] = {}
    for item in fallbacks:
        operators = operators_by_reason.setdefault((item.engine, item.reason), {})
        operators[item.operator] = operators.get(item.operator, 0) + item.count
    return [
        ", ".join(f"{times} x {name}" if times > 1 else name for name, times in operators.items())
        + f" on {engine}: {reason}"
        for (engine, reason), operators in operators_by_reason.items()
    ]


def _launches(launches: dict[str, int]) -> str:
    words = {"kernels": "kernel", "replays": "replay", "others": "other"}
    return ", ".join(count(launches[key], word) for key, word in words.items())


def _copies(copies: dict[str, int]) -> str:
    return f"{copies['to_device']} to a device, {copies['to_host']} to the host, {count(copies['reads'], 'read')}"


def _depth(row: BlockRow) -> int:
    return row.path.count(".") + 1 if row.path else 0


def _label(row: BlockRow) -> str:
    return f"{row.path.rsplit('.', 1)[-1] if row.path else row.name}: {row.kind}"


@shows_work("explaining")
def explain(net: Block, *inputs: object) -> Explanation:
    """Explain what hybridization made of `net`; with inputs the net is called on them first (in prediction mode).

        net = nn.Dense(2, in_units=3)
        net.initialize()
        net.hybridize()
        explanation = mx.explain(net, nd.ones((4, 3)))
        len(explanation.fallbacks), len(explanation.recompiles)

    If the code cannot be hybridized, the explanation contains the error instead of raising it.
    Raises HybridLabError if `net` is not a Block, and the errors of the call otherwise.
    """
    if not isinstance(net, Block):
        raise HybridLabError(f"explain needs a Block, not {type(net).__name__}")
    error = ""
    if inputs:
        try:
            with tape.Mode(False, False):
                net(*inputs)
        except HybridizeError as caught:
            error = str(caught)
    rows, recipes, on_triton = [], {}, []
    for path, _, block, before in walk(net):
        state = block_state(block, inner=path != "")
        output = ", ".join(format_type(shape, dtype) for shape, dtype in access.last_outputs(block))
        has_programs = isinstance(block, HybridBlock) and bool(access.calls(block).compilations)
        name = called(net, path) if not path or has_programs else block.name
        row = BlockRow(path, name, class_name(block), state.state, state.why, before, output)
        if before is None and isinstance(block, HybridBlock):
            calls = access.calls(block)
            row.graphs = [_graph_row(neutral) for neutral in calls.graphs.graphs()]
            compiled = [_program_row(compilation, block) for compilation in tuple(calls.compilations)]
            row.programs = [program for program, _ in compiled]
            recipes.update({(path, number): recipe for number, (_, recipe) in enumerate(compiled)})
            row.recompiled = calls.compiled.recompiles
            specials = [item.special for item in tuple(calls.compilations) if item.engine == "triton"]
            on_triton += [(special, dict(access.flags(block))) for special in specials[-1:]]
        rows.append(row)
    explanation = Explanation(rows[0].name, rows, copies.snapshot(), error, _updates(net))
    explanation.recipes = recipes
    explanation.on_triton = [
        ({"parameters": special.prologue, "forward": special.forward, "backward": special.backward}, flags)
        for special, flags in on_triton
    ]
    return explanation


def _updates(net: Block) -> list[str]:
    own = {id(parameter) for parameter in net.collect_params().values()}
    return [
        text
        for trainer in tuple(trainers)
        if any(id(parameter) in own for parameter in access.trainer_parameters(trainer))
        for text in trainer.updates
    ]


def _graph_row(neutral: NeutralGraph) -> GraphRow:
    observation, parts = neutral.observation, []
    if observation.types is not None:
        parts.append("the shapes " + ", ".join(str(shape) for shape, _ in observation.types))
    if observation.layout is not None:
        parts.append(
            "tensors of " + ", ".join(f"{dimensions(rank)} in {dtype}" for (rank,), dtype in observation.layout)
        )
    if observation.training is not None:
        parts.append("training" if observation.training else "prediction")
    if observation.recording is not None:
        parts.append("recorded calls" if observation.recording else "calls that are not recorded")
    count = len(neutral.graph.operators)
    source = "module" if neutral.module else neutral.source
    return GraphRow(describe(neutral.in_spec), count, source, " and ".join(parts), repr(neutral.graph))


def _program_row(compilation: Compilation, block: HybridBlock) -> tuple[ProgramRow, Callable[[], Passes]]:
    """The row of a program, and a function that runs its passes again."""
    special, neutral, precision = compilation.special, compilation.neutral, compilation.precision
    data = special.forward.inputs[: neutral.num_data]
    forward, backward = compilation.forward, compilation.backward
    reports = [forward] if backward is None else [forward, backward]
    fallbacks = [item for report in reports for item in report.fallbacks]
    recorded = ", recorded" if backward is not None else ""
    mixed = "" if precision is None else f", in {precision.target.name} and float32"
    row = ProgramRow(
        inputs=", ".join(format_type(value.shape, value.dtype) for value in data),
        mode=("training" if compilation.training else "prediction") + recorded + mixed,
        engine=compilation.runs_on,
        where=compilation.where,
        reason=compilation.reason,
        seconds=compilation.seconds,
        forward=forward.text(choice=False, fallbacks=False),
        backward="" if backward is None else backward.text(choice=False, fallbacks=False),
        fallbacks=fallbacks,
        fallback_count=sum(item.count for item in fallbacks),
        place=compilation.place.describe() if compilation.place is not None else "",
        choice=engine_choice(compilation.engine, access.flags(block).get("engine"), forward),
        plan="\n\n".join(report.plan for report in reports if report.plan),
        arena_bytes=max(report.arena_bytes for report in reports),
        ideal_bytes=max(report.ideal_bytes for report in reports),
        bytes_moved=sum(report.bytes_moved for report in reports),
        needs_numbers=_needs_numbers(special),
    )
    shapes, dtypes = [value.shape for value in special.inputs], [value.dtype for value in special.inputs]
    arguments = (neutral.graph, shapes, dtypes, compilation.training, special.wrt, neutral.num_data)
    options: dict[str, Any] = {"bound": neutral.bound, "precision": precision, "heads": special.heads}
    return row, lambda: Passes(specialize(*arguments, keep=True, **options).stages)


def _needs_numbers(special: Specialized) -> list[str]:
    """The reasons of the passes and of the engine for which sizes of a program are numbers instead of symbols."""
    graphs = [special.forward] + ([special.backward] if special.backward is not None else [])
    reasons = [reason for graph in graphs if graph.symbolic is not None for reason in graph.symbolic.needs_numbers]
    return list(dict.fromkeys([*special.needs_numbers, *reasons]))


def engine_choice(engine: str, asked: str | None, report: Report) -> str:
    """The engine that runs an executable, and why this one.

    engine : the engine that compiled it; asked : the engine named by `engine=` of hybridize(), or None
    """
    why = registry.reason_to_run_on(engine, asked)
    if report.runs_on == engine:
        return report.choice or f"{engine}, {why}"
    reason = report.choice.removeprefix(f"{engine}: ") or f"{engine} was chosen {why}"
    reasons = "; ".join(dict.fromkeys(item.reason for item in report.fallbacks))
    return f"{report.runs_on}: {reason}, but {registry.find(engine).title} runs none of the operators: {reasons}"
