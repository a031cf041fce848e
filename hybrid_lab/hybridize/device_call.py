"""DeviceCall: a compiled call whose executables work on a GPU's memory.

Inputs and parameters go there when they are first read and stay; results are born there. What the host reads comes
back lazily, and every copy is counted (engines/memory.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import EngineUnavailable
from hybrid_lab.engines.memory import is_tensor, to_device
from hybrid_lab.hybridize.call_state import CallState
from hybrid_lab.hybridize.compiled_call import CompiledCall
from hybrid_lab.hybridize.compiled_entry import CompiledEntry
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.backward import overlaps
from hybrid_lab.ndarray.ndarray import NDArray

if TYPE_CHECKING:
    from hybrid_lab.ndarray.context import Context

_NO_DRAWS = (0, 0)
_link = tape.link


class DeviceCompiledEntry(CompiledEntry):
    """The tape's entry for a call of a DeviceCall."""

    __slots__ = ()

    @property
    def device(self) -> Any:
        return self.program.device

    @property
    def takes_leaves(self) -> bool:  # type: ignore[override]
        return self.forward_state is not None

    def _head(self, dout: Any) -> Any:
        return dout.contiguous() if is_tensor(dout) else to_device(np.asarray(dout), self.device)

    def _place(self, grad: NDArray, heads: list[Any]) -> Any:
        view, buffer = grad.host_view, grad.buffer
        if view.size != buffer.host.size or any(overlaps(grad, head) for head in heads):
            return None
        return buffer.space(self.device).view(view.shape)


class DeviceState(CallState):
    """A CallState with the parameters' memory on the device at the last call, and the forward's inputs from that
    memory: as long as the memory is the same, so are the inputs. One attribute, because calls in other threads set it,
    too.
    """

    __slots__ = ("memory",)

    def __init__(self, parameters: Sequence[Any], context: Context, recording: bool) -> None:
        super().__init__(parameters, context, recording)
        self.memory: tuple[list[Any], list[Any]] = [], []


class DeviceCall(CompiledCall):
    """A CompiledCall on tensors."""

    _entry_class = DeviceCompiledEntry

    __slots__ = ("device",)

    _state_class = DeviceState

    def _bind(self, state: CallState) -> None:
        self.device = self.forward.device
        super()._bind(state)

    def _heads_of_ones(self) -> None:
        return None

    def _shortest(self) -> Any:
        return None

    def __call__(self, leaves: Sequence[NDArray], rng: tuple[int, int] | None = None) -> Any:
        device, context = self.device, self.context
        if any(leaf.buffer.lives_on_device != context.is_gpu for leaf in leaves):
            where = next(leaf.context for leaf in leaves if leaf.buffer.lives_on_device != context.is_gpu)
            raise EngineUnavailable(
                f"{self.block_name}: an input is on {where}, others are on {context}. Move them with "
                f"x.as_in_context(mx.{context})"
            )
        data = [leaf.raw(device) for leaf in leaves]
        state = self.state
        versions = [buffer.version for buffer in state.buffers]
        cached = state.cached_inputs
        if cached[0] is None or cached[0] != versions:
            cached = self._refresh(versions)
        return self._run_on(leaves, [*data, *cached[1]], versions, rng)

    def _update(self, states: Sequence[NDArray], values: Sequence[Any]) -> None:
        import torch

        if states:
            places = [state.memory_on(value.device) for state, value in zip(states, values, strict=True)]
            torch._foreach_copy_(places, list(values))
            for state in states:
                state.buffer.written_on_device()

    def _wrapped(self, results: Sequence[Any]) -> list[NDArray]:
        return [NDArray.wrap_device(result, self.context) for result in results[: self._num_outputs]]

    def _refresh(self, versions: list[int]) -> tuple[list[int] | None, list[Any]]:
        state: Any = self.state
        device, buffers = self.device, state.buffers
        memory, raw = state.memory
        if self.prologue is None and len(memory) == len(buffers):
            for buffer, tensor in zip(buffers, memory, strict=True):
                if buffer.device is not tensor or buffer.device_stale or buffer.exported:
                    break
            else:
                state.cached_inputs = versions, raw
                return versions, raw
        for buffer in buffers:
            # Others may write to the host's memory.
            if buffer.exported and buffer.device is not None and not buffer.lives_on_device:
                buffer.pull()
                buffer.device_stale = True
        hoisted = self.prologue.values() if self.prologue is not None else []
        inputs = [state.arrays[index] for kind, index in self._steady if kind == "input"]
        for array in inputs:
            array.raw(device)
        memory = [buffer.device for buffer in buffers]
        raw = [state.arrays[index].raw(device) if kind == "input" else hoisted[index] for kind, index in self._steady]
        if any(buffer.device is not tensor for buffer, tensor in zip(buffers, memory, strict=True)):
            memory = []  # another thread has copied a parameter to the device meanwhile: `raw` may hold the other copy
        known = None if any(buffer.exported for buffer in buffers) else versions
        state.memory = memory, raw
        state.cached_inputs = known, raw
        return known, raw
