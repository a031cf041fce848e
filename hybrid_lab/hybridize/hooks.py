"""Forward hooks of Blocks whose calls are part of another Block's graph: they do not run, and a warning says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.formatting import called
from hybrid_lab.hybridize.stale.code import of_user
from hybrid_lab.system.logger import logger

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Hybrid, Tree


def has_hooks(block: Tree) -> bool:
    """Whether the user registered hooks on this Block; hooks of this package do not count."""
    hooks = (*block._forward_pre_hooks.values(), *block._forward_hooks.values())
    return any(of_user(getattr(hook, "__module__", None)) for hook in hooks)


def _warn(block: Tree, outer: Tree) -> None:
    """Warn that the hooks of a Block do not run while the Block is a part of the graph of `outer`."""
    name = called(outer)
    logger.warning(
        f"the forward hooks of {called(block)} ({type(block).__name__}) run once, on Symbols, while {name} is traced, "
        f"and not in its calls: hook {name} itself, or call {name}.hybridize(False) while hooks are needed"
    )


def warn_of_hooks(blocks: Iterable[Any], outer: Hybrid, told: set[Any]) -> None:
    """Warn, once, of the hooks of Blocks whose calls are part of the graphs of `outer`. told : where it is noted"""
    for block in blocks:
        _warn_once(block, outer, told)


def warn_of_new_hook(block: Hybrid) -> None:
    """A Block got a hook: warn if the graph of a Block above it is what runs."""
    pending: list[Any] = [block]
    for each in pending:
        parents = [parent for reference in each._parents if (parent := reference()) is not None]
        above = [parent for parent in parents if getattr(parent, "_active", False) and parent._graphs.variants]
        above = [parent for parent in above if any(child is each for child in parent._children.values())]
        pending += [parent for parent in above if all(parent is not other for other in pending)]
        if not above and each is not block:
            _warn_once(block, each, each._graph_calls.failures.told)


def _warn_once(block: Any, outer: Tree, told: set[Any]) -> None:
    hooks = block._forward_pre_hooks or block._forward_hooks
    if hooks and block._graphs.variants and ("hooks", block.name) not in told and has_hooks(block):
        told.add(("hooks", block.name))
        _warn(block, outer)
