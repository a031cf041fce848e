"""Checkpoints of a training: archives in a folder, from which it goes on as if it had never stopped."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

from .manager import Checkpoint, Manager

__all__ = ["Checkpoint", "Manager"]

_suggest_names(__name__)
