"""The inputs of calls, kept on request so that overlays can be measured on them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.graph.printer import format_type
from hybrid_lab.hybridize import events
from hybrid_lab.hybridize.calls import GraphCalls
from hybrid_lab.hybridize.structure import flatten
from hybrid_lab.insight.states import hybrid_blocks
from hybrid_lab.lab.messages.measured import KeptCall
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.ndarray import NDArray

#: Shape and dtype of each input.
Types = tuple[tuple[tuple[int, ...], np.dtype], ...]

_KINDS = 4
"""Kinds of calls of one Block whose inputs are kept, told apart by shapes and dtypes."""


class KeptInputs:
    """Copies of the inputs of the next compiled calls of a model, of each kind of call of each Block once.

    Only the caches of the Blocks hold it: the copies go with the model. `close()` gives them back at once.
    """

    def __init__(self, net: Block):
        self._net = weakref.ref(net)
        self._kept: weakref.WeakKeyDictionary[GraphCalls, dict[Types, list[NDArray]]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self.look()

    def look(self) -> None:
        """Keep the inputs of Blocks too that the model has got since."""
        net = self._net()
        for _, block in hybrid_blocks(net) if net is not None else ():
            calls = access.calls(block)
            if calls not in self._kept:
                self._kept[calls] = {}
                calls.add_interceptor(self)

    def close(self) -> None:
        """Keep nothing any more, and give back what was kept."""
        for calls in list(self._kept):
            calls.remove_interceptor(self)
        self._kept.clear()

    def of(self, block: HybridBlock, types: Types) -> list[NDArray] | None:
        """The inputs of a call of this Block with these types; None if none was kept."""
        return self._kept.get(access.calls(block), {}).get(types)

    @property
    def calls(self) -> list[KeptCall]:
        """What is kept, with its size."""
        net = self._net()
        found: list[KeptCall] = []
        for path, block in hybrid_blocks(net) if net is not None else ():
            for types in list(self._kept.get(access.calls(block), ())):
                words = ", ".join(format_type(shape, dtype) for shape, dtype in types)
                found.append({"path": path, "inputs": words, "bytes": sum(map(_bytes, types))})
        return found

    def __call__(self, calls: GraphCalls, args: tuple[Any, ...], run: Callable[[], object]) -> object:
        """Run a compiled call. The copies are made before it: the call, or the user after it, may write into them."""
        if not events.tools.running:
            leaves = flatten(args, f"the input of {calls.block.name}")[0]
            with self._lock:
                kept, types = self._kept.get(calls), types_of(leaves)
                if kept is not None and types not in kept:
                    if len(kept) >= _KINDS:
                        del kept[next(iter(kept))]
                    with tape.Mode(False, False):
                        kept[types] = [leaf.copy() for leaf in leaves]
        return run()


def types_of(leaves: Sequence[NDArray]) -> Types:
    """Shape and dtype of each."""
    return tuple((tuple(leaf.shape), np.dtype(leaf.dtype)) for leaf in leaves)


def _bytes(kind: tuple[tuple[int, ...], np.dtype]) -> int:
    shape, dtype = kind
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
