"""Device programs: a planned graph as a straight line of launches on tensors of one device.

The same plan and text as on the host (engines/planned/program.py), by the same writers, with other kernels. The
arguments of a launch are known before a call, except for the addresses of inputs and outputs: addresses in the arena,
sizes, grids and compiled handles stand in the text or are bound to its names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hybrid_lab.engines import memory
from hybrid_lab.engines.engine import CONSTANT_ROLES
from hybrid_lab.engines.launches import launches
from hybrid_lab.engines.planned.program import ProgramWriter, identifier, note_operator
from hybrid_lab.engines.planned.training import Begin, Finish
from hybrid_lab.engines.report import Report
from hybrid_lab.engines.triton.build import internals
from hybrid_lab.engines.triton.run import availability
from hybrid_lab.engines.triton.run.addresses import ALIGNED, is_aligned
from hybrid_lab.engines.triton.run.arena import POOL, constant, follow
from hybrid_lab.engines.triton.run.calls import CachedView, StridedView
from hybrid_lab.engines.triton.run.kernel import Kernel, signed
from hybrid_lab.engines.triton.run.steps import ArrayStep, HostStep, KernelOperator, TorchStep, has_rule, on_torch
from hybrid_lab.engines.triton.run.vendor import Flag, Flags, VendorKernel
from hybrid_lab.engines.triton.run.view_step import ViewStep
from hybrid_lab.graph.node import Constant, Input, Node, Value


def explain(file: str, nodes: dict[int, Node], error: BaseException) -> None:
    """As `note_operator`. If the device's memory has run out, raise an EngineError that says so, with sizes."""
    note_operator(file, nodes, error)
    out_of_memory = memory.exhausted(error, availability.torch_device())
    if out_of_memory is not error:
        raise out_of_memory from error


class DeviceWriter(ProgramWriter):
    """Writes the program of one plan on the device. All Values lie in C order."""

    pool = POOL
    explain = staticmethod(explain)
    contiguous = True

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        device = availability.torch_device()
        self.direct = not availability.device().interpreted
        self._pointers: dict[str, str] = {}
        self._launches = self._calls = 0
        self._flags: dict[str, Flag] = {}
        self._copies: dict[str, int] = {}
        self.bound |= {
            "empty": lambda shape, dtype: memory.empty(shape, dtype, device),
            "array": lambda tensor: tensor.clone(),
            "signed": signed,
            "current_stream": availability.current_stream,
            "follow": follow,
            "launches": launches,
            "stream": None,
        }

    # -- memory --------------------------------------------------------------------------------------------

    def _settings(self) -> tuple[list[str], list[str]]:
        """torch's flags, on which the vendor's products depend."""
        if not self._flags:
            return [], []
        flags = Flags(list(self._flags.values()))
        self.bound["set_flags"], self.bound["restore_flags"] = flags.set, flags.restore
        return ["before = set_flags()"], ["restore_flags(before)"]

    def describe(self, report: Report, text: Callable[[], str]) -> None:
        super().describe(report, text)
        report.host_copies = self._copies

    def _constant(self, array: np.ndarray) -> Any:
        return constant(array)

    def _dtype(self, dtype: object) -> Any:
        return memory.torch_dtype(dtype)

    @staticmethod
    def _piece(memory_: Any, shape: tuple[int, ...], dtype: Any, offset: int) -> Any:
        nbytes = int(np.prod(shape)) * dtype.itemsize
        return memory_[offset : offset + nbytes].view(memory.torch_dtype(dtype)).view(shape)

    def _memory(self) -> tuple[list[str], list[str]]:
        take, give = super()._memory()
        if self.direct and (self._launches or self.fixed):
            take = ["stream = current_stream()", *take]
        if self.direct and self.fixed:
            take += ["if arena.stream != stream:", "    follow(arena, stream)"]
        if self._launches:
            take = [f"launches.kernels += {self._launches}", *take]
        if self._calls:
            take = [f"launches.vendor += {self._calls}", *take]
        return take, give

    # -- steps ---------------------------------------------------------------------------------------------

    def _view(self, node: Node) -> None:
        value, source = node.outputs[0], node.values_in[0]
        step, operand = ViewStep(node), self._name(source)
        if self._is_fixed(source):
            self.names[value] = name = self._local("f")
            self._fixed_values.add(value)
            self.fixed.append((name, lambda memory_, tensors: step(tensors[operand])))
            self._emit(f"# {name} is a view of {operand}", node)
        else:
            self.names[value] = name = self._local("v")
            self._emit(f"{name} = {self._bind('view', step)}({operand})", node)

    def _call(self, node: Node, targets: list[str | None]) -> None:
        op = node.op
        if isinstance(op, KernelOperator):
            places = op.places(node.inputs, node.outputs)
            for kernel in op.kernels:
                if isinstance(kernel, VendorKernel):
                    self._vendor_call(kernel, places, node)
                else:
                    self._launch(kernel, places, node)
            return
        if op.view and len(node.outputs) == 1:
            view = self._bind("view", ViewStep(node)) + ("" if targets[0] is not None else ".copied")
            self._into(node, targets, f"{view}({self._name(node.values_in[0])})")
            return
        step: Any
        if has_rule(node):
            step = TorchStep(node)
        elif on_torch(node):
            step = ArrayStep(node, self.plan.needs[node])
        else:
            step = HostStep(node, self.plan.needs[node])
            self._copies[op.name] = self._copies.get(op.name, 0) + step.to_host + step.to_device
        where = "on_host" if isinstance(step, HostStep) else "on_torch"
        operands = ["rng", *(self._operand(item) for item in node.inputs)]
        self._into(node, targets, f"{self._bind(f'{identifier(op.name)}_{where}', step)}({', '.join(operands)})", True)

    def _into(self, node: Node, targets: list[str | None], call: str, packed: bool = False) -> None:
        """The line of a step that makes its results, and the lines that copy the results to their planned memory.

        packed : they come as a tuple
        """
        received = []
        for value, target in zip(node.outputs, targets, strict=True):
            name = self._local("h")
            received.append(name)
            if target is None:
                self.names[value] = name
        self._emit(f"{', '.join(received)}{',' * packed} = {call}", node)
        for name, target, needed in zip(received, targets, self.plan.needs[node], strict=True):
            if target is not None and needed:
                self._emit(f"{target}.copy_({name})")

    def _vendor_call(self, kernel: VendorKernel, places: dict[Value, Value], node: Node) -> None:
        """torch's call for a product; views of what lies at a fixed place are made once for each arena."""
        operands = [self._viewed(places.get(value, value), view) for value, view in kernel.reads]
        run = self._bind(identifier(kernel.name), kernel.run)
        call = f"{run}({', '.join(operands)})"
        self._calls += 1
        if kernel.flag is not None:
            self._flags[kernel.flag.name] = kernel.flag
        if not kernel.allocates:
            result = self._viewed(places[kernel.outputs[0]], kernel.result)
            self._emit(f"{run}({', '.join([*operands, result])})", node)
            return
        results = [places.get(value) for value in kernel.nodes[-1].outputs]
        targets = [None if value is None else self.names.get(value) for value in results]
        if len(targets) == 1 and targets[0] is not None:
            self._emit(f"{targets[0]}.copy_({call})", node)
            return
        names = [self._local("h") for _ in results]
        self._emit(f"{', '.join(names)} = {call}", node)
        for value, name in zip(results, names, strict=True):
            if value is not None and value in self.plan.last_use:
                self.names[value] = name
                if value in self.plan.position:
                    self._hand_out(name, self.plan.position[value])

    def _hand_out(self, name: str, position: int) -> None:
        """A result of the program in memory that torch has made: if memory for it is given, it goes there."""

    def _viewed(self, value: Value, strided: StridedView | None) -> str:
        """The name of a view of a Value's memory; of the whole memory if `strided` is None."""
        name = self._name(value)
        if strided is None:
            return name
        if self._is_fixed(value):
            view = self._local("f")
            self.fixed.append((view, lambda memory_, tensors: strided(tensors[name])))
        else:
            view = self._local("v")
            steady = isinstance(value.node.op, Input) and value.node.op.role in CONSTANT_ROLES
            make = CachedView(strided) if steady else strided
            self._emit(f"{view} = {self._bind('view', make)}({name})")
        return view

    def _launch(self, kernel: Kernel, places: dict[Value, Value], node: Node) -> None:
        source = kernel.source
        values = [places.get(value, value) for value in (*source.inputs, *source.outputs)]
        numbers = ["signed(rng[0])"] * bool(source.draws)
        numbers += [f"signed(rng[1] + {draw})" for draw in source.draws]
        numbers += [self._size(source.sizes[name]) for name in source.passed]
        hint = identifier(source.name)
        self._launches += 1
        if not self.direct:
            name = self._bind(hint, kernel)
            tensors = ", ".join(self._name(value) for value in values)
            self._emit(f"{name}(({tensors},), ({', '.join(numbers)}{',' * bool(numbers)}))", node)
            return
        run, function, metadata = internals.handles(kernel.handle)
        arguments = [self._address(value) for value in values]
        arguments += [*numbers, *map(self._size, kernel.blocks.values())]
        grid = [self._size(number) for number in kernel.grid()]
        line = internals.launch_line(
            self._bind("launch", run), grid, "stream", self._bind(hint, function, ("function", id(kernel))),
            self._bind("metadata", metadata), arguments,
        )  # fmt: skip
        self._emit(line, node)

    def _address(self, value: Value) -> str:
        """The name of a tensor's address. A value at an unaligned address is copied first."""
        name = self._name(value)
        pointer = self._pointers.get(name)
        if pointer is not None:
            return pointer
        pointer = self._pointers[name] = f"p_{name}"
        if isinstance(value.node.op, Constant):
            self.bound[pointer] = self.bound[name].data_ptr()
        elif self._is_fixed(value):
            self.fixed.append((pointer, lambda memory_, tensors: tensors[name].data_ptr()))
        else:
            self._emit(f"{pointer} = {name}.data_ptr()")
            if self.plan.storage[value] != "output" and is_aligned(value):
                self._emit(f"if {pointer} % {ALIGNED}:")
                self._emit(f"    {name} = {name}.clone()")
                self._emit(f"    {pointer} = {name}.data_ptr()")
        return pointer


class DeviceBegin(DeviceWriter, Begin):
    """The forward of a recorded call."""


class DeviceFinish(DeviceWriter, Finish):
    """The backward in the forward's arena. Gradients are not written to memory at other addresses than kernels expect:
    the caller finds them in memory of their own then, and copies them.
    """

    def _emit_output(self, name: str, position: int, value: Value) -> None:
        self._emit(f"{name} = None if given is None else given[{position}]")
        self._emit(f"if {name} is None or {name}.data_ptr() % {ALIGNED}:")
        self._emit(f"    {name} = {self._fresh(value)}")

    def _hand_out(self, name: str, position: int) -> None:
        self._emit(f"if given is not None and given[{position}] is not None:")
        self._emit(f"    {name} = given[{position}].copy_({name})")
