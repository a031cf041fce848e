"""How many kernels of each kind programs of the Triton engine have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hybrid_lab.engines.engine import Executable


def count_kernels(programs: Iterable[Executable]) -> Counter[str]:
    """kind -> count, over all of these programs."""
    found: Counter[str] = Counter()
    for program in programs:
        for node in program.graph.operators:
            found.update(kernel.source.kind for kernel in getattr(node.op, "kernels", ()))
    return found
