"""What must not depend on the processor: results with few digits are exact, and the place of an element in its array
does not decide how the element is rounded. `make test-processors` runs this under several processors' features.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import metric, nd
from hybrid_lab.gluon import nn
from hybrid_lab.ops.framework.pointwise import Unary
from hybrid_lab.ops.framework.run import run_kernel
from tests.engines.test_random_graphs import engine_named
from tests.graph.building import graph_of
from tests.triton_device import use_triton

INF = math.inf
WHOLE = np.arange(-60.0, 61.0)
POSITIVE = WHOLE[WHOLE > 0]
POWERS_OF_TWO = np.arange(-60.0, 61.0)
#: (arguments, exact results) of every record that has results with few digits.
EXACT = {
    "cbrt": (WHOLE**3, WHOLE),
    "rcbrt": (2.0 ** (3 * np.arange(-9, 10)), 2.0 ** -np.arange(-9.0, 10.0)),
    "sqrt": (POSITIVE**2, POSITIVE),
    "rsqrt": (2.0 ** (2 * np.arange(-9, 10)), 2.0 ** -np.arange(-9.0, 10.0)),
    "square": (WHOLE, WHOLE**2),
    "reciprocal": (2.0**POWERS_OF_TWO, 2.0**-POWERS_OF_TWO),
    "log10": (10.0 ** np.arange(0, 11), np.arange(0.0, 11.0)),
    "log2": (2.0**POWERS_OF_TWO, POWERS_OF_TWO),
    "log": ([1.0, INF, 0.0], [0.0, INF, -INF]),
    "log1p": ([0.0, INF, -1.0], [0.0, INF, -INF]),
    "exp": ([0.0, -0.0, INF, -INF], [1.0, 1.0, INF, 0.0]),
    "expm1": ([0.0, INF, -INF], [0.0, INF, -1.0]),
    "sin": ([0.0], [0.0]),
    "cos": ([0.0], [1.0]),
    "tan": ([0.0], [0.0]),
    "arcsin": ([0.0], [0.0]),
    "arccos": ([1.0], [0.0]),
    "arctan": ([0.0], [0.0]),
    "sinh": ([0.0, INF, -INF], [0.0, INF, -INF]),
    "cosh": ([0.0, INF, -INF], [1.0, INF, INF]),
    "tanh": ([0.0, INF, -INF, 50.0, -50.0], [0.0, 1.0, -1.0, 1.0, -1.0]),
    "arcsinh": ([0.0, INF], [0.0, INF]),
    "arccosh": ([1.0, INF], [0.0, INF]),
    "arctanh": ([0.0, 1.0, -1.0], [0.0, INF, -INF]),
    "sigmoid": ([0.0, INF, -INF], [0.5, 1.0, 0.0]),
    "erf": ([0.0, INF, -INF], [0.0, 1.0, -1.0]),
    "gamma": (np.arange(1.0, 12.0), [float(math.factorial(number)) for number in range(11)]),
    "gammaln": ([1.0, 2.0], [0.0, 0.0]),
    "degrees": ([0.0], [0.0]),
    "radians": ([0.0], [0.0]),
}
#: Kernels on a GPU and ONNX Runtime are close to these, not at them.
NEARLY = {("onnxruntime", "sigmoid"), ("onnxruntime", "erf"), ("triton", "erf")}
ENGINES = ["numpy", "onnxruntime", "torch", "triton"]


def exact(name: str, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Arguments and results that the dtype can hold."""
    pairs = [np.asarray(item, "float64") for item in EXACT[name]]
    with np.errstate(over="ignore"):
        held = np.logical_and(*((item.astype(dtype) == item) for item in pairs))
    x, y = (item[held].astype(dtype) for item in pairs)
    assert x.size
    return x, y


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", EXACT)
def test_results_with_few_digits_are_exact(name, dtype):
    x, expected = exact(name, dtype)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(getattr(nd, name)(nd.array(x, dtype=dtype)).asnumpy(), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("engine", ENGINES)
def test_engines_give_them_too(engine, dtype, monkeypatch):
    if engine == "triton":
        use_triton(monkeypatch)
    compiled = engine_named(engine)
    for name in EXACT:
        if (engine, name) in NEARLY:
            continue
        x, expected = exact(name, dtype)
        graph = graph_of(lambda F, x, name=name: F.identity(getattr(F, name)(x)), x.shape, dtype=dtype)
        with np.errstate(all="ignore"):
            (found,) = compiled.compile(graph)([x])
        np.testing.assert_array_equal(found, expected, err_msg=name)


def test_whole_numbers_are_cut_off_after_the_exact_result():
    for name, data, expected in [("cbrt", WHOLE**3, WHOLE), ("log10", [1, 10, 1000], [0, 1, 3]), ("gamma", [5], [24])]:
        np.testing.assert_array_equal(getattr(nd, name)(nd.array(data, dtype="int32")).asnumpy(), expected)


UNARY = sorted(cls.name for cls in mx.ops.records() if issubclass(cls, Unary) and "f" in cls.dtype_kinds)


@pytest.mark.parametrize("name", UNARY)
def test_the_place_of_an_element_does_not_matter(name):
    """Alone, in the last elements of an odd number, and turned around by a compiled program."""
    op = mx.ops.get(name).bind()
    for dtype in ("float32", "float64"):
        x = np.random.uniform(0.05, 0.95, 1001).astype(dtype)
        (together,) = run_kernel(op, [x])
        for length in (1, 3, 7):
            apart = [run_kernel(op, [x[start : start + length]])[0] for start in range(0, 1001, length)]
            np.testing.assert_array_equal(np.concatenate(apart), together, err_msg=dtype)
        graph = graph_of(
            lambda F, x: getattr(F, name)(F.slice(x, begin=(None,), end=(None,), step=(-1,))), x.shape, dtype=dtype
        )
        (found,) = engine_named("numpy").compile(graph)([x])
        np.testing.assert_array_equal(found[::-1], together, err_msg=dtype)


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("size", [5, 200])
def test_sorted_zeros_keep_their_order(size, ascending):
    data = np.random.choice(np.array([0.0, -0.0, 1.0, -1.0], "float32"), (3, size))
    x = nd.array(data)
    places = nd.argsort(x, is_ascend=ascending).asnumpy().astype(int)
    found = nd.sort(x, is_ascend=ascending).asnumpy()
    expected = np.take_along_axis(data, places, 1)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_of_equal_scores_the_first_classes_are_the_top():
    scores = nd.array(np.tile([0.0, 1.0] * 20, (4, 1)))
    top = metric.TopKAccuracy(top_k=3)
    top.update([nd.array([1, 5, 7, 0])], [scores])
    assert top.get() == ("top_k_accuracy_3", 0.5)


def test_a_cut_off_cube_root_is_whole_in_a_network():
    net = nn.HybridLambda(lambda F, x: F.trunc(F.cbrt(x)))
    x = nd.array(WHOLE**3)
    np.testing.assert_array_equal(net(x).asnumpy(), WHOLE)
    net.hybridize()
    for _ in range(3):
        np.testing.assert_array_equal(net(x).asnumpy(), WHOLE)
