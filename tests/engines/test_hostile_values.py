"""Zeros, infinities and NaN in inputs and head gradients: hybridized calls have NaN and infinities where eager ones do.

A slope of 0 times an infinite head is NaN (`1 / relu(x)`), as in MXNet: nothing may select 0 there. What selects, clip
and max pooling, selects on every engine.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, engines, nd
from hybrid_lab.gluon import HybridBlock, rnn
from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.ops.framework.operator import get
from tests import quick
from tests.failures import Failures
from tests.gluon.test_second_gradients import Call, Twice
from tests.ops.cases import Case, each_sample

VALUES = np.array([0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.5, 0.5])
ENGINES = ("numpy", "onnxruntime", *(["torch"] if find_spec("torch") else []))
each_engine = pytest.mark.parametrize("engine", ENGINES)

#: Families of which engines compute by other sums: a weight of 0 takes part in one and not in the other, so that
#: 0 * inf and inf - inf come up elsewhere. docs/differences.md says so.
SUMS = {
    *("conv", "deconv", "patches", "resize", "warp", "sampler_grid", "roi", "attention", "affine"),
    *(
        "linalg",
        "linalg_products",
        "linalg_parts",
        "linalg_solve",
        "decompositions",
        "numpy_products",
        "norm",
        "group_norm",
        "fused_gradient",
    ),
}
APART = {
    "broadcast_mod": "onnxruntime has the remainder as a difference, which is NaN for an infinite divisor",
    "_contrib_AdaptiveAvgPooling2D": "a product with weights, as in SUMS",
    "_max_pool_grad": "its inputs do not belong together here",
    "_max_pool_pick": "its inputs do not belong together here",
    "_sample_multinomial": "refuses what are no probabilities",
    "CTCLoss": "refuses what are no labels",
    **dict.fromkeys(("Convolution_v1", "BatchNorm_v1"), "as in SUMS, whose families they are of"),
    **dict.fromkeys(("_contrib_Proposal", "_contrib_MultiProposal"), "refuses sizes of images that are no numbers"),
    **dict.fromkeys(("_contrib_PSROIPooling", "_psroi_pooling_grad"), "refuses regions of images that are not there"),
    **dict.fromkeys(
        ("_contrib_DeformablePSROIPooling", "_deformable_psroi_pooling_grad"),
        "refuses regions of images that are not there",
    ),
    "_contrib_RROIAlign": "refuses regions that are no numbers",
}


@pytest.fixture(autouse=True)
def every_region_in_a_session(monkeypatch):
    """However small a region is, ONNX Runtime computes it."""
    if find_spec("onnxruntime"):
        monkeypatch.setattr(engines.get("onnxruntime"), "worth", lambda region: None)


def spoiled(array: np.ndarray, generator: np.random.RandomState) -> np.ndarray:
    """The array with special values in some places."""
    special = generator.choice(VALUES, array.shape)
    return np.where(generator.uniform(size=array.shape) < 0.4, special, array).astype(array.dtype)


def kinds(values: np.ndarray) -> np.ndarray:
    """3 for NaN, 1 and -1 for infinities, 0 for numbers."""
    return np.where(np.isnan(values), 3, np.where(np.isinf(values), np.sign(values), 0))


def run(block: HybridBlock, arrays: list[np.ndarray], wrt: list[int], seed: int, spoil: bool) -> list[np.ndarray]:
    """Outputs and gradients, with special values in the head gradients where `spoil` says so."""
    inputs = [nd.array(array, dtype=array.dtype) for array in arrays]
    for index in wrt:
        inputs[index].attach_grad()
    mx.random.seed(3)
    with np.errstate(all="ignore"):
        with autograd.record():
            made = block(*inputs)
        outputs = [y for y in (made if isinstance(made, list) else [made]) if is_floating(np.dtype(y.dtype))]
        generator = np.random.RandomState(seed)
        heads = [generator.uniform(-1, 1, y.shape) for y in outputs]
        heads = [spoiled(head, generator) if spoil else head for head in heads]
        autograd.backward(outputs, [nd.array(head, dtype=y.dtype) for head, y in zip(heads, outputs, strict=True)])
    return [y.asnumpy() for y in (*outputs, *(inputs[index].grad for index in wrt))]


def check(block: HybridBlock, arrays: list[np.ndarray], wrt: list[int], *engines: str) -> None:
    """Outputs and gradients with special values in the head gradients, then in the inputs, too: each engine has NaN and
    infinities where the eager call has them.
    """
    regimes = [
        (seed, [spoiled(array, generator) if values and i in wrt else array for i, array in enumerate(arrays)], heads)
        for seed, (values, heads) in enumerate([(False, True), (True, True)])
        for generator in [np.random.RandomState(seed)]
    ]
    block.hybridize(False)
    eager = [run(block, given, wrt, seed, heads) for seed, given, heads in regimes]
    failures = Failures()
    for engine in engines:
        with failures.of(engine):
            block.hybridize(engine=engine)
            for (seed, given, heads), wanted in zip(regimes, eager, strict=True):
                for one, other in zip(run(block, given, wrt, seed, heads), wanted, strict=True):
                    np.testing.assert_array_equal(kinds(one), kinds(other))
    failures.raise_all()


def _is_checked(case: Case) -> bool:
    if case.record.family in SUMS or case.record.name in APART or case.sample.dtype != "float32" or case.number > 3:
        return False
    return case.record.differentiable and case.sample.gradient and case.sample.attributes.get("act_type") != "gelu"


def _is_predicted(case: Case) -> bool:
    if case.record.family in SUMS or case.record.name in {*APART, "_histogram"} or case.number > 1:
        return False  # a histogram refuses such edges
    return bool(case.sample.inputs) and case.sample.dtype == "float32" and not case.record.random


@each_sample(lambda case: _is_checked(case) or _is_predicted(case))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_records(case: Case):
    """Recorded calls, and those that are not recorded, for which engines have other kernels."""
    twice, failures = Twice(case), Failures()
    engines = quick.in_turn(case.id, *ENGINES)
    if _is_checked(case) and twice.wrt:
        with failures.of("recorded"):
            check(Call(case), twice.arrays, twice.wrt, *engines)
    if _is_predicted(case):
        check_prediction(Call(case), twice, engines[1:], failures)
    failures.raise_all()


def check_prediction(block: Call, twice: Twice, engines: Sequence[str], failures: Failures) -> None:
    inputs = []
    for seed in range(2):
        generator = np.random.RandomState(seed)
        arrays = [spoiled(array, generator) if i in twice.wrt else array for i, array in enumerate(twice.arrays)]
        inputs.append(arrays)

    def results(**options: Any) -> list[list[np.ndarray]]:
        block.hybridize(**options)
        with np.errstate(all="ignore"):
            made = [block(*[nd.array(array, dtype=array.dtype) for array in arrays]) for arrays in inputs]
        return [[y.asnumpy() for y in (each if isinstance(each, list) else [each])] for each in made]

    eager = results(active=False)
    for engine in engines:
        with failures.of(f"{engine}, not recorded"):
            for found, wanted in zip(results(engine=engine), eager, strict=True):
                for one, other in zip(found, wanted, strict=True):
                    np.testing.assert_array_equal(kinds(one), kinds(other))


class Function(HybridBlock):
    def __init__(self, function: Any):
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, *inputs):
        return self.function(F, *inputs)


@each_engine
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_infinities_pass_through_gelu(engine):
    block = Function(lambda F, x: F.LeakyReLU(x, act_type="gelu"))
    check(block, [np.repeat(VALUES, 8).astype(np.float32)], [0], engine)


@each_engine
@pytest.mark.parametrize(
    "function",
    [
        lambda F, x: 1.0 / F.relu(x),
        lambda F, x: F.prod(F.relu(x), axis=1),
        lambda F, x: F.prod(F.Dropout(x, p=0.5), axis=1),
        lambda F, x: F.log(F.relu(x)),
        lambda F, x: 1.0 / F.clip(x, 0, 1),
        lambda F, x: F.sqrt(F.Pooling(F.reshape(x, (1, 1, 6, 4)), kernel=(2, 2), stride=(2, 2))),
        lambda F, x: F.where(x > 0, 1.0 / x, F.zeros_like(x)),
    ],
)
def test_what_is_infinite_behind_a_slope_of_zero(function: Any, engine: str):
    x = np.random.RandomState(0).uniform(-1, 1, (6, 4)).astype("float32")
    x[::2, 1] = 0
    check(Function(function), [x], [0], engine)


def test_infinity_times_a_slope_of_zero_is_nan():
    x = nd.array([-1.0, 0.0, 2.0])
    x.attach_grad()
    for function, wanted in ((nd.relu, [np.nan, np.nan, np.inf]), (lambda y: nd.clip(y, 0.5, 3), [0, 0, np.inf])):
        with autograd.record():
            y = function(x)
        with np.errstate(invalid="ignore"):
            y.backward(nd.full(3, np.inf))
        np.testing.assert_array_equal(x.grad.asnumpy(), wanted)


@pytest.mark.parametrize("engine", ["onnxruntime", *(["torch"] if find_spec("torch") else [])])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize(
    "kind",
    [
        lambda: rnn.LSTM(2, input_size=1),
        lambda: rnn.GRU(2, input_size=1),
        lambda: rnn.RNN(2, input_size=1),
        lambda: rnn.RNN(2, input_size=1, activation="tanh"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_recurrent_layers_in_prediction(kind: Any, value: float, engine: str):
    """One value that is not finite, or as large as can be, in the first step; weights are of either sign."""
    layer = kind()
    layer.initialize()
    for parameter in layer.collect_params().values():
        parameter.set_data(nd.array(np.random.RandomState(1).uniform(-0.9, 0.9, parameter.shape)))
    x = nd.array([[[value]], [[0.3]], [[0.1]]])
    eager = layer(x).asnumpy()
    layer.hybridize(engine=engine)
    for _ in range(3):  # weights are packed after the first call
        np.testing.assert_array_equal(kinds(layer(x).asnumpy()), kinds(eager))


#: Settings of RNN: every mode, and what changes the gradient of one.
RECURRENT = [
    *({"mode": mode} for mode in ("rnn_relu", "rnn_tanh", "lstm", "gru")),
    {"mode": "rnn_relu", "num_layers": 2, "bidirectional": True},
    {"mode": "lstm", "lstm_state_clip_min": -0.1, "lstm_state_clip_max": 0.1},
    {"mode": "lstm", "projection_size": 3, "bidirectional": True},
]
each_recurrent = pytest.mark.parametrize("settings", RECURRENT, ids=lambda item: "-".join(map(str, item.values())))


def check_recurrent(settings: dict[str, Any], engine: str) -> None:
    """Data, states and head gradients of a recurrent layer with special values."""
    settings = {"num_layers": 1, **settings}
    sizes = get("RNN").bind(state_size=2, **settings).sizes
    places = sizes.layers * sizes.directions
    states = [(places, 2, sizes.units), (places, 2, 2)][: 2 if settings["mode"] == "lstm" else 1]
    generator, shapes = np.random.RandomState(5), [(4, 2, 3), (sizes.parameters(3),), *states]
    arrays = [generator.uniform(-0.9, 0.9, shape).astype("float32") for shape in shapes]
    block = Function(lambda F, *inputs: F.RNN(*inputs, state_size=2, state_outputs=True, **settings))
    check(block, arrays, [0, *range(2, len(arrays))], engine)


@each_engine
@each_recurrent
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_recurrent_layers_in_training(settings: dict[str, Any], engine: str):
    check_recurrent(settings, engine)


_SPECIAL = [0.0, 1e4, np.inf, -np.inf, np.nan]
#: Every row of three of them and a 1.
ROWS = np.array([[*row, 1.0] for row in itertools.combinations_with_replacement(_SPECIAL, 3)])


@each_engine
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "function",
    [
        lambda F, x: F.softmax(x),
        lambda F, x: F.softmax(x, temperature=0.5),
        lambda F, x: F.softmax(F.transpose(x), axis=0),
        lambda F, x: F.softmin(x),
        lambda F, x: F.log_softmax(x),
        lambda F, x: F.log_softmax(x, dtype="float64"),
        lambda F, x: F.SoftmaxActivation(x),
        lambda F, x: F.SoftmaxOutput(x, F.sum(F.zeros_like(x), axis=1)),
        lambda F, x: F.softmax_cross_entropy(x, F.sum(F.zeros_like(x), axis=1)),
        *[
            lambda F, x, n=n: F.softmax(x, F.cast(F.sum(F.zeros_like(x), axis=1) + n, dtype="int32"), use_length=True)
            for n in (0, 1, 3)
        ],
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_softmax_of_special_rows(function, dtype, engine):
    check(Function(function), [ROWS.astype(dtype)], [0], engine)
