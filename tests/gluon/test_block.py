"""Block: registration, structure changes, hooks, printing, copies."""

import copy
import gc
import warnings
import weakref

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.gluon import nn


class Net(gluon.Block):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.hidden = nn.Dense(4, activation="relu")
            self.out = nn.Dense(2)

    def forward(self, x):
        return self.out(self.hidden(x))


@pytest.fixture
def net():
    net = Net()
    net.initialize()
    return net


def test_attributes_become_children_in_their_order(net):
    assert list(net._children) == ["hidden", "out"]
    assert net._children["out"] is net.out


def test_a_plain_block_calls_its_children(net):
    assert net(nd.ones((3, 5))).shape == (3, 2)


def test_parameters_are_collected_by_pattern(net):
    net(nd.ones((1, 5)))
    assert list(net.collect_params(".*bias")) == [net.hidden.bias.name, net.out.bias.name]
    assert len(net.params) == 0
    assert len(net.collect_params()) == 4


def test_a_new_child_takes_the_old_ones_place(net):
    replacement = nn.HybridSequential()
    net.hidden = replacement
    assert list(net._children) == ["hidden", "out"]
    assert net._children["hidden"] is replacement


def test_a_child_cannot_become_something_else(net):
    with pytest.raises(TypeError, match="'out' .*Dense.* int"):
        net.out = 3
    with pytest.raises(TypeError, match="'out' .*Dense.*NoneType.*del net.out"):
        net.out = None


@pytest.mark.parametrize("item", [nn.Dense, "dense", None])
def test_a_child_that_is_no_block_is_refused_and_changes_nothing(item):
    net = nn.Sequential()
    with pytest.raises(TypeError, match="a child of sequential.* must be a Block"):
        net.add(item)
    assert len(net) == 0


def test_a_child_needs_a_name():
    net = nn.Sequential()
    with pytest.raises(ValueError, match="needs a name"):
        net.register_child(nn.Dense(2), "")
    assert not net._children


def test_a_child_can_be_deleted(net):
    del net.out
    assert list(net._children) == ["hidden"]
    assert not hasattr(net, "out")


def test_a_parameter_cannot_be_overwritten():
    layer = nn.Dense(2)
    with pytest.raises(TypeError, match="'weight' is a parameter .*set_data"):
        layer.weight = gluon.Parameter("weight", shape=(2, 2))


def test_forgotten_super_init_is_said():
    class Forgetful(gluon.Block):
        def __init__(self):
            self.layer = nn.Dense(1)

    with pytest.raises(
        RuntimeError, match=r"Forgetful.__init__ must call super\(\).__init__\(\) before it assigns 'layer'"
    ):
        Forgetful()


def test_blocks_in_a_list_are_warned_of_once():
    class Listed(gluon.Block):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Dense(1), nn.Dense(1)]

    listed = Listed()
    with pytest.warns(UserWarning, match="HL182: Listed: .*`self.layers`") as caught:
        listed.collect_params()
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        listed.collect_params()


def test_registered_blocks_in_a_list_are_fine():
    class Listed(gluon.Block):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Dense(1)]
            self.register_child(self.layers[0])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(Listed().collect_params()) == 2


# -- structure changes ---------------------------------------------------------------------------------------------


def test_a_change_below_reaches_every_ancestor(net):
    top = nn.Sequential()
    top.add(net)
    before = top._structure_version, net._structure_version
    net.hidden = nn.Dense(3)
    assert top._structure_version > before[0]
    assert net._structure_version > before[1]


def test_a_replaced_child_is_used_by_a_hybridized_parent():
    net = nn.HybridSequential()
    inner = nn.HybridSequential()
    inner.add(nn.Dense(2, use_bias=False, in_units=2, weight_initializer="ones"))
    net.add(inner)
    net.initialize()
    net.hybridize(engine="numpy")
    x = nd.ones((1, 2))
    assert net(x).asnumpy().tolist() == [[2, 2]]
    inner.register_child(nn.Dense(2, use_bias=False, in_units=2, weight_initializer=mx.init.Constant(3)), "0")
    inner[0].initialize()
    assert net(x).asnumpy().tolist() == [[6, 6]]


def test_a_child_taken_out_no_longer_touches_its_parent(net):
    old = net.hidden
    net.hidden = nn.Dense(4)
    version = net._structure_version
    old.act = nn.Activation("tanh")
    assert net._structure_version == version


def test_blocks_are_freed_without_the_garbage_collector():
    gc.disable()
    try:
        net = Net()
        gone = weakref.ref(net)
        del net
        assert gone() is None
    finally:
        gc.enable()


def test_a_deep_copy_is_independent(net):
    x = nd.ones((1, 5))
    y = net(x)
    twin = copy.deepcopy(net)
    assert np.array_equal(twin(x).asnumpy(), y.asnumpy())
    net.hidden.weight.set_data(net.hidden.weight.data() * 2)
    assert np.array_equal(twin(x).asnumpy(), y.asnumpy())
    version = twin._structure_version
    twin.hidden.act = nn.Activation("tanh")
    assert twin._structure_version > version


# -- hooks, apply, printing ----------------------------------------------------------------------------------------


def test_hooks_see_inputs_and_outputs(net):
    seen = []
    before = net.hidden.register_forward_pre_hook(lambda block, inputs: seen.append(("in", inputs[0].shape)))
    after = net.hidden.register_forward_hook(lambda block, inputs, outputs: seen.append(("out", outputs.shape)))
    net(nd.ones((3, 5)))
    assert seen == [("in", (3, 5)), ("out", (3, 4))]
    before.detach()
    with after:
        net(nd.ones((3, 5)))
    assert seen[2:] == [("out", (3, 4))]
    net(nd.ones((3, 5)))
    assert len(seen) == 3


def test_apply_goes_from_the_leaves_up(net):
    visited = []
    assert net.apply(lambda block: visited.append(type(block).__name__)) is net
    assert visited == ["Activation", "Dense", "Dense", "Net"]


def test_cast_changes_all_parameters(net):
    net(nd.ones((1, 5)))
    net.cast("float64")
    assert net(nd.ones((1, 5), dtype="float64")).dtype == np.float64
    assert net.hidden.weight.grad().dtype == np.float64


def test_summary_of_a_hybridized_net_keeps_its_graph(capsys):
    net = nn.HybridSequential()
    net.add(nn.Dense(3, activation="relu"), nn.Dense(2))
    net.initialize()
    net.hybridize(engine="numpy")
    net.summary(nd.ones((2, 4)))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[4:7]] == ["Activation-1", "Dense-2", "Dense-3"]
    assert net._active and net[0]._active


def test_repr_of_nested_blocks(net):
    assert repr(net) == "Net(\n  (hidden): Dense(None -> 4, Activation(relu))\n  (out): Dense(None -> 2, linear)\n)"
