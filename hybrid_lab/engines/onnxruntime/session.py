"""Sessions: their threads, one session for a model at all its shapes, regions with bound buffers."""

from __future__ import annotations

import math
import weakref
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.diagnostics.formatting import first_line
from hybrid_lab.engines.libraries import import_library
from hybrid_lab.engines.onnxruntime import messages
from hybrid_lab.engines.onnxruntime.bounds import Bounded, bounded
from hybrid_lab.engines.onnxruntime.loading import LONGEST, LONGEST_PER_NODE, TooLong, load, native_errors
from hybrid_lab.engines.onnxruntime.model import Model
from hybrid_lab.engines.waiting import started
from hybrid_lab.ops.framework.onnx_emit import OnnxNode
from hybrid_lab.system import forks
from hybrid_lab.system.logger import logger
from hybrid_lab.system.threads import thread_count

#: Arrays up to this size are copied into and out of bound buffers: cheaper than binding others at every call.
COPY_BYTES = 1 << 14

_lock = forks.rlock()
_memory: bool | None = None
_trimmer: Any = None

#: Microseconds for which a session's threads spin before they sleep: a short gap between two operators costs no
#: wake-up, and on busy cores other threads wait only shortly. Left to itself ONNX Runtime spins for milliseconds:
#: beside one busy process a core LeNet's step took 80 ms so, and takes 21 to 33.
SPIN = 20
#: The first version of ONNX Runtime with a spin time; with older versions threads do not spin.
SPIN_VERSION = (1, 28)


#: The threads of all sessions together, about. Sessions made beyond this number compute on the caller's thread alone: a
#: model of many small Blocks that are not in one graph has a session for each Block.
MOST_THREADS = 512


def _set_threads(ort: Any, options: Any, count: int) -> None:
    """Threads that sleep while they have nothing to do. Each session has its own: Python has no setting for how threads
    wait in the one pool that sessions can share.
    """
    options.intra_op_num_threads, options.inter_op_num_threads = count, 1
    spins = tuple(map(int, ort.__version__.split(".")[:2])) >= SPIN_VERSION
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spins)))
    if spins:
        options.add_session_config_entry("session.intra_op.spin_duration_us", str(SPIN))


def shared_memory(ort: Any) -> bool:
    """Set up the memory that all sessions share, once. False with an onnxruntime that cannot.

    By default every session has an arena that grows by powers of two and plans each shape as one block as well: three
    times the memory in use at once, for the training step of a ResNet-18.
    """
    global _memory
    with _lock:
        if _memory is None:
            try:
                kind = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
                where = ort.OrtMemoryInfo("Cpu", kind, 0, ort.OrtMemType.DEFAULT)
                exactly_as_asked = ort.OrtArenaCfg({"arena_extend_strategy": 1})
                ort.create_and_register_allocator(where, exactly_as_asked)
                _memory = True
            except (AttributeError, TypeError, RuntimeError):
                _memory = False
        return _memory


def trim() -> None:
    """Give the system back what sessions have taken of the shared memory and do not use now."""
    global _trimmer
    if not _memory:
        return
    ort = import_library("onnxruntime")
    with _lock:
        if _trimmer is None:
            # Memory shrinks at the end of a run, of any session.
            value = [messages.value_info(name, 0, np.float32) for name in "xy"]
            copy = messages.node(OnnxNode("Identity", ("x",), ("y",), {}, "copy"))
            _trimmer = create_session(messages.model([copy], [], value[:1], value[1:], "trim"))
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    _trimmer.run(None, {"x": np.zeros((), np.float32)}, options)


def create_session(
    model: bytes, weights: Mapping[str, np.ndarray] | None = None, nodes: int = 1, threads: int = 1
) -> Any:
    """An InferenceSession on the CPU. Raises EngineError with onnxruntime's reason, or TooLong.

    weights : the model's external initializers; onnxruntime reads this memory for as long as the session lives
    nodes : how many the model has, by which it may take longer
    """
    ort = import_library("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    _set_threads(ort, options, threads)
    if shared_memory(ort):
        options.add_session_config_entry("session.use_env_allocators", "1")
        options.enable_mem_pattern = False
    try:
        if weights:
            held = [ort.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
            options.add_external_initializers(list(weights), held)
        session = load(
            lambda: ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]),
            # onnxruntime before 1.21 cannot be asked to stop.
            lambda: getattr(options, "set_load_cancellation_flag", bool)(True),
            LONGEST + LONGEST_PER_NODE * nodes,
        )
        forks.has_threads(session)
        return session
    except EngineError:
        raise
    except native_errors() as error:
        raise EngineError(first_line(error)) from None


# -- one session for many shapes ----------------------------------------------------------------------------------


class Session:
    """An onnxruntime session of a model, good for every shape.

    small : the values of the model's small constants
    fed : names of the small constants that are inputs of the session
    weights : the inputs of the model that are baked in, as name -> array
    """

    __slots__ = ("__weakref__", "fed", "inner", "small", "weights")

    def __init__(self, model: Model, fed: frozenset[str], weights: Mapping[str, np.ndarray]):
        self.small, self.fed, self.weights = model.small, fed, dict(weights)
        count = thread_count()
        with _lock:
            if len(_with_threads) * (count - 1) >= MOST_THREADS:
                count = 1
            if count > 1:
                _with_threads.add(self)
        self.inner = create_session(model.serialize(fed, weights), weights, len(model.nodes), count)

    def differing(self, model: Model) -> frozenset[str]:
        """The small constants of a model with the same skeleton that have other values here."""
        return frozenset(name for name, array in model.small.items() if array.tobytes() != self.small[name].tobytes())


#: The sessions with threads in addition to the caller's.
_with_threads: weakref.WeakSet[Session] = weakref.WeakSet()
#: (skeleton, names of the weights, token) -> the sessions that programs hold on to.
_shared: dict[Any, list[weakref.ref[Session]]] = {}
#: (skeleton, names of the weights) -> why such models get no session in this process: one took too long.
_given_up: dict[tuple[bytes, tuple[str, ...]], str] = {}


def session_for(model: Model, weights: Mapping[str, np.ndarray] | None = None, token: Hashable = None) -> Session:
    """The session of a model; an existing session if the models differ only in sizes.

    weights : inputs to bake in; token : equal tokens promise equal weights, None promises nothing
    Raises EngineError.
    """
    weights = weights or {}
    form = model.skeleton, tuple(weights)
    if form in _given_up:
        raise TooLong(_given_up[form])
    if weights and token is None:
        return Session(model, frozenset(), weights)
    key = (*form, token)
    with _lock:
        alive = [session for session in (made() for made in _shared.get(key, ())) if session is not None]
        # The same memory as well: a token alone cannot tell arrays that took the place of other arrays.
        arrays = list(weights.values())
        known = [session for session in alive if all(map(np.may_share_memory, session.weights.values(), arrays))]
        fed: frozenset[str] = frozenset()
        for session in known:
            differing = session.differing(model)
            if differing <= session.fed:
                return session
            fed |= differing | session.fed
    # Outside of the lock: a long one may be made in the background.
    try:
        made = Session(model, fed, weights)
    except TooLong as error:
        _given_up[form] = str(error)
        names = ", ".join(dict.fromkeys(node.op.name for node in model.region.nodes))
        logger.warning(f"{names} {'run without packed weights' if weights else 'are computed in NumPy'}: {error}")
        raise
    except EngineError:
        if not fed:
            raise
        made = Session(model, frozenset(), weights)
    with _lock:
        for stale in [item for item, sessions in _shared.items() if not any(made() for made in sessions)]:
            del _shared[stale]
        _shared.setdefault(key, []).append(weakref.ref(made))
        return made


# -- running -----------------------------------------------------------------------------------------------------


class BoundSession:
    """A region's session with prepared bindings. Call it with the inputs and the arrays to fill, from any thread.

    later : make the session in a thread of its own; its first user waits for it, and gets an EngineError if it fails
    """

    def __init__(self, model: Model, later: bool = False):
        self.model = model
        self._plain: _Bindings | Future[_Bindings]
        self._current: _Bindings | None = None
        if later:
            self._plain = started(lambda: _Bindings(model, session_for(model)), "hybrid-lab-session")
        else:
            self._plain = self._current = _Bindings(model, session_for(model))

    @property
    def session(self) -> Session:
        """The session that runs now."""
        return (self._current or self._made()).session

    def _made(self) -> _Bindings:
        """The session without baked-in inputs. Raises EngineError."""
        plain = self._plain
        if isinstance(plain, Future):
            plain = plain.result()
            self._plain = plain
            self._current = self._current or plain
        return plain

    def __call__(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> bool:
        """Fill the outputs. Returns whether NaN may have been lost, so that their numbers are not to be used."""
        current = self._current
        if current is None or (current.bounded is not None and not current.bounded.holds(inputs)):
            current = self._made()
        return current.run(inputs, outputs)

    def pack(self, weights: Mapping[int, np.ndarray], token: Hashable = None) -> None:
        """Run with these inputs baked in, by position, until `unpack`; their values must not change meanwhile."""
        read = {name for node in self.model.nodes for name in node.inputs}
        named = {self.model.inputs[index][0]: np.asarray(array, order="C") for index, array in weights.items()}
        # onnxruntime refuses weights that no node reads, such as the scale of a BatchNorm with fix_gamma.
        named = {name: array for name, array in named.items() if name in read}
        model, known = self.model, None
        if model.checks:
            # With known weights and inputs of usual size, the results of the layers are finite: nothing to check.
            known = bounded(model.region, weights, model.checked)
            model = model.without_checks(known.values)
        try:
            packed = session_for(model, named, token)
        except TooLong:
            return
        self._current = _Bindings(model, packed, known if known and known.values else None)

    def unpack(self) -> None:
        """All inputs count again."""
        self._current = None if isinstance(self._plain, Future) else self._plain


class _Bindings:
    """The bindings of one session: one for each thread that ran it at once.

    bounded : what must hold of the inputs, so that the model needs no more checks than it has; None for nothing
    """

    def __init__(self, model: Model, session: Session, bounded: Bounded | None = None):
        self.model, self.session, self.bounded = model, session, bounded
        self._idle: list[_Binding] = []

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> bool:
        try:
            binding = self._idle.pop()
        except IndexError:
            binding = _Binding(self.model, self.session)
        lost = binding.run(inputs, outputs)
        self._idle.append(binding)
        return lost


class _Binding:
    """One set of bound buffers.

    onnxruntime does not own NumPy memory. Buffers of our own are held here. Arrays of the caller only need to live
    during the run; weak references tell whether the bound array is still the array of this call.
    """

    def __init__(self, model: Model, session: Session):
        native = import_library("onnxruntime").capi._pybind_state  # noqa: SLF001 - its only name
        self._make = native.OrtValue.ortvalue_from_numpy
        self._device = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)
        inner = session.inner._sess
        self._io = native.SessionIOBinding(inner)
        self._run = inner.run_with_iobinding
        self._constants = [model.small[name] for name in session.fed]
        for name, array in zip(session.fed, self._constants, strict=True):
            self._io.bind_ortvalue_input(name, self._make(array, self._device))
        self._copied_in: list[tuple[int, np.ndarray]] = []
        self._copied_out: list[tuple[int, np.ndarray]] = []
        self._bound_in: list[_Slot] = []
        self._bound_out: list[_Slot] = []
        self._checks = [np.zeros(shape, dtype) for _, shape, dtype in model.checks]
        for (name, _, _), array in zip(model.checks, self._checks, strict=True):
            self._io.bind_ortvalue_output(name, self._make(array, self._device))
        sides = (
            (model.inputs, self._copied_in, self._bound_in, self._io.bind_ortvalue_input),
            (model.outputs, self._copied_out, self._bound_out, self._io.bind_ortvalue_output),
        )
        for tensors, copied, bound, bind in sides:
            for position, (name, shape, dtype) in enumerate(tensors):
                if name in session.weights:
                    continue
                if _nbytes(shape, dtype) <= COPY_BYTES:
                    buffer = np.empty(shape, dtype)
                    bind(name, self._make(buffer, self._device))
                    copied.append((position, buffer))
                else:
                    bound.append(_Slot(position, name, bind))

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> bool:
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
        for check in self._checks:
            if not math.isfinite(check):
                return True
        return False


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
