"""Recording and differentiating: gradients of gradients, requests, errors, memory."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics import AutogradError, DTypeError, HybridLabError, ShapeError
from hybrid_lab.ndarray import tape


def leaf(values, req="write", dtype="float32"):
    array = nd.array(values, dtype=dtype)
    array.attach_grad(req)
    return array


# -- gradients of gradients ------------------------------------------------------------------------------------------


def test_second_and_third_derivative():
    x = leaf([1, 2, 3])
    with autograd.record():
        y = x * x * x * x
        (first,) = autograd.grad(y, [x], create_graph=True)
        (second,) = autograd.grad(first, [x], create_graph=True)
        (third,) = autograd.grad(second, [x], create_graph=True)
    third.backward()
    assert first.asnumpy().tolist() == [4, 32, 108]
    assert second.asnumpy().tolist() == [12, 48, 108]
    assert third.asnumpy().tolist() == [24, 48, 72]
    assert x.grad.asnumpy().tolist() == [24, 24, 24]


def test_gradient_penalty():
    """The norm of a gradient as part of a loss, through dot, tanh and broadcasting."""
    x, w = leaf(np.random.RandomState(0).randn(4, 3)), leaf(np.random.RandomState(1).randn(3, 2))

    def penalty():
        y = nd.tanh(nd.dot(x, w))
        (dx,) = autograd.grad(y.sum(), [x], create_graph=True, retain_graph=True)
        return (dx * dx).sum()

    with autograd.record():
        loss = penalty()
    loss.backward()
    got = w.grad.asnumpy()
    for place in ((0, 0), (2, 1)):
        values = []
        for step in (1e-2, -1e-2):
            w[place] += step
            with autograd.record():
                values.append(penalty().asscalar())
            w[place] -= step
        assert np.isclose((values[0] - values[1]) / 2e-2, got[place], rtol=2e-3)


def test_second_derivative_through_indexing():
    x = leaf([[1, 2, 3], [4, 5, 6]])
    with autograd.record():
        y = (x[:, [0, 0, 2]] ** 3).sum() + (x[0] * x[0]).sum()
        (dx,) = autograd.grad(y, [x], create_graph=True)
        z = (dx * dx).sum()
    z.backward()
    counts = np.array([[2, 0, 1], [2, 0, 1]])
    values = np.array([[1.0, 2, 3], [4, 5, 6]])
    first = 3 * counts * values**2 + 2 * values * np.array([[1], [0]])
    assert np.allclose(dx.asnumpy(), first)
    assert np.allclose(x.grad.asnumpy(), 2 * first * (6 * counts * values + 2 * np.array([[1], [0]])))


def test_second_derivative_through_an_assignment():
    x = leaf([1, 2, 3])
    with autograd.record():
        y = nd.zeros((2, 3))
        y[:] = x * x
        (dx,) = autograd.grad((y * y).sum(), [x], create_graph=True)
        z = dx.sum()
    z.backward()
    assert dx.asnumpy().tolist() == [8, 64, 216]  # 2 rows of x^4
    assert x.grad.asnumpy().tolist() == [24, 96, 216]


def test_gradient_with_respect_to_an_intermediate_result():
    x = leaf([1, 2, 3])
    with autograd.record():
        y = x * 2
        z = y * y
    (dy,) = autograd.grad(z, [y])
    assert dy.asnumpy().tolist() == [4, 8, 12]
    assert x.grad.asnumpy().tolist() == [0, 0, 0]


# -- requests and modes ----------------------------------------------------------------------------------------------


def test_add_accumulates_over_backward_calls():
    x = leaf([1, 2], "add")
    for _ in range(3):
        with autograd.record():
            y = x * x
        y.backward()
    assert x.grad.asnumpy().tolist() == [6, 12]


def test_null_takes_no_part():
    x, frozen = leaf([1, 2]), leaf([3, 4], "null")
    with autograd.record():
        y = x * frozen
    y.backward()
    assert frozen.grad is None and x.grad.asnumpy().tolist() == [3, 4]


def test_zeros_arrive_where_no_gradient_does():
    """A gradient of the last step does not survive a step that has none."""
    x = leaf([1, 2])
    x.grad[:] = 7
    with autograd.record():
        y = nd.BlockGrad(x) * 2
    y.backward()
    assert x.grad.asnumpy().tolist() == [0, 0]


def test_the_gradient_keeps_its_identity():
    x = leaf([1, 2])
    held = x.grad
    with autograd.record():
        y = x * 5
    y.backward()
    assert x.grad is held and held.asnumpy().tolist() == [5, 5]


def test_fresh_marks_what_backward_wrote():
    x = leaf([1])
    assert not x._fresh_grad
    with autograd.record():
        y = x * 2
    y.backward()
    assert x._fresh_grad
    x._fresh_grad = False
    assert not x._fresh_grad


def test_modes_belong_to_the_thread():
    seen = []
    with autograd.record():
        thread = threading.Thread(target=lambda: seen.append((autograd.is_recording(), autograd.is_training())))
        thread.start()
        thread.join()
    assert seen == [(False, False)]


def test_a_mode_ends_with_an_error_too():
    with pytest.raises(KeyError), autograd.record():
        raise KeyError
    assert not autograd.is_recording() and not autograd.is_training()


def test_reading_the_mode_can_be_observed():
    seen = []
    tape.state.observe = seen.append
    try:
        autograd.is_training(), autograd.is_recording()
    finally:
        tape.state.observe = None
    assert seen == ["is_training", "is_recording"]


# -- writes in place -------------------------------------------------------------------------------------------------


def test_a_write_to_a_needed_value_is_an_error():
    x = leaf([1, 2, 3])
    with autograd.record():
        y = x * x
    x[:] = 5
    with pytest.raises(AutogradError, match=r"broadcast_mul needs its input \w+, a float32 array of shape \(3,\)"):
        y.backward()


def test_a_write_through_a_view_is_noticed():
    x = leaf([[1, 2], [3, 4]])
    row = x[0]
    with autograd.record():
        y = nd.exp(x)
        z = x * x
    row[:] = 9
    y.backward()  # exp reads its output only
    with pytest.raises(AutogradError):
        z.backward()


def test_a_write_to_a_value_that_is_not_needed_is_fine():
    x = leaf([1, 2, 3])
    with autograd.record():
        y = x + 1
    x[:] = 5
    y.backward()
    assert x.grad.asnumpy().tolist() == [1, 1, 1]


def test_a_write_to_a_needed_output_is_an_error():
    x = leaf([1, 2])
    with autograd.record():
        y = nd.exp(x)
    y[:] = 0
    with pytest.raises(AutogradError, match="exp needs its output"):
        y.backward()


def test_in_place_arithmetic_while_recording():
    x = leaf([1, 2])
    with autograd.record():
        with pytest.raises(AutogradError, match="has a gradient attached"):
            x += 1
        y = x * 2
        with pytest.raises(AutogradError, match="was computed under"):
            y *= 2
        total = nd.zeros((2,))
        total += y  # no history yet: the sum gets one
    total.backward()
    assert x.grad.asnumpy().tolist() == [2, 2] and total.asnumpy().tolist() == [2, 4]


def test_an_update_after_backward_is_fine():
    x = leaf([1, 2])
    for _ in range(2):
        with autograd.record():
            y = x * x
        y.backward()
        x -= 0.5 * x.grad
    assert x.asnumpy().tolist() == [0, 0]


def test_writing_a_recorded_value_into_a_part_is_an_error():
    x = leaf([1, 2, 3])
    y = nd.zeros((2, 3))
    with autograd.record(), pytest.raises(AutogradError, match="into a part"):
        y[0][:] = x * 2


def test_operators_with_auxiliary_states_may_update_them():
    x = leaf(np.random.RandomState(0).randn(8, 3))
    gamma, beta, mean, var = leaf([1, 1, 1]), leaf([0, 0, 0]), nd.zeros((3,)), nd.ones((3,))
    with autograd.record():
        y = nd.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False)
        z = nd.BatchNorm(y, gamma, beta, mean, var, fix_gamma=False)
        loss = (z * z).sum()
    assert not np.allclose(mean.asnumpy(), 0) and mean.version == 2
    loss.backward()
    assert np.isfinite(x.grad.asnumpy()).all() and np.isfinite(gamma.grad.asnumpy()).all()


# -- heads and histories ---------------------------------------------------------------------------------------------


def test_head_gradients_are_checked():
    x = leaf([1, 2, 3])
    with autograd.record():
        y = x * 2
    with pytest.raises(ShapeError, match=r"\(2,\).*\(3,\)"):
        y.backward(nd.ones((2,)), retain_graph=True)
    with pytest.raises(AutogradError, match="1 heads and 2 head gradients"):
        autograd.backward([y], [None, None])


def test_an_array_that_was_not_recorded_has_no_gradient():
    x = leaf([1])
    y = x * 2
    with pytest.raises(AutogradError, match="not in a computational graph"):
        y.backward()
    with pytest.raises(AutogradError, match="not in a computational graph"):
        autograd.grad(y, [x])


def test_backward_uses_the_history_up():
    x = leaf([1, 2])
    with autograd.record():
        y = x * x
        z = y * 3
    y.backward()
    with pytest.raises(AutogradError, match="retain_graph=True"):
        y.backward()
    with pytest.raises(AutogradError, match="retain_graph=True"):
        z.backward()
    with autograd.record():
        w = y * x  # y is a constant by now
    w.backward()
    assert x.grad.asnumpy().tolist() == [1, 4]


def test_variables_must_be_reachable():
    x, other = leaf([1]), leaf([1])
    with autograd.record():
        y = x * 2
    with pytest.raises(AutogradError, match="variable 1 of shape"):
        autograd.grad(y, [x, other])


def test_mark_variables_takes_existing_gradients():
    x, g = nd.ones((2,)), nd.zeros((2,))
    autograd.mark_variables([x], [g], "add")
    for _ in range(2):
        with autograd.record():
            y = x * 3
        y.backward()
    assert g.asnumpy().tolist() == [6, 6]
    with pytest.raises(ShapeError):
        autograd.mark_variables([x], [nd.zeros((3,))])
    with pytest.raises(HybridLabError):
        autograd.mark_variables([x], [g, g])


def test_get_symbol_needs_a_recorded_array():
    with pytest.raises(AutogradError):
        autograd.get_symbol(nd.ones((1,)))


# -- Function --------------------------------------------------------------------------------------------------------


class Sigmoid(autograd.Function):
    def forward(self, x):
        y = 1 / (1 + nd.exp(-x))
        self.save_for_backward(y)
        return y

    def backward(self, dy):
        (y,) = self.saved_tensors
        return dy * y * (1 - y)


def test_a_function_with_its_own_gradient():
    x = leaf([0.0, 1.0])
    with autograd.record():
        y = Sigmoid()(x) * 2
    y.backward()
    assert np.allclose(x.grad.asnumpy(), [0.5, 0.39322], atol=1e-5)


def test_what_a_function_saved_must_not_be_written_to():
    x = leaf([0.0, 1.0])
    with autograd.record():
        y = Sigmoid()(x)
    y[:] = 3
    with pytest.raises(AutogradError, match=r"Sigmoid needs saved_tensors\[0\].* written to since"):
        y.backward()


def test_a_function_with_several_inputs_and_outputs():
    class Pair(autograd.Function):
        def forward(self, a, b):
            assert not autograd.is_recording()
            return a * b, a + b

        def backward(self, dp, ds):
            assert ds.asnumpy().tolist() == [0, 0]  # nobody used the sum
            return dp * 10, None

    a, b = leaf([1, 2]), leaf([3, 4])
    with autograd.record():
        product, _ = Pair()(a, b)
    product.backward()
    assert a.grad.asnumpy().tolist() == [10, 10] and b.grad.asnumpy().tolist() == [0, 0]


def test_function_errors():
    class Wrong(autograd.Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            return dy, dy

    x = leaf([1, 2])
    function = Wrong()
    with autograd.record():
        y = function(x)
        with pytest.raises(AutogradError, match="called only once"):
            function(x)
    with pytest.raises(AutogradError, match="1 were expected, 2 were returned"):
        y.backward()
    with autograd.record():
        y = Sigmoid()(x)
        with pytest.raises(AutogradError, match="create_graph"):
            autograd.grad(y, [x], create_graph=True)

    class NoArray(autograd.Function):
        def forward(self, x):
            return 3

    with autograd.record(), pytest.raises(DTypeError):
        NoArray()(x)


# -- memory ----------------------------------------------------------------------------------------------------------


def test_long_histories_do_not_recurse():
    x = leaf([1.0])
    with autograd.record():
        y = x
        for _ in range(5000):
            y = y + 0.5
    y.backward()
    assert x.grad.asscalar() == 1
    with autograd.record():
        y = x
        for _ in range(20000):
            y = y + 0.5
    del y  # dropped without a backward: thousands of nodes go one after the other


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_dropped_result_takes_its_history_with_it(no_collector):
    x = leaf([1, 2])
    with autograd.record():
        middle = x * x
        y = Sigmoid()(middle * x)
    node = weakref.ref(middle.tape_link.node)
    del middle, y
    assert node() is None


def test_backward_frees_what_was_saved(no_collector):
    x = leaf([1, 2])
    with autograd.record():
        middle = x * x
        y = nd.exp(middle) * middle
    saved = weakref.ref(middle)
    node = weakref.ref(middle.tape_link.node)
    y.backward()
    assert node().entry is None
    del middle
    assert saved() is None and node() is None


def test_only_needed_values_are_kept(no_collector):
    x = leaf(np.ones((4, 4)))
    with autograd.record():
        shifted = x + 1
        y = (shifted + 2).sum()
    memory = weakref.ref(shifted.host_view)
    del shifted
    assert memory() is None  # no gradient reads it
    y.backward()
    assert x.grad.asnumpy().tolist() == np.ones((4, 4)).tolist()


# -- gradients of gradients of single operators ----------------------------------------------------------------------

_RANDOM = np.random.RandomState(3)
_OPERATORS = {
    "BatchNorm": (
        lambda x, g, b: nd.BatchNorm(
            x, g, b, nd.zeros(3, dtype="float64"), nd.ones(3, dtype="float64"), fix_gamma=False
        ),
        [(5, 3), (3,), (3,)],
    ),
    "BatchNorm_of_running_statistics": (
        lambda x, g, b: nd.BatchNorm(
            x, g, b, nd.ones(3, dtype="float64"), nd.full(3, 2, dtype="float64"), fix_gamma=False, use_global_stats=True
        ),
        [(5, 3), (3,), (3,)],
    ),
    "LayerNorm": (lambda x, g, b: nd.LayerNorm(x, g, b), [(4, 3), (3,), (3,)]),
    "softmax": (lambda x: nd.softmax(x, axis=1), [(4, 3)]),
    "FullyConnected": (lambda x, w, b: nd.FullyConnected(x, w, b, num_hidden=2), [(4, 3), (2, 3), (2,)]),
    "Convolution": (
        lambda x, w: nd.Convolution(x, w, no_bias=True, kernel=(2, 2), num_filter=2),
        [(1, 2, 4, 4), (2, 2, 2, 2)],
    ),
    "mean of squares": (lambda x: (x * x).mean(axis=1), [(4, 3)]),
}


@pytest.mark.parametrize("name", _OPERATORS)
def test_second_derivatives_of(name):
    """d/dx of |dy/dx|^2 against a numeric derivative in float64; y is cubed so that no derivative is constant."""
    function, shapes = _OPERATORS[name]
    inputs = [leaf(_RANDOM.rand(*shape) + 0.5, dtype="float64") for shape in shapes]
    weights = nd.array(_RANDOM.rand(*function(*inputs).shape), dtype="float64")

    def penalty():
        y = function(*inputs)
        gradients = autograd.grad((y * y * y * weights).sum(), inputs, create_graph=True)
        return sum((gradient * gradient).sum() for gradient in gradients)

    with autograd.record():
        loss = penalty()
    loss.backward()
    for array in inputs:
        place = tuple(size // 2 for size in array.shape)
        values = []
        for step in (1e-5, -1e-5):
            array[place] += step
            with autograd.record():
                values.append(penalty().asscalar())
            array[place] -= step
        assert np.isclose((values[0] - values[1]) / 2e-5, array.grad[place].asscalar(), rtol=1e-5, atol=1e-6)


def test_a_replayed_step_whose_inputs_depend_on_one_another():
    """The gradient of a step with respect to x is not that of what x became on the way to its second input."""
    x = leaf(np.arange(12.0).reshape(4, 3) ** 1.5, dtype="float64")
    with autograd.record():
        gamma = x.mean(axis=0)
        y = nd.LayerNorm(x, gamma, nd.zeros(3, dtype="float64"))
        (dx,) = autograd.grad((y * y).sum(), [x], create_graph=True, retain_graph=True)
    (plain,) = autograd.grad(_loss(x), [x])
    assert np.allclose(dx.asnumpy(), plain.asnumpy())


def _loss(x):
    with autograd.record():
        y = nd.LayerNorm(x, x.mean(axis=0), nd.zeros(3, dtype="float64"))
        return (y * y).sum()


def test_second_derivatives_of_a_hybridized_block():
    from hybrid_lab.gluon import HybridBlock

    class Product(HybridBlock):
        def hybrid_forward(self, F, x, y):
            return F.tanh(x * y) * y

    def second_order(block):
        x = leaf([0.5, 1.0])
        with autograd.record():
            z = block(x, x * x)  # one input depends on the other
            (dx,) = autograd.grad(z, [x], create_graph=True)
            penalty = (dx * dx).sum()
        penalty.backward()
        return dx.asnumpy(), x.grad.asnumpy()

    block = Product()
    eager = second_order(block)
    block.hybridize()
    hybrid = second_order(block)
    assert np.allclose(eager[0], hybrid[0]) and np.allclose(eager[1], hybrid[1])
    a = np.array([0.5, 1.0])
    first = 2 * a * np.tanh(a**3) + 3 * a**4 / np.cosh(a**3) ** 2
    assert np.allclose(eager[0], first, rtol=1e-5)


@pytest.mark.parametrize("function", [nd.radians, nd.BlockGrad, nd.zeros_like, nd.relu, lambda x: x + 1, nd.sum])
def test_a_constant_gradient_has_a_gradient_of_zeros(function):
    x, w = leaf([1.0, 2.0, -3.0]), leaf([1.0, 1.0, 1.0])
    x.grad[:] = 7
    with autograd.record():
        (dx,) = autograd.grad(function(x) * 3.0, [x], create_graph=True)
        (d2x,) = autograd.grad(dx, [x], create_graph=True)
    dx.backward()
    np.testing.assert_array_equal(d2x.asnumpy(), 0)
    np.testing.assert_array_equal(x.grad.asnumpy(), 0)
    with autograd.record():
        gradients = autograd.grad(x * w, [x, w], create_graph=True)
        rows = [autograd.grad(gradient, [x, w], retain_graph=True) for gradient in gradients]
    np.testing.assert_array_equal([[item.asnumpy()[0] for item in row] for row in rows], [[0, 1], [1, 0]])


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize(("key", "shape"), [(slice(None), (4,)), (1, (1, 1)), (1, (1, 4)), ((slice(None), 1), (1,))])
def test_a_broadcast_value_that_was_written_gets_a_sum(key, shape, create_graph):
    x, y = nd.ones(shape), nd.zeros((3, 4))
    x.attach_grad()
    with autograd.record():
        y[key] = x
        z = (y * y).sum()
        gradient = autograd.grad(z, x, create_graph=create_graph)[0]
    assert gradient.shape == shape and gradient.sum().asscalar() == 2 * y.sum().asscalar()


WRITES = {
    "x[0] = a": lambda x: x.__setitem__(0, nd.zeros((2,))),
    "x[0] = 1": lambda x: x.__setitem__(0, 1.0),
    "x[:] = a": lambda x: x.__setitem__(slice(None), nd.zeros((2, 2))),
    "x[:] = 1": lambda x: x.__setitem__(slice(None), 1.0),
    "x[0] = numpy": lambda x: x.__setitem__(0, np.zeros(2)),
    "x[:, 1] = a": lambda x: x.__setitem__((slice(None), 1), nd.zeros((2,))),
    "x[[0, 1], [0, 1]] = a": lambda x: x.__setitem__(([0, 1], [0, 1]), nd.zeros((2,))),
    "x += 1": lambda x: x.__iadd__(1),
    "x *= a": lambda x: x.__imul__(nd.ones((2, 2))),
    "out=x": lambda x: nd.elemwise_add(nd.ones((2, 2)), nd.ones((2, 2)), out=x),
    "relu(x, out=x)": lambda x: nd.relu(x, out=x),
    "copyto": lambda x: nd.ones((2, 2)).copyto(x),
    "x[0][:] = 1": lambda x: x[0].__setitem__(slice(None), 1.0),
    "x.reshape(-1)[:] = 1": lambda x: x.reshape(-1).__setitem__(slice(None), 1.0),
    "random(out=x)": lambda x: nd.random.uniform(shape=(2, 2), out=x),
}
"""MXNet refuses each of these, while it records, for an array with a gradient and for one that was computed."""


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("of", [lambda x: x, lambda x: x * 2], ids=["leaf", "result"])
def test_writes_that_are_refused_while_recording(write, of):
    x = nd.array([[1.0, 2.0], [3.0, 4.0]])
    x.attach_grad()
    with autograd.record(), pytest.raises(AutogradError, match="would make its gradient wrong"):
        write(of(x))
    write(x)  # allowed outside of record(), as under pause()
    with autograd.record():
        write(x.detach())
        with autograd.pause():
            write(x)


def test_a_numpy_array_may_replace_all_numbers_while_recording():
    x = nd.array([[1.0, 2.0], [3.0, 4.0]])
    x.attach_grad()
    with autograd.record():
        x[:] = np.full((2, 2), 3.0)
        y = x * x
    y.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), np.full((2, 2), 6.0))
    with autograd.record():
        y = x * x
        x[:] = np.zeros((2, 2))
    with pytest.raises(AutogradError, match="has been written to since"):
        y.backward()


@pytest.mark.parametrize("call", [lambda h: h * 3, nd.relu, lambda h: h.sum(), nd.Dropout, lambda h: h.copy(), nd.sign])
def test_a_result_whose_history_was_used_up_is_a_constant(call):
    x = nd.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        h = x * 2
        z = h.sum()
    z.backward()
    with autograd.record():
        y = call(h)
        total = (y + x).sum()
    with pytest.raises(AutogradError, match="not in a computational graph"):
        y.backward()
    total.backward()
    assert x.grad.asnumpy().tolist() == [1, 1]
