"""What is forgotten or not meant for a graph is said, in both modes alike."""

import pytest

from hybrid_lab import HybridizeError, autograd, nd
from hybrid_lab.diagnostics import UninitializedError
from hybrid_lab.gluon import nn


class Doubled(autograd.Function):
    def forward(self, x):
        return x * 2

    def backward(self, dy):
        return dy * 7


class WithFunction(nn.HybridBlock):
    def hybrid_forward(self, F, x):
        return Doubled()(x)


@pytest.mark.parametrize("active", [False, True])
def test_a_forgotten_initialize_names_the_parameter(active):
    net = nn.HybridSequential()
    net.add(nn.Dense(3, prefix="out_"))
    net.hybridize(active, engine="numpy")
    with pytest.raises(UninitializedError, match="'out_weight' has not been initialized"):
        net(nd.ones((2, 4)))
    net.initialize()
    assert net(nd.ones((2, 4))).shape == (2, 3)


def test_a_function_with_its_own_backward_is_no_part_of_a_graph():
    net = WithFunction()
    assert (net(nd.ones((2,))).asnumpy() == 2).all()
    net.hybridize(engine="numpy")
    with pytest.raises(HybridizeError, match="Doubled") as caught:
        net(nd.ones((2,)))
    assert caught.value.code == "HL175" and caught.value.location.file == __file__


def test_an_augmented_assignment_is_named_as_it_is_written():
    class Net(nn.HybridBlock):
        def hybrid_forward(self, F, x):
            x *= 2
            return x

    net = Net()
    net.hybridize(engine="numpy")
    with pytest.raises(HybridizeError, match=r"`\*=` changes"):
        net(nd.ones((2,)))
