"""What the rules' pages say of their examples is true: each is run, eagerly and hybridized, in two calls."""

from __future__ import annotations

import inspect
import random
import sys
import types

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.diagnostics import HybridizeError, rules
from hybrid_lab.hybridize.structure import flatten

from .examples import as_module
from .test_lint_agrees_with_trace import namespace_of

RECORDS = [record for record in rules.all() if record.code not in ("HL001", "HL002", "HL190")]

#: Of these the bad example fails in the constructor or in eager calls, too.
FAILS_EAGERLY = {"HL165", "HL166", "HL181", "HL182", "HL183", "HL195", "HL198"}
#: What is frozen at the trace without any error: the numbers differ from eager ones.
DIFFERS = {"HL172", "HL176"}
SHAPES = {"HL106": (2, 3), "HL123": (3, 3)}


@pytest.fixture(autouse=True)
def some_library(monkeypatch):
    """The library that HL199's example calls."""
    library = types.ModuleType("some_library")
    library.normalize = lambda x: x / 2
    monkeypatch.setitem(sys.modules, "some_library", library)


def outputs(example: str, code: str, **hybridize: object) -> list[list[np.ndarray]]:
    """What two calls on different numbers return."""
    mx.random.seed(0)
    random.seed(0)
    np.random.seed(0)
    net = namespace_of(as_module(example))["Net"]()
    net.initialize()
    if hybridize:
        net.hybridize(engine="numpy", **hybridize)
    method = type(net).hybrid_forward if "hybrid_forward" in vars(type(net)) else type(net).forward
    names = [name for name, each in inspect.signature(method).parameters.items() if each.default is each.empty]
    count = len([name for name in names if name not in ("self", "F") and name not in net._reg_params])
    shape = SHAPES.get(code, (3, 3))
    results = []
    for factor in (1, 2):
        x = mx.nd.array(np.arange(np.prod(shape)).reshape(shape) * factor / 10 - 0.3)
        result = net(*[x] * max(count, 1))
        leaves = [result] if isinstance(result, np.ndarray) else flatten((result,))[0]
        results.append([np.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf.asnumpy() for leaf in leaves])
    return results


def equal(one: list[list[np.ndarray]], two: list[list[np.ndarray]]) -> bool:
    pairs = [(a, b) for calls in zip(one, two, strict=True) for a, b in zip(*calls, strict=True)]
    return all(a.shape == b.shape and np.allclose(a, b, equal_nan=True) for a, b in pairs)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.code)
def test_what_to_write_instead_gives_the_same_in_both_modes(record):
    eager = outputs(record.instead, record.code)
    assert equal(eager, outputs(record.instead, record.code, strict=True))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.code)
def test_the_bad_example_does_what_its_page_says(record):
    if record.code in FAILS_EAGERLY:
        with pytest.raises(Exception):  # noqa: B017 - each in its own words
            outputs(record.bad, record.code)
        return
    eager = outputs(record.bad, record.code)
    if record.severity == "error":
        with pytest.raises(HybridizeError):
            outputs(record.bad, record.code, strict=True)
    else:
        assert equal(eager, outputs(record.bad, record.code, strict=True)) is (record.code not in DIFFERS)
