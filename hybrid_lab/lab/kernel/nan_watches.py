"""The switch *Stop at NaN* of each model. It holds for the variable: a model that a cell makes anew is watched too."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from hybrid_lab.gluon import call_record
from hybrid_lab.gluon.block import Block

if TYPE_CHECKING:
    from hybrid_lab.insight import Watch
    from hybrid_lab.lab.models.registry import LiveModel


class NanWatches:
    """The watches of one kernel's models, by the names of their variables."""

    def __init__(self, namespace: Callable[[], Mapping[str, object]]):
        self._namespace = namespace
        self._watches: dict[str, Watch] = {}

    def switch(self, entry: LiveModel, on: bool | None) -> bool:
        """Switch the watch of a model on or off, or with None neither; returns whether it is on."""
        if on:
            self._watch(entry.name, entry.block)
            self._listen(True)
        elif on is False and entry.name in self._watches:
            self._watches.pop(entry.name).close()
            self._listen(bool(self._watches))
        watch = self._watches.get(entry.name)
        return watch is not None and watch.is_of(entry.block)

    def _listen(self, wanted: bool) -> None:
        own: weakref.WeakMethod[Callable[[Block], None]] = weakref.WeakMethod(self._follow)
        others = [each for each in call_record.listeners if each() is not None and each != own]
        call_record.listeners[:] = [*others, own] if wanted else others

    def _watch(self, name: str, net: Block) -> None:
        from hybrid_lab.insight import watch_nan

        before = self._watches.get(name)
        if before is None or not before.is_of(net):
            if before is not None:
                before.close()
            self._watches[name] = watch_nan(net)

    def _follow(self, called: Block) -> None:
        """A cell is about to call a Block: watch it if it is a new model of a watched name."""
        namespace = self._namespace()
        for name in list(self._watches):
            net = namespace.get(name)
            # type(), not isinstance: a lazy proxy in a variable may do anything when it is asked for its class.
            if issubclass(type(net), Block):
                assert isinstance(net, Block)
                self._watch(name, net)
