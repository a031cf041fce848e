"""Which operator records have kernels: `python -m hybrid_lab.engines.triton.census` prints a table and counts.

Every sample of every record is made into kernels, nothing is run: whole, as its record says how an element follows from
others, or in parts, after `decompose` has taken it apart. What has no kernel runs through torch on the device where the
torch engine has a rule for it, else on the host with copies, and is counted as a fallback either way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hybrid_lab.engines.triton.plan.plans import kernels_of
from hybrid_lab.engines.triton.run.steps import on_torch
from hybrid_lab.engines.triton.support import refusal
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.ops import records
from hybrid_lab.ops.framework.operator import Operator


@dataclass
class Entry:
    """One record. samples : how many it has; whole, parts : how many of them are kernels, as they are or taken apart

    kinds : of kernel, with how many there are in all samples; refused : why operators have none -> how many samples
    elsewhere : "torch" or "NumPy", what runs the operators without a kernel
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


def census(chosen: Iterable[type[Operator]] | None = None) -> list[Entry]:
    """An entry for each of these records, or for all that have samples, in the order of families and names."""
    every = [record for record in records() if record.__module__.startswith("hybrid_lab.ops.")]
    every = list(every if chosen is None else chosen)
    return [examine(record) for record in sorted(every, key=lambda item: (item.family, item.name)) if record.samples]


def examine(record: type[Operator]) -> Entry:
    """Make kernels of each sample of a record, in training mode."""
    entry = Entry(record, len(record.samples))
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
            entry.refused[reason if part.op.name == record.name else f"{part.op.name}: {reason}"] += 1
            entry.elsewhere.add(_elsewhere(part))
        entry.kinds.update(source.kind for source in sources)
        whole = not refused and (refusal(node) is None or not sources)
        entry.whole += whole
        entry.parts += not refused and not whole
    return entry


def _elsewhere(node: Node) -> str:
    return "torch" if on_torch(node) else "NumPy"


def summary(entries: Sequence[Entry]) -> str:
    """One sentence of counts."""
    counts = Counter(entry.verdict for entry in entries)
    held = counts["whole"] + counts["in parts"]
    return (
        f"{held} of {len(entries)} operators run in kernels ({counts['whole']} whole, {counts['in parts']} in parts), "
        f"{counts['for some attributes']} do for some of their attributes, {counts['none']} do not."
    )


def kernel_counts(entries: Sequence[Entry]) -> str:
    """How many kernels of each kind all samples have."""
    kinds = sum((entry.kinds for entry in entries), Counter[str]())
    kernels = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return f"Kernels of all {sum(entry.samples for entry in entries)} samples: {kernels}."


def table(entries: Sequence[Entry]) -> str:
    """A Markdown table of all records."""
    lines = ["| family | operator | kernels | kinds | without a kernel |", "|---|---|---|---|---|"]
    for entry in entries:
        held = entry.whole + entry.parts
        verdict = entry.verdict + (f" ({held} of {entry.samples})" if 0 < held < entry.samples else "")
        why = "; ".join(dict.fromkeys(entry.refused))
        why += f" - {' or '.join(sorted(entry.elsewhere))}" if entry.elsewhere else ""
        kinds = ", ".join(sorted(entry.kinds))
        lines.append(f"| {entry.record.family} | `{entry.record.name}` | {verdict} | {kinds} | {why} |")
    return "\n".join(lines)


if __name__ == "__main__":
    found = census()
    print(table(found))
    print()
    print(summary(found))
    print(kernel_counts(found))
