"""`python -m hybrid_lab.compat script.py ARGS`, or `-m MODULE ARGS`: run code in which `mxnet` is this package."""

from __future__ import annotations

import os
import runpy
import sys

USAGE = """usage: python -m hybrid_lab.compat SCRIPT.py [ARGS ...]
       python -m hybrid_lab.compat -m MODULE [ARGS ...]"""


def main(arguments: list[str]) -> str | None:
    """Run what `arguments` name as `__main__`. Returns a message if they name nothing that can run."""
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        return USAGE
    first, *rest = arguments
    if first == "-m":
        sys.argv = rest
        sys.path[0] = os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return None
    if not os.path.exists(first):
        return f"python -m hybrid_lab.compat: there is no file {first}"
    sys.argv = [first, *rest]
    sys.path[0] = os.path.dirname(os.path.abspath(first))
    runpy.run_path(first, run_name="__main__")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
