"""Samples of all records in Triton's interpreter: outputs and gradients are those of the record's kernel.

The first sample of every record, and all of them where HYBRID_LAB_GRAPHS asks for many graphs (make test-graphs).
"""

import os
from collections import Counter

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

from tests.engines.kernel_counts import count_kernels
from tests.engines.test_samples import compare
from tests.engines.test_triton import interpreter  # noqa: F401
from tests.ops.cases import Case, each_sample

ALL = int(os.environ.get("HYBRID_LAB_GRAPHS", "0")) > 400

_counts: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def hand_counts_over(totals):
    """They are printed at the end of the run."""
    yield
    totals.update({f"{what} of samples in Triton's interpreter": count for what, count in _counts.items()})


@each_sample(lambda case: ALL or case.number == 0)
def test_forward_and_gradient_in_kernels(case: Case):
    programs = compare(case, "triton")
    _counts.update({f"{kind} kernels": count for kind, count in count_kernels(programs).items()})
    _counts["operators"] += case.number == 0
    _counts["operators wholly in kernels"] += case.number == 0 and not any(item.report.fallbacks for item in programs)
    _counts["gradients"] += len(programs) > 1
