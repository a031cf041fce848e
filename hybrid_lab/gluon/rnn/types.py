"""Types of recurrent cells."""

from __future__ import annotations

from typing import TypeAlias

from hybrid_lab.ops.framework.protocols import Tensor

Tensors: TypeAlias = tuple[Tensor, ...]
#: What a cell returns for a step: its output and the new states.
Step: TypeAlias = tuple[Tensor, list[Tensor]]
