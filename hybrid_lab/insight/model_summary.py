"""mx.summary: parameters, operations and memory of every Block for a shape, by inference: nothing runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, HybridLabError, ShapeError
from hybrid_lab.diagnostics.formatting import called, count
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.engines.report import format_bytes
from hybrid_lab.gluon import access
from hybrid_lab.gluon.ahead import arguments, weight_dtype
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.nn.norm import BatchNorm
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Input, Node, Scope, Value
from hybrid_lab.graph.partial import PartialShapes, is_complete
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.graph.printer import format_type
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.hybridize.events import tool_runs
from hybrid_lab.hybridize.neutral import NeutralGraph, trace_block
from hybrid_lab.hybridize.stale.trace_warnings import undoing_changes
from hybrid_lab.hybridize.structure import flatten
from hybrid_lab.insight.report import InsightReport
from hybrid_lab.insight.silent import silent
from hybrid_lab.insight.states import blocks_below, class_name, walk
from hybrid_lab.insight.table import Column, Row, Table, wrapped
from hybrid_lab.insight.work import peak_bytes, work_of
from hybrid_lab.ndarray import tape
from hybrid_lab.ops.framework.dtypes import dtype_of, is_floating, is_narrow
from hybrid_lab.system.progress import shows_work

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hybrid_lab.gluon.parameter import Parameter

_ROWS = 60
"""Blocks that the text and the HTML show; deeper ones are left out if there are more."""
_OUTPUTS = 3
"""Types of outputs of one Block that are shown."""


@dataclass
class BlockSummary:
    """One Block, with all that is below it.

    path : attribute names from the top of the model, "" for the top itself; kind : its class
    same_as : the path at which this Block stands too, and is counted; else None
    calls : how often it is called in one call of the model
    outputs : their types, `f32[8,64,112,112]`, equal ones once; shapes : the same as (shape, dtype name)
    parameters, trainable : numbers in its parameters, each parameter once; None while a shape is unknown; 0 if the
        Block is counted at another path
    multiply_adds, flop : of one call of the model, the backward included if training was asked for
    activations : bytes of the arrays that its operators compute; views take none
    """

    path: str
    kind: str
    same_as: str | None = None
    calls: int = 0
    outputs: list[str] = field(default_factory=list)
    parameters: int | None = 0
    trainable: int | None = 0
    multiply_adds: int = 0
    flop: int = 0
    activations: int = 0
    shapes: list[tuple[tuple[int, ...], str]] = field(default_factory=list)


@dataclass
class ModelSummary(InsightReport):
    """The needs of one call of a model. Print it, show it in a notebook, or take `data()`.

    name : of the model; inputs : types of its arguments; training : whether the backward is counted
    blocks : the Blocks in the order of the tree, the whole model first
    parameter_bytes, gradient_bytes : of all parameters, and of their gradients in training
    peak_bytes : in prediction, the most bytes of results that are alive at one time; None in training
    kept_bytes : in training, bytes that the forward keeps for the backward; None in prediction
    missing : why there are no operations and outputs, or ""
    """

    name: str
    inputs: list[str]
    training: bool
    blocks: list[BlockSummary]
    parameter_bytes: int = 0
    gradient_bytes: int = 0
    peak_bytes: int | None = None
    kept_bytes: int | None = None
    missing: str = ""

    @property
    def total(self) -> BlockSummary:
        """The whole model."""
        return self.blocks[0]

    def __getitem__(self, path: str) -> BlockSummary:
        """The Block at a path, `summary["features.0"]`. Raises KeyError."""
        for block in self.blocks:
            if block.path == path:
                return block
        raise KeyError(path)

    @property
    def headline(self) -> str:
        """The totals in one line."""
        total = self.total
        numbers = "an unknown number of" if total.parameters is None else short(total.parameters)
        parts = [f"{numbers.strip()} parameters ({format_bytes(self.parameter_bytes)})"]
        if not self.missing:
            parts.append(f"{short(total.multiply_adds)}MAC, {short(total.flop)}FLOP")
        if self.kept_bytes is not None:
            parts.append(f"{format_bytes(self.kept_bytes)} kept for the backward")
            parts.append(f"{format_bytes(self.gradient_bytes)} gradients")
        if self.peak_bytes is not None:
            parts.append(f"results of {format_bytes(self.peak_bytes)} at most at one time")
        mode = "training" if self.training else "prediction"
        return f"{self.name}({', '.join(self.inputs)}) in {mode}: {', '.join(parts)}"

    def _shown(self) -> tuple[list[BlockSummary], int]:
        """The Blocks down to the largest depth with at most _ROWS rows, and the number of the Blocks below."""
        depths = [_depth(block.path) for block in self.blocks]
        depth = max(depths)
        while depth > 1 and sum(each <= depth for each in depths) > _ROWS:
            depth -= 1
        shown = [block for block, each in zip(self.blocks, depths, strict=True) if each <= depth]
        return shown, len(self.blocks) - len(shown)

    def _table(self) -> Table:
        shown, _ = self._shown()
        columns = [Column("block", flexible=True), Column("output", flexible=True), Column("parameters", right=True)]
        columns += [Column(title, right=True) for title in ("MAC", "FLOP", "share", "activations")]
        rows = []
        for block in shown:
            share = block.flop / self.total.flop if self.total.flop else 0.0
            work = ["", "", "", ""]
            if not self.missing and block.calls:
                counts = [short(number).strip() for number in (block.multiply_adds, block.flop)]
                work = [*counts, f"{share:.1%}", format_bytes(block.activations)]
            outputs = ", ".join(block.outputs[:_OUTPUTS]) + (" ..." if len(block.outputs) > _OUTPUTS else "")
            cells = [_title(block, self.name), outputs, _exact(block.parameters), *work]
            rows.append(Row(cells, depth=_depth(block.path), strong=not block.path, share=share))
        return Table(columns, rows)

    def _notes(self) -> list[str]:
        _, hidden = self._shown()
        notes = []
        if hidden:
            notes.append(f"{count(hidden, 'deeper Block')} not shown: data() has all.")
        if self.missing:
            notes.append(self.missing)
        if self.total.trainable != self.total.parameters:
            notes.append(f"{_exact(self.total.trainable)} of the parameters are trained.")
        return notes

    def _lines(self) -> list[str]:
        return [*super()._lines(), *(line for note in self._notes() for line in wrapped(note, "  "))]

    def _parts(self) -> list[str]:
        from html import escape

        return [*super()._parts(), *(f"<div>{escape(note)}</div>" for note in self._notes())]


def short(number: float) -> str:
    """25557032 -> "25.6 M", 4089184256 -> "4.09 G"; the space stays if there is no prefix, as in "512 "."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(number) < 999.5 or prefix == "T":
            digits = f"{number:.3g}" if prefix and number < 999.5 else f"{number:.0f}"
            return f"{digits} {prefix}"
        number /= 1000
    raise AssertionError


def _exact(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _depth(path: str) -> int:
    return path.count(".") + 1 if path else 0


def _title(block: BlockSummary, name: str) -> str:
    title = f"{block.path.rpartition('.')[2] or name} ({block.kind})"
    if block.calls > 1:
        title += f", {block.calls} calls"
    return f"{title} = {block.same_as or name}" if block.same_as is not None else title


@shows_work("counting")
def summary(
    net: Block, inputs: object, *more: object, dtype: DTypeLike | None = None, training: bool = False
) -> ModelSummary:
    """Parameters, operations and memory of every Block in one call of `net`, before anything runs.

        net = nn.HybridSequential(prefix="net_")
        net.add(nn.Dense(8, activation="relu"), nn.Dense(2))
        net.initialize()
        print(mx.summary(net, (4, 3)))

    inputs, more : its arguments: arrays, or shapes in their place. One array or shape, several, a list of them, or a
        dict by the names of the arguments of forward: `mx.summary(net, {"data": (8, 3, 224, 224)})`. `((8, 10),
        "int32")` is a shape with a dtype
    dtype : what if inputs and parameters of floating dtypes had this one; None: unchanged
    training : count the backward too, and the values that the forward keeps for it

    The shapes follow by inference from the model's own graph. No parameter needs values, and nothing of the model
    changes. If the code cannot become a graph, the parameters are counted, and `missing` says why.
    Raises HybridLabError for anything but a Block and for inputs other than arrays and shapes, ShapeError for shapes
    that do not fit the model.
    """
    check_switches("summary", training=training)
    if not isinstance(net, Block):
        raise HybridLabError(f"summary needs a Block, not {type(net).__name__}")
    wanted = None if dtype is None else dtype_of(dtype)
    given = _ordered(net, inputs) if isinstance(inputs, Mapping) else [inputs, *more] if more else inputs
    leaves, spec = flatten(arguments(given, weight_dtype(net)), f"the input of {called(net)}")
    own = [(leaf.shape, np.dtype(leaf.dtype)) for leaf in leaves]  # the trace knows the types that parameters have
    types = [(shape, kind if wanted is None or not is_floating(kind) else wanted) for shape, kind in own]
    tree = _SummaryRows(net, wanted)
    missing = ""
    neutral: NeutralGraph | None = None
    try:
        with silent(), tool_runs(), tape.Mode(training, training):
            if isinstance(net, HybridBlock):
                cache = access.calls(net).twin(traces=access.is_active(net) or bool(access.graphs(net).pinned))
                neutral = cache.neutral(spec, leaves)
            else:
                with undoing_changes(net):
                    neutral = trace_block(_TracingWrapper(net), spec, own, training, keep=False, for_shapes=True)
    except (ShapeError, DTypeError):
        raise
    except HybridLabError as error:
        missing = f"Operations and outputs are not known, because the code cannot become a graph: {error}"
    except Exception as error:  # the user's code, which may raise anything when it is called on Symbols
        missing = (
            f"Operations and outputs are not known: without data, {called(net)} raises {type(error).__name__}: {error}"
        )
    result = ModelSummary(called(net), [format_type(*each) for each in types], training, tree.rows, missing=missing)
    shapes = {} if neutral is None else _parameter_shapes(neutral, types)
    tree.count_parameters(result, shapes)
    if neutral is not None:
        _count_work(result, tree, neutral, types, shapes)
    return result


class _TracingWrapper(HybridBlock):
    """Lets the code of a plain Block be traced: it is no child, so it keeps its own names."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.__dict__["_plain"] = block

    def forward(self, *args: object) -> object:
        """The result of the plain Block."""
        return self.__dict__["_plain"](*args)


def _ordered(net: Block, inputs: Mapping[Any, object]) -> list[object]:
    """The inputs of a dict in the order of the arguments. Raises HybridLabError for names that are no arguments."""
    method, skipped = access.entry(net) if isinstance(net, HybridBlock) else (net.forward, 0)
    parameters = list(inspect.signature(method).parameters)[skipped:]
    names = [name for name in parameters if name not in access.own_parameters(net)]
    unknown = [str(name) for name in inputs if name not in names]
    if unknown:
        raise HybridLabError(
            f"{called(net)} has no argument {unknown[0]!r}; its arguments are {', '.join(names) or 'none'}"
        )
    return [inputs[name] for name in names if name in inputs]


def _parameter_shapes(neutral: NeutralGraph, types: Sequence[tuple[Any, Any]]) -> dict[Parameter, Any]:
    """The shapes of a graph's parameters for these inputs, None inside for sizes that do not follow."""
    own = {item: item.partial_shape for item in neutral.parameters}
    if all(map(is_complete, own.values())):
        return own
    graph = neutral.graph
    if neutral.unused:
        graph = Graph(graph.inputs, [*graph.outputs, *neutral.unused])
    variables = graph.inputs[neutral.num_data :]
    known: dict[Value, Any] = {value: shape for value, (shape, _) in zip(graph.inputs, types, strict=False)}
    known |= {value: item.partial_shape for value, item in zip(variables, neutral.parameters, strict=True)}
    inferred = PartialShapes(graph, known).shapes
    return {item: inferred.get(value) for value, item in zip(variables, neutral.parameters, strict=True)}


def _count_work(
    result: ModelSummary, tree: _SummaryRows, neutral: NeutralGraph, types: Sequence[tuple[Any, Any]],
    shapes: Mapping[Parameter, Any],
) -> None:  # fmt: skip
    """Add operations, outputs and memory to the rows."""
    unknown = [item.name for item in neutral.parameters if not is_complete(shapes[item])]
    if unknown:
        result.missing = f"Operations are not known: the shape of {unknown[0]} does not follow from the inputs."
        return
    all_shapes = [*(shape for shape, _ in types), *(shapes[item] for item in neutral.parameters)]
    dtypes = [*(dtype for _, dtype in types), *(tree.dtype(item) for item in neutral.parameters)]
    inputs = neutral.graph.inputs
    typed = infer(neutral.graph, dict(zip(inputs, all_shapes, strict=True)), dict(zip(inputs, dtypes, strict=True)))
    tree.add(typed, backward=False)
    tree.note_outputs(typed)
    if not result.training:
        result.peak_bytes = peak_bytes(typed)
        return
    wrt = [neutral.num_data + at for at, item in enumerate(neutral.parameters) if item.grad_req != "null"]
    if not wrt:
        return
    try:
        special = specialize(neutral.graph, all_shapes, dtypes, True, wrt, neutral.num_data, bound=neutral.bound)
    except HybridLabError as error:
        result.missing = f"The backward is not counted: {error}"
        return
    if special.backward is not None:
        tree.add(special.backward, backward=True)
    saved = special.forward.outputs[len(neutral.graph.outputs) :]
    result.kept_bytes = sum(value.nbytes for value in dict.fromkeys(saved) if not isinstance(value.node.op, Input))
    result.gradient_bytes = sum(prod(shapes[item]) * tree.dtype(item).itemsize for item in neutral.parameters
                                if item.grad_req != "null")  # fmt: skip


class _SummaryRows:
    """The rows of the Blocks, and the rows to which an operator belongs."""

    def __init__(self, net: Block, wanted: np.dtype | None) -> None:
        self.net, self._wanted = net, wanted
        self._float32: set[int] = set()
        self.rows: list[BlockSummary] = []
        self.blocks: dict[str, Block] = {}
        for path, _, block, before in walk(net):
            self.rows.append(BlockSummary(path, class_name(block), before))
            self.blocks[path] = block
            if wanted is not None and is_narrow(wanted):
                own = access.own_parameters(block).values() if isinstance(block, BatchNorm) else ()
                self._float32.update(map(id, (*own, *access.stay_float32(block, wanted))))
        self._by_path = {row.path: row for row in self.rows}
        self._lines: dict[str, tuple[BlockSummary, ...]] = {}
        self._below: dict[int, dict[str, tuple[str, Block]]] = {}

    def dtype(self, parameter: Parameter) -> np.dtype:
        """The dtype of a parameter; what `cast` would make it if another one was asked for."""
        own = dtype_of(parameter.dtype)
        if self._wanted is None or not is_floating(own):
            return own
        return np.dtype("float32") if id(parameter) in self._float32 else self._wanted

    def count_parameters(self, result: ModelSummary, shapes: Mapping[Parameter, Any]) -> None:
        """Add the parameters to the Blocks that have them and to those around, to each Block once."""
        sizes: dict[Parameter, int | None] = {}
        owners: dict[Parameter, list[str]] = {}
        for row in self.rows:
            for item in access.own_parameters(self.blocks[row.path]).values() if row.same_as is None else ():
                owners.setdefault(item, []).append(row.path)
                if item not in sizes:
                    shape: Any = shapes.get(item) or item.partial_shape
                    sizes[item] = prod(shape) if is_complete(shape) else None
        if len(owners) == sum(map(len, owners.values())) and all(row.same_as is None for row in self.rows):
            for item, (path,) in owners.items():
                self._count(item, sizes[item], self._line(path))
        else:  # a Block also counts Blocks below it, even if they stand elsewhere too
            for row in self.rows:
                if row.same_as is None:
                    below = blocks_below(self.blocks[row.path])
                    for item in {each: None for _, block in below for each in access.own_parameters(block).values()}:
                        self._count(item, sizes[item], [row])
        result.parameter_bytes = sum((size or 0) * self.dtype(item).itemsize for item, size in sizes.items())

    def _count(self, item: Parameter, size: int | None, rows: Iterable[BlockSummary]) -> None:
        for row in rows:
            row.parameters = _sum(row.parameters, size)
            if item.grad_req != "null":
                row.trainable = _sum(row.trainable, size)

    def add(self, graph: Graph, backward: bool) -> None:
        """Add the work of a graph's operators to their Blocks."""
        called: dict[str, set[int]] = {}
        for node in graph.nodes:
            if isinstance(node.op, Input):
                continue
            work = work_of(node)
            for row in self._of(node):
                row.multiply_adds += work.multiply_adds
                row.flop += work.flop
                row.activations += 0 if backward else work.bytes
            scope: object = node.scope
            while isinstance(scope, Scope) and not backward:
                called.setdefault(str(scope), set()).add(id(scope))
                scope = scope.caller
        for text, calls in called.items():
            line = self._of_scope(text)
            line[-1].calls = max(line[-1].calls, len(calls))
            for row in line:
                row.calls = max(row.calls, 1)
        self.rows[0].calls = 1

    def note_outputs(self, graph: Graph) -> None:
        """Note what leaves each Block: what another one, or the caller of the model, reads."""
        read: dict[Value, list[tuple[BlockSummary, ...]]] = {value: [()] for value in graph.outputs}
        for node in graph.nodes:
            for value in node.values_in:
                read.setdefault(value, []).append(self._of(node))
        for value, readers in read.items():
            if isinstance(value.node.op, Input):
                continue
            for row in self._of(value.node):
                text = format_type(value.shape, value.dtype)
                if text not in row.outputs and any(row not in reader for reader in readers):
                    row.outputs.append(text)
                    row.shapes.append((value.shape, value.dtype.name))

    def _of(self, node: Node) -> tuple[BlockSummary, ...]:
        return self._of_scope(str(node.scope))

    def _of_scope(self, scope: str) -> tuple[BlockSummary, ...]:
        """The rows of the Blocks whose code made an operator, outermost first."""
        if scope not in self._lines:
            path, block = "", self.net
            for name in scope.split(".")[1:]:
                step = self._step(block, name)
                if step is None:
                    break
                path, block = f"{path}.{step[0]}".lstrip("."), step[1]
            self._lines[scope] = self._line(path)
        return self._lines[scope]

    def _step(self, block: Block, name: str) -> tuple[str, Block] | None:
        """The Block that a name in a scope stands for: a child, or, behind plain Blocks, one below with this prefix."""
        children = access.children(block)
        if name in children:
            return name, children[name]
        below = self._below.get(id(block))
        if below is None:
            below = self._below[id(block)] = {}
            for path, _, other, _ in walk(block):
                if path:
                    below.setdefault(other.name, (path, other))
        return below.get(name)

    def _line(self, path: str) -> tuple[BlockSummary, ...]:
        """The row of a path, with the rows above it before; for a path without a row, the rows of the nearest paths
        above.
        """
        names = path.split(".") if path else []
        paths = [".".join(names[:depth]) for depth in range(len(names) + 1)]
        return tuple(self._by_path[each] for each in paths if each in self._by_path)


def _sum(total: int | None, size: int | None) -> int | None:
    return None if total is None or size is None else total + size
