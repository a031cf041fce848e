"""Sessions: one process-wide thread pool, and regions that run with bound buffers."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import EngineError

#: Arrays up to this size are copied into and out of bound buffers: cheaper than binding others at every call.
COPY_BYTES = 1 << 14

_lock = threading.Lock()
_pool: str | None = None


def shared_pool(ort: Any) -> str:
    """Set up the thread pool that all sessions share, once; returns what was set up, in words."""
    global _pool
    with _lock:
        if _pool is None:
            count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            try:
                ort.set_global_thread_pool_sizes(count, 1)
                _pool = f"one pool of {count} threads"
            except (AttributeError, RuntimeError):
                # An old onnxruntime, or somebody made a session first: then every session has threads that do not spin.
                _pool = "threads per session"
        return _pool


def create_session(model: bytes) -> Any:
    """An InferenceSession on the CPU. Raises EngineError with onnxruntime's reason."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    if shared_pool(ort).startswith("one pool"):
        options.use_per_session_threads = False
    else:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base
        raise EngineError(_first_line(error)) from None


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


class BoundSession:
    """A session with prepared bindings. Call it with the inputs and the arrays to fill; several threads may.

    inputs, outputs : (name, shape, dtype) each
    """

    def __init__(self, session: Any, inputs: Sequence[tuple[str, Any, Any]], outputs: Sequence[tuple[str, Any, Any]]):
        self.session, self.inputs, self.outputs = session, tuple(inputs), tuple(outputs)
        self._idle: list[_Binding] = []

    def __call__(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        try:
            binding = self._idle.pop()
        except IndexError:
            binding = _Binding(self)
        binding.run(inputs, outputs)
        self._idle.append(binding)


class _Binding:
    """One set of bound buffers.

    onnxruntime does not own NumPy memory. Buffers of our own are held here; arrays of the caller only need to live
    during the run, and weak references tell whether the one that is bound now is still the one that comes in.
    """

    def __init__(self, owner: BoundSession):
        from onnxruntime.capi import _pybind_state as native

        self._make = native.OrtValue.ortvalue_from_numpy
        self._device = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)
        inner = owner.session._sess
        self._io = native.SessionIOBinding(inner)
        self._run = inner.run_with_iobinding
        self._copied_in: list[tuple[int, np.ndarray]] = []
        self._copied_out: list[tuple[int, np.ndarray]] = []
        self._bound_in: list[_Slot] = []
        self._bound_out: list[_Slot] = []
        sides = (
            (owner.inputs, self._copied_in, self._bound_in, self._io.bind_ortvalue_input),
            (owner.outputs, self._copied_out, self._bound_out, self._io.bind_ortvalue_output),
        )
        for tensors, copied, bound, bind in sides:
            for position, (name, shape, dtype) in enumerate(tensors):
                if _nbytes(shape, dtype) <= COPY_BYTES:
                    buffer = np.empty(shape, dtype)
                    bind(name, self._make(buffer, self._device))
                    copied.append((position, buffer))
                else:
                    bound.append(_Slot(position, name, bind))

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        for position, buffer in self._copied_in:
            buffer[...] = inputs[position]
        for slot in self._bound_in:
            array = inputs[slot.position]
            if slot.bound() is not array:
                if not array.flags.c_contiguous:
                    array = slot.copy_of(array)
                slot.bind(slot.name, self._make(array, self._device))
                slot.bound = weakref.ref(array)
        for slot in self._bound_out:
            array = outputs[slot.position]
            if slot.bound() is not array:
                slot.bind(slot.name, self._make(array, self._device))
                slot.bound = weakref.ref(array)
        self._run(self._io, None)
        for position, buffer in self._copied_out:
            outputs[position][...] = buffer


class _Slot:
    """A large input or output: which array is bound now."""

    __slots__ = ("bind", "bound", "name", "position", "staging")

    def __init__(self, position: int, name: str, bind: Any):
        self.position, self.name, self.bind = position, name, bind
        self.bound: Any = _nothing
        self.staging: np.ndarray | None = None

    def copy_of(self, array: np.ndarray) -> np.ndarray:
        """The array's numbers in C order, in memory that is kept."""
        if self.staging is None:
            self.staging = np.empty(array.shape, array.dtype)
        self.staging[...] = array
        return self.staging


def _nothing() -> None:
    return None


def _nbytes(shape: Sequence[int], dtype: Any) -> int:
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
