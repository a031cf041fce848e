"""Write constraints.txt: the versions of all packages of this environment, with which `make install` gives it again.

python scripts/write_constraints.py
make install CONSTRAINTS=constraints.txt
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Not packages of this project's extras: this package, and what makes environments.
LEFT_OUT = {"hybrid-lab", "pip", "setuptools", "wheel"}


def main() -> int:
    """Write the file."""
    found = {}
    for each in distributions():
        name = re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower()
        found[name] = each.version.partition("+")[0]  # 2.13.0+cpu is one build of it
    lines = [f"{name}=={version}" for name, version in sorted(found.items()) if name not in LEFT_OUT]
    head = f"# Python {sys.version_info.major}.{sys.version_info.minor}, written by scripts/write_constraints.py."
    (ROOT / "constraints.txt").write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
