"""Planned programs, on which all engines build: an arena, and one generated Python function per graph."""

from hybrid_lab.engines.planned.build import PlannedEngine, PlannedExecutable, build

__all__ = ["PlannedEngine", "PlannedExecutable", "build"]
