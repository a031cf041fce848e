"""Tiles of kernels with products: candidates for a tuner on a family of chips, and the choice without measuring.

The sizes stand in tiles.json: kind of kernel -> family, or "all" -> up to six configurations, larger tiles first, as
rows of the columns that "of" names. "exact" kinds multiply float32 without tensor cores, where each program has room
for less. A configuration may be too large for a kernel with much around its product: then it does not compile, or
spills, and is not worth trying further.
"""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from hybrid_lab.engines.triton.write.reuse import choice
from hybrid_lab.engines.triton.write.source import KernelSource, block_for, covering, power_of_two
from hybrid_lab.ops.framework.dtypes import NARROW

#: The blocks of a kernel, and the warps of a program.
Tiles = tuple[dict[str, int], int]
#: Tensor cores want tiles of at least 16 along each axis.
LEAST = 16
#: Chips on which pipelined loops fail in some kernels: their loops have one stage.
ONE_STAGE = ("gfx950",)
#: This many programs keep a GPU busy.
ENOUGH = 128
#: Tiles of the output (rows, columns, warps), larger ones first, and how far along the summed axis one step goes.
_LADDER = ((128, 128, 8), (128, 64, 4), (64, 128, 4), (64, 64, 4), (32, 64, 4), (64, 32, 4), (32, 32, 4))
_INNER, _EXACT_INNER = 32, 16


@choice
def for_product(rows: int, columns: int, inner: int, batches: int, exact: bool) -> Tiles:
    """The largest tiles of which there are enough to keep a GPU busy, else the smallest.

    exact : float32 or wider without tensor cores, where larger tiles than 64 x 64 x 16 do not fit into registers
    """
    step = power_of_two(inner, LEAST, _EXACT_INNER if exact else _INNER)
    fitting = [item for item in _LADDER if not exact or item[0] * item[1] <= 64 * 64]
    tiles: Tiles = {}, 4
    for most_rows, most_columns, warps in fitting:
        high, wide = power_of_two(rows, LEAST, most_rows), power_of_two(columns, LEAST, most_columns)
        blocks = {"ROWS": high, "COLUMNS": wide, "INNER": step}
        tiles = blocks, min(warps, max(1, high * wide // 256))
        if -(-rows // high) * -(-columns // wide) * batches >= ENOUGH:
            break
    return tiles


def for_attention(rows: int, keys: int, width: int, exact: bool, whole: bool = False) -> Tiles:
    """What fits into a program's registers.

    width : numbers of a query, key or value, which a program holds whole; exact : as for products
    whole : all keys at once
    """
    if whole:
        wide = covering(keys, LEAST)
        most = max(LEAST, (2048 if exact else 8192) // wide)
        return {"ROWS": block_for(rows, LEAST, min(most, 64)), "KEYS": wide}, 8 if exact else 4
    if exact:
        high, wide, warps = 32, 32 if width <= 64 else 16, 8
    else:
        high, wide, warps = (64, 64, 4) if width <= 128 else (32, 32, 4)
    blocks = {"ROWS": block_for(rows, LEAST, high), "KEYS": block_for(keys, LEAST, wide)}
    return blocks, warps if blocks["ROWS"] > LEAST else 4


@choice
def for_attention_gradient(rows: int, keys: int, width: int, exact: bool) -> Tiles:
    """As for_attention, for its gradients, which have up to two sums and two inner products at hand."""
    if exact:
        high, wide, warps = (32, 16, 8) if width <= 64 else (16, 16, 8)
    else:
        high, wide, warps = (64, 32, 4) if width <= 64 else (32, 32, 4)
    blocks = {"ROWS": power_of_two(rows, LEAST, high), "KEYS": power_of_two(keys, LEAST, wide)}
    return blocks, warps if rows > LEAST else 4


def family(architecture: str) -> str:
    """ "nvidia" (sm80 ...), "cdna" (gfx90a, gfx942, gfx950) or "rdna" (gfx10 and later): a column of the tables."""
    if not architecture.startswith("gfx"):
        return "nvidia"
    return "cdna" if architecture.startswith("gfx9") else "rdna"


def configurations(source: KernelSource, architecture: str) -> tuple[KernelSource, ...]:
    """The kernel with tiles that are worth trying on a chip, none larger than its arrays; () for other kinds."""
    kind = "product" if "INNER" in source.tiled else "attention" if "KEYS" in source.tiled else ""
    kind = "rows" if source.kind == "rows" else kind
    if kind != "rows" and 'input_precision="ieee"' in source.code and source.outputs[0].dtype.name not in NARROW:
        kind = f"exact {kind}"
    if kind == "product" and '"tf32"' in source.code and source.outputs[0].dtype.name == "float32":
        kind = "tf32 product"  # whose factors take twice the room of float16's
    distinct: dict[tuple[object, ...], KernelSource] = {}
    table = _table().get(kind, {})
    for row in table.get(family(architecture), table.get("all", [])):
        item = dict(zip(table["of"], row, strict=True))
        sizes = {name: size for name, size in item.items() if name in source.tiled}
        blocks = dict(source.blocks)
        blocks |= {name: power_of_two(source.tiled[name], LEAST, size) for name, size in sizes.items()}
        stages = item.get("stages")
        stages = 1 if stages and architecture in ONE_STAGE else stages
        configuration = replace(source, blocks=blocks, warps=item["warps"], stages=stages)
        distinct.setdefault((tuple(blocks.items()), configuration.warps, configuration.stages), configuration)
    return tuple(distinct.values())


def precision(tf32: bool, architecture: str) -> str:
    """Triton's name for how float32 factors are multiplied: "tf32" if it is asked for and the chip has it.

    NVIDIA's from sm80 on and AMD's gfx942 have it; on other chips float32 stays float32.
    """
    if architecture.startswith("gfx"):
        return "tf32" if tf32 and architecture == "gfx942" else "ieee"
    return "tf32" if tf32 and architecture.startswith("sm") and int(architecture[2:]) >= 80 else "ieee"


@functools.lru_cache
def _table() -> dict[str, dict[str, Any]]:
    return json.loads((Path(__file__).parent / "tiles.json").read_text(encoding="utf-8"))
