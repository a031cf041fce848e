"""explain: every Block of a model, hybridized or why not; graphs, engines, regions, fallbacks, recompiles, memory."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass, field
from typing import Any

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.structure import describe
from hybrid_lab.graph.printer import format_type
from hybrid_lab.insight.states import block_state, walk
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.buffer import copies


@dataclass
class ProgramRow:
    """One compiled program. reason : why it was compiled; forward, backward : the engines' reports as text."""

    inputs: str
    mode: str
    engine: str
    where: str
    reason: str
    seconds: float
    forward: str
    backward: str
    fallbacks: list[str]


@dataclass
class GraphRow:
    """One neutral graph. structure : of the arguments; source : "code" or "file"; guard : what it holds for only."""

    structure: str
    operators: int
    source: str
    guard: str
    text: str


@dataclass
class BlockRow:
    """One Block. path : attribute names joined by dots, "" for the top."""

    path: str
    name: str
    kind: str
    state: str
    why: str
    shared_with: str | None
    output: str
    graphs: list[GraphRow] = field(default_factory=list)
    programs: list[ProgramRow] = field(default_factory=list)


@dataclass
class Explanation:
    """What runs where and why; `print` it, show it in a notebook, or take `data()`."""

    name: str
    blocks: list[BlockRow]
    copies: dict[str, int]

    @property
    def fallbacks(self) -> list[str]:
        """Operators that run elsewhere than on the chosen engine, all Blocks together."""
        return [item for block in self.blocks for program in block.programs for item in program.fallbacks]

    @property
    def recompiles(self) -> list[str]:
        """Why each compile after a Block's first one happened."""
        return [f"{block.name}: {program.reason}" for block in self.blocks for program in block.programs[1:]]

    def graph(self, path: str = "") -> str:
        """The first graph of the Block at `path` as a program a person can read; "" where it has none."""
        for row in self.blocks:
            if row.path == path and row.graphs:
                return row.graphs[0].text
        return ""

    def data(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [self.headline]
        width = max((2 * _depth(row) + len(_label(row)) for row in self.blocks), default=0)
        for row in self.blocks:
            label = "  " * _depth(row) + _label(row)
            why = f"   {row.why}" if row.why and row.state != "plain" else ""
            if row.shared_with is not None:
                lines.append(f"  {label:<{width}}  the same Block as {row.shared_with or self.name}")
                continue
            lines.append(f"  {label:<{width}}  {row.state:<8}{row.output and '  ' + row.output}{why}")
            indent = "  " * _depth(row) + "      "
            for graph in row.graphs if row.state in ("active", "file") else ():
                guard = f", only for {graph.guard}" if graph.guard else ""
                lines.append(f"{indent}graph {graph.structure}: {graph.operators} operators, from the {graph.source}{guard}")
            for program in row.programs:
                lines.append(f"{indent}{program.mode} {program.inputs}: {program.where}, {program.seconds:.2f} s ({program.reason})")
                for title, report in (("forward", program.forward), ("backward", program.backward)):
                    if report:
                        lines.append(f"{indent}  {title}: " + report.replace("\n", f"\n{indent}    "))
        lines.append(f"  copies: {self.copies['to_device']} to a device, {self.copies['to_host']} to the host, {self.copies['reads']} reads")
        return "\n".join(lines)

    __repr__ = __str__

    @property
    def headline(self) -> str:
        """`net0: 1 graph, 1 program, 0 fallbacks, 0 recompiles`."""
        graphs = sum(len(row.graphs) for row in self.blocks)
        programs = sum(len(row.programs) for row in self.blocks)
        parts = [(graphs, "graph"), (programs, "program"), (len(self.fallbacks), "fallback"), (len(self.recompiles), "recompile")]
        return f"{self.name}: " + ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in parts)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td style='text-align:left;padding-left:{1 + 1.2 * _depth(row):.1f}em'>{html.escape(_label(row))}</td>"
            f"<td>{html.escape(row.state)}</td><td>{html.escape(row.output)}</td><td>{len(row.graphs)}</td>"
            f"<td style='text-align:left'>{html.escape('; '.join(sorted({p.where for p in row.programs})) or row.why)}</td></tr>"
            for row in self.blocks
        )
        head = "<tr><th style='text-align:left'>block</th><th>state</th><th>output</th><th>graphs</th><th style='text-align:left'>runs on</th></tr>"
        text = html.escape(str(self))
        return (
            f"<div><b>{html.escape(self.headline)}</b><table>{head}{rows}</table>"
            f"<details><summary>everything</summary><pre>{text}</pre></details></div>"
        )


def _depth(row: BlockRow) -> int:
    return row.path.count(".") + 1 if row.path else 0


def _label(row: BlockRow) -> str:
    return f"{row.path.rsplit('.', 1)[-1]}: {row.kind}" if row.path else f"{row.name}: {row.kind}"


def explain(net: Block, *inputs: Any) -> Explanation:
    """Explain what hybridization made of `net`; with inputs the net is called on them first (in prediction mode).

    Raises HybridLabError if `net` is not a Block.
    """
    if not isinstance(net, Block):
        raise HybridLabError(f"explain needs a Block, not {type(net).__name__}")
    if inputs:
        with tape.Mode(False, False):
            net(*inputs)
    rows = []
    for path, _, block, before in walk(net):
        state = block_state(block)
        output = ", ".join(format_type(shape, dtype) for shape, dtype in block._last_outputs)
        row = BlockRow(path, block.name, type(block).__name__, state.state, state.why, before, output)
        if before is None and isinstance(block, HybridBlock):
            row.graphs = [_graph_row(neutral) for neutral in block._graphs.graphs()]
            row.programs = [_program_row(compilation) for compilation in block._graphs.compilations]
        rows.append(row)
    return Explanation(net.name, rows, copies.snapshot())


def _graph_row(neutral: Any) -> GraphRow:
    parts = []
    if neutral.guard.types is not None:
        parts.append("the shapes " + ", ".join(str(shape) for shape, _ in neutral.guard.types))
    if neutral.guard.training is not None:
        parts.append("training" if neutral.guard.training else "prediction")
    return GraphRow(describe(neutral.in_spec), len(neutral.graph.operators), neutral.source, " and ".join(parts), repr(neutral.graph))


def _program_row(compilation: Any) -> ProgramRow:
    program = compilation.program
    data = program.special.forward.inputs[: program.neutral.num_data]
    reports = [program.forward.report] + ([program.backward.report] if program.backward is not None else [])
    return ProgramRow(
        inputs=", ".join(format_type(value.shape, value.dtype) for value in data),
        mode=("training" if program.training else "prediction") + (", recorded" if program.backward is not None else ""),
        engine=program.engine,
        where=program.where,
        reason=compilation.reason,
        seconds=compilation.seconds,
        forward=str(program.forward.report),
        backward=str(program.backward.report) if program.backward is not None else "",
        fallbacks=[str(item) for report in reports for item in report.fallbacks],
    )
