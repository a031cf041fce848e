"""The reply of the request `answers`: places of NaN and changes since the last save, as far as they cost little.

Nothing runs for it, and nothing is made up: NaN comes from the user's own calls, logs and parameters. The changes
are the parameters whose versions grew since the save and whose numbers differ from the file.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from hybrid_lab.diagnostics.formatting import visible
from hybrid_lab.formats.archive import ledger
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.files.saved import Versions, last_file
from hybrid_lab.gluon.parameter import Parameter
from hybrid_lab.insight import last_nan
from hybrid_lab.insight.states import blocks_below, hybrid_blocks
from hybrid_lab.lab.messages.answers import AnswersReply, ChangeAnswer, NanAnswer
from hybrid_lab.lab.models.registry import LiveModel
from hybrid_lab.lab.places import location_data
from hybrid_lab.lab.saving import file_names
from hybrid_lab.lab.saving.changed_numbers import ChangedNumbers
from hybrid_lab.lab.saving.save_facts import trains
from hybrid_lab.lab.training.current import runs
from hybrid_lab.lab.training.curves import run_data

if TYPE_CHECKING:
    from hybrid_lab.lab.training.run import Run

_READ = 30_000_000
"""Elements of parameters that are looked at for NaN after a cell; of more, the first ones."""
_SMALL = 2_000_000
"""Elements of parameters, and of all values of a call, of a model whose operators are timed without being asked."""


class _Looked(NamedTuple):
    """Whether a parameter with these versions holds NaN or infinities."""

    versions: Versions
    bad: bool


class Answers:
    """Answers about the models of one kernel; remembers which versions of parameters were looked at."""

    def __init__(self) -> None:
        self._looked: dict[str, dict[str, _Looked]] = {}
        self._numbers = ChangedNumbers()

    def of(self, entry: LiveModel, busy: bool) -> AnswersReply:
        """What is known of a model. busy : a cell is running; then no parameter is read"""
        net = entry.block
        is_loss = entry.facts.left_out == "a loss function"
        nan = _watched(net, entry.name) or (None if is_loss else _logged(net))
        return {
            "model": entry.id,
            "nan": self._with_parameters(nan, entry, net, busy),
            "change": None if is_loss else self._change(entry, net, busy),
            "measurable": not busy and _is_small(net, entry.facts.shown["parameters"]),
        }

    def _with_parameters(self, nan: NanAnswer | None, entry: LiveModel, net: Block, busy: bool) -> NanAnswer | None:
        """An answer with what the parameters hold now. A watched operator comes before the parameters that it ruined;
        beside a logged value their number says that the model must be created again.
        """
        if nan is not None and nan["source"] == "watched":
            return nan
        parameters = self._in_parameters(entry, net, busy)
        if nan is None or parameters is None:
            return nan or parameters
        if nan["source"] == "logged":
            nan["count"] = parameters["count"]
            return nan
        return parameters

    def _change(self, entry: LiveModel, net: Block, busy: bool) -> ChangeAnswer | None:
        state = last_file(net)
        if state is None:
            path = file_names.folder() / entry.proposed_file
            try:
                when = os.stat(path).st_mtime
            except OSError:
                return None
            return _answer("unknown", path, when)
        change = state.change(net)
        answer = _answer(state.how, Path(state.path), state.when)
        noted = ledger.noted(net, state.path)
        file_now = _file_now(state.path, noted)
        if noted and state.how == "saved":
            answer["file_now"] = file_now
        equal, unknown = 0, len(change.written)
        if change.written and noted and file_now == "same":
            equal, unknown = self._numbers.of(entry.id, state, change.written, 0 if busy else _READ)
        answer["changed"], answer["uncompared"] = change.changed - equal, unknown
        answer["unsure"], answer["parameters"] = change.unsure, change.total
        answer["structure"] = change.structure
        return answer

    def _in_parameters(self, entry: LiveModel, net: Block, busy: bool) -> NanAnswer | None:
        known = self._looked.setdefault(entry.id, {})
        left = 0 if busy else _READ
        bad: list[tuple[str, str]] = []
        seen: set[int] = set()
        for path, block in blocks_below(net):
            for key, parameter in tuple(access.own_parameters(block).items()):
                if id(parameter) in seen:
                    continue
                seen.add(id(parameter))
                name = f"{path}.{key}" if path else key
                versions = Versions.of(parameter)
                looked = known.get(name)
                if looked is None or looked.versions != versions:
                    size = sum(array.size for array in access.arrays(parameter) or ())
                    if size > left or _is_on_device(parameter):
                        known.pop(name, None)
                        continue
                    left -= size
                    looked = known[name] = _Looked(versions, _is_bad(parameter))
                if looked.bad:
                    bad.append((path, name))
        if not bad:
            return None
        path, name = bad[0]
        words = "parameters hold" if len(bad) > 1 else "parameter holds"
        text = f"{len(bad)} {words} NaN or infinities, the first is {visible(name)}"
        return _nan("parameters", text, path, name=name, number=len(bad))


def _is_on_device(parameter: Parameter) -> bool:
    """Whether a read would wait for a GPU."""
    return any(array.buffer.host_stale for array in access.arrays(parameter) or ())


def _is_bad(parameter: Parameter) -> bool:
    arrays = access.arrays(parameter) or ()
    return any(
        array.buffer.host.dtype.kind == "f" and not bool(np.isfinite(array.buffer.host).all()) for array in arrays
    )


def _nan(
    source: str, text: str, path: str | None, name: str = "", step: int | None = None, number: int = 0
) -> NanAnswer:
    return {
        "source": source,  # type: ignore[typeddict-item]
        "path": path,
        "operator": "",
        "part": "",
        "name": visible(name),
        "step": step,
        "count": number,
        "text": text,
        "location": None,
    }


def _watched(net: Block, name: str) -> NanAnswer | None:
    """What `mx.watch_nan` found last in the model, or in a part of it."""
    found = last_nan.all_found()
    if not found:
        return None
    places = {id(block): path for path, block in blocks_below(net)}
    for item in reversed(found):
        top = item.net()
        start = places.get(id(top))
        if start is None:
            continue
        path = None if item.block is None else ".".join(filter(None, (start, item.block)))
        answer = _nan("watched", visible(item.text), path)
        answer["location"] = location_data(item.location)
        if item.parameter:
            answer["source"], answer["count"] = "parameters", 1
            answer["name"] = visible(f"{path}.{item.parameter}" if path else item.parameter)
            return answer
        answer["operator"], answer["part"] = item.operator, item.part
        answer["name"] = visible(f"{name}.{path}" if path else name)
        return answer
    return None


def _logged(net: Block) -> NanAnswer | None:
    """The first NaN among the values that the latest training logged, unless it is known to train other models."""
    latest = runs.all()[-1:]
    for run in latest:
        data = run_data(run)
        # The user's own values come before the Trainer's.
        bad = [(curve["bad"][0]["first"], number) for number, curve in enumerate(data["curves"]) if curve["bad"]]
        if bad and (run.trainer() is None or trains(run, net)) and not _was_loaded_since(run, net):
            step, number = min(bad)
            name = data["curves"][number]["name"]
            where = f" of {data['label']}" if data["label"] else ""
            text = f"{visible(name)} was NaN or infinite first at step {step}{where}"
            return _nan("logged", text, None, name=name, step=step)
    return None


def _file_now(path: str, noted: str) -> Literal["same", "gone", "other"]:
    """Whether a file still has the version that the ledger noted, has another, or was removed."""
    try:
        now = ledger.version(path)
    except OSError:  # out of reach at the moment
        return "same"
    return "same" if now == noted else "other" if now else "gone"


def _was_loaded_since(run: Run, net: Block) -> bool:
    """Whether a file was loaded into the model after a training: the values that gave the NaN are gone."""
    state = last_file(net)
    if state is None or state.how != "loaded" or run.ended is None:
        return False
    return state.when > time.time() - (time.perf_counter() - run.ended)


def _answer(how: str, path: Path, when: float) -> ChangeAnswer:
    return {
        "how": how,  # type: ignore[typeddict-item]
        "file_now": "same",
        "file": visible(path.name),
        "path": visible(str(path)),
        "reachable": path.parent == file_names.folder() and path.is_file(),
        "when": when,
        "changed": 0,
        "uncompared": 0,
        "unsure": 0,
        "parameters": 0,
        "structure": False,
    }


def _is_small(net: Block, parameters: int | None) -> bool:
    """Whether a compiled call of the model is small, and runs on the CPU."""
    if parameters is None or parameters > _SMALL:
        return False
    programs = [
        item.program for _, block in hybrid_blocks(net) for item in access.calls(block).compilations if item.program
    ]
    if not programs or any(program.forward.report.runs_on == "triton" for program in programs):
        return False
    values = [value for node in programs[-1].forward.graph.nodes for value in node.outputs]
    return sum(value.nbytes for value in values if value.shape is not None) <= 4 * _SMALL
