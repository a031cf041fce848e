"""`Block.export` of a plain Block: MXNet's two files for each outermost HybridBlock."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike, fspath
from typing import TYPE_CHECKING

from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.formatting import called
from hybrid_lab.gluon import access
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.system.logger import logger

from . import layout
from .traces import passing, trace_missing

if TYPE_CHECKING:
    from hybrid_lab.gluon import Block


def export_outermost(
    net: Block, path: str | PathLike[str], epoch: int = 0, remove_amp_cast: bool = True
) -> list[tuple[str, str]]:
    """Export each HybridBlock that lies in no other one to `<path>-<path in the model>`; the names of the files.

    Raises HybridLabError if no HybridBlock has a graph; a HybridBlock without one is left out with a warning.
    """
    files, without = [], []
    with passing(net) as blocks:
        problems = trace_missing(blocks)
        for place, block in outermost(net):
            if access.graphs(block).graphs():
                files.append(block.export(f"{fspath(path)}-{place}", epoch, remove_amp_cast))
            else:
                without.append(place)
    for problem in problems:
        logger.warning(f"no symbol file was written of {problem}")
    if not files:
        raise HybridLabError(
            f"{called(net)} is a plain Block, of which export() writes the outermost HybridBlocks, and "
            + (f"{layout.shorten(without)} has no graph: call the model once" if without else "it has none")
        )
    if without and not problems:
        logger.warning(f"{called(net)}: not exported, because they were never called: {layout.shorten(without)}")
    names = layout.shorten([symbol_file for symbol_file, _ in files], 20)
    logger.info(f"{called(net)} is a plain Block; exported its {len(files)} outermost HybridBlocks: {names}")
    return files


def outermost(net: Block) -> Iterator[tuple[str, HybridBlock]]:
    """(path, Block) of each HybridBlock below a plain Block that lies in no other one; a shared one once."""
    seen: set[int] = set()
    stack: list[tuple[str, Block]] = [("", net)]
    while stack:
        path, block = stack.pop()
        if isinstance(block, HybridBlock):
            if id(block) not in seen:
                yield path, block
            seen.add(id(block))
        else:
            stack += [(layout.join(path, name), child) for name, child in reversed(access.children(block).items())]
