"""The programs of a Block that can be drawn: its traced graphs, the halves of each compiled call, and the update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from hybrid_lab import engines
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.diagnostics.location import Location
from hybrid_lab.engines.report import Report
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.parameter import Parameter
from hybrid_lab.gluon.trainer import trainers
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Value
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.hybridize.compiled_call import CompiledCall
from hybrid_lab.hybridize.failures import Failure
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.hybridize.program_cache import Compilation
from hybrid_lab.insight.explain import engine_choice
from hybrid_lab.insight.states import block_at, blocks_below
from hybrid_lab.lab.messages.graphs import GraphProgram, Half
from hybrid_lab.lab.picture.nodes import DrawnGraph, Role
from hybrid_lab.lab.picture.units import Unit, Units, units_of
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.optimizer.fused import FusedUpdate

if TYPE_CHECKING:
    from hybrid_lab.lab.picture.plain_block import Whole

FAILED: Final = "failed"
"""Id of the graph of a trace that failed."""


class Shown(NamedTuple):
    """A program ready to be drawn. summary : in one line; missing : why there is no graph, or ""

    failed : where the trace of the graph ended
    """

    program: DrawnGraph | Whole | None
    summary: str = ""
    missing: str = ""
    failed: Location | None = None


@dataclass(frozen=True)
class SelectorEntry:
    """An entry of the selector. show : opens its graph"""

    entry: GraphProgram
    show: Callable[[], Shown]


def choices(
    net: Block,
    path: str,
    graphs: list[NeutralGraph],
    failure: Failure | None,
    missing: str = "",
    paths: dict[int, str] | None = None,
) -> list[SelectorEntry]:
    """What can be drawn of the HybridBlock at `path`, whose traced graphs are `graphs`; the compiled in the order of
    their compiles, the update of each Trainer at the end.

    failure : the error of its last trace; missing : why there are no graphs; paths : `parameter_paths` of the model
    """
    block = block_at(net, path)
    assert isinstance(block, HybridBlock)
    maker = _Maker(net, path, block, parameter_paths(net) if paths is None else paths)
    found = [*maker.traced(graphs), *maker.failed(failure, missing), *maker.compiled(), *updates(block)]
    labels: dict[str, int] = {}
    for choice in found:  # as calls with weights on and off `grad_req`, which have equal shapes
        label = choice.entry["label"]
        number = labels[label] = labels.get(label, 0) + 1
        if number > 1:
            choice.entry["label"] = f"{label} ({number})"
    return found


def parameter_paths(net: Block) -> dict[int, str]:
    """The path of each parameter of a model, by its id."""
    paths: dict[int, str] = {}
    for above, owner in blocks_below(net):
        for name, parameter in tuple(access.own_parameters(owner).items()):
            paths.setdefault(id(parameter), f"{above}.{name}" if above else name)
    return paths


class _Maker:
    """Makes the choices of one Block. paths : of the model's parameters, by id"""

    def __init__(self, net: Block, path: str, block: HybridBlock, paths: dict[int, str]):
        self.net, self.path, self.block, self.paths = net, path, block, paths
        living = [item for item in tuple(access.calls(block).compilations) if item.program is not None]
        # The calls of the Block's own code last: the latest of them is shown first.
        self.compilations = sorted(living, key=lambda item: not item.neutral.bound)

    # -- the traced graph ---------------------------------------------------------------------------------------------

    def traced(self, graphs: list[NeutralGraph]) -> Iterator[SelectorEntry]:
        """One for each variant."""
        for number, neutral in enumerate(graphs):
            name = "traced" if number == 0 else f"traced{number + 1}"
            label = name if number == 0 else f"traced, variant {number + 1}{neutral.observation.describe()}"
            yield SelectorEntry(entry(name, label, "traced"), lambda neutral=neutral: self._show_traced(neutral))  # type: ignore[misc]

    def failed(self, failure: Failure | None, missing: str) -> Iterator[SelectorEntry]:
        """What a trace had made when it failed."""
        if failure is not None and failure.partial is not None and failure.top is self.block:
            where = f" at {failure.location.describe()}" if failure.location is not None else ""
            row = entry(FAILED, f"traced, up to {failure.code}{where}", "traced")
            yield SelectorEntry(row, lambda: self._show_failed(failure, missing))

    def _show_failed(self, failure: Failure, missing: str) -> Shown:
        assert failure.partial is not None
        shown = self._show_traced(failure.partial)
        assert isinstance(shown.program, DrawnGraph)
        stopped = [(value, Role("output", "stopped here", inside=True)) for value, _ in shown.program.outputs]
        program = replace(shown.program, outputs=stopped)
        return Shown(program, f"{shown.summary} before {failure.code}", missing, failure.location)

    def _show_traced(self, neutral: NeutralGraph) -> Shown:
        latest = self.compilations[-1] if self.compilations else None
        graph = with_shapes(neutral.graph, latest) if latest is not None else with_saved_shapes(neutral)
        states = {value.node.name for value in graph.states}
        inputs = self._inputs(neutral, graph, [("input", index) for index in range(len(graph.inputs))], states)
        summary = count(len(graph.operators), "operator") + _from_where(neutral)
        if graph is not neutral.graph and latest is not None:
            summary += f", shapes of {_label(latest)}"
        elif graph is not neutral.graph and neutral.types is not None:
            summary += f", shapes of {', '.join(str(tuple(shape)) for shape, _ in neutral.types)}"
        root = root_scope(self.net, self.path, graph)
        code = len(graph.operators)
        return Shown(DrawnGraph(graph, inputs, _outputs(graph.outputs), root, Units(graph), code=code), summary)

    # -- compiled programs --------------------------------------------------------------------------------------------

    def compiled(self) -> Iterator[SelectorEntry]:
        """The halves of each compiled call that lives."""
        for item in self.compilations:
            program = item.program
            if program is None:
                continue
            asked = access.flags(self.block).get("engine")
            for half in ("forward", "backward") if program.backward is not None else ("forward",):
                kind: Half = "backward" if half == "backward" else "forward"
                if kind == "forward" and program.backward is None and not item.training:
                    kind = "predict"
                report = item.forward if half == "forward" else item.backward
                assert report is not None
                reason = f"{engine_choice(item.engine, asked, report)}; {item}"
                row = entry(f"p{item.number}:{half}", _label(item, half), kind, report.runs_on, reason, item.seconds)
                show = self._show_forward if half == "forward" else self._show_backward
                yield SelectorEntry(row, lambda show=show, item=item, program=program: show(item, program))  # type: ignore[misc]

    def _show_forward(self, item: Compilation, program: CompiledCall) -> Shown:
        special, neutral = program.special, program.neutral
        units = units_of(program.forward, program.engine)
        graph = units.graph
        states = {value.node.name for value in neutral.graph.states}
        inputs = self._inputs(neutral, graph, special.forward_sources, states)
        results = len(neutral.graph.outputs)
        marks = {value: {"saved": "for the backward"} for value in graph.outputs[results:]}
        for target, value in graph.effects:
            role = inputs.get(target)
            marks[value] = marks.get(value, {}) | {"updates": "" if role is None else role.path or role.label}
        hoisted, before = {}, None
        if program.prologue is not None:
            before = _add_prologue(units, units_of(program.prologue.executable, program.engine))
            for value, (kind, index) in zip(graph.inputs, special.forward_sources, strict=True):
                if kind == "hoisted":
                    hoisted[value] = before.outputs[index]
            sources = [("input", index) for index in special.prologue_sources]
            inputs |= self._inputs(neutral, before, sources, states)
        root = root_scope(self.net, self.path, graph)
        code = len(neutral.graph.operators)
        drawn = DrawnGraph(graph, inputs, _outputs(graph.outputs[:results]), root, units, before, hoisted, marks, code)
        once = f"{len(before.operators)} more when parameters change, " if before is not None else ""
        return Shown(drawn, _summary(count(code, "operator"), code, units, program.forward.report, once))

    def _show_backward(self, item: Compilation, program: CompiledCall) -> Shown:
        special, neutral = program.special, program.neutral
        assert program.backward is not None
        units = units_of(program.backward, program.engine)
        graph = units.graph
        results = len(neutral.graph.outputs)
        inputs: dict[Value, Role] = {}
        for value, (kind, index) in zip(graph.inputs, special.sources, strict=True):
            number = f" {index}" if results > 1 else ""
            if kind == "input":
                role = self._input(neutral, index, set())
                inputs[value] = Role(role.kind, role.label, role.path, inside=True)
            elif kind == "head":
                inputs[value] = Role("input", f"gradient of output{number}")
            elif kind == "output":
                inputs[value] = Role("input", f"output{number}", inside=True)
            else:
                saved = special.forward.outputs[results + index].node
                label = f"saved {saved.op.name}" if saved.inputs else f"saved {saved.name}"
                inputs[value] = Role("input", label, inside=True, attributes={"saved": "by the forward"})
        outputs = []
        for index, value in zip(special.wrt, graph.outputs, strict=True):
            role = self._input(neutral, index, set())
            where = {"gradient of": role.path} if role.path else {}
            label = f"gradient of {role.label}"
            outputs.append((value, Role("output", label, inside=bool(role.path), attributes=where)))
        root = root_scope(self.net, self.path, program.forward.graph)
        code = count(len(neutral.graph.operators), "operator")
        summary = _summary(f"gradients of {code}", -1, units, program.backward.report)
        return Shown(DrawnGraph(graph, inputs, outputs, root, units), summary)

    def _inputs(self, neutral: NeutralGraph, graph: Graph, sources: object, states: set[str]) -> dict[Value, Role]:
        """The roles of a graph's inputs, without the inputs that a prologue computes."""
        pairs = zip(graph.inputs, sources, strict=True)  # type: ignore[call-overload]
        return {value: self._input(neutral, index, states) for value, (kind, index) in pairs if kind == "input"}

    def _input(self, neutral: NeutralGraph, index: int, states: set[str]) -> Role:
        """The role of input number `index` of a neutral graph. states : names of the inputs that operators update"""
        name = neutral.graph.inputs[index].node.name
        if index < neutral.num_data:
            return Role("input", name, number=index)
        path = self._path(neutral.parameters[index - neutral.num_data])
        short = path.rsplit(".", 1)[-1] or name
        return Role("aux" if name in states else "parameter", short, path, inside=True)

    def _path(self, parameter: Parameter) -> str:
        return self.paths.get(id(parameter), parameter.name)


# -- the update --------------------------------------------------------------------------------------------------------


def updates(block: Block) -> Iterator[SelectorEntry]:
    """One for each Trainer, and context, that updates a parameter of this Block."""
    below = [inner for _, inner in blocks_below(block)]
    own = {id(item) for inner in below for item in tuple(access.own_parameters(inner).values())}
    number, living = 0, tuple(trainers)
    for trainer in sorted(living, key=id):
        if not any(id(parameter) in own for parameter in access.trainer_parameters(trainer)):
            continue
        for update in access.fused_updates(trainer):
            label = f"update ({type(trainer.optimizer).__name__})"
            row = entry(f"u{number}", label, "update", update.engine, repr(update))
            number += 1
            yield SelectorEntry(row, lambda update=update: _show_update(update))  # type: ignore[misc]


def _show_update(update: FusedUpdate) -> Shown:
    """The steps of the optimizer as one picture: a kernel for each rule."""
    graphs = update.graphs
    if not graphs:
        return Shown(None, missing=f"This update is no graph: {update!r}.")
    units = Units(Graph((), ()))
    inputs: dict[Value, Role] = {}
    outputs: list[tuple[Value, Role]] = []
    for number, (graph, weights) in enumerate(graphs.items()):
        name = graph.name if len(graphs) == 1 else f"{graph.name} {number}"
        operators = graph.operators
        summary = f"{count(len(operators), 'operator')}, for each of {count(weights, 'weight')}"
        note = "each weight is updated in blocks of values; the shapes belong to one block"
        units.of |= dict.fromkeys(operators, Unit(name, "kernel", summary, update.source(graph), [note]))
        units.engines |= dict.fromkeys(operators, update.engine)
        inputs |= {value: Role("input", value.node.name) for value in graph.inputs}
        outputs += [(value, Role("output", f"new {target.node.name}")) for target, value in graph.effects]
    units.graph = Graph([*inputs], [value for value, _ in outputs])
    return Shown(DrawnGraph(units.graph, inputs, outputs, "", units), repr(update))


def _add_prologue(units: Units, before: Units) -> Graph:
    """Add the graph that runs once per change of the parameters as one unit; returns it, opened."""
    operators = before.graph.operators
    note = "computed when a parameter changes, not in every call"
    prologue = Unit("prologue", "prologue", count(len(operators), "operator"), notes=[note])
    units.of |= dict.fromkeys(operators, prologue)
    units.engines |= before.engines
    units.drawn |= {node: prologue if isinstance(drawn, Unit) else drawn for node, drawn in before.drawn.items()}
    return before.graph


def entry(
    identity: str, label: str, half: Half, engine: str = "", reason: str = "", seconds: float = 0.0
) -> GraphProgram:
    """An entry of the selector."""
    return {"id": identity, "label": label, "half": half, "engine": engine, "reason": reason, "seconds": seconds}


def _label(item: Compilation, half: str = "forward") -> str:
    """`training forward (64, 1, 28, 28)`."""
    if item.neutral.bound:
        return f"gradients of gradients, {half}"
    if item.signature is not None:  # whose shapes are at hand, while the shapes of the graph may be bound only now
        known = [shape for shape, _ in item.signature[0][1]]
    else:
        known = [value.shape for value in item.special.inputs[: item.neutral.num_data]]
    shapes = ", ".join(str(tuple(shape)) for shape in known)
    mode = "training" if item.training else "predict"
    if item.backward is not None:
        mode += f" {half}" + ("" if item.training else ", recorded")
    elif item.training:
        mode += " forward, not recorded"
    if item.precision is not None:
        mode += f" in {item.precision.target.name}"
    return f"{mode} {shapes}".rstrip()


def _from_where(neutral: NeutralGraph) -> str:
    if neutral.source != "file":
        return ""
    return ", of a module of PyTorch" if neutral.module else ", from a file"


def _outputs(values: tuple[Value, ...]) -> list[tuple[Value, Role]]:
    several = len(values) > 1
    return [(value, Role("output", f"output {index}" if several else "output")) for index, value in enumerate(values)]


def _summary(words: str, code: int, units: Units, report: Report, once: str = "") -> str:
    """The work of an executable and its compiled form: operators, kernels and sessions, and the engine.

    words, code : the operators of the code, whose number says how large the Block is; once : what the prologue has
    """
    kinds: dict[str, int] = {}
    for unit in units.units:
        if unit.kind == "prologue":
            continue
        kinds[unit.kind] = kinds.get(unit.kind, 0) + 1
    several = " and ".join(count(number, kind) for kind, number in kinds.items())
    compiled = len(units.graph.operators)
    if compiled != code or several:
        words += f", compiled to {compiled:,}" + (f" in {several}" if several else "")
    return f"{words}, {once}{engines.find(report.runs_on).where()}"


def with_shapes(graph: Graph, latest: Compilation | None) -> Graph:
    """A neutral graph with the shapes of the last compile; unchanged if they do not fit."""
    if latest is None:
        return graph
    known = {value.node.name: value for value in latest.special.inputs}
    compiled_inputs = {value: known[value.node.name] for value in graph.inputs if value.node.name in known}
    shapes = {value: same.shape for value, same in compiled_inputs.items()}
    if len(compiled_inputs) < len(graph.inputs) or None in shapes.values():
        return graph
    try:
        return infer(graph, shapes, {value: same.dtype for value, same in compiled_inputs.items()})
    except HybridLabError:  # another variant of the graph was compiled
        return graph


def with_saved_shapes(neutral: NeutralGraph) -> Graph:
    """A graph with the shapes that its inputs had at its trace, as an archive keeps them; unchanged if not all are
    known.
    """
    types = list(neutral.types or ()) + [(each.partial_shape, each.dtype) for each in neutral.parameters]
    if len(types) != len(neutral.graph.inputs) or any(shape is None or None in shape for shape, _ in types):
        return neutral.graph
    pairs = list(zip(neutral.graph.inputs, types, strict=True))
    try:
        return infer(
            neutral.graph,
            {value: tuple(shape) for value, (shape, _) in pairs},
            {value: dtype_of(dtype) for value, (_, dtype) in pairs},
        )
    except HybridLabError:  # a file whose graph and types do not fit
        return neutral.graph


def root_scope(net: Block, path: str, graph: Graph) -> str:
    """The scope of the Block itself in its graph.

    A trace names scopes after the Block it began with, which may be any Block above: `net0.features.0`, or `dense0`.
    """
    scopes = {node.scope for node in graph.operators if node.scope}
    names = path.split(".") if path else []
    block, above = net, [net]
    for name in names:
        block = access.children(block)[name]
        above.append(block)
    for depth in range(len(above) - 1, -1, -1):
        root = ".".join([above[depth].name, *names[depth:]])
        if all(f"{scope}.".startswith(f"{root}.") for scope in scopes):
            return root
    # It was called under another path, as a shared Block is: what all scopes begin with.
    common = min(scopes, key=len).split(".") if scopes else []
    while common and not all(scope.split(".")[: len(common)] == common for scope in scopes):
        common.pop()
    return ".".join(common)
