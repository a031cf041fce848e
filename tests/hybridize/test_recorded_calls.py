"""Recorded calls of a hybridized Block among other steps: gradients are those of eager calls, or an error."""

import numpy as np
import pytest

from hybrid_lab import autograd, init, nd, random
from hybrid_lab.diagnostics import AutogradError
from hybrid_lab.gluon import HybridBlock, nn
from hybrid_lab.hybridize.compiled_call import CompiledCall
from hybrid_lab.hybridize.compiled_entry import CompiledEntry


def both(run):
    """The same run eagerly and hybridized."""
    return run(False), run(True)


def test_a_gradient_that_an_earlier_step_reads_is_not_overwritten():
    def run(active):
        net = nn.HybridSequential()
        net.add(nn.Dense(300, in_units=300, activation="tanh"), nn.Dense(3, in_units=300))
        net.initialize(init.Constant(0.001))
        net.hybridize(active, engine="numpy")
        x, v = nd.ones((4, 300)), nd.ones((300, 300))
        v.attach_grad()
        with autograd.record():
            y = net(x)
        y.backward()
        g = net[0].weight.grad()
        before = g.asnumpy()
        with autograd.record():
            a = (g * v).sum()
            y = net(x * 10).sum() + a
        y.backward()
        np.testing.assert_array_equal(v.grad.asnumpy(), before)
        return net[0].weight.grad().asnumpy()

    eager, hybrid = both(run)
    np.testing.assert_allclose(hybrid, eager, rtol=1e-5)


# -- gradients of gradients --------------------------------------------------------------------------------------------


def relu_net():
    net = nn.Dense(2, in_units=3, activation="relu")
    net.initialize(init.One())
    net.hybridize(engine="numpy")
    return net


def test_a_second_gradient_refuses_a_parameter_that_only_it_reads():
    net, x = relu_net(), nd.ones((1, 3))
    x.attach_grad()
    with autograd.record():
        y = (net(x) ** 2).sum()
        with autograd.pause():
            net.bias.data()[:] = -100
        with pytest.raises(AutogradError, match=f"needs the parameter {net.bias.name}, .* has been written to since"):
            autograd.grad(y, x, create_graph=True)


def test_a_second_gradient_neither_minds_nor_updates_the_statistics_again():
    def run(active):
        net = nn.HybridSequential()
        net.add(nn.Dense(4, in_units=3), nn.BatchNorm(in_channels=4))
        net.initialize(init.Normal(1.0))
        net[0].weight.set_data(nd.array(np.arange(12.0).reshape(4, 3) % 5))
        net.hybridize(active, engine="numpy")
        x = nd.array(np.sin(np.arange(24.0)).reshape(8, 3))
        x.attach_grad()
        with autograd.record():
            y = net(x) ** 3
            (dx,) = autograd.grad(y, [x], create_graph=True)
            loss = (dx * dx).sum()
        loss.backward()
        return x.grad.asnumpy(), net[1].running_mean.data().asnumpy(), net[1].running_var.data().asnumpy()

    eager, hybrid = both(run)
    for one, other in zip(eager, hybrid, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4)


def test_the_error_names_the_parameter():
    net, x = relu_net(), nd.ones((1, 3))
    x.attach_grad()
    with autograd.record():
        y = net(x)
    net.weight.data()[:] = 2
    with pytest.raises(AutogradError, match=f"needs the parameter {net.weight.name}, a float32 array"):
        y.backward()


# -- which parameters have gradients -----------------------------------------------------------------------------------


def test_a_gradient_attached_to_the_array_of_a_frozen_parameter():
    def run(active):
        net = nn.Dense(2, in_units=3)
        net.initialize(init.One())
        net.weight.grad_req = "null"
        net.hybridize(active, engine="numpy")
        x = nd.ones((4, 3))
        with autograd.record():
            y = net(x)
        y.backward()
        net.weight.data().attach_grad()
        with autograd.record():
            y = net(x)
        y.backward()
        return net.weight.data().grad.asnumpy()

    eager, hybrid = both(run)
    assert hybrid.tolist() == eager.tolist() == [[4.0] * 3] * 2


def test_switching_between_two_sets_of_gradients_compiles_each_once():
    net = nn.Dense(2, in_units=3)
    net.initialize(init.One())
    net.hybridize(engine="numpy")
    x = nd.ones((1, 3))
    x.attach_grad()
    for step in range(6):
        net.collect_params().setattr("grad_req", "null" if step % 2 else "write")
        with autograd.record():
            y = net(x)
        y.backward()
        assert x.grad.asnumpy().tolist() == [[2.0] * 3]
        if step % 2 == 0:
            assert net.weight.grad().asnumpy().tolist() == [[1.0] * 3] * 2
    assert [item.kind for item in net._graph_calls.compilations] == ["first", "grad_req"]
    assert "needs no gradient, and 1 more" in net._graph_calls.compilations[1].reason


# -- the short way for a call that is all there is ---------------------------------------------------------------------


class OneInput(HybridBlock):
    def hybrid_forward(self, F, x):
        return F.relu(x * 2 + 1) * x


class Exp(HybridBlock):
    def hybrid_forward(self, F, x):
        return F.exp(x)


class Twice(HybridBlock):
    """Two outputs."""

    def hybrid_forward(self, F, x):
        return x * 2, F.exp(x)


class NoGradient(HybridBlock):
    """Nothing arrives at x."""

    def hybrid_forward(self, F, x):
        return F.BlockGrad(x) * 3 + x * 0


def dense():
    net = nn.Dense(3, in_units=4, activation="tanh")
    net.initialize(init.Constant(0.1))
    return net


def kept():
    """Something is kept from the forward for the backward, in one arena."""
    net = nn.HybridSequential()
    net.add(nn.Dense(5, in_units=4, activation="sigmoid"), nn.Dropout(0.5), nn.Dense(3, in_units=5))
    net.initialize(init.Constant(0.1))
    return net


def normed():
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=4), nn.BatchNorm(in_channels=3))
    net.initialize(init.Constant(0.1))
    return net


def no_short_way(monkeypatch):
    """Let every call go the general way."""
    monkeypatch.setattr(CompiledEntry, "finish_alone", lambda entry: None)
    monkeypatch.setattr(CompiledCall, "_shortest", lambda program: None)


def gradients_of(make, request, retain=False, weigh=None):
    """Gradients of the input and all parameters after some recorded calls, with their versions and whether fresh."""
    random.seed(3)
    net = make()
    net.hybridize(engine="numpy")
    x = nd.array(np.linspace(-1, 1, 8).reshape(2, 4))
    if request is not None:
        x.attach_grad(request)
    for parameter in net.collect_params().values():
        if parameter.grad_req != "null":
            parameter.grad_req = request or "write"
    places = [x, *(parameter.data() for parameter in net.collect_params().values())]
    for _ in range(3):  # the second one goes the way of calls whose program is known
        with autograd.record():
            y = net(x)
        heads = y if isinstance(y, tuple) else (y,)
        heads[-1].backward(None if weigh is None else nd.full(heads[-1].shape, weigh), retain_graph=retain)
        if retain:
            heads[-1].backward()
    return [
        (place.grad.asnumpy().tolist(), place.grad.version, place._fresh_grad)
        for place in places
        if place.grad is not None
    ]


@pytest.mark.parametrize("retain, weigh", [(False, None), (True, None), (False, 0.5)])
@pytest.mark.parametrize(
    "make, request_",
    [(make, request) for make in (OneInput, Twice, NoGradient, dense, kept, normed) for request in ("write", "add")]
    + [(dense, None), (kept, None), (normed, None)],
)
def test_the_short_way_gives_what_the_general_one_gives(make, request_, retain, weigh, monkeypatch):
    found = gradients_of(make, request_, retain, weigh)
    assert found
    no_short_way(monkeypatch)
    assert gradients_of(make, request_, retain, weigh) == found


def test_the_short_way_is_taken(monkeypatch):
    taken = []
    way = CompiledEntry.finish_alone
    monkeypatch.setattr(CompiledEntry, "finish_alone", lambda entry: taken.append(way(entry)) or taken[-1])
    for make in (OneInput, dense, kept):
        gradients_of(make, "write")
        assert len(taken) == 3 and None not in taken
        taken.clear()


@pytest.mark.parametrize("make", [OneInput, NoGradient, dense, kept, normed])
def test_ones_that_a_program_keeps_are_not_written_to(make):
    net = make()
    net.hybridize(engine="numpy")
    x = nd.ones((2, 4))
    x.attach_grad()
    for _ in range(3):
        with autograd.record():
            y = net(x)
        ones = y.tape_link.node.entry.program.ones
        for array in ones:
            array.flags.writeable = False  # whoever writes to it raises
        y.backward()
        x.grad[:] = 7
        assert all((array == 1).all() for array in ones)


def recorded_square():
    net = OneInput()
    net.hybridize(engine="numpy")
    x = nd.ones((2, 2))
    x.attach_grad()
    with autograd.record():
        net(x)
    with autograd.record():  # the way of calls whose program is known
        y = net(x)
    return net, x, y


def test_the_short_way_refuses_an_input_that_was_written_to():
    _, x, y = recorded_square()
    x[:] = 5
    with pytest.raises(AutogradError, match="needs the input, .* has been written to since"):
        y.backward()


def test_the_short_way_refuses_an_output_that_was_written_to():
    net = Exp()
    net.hybridize(engine="numpy")
    x = nd.ones((2, 2))
    x.attach_grad()
    for _ in range(2):
        with autograd.record():
            y = net(x)
    y[:] = 5
    with pytest.raises(AutogradError, match="needs output 0, .* has been written to since"):
        y.backward()


def test_the_short_way_uses_the_history_up_once():
    _, x, y = recorded_square()
    y.backward()
    assert x.grad.asnumpy().tolist() == [[5.0, 5.0]] * 2
    with pytest.raises(AutogradError, match="its history was used up"):
        y.backward()


def test_one_leaf_behind_two_inputs_gets_the_sum():
    class Product(HybridBlock):
        def hybrid_forward(self, F, a, b):
            return a * a * b

    net = Product()
    net.hybridize(engine="numpy")
    x = nd.full((2, 2), 3)
    x.attach_grad()
    for _ in range(2):
        with autograd.record():
            y = net(x, x)
        y.backward()
        assert x.grad.asnumpy().tolist() == [[27.0, 27.0]] * 2


def test_what_comes_after_and_before_is_differentiated_too():
    net, x, _ = recorded_square()
    with autograd.record():
        z = x * 2
        y = net(z)
        w = y.sum()
    w.backward()
    assert x.grad.asnumpy().tolist() == [[18.0, 18.0]] * 2  # y = 2 z^2 + z at z = 2
    with autograd.record():
        y = net(x * 2)
    y.backward()
    assert x.grad.asnumpy().tolist() == [[18.0, 18.0]] * 2


def test_another_grad_req_between_two_calls():
    net = dense()
    net.hybridize(engine="numpy")
    x = nd.ones((2, 4))
    found = []
    for request in ("write", "write", "add", "add", "null", "write"):
        net.weight.grad_req = request
        with autograd.record():
            y = net(x)
        y.backward()
        found.append(None if request == "null" else net.weight.grad().asnumpy()[0, 0])
    one = found[0]
    assert found[1] == found[5] == one
    assert np.allclose(found[2:4], [one, 2 * one]) and found[4] is None


def test_a_hook_sees_a_call_that_would_go_the_short_way():
    net, x, _ = recorded_square()
    seen = []
    net.register_forward_hook(lambda block, inputs, output: seen.append((inputs[0] is x, output.shape)))
    with autograd.record():
        y = net(x)
    y.backward()
    assert seen == [(True, (2, 2))]
    assert x.grad.asnumpy().tolist() == [[5.0, 5.0]] * 2


# -- outputs that nothing recorded leads to ----------------------------------------------------------------------------


class Half(HybridBlock):
    """Outputs with and without a history: only `w` is recorded where `x` has no gradient."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.w = self.params.get("w", shape=(3,), init="ones")

    def hybrid_forward(self, F, x, w):
        return x * 2, x * w, F.ones((3,)), F.BlockGrad(w), w > 0, F.zeros_like(w), (x, w)


class Nothing(HybridBlock):
    def hybrid_forward(self, F, x):
        return F.ones((3,)) * 2


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("make", [Half, Nothing])
def test_an_output_that_nothing_recorded_leads_to_has_no_history(make, tracked):
    def run(active):
        net, x, found = make(), nd.array([1.0, 2.0, 3.0]), []
        net.initialize()
        net.hybridize(active, engine="numpy")
        if tracked:
            x.attach_grad()
        for index in range(8 if make is Half else 1):
            with autograd.record():
                made = net(x)
                output = [*made[:-1], *made[-1]][index] if make is Half else made
                after = output * 3
            for array in (output, after):
                grads = [x.grad] if tracked else []
                grads += [parameter.grad() for parameter in net.collect_params().values()]
                for grad in grads:
                    grad[:] = 0
                try:
                    array.backward(retain_graph=True)
                except AutogradError as error:
                    assert "not in a computational graph" in str(error)
                    found.append("no history")
                else:
                    found.append([grad.asnumpy().tolist() for grad in grads])
        return found

    eager, hybrid = both(run)
    assert hybrid == eager and "no history" in hybrid


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("large", [False, True])
def test_a_backward_from_one_head_leaves_the_gradients_of_the_other(large, behind):
    """As eager mode does: heads may be trained in turn. behind : an eager layer before each of the heads' inputs"""

    class Heads(HybridBlock):
        def __init__(self, width):
            super().__init__()
            with self.name_scope():
                self.body, self.one, self.other = nn.Dense(width), nn.Dense(3), nn.Dense(2)

        def hybrid_forward(self, F, x, z):
            return self.one(self.body(x)), self.other(z)

    def gradients(hybrid):
        random.seed(1)
        net, first, second = Heads(40000 if large else 4), nn.Dense(3), nn.Dense(3)
        for block in (net, first, second):
            block.initialize()
        if hybrid:
            net.hybridize(engine="numpy")
        found = []
        for head in (0, 1, 0):
            with autograd.record():
                x = nd.ones((2, 3))
                loss = (net(*((first(x), second(x)) if behind else (x, x)))[head] ** 2).sum()
            loss.backward()
            parameters = [p for block in (net, first, second) for p in block._collect_params_with_prefix().values()]
            found += [p.grad().asnumpy() for p in parameters if p._data is not None]
        return found

    for one, other in zip(gradients(True), gradients(False), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
