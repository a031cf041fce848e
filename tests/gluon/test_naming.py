"""Prefixes and name scopes. (Whole models are compared with the real MXNet in test_golden.py.)"""

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn
from hybrid_lab.symbol import scopes as names


@pytest.fixture(autouse=True)
def fresh_counters():
    with names.NameManager():
        yield


def test_outside_a_scope_names_are_counted_globally():
    assert [nn.Dense(1).prefix, nn.Dense(1).prefix, nn.Conv2D(1, 1).prefix] == ["dense0_", "dense1_", "conv0_"]


def test_inside_a_scope_names_are_counted_by_the_block():
    net = nn.HybridSequential()
    with net.name_scope():
        first, second = nn.Dense(1), nn.Dense(1)
    with net.name_scope():
        third = nn.Dense(1)
    assert [first.name, second.name, third.name] == [f"hybridsequential0_dense{i}" for i in range(3)]


def test_a_given_prefix_stands_behind_the_scope():
    net = nn.HybridSequential(prefix="features_")
    with net.name_scope():
        assert nn.Dense(1, prefix="out_").weight.name == "features_out_weight"
    assert nn.Dense(1, prefix="out_").weight.name == "out_weight"


def test_an_empty_prefix_opens_no_scope():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        inner = nn.HybridSequential(prefix="")
        with inner.name_scope():
            assert nn.Dense(1).name == "net_dense0"


def test_scopes_nest_and_may_be_entered_again_while_open():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope(), net.name_scope():
        assert nn.Dense(1).name == "net_dense0"
    assert nn.Dense(1).name == "dense0"


def test_shared_parameters_keep_the_first_blocks_names():
    first = nn.Dense(2, in_units=2, prefix="first_")
    second = nn.Dense(2, in_units=2, prefix="second_", params=first.params)
    assert second.weight is first.weight
    assert list(second.collect_params()) == ["first_weight", "first_bias"]


def test_a_parameter_made_by_hand_takes_the_blocks_prefix():
    class Scale(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.factor = gluon.Parameter("factor", shape=(3,))

        def forward(self, x):
            return x * self.factor.data()

    assert list(Scale(prefix="scale_").collect_params()) == ["scale_factor"]


def test_a_scope_that_was_broken_off_inside_goes_with_the_one_around_it():
    """As Ctrl-C and the recursion limit do: __exit__ of the inner one never ran."""
    outer, inner = nn.HybridSequential(prefix="outer_"), nn.HybridSequential(prefix="inner_")
    with outer.name_scope():
        inner.name_scope().__enter__()
        assert nn.Dense(2).prefix == "inner_dense0_"
    assert not nn.Dense(2).prefix.startswith(("outer_", "inner_"))
    assert not mx.sym.relu(mx.sym.Variable("x")).name.startswith(("outer_", "inner_"))
