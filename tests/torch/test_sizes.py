"""Sizes for which an imported module's graph holds: others give torch's numbers or a typed error, at every door."""

import copy
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics.errors import DeclaredSizeError, DTypeError, ShapeError


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class Masked(nn.Module):
    def forward(self, x, mask):
        return (x * mask).sum(1) / x.shape[1]


def _convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 1)
    )


def _odd():
    return {"x": {1: 2 * Dim("half", min=1, max=20) + 1}}


class Doubled(nn.Module):
    def forward(self, x):
        return x * 2


#: name -> (module, shapes of the example, dynamic_shapes, shapes that compute, shapes that are refused)
CASES = {
    "a size read as a number": (
        lambda: Function(lambda x: x.sum(1) / x.shape[1]),
        [(3, 6)],
        "batch",
        [[(5, 6)], [(1, 6)]],
        [[(3, 8)]],
    ),
    "all sizes fixed": (lambda: Function(lambda x: x[1:] * 1.0), [(3, 6)], {}, [[(3, 6)]], [[(4, 6)], [(3, 5)]]),
    "all sizes open": (lambda: Function(lambda x: x.sum(1) / x.shape[1]), [(3, 6)], "auto", [[(5, 8)], [(1, 2)]], []),
    "a branch on the batch": (
        lambda: Function(lambda x: x * 2 if x.shape[0] == 3 else x * 5),
        [(3, 6)],
        "batch",
        [[(3, 6)]],
        [[(4, 6)]],
    ),
    "the other branch": (
        lambda: Function(lambda x: x * 2 if x.shape[0] == 3 else x * 5),
        [(4, 6)],
        "batch",
        [[(5, 6)]],
        [[(3, 6)]],
    ),
    "a branch for many": (
        lambda: Function(lambda x: x * 2 if x.shape[0] > 3 else x * 5),
        [(4, 6)],
        "batch",
        [[(9, 6)]],
        [[(3, 6)]],
    ),
    "a branch for even": (
        lambda: Function(lambda x: x * 2 if x.shape[0] % 2 else x * 5),
        [(4, 6)],
        "batch",
        [[(6, 6)]],
        [[(5, 6)]],
    ),
    "a branch for one": (
        lambda: Function(lambda x: x * 2 if x.shape[0] == 1 else x * 5),
        [(4, 6)],
        "batch",
        [[(3, 6)]],
        [[(1, 6)]],
    ),
    "an example of one": (
        lambda: Function(lambda x: x * 2 if x.shape[0] == 1 else x * 5),
        [(1, 6)],
        "batch",
        [[(1, 6)]],
        [[(4, 6)]],
    ),
    "the smaller of two": (
        lambda: Function(lambda x: x * min(x.shape[0], 8)),
        [(4, 6)],
        "batch",
        [[(4, 6)]],
        [[(9, 6)]],
    ),
    "two inputs of one batch": (
        Masked,
        [(3, 6), (3, 6)],
        "batch",
        [[(5, 6), (5, 6)]],
        [[(5, 6), (4, 6)], [(1, 6), (5, 6)]],
    ),
    "a range": (Doubled, [(4, 6)], {"x": {0: Dim("b", min=3, max=64)}}, [[(64, 6)]], [[(2, 6)], [(65, 6)]]),
    "a derived size": (Doubled, [(4, 7)], "odd", [[(4, 9)]], [[(4, 8)]]),
    "another rank": (lambda: nn.ReLU(), [(3, 6)], "batch", [[(2, 6)]], [[(3, 6, 1)], [(3,)]]),
    "a layer's width": (lambda: nn.Linear(6, 2), [(3, 6)], "batch", [[(2, 6)]], [[(3, 5)]]),
    "convolutions": (
        _convolutions,
        [(2, 3, 16, 16)],
        "batch",
        [[(1, 3, 24, 20)], [(3, 3, 16, 16)]],
        [[(2, 4, 16, 16)]],
    ),
    "convolutions, fixed": (_convolutions, [(2, 3, 16, 16)], {}, [[(2, 3, 16, 16)]], [[(2, 3, 24, 16)]]),
    "any number of rows": (lambda: nn.Linear(6, 2), [(3, 4, 6)], "batch", [[(2, 9, 6)]], [[(2, 4, 5)]]),
    "flattened pixels": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(24, 2)),
        [(3, 4, 6)],
        "batch",
        [[(1, 4, 6)]],
        [[(3, 6, 4)]],
    ),
    "a recurrent layer": (
        lambda: Function(nn.GRU(6, 4, batch_first=True)),
        [(3, 5, 6)],
        "batch",
        [[(1, 5, 6)]],
        [[(3, 7, 6)]],
    ),
    "rows of a program": (
        lambda: torch.export.export(Masked(), (torch.ones(3, 6),) * 2),
        [(3, 6), (3, 6)],
        "batch",
        [[(3, 6), (3, 6)]],
        [[(4, 6), (4, 6)]],
    ),
}


def _imported(name):
    module, shapes, dynamic, good, bad = CASES[name]
    module = module()
    if isinstance(module, nn.Module):
        module.eval()
    example = tuple(torch.randn(*shape) for shape in shapes)
    net = mx.torch.imports(module, example, dynamic_shapes=_odd() if dynamic == "odd" else dynamic)
    return net, module if isinstance(module, nn.Module) else module.module(), good, bad


def _holds(net, module, good, bad):
    for shapes in good:
        inputs = [torch.randn(*shape) for shape in shapes]
        theirs = torch.utils._pytree.tree_leaves(module(*inputs))
        ours = net(*[nd.array(each.numpy()) for each in inputs])
        for one, two in zip(ours if isinstance(ours, (list, tuple)) else [ours], theirs, strict=True):
            np.testing.assert_allclose(one.asnumpy(), two.detach().numpy(), 1e-4, 1e-5)
    for shapes in bad:
        with pytest.raises(DeclaredSizeError, match="has the size|dimension"):
            net(*[nd.ones(shape) for shape in shapes])


#: Those of layers; `make test` has each way to declare a size.
OF_LAYERS = ("a layer's width", "convolutions", "convolutions, fixed", "flattened pixels", "a recurrent layer")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in OF_LAYERS)) for name in CASES])
def test_other_sizes_compute_or_are_refused(name, tmp_path):
    net, module, good, bad = _imported(name)
    _holds(net, module, good, bad)
    net.hybridize()
    _holds(net, module, good, bad)
    net.save(tmp_path / "a.hlab")
    again = gluon.load(tmp_path / "a.hlab")
    _holds(again, module, good, bad)
    again.hybridize()
    _holds(again, module, good, bad)


class Around(gluon.HybridBlock):
    """Calls a Block within its own graph."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def hybrid_forward(self, F, x, mask):
        return self.inner(x * 1.0, mask) + 0.0


class Plain(gluon.Block):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, mask):
        return self.inner(x, mask)


def _doors(net, folder):
    """The graph at every door, as functions of (x, mask)."""
    around = Around(net)
    yield "within an eager Block", around
    around = Around(net)
    around.hybridize()
    yield "within a hybridized Block", around
    around.save(folder / "around.hlab")
    yield "within a Block from an archive", gluon.load(folder / "around.hlab")
    other = Around(net)
    mx.load_cached_graphs(other, folder / "around.hlab", graphs="file")
    yield "a graph of a file in a live Block", other
    plain = Plain(net)
    plain.hybridize()
    yield "within a plain Block", plain
    net(nd.ones((3, 6)), nd.ones((3, 6)))
    net.export(str(folder / "m"))
    yield (
        "MXNet's files",
        gluon.SymbolBlock.imports(f"{folder}/m-symbol.json", ["x", "mask"], f"{folder}/m-0000.params"),
    )
    mx.onnx.export(net, folder / "m.onnx")
    yield "an ONNX file", mx.onnx.imports(folder / "m.onnx")
    mx.onnx.export(net, folder / "flat.onnx", flat=True)
    yield "an ONNX file's nodes", mx.onnx.OnnxBlock(folder / "flat.onnx")
    module = mx.torch.module(net)
    yield "a torch module", lambda x, mask: nd.array(module(*map(torch.tensor, (x.asnumpy(), mask.asnumpy()))).numpy())
    symbol = net(mx.sym.var("x"), mx.sym.var("mask"))
    yield "a bound Symbol", lambda x, mask: symbol.bind(mx.cpu(), {"x": x, "mask": mask}).forward()[0]

    def recorded(x, mask):
        with autograd.record():
            return net(x, mask)

    yield "a recorded call", recorded
    yield "a copy", copy.deepcopy(net)


def test_every_door_checks_the_sizes(tmp_path):
    net = mx.torch.imports(Masked(), (torch.ones(3, 6), torch.ones(3, 6)))
    checked = []
    for name, call in _doors(net, tmp_path):
        result = call(nd.ones((5, 6)), nd.ones((5, 6)))
        np.testing.assert_allclose(result.asnumpy(), np.ones(5), err_msg=name)
        for wrong in ([(5, 8), (5, 8)], [(5, 6), (4, 6)]):
            with pytest.raises(ShapeError, match="has the size|have a size|differ"):
                call(*map(nd.ones, wrong))
        checked.append(name)
    assert len(checked) == 12
    with pytest.raises(DeclaredSizeError):
        net.compile_for("sm80", inputs=[(5, 8), (5, 8)])


def test_a_fresh_process_checks_the_sizes(tmp_path):
    net = mx.torch.imports(Function(lambda x: x.sum(1) / x.shape[1]), torch.ones(3, 6))
    net.save(tmp_path / "a.hlab")
    code = (
        "import sys, hybrid_lab as mx; net = mx.gluon.load(sys.argv[1])\n"
        "print(net(mx.nd.ones((2, 6))).sum().asscalar())\n"
        "try: net(mx.nd.ones((2, 8)))\nexcept mx.base.MXNetError as error: print(type(error).__name__)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.hlab")], capture_output=True, text=True)
    assert run.stdout.split() == ["2.0", "DeclaredSizeError"], run.stderr[-500:]


def test_blocks_below_check_their_own_inputs():
    class Tokens(nn.Module):
        def forward(self, x):
            return x.sum(1) / x.shape[1]

    net = mx.torch.imports(nn.Sequential(nn.Linear(6, 6), Tokens()), torch.randn(3, 6))
    tokens = net._children["1"]
    np.testing.assert_allclose(tokens(nd.ones((4, 6))).asnumpy(), np.ones(4))
    with pytest.raises(DeclaredSizeError):
        tokens(nd.ones((4, 8)))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_floating_inputs_stand_for_each_other(dtype):
    net = mx.torch.imports(Doubled(), torch.ones(3, 6))
    assert net(nd.ones((3, 6), dtype=dtype)).dtype == np.dtype(dtype)


def test_inputs_of_another_kind_are_refused():
    net = mx.torch.imports(Function(lambda x: x * 0.5), torch.ones(3, 6))
    with pytest.raises(DTypeError, match="'args_0' has the dtype int32"):
        net(nd.ones((3, 6), dtype="int32"))
    counts = mx.torch.imports(Function(lambda x: torch.div(x, 2, rounding_mode="trunc")), torch.ones(3, 6).long())
    with pytest.raises(DTypeError):
        counts(nd.ones((3, 6)))


def test_indices_may_have_any_dtype():
    net = mx.torch.imports(nn.Embedding(9, 2), torch.ones(3, 4).long())
    assert net(nd.ones((2, 4))).shape == (2, 4, 2)


def test_the_error_names_input_axis_sizes_and_what_to_do():
    net = mx.torch.imports(Function(lambda x: x.sum(1) / x.shape[1]), torch.ones(3, 6))
    with pytest.raises(DeclaredSizeError) as caught:
        net(nd.ones((3, 8)))
    assert "the input 'args_0' has the size 8 on axis 1" in str(caught.value)
    assert "holds for 6 there alone" in str(caught.value) and "dynamic_shapes=" in str(caught.value)
