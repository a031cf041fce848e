"""Several checks in one test report all that fail; one that skips or ends the test does what it says."""

import pytest

from tests import quick
from tests.failures import Failures
from tests.ops.cases import CASES, Contract, by_record


def test_all_failures_are_named():
    failures = Failures()
    for number in range(4):
        with failures.of(f"number {number}"):
            assert number not in (1, 3)
    with pytest.raises(ExceptionGroup, match="2 of 4 checks fail: of number 1; of number 3") as caught:
        failures.raise_all()
    assert [type(error) for error in caught.value.exceptions] == [AssertionError] * 2


def test_a_failure_by_itself_is_raised_as_it_is():
    failures = Failures()
    with failures.of("a key"):
        {}["a"]
    with pytest.raises(KeyError) as caught:
        failures.raise_all()
    assert caught.value.__notes__ == ["of a key"]


def test_an_error_that_does_not_come_is_a_failure():
    failures = Failures()
    with failures.of("a call"), pytest.raises(ValueError):
        pass
    with pytest.raises(AssertionError, match="DID NOT RAISE"):
        failures.raise_all()


def test_checks_that_skip():
    failures = Failures()
    with failures.of("one"):
        pytest.skip("a reason")
    with pytest.raises(pytest.skip.Exception, match="a reason"):
        failures.raise_all()
    with failures.of("another"):
        pass
    failures.raise_all()


def test_the_time_limit_of_a_test_ends_it():
    with pytest.raises(pytest.fail.Exception), Failures().of("a loop"):
        pytest.fail("Timeout (>600.0s) from pytest-timeout.")


def test_a_contract_runs_every_check_on_every_sample_and_names_what_fails():
    contract, ran = Contract(), []
    chosen = [case for case in CASES if case.record.name == "softmax"]

    @contract.each_record()
    def records(record):
        ran.append(record.name)

    @contract.each_sample()
    def first(case):
        ran.append(case.id)
        assert case.number != 1

    @contract.each_sample(lambda case: case.number == 2)
    def second(case):
        raise ValueError("no")

    @contract.each_sample(lambda case: False)
    def never(case):
        raise AssertionError

    with pytest.raises(ExceptionGroup, match="of first, the sample softmax-1, .*; of second, the sample softmax-2, "):
        contract.run(chosen)
    assert ran == ["softmax", *(case.id for case in chosen)]
    assert contract.idle() == ["never"]


def test_a_quick_check_has_one_sample_of_each_record_and_one_engine(monkeypatch):
    monkeypatch.setattr(quick, "QUICK", False)
    whole = by_record()
    assert sum(map(len, whole.values())) == len(CASES) and quick.engines("numpy", "torch") == ["numpy", "torch"]
    monkeypatch.setattr(quick, "QUICK", True)
    few = by_record()
    assert few.keys() == whole.keys() and {len(cases) for cases in few.values()} == {1}
    assert quick.engines("numpy", "torch") == ["numpy"]
