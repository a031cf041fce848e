"""Other roundings move whatever an engine may round otherwise, and nothing else."""

import numpy as np
import pytest

from hybrid_lab import autograd, nd
from hybrid_lab.ops.framework.dtypes import dtype_of
from tests.random_programs.rounding import other_rounding

THIRDS = np.arange(1, 9).reshape(2, 4) / 3


def moved(function) -> list[np.ndarray]:
    """How far each of a few runs with other roundings is from a run without."""
    usual = function().astype("float64").asnumpy()
    runs = []
    for seed in range(8):
        with other_rounding(seed):
            runs.append(function().astype("float64").asnumpy() - usual)
    return runs


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["sum", "sigmoid", "square", "softmax"])
def test_results_move_by_roundings_of_their_dtype(name, dtype):
    x = nd.array(THIRDS, dtype=dtype)
    error = 2.0**-7 if dtype == "bfloat16" else np.finfo(dtype_of(dtype)).eps
    far = max(np.abs(run).max() for run in moved(lambda: getattr(nd, name)(x)))
    largest = float(np.abs(getattr(nd, name)(x).astype("float64").asnumpy()).max())
    assert error / 8 < far / largest < 40 * error


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_what_is_exact_stays(dtype):
    x = nd.array([[0.5, 1.5, -2.0], [0.25, 0.0, 3.0]], dtype=dtype)
    for function in (lambda: x * 2, lambda: nd.relu(x), lambda: nd.max(x, axis=1), lambda: x > 1, lambda: x + x):
        assert not any(run.any() for run in moved(function))


@pytest.mark.parametrize("name", ["argmin", "argmax"])
@pytest.mark.parametrize("shape", [(3, 1), (2, 4)])
def test_indices_stay(name, shape):
    x = nd.array(np.random.uniform(-1, 1, shape))
    assert not any(run.any() for run in moved(lambda: getattr(nd, name)(x, axis=1)))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_sums_of_gradients_move(dtype):
    x = nd.array([[1.0, 2.0]], dtype=dtype)
    heads = [nd.array([[factor, 3 * factor]], dtype=dtype) for factor in (1, 2.0**-9, 2.0**-26)]
    x.attach_grad()

    def gradient():
        with autograd.record():
            ys = [nd.identity(x) for _ in heads]
        autograd.backward(ys, heads)
        return x.grad

    assert any(run.any() for run in moved(gradient))


def test_gradients_of_a_wider_copy_move_by_roundings_of_what_was_copied():
    x = nd.array([[1.0, 2.0]], dtype="float16")
    x.attach_grad()

    def gradient():
        with autograd.record():
            wide = x.astype("float32")
            up, down = wide * 17.01, wide * -17.01
        autograd.backward([up, down])
        return x.grad

    assert not gradient().asnumpy().any()
    assert max(np.abs(run).max() for run in moved(gradient)) > 2.0**-10


def test_a_zero_of_two_signs_gets_either():
    zeros, below = nd.array([-0.0, 0.0]), nd.array([-3.0, -2.0])

    def signs(function) -> set[float]:
        found = set()
        for seed in range(8):
            with other_rounding(seed):
                found |= set((1 / function()).asnumpy().tolist())
        return found

    with np.errstate(divide="ignore", invalid="ignore"):
        for either in (
            lambda: nd.relu(zeros),
            lambda: nd.Activation(zeros, act_type="relu"),
            lambda: nd.maximum(zeros, 0),
            lambda: nd.minimum(zeros, zeros),
        ):
            assert signs(either) == {np.inf, -np.inf}
        for one in (lambda: nd.relu(below), lambda: nd.maximum(below, 0), lambda: nd.abs(zeros)):
            assert signs(one) == {np.inf}
