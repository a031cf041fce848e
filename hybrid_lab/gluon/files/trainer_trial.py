"""Whether the settings of a Trainer that a file holds can drive a step, found out before anything takes them over."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hybrid_lab import autograd
from hybrid_lab.ndarray import zeros
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.optimizer import Optimizer
from hybrid_lab.optimizer.optimizer import defaults

_UPDATES = (0, 1, 1000)
"""At which numbers of updates from the saved one on a schedule must give a rate."""


def problems(optimizer: Optimizer, data: Mapping[str, Any]) -> list[str]:
    """Why settings as `Trainer.get_states` gives them are of no use to this optimizer, one line each.

    The kinds of the values have been checked. An optimizer of this package with these settings updates one weight of
    zeros on trial; code of the user's own is not run.
    """
    known, own = optimizer.hyperparameters(), defaults(type(optimizer)) or {}
    lines = []
    for name, value in data["hyperparameters"].items():
        if name == "lr_scheduler" and value is not None:  # the schedule has an entry of its own
            lines.append(f"setting: {name} is {value!r:.40}")
        if value is None and known[name] is not None and own.get(name, 0) is not None:
            lines.append(f"setting: {name} is None in the file, {known[name]!r} here")
    lines += [f"setting: {name} is {value!r:.40}" for name, value in _unusable(data["hyperparameters"], known)]
    schedule = optimizer.lr_scheduler
    if schedule is not None:
        saved = {name: value for name, value in data["scheduler"].items() if name in vars(schedule)}
        lines += [f"lr_scheduler: {name} is {value!r:.40}" for name, value in _unusable(saved, vars(schedule))]
        lines += [
            f"lr_scheduler: {name} is {value!r:.40} in the file, {vars(schedule)[name]!r:.40} here"
            for name, value in saved.items()
            if not _of_one_kind(value, vars(schedule)[name])
        ]
    if not lines and _is_ours(optimizer) and (schedule is None or _is_ours(schedule)):
        failure = _failure(optimizer, data)
        if failure and not _failure(optimizer, None):
            lines.append(f"settings: no step can be made with them: {failure}")
    return lines


def _unusable(values: Mapping[str, Any], known: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """The infinite and NaN settings, except for settings equal to ours."""
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value) and value != known.get(name):
            yield name, value


def _of_one_kind(value: object, known: object) -> bool:
    if isinstance(known, (list, tuple)):
        return isinstance(value, (list, tuple)) and all(type(each) in (int, float) for each in value)
    if known is None or isinstance(known, (bool, str)):
        return type(value) is type(known)
    return isinstance(known, (int, float)) and type(value) in (int, float)


def _is_ours(value: object) -> bool:
    return type(value).__module__.startswith("hybrid_lab.")


def _failure(optimizer: Optimizer, data: Mapping[str, Any] | None) -> str:
    """The error of a copy of the optimizer in a step with these settings, or with its own; "" if it makes one."""
    twin = copy.copy(optimizer)
    counts = {0: 0}
    if data is not None:
        vars(twin).update(data["hyperparameters"])
        twin.num_update, counts = data["num_update"], {0: max(data["counts"].values(), default=0)}
        if twin.lr_scheduler is not None:
            twin.lr_scheduler = copy.copy(twin.lr_scheduler)
            live = vars(twin.lr_scheduler)
            live.update({key: value for key, value in data["scheduler"].items() if key in live})
    vars(twin).update(_all_index_update_counts={0: counts}, _index_update_count=counts)
    weight = zeros((1, 1))
    try:
        with autograd.pause(), random_state.preserved(), np.errstate(all="ignore"):
            state = twin.create_state_multi_precision(0, weight)
            twin.update_multi_precision(0, weight, zeros((1, 1)), state)
            rates = [float(twin.learning_rate)]
            if twin.lr_scheduler is not None:
                rates += [float(twin.lr_scheduler(twin.num_update + later)) for later in _UPDATES]
    except Exception as error:  # noqa: BLE001 - whatever settings of the wrong kind lead to
        return f"{type(error).__name__}: {error}"
    return "" if all(map(math.isfinite, rates)) else f"the learning rate is {rates}"
