"""`python -m tests.orders FIRST-LAST`: random orders of steps; prints each one that lost something, and counts."""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter

from .run import Opener, run_order


def main(text: str) -> int:
    """Returns how many orders failed."""
    logging.getLogger("hybrid_lab").setLevel(logging.WARNING)
    logging.getLogger("hybrid_lab").addHandler(logging.NullHandler())
    warnings.simplefilter("ignore")
    logging.getLogger("hybrid_lab").propagate = False
    first, last = map(int, (text if "-" in text else f"{text}-{text}").split("-"))
    counts, failed, opener = Counter[str](), 0, Opener()
    for seed in range(first, last + 1):
        folder = tempfile.mkdtemp()
        try:
            counts.update(run_order(seed, opener, folder))
            counts["orders"] += 1
        except Exception as error:
            failed += 1
            if failed <= 30:
                lines = traceback.format_exception(error)
                print("".join(lines[-4:] if first != last else lines))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    opener.close()
    for what, number in sorted(counts.items()):
        print(f"{number:7} {what}")
    print(f"{failed:7} failed")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1] if len(sys.argv) > 1 else "0-499")))
