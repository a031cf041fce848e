"""The contents of an archive, from its manifest and tree alone: quick for any size."""

from __future__ import annotations

from os import PathLike
from typing import Any

from . import layout, tree
from .container import Container


def inspect(path: str | PathLike[str]) -> dict[str, Any]:
    """The main figures of an archive; headers, manifest and tree are checked, weights are not read.

    Returns class (of the root), schema, writer, blocks, hybrid (HybridBlocks), graphs, without_graph (paths of
    HybridBlocks that were never called), parameters, bytes (of the weights), trainer and aux (whether there are some).
    Raises ArchiveError, FileError.
    """
    container = Container.open(layout.existing_path(path))
    found = tree.from_json(container.read_json(layout.TREE), container.path)
    hybrid = [block for block in found.blocks if block.kind != "plain"]
    record = container.manifest["members"].get(layout.WEIGHTS, {})
    return {
        "class": found.blocks[0].class_,
        "schema": container.manifest["schema"],
        "writer": str(container.manifest.get("writer", "")),
        "blocks": len(found.blocks),
        "hybrid": len(hybrid),
        "graphs": sum(len(block.graphs) for block in found.blocks),
        "without_graph": [block.path for block in hybrid if not block.graphs],
        "parameters": len(found.parameters),
        "bytes": record.get("size", 0),
        "trainer": layout.TRAINER in container,
        "aux": layout.AUX in container,
    }


def verify(path: str | PathLike[str]) -> None:
    """Check every byte of an archive against its digests. Raises ArchiveError naming the first damage, FileError."""
    Container.open(layout.existing_path(path)).verify()
