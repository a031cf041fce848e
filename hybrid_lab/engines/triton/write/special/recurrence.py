"""Recurrence kernels: all steps of one recurrent layer in one direction, and of its gradient, in one launch.

A program has some sequences of the batch, which need nothing of one another, and goes through the steps by itself: the
product of the state with the weight, a tile of units at a time, then the gates. The states between two steps lie in
memory, twice, so that a step reads the ones before while it writes its own; a barrier divides steps. A small kernel
before it puts the first states there.

The weight is read again for each step, from the cache. Few sequences and many units leave most of a GPU idle: a layer
of 200 units and 32 sequences are two programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from hybrid_lab.engines.triton.write.body import TOGETHER, Body, Refused
from hybrid_lab.engines.triton.write.core.product import is_exact, multiplied
from hybrid_lab.engines.triton.write.index import variable
from hybrid_lab.engines.triton.write.source import (
    ROW_LANES,
    KernelSource,
    block_for,
    kernel_source,
    lanes,
    power_of_two,
)
from hybrid_lab.engines.triton.write.syntax import TYPES, label, wide
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.ops.framework.dtypes import NARROW
from hybrid_lab.ops.framework.kernel import Pointwise
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.ops.rnn.kernels import GATES

#: Sequences, units and elements of the summed axis in a tile - of float32 without tensor cores fewer, for registers;
#: tensor cores want at least 16 of each.
ROWS, COLUMNS, INNER, EXACT_INNER, LEAST = 16, 64, 32, 16, 16
#: Elements per program of the kernel that puts the first states in place.
BLOCK = 1024


def write_recurrence(group: Region, anchor: Node, precision: str) -> tuple[KernelSource, KernelSource]:
    """The kernel that prepares the states, and the kernel that goes through the steps. precision : as for products"""
    if any(node is not anchor and not node.op.view for node in group.nodes):
        raise Refused("a recurrence has a kernel of its own")
    op: Any = anchor.op
    if op.use_projection:
        raise Refused("the kernel of a recurrence has no projected states")
    gradient = op.name == "_recurrence_grad"
    inputs = dict(zip(op.signature.inputs, anchor.inputs, strict=True))
    dtype = wide(anchor.outputs[0].dtype)
    batch, hidden = inputs["dstate" if gradient else "state"].shape
    rows = GATES[op.mode] * hidden
    if gradient:
        parts = {"carried": (1, batch, hidden), "carried_cell": (1, batch, hidden), "behind": (2, batch, rows)}
        first = {"carried": inputs["dstate"], "carried_cell": inputs.get("dcell")}
    else:
        parts = {"state_now": (2, batch, hidden), "cell_now": (1, batch, hidden)}
        first = {"state_now": inputs["state"], "cell_now": inputs.get("cell")}
    states = {
        name: input_node(name, shape=shape, dtype=dtype)
        for name, shape in parts.items()
        if first.get(name, group) is not None
    }
    steps = _RecurrenceGradient(group, anchor, inputs, states, precision) if gradient else _Forward(
        group, anchor, inputs, states, precision
    )  # fmt: skip
    return _start(group, anchor, states, first), steps.source()


def _start(group: Region, anchor: Node, states: dict[str, Value], first: dict[str, Any]) -> KernelSource:
    """The kernel that copies the first states to where steps read them."""
    batch, hidden = anchor.outputs[0].shape[1], next(iter(states.values())).shape[2]
    body = Body(Region(group.nodes, group.inputs, tuple(states.values())))
    body.fresh("n")
    offsets = body.declare("offsets", batch * hidden, "inside")
    for name, value in states.items():
        if name in first:
            element = body.value(first[name], offsets.digits((batch, hidden)))
            for half in range(value.shape[0]):
                where = f"{body.pointers[value]} + offsets" + f" + {half} * n" * half
                body.line(f"tl.store({where}, {element}, mask=inside)")
    head = ["offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "inside = offsets < n"]
    summary = f"The first states of {batch:,} sequences, where steps read them."
    op: Any = anchor.op
    count = batch * hidden
    return kernel_source(
        body, "pointwise", f"{op.mode}_start", summary, head, {"n": count},
        {"BLOCK": block_for(count, 16, BLOCK)}, {"BLOCK": count}, (("n", "BLOCK"),),
        together={"n": TOGETHER // anchor.outputs[0].dtype.itemsize},
    )  # fmt: skip


def _behind(part: int) -> str:
    """How far behind the first one a part of the units of a row begins."""
    return ("", " + hidden", " + hidden * 2", " + hidden * 3")[part]


class _Steps(Body):
    """The common parts of both directions' steps: variables, products, loads and stores."""

    def __init__(
        self, group: Region, anchor: Node, inputs: dict[str, Any], states: dict[str, Value], precision: str
    ):  # fmt: skip
        super().__init__(group)
        self.anchor, self.operands, self.precision = anchor, inputs, precision
        self.op = cast(Any, anchor.op)
        self.steps, self.batch, _ = anchor.outputs[0].shape
        self.gates = GATES[self.op.mode]
        self.hidden = inputs["weight"].shape[1]
        self.type = TYPES[wide(anchor.outputs[0].dtype)]
        self.states = {name: self.pointer(value) for name, value in states.items()}
        self.row = self.declare("row", self.batch, "row_inside")

    def begin_steps(self, backwards: bool) -> None:
        """The loop over the steps."""
        self.open()
        self.declare("step", self.steps)
        self.line("step = steps - 1 - time" if backwards else "step = time", self.anchor)
        self.line("now = time % 2", "of the states before and after a step, those that it reads")

    def end_steps(self) -> None:
        self.line("tl.debug_barrier()", "the next step reads what other threads have written")
        self.close("for time in range(0, steps):")

    def begin_units(self) -> None:
        """The loop over tiles of units."""
        self.open()
        self.unit = self.declare("unit", self.hidden, "unit_inside")
        self.line_each(lanes("unit", "hidden", "COLUMNS", "start + "))
        self.line("inside = row_inside & unit_inside")

    def end_units(self) -> None:
        self.close("for start in range(0, hidden, COLUMNS):")

    def product(self, left: str, inner: int, counts: int, weight: Any, condition: str = "") -> list[str]:
        """Sums of products, one for each of `counts` columns of weights.

        left : address of row `row` of the left factor, its element `across` still to be added
        weight : (number of the sum, index of the summed axis) -> the place in the weight
        """
        totals = [self.named(f"tl.zeros([ROWS, COLUMNS], {self.type})", "total") for _ in range(counts)]
        self.open()
        self.declare("across", inner, "across_inside")
        down = self.declare("down", inner, "down_inside")
        length = f"hidden * {inner // self.hidden}" if inner != self.hidden else "hidden"
        self.line_each(lanes("across", length, "INNER", "first + "))
        self.line_each(lanes("down", length, "INNER", "first + ", down=True))
        mask = " & ".join(item for item in ("row_inside & across_inside", condition) if item)
        factor = self.named(f"tl.load({left} + across, mask={mask}, other=0)", "left")
        for number, total in enumerate(totals):
            right = self.value(self.operands["weight"], weight(number, down))
            if self.hidden == 1:
                right = f"tl.broadcast_to({right}, [INNER, COLUMNS])"
            if inner == 1:
                right = f"tl.where(down_inside, {right}, 0.0)"
            dtype = self.operands["weight"].dtype
            self.line(f"{total} = {multiplied(factor, right, self.precision, dtype, total)}")
        self.close(f"for first in range(0, {length}, INNER):")
        return totals

    def of(self, name: str, gate: int = 0, step: str = "step") -> str:
        """An element of an input at this row and unit, and at this step or another. gate : which part of it"""
        value = self.operands[name]
        if value.node not in self.nodes:  # another batch gives the same text
            return self.load(value, gate, step)
        place = (variable(step, self.steps), self.row, self.unit + gate * self.hidden)
        return self.value(value, place[-len(value.shape) :])

    def load(self, value: Value, gate: int, step: str) -> str:
        """The same of an array that is no view."""
        parts = value.shape[-1] // self.hidden
        width = f"(hidden * {parts})" if parts > 1 else "hidden"
        row = f"({step} * rows + row)" if len(value.shape) == 3 else "row"
        address = f"{self.pointer(value)} + {row} * {width} + unit{_behind(gate)}"
        widened = ".to(tl.float32)" if value.dtype.name in NARROW else ""
        return self.named(f"tl.load({address}, mask=inside, other=0){widened}", label(value))

    def now(self, name: str, half: str = "") -> str:
        """The address of a state between steps."""
        row = f"({half} * rows + row)" if half else "row"
        return f"{self.states[name]} + {row} * hidden + unit"

    def store(self, address: str, element: str) -> None:
        self.line(f"tl.store({address}, {element}, mask=inside)")

    def store_output(self, number: int, elements: Sequence[str]) -> None:
        """Store an output's elements of this step: one, or one for each part."""
        value = self.anchor.outputs[number]
        if value not in self.pointers:
            return
        width = f"(hidden * {len(elements)})" if len(elements) > 1 else "hidden"
        row = "(step * rows + row)" if len(value.shape) == 3 else "row"
        for part, element in enumerate(elements):
            self.store(f"{self.pointers[value]} + {row} * {width} + unit{_behind(part)}", element)

    def valid(self) -> str:
        """The condition that the step counts; "" if all do."""
        if not self.op.use_sequence_length:
            return ""
        length = self.value(self.operands["sequence_length"], (self.row,))
        return f"(step + 1 <= {length})"

    def function(self, name: str, value: str) -> str:
        """tanh and sigmoid as their records write them."""
        kernel = get(name).bind().triton
        assert isinstance(kernel, Pointwise)
        return str(kernel.text).format(value)

    def write_steps(self) -> None:
        raise NotImplementedError

    def source(self) -> KernelSource:
        """The kernel of the steps."""
        self.write_steps()
        op = self.op
        sizes = {"rows": self.batch, "hidden": self.hidden, "steps": self.steps}
        blocks = {
            "ROWS": ROWS,
            "COLUMNS": power_of_two(self.hidden, LEAST, COLUMNS),
            "INNER": power_of_two(self.hidden, LEAST, EXACT_INNER if is_exact(self.anchor, self.precision) else INNER),
        }
        name = f"{op.mode}_steps_grad" if isinstance(self, _RecurrenceGradient) else f"{op.mode}_steps"
        what = "Gradients of " if isinstance(self, _RecurrenceGradient) else ""
        summary = f"{what}{self.steps:,} steps of {self.batch:,} sequences with {self.hidden:,} units."
        return kernel_source(
            self, "recurrence", name, summary, ROW_LANES, sizes, blocks, {"ROWS": self.batch},
            (("rows", "ROWS"),), together={"hidden": TOGETHER // self.anchor.outputs[0].dtype.itemsize},
        )  # fmt: skip


class _Forward(_Steps):
    def write_steps(self) -> None:
        self.begin_steps(self.op.reverse)
        self.begin_units()
        left = f"{self.states['state_now']} + (now * rows + row) * hidden"
        totals = self.product(
            left, self.hidden, self.gates, lambda gate, inner: (self.unit + gate * self.hidden, inner)
        )
        mode, valid = self.op.mode, self.valid()
        before = self.named(f"tl.load({self.now('state_now', 'now')}, mask=inside, other=0)", "before")
        state = {"lstm": self.lstm, "gru": self.gru}.get(mode, self.plain)(totals, before, valid)
        if valid:
            state = self.named(f"tl.where({valid}, {state}, {before})", "state")
        self.store(self.now("state_now", "(1 - now)"), state)
        self.store_output(0, [state])
        self.end_units()
        self.end_steps()

    def plain(self, totals: list[str], before: str, valid: str) -> str:
        total = self.named(f"{totals[0]} + {self.of('projected')}", "total")
        zero = f"tl.maximum({total}, 0.0, propagate_nan=tl.PropagateNan.ALL)"
        return self.named(self.function("tanh", total) if self.op.mode == "rnn_tanh" else zero, "state")

    def lstm(self, totals: list[str], before: str, valid: str) -> str:
        gates = []
        for gate, (total, name) in enumerate(zip(totals, "ifgo", strict=True)):
            argument = self.named(f"{total} + {self.of('projected', gate)}", name)
            gates.append(self.named(self.function("tanh" if name == "g" else "sigmoid", argument), f"{name}_gate"))
        i, f, g, o = gates
        cell_before = self.named(f"tl.load({self.now('cell_now')}, mask=inside, other=0)", "held")
        cell = self.named(f"{f} * {cell_before} + {i} * {g}", "cell")
        if self.op.clip_min is not None:
            nan = "" if self.op.clip_nan else ", propagate_nan=tl.PropagateNan.ALL"
            cell = self.named(f"tl.minimum({cell}, {self.op.clip_max!r}{nan})", "cell")
            cell = self.named(f"tl.maximum({cell}, {self.op.clip_min!r}{nan})", "cell")
        if valid:
            cell = self.named(f"tl.where({valid}, {cell}, {cell_before})", "cell")
        self.store(self.now("cell_now"), cell)
        self.store_output(1, [cell])
        self.store_output(2, gates)
        return self.named(f"{o} * {self.named(self.function('tanh', cell), 'tanh')}", "state")

    def gru(self, totals: list[str], before: str, valid: str) -> str:
        arguments = [
            self.named(f"{totals[gate]} + {self.of('projected', gate)}", name) for gate, name in enumerate("rz")
        ]
        r, z = (self.named(self.function("sigmoid", name), f"{name}_gate") for name in arguments)
        bias = self.value(self.operands["hidden_bias"], (self.unit,))
        inner = self.named(f"{totals[2]} + {bias}", "inner")
        n = self.named(self.function("tanh", self.named(f"{self.of('projected', 2)} + {r} * {inner}", "n")), "n_gate")
        self.store_output(1, [r, z, n, inner])
        return self.named(f"{n} + {z} * ({before} - {n})", "state")


class _RecurrenceGradient(_Steps):
    def write_steps(self) -> None:
        self.begin_steps(not self.op.reverse)
        self.begin_units()
        total = self.arriving("now", "(time > 0)")
        dh = self.named(f"{total} + {self.of('dy')}", "dh")
        valid = self.valid()
        entering, behind, carried = {"lstm": self.lstm, "gru": self.gru}.get(self.op.mode, self.plain)(dh, valid)
        if valid:
            entering = [self.named(f"tl.where({valid}, {item}, 0.0)", "part") for item in entering]
            last = [] if behind is None else [self.named(f"tl.where({valid}, {behind}, 0.0)", "part")]
            carried = f"tl.where({valid}, {carried}, {dh})"
        else:
            last = [] if behind is None else [behind]
        behind = [*entering[:2], *last] if last else entering
        for gate, element in enumerate(behind):
            row = f"((1 - now) * rows + row) * (hidden * {self.gates})"
            self.store(f"{self.states['behind']} + {row} + unit{_behind(gate)}", element)
        self.store_output(0, entering)
        if self.op.mode == "gru":
            self.store_output(1, behind)
        self.store(self.now("carried"), f"{carried} + tl.zeros([ROWS, COLUMNS], {self.type})")
        self.end_units()
        self.end_steps()
        self.begin_units()
        self.store_output(2 if self.op.mode == "gru" else 1, [self.arriving("(steps % 2)")])
        if self.op.mode == "lstm":
            gradient = self.named(f"tl.load({self.now('carried_cell')}, mask=inside, other=0)", "dc")
            self.store_output(2, [gradient])
        self.end_units()

    def arriving(self, half: str, condition: str = "") -> str:
        """The gradient of a state: the sum of the gradient carried from the step after it, and the gradient through
        that step's gates.
        """
        width = self.gates * self.hidden
        left = f"{self.states['behind']} + ({half} * rows + row) * (hidden * {self.gates})"
        (through,) = self.product(left, width, 1, lambda _, inner: (inner, self.unit), condition)
        carried = self.named(f"tl.load({self.now('carried')}, mask=inside, other=0)", "carry")
        return self.named(f"{through} + {carried}", "through")

    def plain(self, dh: str, valid: str) -> Any:
        state = self.of("states")
        part = f"{dh} * (1.0 - {state} * {state})"
        if self.op.mode == "rnn_relu":
            part = f"{dh} * tl.where({state} > 0, 1.0, 0.0)"
        return [self.named(part, "part")], None, "0.0"

    def lstm(self, dh: str, valid: str) -> Any:
        i, f, g, o = (self.of("gates", gate) for gate in range(4))
        cell = self.of("cells")
        self.declare("earlier", self.steps)
        line = "tl.minimum(step + 1, steps - 1)" if self.op.reverse else "tl.maximum(step - 1, 0)"
        self.line(f"earlier = {line}")
        later, cell_before = self.of("cells", step="earlier"), self.of("cell")
        before = self.named(f"tl.where(time < steps - 1, {later}, {cell_before})", "held")
        tanh = self.named(self.function("tanh", cell), "tanh")
        carried = self.named(f"tl.load({self.now('carried_cell')}, mask=inside, other=0)", "carry")
        dc = self.named(f"{carried} + {dh} * {o} * (1.0 - {tanh} * {tanh})", "dc")
        if self.op.clip_min is not None:
            inside = f"({cell} > {self.op.clip_min!r}) & ({cell} < {self.op.clip_max!r})"
            dc = self.named(f"{dc} * tl.where({inside}, 1.0, 0.0)", "dc")
        through = f"tl.where({valid}, {dc} * {f}, {carried})" if valid else f"{dc} * {f}"
        self.store(self.now("carried_cell"), through)
        return (
            [
                self.named(f"{dc} * {g} * {i} * (1.0 - {i})", "di"),
                self.named(f"{dc} * {before} * {f} * (1.0 - {f})", "df"),
                self.named(f"{dc} * {i} * (1.0 - {g} * {g})", "dg"),
                self.named(f"{dh} * {tanh} * {o} * (1.0 - {o})", "do"),
            ],
            None,
            "0.0",
        )

    def gru(self, dh: str, valid: str) -> Any:
        r, z, n, inner = (self.of("gates", gate) for gate in range(4))
        dn = self.named(f"{dh} * (1.0 - {z}) * (1.0 - {n} * {n})", "dn")
        dr = self.named(f"{dn} * {inner} * {r} * (1.0 - {r})", "dr")
        dz = self.named(f"{dh} * ({self.of('before')} - {n}) * {z} * (1.0 - {z})", "dz")
        return [dr, dz, dn], self.named(f"{dn} * {r}", "dinner"), f"{dh} * {z}"
