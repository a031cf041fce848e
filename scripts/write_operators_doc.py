"""Write docs/triton-operators.md: every operator, and whether the Triton engine has kernels for it. A test compares.

Nothing is compiled and no GPU is needed: kernels are written for the samples of every record.
"""

from __future__ import annotations

from pathlib import Path

from hybrid_lab.engines.triton.census import Entry, census, summary, table

TARGET = Path(__file__).resolve().parent.parent / "docs" / "triton-operators.md"

HEAD = """\
# Operators on Triton

What the Triton engine does with every operator record. `python scripts/write_operators_doc.py` writes this page, and a
test sees that it is up to date; `python -m hybrid_lab.engines.triton.census` prints the same table.

*whole*: the record says how a kernel computes it (`triton`, `element`, `combine`, `product`, `collect`; recurrences).
*in parts*: the record's `lower` takes it apart, and all parts are in kernels, of which many share one. *none*: it runs
through torch on the device where the torch engine has a rule, else by NumPy on the host with copies to and fro; both
are counted as fallbacks in `mx.explain(net)`, and refused with `hybridize(strict=True)`. Empty arrays need no kernel.

Where the numbers that a kernel adds up come in an order of their own - the gradients of `Embedding`, `take` and
`gather_nd` - each program looks for the entries of its rows and adds them in the order in which they stand: the same
numbers in every run, which atomic additions would not give.
"""


def page(entries: list[Entry] | None = None) -> str:
    """The page for these entries, or for all records."""
    entries = census() if entries is None else entries
    return "\n".join([HEAD, summary(entries), "", table(entries), ""])


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
    print(f"wrote {TARGET}")
