"""Functions around the compiled calls of a Block, for tools that look at calls; other Blocks' calls stay as fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_lab.hybridize.cached_graph import GraphCache
from hybrid_lab.ndarray.ndarray import NDArray

#: Takes the cache, the arguments of a call, and a function that runs the call; gives the call's result.
Around = Callable[[GraphCache, tuple[Any, ...], Callable[[], Any]], Any]


class _WithFunctions(GraphCache):
    """What a GraphCache is while functions are around its calls: it changes its class, and changes it back."""

    functions: tuple[Around, ...]

    def __call__(self, args: tuple[Any, ...]) -> Any:
        return self._through(self.functions, args)

    def call_one(self, leaf: NDArray) -> Any:
        return self._through(self.functions, (leaf,))

    def _through(self, functions: tuple[Around, ...], args: tuple[Any, ...]) -> Any:
        if not functions:
            one = len(args) == 1 and type(args[0]) is NDArray
            return GraphCache.call_one(self, args[0]) if one else GraphCache.__call__(self, args)
        return functions[-1](self, args, lambda: self._through(functions[:-1], args))


def add(graphs: GraphCache, function: Around) -> None:
    """Run `function` around each compiled call, outside of those that were added before."""
    if isinstance(graphs, _WithFunctions):
        graphs.functions = (*graphs.functions, function)
        return
    graphs.functions = (function,)  # type: ignore[attr-defined]
    graphs.__class__ = _WithFunctions


def remove(graphs: GraphCache, function: Around) -> None:
    """Take a function away; nothing happens if it is not there."""
    if isinstance(graphs, _WithFunctions):
        graphs.functions = tuple(each for each in graphs.functions if each is not function)
        if not graphs.functions:
            graphs.__class__ = GraphCache  # type: ignore[assignment]
