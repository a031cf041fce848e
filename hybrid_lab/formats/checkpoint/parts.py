"""The parts of a training that one checkpoint holds: nets, Modules, Trainers, loaders and metrics, each by a name."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from hybrid_lab.diagnostics import ArchiveError, HybridLabError, LoadMismatchError, SettingError
from hybrid_lab.formats.archive import layout
from hybrid_lab.gluon import Block, access
from hybrid_lab.mxnet.module import BaseModule
from hybrid_lab.ndarray import NDArray


def by_name(value: object, what: str, fits: Callable[[object], bool], problem: str) -> dict[str, Any]:
    """The parts in one argument by name: a dict's by key, a list's by index, a single part as "".

    what : the argument; problem : completes "the net is a ..." for something else
    Raises SettingError naming the part that does not fit.
    """
    parts: dict[Any, object] = {"": value}
    if value is None:
        parts = {}
    elif isinstance(value, Mapping) and not fits(value):
        parts = dict(value)
    elif isinstance(value, (list, tuple)) and any(map(fits, value)):
        parts = {str(number): each for number, each in enumerate(value)}
    for name, part in parts.items():
        if not isinstance(name, str) or not fits(part):
            where = f"{what}[{name!r}]" if name else f"the {what}"
            raise SettingError(f"{where} is a {type(part).__name__} {problem}")
    if len(parts) > 1 and "" in parts:
        raise SettingError(f"{what}: a part has the empty name")
    return parts


class Models(Block):
    """The root of a checkpoint of several nets, which are its children by the names that the Manager has for them."""

    def __init__(self, nets: Mapping[str, Block]) -> None:
        super().__init__(prefix="models_")
        for name, net in nets.items():
            self.register_child(net, name)
            if name.isidentifier() and not hasattr(type(self), name):
                object.__setattr__(self, name, net)

    def forward(self, *args: object) -> NoReturn:
        """Raises HybridLabError: the nets are called one by one."""
        children = layout.shorten([f".{name}" for name in access.children(self)])
        raise HybridLabError(f"these are several models; call {children}")


# -- loaders and metrics: get_state() and set_state(state) -------------------------------------------------------------


def is_resumable(value: object) -> bool:
    """Whether an object tells where it is, and can be put there."""
    return hasattr(value, "get_state") and hasattr(value, "set_state")


class Placing:
    """Puts loaders and metrics to the positions of a checkpoint, or back to their own."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, Any]] = []

    def put(self, part: Any, place: Callable[[], None]) -> None:  # noqa: ANN401 - anything with get_state and set_state
        """Put one part there by calling `place`. Raises the errors of `place`; `undo` restores the parts put so far."""
        before = copy.deepcopy(part.get_state())
        place()
        self._before.append((part, before))

    def undo(self) -> None:
        """Put all parts back to where they were."""
        while self._before:
            part, state = self._before.pop()
            part.set_state(state)


# -- Modules -----------------------------------------------------------------------------------------------------------


def module_state(module: BaseModule) -> dict[str, Any]:
    """A Module's graph, parameters, and the states and settings of its optimizer, as data."""
    arguments, states = module.get_params()
    symbol = getattr(module, "symbol", None)
    return {
        "symbol": None if symbol is None else symbol.tojson(),
        "arguments": {name: array.copy() for name, array in arguments.items()},
        "states": {name: array.copy() for name, array in states.items()},
        "updaters": [updater.get_states(dump_optimizer=True) for updater in module.updaters()],
    }


def module_restoring(module: BaseModule, saved: object, path: str) -> Callable[[], None]:
    """A function that gives a Module what `module_state` saved. Raises LoadMismatchError, ArchiveError first."""
    if not isinstance(saved, Mapping) or not all(
        isinstance(saved.get(kind), Mapping) and all(isinstance(each, NDArray) for each in saved[kind].values())
        for kind in ("arguments", "states")
    ):
        raise ArchiveError("damaged checkpoint: it holds no parameters of the Module", path=path)
    updaters, states = module.updaters(), saved.get("updaters")
    differences = []
    for kind, live in zip(("arguments", "states"), module.get_params(), strict=True):
        for name in sorted({*live, *saved[kind]}):
            mine, theirs = live.get(name), saved[kind].get(name)
            if mine is None or theirs is None:
                differences.append(f"{'extra' if mine is None else 'missing'}: {name}")
            elif mine.shape != theirs.shape or np.dtype(mine.dtype) != np.dtype(theirs.dtype):
                differences.append(f"shape: {name} is {mine.shape} in the Module, {theirs.shape} in the file")
    if not isinstance(states, list) or len(states) != len(updaters):
        differences.append("optimizer: call init_optimizer() before restore(), as before the checkpoint was saved")
    if differences:
        raise LoadMismatchError("the checkpoint is of another Module; nothing was loaded", differences, path=path)
    for updater, text in zip(updaters, states or (), strict=True):
        copy.deepcopy(updater).set_states(text)  # raises for states of another optimizer

    def restore() -> None:
        module.set_params(dict(saved["arguments"]), dict(saved["states"]))
        for updater, text in zip(updaters, states or (), strict=True):
            updater.set_states(text)

    return restore
