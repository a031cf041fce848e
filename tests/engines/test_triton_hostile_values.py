"""Zeros, infinities and NaN in inputs and heads: Triton's kernels have NaN and infinities where eager calls do."""

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

from tests.engines.test_hostile_values import Call, Twice, _is_checked, check, check_recurrent, each_recurrent
from tests.ops.cases import Case, each_sample
from tests.triton_device import use_triton

#: torch's transforms add the values of a row in another order than NumPy's: NaN where those have an infinity.
TRANSFORMS = ("_contrib_fft", "_contrib_ifft")


@each_sample(lambda case: case.number < 2 and _is_checked(case) and case.record.name not in TRANSFORMS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_records(case: Case, monkeypatch):
    use_triton(monkeypatch)
    twice = Twice(case)
    if twice.wrt:
        check(Call(case), twice.arrays, twice.wrt, "triton")


@each_recurrent
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_recurrent_layers(settings, monkeypatch):
    use_triton(monkeypatch)
    check_recurrent(settings, "triton")
