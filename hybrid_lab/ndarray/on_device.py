"""Eager operators on arrays that live on a GPU: each call is a graph of one operator on the engine of GPUs.

Executables are cached by operator, attributes, shapes and dtypes. Operators without a kernel count as fallbacks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab import engines
from hybrid_lab.diagnostics.errors import DTypeError, EngineUnavailable
from hybrid_lab.engines.memory import is_tensor, numpy_dtype, to_device
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import constant_node, input_node
from hybrid_lab.graph.passes.bind_mode import bind_mode
from hybrid_lab.ndarray import invoke as calls
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.context import Context, current_context, device_of, resolve
from hybrid_lab.ndarray.gradients import stand_in
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import infer
from hybrid_lab.system import forks

LIMIT = 4096
"""Size of the cache of executables; the least recently used one is dropped first."""

_executables: OrderedDict[Any, Any] = OrderedDict()
_lock = forks.rlock()


def invoke_on_device(op: Operator, inputs: Sequence[object], out: object, rng: tuple[int, int] | None) -> Any:
    """`invoke` if an input is on a GPU context, or, without inputs, if the current context is a GPU.

    Raises DTypeError if the arrays are on several contexts, and the errors of `invoke`.
    """
    context = _context(op, inputs)
    device = device_of(context)
    operands = [item if type(item) is NDArray else calls._immediate(op, at, item) for at, item in enumerate(inputs)]
    if op.random and rng is None:
        rng = random_state.next_draws(1)
    if op.mode_dependent:
        op = op.bind_mode(tape.state.training)
    inferred = _infer(op, operands)
    outs = None
    if out is not None:
        targets = out if isinstance(out, (list, tuple)) else (out,)
        outs = calls._destinations(op, targets, op.signature.visible, inferred, True)
    links: tuple[Any, ...] = ()
    entry = None
    recorded = tape.state.recording and any(getattr(item, "tape_link", None) is not None for item in inputs)
    if recorded:
        links = tuple([tape.link(item) for item in inputs])
        recorded = any(links)  # a history that an earlier backward() used up is none
        if recorded and op.differentiable:
            entry = DeviceEntry(op, inputs, links, rng)
            entry.device = device
    update_aux = bool(op.signature.aux) and (tape.state.training or op.signature.aux_always)
    need = _need(op, entry, len(inputs))
    raw = [
        item if type(item) is not NDArray
        else item.raw(device) if op.reads_values(index) or item.buffer.lives_on_device
        else stand_in(item.host_view.shape, item.host_view.dtype)
        for index, item in enumerate(operands)
    ]  # fmt: skip
    executable, state_positions = _executable(op, raw, need, update_aux)
    tensors = [item for item in raw if is_tensor(item)]
    computed = executable.run(tensors, rng or (0, 0))
    outputs: list[Any] = [None] * op.signature.outputs
    for index, value in zip([index for index, wanted in enumerate(need) if wanted], computed, strict=False):
        outputs[index] = value
    if entry is not None:
        entry.save_inputs(inputs, outputs)
    for position, value in zip(state_positions, computed[sum(need) :], strict=True):
        inputs[position]._take(value)
    if outs is None:
        results: Sequence[NDArray] = [NDArray.wrap_device(value, context) for value in outputs[: op.signature.visible]]
    else:
        results = outs
        for target, value in zip(outs, outputs, strict=False):
            target._take(value)
    if recorded:
        if entry is not None:
            entry.note(inputs, results, links)
        else:
            tape.note(calls.ZeroEntry(op, inputs), inputs, results, links)
    if out is not None:
        return out
    return results[0] if op.signature.visible == 1 else results


def _context(op: Operator, inputs: Sequence[object]) -> Context:
    """The one context of all arrays that are read."""
    arrays = [item for index, item in enumerate(inputs) if type(item) is NDArray and op.reads_values(index)]
    contexts = list(dict.fromkeys(item.context for item in arrays or inputs if type(item) is NDArray))
    if len(contexts) > 1:
        where = " and ".join(map(str, contexts))
        raise DTypeError(
            f"{op.name}: the arrays are on {where}; an operator takes arrays of one context. "
            f"Move them with x.as_in_context(mx.{contexts[0]})"
        )
    context = contexts[0] if contexts else resolve(current_context())
    if context.device_id:
        raise EngineUnavailable(f"{op.name}: kernels run on gpu(0) only, and the arrays are on {context}")
    return context


def _infer(op: Operator, operands: Sequence[object]) -> Any:
    shapes = tuple([item.host_view.shape if type(item) is NDArray else () for item in operands])
    dtypes = tuple([item.host_view.dtype if type(item) is NDArray else None for item in operands])
    inferred = op.inferred.get((shapes, dtypes))
    if inferred is None:
        calls._check_count(op, operands)
        inferred = infer(op, shapes, dtypes)
    return inferred


def _need(op: Operator, entry: Any, first: int) -> tuple[bool, ...]:
    """The mask of the needed outputs: visible outputs, and hidden outputs that the gradient reads."""
    reads = entry.program.reads if entry is not None else ()
    return tuple([index < op.signature.visible or first + index in reads for index in range(op.signature.outputs)])


def _executable(op: Operator, raw: Sequence[Any], need: tuple[bool, ...], update_aux: bool = False) -> Any:
    """The program of one operator, and which inputs take the further results: new values of states.

    raw : tensors, numbers, and arrays that are constants or of which only the shape is read
    """
    key = (op, need, update_aux, *map(_kind_of, raw))
    with _lock:
        known = _executables.get(key)
        if known is not None:
            _executables.move_to_end(key)
            return known
    inputs: list[Any] = []
    for index, item in enumerate(raw):
        if is_tensor(item):
            inputs.append(input_node(f"x{index}", shape=tuple(item.shape), dtype=numpy_dtype(item.dtype)))
        elif isinstance(item, np.ndarray):
            inputs.append(constant_node(item))
        else:
            inputs.append(item)
    variables = [value for value, item in zip(inputs, raw, strict=True) if is_tensor(item)]
    node = make_node(op, inputs, draw=0 if op.random else None)
    graph = Graph(variables, [value for value, wanted in zip(node.outputs, need, strict=True) if wanted], draws=1)
    if update_aux:
        graph = bind_mode(graph, True)
    executable = engines.get("triton").compile(graph), [inputs.index(target) for target, _ in graph.effects]
    with _lock:
        _executables[key] = executable
        if len(_executables) > LIMIT:
            _executables.popitem(last=False)
    return executable


def _kind_of(item: Any) -> Any:
    if is_tensor(item):
        return tuple(item.shape), item.dtype
    if isinstance(item, np.ndarray):  # a constant, or a stand-in for a shape
        return item.shape, item.dtype, item.tobytes() if any(item.strides) else None
    return type(item), item


def apply_on_device(device: str | None) -> Any:
    """Apply, for gradient programs, on tensors of this device."""

    def apply(op: Operator, inputs: list[Any]) -> Sequence[Any]:
        raw = [to_device(item, device) if _is_large(item, op, index) else item for index, item in enumerate(inputs)]
        executable, _ = _executable(op, raw, (True,) * op.signature.outputs)
        return executable.run([item for item in raw if is_tensor(item)], (0, 0))

    return apply


def _is_large(item: object, op: Operator, index: int) -> bool:
    return isinstance(item, np.ndarray) and any(item.strides) and item.size > 64 and op.reads_values(index)


class DeviceEntry(calls.EagerEntry):
    """An eager operator call on a device: its gradient is computed there."""

    __slots__ = ("device",)

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        device = self.device
        values = [
            value.tensor(device) if type(value) is tape.Saved
            else stand_in(value[0], numpy_dtype(value[1])) if type(value) is tuple else value
            for value in self._values
        ]  # fmt: skip
        tensors = [to_device(dout, device) if isinstance(dout, np.ndarray) else dout for dout in douts]
        return self._program_for(tensors, needed).run(values + tensors, apply_on_device(device))

    def _copied(self, array: NDArray) -> Any:
        return array.raw(self.device).clone()

    def _wrapped(self, value: object) -> NDArray:
        return NDArray.wrap_device(value, resolve("gpu"))
