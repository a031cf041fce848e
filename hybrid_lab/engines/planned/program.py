"""Write a planned graph as one straight-line Python function over prebound kernels and arrays, and compile it."""

from __future__ import annotations

import builtins
import functools
import itertools
import keyword
import re
from collections.abc import Callable, Hashable
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from hybrid_lab.engines.engine import Program
from hybrid_lab.engines.planned.arena import KEEP_BYTES, POOL, Frame, Frames
from hybrid_lab.engines.report import Report
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.memory.plan import MemoryPlan
from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.graph.printer import Names, format_origin, format_statement
from hybrid_lab.ops.framework.dtypes import is_bfloat16
from hybrid_lab.ops.framework.pointwise import Binary, Unary, scalar_as
from hybrid_lab.ops.framework.run import kernel_of, run_kernel

_serial = itertools.count()
#: A number or a shape that differs in other batches.
Size = int | tuple[int, ...]
#: Elements of NumPy's iteration buffers while a static_alloc program runs; its default is 8192.
_BUFFER_ELEMENTS = 512
#: Names that the program itself uses, and that kernels must not get.
_RESERVED = (
    *("idle", "acquire", "release", "explain", "inputs", "rng", "arena", "error", "program", "before"),
    *("keep", "over", "frame", "given", "look", "ready", "relay"),
)


def shown(graph: Graph, lines: list[str], nodes: dict[int, Node], sizes: dict[str, Size]) -> str:
    """The text of a program for people: with sizes instead of their names, and with a comment for each operator.

    lines : of the program; nodes : line number, from 1 -> the operator that it computes; sizes : name -> size
    """
    printed, texts = Names(graph), []
    for number, line in enumerate(lines, 1):
        text = _SIZE.sub(lambda match: repr(sizes.get(match[0], match[0])), line) if sizes else line
        node = nodes.get(number)
        if node is not None:
            comment = _comment(node, printed)
            head = text.lstrip()
            indent = text[: len(text) - len(head)]
            text = f"{indent}{head}: {comment}" if head.startswith("#") else f"{indent}{head:<56}  # {comment}"
        texts.append(f"{text}\n")
    return "".join(texts)


#: The name of a number or a shape.
_SIZE = re.compile(r"\bsize_0(_\d+)?\b")


def _comment(node: Node, printed: Names) -> str:
    """The comment of a line: its operator. Names may come from files, so text that could end the comment is removed."""
    text = f"{format_statement(node, printed)}   {format_origin(node)}".rstrip()
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


def note_operator(file: str, nodes: dict[int, Node], error: BaseException) -> None:
    """Note on an exception the operator of the graph that raised it.

    file : of the program's code; nodes : line number -> the operator that it computes
    """
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file and trace.tb_lineno in nodes:
            node = nodes[trace.tb_lineno]
            hint = getattr(node.op, "hint", "")
            where = ", ".join(part for part in (node.location.describe() if node.location else "", node.scope) if part)
            error.add_note(f"in the compiled graph, at {node.op!r}" + (f" ({where})" if where else ""))
            if hint:
                error.add_note(hint)
            return
        trace = trace.tb_next


class ProgramWriter:
    """Writes the program of one plan; writers for other memory than NumPy's override its methods.

    watched : call `look`, a global of the program, after each step (see watch.py)
    """

    #: The pool of the program's arenas.
    pool = POOL
    #: Adds to the program's errors: (file, nodes, error).
    explain = staticmethod(note_operator)
    #: Whether every Value is in C order.
    contiguous = False

    def __init__(self, plan: MemoryPlan, static_alloc: bool, watched: bool = False):
        self.plan, self.static_alloc, self.watched = plan, static_alloc, watched
        self.names: dict[Value, str] = {}
        self.bound: dict[str, Any] = {"empty": np.empty, "array": np.array}
        self.bound |= dict.fromkeys(_RESERVED)
        self._bound_ids: dict[Hashable, str] = {}
        self._hints: dict[str, int] = {}
        self._counters: dict[str, int] = {}
        self.fixed: list[tuple[str, Callable[[np.ndarray, dict[str, Any]], object]]] = []
        self._fixed_values: set[Value] = set()
        self.lines: list[str] = []
        self.line_nodes: dict[int, Node] = {}
        self.uses_scratch = False
        self._sizes: dict[str, Size] = {}

    # -- names ---------------------------------------------------------------------------------------------

    def _bind(self, hint: str, item: object, key: Hashable = None) -> str:
        """A global name of the program for `item`, the same for the same key."""
        key = id(item) if key is None else key
        name = self._bound_ids.get(key)
        if name is None:
            name, number = hint, self._hints.get(hint, 1)
            if number > 1:
                name = f"{hint}_{number}"
            while name in self.bound or keyword.iskeyword(name):
                number += 1
                name = f"{hint}_{number}"
            self._hints[hint] = number
            self.bound[name] = item
            self._bound_ids[key] = name
        return name

    def _size(self, item: Size) -> str:
        """A name for a number or a shape that differs in other batches: their programs then have the same text."""
        number = len(self._sizes)
        name = f"size_0_{number + 1}" if number else "size_0"
        self.bound[name] = self._sizes[name] = item
        return name

    def _local(self, kind: str) -> str:
        number = self._counters[kind] = self._counters.get(kind, -1) + 1
        return f"{kind}{number}"

    @functools.cached_property
    def _scratch_start(self) -> str:
        """The name of the offset in the arena from which kernels take temporary memory."""
        return self._size(self.plan.arena_bytes)

    # -- the program ---------------------------------------------------------------------------------------

    def finish(self) -> tuple[Program, Callable[[], str]]:
        """The program's function, and its text for people."""
        graph, plan = self.plan.graph, self.plan
        used_names: set[str] = set()
        for value in graph.inputs:
            name = identifier(value.node.name or "input")
            while name in used_names:
                name += "_"
            used_names.add(name)
            self.names[value] = f"x_{name}"
        if self.watched:
            self._emit("look(-1, ())")
        for index, node in enumerate(plan.steps):
            self._step(index, node)

        results = []
        for index, value in enumerate(graph.roots):
            name = self._name(value)
            results.append(f"array({name})" if index in plan.copies else name)
        return self._function(results)

    def describe(self, report: Report, text: Callable[[], str]) -> None:
        """Fill in the memory and program parts of a report. text : of the program"""
        report.static_alloc, report.memory, report.written = self.static_alloc, self.plan, text

    def _function(self, results: list[str]) -> tuple[Program, Callable[[], str]]:
        inputs = ", ".join(self.names[value] for value in self.plan.graph.inputs)
        head = [f"def program({self.parameters}):"]
        enter, leave = self._settings()
        head += [f"    {line}" for line in enter]
        head.append("    try:")
        if inputs:
            head.append(f"        {inputs}, = inputs")
        take, give = self._memory()
        head += [f"        {line}" for line in take]
        tail = [f"        {line}" for line in (*give, f"return {self._returned(results)}")]
        tail += ["    except Exception as error:", "        explain(error)", "        raise"]
        if leave:
            tail += ["    finally:", *(f"        {line}" for line in leave)]
        lines = [*head, *[f"        {line}" for line in self.lines], *tail]
        file = f"program {next(_serial)} {self.plan.graph.name}".rstrip()
        nodes = {number + len(head) + 1: node for number, node in self.line_nodes.items()}
        text = functools.partial(shown, self.plan.graph, lines, nodes, self._sizes)
        run = function_of("\n".join(lines) + "\n", file, self.bound, text)
        self.bound["explain"] = functools.partial(self.explain, run.__code__.co_filename, nodes)
        return run, text

    #: The function's parameters.
    parameters = "inputs, rng"

    def _settings(self) -> tuple[list[str], list[str]]:
        """The lines that change settings of libraries before the program, and the lines that restore them in any
        case.
        """
        if not self.static_alloc:
            return [], []
        # NumPy's iterators set aside a buffer of this many elements per operand, even if they do not need it.
        self.bound["setbufsize"] = np.setbufsize
        return [f"before = setbufsize({_BUFFER_ELEMENTS})"], ["setbufsize(before)"]

    def _memory(self) -> tuple[list[str], list[str]]:
        """The lines that take a frame before the steps, and the lines that give it back after them."""
        if not (self.fixed or self.uses_scratch):
            return [], []
        frames = self._frames()
        self.bound["acquire"], self.bound["release"] = frames.take, frames.give
        take, give = ["arena = acquire()"], ["release(arena)"]
        if frames.keep:
            # Saves two Python calls: an arena that was large enough is given back without a decision.
            self.bound["idle"] = frames.idle
            take = ["try:", "    arena = idle.pop()", "except IndexError:", "    arena = acquire()"]
            give = ["idle.append(arena)"]
            if self.uses_scratch:
                give = ["if arena.peak > arena.nbytes:", "    release(arena)", "else:", "    idle.append(arena)"]
        return [*take, *self._unpacked("arena.frame")], give

    def _frames(self) -> Frames:
        keep = self.static_alloc or self.plan.arena_bytes <= KEEP_BYTES
        return Frames(self._layout, self.plan.arena_bytes, keep, self.pool)

    def _unpacked(self, frame: str) -> list[str]:
        """The line that gives the arrays of a frame their names; empty without arrays."""
        names = "".join([f"{name}, " for name, _ in self.fixed])
        return [f"{names}= {frame}"] if names else []

    def _returned(self, results: list[str]) -> str:
        return f"[{', '.join(results)}]"

    def _layout(self, memory: np.ndarray) -> Frame:
        arrays: dict[str, Any] = dict(self.bound)
        for name, make in self.fixed:
            arrays[name] = make(memory, arrays)
        return tuple(arrays[name] for name, _ in self.fixed)

    def _emit(self, text: str, node: Node | None = None) -> None:
        """Add a line; node : the operator that it computes, for comments and errors."""
        if node is not None:
            self.line_nodes[len(self.lines)] = node
        self.lines.append(text)

    # -- values --------------------------------------------------------------------------------------------

    def _name(self, value: Value) -> str:
        name = self.names.get(value)
        if name is None:
            assert isinstance(value.node.op, Constant), value
            array = value.node.op.array
            name = self.names[value] = self._bind("k", self._constant(array), id(array))
        return name

    def _constant(self, array: np.ndarray) -> object:
        """A constant in the form that the program reads."""
        return array

    def _dtype(self, dtype: np.dtype) -> object:
        """A dtype in the form of the program's memory."""
        return dtype

    def _is_fixed(self, item: object) -> bool:
        """Whether the array is known before a call: a constant, or at a fixed offset of the arena."""
        if not isinstance(item, Value):
            return True
        return isinstance(item.node.op, Constant) or item in self._fixed_values

    def _operand(self, item: Value | float, dtype: np.dtype | None = None) -> str:
        if isinstance(item, Value):
            return self._name(item)
        if dtype is None:
            return self._bind("c", item, (type(item), repr(item)))
        return self._bind("c", np.asarray(scalar_as(item, np.empty(0, dtype)), dtype), (dtype, repr(item)))

    # -- steps ---------------------------------------------------------------------------------------------

    def _step(self, index: int, node: Node) -> None:
        kinds = {self.plan.storage[value] for value in node.outputs}
        if kinds == {"view"}:
            self._view(node)
        else:
            targets = [self._target(value) for value in node.outputs]
            self._call(node, targets)
        if self.watched:
            self._emit(f"look({index}, ({', '.join(self.names.get(value, 'None') for value in node.outputs)},))")
        for value in dict.fromkeys(node.values_in):
            if self.plan.storage[value] == "own" and self.plan.last_use[value] == index:
                self._emit(f"del {self.names[value]}")

    def _view(self, node: Node) -> None:
        value = node.outputs[0]
        if all(map(self._is_fixed, node.inputs)):
            operands = [self._operand(item) for item in node.inputs]
            op = node.op
            self.names[value] = name = self._local("f")
            self._fixed_values.add(value)
            self.fixed.append((name, lambda memory, arrays: run_kernel(op, [arrays[item] for item in operands])[0]))
            self._emit(f"# {name} is a view of {operands[0]}", node)
        else:
            kernel = self._bind(identifier(node.op.name), node.op.numpy, node.op)
            self.names[value] = name = self._local("v")
            self._emit(f"{name} = {kernel}({', '.join(map(self._operand, node.inputs))})", node)

    def _target(self, value: Value) -> str | None:
        """The memory into which the kernel writes the value; None if it allocates itself or leaves it out."""
        kind = self.plan.storage[value]
        if kind == "arena":
            before = self.plan.inplace.get(value)
            if before is not None:
                self.names[value] = name = self.names[before]
                if before in self._fixed_values:
                    self._fixed_values.add(value)
                return name
            self._fixed_values.add(value)
            self.names[value] = name = self._local("t")
            piece, place = self._piece, (value.shape, value.dtype, self.plan.allocation_of[value].offset)
            self.fixed.append((name, lambda memory, arrays: piece(memory, *place)))
            return name
        if kind == "output":
            position = self.plan.position[value]
            self.names[value] = name = f"y{position}"
            self._emit_output(name, position, value)
            return name
        return None

    @staticmethod
    def _piece(memory: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, offset: int) -> object:
        """The array `offset` bytes from the arena's beginning."""
        return np.ndarray(shape, dtype, memory, offset)

    def _emit_output(self, name: str, position: int, value: Value) -> None:
        """The line that makes the memory of root number `position`."""
        self._emit(f"{name} = {self._fresh(value)}")

    def _fresh(self, value: Value) -> str:
        """The call that makes memory for a value."""
        dtype = self._bind(value.dtype.name, self._dtype(value.dtype), value.dtype)
        return f"empty({self._size(value.shape)}, {dtype})"

    def _call(self, node: Node, targets: list[str | None]) -> None:
        direct = self._direct(node) if len(targets) == 1 and targets[0] is not None else None
        if direct is not None:
            dtype = node.outputs[0].dtype
            kernel = self._bind(identifier(direct.__name__), direct)
            operands = [self._operand(item, dtype) for item in node.inputs]
            self._emit(f"{kernel}({', '.join(operands)}, out={targets[0]})", node)
            return
        function = kernel_of(node.op, [value.dtype for value in node.values_in], node.dtypes or ())
        key = node.op if function == node.op.numpy else (node.op, node.dtypes)
        kernel = self._bind(identifier(node.op.name), function, key)
        arguments = [self._operand(item) for item in node.inputs]
        keywords = node.op.run_keywords
        if "out" in keywords and any(target is not None for target in targets):
            arguments.append(f"out={targets[0] if len(targets) == 1 else self._group(node, targets)}")
        if "rng" in keywords:
            arguments.append(f"rng=(rng[0], rng[1] + {node.draw or 0})")
        if "need" in keywords:
            arguments.append(f"need={self.plan.needs[node]!r}")
        relayed = self._relayed(node) if node.op.takes_ready else None
        if relayed is not None:
            arguments.append(f"ready={relayed}")
        if "scratch" in keywords:
            self.uses_scratch = True
            arguments.append(f"scratch=arena.scratch({self._scratch_start})")
        call = f"{kernel}({', '.join(arguments)})"
        if all(target is None for target in targets):
            call = f"{self._received(node)} = {call}"
        self._emit(call, node)

    def _relayed(self, node: Node) -> str | None:
        """The argument `ready` of an operator that reports its gradients (`takes_ready`); None without one."""
        return None

    def _received(self, node: Node) -> str:
        """Names for the results of a kernel that allocates them."""
        for value in node.outputs:
            self.names[value] = self._local("h")
        return ", ".join(self.names[value] for value in node.outputs)

    def _group(self, node: Node, targets: list[str | None]) -> str:
        """The tuple of outputs; bound once per arena if all outputs lie in the arena."""
        text = f"({', '.join(map(str, targets))},)"
        if any(value in self.names and not self._is_fixed(value) for value in node.outputs):
            return text
        name = self._local("g")
        members = list(targets)
        self.fixed.append(
            (name, lambda memory, arrays: tuple(None if item is None else arrays[item] for item in members))
        )
        return name

    def _direct(self, node: Node) -> Callable[..., object] | None:
        """The function behind a pointwise record, if the record's kernel only calls it for these dtypes."""
        op = node.op
        dtype = node.outputs[0].dtype
        if not node.values_in or any(value.dtype != dtype for value in node.values_in) or is_bfloat16(dtype):
            return None
        if isinstance(op, Binary) and type(op).numpy is Binary.numpy:
            return op.ufunc
        if isinstance(op, Unary) and type(op).numpy is Unary.numpy and (op.integers or dtype.kind == "f"):
            return op.ufunc
        return None


@functools.lru_cache(maxsize=4096)
def identifier(name: str) -> str:
    word = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or "op"
    return f"_{word}" if word[0].isdigit() else word


def function_of(
    source: str, file: str, bound: dict[str, object], shown: Callable[[], str] | None = None
) -> FunctionType:
    """The function that a text defines.

    file : its name in tracebacks; bound : its globals
    shown : gives the text for people, which has the same lines; by default the text itself

    Tracebacks and debuggers ask `linecache` for lines, which asks the loader named in a function's globals. It skips
    names in angle brackets, so the file's name ends with ".py".
    """
    loader = SimpleNamespace(get_source=lambda name: source if shown is None else shown())
    # Globals without `__builtins__` fail if C code imports in their name, as torch does under a dispatch mode.
    bound |= {"__builtins__": builtins, "__name__": file, "__spec__": SimpleNamespace(name=file, loader=loader)}
    return FunctionType(_code(source).replace(co_filename=f"<{file}>.py"), bound)


@functools.lru_cache(maxsize=64)
def _code(source: str) -> CodeType:
    """The code of the only function in a text. Programs of one structure have one text, whatever their sizes."""
    return next(item for item in compile(source, "<program>", "exec").co_consts if isinstance(item, CodeType))
