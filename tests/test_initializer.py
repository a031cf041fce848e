"""Initializers: values, distributions, names and their text form."""

import json
import math

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import init, nd
from hybrid_lab.diagnostics import ShapeError


def filled(initializer, shape, name="net_weight"):
    array = nd.full(shape, 99.0)
    initializer(init.InitDesc(name), array)
    return array.asnumpy()


@pytest.fixture(autouse=True)
def seeded():
    mx.random.seed(0)


def test_constants():
    assert filled(init.Zero(), (2,)).tolist() == [0, 0]
    assert filled(init.One(), (2,)).tolist() == [1, 1]
    assert filled(init.Constant(0.5), (2,)).tolist() == [0.5, 0.5]
    assert filled(init.Constant(nd.array([1, 2])), (2,)).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("initializer", "bound"),
    [
        (init.Uniform(0.2), 0.2),
        (init.Xavier(), math.sqrt(3 / 350)),
        (init.Xavier(factor_type="in", magnitude=2), math.sqrt(2 / 300)),
        (init.Xavier(factor_type="out"), math.sqrt(3 / 400)),
    ],
)
def test_uniform_in_its_bounds(initializer, bound):
    values = filled(initializer, (400, 300))
    assert np.abs(values).max() <= bound
    assert values.std() == pytest.approx(bound / math.sqrt(3), rel=0.01)
    assert values.mean() == pytest.approx(0, abs=bound / 100)


@pytest.mark.parametrize(
    ("initializer", "sigma"),
    [
        (init.Normal(0.5), 0.5),
        (init.Xavier(rnd_type="gaussian"), math.sqrt(3 / 350)),
        (init.MSRAPrelu(slope=0), math.sqrt(2 / 350)),
    ],
)
def test_normal_with_its_deviation(initializer, sigma):
    values = filled(initializer, (400, 300))
    assert values.std() == pytest.approx(sigma, rel=0.01)
    assert np.abs(values).max() > 3 * sigma


def test_a_kernels_window_counts_in_its_fan():
    values = filled(init.Xavier(), (64, 32, 3, 3))
    assert np.abs(values).max() == pytest.approx(math.sqrt(3 / (48 * 9)), rel=0.01)


def test_orthogonal_rows():
    for rand_type in ("uniform", "normal"):
        values = filled(init.Orthogonal(scale=2.0, rand_type=rand_type), (4, 3, 2)).reshape(4, 6)
        np.testing.assert_allclose(values @ values.T, 4 * np.eye(4), atol=1e-5)


def test_bilinear_kernel_is_mxnets():
    values = filled(init.Bilinear(), (1, 1, 4, 3))
    assert values[0, 0].tolist() == [
        [0.0625, 0.1875, 0.1875],
        [0.1875, 0.5625, 0.5625],
        [0.1875, 0.5625, 0.5625],
        [0.0625, 0.1875, 0.1875],
    ]


def test_lstm_bias_opens_the_forget_gate():
    array = nd.full((8,), 9.0)
    init.LSTMBias(1.5)(init.InitDesc("h2h_bias", {"__init__": init.LSTMBias(1.5)}), array)
    assert array.asnumpy().tolist() == [0, 0, 1.5, 1.5, 0, 0, 0, 0]


def test_a_vector_has_no_fan():
    with pytest.raises(ShapeError, match="Xavier needs at least two dimensions .* 'v_weight' has shape .3,."):
        filled(init.Xavier(), (3,), "v_weight")


@pytest.mark.parametrize(
    ("name", "value"),
    [("a_bias", 0), ("a_gamma", 1), ("a_beta", 0), ("a_running_mean", 0), ("a_running_var", 1), ("a_moving_var", 1)],
)
def test_names_decide_what_is_not_a_weight(name, value):
    assert filled(init.Normal(), (2,), name).tolist() == [value, value]


def test_a_name_without_a_rule():
    with pytest.raises(ValueError, match="'net_alpha'.*init=mx.init.Normal"):
        filled(init.Normal(), (2,), "net_alpha")


def test_own_initializer_wins_over_the_name():
    array = nd.zeros((2,))
    init.Normal()(init.InitDesc("net_bias", {"__init__": '["constant", {"value": 4}]'}), array)
    assert array.asnumpy().tolist() == [4, 4]


def test_text_form_there_and_back():
    assert init.Xavier(factor_type="in", magnitude=2.34).dumps() == (
        '["xavier", {"rnd_type": "uniform", "factor_type": "in", "magnitude": 2.34}]'
    )
    for initializer in (init.Normal(0.5), init.MSRAPrelu(slope=0.1), init.Zero(), init.Constant(3)):
        assert init.create(initializer.dumps()) == initializer
    assert json.loads(init.Constant(nd.array([1, 2])).dumps()) == ["constant", {"value": [1.0, 2.0]}]


def test_by_name():
    assert init.create("zeros") == init.Zero()
    assert init.create("normal", sigma=2.0) == init.Normal(2.0)
    with pytest.raises(ValueError, match="no initializer named 'xavir'; did you mean 'xavier'"):
        init.create("xavir")


def test_registering_ones_own():
    @init.register
    @init.alias("my_init")
    class Eleven(init.Initializer):
        def _init_weight(self, name, arr):
            arr[:] = 11

    for name in ("eleven", "my_init"):
        assert filled(init.create(name), (1,)).tolist() == [11]


def test_mixed_goes_by_patterns():
    mixed = init.Mixed(["conv.*weight", ".*"], [init.One(), init.Constant(2)])
    assert filled(mixed, (1,), "conv0_weight").tolist() == [1]
    assert filled(mixed, (1,), "dense0_weight").tolist() == [2]
    with pytest.raises(ValueError, match="'x_weight' fits none of the patterns 'y'"):
        filled(init.Mixed(["y"], ["zeros"]), (1,), "x_weight")


def test_mixed_initializes_a_net():
    net = mx.gluon.nn.Dense(2, in_units=2, prefix="d_", bias_initializer=None)
    net.initialize(init.Mixed([".*bias", ".*"], [init.Zero(), init.Constant(2)]))
    assert net.weight.data().asnumpy().tolist() == [[2, 2], [2, 2]]
    assert net.bias.data().asnumpy().tolist() == [0, 0]


def test_load_takes_values_by_name():
    load = init.Load({"arg:net_weight": nd.array([5, 6])}, default_init=init.Zero())
    assert filled(load, (2,)).tolist() == [5, 6]
    assert filled(load, (2,), "other_weight").tolist() == [0, 0]
    with pytest.raises(ShapeError, match="'net_weight' has shape .3,., but the loaded value has .2,."):
        filled(load, (3,))


def test_the_seed_decides():
    first = filled(init.Normal(), (3,))
    again = filled(init.Normal(), (3,))
    mx.random.seed(0)
    assert np.array_equal(filled(init.Normal(), (3,)), first)
    assert not np.array_equal(first, again)
