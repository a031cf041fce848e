"""The numeric tests as they run on other processors: with fewer of this processor's vector instructions, with the
matrix kernels of other families, with one thread. Prints a table of what passed under which configuration.

    python scripts/test_processors.py                 all numeric tests under every configuration
    python scripts/test_processors.py --short         a part of the tests, under the configurations that differ most
    python scripts/test_processors.py --list          the configurations and their environment variables
    python scripts/test_processors.py --only baseline -- -k cbrt

What follows `--` goes to pytest. A variable that a configuration names replaces one that is set already.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from pytest_runs import ROOT, Result, run_pytest, table  # noqa: E402

LOGS = ROOT / "test-results" / "processors"

#: Kernels against MXNet's numbers, engines against eager calls, whole networks, optimizers, special values.
SHORT = (
    "tests/engines/test_processors.py",
    "tests/engines/test_samples.py",
    "tests/engines/test_triton_extremes.py",
    "tests/engines/test_random_graphs.py",
    "tests/hybridize/test_hybrid_equals_eager.py",
    "tests/ops/test_conv_kernels.py",
    "tests/ops/test_extremes.py",
    "tests/ops/test_golden.py",
    "tests/test_initializer.py",
    "tests/test_metric.py",
    "tests/test_optimizer.py",
)
#: Everything that computes.
WHOLE = (
    *("tests/ops", "tests/graph", "tests/hybridize", "tests/engines", "tests/ndarray", "tests/gluon"),
    *("tests/contrib", "tests/insight"),
    *("tests/test_initializer.py", "tests/test_metric.py", "tests/test_openblas.py", "tests/test_optimizer.py"),
    *("tests/test_training.py", "tests/test_tutorial.py"),
)
#: Random graphs that the short set checks.
GRAPHS = "40"

X86 = platform.machine().lower() in ("x86_64", "amd64")


@dataclass(frozen=True)
class Configuration:
    """A processor to stand in for.

    hidden : features that NumPy shall not use; variables : what the other libraries are told
    """

    name: str
    hidden: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    short: bool = False

    def environment(self) -> dict[str, str]:
        """The variables that this configuration sets."""
        # Empty, NumPy's variables say nothing; it takes only one of the two.
        hidden = {"NPY_DISABLE_CPU_FEATURES": " ".join(self.hidden), "NPY_ENABLE_CPU_FEATURES": ""}
        return {**self.variables, **(hidden if self.hidden else {})}


def dispatched() -> list[str]:
    """Groups of instructions for which NumPy has kernels besides its baseline, as far as this processor has them.

    Their names differ between releases of NumPy, which refuses to disable the baseline and warns of the others.
    """
    try:
        from numpy._core import _multiarray_umath as kernels
    except ImportError:  # NumPy 1.26
        from numpy.core import _multiarray_umath as kernels  # type: ignore[no-redef]
    present = kernels.__cpu_features__
    return [name for name in kernels.__cpu_dispatch__ if present.get(name)]


def configurations() -> list[Configuration]:
    """The configurations that make a difference on this machine."""
    groups = dispatched()
    wide = tuple(name for name in groups if name.startswith("AVX512") or name == "X86_V4")
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    two_threads = dict.fromkeys(one_thread, "2")
    found = [Configuration("as it is"), Configuration("one thread", variables=one_thread, short=not X86)]
    if not X86:
        if groups:
            generic = {"ATEN_CPU_CAPABILITY": "default"}
            found.append(Configuration("baseline", tuple(groups), generic, short=True))
        return found
    avx2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
    if wide:
        found += [
            Configuration("AVX-512, Intel's kernels", variables={"OPENBLAS_CORETYPE": "SkylakeX"}),
            Configuration("AVX2", wide, {"OPENBLAS_CORETYPE": "Haswell", **avx2, **two_threads}, short=True),
        ]
    if any(name in groups for name in ("AVX2", "X86_V3")):
        found += [
            Configuration("AVX2, AMD's kernels, one thread", wide, {"OPENBLAS_CORETYPE": "Zen", **avx2, **one_thread}),
        ]
    oldest = {
        "OPENBLAS_CORETYPE": "Nehalem",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    }
    return [*found, Configuration("baseline", tuple(groups), {**oldest, **one_thread}, short=True)]


def run(configuration: Configuration, tests: Sequence[str], jobs: int, short: bool) -> Result:
    """The tests under one configuration."""
    environment = configuration.environment()
    if short:
        environment["HYBRID_LAB_GRAPHS"] = os.environ.get("HYBRID_LAB_GRAPHS", GRAPHS)
    folder = LOGS / "".join(letter if letter.isalnum() else "-" for letter in configuration.name)
    return run_pytest(sys.executable, tests, jobs, folder, environment)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a part of the tests, under the configurations named so")
    parser.add_argument("--list", action="store_true", help="print the configurations and run nothing")
    parser.add_argument("--only", action="append", default=[], help="a configuration by name; may be repeated")
    parser.add_argument("--tests", nargs="+", help="files or folders in place of the set")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes of pytest")
    parser.add_argument("arguments", nargs="*", help="passed to pytest, after --")
    options = parser.parse_args()
    known = configurations()
    if unknown := set(options.only) - {item.name for item in known}:
        parser.error(f"{', '.join(sorted(unknown))}: not among {', '.join(item.name for item in known)}")
    chosen = [item for item in known if item.name in options.only or not options.only]
    if options.short and not options.only:
        chosen = [item for item in chosen if item.short]
    if options.list:
        for item in chosen:
            print(item.name, *(f"    {name}={value}" for name, value in item.environment().items()), sep="\n")
        return 0
    results = {}
    tests = [*(options.tests or (SHORT if options.short else WHOLE)), *options.arguments]
    for item in chosen:
        print(f"{item.name} ...", flush=True)
        results[item.name] = run(item, tests, options.jobs, options.short)
    print(table("configuration", results))
    return int(any(result.failed for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
