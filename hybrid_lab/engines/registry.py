"""Engines: which there are, loaded when asked for, and which one runs calls without `engine=` here (`default`).

On a CPU the rules of policy.py choose an engine of `cpu_engines` for each call.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from hybrid_lab.diagnostics.errors import EngineUnavailable
from hybrid_lab.engines import libraries
from hybrid_lab.engines.engine import Engine
from hybrid_lab.system import forks
from hybrid_lab.system.logger import logger

#: name -> the module that has `ENGINE`. Triton comes first: `default` takes it if it can run here.
_MODULES = {
    "triton": "hybrid_lab.engines.triton",
    "onnxruntime": "hybrid_lab.engines.onnxruntime",
    "numpy": "hybrid_lab.engines.numpy",
    "torch": "hybrid_lab.engines.torch_kernels",
}
#: The engines on a CPU, among which the policy chooses.
_ON_CPU = tuple(name for name in _MODULES if name != "triton")
_loaded: dict[str, Engine] = {}


def names() -> tuple[str, ...]:
    """The names of all engines, usable here or not."""
    return tuple(_MODULES)


def find(name: str) -> Engine:
    """The engine of this name, usable here or not. Raises EngineUnavailable for an unknown name."""
    engine = _loaded.get(name)
    if engine is None:
        check_name(name)
        try:
            engine = importlib.import_module(_MODULES[name]).ENGINE
        except ModuleNotFoundError as error:
            if error.name != _MODULES[name]:
                raise
            raise EngineUnavailable(f"the engine {name!r} is not part of this installation") from None
        _loaded[name] = engine
    return engine


def check_name(name: str) -> None:
    """Raise EngineUnavailable for the name of no engine."""
    if name not in _MODULES:
        raise EngineUnavailable(f"there is no engine {name!r}; the engines are {', '.join(_MODULES)}")


def get(name: str) -> Engine:
    """The engine of this name. Raises EngineUnavailable that names the missing part."""
    if name in left_behind:
        _tell_of_a_fork(name)
        return find("numpy")
    engine = find(name)
    missing = engine.missing()
    if missing:
        raise EngineUnavailable(f"the engine {name!r} cannot run here: {missing}")
    return engine


def for_flags(flags: Mapping[str, Any]) -> Engine | None:
    """The engine that the flags of a hybridized Block ask for: by name, or the `default` on their device."""
    name, device = flags.get("engine"), flags.get("device")
    return default(on_cpu=device is not None and not device.is_gpu) if name is None else get(name)


def check_device(name: str | None, on_gpu: bool) -> None:
    """Raise EngineUnavailable if no engine, or not the named engine, runs on the GPU (`on_gpu`) or on the CPU."""
    if name is None and not on_gpu:
        default(on_cpu=True)
        return
    engine = get(name or "triton")
    is_triton = engine.name == "triton"
    if is_triton != on_gpu and not (is_triton and _interpreting()):
        places = "the CPU here, not on a GPU" if on_gpu else "a GPU here, not on the CPU"
        raise EngineUnavailable(f"the engine {name!r} runs on {places}; leave engine or device out")


def _interpreting() -> bool:
    """Whether Triton's interpreter stands in for a GPU; it runs on either side."""
    from hybrid_lab.engines.triton.run import availability

    return availability.interpreting()


def cpu_engines() -> dict[str, Engine]:
    """The engines on a CPU that can run here, by name. NumPy is always among them."""
    return {name: engine for name in _ON_CPU if (engine := _usable(name)) is not None}


def default(on_cpu: bool = False) -> Engine | None:
    """The engine of calls without `engine=`: Triton if a usable GPU is found, unless `on_cpu`; else the engine named by
    the environment variable HYBRID_LAB_CPU. None if the policy chooses an engine for each call.

    Raises EngineUnavailable if the engine of HYBRID_LAB_CPU, or the interpreter of HYBRID_LAB_TRITON, cannot run here.
    """
    if not on_cpu and (os.environ.get("HYBRID_LAB_TRITON") or libraries.driver_seen()):
        triton = _usable("triton")
        if triton is not None:
            return triton
        _check_interpreter()
    if left_behind.intersection(_ON_CPU):
        _tell_of_a_fork(*left_behind.intersection(_ON_CPU))
    pinned = os.environ.get("HYBRID_LAB_CPU", "auto")
    if pinned not in ("", "auto"):
        if pinned not in _ON_CPU:
            near = [name for name in _ON_CPU if name.startswith(pinned)] or get_close_matches(pinned, _ON_CPU, n=1)
            meant = f"did you mean {near[0]}? The" if near else "the"
            raise EngineUnavailable(
                f"HYBRID_LAB_CPU={pinned}: there is no engine {pinned!r} for the CPU; {meant} variable takes "
                f"{', '.join(_ON_CPU)} or auto"
            )
        return get(pinned)
    if "HYBRID_LAB_CPU" not in os.environ and not on_cpu:
        _tell_of_an_unused_gpu()
    return None


def reason_to_run_on(name: str, asked: str | None) -> str:
    """Why a program was compiled by this engine, if the policy did not choose it.

    asked : what `engine=` of hybridize() named, or None
    """
    setting = f"hybridize(engine={asked!r})"
    if asked is None:
        if name == "triton":
            return "as HYBRID_LAB_TRITON=interpret asked" if _interpreting() else "the default where a GPU is usable"
        asked = os.environ.get("HYBRID_LAB_CPU", "auto")
        setting = f"HYBRID_LAB_CPU={asked}"
    if asked in left_behind:
        return f"because this process was forked from one that had loaded {find(asked).title}"
    return f"as {setting} asked" if asked == name else "the default when it was compiled"


def _usable(name: str) -> Engine | None:
    if name in left_behind:
        return None
    if name == "triton" and name not in _loaded and not _has_gpu():
        return None
    try:
        engine = find(name)
    except EngineUnavailable:
        return None
    return engine if engine.missing() is None else None


def _has_gpu() -> bool:
    """Whether Triton can run here; the engine need not be loaded to tell, which takes a tenth of a second."""
    from hybrid_lab.engines.triton.run import availability

    return availability.missing() is None


# -- forked processes ------------------------------------------------------------------------------------------------

#: Engines whose threads, or whose GPU, stayed with the parent of this process; calls here would wait for them for ever.
left_behind: set[str] = set()
#: engine -> the module that has the threads
_THREADED = {"onnxruntime": "onnxruntime", "torch": "torch", "triton": "torch"}
_told_of_a_fork: set[str] = set()


def _forked() -> None:
    unused = {name for name in set(_THREADED.values()) if libraries.is_idle(name)}
    left_behind.update(name for name, module in _THREADED.items() if module in sys.modules and module not in unused)
    if "torch" in left_behind and "torch" not in libraries.cut_off:
        # Tensors of the parent's Triton interpreter are copied by torch, which waits for its threads unless it has one.
        sys.modules["torch"].set_num_threads(1)


forks.in_child(_forked)


def _tell_of_a_fork(*names: str) -> None:
    """Say once per engine that NumPy stands in for it."""
    new = sorted(set(names) - _told_of_a_fork)
    _told_of_a_fork.update(new)
    if new:
        titles = " and ".join(find(name).title for name in new)
        logger.warning(
            f"NumPy runs the graphs of this process, which was forked from one that had loaded {titles}: their threads "
            "are not here. Processes of multiprocessing.get_context('spawn') run every engine"
        )


def _check_interpreter() -> None:
    """Raise EngineUnavailable if HYBRID_LAB_TRITON has an unknown value, or asks for a missing interpreter."""
    from hybrid_lab.engines.triton.run import availability

    if availability.setting() and (missing := availability.missing()) is not None:
        raise EngineUnavailable(f"HYBRID_LAB_TRITON=interpret: {missing}" if availability.interpreting() else missing)


@functools.cache
def _tell_of_an_unused_gpu() -> None:
    """Warn once if the driver of a GPU is there and something else is missing."""
    from hybrid_lab.engines.triton.run import availability

    if libraries.driver_seen():
        missing = availability.missing()
        if missing is not None:
            logger.warning(f"the GPU of this machine is not used: {missing}. HYBRID_LAB_CPU=auto hides this line")
