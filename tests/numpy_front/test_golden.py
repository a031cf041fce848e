"""Calls of `mx.np` and `mx.npx` beside the answers of the real MXNet: values, dtypes, shapes and gradients."""

import importlib.util
import sys
from pathlib import Path

import numpy
import pytest

from hybrid_lab import autograd, np, npx

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "numpy_front"

OTHER_DTYPES = {
    "i / 2": "",
    "np.bincount(l)": "counts are int64, as in NumPy",
    "np.ldexp(a, b)": "",
}
"""Results of another dtype than MXNet's, and why."""


OTHER_GRADIENTS = {"np.where(m, a, 0)": "MXNet gives the gradient to the elements that were not chosen"}
"""Gradients other than MXNet's, and why."""


def module():
    """The script that made the answers, without the real MXNet."""
    spec = importlib.util.spec_from_file_location("make_numpy_front", FOLDER / "make_numpy_front.py")
    made = importlib.util.module_from_spec(spec)
    import hybrid_lab

    before = sys.modules.get("mxnet")
    sys.modules["mxnet"] = hybrid_lab
    try:
        spec.loader.exec_module(made)
    finally:
        if before is None:
            del sys.modules["mxnet"]
        else:
            sys.modules["mxnet"] = before
    return made


SCRIPT = module()
CALLS = SCRIPT.calls()


@pytest.fixture(scope="module")
def answers():
    with numpy.load(FOLDER / "answers.npz") as data:
        return dict(data)


@pytest.fixture(scope="module")
def values():
    return SCRIPT.inputs()


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("number", range(len(CALLS)), ids=lambda number: CALLS[number])
def test_agrees_with_mxnet(answers, values, np_mode, number):
    expected = answers[f"{number}/y"]
    result, gradients = SCRIPT.answer(CALLS[number], values, np, npx, autograd)
    assert result.shape == expected.shape
    if CALLS[number] not in OTHER_DTYPES:
        assert result.dtype == expected.dtype
    numpy.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-6)
    for name, value in gradients.items():
        if f"{number}/d{name}" in answers and CALLS[number] not in OTHER_GRADIENTS:
            numpy.testing.assert_allclose(value, answers[f"{number}/d{name}"], rtol=2e-4, atol=2e-5)
