"""The outcome of loading an archive into a model, and the further contents of the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics import ArchiveError, HybridLabError, LoadMismatchError
from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.gluon import access
from hybrid_lab.ndarray.random_state import RandomState
from hybrid_lab.ndarray.random_state import state as random_state

if TYPE_CHECKING:
    from hybrid_lab.gluon import Parameter, Trainer


@dataclass(repr=False)
class TrainerStates:
    """A saved Trainer: `restore(trainer)` lets a Trainer of the loaded model continue from it, and so does
    `trainer.set_states(states)`.

    settings : the optimizer's settings and counters; arrays : its states, `<parameter number>.<place>`
    random : the random state beside them, or None; owners : id in the file -> Parameter of the loaded model
    """

    settings: dict[str, object]
    arrays: dict[str, np.ndarray]
    random: dict[str, object] | None
    owners: dict[str, Parameter]
    path: str | None = None

    def __repr__(self) -> str:
        """`<trainer states: Adam after 100 updates of 4 parameters>`."""
        entries = self.settings.get("parameters")  # as the file has them, which may be damaged
        parameters = count(len(entries) if isinstance(entries, list) else 0, "parameter")
        updates = self.settings.get("num_update")
        after = f"{updates} update{'' if updates == 1 else 's'}"
        return f"<trainer states: {self.settings.get('optimizer')} after {after} of {parameters}>"

    def differences(self, trainer: Trainer) -> list[str]:
        """What keeps `trainer` from continuing with these states, one line each."""
        parameters = access.trainer_parameters(trainer)
        waiting = {f"state: {each.name} has no values yet" for each in parameters if access.arrays(each) is None}
        try:
            found = trainer.differences(*self._in_order_of(trainer))
            if self.random is not None:
                RandomState().set_state(self.random)
        except LoadMismatchError as error:
            return error.differences
        except HybridLabError as error:
            return [str(error)]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return [f"the file's settings are damaged: {error}"]
        return [line for line in found if not any(line.startswith(start) for start in waiting)]

    def restore(self, trainer: Trainer) -> None:
        """Let `trainer` and the random state continue exactly where they were saved.

        Raises LoadMismatchError listing the misfits; then nothing changes.
        """
        trainer.set_states(*self._in_order_of(trainer), self.path)
        if self.random is not None:
            random_state.set_state(self.random)

    def _in_order_of(self, trainer: Trainer) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        """Settings and states by the numbers of `trainer`: Trainers sort by names, which differ between instances."""
        entries, counts = self.settings.get("parameters"), self.settings.get("counts")
        if not isinstance(entries, list) or not isinstance(counts, dict):
            raise ArchiveError("damaged archive: the trainer's settings name no parameters", path=self.path)
        ids = [entry.get("id") if isinstance(entry, dict) else None for entry in entries]
        numbers = {id(self.owners[key]): n for n, key in enumerate(ids) if isinstance(key, str) and key in self.owners}
        order = [numbers.get(id(parameter)) for parameter in access.trainer_parameters(trainer)]
        if None in order or len(order) != len(entries):
            parameters = access.trainer_parameters(trainer)
            strangers = [each.name for each, number in zip(parameters, order, strict=True) if number is None]
            lines = [f"{name} has no states in the file" for name in strangers]
            if len(order) != len(entries):
                lines.append(f"{count(len(order), 'parameter')} in this Trainer, {len(entries)} in the file")
            raise LoadMismatchError("the file's states belong to another Trainer", lines, path=self.path)
        place = {str(number): str(index) for index, number in enumerate(order)}
        arrays = {}
        for key, array in self.arrays.items():
            number, dot, rest = key.partition(".")
            arrays[f"{place.get(number, number)}{dot}{rest}"] = array
        sorted_entries = [entries[number] for number in order if number is not None]
        moved = {place[key]: value for key, value in counts.items() if key in place}
        return {**self.settings, "parameters": sorted_entries, "counts": moved}, arrays


@dataclass(repr=False)
class LoadReport:
    """The outcome of a load.

    path : the file; blocks, parameters, graphs : how many were loaded
    differences : parts that did not fit (strict=False); notes : further remarks
    aux : the user's own values; trainer_states : a saved Trainer, or None; restored : whether the Trainer given as
    `trainer=` continues from it
    attributes : path of a Block -> its attributes in the file, by name
    """

    path: str
    blocks: int = 0
    parameters: int = 0
    graphs: int = 0
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    aux: dict[str, Any] = field(default_factory=dict)
    trainer_states: TrainerStates | None = None
    restored: bool = False
    attributes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"loaded {count(self.parameters, 'parameter')} and {count(self.graphs, 'graph')} of "
            f"{count(self.blocks, 'block')} from {self.path}"
        ]
        lines += [f"  difference: {text}" for text in self.differences]
        lines += [f"  note: {text}" for text in self.notes]
        if self.trainer_states is not None:
            how = "restored" if self.restored else "not restored; report.trainer_states.restore(trainer) does it"
            lines.append(f"  {self.trainer_states!r}: {how}")
        return "\n".join(lines)

    __repr__ = __str__
