"""MXNet's profiler: times of operators and compiled calls in Chrome's trace format. `mx.profile(net, x)` measures one
network step by step; this one records whatever runs between `set_state("run")` and `set_state("stop")`.

    mx.profiler.set_config(profile_all=True, filename="profile.json")
    mx.profiler.set_state("run")
    net(x)
    mx.profiler.set_state("stop")
    print(mx.profiler.dumps())      # a table
    mx.profiler.dump()              # profile.json, for chrome://tracing and ui.perfetto.dev
"""

from __future__ import annotations

import inspect
import json
import warnings
from contextlib import AbstractContextManager
from os import PathLike
from typing import TypedDict, Unpack

from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.formats.atomic import atomic_write

from .objects import Counter, Domain, Event, Frame, Marker, Task
from .recording import BACKWARD, EXECUTOR, GRAPH, OPERATOR, ProfilerError, recorder
from .statistics import as_json, as_table, collected, ordered

__all__ = [
    "Counter",
    "Domain",
    "Event",
    "Frame",
    "Marker",
    "ProfilerError",
    "Task",
    "dump",
    "dump_profile",
    "dumps",
    "pause",
    "profiler_set_config",
    "profiler_set_state",
    "resume",
    "scope",
    "set_config",
    "set_state",
]

_filename = "profile.json"
_IMPERATIVE, _SYMBOLIC = frozenset({OPERATOR, BACKWARD}), frozenset({GRAPH, EXECUTOR})


class Settings(TypedDict, total=False):
    """The keyword arguments of `set_config`."""

    filename: str | PathLike[str]
    profile_all: bool
    profile_symbolic: bool
    profile_imperative: bool
    profile_memory: bool
    profile_api: bool
    profile_process: str
    continuous_dump: bool
    dump_period: float
    aggregate_stats: bool


def set_config(**settings: Unpack[Settings]) -> None:
    """Choose the recorded events and the file that `dump` writes.

    filename : of `dump`, profile.json by default
    profile_all : both of the following; profile_imperative : eager operators and backward passes; profile_symbolic :
        calls of compiled graphs and Executors, each as one event (`mx.profile(net, x)` shows the steps inside)
    profile_memory, profile_api, aggregate_stats, continuous_dump, dump_period, profile_process : accepted for MXNet's
        sake. Memory is not measured; statistics are always there; files are written by `dump` only

    Raises SettingError for another setting.
    """
    global _filename
    unknown = sorted(settings.keys() - Settings.__annotations__.keys())
    if unknown:
        raise SettingError(f"set_config: unknown setting {unknown[0]}; there are {', '.join(Settings.__annotations__)}")
    _filename = str(settings.get("filename", _filename))
    everything = settings.get("profile_all", False)
    categories: frozenset[str] = frozenset()
    if everything or settings.get("profile_imperative", False):
        categories |= _IMPERATIVE
    if everything or settings.get("profile_symbolic", False):
        categories |= _SYMBOLIC
    recorder.categories = categories


set_config.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in Settings.__annotations__]
)


def set_state(state: str = "stop", profile_process: str = "worker") -> None:
    """ "run" records from now on, in this thread and in threads that start later; "stop" ends that.

    While it runs, every call of a Python function costs a little more (`sys.setprofile`). Raises ProfilerError beside
    another profiler of Python. profile_process : accepted for MXNet's sake
    """
    check_choice("set_state", state, ("run", "stop"), SettingError)
    if state == "run":
        recorder.start()
    else:
        recorder.stop()


def profiler_set_config(mode: str = "symbolic", filename: str | PathLike[str] = "profile.json") -> None:
    """MXNet's older name of `set_config`; a DeprecationWarning says so.

    mode : "symbolic" for calls of compiled graphs and Executors, "imperative" for eager operators, "all" for both

    Raises SettingError for another mode.
    """
    check_choice("profiler_set_config", mode, ("symbolic", "imperative", "all"), SettingError)
    _warn("profiler_set_config", "set_config")
    set_config(
        filename=filename,
        profile_all=mode == "all",
        profile_symbolic=mode == "symbolic",
        profile_imperative=mode == "imperative",
    )


def profiler_set_state(state: str = "stop") -> None:
    """MXNet's older name of `set_state`; a DeprecationWarning says so. state : "run" or "stop" """
    _warn("profiler_set_state", "set_state")
    set_state(state)


def dump_profile() -> None:
    """MXNet's older name of `dump`; a DeprecationWarning says so."""
    _warn("dump_profile", "dump")
    dump()


def _warn(old: str, new: str) -> None:
    text = f"mx.profiler.{old} is MXNet's older name; use mx.profiler.{new}"
    warnings.warn(text, DeprecationWarning, stacklevel=3)


def pause(profile_process: str = "worker") -> None:
    """Record nothing until `resume`. profile_process : accepted for MXNet's sake"""
    recorder.paused = True


def resume(profile_process: str = "worker") -> None:
    """Record again after `pause`. profile_process : accepted for MXNet's sake"""
    recorder.paused = False


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Write all events to the file of `set_config`, in Chrome's trace format, and keep them.

    finished : stop the profiler, and begin with an empty record next time
    profile_process : accepted for MXNet's sake
    """
    check_switches("dump", finished=finished)
    trace = {"traceEvents": [event.as_trace() for event in recorder.events], "displayTimeUnit": "ms"}
    with atomic_write(_filename) as file:
        file.write(json.dumps(trace).encode())
    if finished:
        recorder.stop()
        recorder.events.clear()


def dumps(reset: bool = False, format: str = "table", sort_by: str = "total", ascending: bool = False) -> str:  # noqa: A002
    """Statistics of the events by name: how often, and the times in milliseconds.

    reset : forget the events afterwards; format : 'table' or 'json'; sort_by : 'total', 'avg', 'min', 'max' or 'count'
    """
    check_switches("dumps", reset=reset, ascending=ascending)
    check_choice("dumps: format", format, ("table", "json"), SettingError)
    times, counters = (ordered(collected(recorder.events, phase), sort_by, ascending) for phase in "XC")
    text = (as_json if format == "json" else as_table)(times, counters)
    if reset:
        recorder.events.clear()
    return text


def scope(name: str) -> AbstractContextManager[None]:
    """`with mx.profiler.scope("encoder"):` - events recorded inside are named `encoder:dot`."""
    return recorder.scope(name)


_suggest_names(__name__)
