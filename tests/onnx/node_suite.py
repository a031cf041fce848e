"""ONNX's own cases for operators (the package onnx brings them), run through mx.onnx.Backend.

`make test-onnx` runs all of them, operator by operator and hybridized, and prints how many pass by family.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from functools import cache
from pathlib import Path

import hybrid_lab as mx
from hybrid_lab.onnx.errors import OnnxError

EXCLUDED = Path(__file__).with_name("excluded_cases.json")
"""Reason -> names of cases. The list may only shrink: `test_node_suite.py` checks that each of them still fails."""
OTHERWISE = {
    "random numbers of another generator": AssertionError,
    "float16 is rounded after every operator, the expected numbers once": AssertionError,
    "the expected numbers have larger rounding errors than the comparison allows": AssertionError,
    "onnx's own comparison fails on arrays without dimensions in a sequence": TypeError,
}
"""What cases of these reasons raise; all others raise an OnnxError."""


@cache
def cases():
    """Name -> case."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its generators divide by zero on purpose
        return {case.name: case for case in load_model_tests(kind="node")}


@cache
def excluded():
    """Name -> reason."""
    return {name: reason for reason, names in json.loads(EXCLUDED.read_text()).items() for name in names}


def run(case, hybridize=False):
    """Compare a case as onnx's own runner does.

    Raises AssertionError for other numbers, OnnxError where a case has no form here.
    """
    from onnx.backend.test.runner import Runner, _normalize_tensor

    prepared = mx.onnx.Backend.prepare(case.model, hybridize=hybridize)
    for inputs, outputs in case.data_sets:
        found = prepared.run([_normalize_tensor(item) for item in inputs])
        Runner.assert_similar_outputs([_normalize_tensor(item) for item in outputs], found, case.rtol, case.atol)
    return prepared


def family(case):
    """The operator of a case; that of a case of several, which ONNX's function is spelled out in, by its name."""
    nodes = case.model.graph.node
    return nodes[0].op_type if len(nodes) == 1 else "spelled out"


def main():
    """Run all cases and print how many pass."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--eager", action="store_true", help="operator by operator only")
    warnings.simplefilter("ignore")
    modes = {"operator by operator": False} | ({} if parser.parse_args().eager else {"hybridized": True})
    failed = []
    for title, hybridize in modes.items():
        passed, total = Counter(), Counter()
        for name, case in cases().items():
            total[family(case)] += 1
            try:
                run(case, hybridize)
                passed[family(case)] += 1
            except Exception as error:
                expected = OTHERWISE.get(excluded().get(name, ""), OnnxError)
                if name not in excluded() or not isinstance(error, expected):
                    failed.append(f"{name} ({title}): {type(error).__name__}: {error}")
        print(f"{title}: {passed.total()} of {total.total()} cases")
        print(", ".join(f"{key} {passed[key]}/{count}" for key, count in sorted(total.items())))
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
