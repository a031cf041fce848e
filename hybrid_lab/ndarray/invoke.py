"""Run one operator on NDArrays: check the inputs, infer the output types, run the kernel, record the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, AutogradError, DTypeError, ShapeError
from hybrid_lab.ndarray import calls, tape
from hybrid_lab.ndarray.backward import as_function_of
from hybrid_lab.ndarray.buffer import Buffer
from hybrid_lab.ndarray.context import Context, current_context
from hybrid_lab.ndarray.gradients import GradientProgram, apply_raw, gradient_program, stand_in
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.ndarray.replay import replay
from hybrid_lab.ops.elementwise.cast import Cast
from hybrid_lab.ops.framework.contract import read_outputs
from hybrid_lab.ops.framework.namespace import F, Namespace
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.precision import Precision
from hybrid_lab.ops.framework.run import infer, no_second_gradient, run_kernel
from hybrid_lab.ops.framework.surface import MISSING, missing_input, no_arrays, no_input
from hybrid_lab.system.provided import Provided

invoke_on_device: Provided[..., Any] = Provided("invoke_on_device")

invoke_sparse: Provided[..., Any] = Provided("invoke_sparse")
"""Called where an array is sparse."""

compose_call: Provided[[Operator, Sequence[Any], str | None], Any] = Provided("compose_call")
"""Called where an input is a traced value (`_is_symbol`), or where a 2.x-style trace (`tape.state.trace`) meets an
operator without inputs."""

precision: Precision | None = None
"""The mixed precision of this process, or None; set by `contrib.amp`. Graphs are compiled for its current value."""

listener: Callable[[], Callable[..., Any] | None] | None = None
"""Where somebody notes eager operators (`gluon/call_record.py`): gives what hears those of this thread, or None."""

# Optional keyword arguments of kernels.
_PLAIN = frozenset({"out", "scratch"})
_ndarray = np.ndarray
_wrap = NDArray.wrap
state = tape.state

#: Shapes and dtypes of the inputs; () and None for a number.
_Key = tuple[tuple[tuple[int, ...], ...], tuple[np.dtype | None, ...]]


def set_precision(value: Precision | None) -> None:
    """Compute in this mixed precision from now on; None: without mixed precision."""
    global precision
    precision = value


def set_listener(function: Callable[[], Callable[..., Any] | None] | None) -> None:
    """Ask this function, before each operator, for the listener of the thread's operators; None: no function."""
    global listener
    listener = function


def invoke(
    op: Operator, inputs: Sequence[Any], out: Any = None, name: str | None = None, rng: tuple[int, int] | None = None,
    cast: bool = True,
) -> Any:  # fmt: skip
    """Run `op` on NDArrays and Python scalars (immediates).

    out : None, an NDArray, or a list with one per visible output, to be written in place
    name : of the node, if a trace is in progress
    rng : (seed, draw) if a graph has numbered this draw already; None takes the next draw
    cast : whether mixed precision, if on, converts the inputs; gradients follow their forward

    Returns an NDArray, or a list of NDArrays for several visible outputs.
    Raises ShapeError, DTypeError, AttributeSpecError in the terms of the operator; AutogradError for a write to a
    recorded array.
    """
    if listener is not None and (hears := listener()) is not None:
        return hears(op, inputs, lambda: invoke(op, inputs, out, name, rng, cast))
    if out is not None and _other_class(out if isinstance(out, (list, tuple)) else (out,)):
        return _invoke_as_plain(op, inputs, out, name, rng, cast)
    if precision is not None and cast:
        inputs = converted(op, inputs)
    raw: list[Any] = []
    shapes: list[Any] = []
    dtypes: list[Any] = []
    tracked = False
    context = None
    for item in inputs:
        if type(item) is NDArray:
            buffer = item.buffer
            if buffer.host_stale:
                if buffer.lives_on_device:
                    return _on_device(op, inputs, out, name, rng)
                buffer.pull()
            view = item.host_view
            raw.append(view)
            shapes.append(view.shape)
            dtypes.append(view.dtype)
            if context is None:
                context = buffer.context
            if item.tape_link is not None:
                tracked = True
        else:
            kind = type(item)
            if kind is not float and kind is not int:
                if isinstance(item, NDArray):
                    return _invoke_as_plain(op, inputs, out, name, rng, cast)
                if getattr(item, "_is_symbol", False):
                    return compose_call(op, inputs, name)
                item = _immediate(op, len(raw), item)
            raw.append(item)
            shapes.append(())
            dtypes.append(None)
    if context is None:
        if raw:
            raise no_arrays(op, inputs)
        if op.random and state.trace is not None:
            return compose_call(op, inputs, name)
        context = current_context()
        if context.is_gpu:
            return _on_device(op, inputs, out, name, rng)
    key = (tuple(shapes), tuple(dtypes))
    return _invoke_on_host(op, inputs, raw, key, out, rng, tracked and state.recording, context)


def _other_class(items: Sequence[object]) -> type[NDArray] | None:
    """The first class among the arrays that is a subclass of NDArray."""
    return next((type(item) for item in items if isinstance(item, NDArray) and type(item) is not NDArray), None)


def _invoke_as_plain(
    op: Operator, inputs: Sequence[Any], out: Any, name: str | None, rng: tuple[int, int] | None, cast: bool
) -> Any:
    """The call with an array of a subclass: `mx.np.ndarray`, whose results are of that class too, or a sparse class."""
    targets = out if isinstance(out, (list, tuple)) else (out,)
    if any(isinstance(item, NDArray) and item.buffer.stored for item in (*inputs, *targets)):
        return invoke_sparse(op, inputs, out, name, rng, cast)
    kind = _other_class(inputs)
    plain = [item.as_nd_ndarray() if isinstance(item, NDArray) else item for item in inputs]
    if out is None:
        results = invoke(op, plain, None, name, rng, cast)
        if kind is None:
            return results
        return [_of_class(kind, result) for result in results] if type(results) is list else _of_class(kind, results)
    views = [target.as_nd_ndarray() if isinstance(target, NDArray) else target for target in targets]
    invoke(op, plain, views if targets is out else views[0], name, rng, cast)
    for target, view in zip(targets, views, strict=True):
        target.tape_link = view.tape_link
    return out


def _of_class(kind: type[NDArray], result: Any) -> Any:
    """A new array as an array of another class; a Symbol unchanged."""
    if not isinstance(result, NDArray):
        return result
    return kind.view_of(result.buffer, result.host_view, result.tape_link)


def _invoke_on_host(
    op: Operator, inputs: Sequence[Any], raw: list[Any], key: _Key, out: Any, rng: tuple[int, int] | None,
    recorded: bool, context: Context,
) -> Any:  # fmt: skip
    """The call on NumPy arrays and numbers. raw, key : the inputs, their shapes and dtypes"""
    if op.random and rng is None:
        rng = random_state.next_draws(1)
    if op.mode_dependent:
        op = _in_mode(op, key, raw)
    inferred = op.inferred.get(key)
    plain = True
    if inferred is None:
        _check_count(op, raw)
        inferred = infer(op, *key)
        plain = key in op.inferred  # not for bfloat16 computed in float32

    if plain and not recorded and op.run_keywords <= _PLAIN and op.signature.outputs == 1:
        if out is None:
            return _wrapped(op, op.numpy(*raw), op.view, context)
        if op.alias_safe and type(out) is NDArray and _writable_in_place(out, inputs):
            return _invoke_into(op, raw, out, inferred)
    return _invoke_fully(op, inputs, raw, out, rng, inferred, recorded, context)


def _in_mode(op: Operator, key: _Key, raw: Sequence[object]) -> Operator:
    """The operator in the current mode. As in a graph, each mode refuses the calls that the other mode refuses."""
    bound = op.bind_mode(state.training)
    if bound is not op and key not in op.inferred:
        _check_count(op, raw)
        infer(op, *key)
    return bound


def _invoke_into(op: Operator, raw: Sequence[Any], out: NDArray, inferred: object) -> NDArray:
    """Run a kernel that writes its one output to `out`."""
    _destinations(op, (out,), 1, inferred)
    try:
        op.numpy(*raw, out=out.host_view)
        out.buffer.written()
    except BaseException:  # an interrupt may leave a part, even in `written` itself
        out.buffer.written()
        raise
    return out


def invoke_pair(op: Operator, lhs: object, rhs: object) -> Any:
    """`invoke(op, (lhs, rhs))` for operators without modes, views or hidden outputs; faster if nothing is recorded."""
    if type(lhs) is NDArray and type(rhs) is NDArray and precision is None and listener is None:
        left, a, b = lhs.buffer, lhs.host_view, rhs.host_view
        if (
            ((a.shape, b.shape), (a.dtype, b.dtype)) in op.inferred
            and not (left.host_stale or rhs.buffer.host_stale)
            and not (state.recording and (lhs.tape_link is not None or rhs.tape_link is not None))
        ):
            result = op.numpy(a, b)
            if type(result) is not _ndarray or not result.flags.c_contiguous:
                result = np.array(result, order="C")
            return _wrap(result, left.context)
    return invoke(op, (lhs, rhs))


def converted(op: Operator, inputs: Sequence[Any]) -> Sequence[Any]:
    """The inputs in the dtypes of mixed precision, if it is on; conversions are recorded like any call."""
    if precision is None or any(getattr(item, "_is_symbol", False) for item in inputs):
        return inputs  # a Symbol becomes part of a graph, and graphs are converted as a whole
    dtypes = precision.wanted(op, tuple([item.host_view.dtype if type(item) is NDArray else None for item in inputs]))
    if dtypes is None:
        return inputs
    return [
        item if dtype is None else invoke(Cast.bind(dtype=dtype.name), (item,))
        for item, dtype in zip(inputs, dtypes, strict=True)
    ]


def _wrapped(op: Operator, result: Any, view: bool, context: Any) -> NDArray:
    """The NDArray of a kernel's result, copied if it is a view, a NumPy scalar or not contiguous."""
    if view or type(result) is not _ndarray or not result.flags.c_contiguous:
        if result is None:
            read_outputs(op, result)
        result = np.array(result, order="C")
    return _wrap(result, context)


def _invoke_fully(
    op: Operator,
    inputs: Sequence[object],
    raw: list[Any],
    out: object,
    rng: Any,
    inferred: object,
    recorded: bool,
    context: object,
) -> Any:
    """The rest of a call with hidden outputs, `out`, auxiliary states or a step on the tape."""
    visible = op.signature.visible
    outs = None
    if out is not None:
        outs = _destinations(op, out if isinstance(out, (list, tuple)) else (out,), visible, inferred)
    links: tuple[Any, ...] = ()
    entry = None
    if recorded:
        # Read before the outputs are written: `y += x` replaces the link of y.
        links = tuple([tape.link(item) for item in inputs])
        recorded = any(links)  # a history used up by an earlier backward() does not count
        if recorded and op.differentiable:
            entry = EagerEntry(op, inputs, links, rng)
    update_aux = bool(op.signature.aux) and (state.training or op.signature.aux_always)
    need = None
    if op.signature.outputs > visible:
        reads = entry.program.reads if entry is not None else ()
        first = len(inputs)
        need = tuple([index < visible or update_aux or first + index in reads for index in range(op.signature.outputs)])
    outputs = run_kernel(op, raw, rng=rng, need=need)
    if entry is not None:
        entry.save_inputs(inputs, outputs)
    if update_aux:
        _update_aux(op, inputs, raw, outputs)
    results: Sequence[NDArray]
    if outs is None:
        results = [_wrapped(op, outputs[index], op.view and index == 0, context) for index in range(visible)]
    else:
        results = outs
        for target, value in zip(outs, outputs, strict=False):
            target.assign(value)
    if recorded:
        if entry is not None:
            entry.note(inputs, results, links)
        else:
            tape.note(ZeroEntry(op, inputs), inputs, results, links)
    if out is not None:
        return out
    return results[0] if visible == 1 else results


def _on_device(op: Operator, inputs: Sequence[object], out: object, name: str | None, rng: object) -> Any:
    """The call if an input lives on a GPU, or if a new array is made there."""
    if any(getattr(item, "_is_symbol", False) for item in inputs):
        return compose_call(op, inputs, name)
    return invoke_on_device(op, inputs, out, rng)


_NUMBERS = (int, float)


def _immediate(op: Operator, position: int, item: Any) -> Any:
    """The Python scalar of an input that is not an NDArray. Raises DTypeError, AttributeSpecError."""
    kind = type(item)
    if kind is float or kind is int:
        return item
    if kind is bool:
        return int(item)
    if isinstance(item, np.generic) and item.dtype.kind not in "cSUMmO":
        return item.item()
    if isinstance(item, _NUMBERS):
        return float(item) if isinstance(item, float) else int(item)
    names = op.signature.inputs
    name = names[position] if position < len(names) else f"number {position}"
    if item is MISSING:
        raise missing_input(op, name)
    if isinstance(item, np.ndarray):
        raise DTypeError(f"{op.name}: the input {name} is a NumPy array; turn it into an NDArray with nd.array(x)")
    raise no_input(op, position, item)


def _check_count(op: Operator, raw: Sequence[object]) -> None:
    if not op.variadic and len(raw) != len(op.signature.inputs):
        raise AttributeSpecError(f"{op!r} takes the inputs {', '.join(op.signature.inputs)}; {len(raw)} were given")


def _destinations(
    op: Operator, outs: Sequence[Any], visible: int, inferred: Any, on_device: bool = False
) -> Sequence[NDArray]:
    """The arrays to write, checked. Raises ShapeError, DTypeError, AutogradError."""
    if len(outs) != visible:
        raise AttributeSpecError(f"{op.name} has {visible} outputs, out= holds {len(outs)} arrays")
    for target, shape, dtype in zip(outs, *inferred, strict=False):
        if type(target) is not NDArray:
            raise DTypeError(f"{op.name}: out= must be an NDArray, not {type(target).__name__}")
        if target.buffer.lives_on_device is not on_device:
            raise DTypeError(f"{op.name}: the arrays are on another context than out=, which is on {target.context}")
        if target.host_view.shape != shape:
            raise ShapeError(f"{op.name}: the result has shape {shape}, out= has {target.host_view.shape}")
        if target.host_view.dtype != dtype:
            raise DTypeError(f"{op.name}: the result is {dtype.name}, out= is {target.host_view.dtype.name}")
        if state.recording:
            tape.refuse_write(target)
    return outs


def _writable_in_place(target: NDArray, inputs: Sequence[object]) -> bool:
    """Whether a kernel may write to `target` while it reads: an input on the same buffer must be the same view."""
    view = target._data
    for item in inputs:
        if type(item) is NDArray and item.buffer is target.buffer and item.host_view is not view:
            return False
    return True


def _update_aux(op: Operator, inputs: Sequence[Any], raw: list[Any], outputs: Sequence[Any]) -> None:
    names = op.signature.inputs
    for name, value in op.aux(F, tuple(raw), tuple(outputs)).items():
        target = inputs[names.index(name)]
        target.assign(value)


# -- the tape's entries for operators --------------------------------------------------------------------------------


class ZeroEntry(tape.Entry):
    """A call of an operator without a gradient rule: its inputs get zeros.

    `backward` raises AutogradError for an operator whose derivative is not zero, but has no rule.
    """

    __slots__ = ("immediates", "name", "op")

    def __init__(self, op: Operator, inputs: Sequence[Any]):
        self.op, self.name = op, op.name
        self.immediates = tuple([None if isinstance(item, NDArray) else item for item in inputs])

    def buffers_read(self) -> Sequence[Buffer]:
        return ()

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        if self.op.refuses_gradient:
            raise no_second_gradient(self.op)
        return (None,) * len(needed)

    backward_recorded = backward


class EagerEntry(tape.Entry):
    """One eager operator call: the bound operator and the values for its gradient."""

    __slots__ = ("_node", "_replayed", "_rng", "_values", "immediates", "name", "op", "program")

    def __init__(self, op: Operator, inputs: Sequence[Any], links: Sequence[Any], rng: tuple[int, int] | None = None):
        self.op, self.name, self._rng = op, op.name, rng
        self.immediates = tuple([None if isinstance(item, NDArray) else _immediate(op, 0, item) for item in inputs])
        needed = tuple([link is not None for link in links])
        self.program = gradient_program(op, self.immediates, needed, (True,) * op.signature.visible)
        # Per slot of an input or output: a Saved, a bare array, or (shape, dtype) if the gradient reads no values.
        self._values: list[Any] = [None] * (len(inputs) + op.signature.outputs)
        self._replayed = False

    def save_inputs(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Keep the inputs that the gradient reads; called after the kernel ran and before auxiliary states change."""
        values, program, first = self._values, self.program, len(inputs)
        for slot in program.inputs_read:
            values[slot] = self._saved(inputs, slot)
        for slot in program.shapes_read:
            array = inputs[slot].host_view if slot < first else outputs[slot - first]
            if array is not None:
                values[slot] = (array.shape, array.dtype)
        for slot in program.hidden_read:
            values[slot] = outputs[slot - first]
            # A hidden floating output depends on the inputs; only the lowering knows its derivative.
            self._replayed = self._replayed or "float" in str(values[slot].dtype)
        self._replayed = self._replayed and not program.refuses
        if self._replayed:
            names = self.op.signature.inputs
            for slot, item in enumerate(inputs):
                if type(item) is NDArray and slot not in program.inputs_read:
                    aux = names[slot] in self.op.signature.aux
                    values[slot] = self._copied(item) if aux else self._saved(inputs, slot)

    def buffers_read(self) -> Sequence[Buffer]:
        return [value.buffer for value in self._values if type(value) is tape.Saved]

    def _copied(self, array: NDArray) -> Any:
        return array._data.copy()

    def _saved(self, inputs: Sequence[Any], slot: int) -> tape.Saved:
        names = self.op.signature.inputs
        return tape.Saved(inputs[slot], f"its input {names[slot] if slot < len(names) else slot}", self.name)

    def note(self, inputs: Sequence[Any], results: Sequence[NDArray], links: tuple[Any, ...]) -> None:
        """Keep the outputs that the gradient reads, and put the step on the tape."""
        first = len(inputs)
        for slot in self.program.outputs_read:
            self._values[slot] = tape.Saved(results[slot - first], "its output", self.name)
        node = tape.note(self, inputs, results, links)
        assert node is not None
        self._node = ref(node)

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        values = [_raw_value(value) for value in self._values]
        return self._program_for(douts, needed).run(values + douts, apply_raw)

    def backward_recorded(self, douts: list[object], needed: tuple[bool, ...]) -> Sequence[Any]:
        first = len(self.immediates)
        node = self._node()
        assert node is not None  # a backward pass keeps its nodes alive
        values: list[Any] = []
        for slot, value in enumerate(self._values):
            kind = type(value)
            if kind is tape.Saved:
                link = tape.Output(node, slot - first) if slot >= first else value.link
                buffer, view = value.memory()
                values.append(NDArray.view_of(buffer, view, link))
            elif kind is tuple:
                values.append(NDArray.wrap(stand_in(*value)))
            else:
                values.append(None if value is None else self._wrapped(value))
        if self._replayed:
            return self._replay(values[:first], douts, needed)
        return self._program_for(douts, needed).run(values + douts, apply_nd)

    def _wrapped(self, value: Any) -> NDArray:
        """A hidden output, or a copied state, as an NDArray."""
        return NDArray.wrap(value)

    def _replay(self, values: list[object], douts: list[object], needed: tuple[bool, ...]) -> Sequence[Any]:
        op = self.op
        if type(op).lower is Operator.lower:
            raise AutogradError(f"{op.name} has no gradient of its gradient (create_graph=True)")
        inputs = [
            value if immediate is None else immediate for value, immediate in zip(values, self.immediates, strict=True)
        ]

        def lowered(starts: list[Any]) -> Sequence[NDArray]:
            # Repeat the draws of the call.
            numbered = Namespace(lambda op, inputs: _step(op, inputs, self._rng if op.random else None))
            result = op.lower(numbered, *starts)
            return (result if isinstance(result, (tuple, list)) else (result,))[: op.signature.visible]

        results = replay(lowered, inputs, douts, needed)
        if self.program.outputs_read:  # and an output depends on all inputs
            results = [None if result is None else as_function_of(result, inputs) for result in results]
        return results

    def _program_for(self, douts: list[object], needed: tuple[bool, ...]) -> GradientProgram:
        arrived = tuple([dout is not None for dout in douts])
        program = gradient_program(self.op, self.immediates, needed, arrived)
        if not program.reads <= self.program.reads:
            raise AutogradError(f"the gradient of {self.op!r} reads values that were not saved when it was recorded")
        return program

    def check(self) -> None:
        for value in self._values:
            if type(value) is tape.Saved:
                value.memory()

    def release(self) -> None:
        self._values = []


def _raw_value(value: Any) -> Any:
    kind = type(value)
    if kind is tape.Saved:
        return value.value()
    return stand_in(*value) if kind is tuple else value


def apply_nd(op: Operator, inputs: Sequence[object]) -> list[NDArray]:
    """The visible outputs of a gradient's step on NDArrays, recorded if the tape records."""
    result = _step(op, inputs)
    return result if isinstance(result, list) else [result]


def _step(op: Operator, inputs: Sequence[object], rng: tuple[int, int] | None = None) -> Any:
    """A step of a gradient. An input read for its shape only, such as x in `F.reshape_like(dy, x)`, is detached: the
    result does not depend on its values.
    """
    linked = [
        item if type(item) is not NDArray or op.reads_values(index) else item.detach()
        for index, item in enumerate(inputs)
    ]
    return invoke(op, linked, rng=rng, cast=False)


N = Namespace(lambda op, inputs: invoke(op, inputs, cast=False))
"""F over NDArrays: `N.softmax(x, axis=1)`, hidden operators included; no input is converted."""


def note_operator(op: Operator, inputs: Sequence[object], outputs: Sequence[NDArray]) -> None:
    """Record `outputs` as the outputs of `op` for `inputs`, if they were made without running it (views)."""
    if not state.recording:
        return
    links = tuple([tape.link(item) for item in inputs])
    if any(links):
        entry = EagerEntry(op, inputs, links)
        entry.save_inputs(inputs, [output.host_view for output in outputs])
        entry.note(inputs, outputs, links)


calls.provide(invoke=invoke, invoke_pair=invoke_pair, note_operator=note_operator)
