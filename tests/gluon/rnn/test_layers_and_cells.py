"""gluon.rnn: fused and unrolled are the same, hybrid follows eager, lengths, states, modifiers, errors."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import AttributeSpecError, HybridizeError, HybridLabError, ShapeError
from hybrid_lab.gluon import contrib, nn, rnn
from tests.triton_device import use_triton

ENGINES = ["numpy", "onnxruntime", "triton"]


@pytest.fixture
def engine(request, monkeypatch):
    if request.param == "triton":
        use_triton(monkeypatch)
    elif request.param == "onnxruntime":
        pytest.importorskip("onnxruntime")
    return request.param


each_engine = pytest.mark.parametrize("engine", ENGINES, indirect=True)
each_layer = pytest.mark.parametrize("layer", [rnn.RNN, rnn.LSTM, rnn.GRU], ids=lambda layer: layer.__name__)


def sequence(*shape: int, seed: int = 3):
    return nd.array(np.random.RandomState(seed).uniform(-1, 1, shape).astype(np.float32))


def close(actual, wanted, tolerance: float = 1e-5) -> None:
    actual, wanted = actual.asnumpy(), wanted.asnumpy()
    assert actual.shape == wanted.shape
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=tolerance * max(np.abs(wanted).max(), 1e-3))


def flat(result) -> list:
    if isinstance(result, (list, tuple)):
        return [leaf for item in result for leaf in flat(item)]
    return [result]


def run(net, *inputs):
    """Outputs and all gradients of the sum of squares, in training mode."""
    for array in flat(inputs):
        array.attach_grad()
    with autograd.record():
        outputs = flat(net(*inputs))
        loss = sum((y * y).sum() for y in outputs)
    loss.backward()
    return [*outputs, *(array.grad for array in flat(inputs)), *(p.grad() for p in net.collect_params().values())]


# -- layers --------------------------------------------------------------------------------------------------------


@each_engine
@each_layer
def test_hybrid_follows_eager(layer, engine: str):
    net = layer(4, 2, bidirectional=True)
    net.initialize()
    x, states = sequence(3, 3, 6), net.begin_state(3, nd.ones)
    eager = run(net, x, states)
    net.hybridize(engine=engine)
    for found, wanted in zip(run(net, x, states), eager, strict=True):
        close(found, wanted, 1e-4)
    net.hybridize(False)
    eager = net(x)
    net.hybridize(engine=engine)
    close(net(x), eager)


@each_layer
@pytest.mark.parametrize("layout", ["TNC", "NTC"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_unrolled_cells_are_the_fused_layer(layer, layout: str, bidirectional: bool):
    net = layer(4, 2, layout=layout, bidirectional=bidirectional, input_size=6)
    net.initialize()
    x = sequence(5, 3, 6)
    cells = net._unfuse()
    assert set(cells.collect_params()) == set(net.collect_params())

    def unrolled(x):
        return cells.unroll(x.shape[layout.index("T")], x, layout=layout, merge_outputs=True)[0]

    with autograd.record():
        fused = net(x)
        (fused * fused).sum().backward()
    wanted = {name: parameter.grad().copy() for name, parameter in net.collect_params().items()}
    with autograd.record():
        y = unrolled(x)
        (y * y).sum().backward()
    close(y, fused)
    for name, parameter in net.collect_params().items():
        close(parameter.grad(), wanted[name], 1e-4)


@each_layer
def test_sequence_length(layer):
    net = layer(4, 2, bidirectional=True, use_sequence_length=True)
    net.initialize()
    x, lengths = sequence(5, 3, 6), nd.array([2, 5, 1])
    states = net.begin_state(3)
    y, new = net(x, states, lengths)
    assert not y[2:, 0].asnumpy().any() and y[:2, 0].asnumpy().any()
    net.hybridize(engine="numpy")
    again, hybrid_new = net(x, states, lengths)
    close(again, y)
    for found, wanted in zip(hybrid_new, new, strict=True):
        close(found, wanted)
    cells = net._unfuse()
    unrolled, _ = cells.unroll(5, x, layout="TNC", merge_outputs=True, valid_length=lengths)
    close(unrolled, y)


def test_states_are_checked_and_a_single_one_is_taken_as_it_is():
    net = rnn.GRU(4)
    net.initialize()
    x = sequence(5, 3, 6)
    y, (state,) = net(x, nd.zeros((1, 3, 4)))
    close(y, net(x))
    assert state.shape == (1, 3, 4)
    with pytest.raises(ShapeError, match=r"a state has shape \(1, 2, 4\); inputs \(5, 3, 6\) need \(1, 3, 4\)"):
        net(x, nd.zeros((1, 2, 4)))
    lstm = rnn.LSTM(4)
    lstm.initialize()
    with pytest.raises(ShapeError, match="has 2 states, 1 were given"):
        lstm(x, nd.zeros((1, 3, 4)))
    with pytest.raises(ShapeError, match="'TNC' or 'NTC'"):
        rnn.LSTM(4, layout="NCT")


def test_clipped_states_have_two_bounds():
    for bound in ("state_clip_min", "state_clip_max"):
        with pytest.raises(AttributeSpecError, match="state_clip_min and state_clip_max"):
            rnn.LSTM(4, **{bound: 0.1})
    net = rnn.LSTM(4, state_clip_min=-0.01, state_clip_max=0.01)
    net.initialize(mx.init.One())
    assert nd.abs(net(nd.ones((5, 3, 6)))).max().asscalar() < 0.011
    with pytest.raises(AttributeSpecError, match="do not clip"):
        net._unfuse()


def test_names_and_deferred_shapes():
    net = rnn.LSTM(4, 2, bidirectional=True, prefix="lstm_")
    net.initialize()
    names = [f"lstm_{d}{layer}_{kind}" for layer in (0, 1) for d in "lr" for kind in KINDS]
    assert list(net.collect_params()) == names
    assert net.l0_i2h_weight.shape == (16, 0) and net.r1_i2h_weight.shape == (16, 8)
    assert repr(net) == "LSTM(None -> 4, TNC, num_layers=2, bidirectional)"
    net.hybridize(engine="numpy")
    net(sequence(5, 3, 6))
    assert net.r0_i2h_weight.shape == (16, 6)
    assert repr(net) == "LSTM(6 -> 4, TNC, num_layers=2, bidirectional)"


KINDS = ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias")


def test_dropout_between_the_layers_is_the_same_eager_and_hybrid():
    net = rnn.LSTM(4, 3, dropout=0.5)
    net.initialize()
    x = sequence(5, 3, 6)
    mx.random.seed(4)
    eager = run(net, x)
    following = nd.random.uniform(shape=(3,))
    net.hybridize(engine="numpy")
    mx.random.seed(4)
    for found, wanted in zip(run(net, x), eager, strict=True):
        close(found, wanted, 1e-4)
    np.testing.assert_array_equal(nd.random.uniform(shape=(3,)).asnumpy(), following.asnumpy())
    close(net(x), net(x))  # prediction drops nothing


def test_a_layer_is_saved_and_opened_without_code(tmp_path):
    net = rnn.GRU(4, 2)
    net.initialize()
    x = sequence(5, 3, 6)
    y = net(x)
    net.save(tmp_path / "gru.hlab")
    again = gluon.load(tmp_path / "gru.hlab")
    close(again(x), y)


def test_gradients_in_prediction_mode():
    net = rnn.LSTM(4, 2, dropout=0.5)
    net.initialize()
    x = sequence(5, 3, 6)
    gradients = []
    for hybrid in (False, True):
        net.hybridize(hybrid, engine="numpy")
        x.attach_grad()
        with autograd.record(train_mode=False):
            loss = (net(x) ** 2).sum()
        loss.backward(train_mode=False)
        gradients.append(x.grad.copy())
    close(gradients[1], gradients[0], 1e-4)


# -- cells ---------------------------------------------------------------------------------------------------------


class Unrolled(gluon.HybridBlock):
    """A cell, unrolled inside a hybrid block."""

    def __init__(self, cell, merge=True, steps=5, **keywords):
        super().__init__(**keywords)
        self.cell, self.merge, self.steps = cell, merge, steps

    def hybrid_forward(self, F, x, *lengths):
        length = lengths[0] if lengths else None
        outputs, states = self.cell.unroll(self.steps, x, merge_outputs=self.merge, valid_length=length)
        return outputs, states


def stack(*cells):
    made = rnn.HybridSequentialRNNCell()
    for cell in cells:
        made.add(cell)
    return made


CELLS = {
    "rnn": lambda: rnn.RNNCell(4, activation="relu"),
    "lstm": lambda: rnn.LSTMCell(4),
    "gru": lambda: rnn.GRUCell(4),
    "stack": lambda: stack(rnn.LSTMCell(4), rnn.DropoutCell(0.3), rnn.GRUCell(3)),
    "residual": lambda: rnn.ResidualCell(rnn.RNNCell(6)),
    "zoneout": lambda: rnn.ZoneoutCell(rnn.LSTMCell(4), zoneout_outputs=0.3, zoneout_states=0.2),
    "both ways": lambda: rnn.BidirectionalCell(rnn.LSTMCell(4), rnn.GRUCell(3)),
    "projected": lambda: contrib.rnn.LSTMPCell(5, 3),
    "one mask": lambda: contrib.rnn.VariationalDropoutCell(rnn.LSTMCell(4), 0.3, 0.2, 0.1),
    "one mask outside": lambda: contrib.rnn.VariationalDropoutCell(rnn.LSTMCell(4), drop_inputs=0.3, drop_outputs=0.4),
    "nested": lambda: stack(
        rnn.BidirectionalCell(rnn.GRUCell(3), rnn.GRUCell(3)), rnn.ResidualCell(rnn.ZoneoutCell(rnn.GRUCell(6), 0.2))
    ),
}
each_cell = pytest.mark.parametrize("make", CELLS.values(), ids=list(CELLS))


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        pytest.param(name, engine, marks=[pytest.mark.long] * ((name, engine) == ("nested", "triton")))
        for name in CELLS
        for engine in ENGINES
    ],
    indirect=["engine"],
)
def test_an_unrolled_cell_in_a_hybrid_block(name: str, engine: str):
    """A first step, one between others, and a last step. On Triton, where the work grows faster than the steps, cells
    that are made of the first three have no step between others.
    """
    steps = 2 if engine == "triton" and name not in ("rnn", "lstm", "gru") else 3
    net = Unrolled(CELLS[name](), steps=steps)
    net.initialize()
    x = sequence(3, steps, 6)
    mx.random.seed(2)
    eager = run(net, x)
    net.hybridize(engine=engine)
    mx.random.seed(2)
    for found, wanted in zip(run(net, x), eager, strict=True):
        close(found, wanted, 1e-4)


@each_cell
def test_valid_length_eager_and_hybrid(make):
    net = Unrolled(make())
    net.initialize()
    x, lengths = sequence(3, 5, 6), nd.array([2, 5, 1])
    eager = flat(net(x, lengths))
    assert not eager[0][0, 2:].asnumpy().any()
    net.hybridize(engine="numpy")
    for found, wanted in zip(flat(net(x, lengths)), eager, strict=True):
        close(found, wanted)


@each_cell
def test_saved_and_opened_without_code(make, tmp_path):
    net = Unrolled(make())
    net.initialize()
    x = sequence(3, 5, 6)
    net.hybridize(engine="numpy")
    y = flat(net(x))
    net.save(tmp_path / "net.hlab")
    for found, wanted in zip(flat(gluon.load(tmp_path / "net.hlab")(x)), y, strict=True):
        close(found, wanted)
    again = Unrolled(make())
    again.load(tmp_path / "net.hlab")
    for found, wanted in zip(flat(again(x)), y, strict=True):
        close(found, wanted)


def test_outputs_come_as_a_list_or_as_one_tensor():
    cell = rnn.GRUCell(4)
    cell.initialize()
    x = sequence(3, 5, 6)
    whole, _ = cell.unroll(5, x, merge_outputs=True)
    steps, _ = cell.unroll(5, x, merge_outputs=False)
    assert whole.shape == (3, 5, 4) and len(steps) == 5 and steps[0].shape == (3, 4)
    close(nd.stack(*steps, axis=1), whole)
    close(cell.unroll(5, x.swapaxes(0, 1), layout="TNC", merge_outputs=True)[0].swapaxes(0, 1), whole)
    close(cell.unroll(5, [x[:, index] for index in range(5)], merge_outputs=True)[0], whole)
    masked, _ = cell.unroll(5, x, merge_outputs=False, valid_length=nd.array([2, 5, 1]))
    assert len(masked) == 5 and not masked[4][0].asnumpy().any()
    with pytest.raises(HybridLabError, match="length=4, but the inputs have 5 steps"):
        cell.unroll(4, x)
    with pytest.raises(HybridLabError, match="length=4, but there are 5 inputs"):
        cell.unroll(4, steps)


def test_a_step_is_a_call():
    cell = rnn.LSTMCell(4)
    cell.initialize()
    x, states = sequence(3, 6), cell.begin_state(3)
    assert [state.shape for state in states] == [(3, 4), (3, 4)]
    y, new = cell(x, states)
    cell.hybridize(engine="numpy")
    hybrid, hybrid_new = cell(x, states)
    close(hybrid, y)
    close(hybrid_new[1], new[1])
    close(cell.unroll(2, nd.stack(x, x, axis=1))[0][0], y)


def test_a_wrapped_cell_is_used_through_its_wrapper():
    cell = rnn.GRUCell(4)
    wrapper = rnn.ZoneoutCell(cell, 0.1)
    assert wrapper.prefix == cell.prefix + "zoneout"
    assert [state.shape for state in wrapper.begin_state(3)] == [(3, 4)]
    with pytest.raises(HybridLabError, match="wrapped by a modifier cell"):
        cell.begin_state(3)
    with pytest.raises(HybridLabError, match="wrapped by a modifier cell"):
        rnn.ResidualCell(cell)
    with pytest.raises(HybridLabError, match="apply ZoneoutCell to the cells inside"):
        rnn.ZoneoutCell(rnn.BidirectionalCell(rnn.GRUCell(4), rnn.GRUCell(4)))
    with pytest.raises(NotImplementedError, match="call unroll"):
        rnn.BidirectionalCell(rnn.GRUCell(4), rnn.GRUCell(4))(sequence(3, 6), [])


@pytest.mark.parametrize(
    ("make", "need"),
    [
        (lambda: rnn.ZoneoutCell(rnn.RNNCell(20), zoneout_outputs=0.5), "output of the previous step"),
        (lambda: rnn.ZoneoutCell(rnn.RNNCell(20), 0.5, 0.3), "output of the previous step"),
        (lambda: contrib.rnn.VariationalDropoutCell(rnn.RNNCell(20), 0.5, 0.3, 0.3), "masks of the first step"),
        (lambda: contrib.rnn.VariationalDropoutCell(rnn.RNNCell(20), 0.5), "masks of the first step"),
    ],
)
def test_cells_that_need_earlier_steps_are_no_graphs_of_one_step(make, need, caplog):
    """They run eagerly where they are called or unrolled on arrays, and are part of a graph that unrolls them."""

    class Unrolled(gluon.HybridBlock):
        def __init__(self, cell):
            super().__init__()
            self.cell = cell

        def hybrid_forward(self, F, x):
            return self.cell.unroll(4, x, merge_outputs=True)[0]

    cell, x, found = make(), sequence(3, 4, 6), []
    cell.initialize()
    net = Unrolled(cell)
    calls = [
        (cell, False, lambda: cell.unroll(4, x, merge_outputs=True)[0]),
        (cell, True, lambda: cell.unroll(4, x, merge_outputs=True)[0]),
        (net, True, lambda: net(x)),
    ]
    for block, hybridized, unroll in calls:
        block.hybridize(hybridized, engine="numpy")
        mx.random.seed(3)
        with autograd.train_mode():
            found.append(unroll())
    close(found[1], found[0])
    close(found[2], found[0])
    net.hybridize(False)
    cell.hybridize(engine="numpy")
    with autograd.train_mode():
        one, states = cell(sequence(3, 6), cell.begin_state(3))
        again, _ = cell(sequence(3, 6), states)
    assert one.shape == again.shape == (3, 20)
    steps, _ = cell.unroll(3, [mx.sym.var(f"t{number}") for number in range(3)], merge_outputs=False)
    assert [f"t{number}" for number in range(3)] == [
        name for name in mx.sym.Group(steps).list_arguments() if name.startswith("t")
    ]
    cell.reset()
    cell.hybridize(engine="numpy", strict=True)
    with autograd.train_mode(), pytest.raises(HybridizeError, match=f"HL173.*{need}"):
        cell(sequence(3, 6), cell.begin_state(3))


def test_one_dropout_mask_for_all_steps():
    cell = contrib.rnn.VariationalDropoutCell(rnn.RNNCell(20), drop_states=0.5, drop_outputs=0.5)
    cell.initialize()
    with autograd.train_mode():
        steps, _ = cell.unroll(4, sequence(3, 4, 6))
        again, _ = cell.unroll(4, sequence(3, 4, 6))
    zeros = [step.asnumpy() == 0 for step in steps]
    assert all((each == zeros[0]).all() for each in zeros) and 0.2 < zeros[0].mean() < 0.8
    assert (zeros[0] != (again[0].asnumpy() == 0)).any()


def test_convolutional_cells_say_what_they_need():
    cell = contrib.rnn.Conv2DLSTMCell((2, 8, 7), 3, i2h_kernel=3, h2h_kernel=5, i2h_pad=1)
    assert repr(cell) == "Conv2DLSTMCell(2 -> 12, tanh, NCHW)"
    assert [info["shape"] for info in cell.state_info(4)] == [(4, 3, 8, 7)] * 2
    with pytest.raises(HybridLabError, match="the sizes must be odd"):
        contrib.rnn.Conv1DRNNCell((2, 8), 3, i2h_kernel=3, h2h_kernel=2)
    with pytest.raises(HybridLabError, match="'NCW' is supported"):
        contrib.rnn.Conv1DRNNCell((2, 8), 3, i2h_kernel=3, h2h_kernel=3, conv_layout="NWC")
    with pytest.raises(HybridLabError, match="CHW is needed, 3 sizes"):
        contrib.rnn.Conv2DRNNCell((2, 8), 3, i2h_kernel=3, h2h_kernel=3)


def test_zoneout_keeps_the_step_before():
    cell = rnn.ZoneoutCell(rnn.RNNCell(50), zoneout_outputs=0.5)
    cell.initialize()
    x = sequence(3, 5, 6)
    with autograd.train_mode():
        steps, _ = cell.unroll(5, x)
    kept = steps[2].asnumpy() == steps[1].asnumpy()
    assert 0.3 < kept.mean() < 0.7


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"], indirect=True)
def test_a_model_trains_the_same_eager_and_hybrid(engine: str):
    """A language model of two LSTM layers with dropout: 50 steps."""

    class Model(gluon.HybridBlock):
        def __init__(self, **keywords):
            super().__init__(**keywords)
            with self.name_scope():
                self.embedding = nn.Embedding(30, 8)
                self.drop = nn.Dropout(0.2)
                self.lstm = rnn.LSTM(8, 2, dropout=0.2)
                self.head = nn.Dense(30, flatten=False)

        def hybrid_forward(self, F, x, states):
            y, states = self.lstm(self.drop(self.embedding(x)), states)
            return self.head(self.drop(y)), states

    words = np.random.RandomState(0).randint(0, 30, (51 * 7, 4))
    losses = []
    for hybrid in (False, True):
        mx.random.seed(5)
        net = Model()
        net.initialize(mx.init.Xavier())
        net.hybridize(hybrid, engine=engine)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
        loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
        states, history = net.lstm.begin_state(4), []
        for step in range(50):
            x, y = (nd.array(words[step * 7 + shift : step * 7 + 7 + shift]) for shift in (0, 1))
            states = [state.detach() for state in states]
            with autograd.record():
                output, states = net(x, states)
                loss = loss_of(output, y).mean()
            loss.backward()
            gluon.utils.clip_global_norm([p.grad() for p in net.collect_params().values()], 1.0)
            trainer.step(1)
            history.append(float(loss.asscalar()))
        losses.append(history)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)


@pytest.mark.parametrize("layer", [rnn.RNN, rnn.GRU, rnn.LSTM])
@pytest.mark.parametrize("settings", [{"bidirectional": True}, {"num_layers": 2}, {}])
@pytest.mark.parametrize("hybrid", [False, True])
def test_shared_parameters_of_another_input_size_are_refused_even_where_the_packed_size_fits(layer, settings, hybrid):
    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.first = layer(3)
            self.second = layer(3, params=self.first.params, **settings)

        def forward(self, x):
            return self.second(self.first(x))

    net = Net()
    net.initialize()
    net.hybridize(hybrid, engine="numpy")
    with pytest.raises(ShapeError):  # r0_i2h_weight with 5 columns would make up for l0_i2h_weight with 1
        net(nd.ones((5, 2, 1)))
