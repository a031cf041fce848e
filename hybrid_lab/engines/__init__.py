"""Engines: they compile specialized graphs into executables on raw buffers."""

from hybrid_lab.engines.engine import Engine, Executable
from hybrid_lab.engines.registry import check_device, check_name, cpu_engines, default, find, for_flags, get, names
from hybrid_lab.engines.report import Fallback, RegionReport, Report

__all__ = [
    "Engine",
    "Executable",
    "Fallback",
    "RegionReport",
    "Report",
    "check_device",
    "check_name",
    "cpu_engines",
    "default",
    "find",
    "for_flags",
    "get",
    "names",
]
