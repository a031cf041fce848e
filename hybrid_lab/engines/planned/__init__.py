"""Planned programs, on which all engines build: an arena, and one generated Python function per graph."""

from hybrid_lab.engines.planned.build import PlannedExecutable, build
from hybrid_lab.engines.planned.engine import PlannedEngine

__all__ = ["PlannedEngine", "PlannedExecutable", "build"]
