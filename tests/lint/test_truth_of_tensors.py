"""Every place where Python asks for the truth of a tensor: each is marked, and each raises when it is traced."""

from __future__ import annotations

import textwrap

import pytest

import hybrid_lab as mx
from hybrid_lab import lint
from hybrid_lab.diagnostics import HybridizeError

from .test_lint_agrees_with_trace import first_call

CONDITIONS = {
    "comparison": "x.sum() > 0",
    "last operand of and": "self.flag and x.sum() > 0",
    "last operand of or": "not self.flag or x.sum() > 0",
    "first operand": "x.sum() > 0 and self.flag",
    "middle operand": "self.flag and x.sum() > 0 and self.flag",
    "and in and": "self.flag and (self.flag and x.sum() > 0)",
    "after a test for None": "mask is not None and mask.sum() > 0",
    "alternative": "(1 if not self.flag else x.sum() > 0)",
    "named": "(found := x.sum() > 0)",
    "named and": "(found := (self.flag and x.sum() > 0))",
    "negated": "not (self.flag and x.sum() > 0)",
    "chained": "0 < x.sum() < self.count",
    "item": "i > 1 and x[i, 0] > 0",
    "alternative of a tensor": "(x if mask is not None and x[0, 0] else mask)",
}

PLACES = {
    "if": "if {}:\n    pass",
    "elif": "if not self.flag:\n    pass\nelif {}:\n    pass",
    "while": "while {}:\n    break",
    "ternary": "y = 1 if {} else 2",
    "not": "y = not ({})",
    "and": "y = ({}) and 1",
    "or": "y = ({}) or 1",
    "assert": "assert {}",
    "list": "y = [1 for _ in (1, 2) if {}]",
    "set": "y = {{1 for _ in (1, 2) if {}}}",
    "dict": "y = {{1: 1 for _ in (1, 2) if {}}}",
    "generator": "y = list(1 for _ in (1, 2) if {})",
    "guard": "match self.count:\n    case _ if {}:\n        pass",
    "bool": "y = bool({})",
    "truth": "y = operator.truth({})",
    "any": "y = any([{}])",
    "all": "y = all({} for _ in (1, 2))",
    "filter": "y = list(filter(lambda _: {}, (1, 2)))",
    "takewhile": "y = list(itertools.takewhile(lambda _: {}, (1, 2)))",
    "lambda": "y = (lambda: 1 if {} else 2)()",
}

OTHER_PLACES = [
    "sorted([x, mask])",
    "sorted([1, 2], key=lambda n: x.sum() * n)",
    "max([1, 2], key=lambda n: x.sum() * n)",
    "min(x, mask)",
    "max([x, mask])",
    "list(filter(None, [x, mask]))",
    "x in [mask]",
    "[x, mask].index(mask * 2)",
    "[x].count(mask)",
    "sorted(x)",
    "0 < x < 1",
    "x == mask == x",
]

NO_TESTS = [
    "self.flag and x",
    "x if self.flag else mask",
    "x if mask is None else x * mask",
    "1 if self.flag and self.count > 3 and mask is not None else 2",
    "0 < self.count < x.sum()",
    "[t for t in (x, mask) if t is not None]",
    "max([1, 2], key=lambda n: -n)",
    "any(n > 1 for n in (1, 2))",
    "list(filter(lambda n: n > 1, (1, 2)))",
    "sorted((2, 1))",
    "[1, 2].index(1)",
]

SOURCE = """\
import itertools, operator
import hybrid_lab as mx
from hybrid_lab import gluon

class Net(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.flag = True
        self.count = 10**9

    def hybrid_forward(self, F, x, mask=None):
        i = 2
{body}
        return x * 1
"""


def source_of(statements: str) -> str:
    return SOURCE.format(body=textwrap.indent(statements, " " * 8))


def marked_and_raised(source: str) -> tuple[set[str], str | None]:
    """The codes of the marked errors, and that of the trace's."""
    marked = {finding.code for finding in lint.check(source) if finding.severity == "error"}
    try:
        first_call(source)(mx.nd.ones((3, 3)), mx.nd.ones((3, 3)))
    except HybridizeError as error:
        return marked, error.code
    return marked, None


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_truth_test_is_marked_and_raises(place, condition):
    marked, raised = marked_and_raised(source_of(PLACES[place].format(f"({CONDITIONS[condition]})")))
    assert raised in ("HL121", "HL122") and marked & {"HL121", "HL122"}


@pytest.mark.parametrize("expression", OTHER_PLACES)
def test_a_function_that_tests_truth_is_marked_and_raises(expression):
    marked, raised = marked_and_raised(source_of(f"y = {expression}"))
    assert raised is not None and marked & {"HL121", "HL123", "HL125"}


@pytest.mark.parametrize("expression", NO_TESTS)
def test_what_tests_no_tensor_is_not_marked_and_runs(expression):
    assert marked_and_raised(source_of(f"y = {expression}")) == (set(), None)
