"""The harness of test-oracle by itself, with Hybrid Lab in the place of MXNet."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import hybrid_lab
from tests.oracle.cases import KINDS, case_of
from tests.oracle.compare import Comparison, apart, compare
from tests.oracle.derivative import is_derivative
from tests.oracle.execute import Answer, answer, array
from tests.oracle.rules import RULES
from tests.oracle.shrink import shrink

CASE: dict[str, Any] = {
    "seed": 1, "kind": "operator", "text": "F.softmax(a, axis=1)", "grads": ["a"],
    "arrays": {"a": {"shape": [3, 4], "dtype": "float32", "values": "plain", "seed": 5}},
}  # fmt: skip


class Standing:
    """Stands for MXNet: Hybrid Lab's answers, some changed. change : (answer) -> another one"""

    def __init__(self, change: Any = lambda found: found):
        self.change = change

    def answer(self, case: dict[str, Any], fresh: bool = False) -> Answer:
        return self.change(answer(hybrid_lab, case))


def raised(found: Answer) -> Answer:
    return Answer({}, ("MXNetError", "RuntimeError"), "Check failed: no")


def moved(found: Answer) -> Answer:
    return Answer({name: value + 1 if name == "y0" else value for name, value in found.values.items()})


@pytest.mark.parametrize("kind", KINDS)
def test_cases_follow_from_their_seeds_and_run(kind):
    ran = 0
    for seed in range(4):
        case = case_of(seed, kind)
        assert case == case_of(seed, kind) == json.loads(json.dumps(case))
        found = answer(hybrid_lab, case)
        assert not found.error or "HybridLabError" in found.error or kind == "numpy", (case, found)
        ran += bool(found.values)
    assert ran >= 1


def test_arrays_are_the_same_every_time_and_can_be_off_by_rounding():
    spec = CASE["arrays"]["a"]
    first = array(spec, {})
    assert first.dtype == np.float32 and (first == array(spec, {})).all()
    off = array(spec, {"jitter": 1})
    assert (off != first).any() and np.abs(off - first).max() < 1e-6
    assert (array(spec, {"wide": True}) == first).all() and array(spec, {"wide": True}).dtype == np.float64


@pytest.mark.parametrize("engine", [None, "numpy"])
def test_equal_answers(engine):
    assert [item.outcome for item in compare(CASE, Standing(), engine)] == ["equal"] * (1 if engine is None else 2)


def test_a_difference_is_named():
    (found,) = compare(CASE, Standing(moved))
    assert found.outcome == "different"
    assert [(line.kind, line.name) for line in found.differences] == [("value", "y0")]
    assert found.differences[0].text.startswith("12 of 12: (0, 0): ")


def test_an_error_of_one_alone_is_a_difference():
    (found,) = compare(CASE, Standing(raised))
    assert [(line.kind, line.text) for line in found.differences] == [("theirs raises", "MXNetError: Check failed: no")]


def test_errors_of_both_are_equal():
    case = {**CASE, "text": "F.softmax(a, axis=9)"}
    (found,) = compare(case, Standing(raised))
    assert found.ours.error[0] == "ShapeError" and found.outcome == "both refuse"


def test_an_error_here_must_have_a_type():
    case = {**CASE, "text": "[][1]"}
    (found,) = compare(case, Standing(raised))
    assert [line.kind for line in found.differences] == ["untyped"]


def test_rounding_is_no_difference_where_inputs_decide_it():
    """a - 1000 near 0 is off by as much as a is rounded."""
    near = {"shape": [3], "dtype": "float32", "data": [1000.25, 1000.5, 999.75]}
    case = {**CASE, "text": "a - 1000", "arrays": {"a": near}}
    eager = answer(hybrid_lab, case)
    other = Answer({**eager.values, "y0": eager.values["y0"] * np.float32(1.0002)})
    item = Comparison(case, eager, other, Standing())  # type: ignore[arg-type]
    assert apart(eager.values["y0"], other.values["y0"]).all()
    assert not apart(eager.values["y0"], other.values["y0"], item.uncertainty("y0")).any()


def test_a_case_becomes_small():
    (found,) = compare(CASE, Standing(moved))
    small = shrink(found, Standing(moved))
    assert small["arrays"]["a"]["shape"] == [1, 1] and small["grads"] == []


def test_gradients_are_compared_with_differences():
    assert is_derivative(CASE, "da")
    assert not is_derivative({**CASE, "text": "F.BlockGrad(a) * 2 + a"}, "da")


def test_rules_have_names_and_reasons():
    assert len({rule.name for rule in RULES}) == len(RULES) and all(rule.why for rule in RULES)
