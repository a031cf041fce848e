"""Write docs/triton-operators.md: every operator, and whether the Triton engine has kernels for it. A test compares.

Nothing is compiled and no GPU is needed: kernels are written for the samples of every record, in training mode. An
operator is written whole, as its record says how an element follows from others, or in parts, after `decompose`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.run.steps import on_torch, why_on_host
from hybrid_lab.engines.triton.support import refusal
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Value, input_node
from hybrid_lab.ops import records
from hybrid_lab.ops.framework.operator import Operator

TARGET = Path(__file__).resolve().parent.parent / "docs" / "triton-operators.md"

HEAD = """\
# Operators on Triton

This table shows how the Triton engine runs every operator. `python scripts/write_operators_doc.py` writes the page,
and a test checks that it is up to date.

- *whole*: the operator's record says how a kernel computes it (`triton`, or a recurrence).
- *in parts*: the record's `lower` decomposes the operator, and all parts run in kernels. Many parts may share one
  kernel.
- *none*: the operator has no kernel. torch runs it on the device, by a call of its own or by the record's NumPy kernel
  on the device's arrays; where the last column says *host*, NumPy runs it there, with copies in both directions, for
  the reason given. `mx.explain(net)` counts both cases as fallbacks, and `hybridize(strict=True)` refuses them. Empty
  arrays need no kernel.

The gradients of `Embedding`, `take` and `gather_nd` add up rows that are selected by index. Each program of such a
kernel searches for the entries of its own rows and adds them in the order in which they appear. From 1,024 entries on
torch computes these gradients on a GPU: it sorts the numbers and adds up segments. Either way every run gives the same
bits, unlike atomic additions.
"""


@dataclass
class Row:
    """One record of the table.

    samples : how many it has; whole, parts : how many of them run in kernels, as they are or decomposed
    kinds : of kernel, with how many there are in all samples; refused : why operators have none -> how many samples
    elsewhere : what runs the operators without a kernel, "torch on the device" or "host: why"
    """

    record: type[Operator]
    samples: int = 0
    whole: int = 0
    parts: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    elsewhere: set[str] = field(default_factory=set)

    @property
    def verdict(self) -> str:
        if self.whole + self.parts == self.samples:
            return "in parts" if self.parts else "whole"
        return "for some attributes" if self.whole + self.parts else "none"


def census(chosen: Iterable[type[Operator]] | None = None) -> list[Row]:
    """A row for each of these records, or for all that have samples, in the order of families and names."""
    every = [record for record in records() if record.__module__.startswith("hybrid_lab.ops.")]
    every = list(every if chosen is None else chosen)
    return [examine(record) for record in sorted(every, key=lambda item: (item.family, item.name)) if record.samples]


def examine(record: type[Operator]) -> Row:
    """Make kernels of each sample of a record, in training mode."""
    row = Row(record, len(record.samples))
    for sample in record.samples:
        op = record.bind(**sample.attributes).bind_mode(True)
        inputs = [
            input_node(f"x{index}", shape=item.shape, dtype=item.dtype) if isinstance(item, np.ndarray) else item
            for index, item in enumerate(sample.arrays(record.name))
        ]
        node = make_node(op, inputs, draw=0 if op.random else None)
        values = [item for item in inputs if isinstance(item, Value)]
        _, fusion, sources = kernels_of(Graph(values, node.outputs[: op.signature.visible], draws=1))
        refused = {part: reason for part, reason in fusion.refused.items() if not part.op.view}
        for part, reason in refused.items():
            row.refused[reason if part.op.name == record.name else f"{part.op.name}: {reason}"] += 1
            row.elsewhere.add("torch on the device" if on_torch(part) else f"host: {why_on_host(part)}")
        row.kinds.update(source.kind for source in sources)
        whole = not refused and (refusal(node) is None or not sources)
        row.whole += whole
        row.parts += not refused and not whole
    return row


def summary(rows: Sequence[Row]) -> str:
    """Two sentences of counts."""
    counts = Counter(row.verdict for row in rows)
    without = [row for row in rows if row.elsewhere]
    host = sum(any(place.startswith("host") for place in row.elsewhere) for row in without)
    return (
        f"{counts['whole'] + counts['in parts']} of {len(rows)} operators run in kernels ({counts['whole']} whole, "
        f"{counts['in parts']} in parts), {counts['for some attributes']} do for some of their attributes, "
        f"{counts['none']} do not. Of the {len(without)} without a kernel for some or all attributes, torch runs "
        f"{len(without) - host} on the device, and {host} run on the host."
    )


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| family | operator | kernels | kinds | without a kernel |", "|---|---|---|---|---|"]
    for row in rows:
        inside = row.whole + row.parts
        verdict = row.verdict + (f" ({inside} of {row.samples})" if 0 < inside < row.samples else "")
        why = "; ".join(dict.fromkeys(row.refused))
        why += f" - {' or '.join(sorted(row.elsewhere))}" if row.elsewhere else ""
        kinds = ", ".join(sorted(row.kinds))
        lines.append(f"| {row.record.family} | `{row.record.name}` | {verdict} | {kinds} | {why} |")
    return "\n".join(lines)


def page(rows: list[Row] | None = None) -> str:
    """The page for these rows, or for all records."""
    rows = census() if rows is None else rows
    return "\n".join([HEAD, summary(rows), "", table(rows), ""])


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
    print(f"wrote {TARGET}")
