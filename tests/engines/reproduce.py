"""`python -m tests.engines.reproduce SEED [ENGINE [MODE]]`: run one random graph again and print what fails, shrunk."""

from __future__ import annotations

import os
import sys

from tests.engines.random_graphs import random_case
from tests.engines.test_random_graphs import MODES, complain, engine_named, problems


def main(seed: str, name: str = "onnxruntime", mode: str = "") -> int:
    os.environ.setdefault("HYBRID_LAB_TRITON", "interpret")
    case, failures = random_case(int(seed)), 0
    print(case)
    for each in [mode] if mode else MODES:
        try:
            found = problems(case, engine_named(name), *MODES[each])
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
            found = []
        else:
            if not found:
                print(f"{each}: equal")
                continue
        failures += 1
        print(complain(int(seed), name, each, found, case))
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
