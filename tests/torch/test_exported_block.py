"""torch.export of Blocks as modules of torch: one operator of the program, with open sizes."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.gluon import nn, rnn

torch = pytest.importorskip("torch")

from hybrid_lab.torch import exported_block  # noqa: E402 - it needs torch


def dense(*layers):
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu", in_units=3), nn.BatchNorm(in_channels=4), nn.Dropout(0.5), *layers)
    net.initialize()
    net.hybridize()
    return net


def operators(program):
    return [
        node.target.name()
        for node in program.graph.nodes
        if node.op == "call_function" and hasattr(node.target, "name")
    ]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("is_open", [False, True])
def test_the_program_gives_what_the_module_gives(inside, is_open):
    module = mx.torch.module(dense(nn.Dense(2, in_units=4))).eval()
    name = "args"
    if inside:
        module, name = torch.nn.Sequential(torch.nn.Linear(3, 3), module, torch.nn.ReLU()).eval(), "input"
    sizes = {0: torch.export.Dim("batch")}
    shapes = {name: sizes if inside else (sizes,)} if is_open else None
    program = torch.export.export(module, (torch.randn(5, 3),), dynamic_shapes=shapes)
    assert operators(program).count("hybrid_lab::block") == 1
    for batch in (5, 1, 9) if is_open else (5,):
        x = torch.randn(batch, 3)
        torch.testing.assert_close(program.module()(x), module(x))


def test_the_weights_are_the_programs():
    """Parameters are inputs of the operator: other values give what the Block would give with them."""
    net = dense()
    module = mx.torch.module(net).eval()
    program = torch.export.export(module, (torch.ones(2, 3),))
    assert set(program.state_dict) == set(module.state_dict())
    runs, before = program.module(), net[0].weight.data().asnumpy()
    with torch.no_grad():
        other = {name: torch.rand_like(tensor) for name, tensor in runs.state_dict().items()}
        runs.load_state_dict(other, assign=True)
    x = torch.randn(2, 3)
    found = runs(x)
    np.testing.assert_array_equal(net[0].weight.data().asnumpy(), before)
    module.load_state_dict(other)
    torch.testing.assert_close(found, module(x))


class Many(gluon.HybridBlock):
    def hybrid_forward(self, F, x, states):
        return {"sum": x + states[0], "rest": [F.Concat(x, states[1], dim=1), F.mean(x, axis=1)]}


def test_structures_and_sizes_that_are_sums_of_open_ones():
    net = Many()
    net.hybridize()
    module = mx.torch.module(net).eval()
    batch, width = torch.export.Dim("batch"), torch.export.Dim("width")
    args = (torch.randn(4, 3), [torch.randn(4, 3), torch.randn(4, 2)])
    shapes = {"args": ({0: batch}, [{0: batch}, {0: batch, 1: width}])}
    program = torch.export.export(module, args, dynamic_shapes=shapes)
    x, states = torch.randn(6, 3), [torch.randn(6, 3), torch.randn(6, 7)]
    found, wanted = program.module()(x, states), module(x, states)
    assert found.keys() == wanted.keys() and found["rest"][0].shape == (6, 10)
    for one, other in zip((found["sum"], *found["rest"]), (wanted["sum"], *wanted["rest"]), strict=True):
        torch.testing.assert_close(one, other)


class Flat(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.reshape(x, (-3, 0)) * 2


def test_a_size_that_is_a_product_of_open_ones():
    class Mean(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, x):
            flat = self.module(x)
            return flat.sum(0) / flat.shape[0]

    net = Flat()
    net.hybridize()
    module = Mean(mx.torch.module(net).eval())
    shapes = {"x": {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}}
    program = torch.export.export(module, (torch.randn(3, 4, 5),), dynamic_shapes=shapes)
    for x in (torch.randn(6, 7, 5), torch.randn(3, 9, 5)):
        torch.testing.assert_close(program.module()(x), module(x))


def test_a_size_that_is_a_product_of_three_open_ones_is_refused():
    class Flattened(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.reshape(x, (-1,))

    net = Flattened()
    net.hybridize()
    shapes = {"args": ({axis: torch.export.Dim(name) for axis, name in enumerate("abc")},)}
    with pytest.raises(Exception, match="no sum of multiples of the open sizes and of products of two"):
        torch.export.export(mx.torch.module(net).eval(), (torch.ones(2, 3, 4),), dynamic_shapes=shapes)


def test_weights_that_do_not_fit_leave_the_block_as_it_was():
    net = dense(nn.Dense(2, in_units=4))
    program = torch.export.export(mx.torch.module(net).eval(), (torch.ones(2, 3),)).module()
    before = {name: value.data().asnumpy() for name, value in net.collect_params().items()}
    weights = [torch.full_like(item, 7.0) for item in program.state_dict().values()]
    name = next(node.args[0] for node in program.graph.nodes if "hybrid_lab" in str(node.target))
    with pytest.raises(HybridLabError):
        torch.ops.hybrid_lab.block(name, [torch.ones(2, 3)], [*weights[:-1], torch.zeros(1, 1, 9)])
    for name, value in net.collect_params().items():
        np.testing.assert_array_equal(value.data().asnumpy(), before[name])


def test_a_recurrent_layer_with_states():
    layer = rnn.LSTM(4, input_size=3)
    layer.initialize()
    module = mx.torch.module(layer).eval()
    args = (torch.randn(5, 2, 3), [torch.randn(1, 2, 4), torch.randn(1, 2, 4)])
    program = torch.export.export(module, args)
    (out, states), (want, others) = program.module()(*args), module(*args)
    for one, other in zip((out, *states), (want, *others), strict=True):
        torch.testing.assert_close(one, other)


def test_what_has_no_open_size_says_which():
    class Pairs(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.Reshape(F.batch_dot(F.expand_dims(x, 2), F.expand_dims(x, 1)), shape=(-1,))

    net = Pairs()
    net.hybridize()
    n = torch.export.Dim("n")
    with pytest.raises(Exception, match="axis 0 of result 0 is no multiple of the open size"):
        torch.export.export(mx.torch.module(net).eval(), (torch.ones(2, 3),), dynamic_shapes={"args": ({1: n},)})


def test_a_module_in_training_is_refused():
    with pytest.raises(mx.torch.TorchError, match=r"call eval\(\)"):
        torch.export.export(mx.torch.module(dense()).train(), (torch.ones(2, 3),))


def test_a_program_in_another_process_says_what_serves(tmp_path, monkeypatch):
    module = mx.torch.module(dense()).eval()
    torch.export.save(torch.export.export(module, (torch.ones(2, 3),)), tmp_path / "m.pt2")
    program = torch.export.load(tmp_path / "m.pt2")
    torch.testing.assert_close(program.module()(torch.ones(2, 3)), module(torch.ones(2, 3)))
    monkeypatch.setattr(exported_block, "_TRACED", {})
    with pytest.raises(mx.torch.TorchError, match="write_source"):
        program.module()(torch.ones(2, 3))


def test_the_block_stays_as_it_was():
    net = dense()
    x = nd.ones((2, 3))
    before = net(x).asnumpy()
    torch.export.export(mx.torch.module(net).eval(), (torch.ones(2, 3),))
    np.testing.assert_array_equal(net(x).asnumpy(), before)


def test_two_threads_never_give_one_name_to_two_calls(monkeypatch):
    """A thread that has not entered its call yet, as another one sees it: the table is empty."""

    class Late(dict):
        def __len__(self):
            return 0

    monkeypatch.setattr(exported_block, "_TRACED", Late())
    net = Many()
    net.hybridize()
    module = mx.torch.module(net).eval()
    first, second = (
        torch.export.export(module, (torch.ones(2, 3), [torch.ones(2, 3), torch.ones(2, width)])) for width in (2, 5)
    )
    for program, width in ((first, 2), (second, 5)):
        x, states = torch.rand(2, 3), [torch.rand(2, 3), torch.rand(2, width)]
        torch.testing.assert_close(program.module()(x, states)["rest"][0], module(x, states)["rest"][0])
    assert len(list(exported_block._TRACED)) == 2
