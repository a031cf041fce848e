"""The trace in progress: scopes, parameter variables, draw numbers, shapes and dtypes as far as known, and the traced
code's observations and swallowed errors.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.diagnostics.hybridize_error import HybridizeError, hybridize_error
from hybrid_lab.diagnostics.location import Location, capture, user_frame
from hybrid_lab.graph.loops.composed import ControlFlow
from hybrid_lab.graph.node import Input, Node, Scope, Value, next_serial
from hybrid_lab.graph.partial import is_complete, located
from hybrid_lab.graph.passes.mixed_precision import inside
from hybrid_lab.ndarray import invoke as invoking
from hybrid_lab.ndarray.tape import Mode
from hybrid_lab.ndarray.tape import state as modes
from hybrid_lab.ops.framework.operator import Operator, get
from hybrid_lab.ops.framework.run import infer
from hybrid_lab.symbol import scopes

if TYPE_CHECKING:
    from hybrid_lab.graph.graph import Graph
    from hybrid_lab.symbol.symbol import Symbol

#: The role of the inputs of a loop's body: such a variable means nothing outside of its body.
INSIDE = "inside"


class Trace:
    """One run of a Block's code on Symbols.

    styles : per running piece of code "1.x" (hybrid_forward on F=sym) or "2.x" (forward on tracing arrays)
    parameters : the Value of each parameter that was read, in order of first use
    draws : how many draw numbers were given out
    nodes : the operators so far, including operators without effect on the outputs; none in bodies of loops and
    branches
    types : shapes and dtypes of Values as far as known, in a 2.x trace
    observed : the code's questions about shapes, the mode or recording; not empty makes the trace a guarded variant
    fixed : inside `with autograd.train_mode()` and its like, the mode that the code set and the call that set it
    used_fixed : how often the code used a mode that it set itself: its operators then do not have the call's mode
    pauses : (serial, serial) of the nodes before and after each piece of code that ran while recording was paused
    nested : the graphs of nested Blocks that were recorded on the way, (id of the Block, input structure) -> (Block,
        graph); their Blocks keep them once the trace ran through
    composes : a call on Symbols of the user's own, whose code may continue with values that the call leaves on the
    Block
    for_shapes : the graph tells the shapes of parameters and is never run
    """

    def __init__(self, training: bool | None = None, composes: bool = False):
        self.training = training
        self.composes = composes
        self.for_shapes = False
        self.styles: list[str] = []
        self.blocks: list[Any] = []
        self.parameters: dict[Any, Symbol] = {}
        self._names: set[str] = set()  # of the variables of parameters
        self.owners: dict[Value, Any] = {}
        self.types: dict[Value, tuple[Any, Any]] = {}
        self.draws = 0
        self.nodes: list[Node] = []
        self.scopes: list[Scope] = []
        self.observed: list[tuple[str, Location | None]] = []
        self.raised: list[HybridizeError] = []
        self.nested: dict[tuple[int, Any], tuple[Any, Any]] = {}
        self._child_names: dict[int, dict[int, str]] = {}
        self.fixed: tuple[bool, str] | None = None
        self.used_fixed = 0
        self.pauses: list[tuple[int, int]] = []
        self._paused_since: int | None = None

    def next_draw(self) -> int:
        """Use up one draw number."""
        number = self.draws
        self.draws += 1
        return number

    def parameter(self, parameter: Any) -> Symbol:
        """The variable that stands for a Parameter in this trace: always the same one."""
        variable = self.parameters.get(parameter)
        if variable is None:
            variable = parameter.var(self._names)
            variable = self.parameters[parameter] = variable.as_np_ndarray() if parameter.is_np else variable
            self.owners[variable.outputs[0]] = parameter
        return variable

    def child_name(self, children: Mapping[str, object], child: object) -> str | None:
        """The name of a child among a Block's children; None for any other object."""
        names = self._child_names.get(id(children))
        if names is None or len(names) != len(children):
            names = {}
            for name, item in children.items():
                names.setdefault(id(item), name)
            self._child_names[id(children)] = names
        known = names.get(id(child))
        if known is not None and children.get(known) is child:
            return known
        return next((name for name, item in children.items() if item is child), None)

    @property
    def scope(self) -> str:
        """Path of the Block whose code is running."""
        return self.scopes[-1] if self.scopes else ""

    @property
    def arrays(self) -> bool:
        """Whether the running code is 2.x style: it sees arrays whose shapes can be read."""
        return bool(self.styles) and self.styles[-1] == "2.x"

    @contextmanager
    def inside(self, block: object, path: str, style: str) -> Iterator[None]:
        """Run a Block's code: nodes made inside carry its path."""
        self.blocks.append(block)
        self.scopes.append(Scope(path, self.scopes[-1] if self.scopes else None))
        try:
            with self.in_style(style):
                yield
        finally:
            self.blocks.pop()
            self.scopes.pop()

    @contextmanager
    def in_style(self, style: str) -> Iterator[None]:
        """Run a part of the current Block's code that is in this style."""
        self.styles.append(style)
        outer, modes.trace = modes.trace, self if style == "2.x" else None
        try:
            yield
        finally:
            modes.trace = outer
            self.styles.pop()

    @contextmanager
    def mode(self, call: str, recording: bool | None, training: bool | None) -> Iterator[None]:
        """`with autograd.pause():` and its like in the traced code. The graph keeps the scope's effect: operators get
        the mode of the scope, and no gradient flows through results computed while recording is paused.
        """
        fixed, was_paused = self.fixed, self._paused_since is not None
        if training is not None:
            self.fixed = training, call
        if recording is not None:
            self._pause(not recording)
        try:
            with Mode(recording, training):
                yield
        finally:
            self.fixed = fixed
            self._pause(was_paused)

    def _pause(self, on: bool) -> None:
        if self._paused_since is not None:
            self.pauses.append((self._paused_since, next_serial()))
        self._paused_since = next_serial() if on else None

    def operator(self, op: Operator, training: bool, call: str) -> Operator:
        """The operator for the graph in a mode that the code has set. Raises HybridizeError HL175.

        training, call : the mode, and the call that set it
        """
        if not op.mode_dependent:
            return op
        self.used_fixed += 1
        fixed = op.fix_mode(training)
        if fixed is not None:
            return fixed
        if training is self.training:  # the call has this mode anyway
            self.observed.append(("mode", capture()))
            return op
        mode = "training" if training else "prediction"
        raise refuse(
            "HL175",
            call=call,
            message=f"`{call}` sets the mode of F.{op.name}, which a graph can run only in the mode of the call.",
            reason=f"No attribute of {op.name} stands for {mode} in a call of the other mode.",
            rewrite="the scope around the call of the network      or      call it in a plain Block",
        )

    def outside_pause(self, value: Value) -> Value:
        """The value as an operator reads it: behind BlockGrad if it was computed while recording was paused and the
        reader is not.
        """
        if not self.pauses or self._paused_since is not None or value.is_input:
            return value
        serial = value.node.serial
        if not any(start < serial < end for start, end in self.pauses):
            return value
        blocked = Node(
            get("BlockGrad").bind(),
            [value],
            name=scopes.NameManager.current.get(None, "blockgrad"),
            scope=self.scope,
            location=capture(),
        ).outputs[0]
        if value in self.types:
            self.types[blocked] = self.types[value]
        self.nodes.append(blocked.node)
        return blocked

    def note_types(self, node: Node) -> None:
        """Infer a new node's output types if its inputs are known, filling deferred parameter shapes on the way.

        Raises ShapeError or DTypeError with the source line.
        """
        if node.op.is_open:
            return
        pairs = [self.known_type(item) if isinstance(item, Value) else ((), None) for item in node.inputs]
        dtypes = tuple(
            pair[1] if pair else item.dtype or np.dtype("float32")
            for item, pair in zip(node.inputs, pairs, strict=True)
        )
        try:
            if any(pair is None for pair in pairs):
                if any(pair is None and not _is_parameter(item) for item, pair in zip(node.inputs, pairs, strict=True)):
                    return
                partial = [
                    item.shape if pair is None else pair[0] for item, pair in zip(node.inputs, pairs, strict=True)
                ]
                shapes: tuple[Any, ...] = tuple(node.op.complete(*partial))
                if not all(is_complete(shape) for shape in shapes):
                    return
                for item, pair, shape, dtype in zip(node.inputs, pairs, shapes, dtypes, strict=True):
                    if pair is None:
                        self.types[item] = (tuple(shape), dtype)
            else:
                shapes = tuple(pair[0] for pair in pairs if pair)
            op, precision = node.op, invoking.precision
            if precision is not None:
                op = inside(op, dtypes, precision) if isinstance(op, ControlFlow) else op
                dtypes = precision.of(op, dtypes)
            out_shapes, out_dtypes = infer(op, shapes, dtypes)
        except (ShapeError, DTypeError) as error:
            raise located(error, node) from None
        for value, shape, dtype in zip(node.outputs, out_shapes, out_dtypes, strict=True):
            self.types[value] = (shape, dtype)

    def known_type(self, value: Value) -> tuple[Any, Any] | None:
        """Shape and dtype of a Value, or None if they are not known yet."""
        known = self.types.get(value)
        if known is None and value.shape_is_known:
            return value.shape, value.dtype or np.dtype("float32")
        return known

    def observe(self, what: str) -> None:
        """The code asked for the mode, or whether calls are recorded: the trace is a variant that holds for this answer
        only.

        Raises HybridizeError HL175 if it sets the mode for all that follows: `what` is then the call.
        """
        if what.endswith("()"):
            raise refuse(
                "HL175",
                call=what,
                message=f"`{what}` inside hybrid_forward changes the mode behind the graph.",
                reason="A compiled call runs operators, not the Python code around them.",
                rewrite="with autograd.pause():      or      call it outside the network",
            )
        self.used_fixed += self.fixed is not None
        self.observed.append(("recording" if what == "is_recording" else "mode", capture()))

    def finish(self) -> None:
        """Raise HL177 if the traced code swallowed a HybridizeError: it would run differently from eager mode. HL176
        where `hasattr` or `getattr` did.
        """
        if self.raised:
            error = self.raised[0]
            question = _attribute_question(error.location)
            raise hybridize_error(
                "HL177" if question is None else "HL176",
                error.location,
                construct=question,
                block=error.block,
                tensor=error.tensor,
                reason="The code caught this error and took another path than in an eager call: "
                f"{error.code}: {error.message}",
            )


def _is_parameter(value: Value) -> bool:
    """Whether its shape may be completed from other inputs; that would be a guess for intermediate tensors."""
    return isinstance(value.node.op, Input) and value.node.op.role in ("param", "aux")


def _attribute_question(location: Location | None) -> str | None:
    """`hasattr(x, 'T')` if the code at the location is such a call."""
    if location is None or location.line != location.end_line:
        return None
    text = location.source_line[location.col : location.end_col]
    return text if text.startswith(("hasattr(", "getattr(")) else None


class _Local(threading.local):
    """trace : the trace in progress, or None

    enclosing : the object that a call of a Block belongs to: the trace in progress, the list of the calls of a plain
        Block, the CallRecorder of a cell (`gluon/call_record.py`), or None
    """

    def __init__(self) -> None:
        self.trace: Trace | None = None
        self.enclosing: Any = None


local = _Local()
"""Per thread."""


def current() -> Trace | None:
    """The trace in progress on this thread."""
    return local.trace


def stands_for_arrays() -> bool:
    """Whether the Symbols of this thread stand for arrays: Symbols of a hybridized call, unlike the user's Symbols."""
    return local.trace is not None and not local.trace.composes


def of_arrays() -> Trace | None:
    """The trace in progress on this thread, if the code that runs is in 2.x style."""
    trace = local.trace
    return trace if trace is not None and trace.arrays else None


@contextmanager
def tracing(trace: Trace) -> Iterator[Trace]:
    """Make `trace` the current one; ends with `trace.finish()` if the code ran through."""
    before, enclosing = local.trace, local.enclosing
    local.trace = local.enclosing = trace
    hooks = modes.observe, modes.scope
    modes.observe, modes.scope = trace.observe, trace.mode
    try:
        yield trace
    finally:
        local.trace, local.enclosing = before, enclosing
        modes.observe, modes.scope = hooks
    trace.finish()


def refuse(code: str, tensor: Symbol | str | None = None, value: object = None, **facts: Any) -> HybridizeError:
    """The HybridizeError of a rule, with the block of the current trace. The trace notes it, to detect code that
    swallows it.

    tensor : the refused tensor; message and rewrite name it as the user wrote it (`x`, `self.body(x)`) if the source is
    available, else by the name of its node
    value : the object to look for in the source, if it is not `tensor`
    """
    trace = local.trace
    frame = user_frame()
    location = None if frame is None else Location(frame.f_code, frame.f_lasti)
    name = tensor if tensor is None or isinstance(tensor, str) else tensor.name or "a group"
    if frame is not None:
        wanted = tensor if value is None else value
        from hybrid_lab.diagnostics.source_facts import source_facts

        in_source = source_facts(code, frame, lambda other: _same(other, wanted), _holds_symbols)
        if in_source is not None:
            code, name, facts = in_source.code, in_source.tensor or name, {**facts, **in_source.facts}
    error = hybridize_error(code, location, block=trace.scope if trace else None, tensor=name, **facts)
    if trace is not None:
        trace.raised.append(error)
    return error


def _same(value: Any, wanted: Any) -> bool:
    """Whether a value is the wanted array, or a Symbol of the same outputs."""
    if _is_symbol(value) and _is_symbol(wanted):
        return bool(value.outputs == wanted.outputs)
    return value is wanted


def _is_symbol(value: object) -> bool:
    return getattr(type(value), "_is_symbol", False)


def holds_symbols(value: object) -> bool:
    """Whether a value is a Symbol, or a list, tuple, set, deque or dict that holds one, at any depth."""
    pending, visited = [value], set[int]()
    while pending:
        item = pending.pop()
        if _is_symbol(item):
            return True
        if isinstance(item, (list, tuple, set, deque, dict)) and id(item) not in visited:
            visited.add(id(item))
            pending += item.values() if isinstance(item, dict) else item
    return False


def _holds_symbols(value: object) -> bool:
    if isinstance(value, dict):
        value = tuple(value.values())
    return _is_symbol(value) or (isinstance(value, list | tuple) and any(map(_is_symbol, value)))


def refuse_leaks(graph: Graph) -> None:
    """Raise HybridizeError HL173 if a finished graph reads what exists inside a body only."""
    for node in graph.nodes:
        if isinstance(node.op, Input) and node.op.role == INSIDE:
            raise leaked(node)


def leaked(node: Node) -> Exception:
    """The error for a tensor that was carried out of its body through a variable of Python."""
    return hybridize_error(
        "HL173",
        None,
        tensor=node.name,
        message="A tensor of another body is used here.",
        reason="A value that a body of foreach, while_loop or cond computes exists only inside that body.",
        rewrite="return it as an output or as a state of the body",
    )
