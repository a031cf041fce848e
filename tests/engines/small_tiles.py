"""Small tiles, so that small arrays have several of them along every axis that is tiled, the last one ragged."""

from __future__ import annotations

from typing import Any

from hybrid_lab.engines.triton.run import kernel
from hybrid_lab.engines.triton.write import tiles
from hybrid_lab.engines.triton.write.core import product, reduction

#: Kind of kernel -> the blocks that may be smaller than their axis, and how small; those of products go into tl.dot.
TILES: dict[str, dict[str, int]] = {
    "pointwise": {"BLOCK": 32},
    "rows": {"ROWS": 4},
    "rows in a loop": {"ROWS": 4, "COLUMNS": 8},
    "parts of rows": {"ROWS": 2, "COLUMNS": 8},
    "rows and columns": {"ROWS": 2},
    "rows of parts": {"ROWS": 2},
    "product": {"ROWS": 16, "COLUMNS": 16, "INNER": 16},
    "parts of a product": {"ROWS": 16, "COLUMNS": 16, "INNER": 16},
    "product of parts": {"ROWS": 4, "COLUMNS": 8},
    "attention": {"ROWS": 16, "KEYS": 16},
    "whole attention": {"ROWS": 16},
    "gradient of attention": {"ROWS": 16, "KEYS": 16, "QUERIES": 16},
    "collect": {"ROWS": 4, "COLUMNS": 4, "ENTRIES": 8},
    "recurrence": {"ROWS": 16, "COLUMNS": 16, "INNER": 16},
}

#: Blocks whose axis is not named as they are.
AXES = {"BLOCK": ("n",), ("recurrence", "COLUMNS"): ("hidden",), ("recurrence", "INNER"): ("hidden",)}

#: Kind of kernel whose programs share an axis -> that axis.
SHARED = {"parts of rows": "columns", "rows and columns": "rows", "parts of a product": "inner"}


def use_small_tiles(monkeypatch: Any, loops: bool = False, split: bool = False) -> None:
    """For the rest of a test.

    loops : rows of more than 8 elements are read in a loop; split : long rows, and sums of products of more than 32
    elements, are shared by programs
    """
    monkeypatch.setattr(kernel, "tile_sizes", small)
    monkeypatch.setattr(reduction, "COLUMNS", 8)
    monkeypatch.setattr(reduction, "TILE", 32)
    for name in ("FEW", "FEW_ROWS"):
        monkeypatch.setattr(reduction, name, 1 << 30 if split else 0, raising=False)
    monkeypatch.setattr(tiles, "_LADDER", ((16, 16, 4),))
    monkeypatch.setattr(tiles, "_INNER", 16)
    monkeypatch.setattr(reduction, "MOST_PARTS", 16)
    if loops:
        monkeypatch.setattr(reduction, "ONE_TILE", 8)
    if split:
        monkeypatch.setattr(reduction, "SPLIT", 20)
        monkeypatch.setattr(reduction, "PART", 16)
        monkeypatch.setattr(product, "SPLIT", 32)
        monkeypatch.setattr(product, "PART", 16)


def small(source: Any) -> dict[str, int]:
    """The blocks of a kernel, none larger than those here."""
    blocks = dict(source.blocks)
    return blocks | {name: min(blocks[name], size) for name, size in TILES[source.kind].items() if name in blocks}


def not_ragged(source: Any) -> list[str]:
    """The tiled axes along which a kernel has not two tiles or more with a ragged last one; parts count as tiles. Tiles
    of one row are never ragged.
    """
    found = []
    for block, size in small(source).items():
        if block in TILES[source.kind]:
            (axis,) = AXES.get((source.kind, block), AXES.get(block, (block.lower(),)))
            if source.sizes[axis] <= size or (size > 1 and source.sizes[axis] % size == 0):
                found.append(f"{block} of {source.sizes[axis]}")
    if source.kind in SHARED:
        whole = source.sizes[SHARED[source.kind]]
        if source.sizes["parts"] < 2 or whole % source.sizes["per_part"] == 0:
            found.append(f"{source.sizes['parts']} parts")
    return found
