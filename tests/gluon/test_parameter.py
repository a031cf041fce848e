"""Parameters: shapes, initialization, gradients, identity; and dictionaries of them."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, init, nd
from hybrid_lab.diagnostics import AutogradError, DeferredInitializationError, ShapeError, UninitializedError
from hybrid_lab.gluon import nn


def test_values_and_gradient_after_initialize():
    weight = gluon.Parameter("weight", shape=(2, 3), init="ones")
    weight.initialize()
    assert weight.data().asnumpy().tolist() == [[1, 1, 1], [1, 1, 1]]
    assert weight.grad().asnumpy().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert weight._array is weight.data()
    assert repr(weight) == "Parameter weight (shape=(2, 3), dtype=float32)"


def test_forgotten_initialize_names_the_parameter():
    with pytest.raises(
        UninitializedError, match="'dense_weight' has not been initialized: net.initialize.. is missing"
    ):
        nn.Dense(2, in_units=3, prefix="dense_")(nd.ones((1, 3)))


def test_a_deferred_parameter_says_what_it_waits_for():
    layer = nn.Dense(2, prefix="dense_")
    layer.initialize()
    with pytest.raises(
        DeferredInitializationError, match="'dense_weight' has no values yet: its shape .2, 0. is completed"
    ):
        layer.weight.data()
    layer(nd.ones((1, 5)))
    assert layer.weight.shape == (2, 5)


def test_an_unknown_shape_needs_permission_to_wait():
    with pytest.raises(ValueError, match="'w' cannot be initialized: its shape .2, 0. is not known"):
        gluon.Parameter("w", shape=(2, 0)).initialize()


@pytest.mark.parametrize("unknown", [0, -1, None])
def test_unknown_dimensions_are_completed(unknown):
    weight = gluon.Parameter("weight", shape=(2, unknown))
    assert weight.shape == (2, 0)
    assert weight.partial_shape == (2, None)
    weight.shape = (2, 7)
    assert weight.shape == (2, 7)


def test_a_known_dimension_cannot_change():
    weight = gluon.Parameter("weight", shape=(2, 3))
    with pytest.raises(ShapeError, match=r"'weight' has shape \(2, 3\), which does not fit \(2, 4\)"):
        weight.shape = (2, 4)


def test_set_data_writes_in_place():
    weight = gluon.Parameter("weight", shape=(2,))
    weight.initialize()
    array = weight.data()
    weight.set_data(nd.array([5, 6]))
    assert weight.data() is array
    assert array.asnumpy().tolist() == [5, 6]
    with pytest.raises(ShapeError):
        weight.set_data(nd.zeros((3,)))


@pytest.mark.parametrize("grad_req", ["write", "null"])
def test_set_data_between_a_call_and_its_backward_leaves_the_gradient_as_it_was(grad_req):
    u, w = gluon.Parameter("u", shape=(1, 2), grad_req=grad_req), gluon.Parameter("w", shape=(2, 3))
    for parameter in (u, w):
        parameter.initialize(init="ones")
    memory = u.data().asnumpy()
    with autograd.record():
        first = nd.dot(u.data(), w.data())
        with autograd.pause():
            u.set_data([[5, 7]])
        total = (first + nd.dot(u.data(), w.data())).sum()  # as spectral normalization does in two calls of a network
    u.set_data([[-1, -1]])
    total.backward(retain_graph=True)
    assert w.grad().asnumpy().tolist() == [[6, 6, 6], [8, 8, 8]]
    assert u.data().asnumpy().tolist() == [[-1, -1]] and memory.tolist() == [[1, 1]]
    with autograd.record():
        product = nd.dot(u.data(), w.data())
    u.data()[:] = 4  # no copy is made for other writes
    with pytest.raises(AutogradError, match="dot needs its input lhs, .* written to since"):
        product.backward()


@pytest.mark.parametrize("outside", [False, True])
def test_set_data_leaves_the_gradients_of_views_as_they_were(outside):
    w, x = gluon.Parameter("w", shape=(2, 3)), nd.ones((3, 2))
    w.initialize()
    w.set_data([[1, 2, 3], [4, 5, 6]])
    x.attach_grad()
    turned, row = w.data().reshape((3, 2)), w.data()[1]
    with autograd.record():
        if not outside:
            turned, row = w.data().reshape((3, 2)), w.data()[1]
        total = (turned * x).sum() + (row * row * x[:, 0]).sum()
    w.set_data(np.zeros((2, 3)))
    total.backward()
    assert x.grad.asnumpy().tolist() == [[1 + 16, 2], [3 + 25, 4], [5 + 36, 6]]
    if not outside:
        assert w.grad().asnumpy().tolist() == [[1, 1, 1], [1 + 8, 1 + 10, 1 + 12]]
    w.data()[:] = 1
    with autograd.record():
        square = w.data()[0] * w.data()[0]
    w.data()[1] = 4
    with pytest.raises(AutogradError, match="written to since"):
        square.backward()


def test_set_data_leaves_the_gradient_of_a_function_as_it_was():
    class Product(autograd.Function):
        def forward(self, a, b):
            self.save_for_backward(a, b)
            return a * b

        def backward(self, dy):
            a, b = self.saved_tensors
            return dy * b, dy * a

    w, x = gluon.Parameter("w", shape=(2,)), nd.array([5, 7])
    w.initialize(init="ones")
    x.attach_grad()
    with autograd.record():
        y = Product()(x, w.data())
    for value in (3, 4):
        w.set_data([value, value])
        y.backward(retain_graph=True)
        assert x.grad.asnumpy().tolist() == [1, 1] and w.grad().asnumpy().tolist() == [5, 7]


def test_values_that_a_gradient_needs_are_copied_only_while_it_may_come():
    w = gluon.Parameter("w", shape=(2, 3))
    w.initialize(init="ones")
    with autograd.record():
        square = w.data() * w.data()
    w.set_data(np.zeros((2, 3)))
    (kept,) = {saved.saved_version for saved in square.tape_link.node.entry._values if saved}
    assert kept.copy.host.tolist() == np.ones((2, 3)).tolist()
    with autograd.record():
        slope = autograd.grad(square, w.data(), create_graph=True)[0]
    assert slope.asnumpy().tolist() == np.full((2, 3), 2).tolist()
    del square, slope, kept
    w.set_data(np.full((2, 3), 4))
    assert w.data().buffer.saved_version() is None


def test_set_data_may_come_before_the_shape_is_known():
    layer = nn.Dense(2, use_bias=False)
    layer.initialize()
    layer.weight.set_data(nd.ones((2, 3)))
    assert layer(nd.ones((1, 3))).asnumpy().tolist() == [[3, 3]]


def test_grad_req_can_change():
    weight = gluon.Parameter("weight", shape=(1,), init="ones")
    weight.initialize()
    weight.grad_req = "add"
    for _ in range(2):
        with autograd.record():
            y = weight.data() * 3
        y.backward()
    assert weight.grad().asnumpy().tolist() == [6]
    weight.zero_grad()
    assert weight.grad().asnumpy().tolist() == [0]
    weight.grad_req = "null"
    with pytest.raises(RuntimeError, match="'weight' has no gradient: its grad_req is 'null'"):
        weight.grad()
    with pytest.raises(ValueError, match="grad_req of 'weight' .*'sum'"):
        weight.grad_req = "sum"


def test_initialize_twice_warns_and_force_reinit_does_it():
    weight = gluon.Parameter("weight", shape=(1,), init="ones")
    weight.initialize()
    weight.set_data(nd.array([4]))
    with pytest.warns(UserWarning, match="'weight' is already initialized, nothing is done"):
        weight.initialize()
    assert weight.data().asscalar() == 4
    weight.initialize(force_reinit=True)
    assert weight.data().asscalar() == 1


def test_several_contexts_hold_copies():
    weight = gluon.Parameter("weight", shape=(2,))
    weight.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    assert weight.list_ctx() == [mx.cpu(0), mx.cpu(1)]
    assert np.array_equal(weight.data(mx.cpu(0)).asnumpy(), weight.data(mx.cpu(1)).asnumpy())
    with pytest.raises(UninitializedError, match=r"was not initialized on cpu\(2\), only on cpu\(0\), cpu\(1\)"):
        weight.data(mx.cpu(2))
    weight.reset_ctx(mx.cpu(1))
    assert weight.list_ctx() == [mx.cpu(1)]


def test_a_constant_takes_no_gradient():
    constant = gluon.Constant("const", [[1, 2], [3, 4]])
    constant.initialize()
    assert constant.data().asnumpy().tolist() == [[1, 2], [3, 4]]
    with pytest.warns(UserWarning, match="Constant 'const' takes no gradient"):
        constant.grad_req = "write"
    assert constant.grad_req == "null"


def test_var_carries_what_mxnets_files_need():
    symbol = gluon.Parameter("weight", shape=(4, 0), lr_mult=2.0, init="zeros").var()
    assert symbol.name == "weight"
    assert symbol.list_attr()["__shape__"] == "(4, 0)"
    assert symbol.list_attr()["__lr_mult__"] == "2.0"
    assert symbol.list_attr()["__init__"] == "zeros"


# -- initialization and random numbers -----------------------------------------------------------------------------


def test_values_do_not_depend_on_when_shapes_become_known():
    def weights(in_units):
        mx.random.seed(7)
        net = nn.HybridSequential()
        net.add(nn.Dense(3, in_units=in_units[0]), nn.Dense(2, in_units=in_units[1]))
        net.initialize(init.Xavier())
        net[1](nd.ones((1, 3)))  # the second layer's shape is known first
        net(nd.ones((1, 4)))
        return [each.data().asnumpy() for each in net.collect_params().values()]

    for early, late in zip(weights((4, 3)), weights((0, 0)), strict=True):
        assert np.array_equal(early, late)


def test_initializing_does_not_shift_other_random_numbers():
    mx.random.seed(1)
    expected = nd.random.uniform(shape=(3,)).asnumpy()
    mx.random.seed(1)
    nn.Dense(3, in_units=4).initialize(init.Normal())
    assert np.array_equal(nd.random.uniform(shape=(3,)).asnumpy(), expected)


def test_a_users_initializer_may_draw_from_nd_random():
    class Mine(init.Initializer):
        def _init_weight(self, name, arr):
            arr[:] = nd.random.uniform(2, 3, shape=arr.shape)

    mx.random.seed(1)
    expected = nd.random.uniform(shape=(3,)).asnumpy()
    mx.random.seed(1)
    layer = nn.Dense(3, in_units=4)
    layer.initialize(Mine())
    assert layer.weight.data().asnumpy().min() >= 2
    assert np.array_equal(nd.random.uniform(shape=(3,)).asnumpy(), expected)


# -- dictionaries --------------------------------------------------------------------------------------------------


def test_get_makes_or_finds():
    params = gluon.ParameterDict("net_")
    weight = params.get("weight", shape=(2, 0))
    assert params.get("weight", shape=(0, 5)) is weight
    assert weight.shape == (2, 5)
    with pytest.raises(ValueError, match="'net_weight' exists already with shape"):
        params.get("weight", shape=(3, 5))


def test_get_shares():
    first = gluon.ParameterDict("net_")
    weight = first.get("weight", shape=(2,))
    assert gluon.ParameterDict("net_", shared=first).get("weight") is weight


def test_an_unknown_name_suggests_the_nearest():
    params = gluon.ParameterDict("net_")
    params.get("weight", shape=(2,))
    with pytest.raises(KeyError, match="did you mean 'net_weight'"):
        params["net_wieght"]


def test_two_parameters_of_one_name_are_refused():
    net = nn.HybridSequential()
    net.add(nn.Dense(1, prefix="a_"), nn.Dense(1, prefix="a_"))
    with pytest.raises(ValueError, match="two different parameters are named 'a_weight'"):
        net.collect_params()


def test_setattr_on_all():
    net = nn.Dense(2, in_units=2)
    net.initialize()
    net.collect_params().setattr("grad_req", "null")
    assert {each.grad_req for each in net.collect_params().values()} == {"null"}
    net.collect_params().setattr("lr_mult", 0.5)
    assert net.weight.lr_mult == 0.5


@pytest.mark.parametrize("kind", ["stype", "grad_stype"])
def test_storage_types_are_checked(kind):
    with pytest.raises(AssertionError, match=f"{kind} of 'weight' must be 'default', 'row_sparse' or 'csr'") as raised:
        gluon.Parameter("weight", shape=(2, 2), **{kind: "sparse"})
    assert isinstance(raised.value, ValueError)
