"""Snapshot: parameters, graphs and attributes of a model before a reload, for comparison and undo."""

from __future__ import annotations

import contextlib
import copy
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid_lab import autograd
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.formats.archive import attributes
from hybrid_lab.gluon import Trainer, access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.call_record import last_record, records_of
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.parameter import Parameter
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.insight.states import blocks_below
from hybrid_lab.lab.models import revisions
from hybrid_lab.ndarray.ndarray import NDArray


@dataclass
class _Values:
    """A parameter: its path, its values per context (None before initialization), its deferred initialization."""

    parameter: Parameter
    path: str
    arrays: list[np.ndarray] | None
    shape: Any
    deferred: Any


_ABSENT = object()


@dataclass
class _TrainerStates:
    """A Trainer that a Block holds, and its states."""

    trainer: Trainer
    states: tuple[dict[str, Any], dict[str, np.ndarray]]

    @staticmethod
    def of(trainer: Trainer) -> _TrainerStates:
        """A copy of its states now."""
        settings, arrays = trainer.get_states()
        return _TrainerStates(trainer, (copy.deepcopy(settings), {key: each.copy() for key, each in arrays.items()}))

    def is_as_now(self) -> bool:
        """Whether its counters and settings are the same now."""
        return bool(self.trainer.get_states()[0] == self.states[0])


class Snapshot:
    """Copies of all values of a model, its graphs that came from files, and its attributes, which a load replaces.

    A file also has the last calls of plain Blocks, whose picture a Block shows that was not called here: restoring
    takes it away. Blocks are held weakly: a deleted model is freed although its reload could be undone.
    """

    def __init__(self, net: Block):
        self._values: dict[int, _Values] = {}
        self._pinned: list[tuple[weakref.ref[HybridBlock], dict[Any, NeutralGraph]]] = []
        for path, block in blocks_below(net):
            for name, parameter in access.own_parameters(block).items():
                if id(parameter) not in self._values:
                    self._values[id(parameter)] = _held(parameter, f"{path}.{name}" if path else name)
            if isinstance(block, HybridBlock):
                self._pinned.append((weakref.ref(block), dict(access.graphs(block).pinned)))
        self._not_called = [
            (weakref.ref(block), records_of(block)) for _, block in blocks_below(net) if not _was_called(block)
        ]
        self._attributes = [(block, dict(attributes.of(block))) for _, block in blocks_below(net)]
        held = {id(each): each for _, own in self._attributes for each in own.values() if isinstance(each, Trainer)}
        self._trainers: list[_TrainerStates] = []
        for trainer in held.values():
            with contextlib.suppress(HybridLabError):  # one without states of its own, which a load leaves alone
                self._trainers.append(_TrainerStates.of(trainer))
        self._replaced: list[tuple[weakref.ref[Block], str, object, object]] = []
        self._continued: list[tuple[_TrainerStates, _TrainerStates]] = []

    def reloaded(self) -> None:
        """A reload has just ended: keep the attributes and Trainers that it changed, and their new values."""
        for block, before in self._attributes:
            now = dict(attributes.of(block))
            for name in {**before, **now}:
                old, new = before.get(name, _ABSENT), now.get(name, _ABSENT)
                if old is not new:
                    self._replaced.append((weakref.ref(block), name, old, new))
        self._continued = [(each, _TrainerStates.of(each.trainer)) for each in self._trainers if not each.is_as_now()]
        self._attributes, self._trainers = [], []

    def _restore_attributes(self) -> int:
        """Restore the attributes and Trainers that the reload replaced; values set since stay. Returns how many."""
        restored = 0
        for reference, name, old, new in self._replaced:
            block = reference()
            settings = {} if block is None else access.settings(block)
            if settings.get(name, _ABSENT) is new:
                if old is _ABSENT:
                    del settings[name]
                else:
                    settings[name] = old
                restored += 1
        for before, after in self._continued:
            if after.is_as_now():
                before.trainer.set_states(*before.states)
                restored += 1
        return restored

    def _restore_calls(self) -> None:
        """Take away the pictures of calls that came from the file; the pictures of calls since then stay."""
        for reference, before in self._not_called:
            block = reference()
            if block is not None and not _was_called(block) and records_of(block) is not before:
                if before is None:
                    del access.settings(block)["_calls_noted"]
                else:
                    access.settings(block)["_calls_noted"] = before
                revisions.changed(block)

    def restore(self) -> str:
        """Restore values, graphs and pictures that came from a file, and attributes; returns a sentence about it."""
        with autograd.pause():
            changed = sum([_put_back(values) for values in self._values.values()])
        others = self._restore_attributes()
        self._restore_calls()
        graphs = 0
        for reference, pinned in self._pinned:
            block = reference()
            if block is not None and access.graphs(block).pinned != pinned:
                access.calls(block).pin(list(pinned.values()))
                graphs += 1
        and_others = f", and {count(others, 'attribute')}" if others else ""
        if changed or (others and not graphs):
            return f"{count(changed, 'parameter')} restored{and_others}"
        if not graphs:
            return "the reload had changed nothing"
        return f"the graphs of {count(graphs, 'Block')} are as they were; no parameter had changed{and_others}"

    def differences(self) -> list[str]:
        """One line per changed parameter."""
        lines = []
        for values in self._values.values():
            now = access.arrays(values.parameter)
            if now is None:
                continue
            if values.arrays is None:
                lines.append(f"{values.path}: {_numbers(now[0])}, not initialized before")
            elif any(not _same(array, old) for array, old in zip(now, values.arrays, strict=False)):
                lines.append(f"{values.path}: {_change(values.arrays[0], now[0].asnumpy())}")
        return lines


def _was_called(block: Block) -> bool:
    """Whether the last known call of a Block happened in this process, and was not read from a file."""
    record = last_record(block)
    return record is not None and not record.is_saved


def _held(parameter: Parameter, path: str) -> _Values:
    live = access.arrays(parameter)
    arrays = None if live is None else [array.asnumpy().copy() for array in live]
    return _Values(parameter, path, arrays, parameter.partial_shape, access.deferred_init(parameter))


def _put_back(values: _Values) -> bool:
    """Restore a parameter; returns whether its values had changed."""
    arrays = access.arrays(values.parameter)
    if arrays is None:
        return False
    if values.arrays is None:
        values.parameter.uninitialize(values.shape, values.deferred)
        return True
    if all(_same(now, old) for now, old in zip(arrays, values.arrays, strict=False)):
        return False
    for now, old in zip(arrays, values.arrays, strict=False):
        now[:] = old
    return True


def _same(now: NDArray, old: np.ndarray) -> bool:
    """Bit for bit: 0.0 is not -0.0, and a NaN is itself."""
    values = now.asnumpy()
    return values.shape == old.shape and values.dtype == old.dtype and values.tobytes() == old.tobytes()


def _numbers(array: NDArray | np.ndarray) -> str:
    size = int(np.prod(array.shape))
    return f"{size} number{'s' if size != 1 else ''}"


def _change(before: np.ndarray, now: np.ndarray) -> str:
    if before.shape != now.shape or before.dtype != now.dtype:
        return f"{now.dtype.name}{list(now.shape)} instead of {before.dtype.name}{list(before.shape)}"
    with np.errstate(all="ignore"):
        gaps = np.abs(now.astype("float64") - before.astype("float64"))
    finite = gaps[np.isfinite(gaps)]
    largest = f"{finite.max():.3g}" if finite.size else "not a number"
    return f"{_numbers(now)}, largest change {largest}"
