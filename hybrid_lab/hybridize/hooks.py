"""Forward hooks of Blocks whose calls are part of another Block's graph: they do not run, and a warning says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hybrid_lab.hybridize.stale.code import of_user
from hybrid_lab.system.logger import logger

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Tree


def has_hooks(block: Tree) -> bool:
    """Whether the user registered hooks on this Block; hooks of this package do not count."""
    hooks = (*block._forward_pre_hooks.values(), *block._forward_hooks.values())
    return any(of_user(getattr(hook, "__module__", None)) for hook in hooks)


def warn_of_hooks(block: Tree, outer: Tree) -> None:
    """Warn that the hooks of a Block do not run while the Block is a part of the graph of `outer`."""
    logger.warning(
        f"the forward hooks of {block.name} ({type(block).__name__}) run once, on Symbols, while {outer.name} is "
        f"traced, and not in its calls: hook {outer.name} itself, or call {outer.name}.hybridize(False) while hooks "
        "are needed"
    )
