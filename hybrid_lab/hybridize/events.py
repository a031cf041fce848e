"""What Blocks tell of: lists of functions, to which tools add theirs by `listen`.

Who tells of something loops over the list. So without listeners, nothing is called, formatted or looked up.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Hybrid, Tree
    from hybrid_lab.hybridize.failures import Failure
    from hybrid_lab.hybridize.neutral import NeutralGraph
    from hybrid_lab.hybridize.program_cache import Compilation

traced: list[Callable[[Hybrid, NeutralGraph], None]] = []
"""The code of a Block was run on Symbols; called once the Block has the graph."""
compiled: list[Callable[[Hybrid, Compilation], None]] = []
"""A program was compiled for a call of a Block."""
failed: list[Callable[[Hybrid, Failure], None]] = []
"""A trace or a compile failed; called with the Block that was called."""
changed: list[Callable[[Tree], None]] = []
"""The structure, the graphs, the state or the output shapes of a Block changed."""


def listen(**functions: Callable[..., None]) -> Callable[[], None]:
    """Call functions, given by the name of their event, from now on: `events.listen(changed=function)`.

    Returns a function that ends it.
    """
    lists: list[tuple[list[Any], Callable[..., None]]] = [(globals()[name], each) for name, each in functions.items()]
    for listeners, each in lists:
        listeners.append(each)

    def end() -> None:
        for listeners, each in lists:
            if each in listeners:
                listeners.remove(each)

    return end


class _Tools(threading.local):
    """Per thread: how many runs of tools are under way."""

    running = 0


tools = _Tools()


@contextlib.contextmanager
def tool_runs() -> Iterator[None]:
    """Calls in the with-block, of this thread, are a tool's: the lab does not show what they returned."""
    tools.running += 1
    try:
        yield
    finally:
        tools.running -= 1
