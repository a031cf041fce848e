"""Contexts: the devices that arrays belong to, and the current context, which new arrays get."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from hybrid_lab.diagnostics.errors import AttributeSpecError, EngineUnavailable
from hybrid_lab.engines import memory

_TYPE_IDS = {"cpu": 1, "gpu": 2, "cpu_pinned": 3, "cpu_shared": 5}


class _ContextType(type):
    """Metaclass: `Context.default_ctx` is read and set as an attribute of the class, as in MXNet."""

    @property
    def default_ctx(cls) -> Context:
        """The context that new arrays of this thread get. Setting it lasts until the innermost `with` ends."""
        return _state.stack[-1]

    @default_ctx.setter
    def default_ctx(cls, ctx: Context) -> None:
        _state.stack[-1] = ctx


@dataclass(frozen=True, init=False, repr=False, slots=True)
class Context(metaclass=_ContextType):
    """A device: `cpu(0)`, `gpu(1)`. Immutable, compared by value; `with mx.cpu(1):` makes new arrays there.

    device_type : "cpu", "gpu", "cpu_pinned", "cpu_shared", or another Context
    device_id : number of the device. cpu(0), cpu(1) ... are different names of the same memory.
    """

    devtype2str: ClassVar = {number: name for name, number in _TYPE_IDS.items()}
    devstr2type: ClassVar = _TYPE_IDS

    device_type: str
    device_id: int

    def __init__(self, device_type: str | Context, device_id: int = 0):
        if isinstance(device_type, Context):
            device_id, device_type = device_type.device_id, device_type.device_type
        if device_type not in _TYPE_IDS:
            raise AttributeSpecError(f"there is no device type {device_type!r}; use 'cpu' or 'gpu'")
        object.__setattr__(self, "device_type", device_type)
        object.__setattr__(self, "device_id", int(device_id))

    @property
    def device_typeid(self) -> int:
        """MXNet's number of the device type: cpu 1, gpu 2, cpu_pinned 3, cpu_shared 5."""
        return _TYPE_IDS[self.device_type]

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.device_type == "gpu"

    def __repr__(self) -> str:
        return f"{self.device_type}({self.device_id})"

    def __enter__(self) -> Context:
        _state.stack.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _state.stack.pop()

    def empty_cache(self) -> None:
        """Return the GPU's unused cached memory to the system; nothing to do on a CPU."""
        if self.is_gpu:
            require(self)
            import torch

            for give_back in memory.givers:
                give_back()
            torch.cuda.empty_cache()


class _ContextState(threading.local):
    def __init__(self) -> None:
        self.stack: list[Context] = [CPU]


CPU = Context("cpu", 0)
_state = _ContextState()


def cpu(device_id: int = 0) -> Context:
    """The CPU."""
    return Context("cpu", device_id) if device_id else CPU


def cpu_pinned(device_id: int = 0) -> Context:
    """Host memory prepared for copies to a GPU; plain memory here."""
    return Context("cpu_pinned", device_id)


def gpu(device_id: int = 0) -> Context:
    """The GPU with this number. Naming it is free; making an array on it needs a usable one (EngineUnavailable)."""
    return _gpu(device_id)


@lru_cache(maxsize=16)
def _gpu(device_id: int) -> Context:
    return Context("gpu", device_id)


def current_context() -> Context:
    """The context that new arrays get: the innermost `with mx.cpu(1):`, else cpu(0)."""
    return _state.stack[-1]


def set_default_context(ctx: Context) -> None:
    """The context that new arrays of this thread get outside of `with mx.cpu(1):`."""
    _state.stack[0] = ctx


def named(text: str) -> Context:
    """The context that a string names: "cpu", "gpu(1)". Raises AttributeSpecError."""
    match = re.fullmatch(r"(\w+)\((\d+)\)", text)
    return Context(match[1], int(match[2])) if match else Context(text)


def resolve(ctx: Context | str | None) -> Context:
    """`ctx`, or the current context for None; on a GPU, after checking that it can be used."""
    if ctx is None:
        ctx = current_context()
    elif not isinstance(ctx, Context):
        if not isinstance(ctx, str):
            raise AttributeSpecError(f"ctx must be a Context such as mx.cpu() or mx.gpu(0), not {ctx!r}")
        ctx = named(ctx)
    if ctx.device_type == "gpu":
        require(ctx)
    return ctx


def _usable_gpus() -> tuple[int, str]:
    """How many GPUs can be used, and the missing part if there is none. Triton's interpreter counts as a GPU."""
    from hybrid_lab.engines.triton.run import availability

    if availability.setting():
        missing = availability.missing()
        return (1, "") if missing is None else (0, missing)
    return _gpus()


@lru_cache(maxsize=1)
def _gpus() -> tuple[int, str]:
    from hybrid_lab.engines.triton.run import availability

    missing = availability.missing()
    if missing is not None:
        return 0, missing
    import torch

    return torch.cuda.device_count(), ""


def num_gpus() -> int:
    """How many GPUs can be used."""
    return _usable_gpus()[0]


def gpu_memory_info(device_id: int = 0) -> tuple[int, int]:
    """(free, total) bytes of a GPU. Raises EngineUnavailable."""
    require(gpu(device_id))
    from hybrid_lab.engines.triton.run import availability

    if availability.interpreting():
        raise EngineUnavailable("Triton's interpreter stands in for gpu(0): there is no GPU memory to report")
    import torch

    return torch.cuda.mem_get_info(availability.card(device_id))


def device_of(ctx: Context) -> Any:
    """torch's device of a GPU context that can be used."""
    from hybrid_lab.engines.triton.run import availability

    if availability.interpreting() or ctx.device_id == 0:
        return availability.torch_device()
    import torch

    return torch.device("cuda", availability.card(ctx.device_id))


def require(ctx: Context) -> None:
    """Raise EngineUnavailable, naming the missing part, unless arrays can live on `ctx`."""
    if ctx.device_type != "gpu":
        return
    count, missing = _usable_gpus()
    if not 0 <= ctx.device_id < count:
        gpus = "there is 1 GPU, gpu(0)" if count == 1 else f"there are {count} GPUs, numbered from 0"
        reason = missing or gpus
        raise EngineUnavailable(f"{ctx} cannot be used: {reason}. Arrays on the CPU: ctx=mx.cpu()")
