"""The outcome of a compile: regions, operators per engine, fallbacks and bytes; readable, and as plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.graph.printer import format_origin

if TYPE_CHECKING:
    from hybrid_lab.graph.loops.body import Body
    from hybrid_lab.graph.memory.plan import MemoryPlan
    from hybrid_lab.graph.node import Node
    from hybrid_lab.graph.passes.partition import Region


@dataclass
class Fallback:
    """An operator that runs on another engine than the one asked for, and why. `place` is its block and source line."""

    operator: str
    engine: str
    reason: str
    place: str = ""
    count: int = 1

    def __str__(self) -> str:
        times = f"{self.count} x " if self.count > 1 else ""
        where = f"   # {self.place}" if self.place else ""
        return f"{times}{self.operator} on {self.engine}: {self.reason}{where}"


@dataclass
class RegionReport:
    """A part of the graph that runs as one unit: a session, or a fused kernel."""

    engine: str
    operators: list[str]
    inputs: int
    outputs: int
    bytes_in: int
    bytes_out: int

    def __str__(self) -> str:
        names = ", ".join(self.operators[:8]) + (
            f" and {len(self.operators) - 8} more" if len(self.operators) > 8 else ""
        )
        size_in, size_out = format_bytes(self.bytes_in), format_bytes(self.bytes_out)
        borders = f"{count(self.inputs, 'input')} of {size_in}, {count(self.outputs, 'output')} of {size_out}"
        together = " as one" if len(self.operators) > 1 else ""
        return f"{self.engine} runs {count(len(self.operators), 'operator')}{together} ({names}); {borders}"


@dataclass
class Report:
    """About one executable.

    engine : the engine that compiled it; `runs_on` is the engine that runs it
    operators : engine -> how many operators run there; "vendor" : the engine's operators that a GPU's library computes
    units : (engine, region, operators to list) of each region; refused : (operator, engine, reason) of each operator
        that runs on another engine than the one asked for. `regions` and `fallbacks` give both in words
    shared_arena : a forward and its backward have one arena, which both reports tell
    memory : the graph.memory.plan.MemoryPlan, which `plan` prints; written : gives the text of the generated program
    bodies : the graph.body.Body objects of loops and branches; each compiles a program per shapes while it runs
    seconds : compile time
    choice : the engine that the policy chose, and why; "" if an engine was requested by name
    host_copies : operator -> how many copies between device and host a call makes for it
    notes : further remarks, in words
    """

    engine: str
    graph: str = ""
    operators: dict[str, int] = field(default_factory=dict)
    units: Sequence[tuple[str, Region, Sequence[Node]]] = field(default=(), repr=False, compare=False)
    refused: Sequence[tuple[Node, str, str]] = field(default=(), repr=False, compare=False)
    static_alloc: bool = False
    shared_arena: bool = False
    seconds: float = 0.0
    memory: MemoryPlan | None = field(default=None, repr=False, compare=False)
    bodies: Sequence[Body] = field(default=(), repr=False, compare=False)
    written: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    choice: str = ""
    host_copies: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def regions(self) -> list[RegionReport]:
        """The parts that run as one unit."""
        return [
            RegionReport(
                engine,
                [node.op.name for node in operators],
                len(region.inputs),
                len(region.outputs),
                region.bytes_in,
                region.bytes_out,
            )
            for engine, region, operators in self.units
        ]

    @property
    def fallbacks(self) -> list[Fallback]:
        """The operators that run on another engine than the one asked for; equal ones share an entry."""
        entries: dict[tuple[str, str, str], Fallback] = {}
        for node, engine, reason in self.refused:
            key = node.op.name, engine, reason
            if key in entries:
                entries[key].count += 1
            else:
                entries[key] = Fallback(*key, format_origin(node))
        return list(entries.values())

    def data(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers."""
        data = asdict(replace(self, units=(), refused=(), memory=None, bodies=(), written=None))
        for name in ("units", "refused", "memory", "bodies", "written"):
            del data[name]
        data["regions"] = [asdict(region) for region in self.regions]
        data["fallbacks"] = [asdict(fallback) for fallback in self.fallbacks]
        sizes = ("arena_bytes", "ideal_bytes", "fresh_bytes", "bytes_moved", "arena_ratio")
        return data | {name: getattr(self, name) for name in (*sizes, "plan", "program", "body_programs")}

    @property
    def arena_bytes(self) -> int:
        """The size of the arena."""
        return 0 if self.memory is None else self.memory.arena_bytes

    @property
    def ideal_bytes(self) -> int:
        """The most that is alive at once."""
        return 0 if self.memory is None else self.memory.ideal_bytes

    @property
    def fresh_bytes(self) -> int:
        """The size of the outputs, which get memory of their own in each call."""
        return 0 if self.memory is None else self.memory.fresh_bytes

    @property
    def bytes_moved(self) -> int:
        """The bytes that the steps read and write in one call; a region counts as one step."""
        return 0 if self.memory is None else self.memory.bytes_moved

    @property
    def program(self) -> str:
        """The generated program as text: one line per operator, with the operator as its comment."""
        return "" if self.written is None else self.written()

    @property
    def plan(self) -> str:
        """The memory plan as text: the operator of each step of a call, and the memory of its results."""
        return "" if self.memory is None else str(self.memory)

    @property
    def body_programs(self) -> int:
        """The number of programs that the bodies of loops and branches have compiled so far, for any of their
        callers.
        """
        return sum(body.compiles for body in self.bodies)

    @property
    def runs_on(self) -> str:
        """The engine that runs most of the program: the compiling engine if it runs any operator, else the engine with
        the most operators.
        """
        if self.operators.get(self.engine) or self.operators.get("vendor") or not any(self.operators.values()):
            return self.engine
        return max(self.operators, key=self.operators.__getitem__)

    @property
    def arena_ratio(self) -> float:
        """Planned memory by the most that is alive at once: 1.0 cannot be beaten."""
        return self.arena_bytes / self.ideal_bytes if self.ideal_bytes else 1.0

    def _arena(self) -> str:
        notes = ["static"] if self.static_alloc else []
        notes += [f"shared by forward and backward, {self.arena_ratio:.2f} of the least possible"] * self.shared_arena
        return f" ({', '.join(notes)})" if notes else ""

    def __str__(self) -> str:
        return self.text()

    def text(self, choice: bool = True, fallbacks: bool = True) -> str:
        """As `str()`, without the choice of the engine or the fallbacks if they are told elsewhere."""
        total = sum(self.operators.values())
        shares = ", ".join(f"{count} on {engine}" for engine, count in self.operators.items() if count)
        head = f"{self.graph or 'graph'}: {count(total, 'operator')}" + (f" ({shares})" if shares else "")
        memory = (
            f"  arena {format_bytes(self.arena_bytes)}{self._arena()}, "
            f"{format_bytes(self.fresh_bytes)} of outputs, {format_bytes(self.bytes_moved)} moved a call"
        )
        lines = [f"{head}, engine {self.runs_on}, compiled in {self.seconds:.3f} s", memory]
        if self.choice and choice:
            lines.append(f"  choice: {self.choice}")
        if self.host_copies:
            copies = ", ".join(f"{number} for {name}" for name, number in self.host_copies.items())
            lines.append(f"  copies between device and host in each call: {copies}")
        lines += [f"  {note}" for note in self.notes]
        if self.bodies:
            programs = count(self.body_programs, "program")
            lines.append(f"  loops and branches: {programs} compiled so far, one per shapes")
        lines += [f"  region {index}: {region}" for index, region in enumerate(self.regions)]
        lines += [f"  fallback: {fallback}" for fallback in self.fallbacks if fallbacks]
        return "\n".join(lines)


def format_bytes(count: int) -> str:
    """1536 -> "1.5 KiB"."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")
