"""Random arrays and the random state."""

from __future__ import annotations

import json

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics import AttributeSpecError, HybridLabError, ShapeError
from hybrid_lab.ndarray.random_state import RandomState, state


def test_a_seed_repeats_everything():
    def numbers():
        with autograd.record():
            mask = nd.Dropout(nd.ones((50,)), p=0.5)
        return [nd.random.uniform(shape=(3,)).tolist(), nd.random.normal(shape=(3,)).tolist(), mask.tolist()]

    mx.random.seed(42)
    first = numbers()
    assert numbers() != first
    mx.random.seed(42)
    assert numbers() == first
    mx.random.seed(43)
    assert numbers() != first


def test_seeds_that_differ_in_one_bit_give_other_weights_and_orders():
    """Their keys are above 2^63, where NumPy would round a list through float64."""
    for make in (
        lambda: mx.gluon.data.RandomSampler(50),
        lambda: initialized().weight.data().asnumpy().ravel(),
    ):
        seen = set()
        for seed in (0, 1, 2, -1, -2, 2**63, 2**63 + 1):
            mx.random.seed(seed)
            seen.add(tuple(make()))
            mx.random.seed(seed)
            assert tuple(make()) in seen
        assert len(seen) == 7


def initialized():
    layer = mx.gluon.nn.Dense(4, in_units=5)
    layer.initialize(mx.init.Xavier())
    return layer


def test_dropout_uses_up_its_draw_in_predict_mode_too():
    mx.random.seed(1)
    nd.Dropout(nd.ones((4,)))
    after_predict = nd.random.uniform(shape=(2,)).tolist()
    mx.random.seed(1)
    with autograd.train_mode():
        nd.Dropout(nd.ones((4,)))
    assert nd.random.uniform(shape=(2,)).tolist() == after_predict


def test_shapes_and_types():
    assert nd.random.uniform().shape == nd.random.normal().shape == nd.random.randn().shape == (1,)
    assert nd.random.randn(2, 3).shape == (2, 3) and nd.random.normal(shape=4).shape == (4,)
    assert nd.random.uniform(shape=2, dtype="float64").dtype is np.float64
    assert nd.random_uniform(shape=(2,)).shape == nd.random.uniform(0, 1, (2,)).shape == (2,)
    out = nd.zeros((3,))
    assert nd.random.uniform(1, 2, out=out) is out and out.asnumpy().min() >= 1


def test_one_block_per_element_of_the_parameters():
    low, high = nd.array([0, 10]), nd.array([1, 20])
    drawn = nd.random.uniform(low, high, shape=(100,)).asnumpy()
    assert drawn.shape == (2, 100) and drawn[0].max() < 1 and drawn[1].min() >= 10
    drawn = nd.random.normal(nd.array([0, 100]), 0.1, shape=(4, 5)).asnumpy()
    assert drawn.shape == (2, 4, 5) and abs(drawn[1].mean() - 100) < 1
    with pytest.raises(ShapeError):
        nd.random.uniform(low, nd.ones((3,)))


def test_moments():
    mx.random.seed(0)
    uniform = nd.random.uniform(-1, 1, shape=(20000,)).asnumpy()
    normal = nd.random.normal(2, 3, shape=(20000,)).asnumpy()
    assert abs(uniform.mean()) < 0.02 and abs(uniform.std() - 3**-0.5) < 0.01
    assert abs(normal.mean() - 2) < 0.1 and abs(normal.std() - 3) < 0.1


def test_shuffle_keeps_rows():
    mx.random.seed(0)
    x = nd.arange(20).reshape((10, 2))
    mixed = nd.random.shuffle(x)
    rows = [tuple(row) for row in mixed.tolist()]
    assert sorted(rows) == [tuple(row) for row in x.tolist()] != rows


def test_randint():
    drawn = nd.random.randint(-3, 5, shape=(500,))
    assert drawn.dtype is np.int32 and set(drawn.tolist()) == set(range(-3, 5))
    assert nd.random.randint(0, 10, dtype="int64").dtype is np.int64
    with pytest.raises(AttributeSpecError, match="greater"):
        nd.random.randint(5, 5)


def test_the_state_is_saved_as_json():
    mx.random.seed(7)
    nd.random.uniform(shape=3)
    state.next_initializer_draw()
    saved = json.loads(json.dumps(mx.random.get_state()))
    numbers = [nd.random.uniform(shape=3).tolist(), state.next_initializer_draw()]
    mx.random.set_state(saved)
    assert [nd.random.uniform(shape=3).tolist(), state.next_initializer_draw()] == numbers
    for broken in ({}, {**saved, "seed": "x"}, {**saved, "draws": -1}, {**saved, "generator": "mt19937"}, None):
        with pytest.raises(HybridLabError, match="not a saved random state"):
            mx.random.set_state(broken)
    with pytest.raises(AttributeSpecError):
        mx.random.seed("abc")


def test_streams_are_apart():
    local = RandomState(3)
    assert local.next_draws(4) == (3, 0) and local.next_draws() == (3, 4)
    seed, number = local.next_initializer_draw()
    assert number == 0 and seed != 3
    with local.preserved():
        local.next_draws(10)
    assert local.next_draws() == (3, 5)
