"""What loading an archive into a model did, and what else the file brought."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.ndarray.random_state import state as random_state

if TYPE_CHECKING:
    from hybrid_lab.gluon import Trainer


@dataclass
class TrainerStates:
    """A saved Trainer: the optimizer's settings and counters, its states, and the random state beside them."""

    settings: dict[str, Any]
    arrays: dict[str, np.ndarray]
    random: dict[str, Any] | None
    path: str | None = None

    def restore(self, trainer: Trainer) -> None:
        """Let `trainer` and the random state continue exactly where they were saved.

        Raises LoadMismatchError listing what does not fit; then nothing changes.
        """
        trainer.set_states(self.settings, self.arrays, self.path)
        if self.random is not None:
            random_state.set_state(self.random)


@dataclass
class LoadReport:
    """What a load did.

    path : the file; blocks, parameters, graphs : how many were loaded
    differences : what did not fit (strict=False); notes : what is worth knowing
    aux : the user's own values; trainer_states : a saved Trainer, or None
    """

    path: str
    blocks: int = 0
    parameters: int = 0
    graphs: int = 0
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    aux: dict[str, Any] = field(default_factory=dict)
    trainer_states: TrainerStates | None = None

    def __str__(self) -> str:
        lines = [
            f"loaded {self.parameters} parameters and {self.graphs} graphs of {self.blocks} blocks from {self.path}"
        ]
        lines += [f"  difference: {text}" for text in self.differences]
        lines += [f"  note: {text}" for text in self.notes]
        return "\n".join(lines)
