"""Write docs/triton-operators.md: every operator, and whether the Triton engine has kernels for it. A test compares.

Nothing is compiled and no GPU is needed: kernels are written for the samples of every record.
"""

from __future__ import annotations

from pathlib import Path

from hybrid_lab.engines.triton.census import Entry, census, summary, table

TARGET = Path(__file__).resolve().parent.parent / "docs" / "triton-operators.md"

HEAD = """\
# Operators on Triton

This table shows how the Triton engine runs every operator. `python scripts/write_operators_doc.py` writes the page,
and a test checks that it is up to date. `python -m hybrid_lab.engines.triton.census` prints the same table.

- *whole*: the operator's record says how a kernel computes it (`triton`, or a recurrence).
- *in parts*: the record's `lower` decomposes the operator, and all parts run in kernels. Many parts may share one
  kernel.
- *none*: the operator has no kernel. If the torch engine has a rule for it, torch runs it on the device; otherwise
  NumPy runs it on the host, with copies in both directions. `mx.explain(net)` counts both cases as fallbacks, and
  `hybridize(strict=True)` refuses them. Empty arrays need no kernel.

The gradients of `Embedding`, `take` and `gather_nd` add up rows that are selected by index. Each program of such a
kernel searches for the entries of its own rows and adds them in the order in which they appear. So every run gives
the same bits, which atomic additions would not.
"""


def page(entries: list[Entry] | None = None) -> str:
    """The page for these entries, or for all records."""
    entries = census() if entries is None else entries
    return "\n".join([HEAD, summary(entries), "", table(entries), ""])


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
    print(f"wrote {TARGET}")
