"""Modules of torch as HybridBlocks: outputs, gradients, trees, files."""

from __future__ import annotations

import logging
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import hybrid_lab as mx  # noqa: E402
from hybrid_lab import autograd, gluon, nd  # noqa: E402
from hybrid_lab.gluon import access  # noqa: E402
from tests.torch.comparing import apart, arrays, difference  # noqa: E402
from tests.torch.networks import NETWORKS  # noqa: E402

OPEN_WITHOUT_TORCH = """
import pathlib, sys
sys.modules["torch"] = None  # `import torch` raises ImportError
import numpy as np
from hybrid_lab import gluon, nd
for path in map(pathlib.Path, map(str.strip, sys.stdin)):
    stored = np.load(path.with_suffix(".npz"))
    net = gluon.load(path)
    for engine in (None, "numpy"):
        if engine:
            net.hybridize(engine=engine)
        found = net(*[nd.array(stored[name], dtype=stored[name].dtype) for name in stored.files if name[0] == "x"])
        found = list(found) if isinstance(found, (list, tuple)) else [found]
        for item, name in zip(found, [name for name in stored.files if name[0] == "y"], strict=True):
            assert np.abs(item.asnumpy() - stored[name]).max() <= 1e-4 * np.abs(stored[name]).max(), path
    print(path, flush=True)
"""


@pytest.fixture(scope="module")
def without_torch():
    """A process that opens the archives whose paths it reads, and prints the path of each that computes the same."""
    command = [sys.executable, "-c", OPEN_WITHOUT_TORCH]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


#: Networks of every kind of layer; `make test-all` has the others too.
FIRST = ("residual net", "projected lstm", "gpt")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name not in FIRST)) for name in NETWORKS]
)
def test_networks_compute_what_torch_computes(name, tmp_path, without_torch):
    torch.manual_seed(0)
    make, inputs = NETWORKS[name]
    example = inputs()
    net, found = difference(make(), example)
    assert found.forward <= 1e-4
    assert found.gradient <= 1e-3
    given = [nd.array(item.numpy(), dtype=item.numpy().dtype) for item in example]
    larger = [nd.concat(item, item, dim=0) for item in given]
    assert arrays(net(*larger))[0].shape[0] == 2 * len(given[0])
    net.save(str(tmp_path / "net"))
    named = {f"x{number}": item.asnumpy() for number, item in enumerate(given)}
    named |= {f"y{number}": item.asnumpy() for number, item in enumerate(arrays(net(*given)))}
    np.savez(tmp_path / "net", **named)
    print(tmp_path / "net.hlab", file=without_torch.stdin, flush=True)
    assert without_torch.stdout.readline().strip() == str(tmp_path / "net.hlab")


# -- trees -----------------------------------------------------------------------------------------------------------


def test_the_tree_and_the_names_are_those_of_the_module():
    module, _, net = _imported("gpt")
    assert repr(net).splitlines()[:6] == [
        "GPT(", "  (tokens): Embedding()", "  (blocks): ModuleList(", "    (0): GPTBlock(",
        "      (norm1): LayerNorm()", "      (qkv): Linear()",
    ]  # fmt: skip
    assert set(net.collect_params()) == {name for name, _ in module.named_parameters()}  # head.weight is shared
    assert access.children(access.children(net.blocks)["0"].mlp).keys() == {"0", "1", "2"}


class Twice(nn.Module):
    """Calls one module twice, and another between its own operators."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.norm = nn.BatchNorm1d(4)
        self.again = self.shared

    def forward(self, x):
        y = self.norm(self.shared(x))
        return self.norm(self.again(y) + x)


def test_modules_that_are_called_twice():
    net, found = difference(Twice(), (torch.randn(6, 4),))
    assert found.forward <= 1e-5 and found.gradient <= 1e-5
    assert sorted(net.collect_params()) == sorted(
        ["shared.0.weight", "shared.0.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"]
    )
    assert len(access.graphs(net).first().graph.operators) == 8  # one of them checks the inputs


@cache
def _imported(name):
    """A network, its example, and the Block that it becomes, which several tests share: an import costs seconds."""
    make, inputs = NETWORKS[name]
    module, example = make().eval(), inputs()
    return module, example, mx.torch.imports(module, example)


def test_a_child_runs_by_itself():
    module, _, net = _imported("residual net")
    x = torch.randn(3, 8, 8, 8)
    with torch.no_grad():
        theirs = module.layer1[0](x).numpy()
    block = access.children(net.layer1)["0"]
    assert apart([block(nd.array(x.numpy())).asnumpy()], [theirs]) <= 1e-5


# -- arguments and results -------------------------------------------------------------------------------------------


class Structures(nn.Module):
    def forward(self, pair, scale=None, *, flip=False):
        a, b = pair["a"], pair["b"]
        y = a + b if scale is None else (a + b) * scale
        return {"sum": y, "rest": [a - b, (y.flip(0) if flip else y, None)]}


def test_structures_of_arguments_and_results():
    a, b, scale = torch.randn(3, 2), torch.randn(3, 2), torch.randn(2)
    net = mx.torch.imports(Structures(), ({"a": a, "b": b},), example_kwargs={"scale": scale, "flip": True})
    x, y, z = (nd.array(item.numpy()) for item in (a, b, scale))
    found = net({"a": x, "b": y}, z, True)
    assert list(found) == ["sum", "rest"] and found["rest"][1][1] is None
    np.testing.assert_allclose(found["rest"][1][0].asnumpy(), (((a + b) * scale).flip(0)).numpy(), rtol=1e-6)


def test_an_example_that_is_given_twice_is_two_inputs():
    one = torch.randn(2, 5, 8)
    query, key, value = (torch.randn(2, 5, 8) for _ in range(3))
    module = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    net = mx.torch.imports(module, (one, one, one), example_kwargs={"need_weights": False})
    found = net(*(nd.array(item.numpy()) for item in (query, key, value)), False)[0].asnumpy()
    with torch.no_grad():
        assert apart([found], [module(query, key, value, need_weights=False)[0].numpy()]) <= 1e-5


@pytest.mark.parametrize("convert", [nd.array, np.asarray, torch.from_numpy])
def test_examples_of_any_kind_within_structures(convert):
    a, b = (np.random.rand(3, 2).astype("float32") for _ in range(2))
    net = mx.torch.imports(Structures(), ({"a": convert(a), "b": convert(b)},))
    np.testing.assert_array_equal(net({"a": nd.array(a), "b": nd.array(b)})["sum"].asnumpy(), a + b)


def test_an_exported_program():
    module = NETWORKS["mlp"][0]().eval()
    x = torch.randn(4, 3, 4)
    program = torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for each in (program, program.run_decompositions()):
        net = mx.torch.imports(each)
        with torch.no_grad():
            assert apart([net(nd.array(x.numpy())).asnumpy()], [module(x).numpy()]) <= 1e-5


def test_the_batch_is_open_from_an_example_of_one():
    net = mx.torch.imports(NETWORKS["conv net"][0](), torch.randn(1, 3, 8, 8))
    net.hybridize()
    assert [net(nd.ones((n, 3, 8, 8))).shape for n in (1, 5, 2)] == [(1, 4), (5, 4), (2, 4)]


class Fixed(nn.Module):
    def forward(self, x):
        return x.reshape(4, 6).sum(1)


def test_a_module_that_fixes_the_batch_is_imported_for_it():
    net = mx.torch.imports(Fixed(), torch.randn(4, 6))
    assert net(nd.ones((4, 6))).shape == (4,)


def test_open_sizes_besides_the_batch():
    module = NETWORKS["gpt"][0]()
    sizes = {"tokens": {0: torch.export.Dim.AUTO, 1: torch.export.Dim("length", min=2, max=12)}}
    net = mx.torch.imports(module, torch.zeros(2, 7, dtype=torch.int64), dynamic_shapes=sizes)
    net.hybridize()
    for shape in ((3, 4), (1, 12), (2, 7)):
        x = torch.randint(0, 20, shape)
        with torch.no_grad():
            assert apart([net(nd.array(x.numpy(), dtype="int64")).asnumpy()], [module(x).numpy()]) <= 1e-5


class OddLength(nn.Module):
    """Takes an odd length alone: torch writes it as 2*s + 1."""

    def forward(self, x):
        return x[:, 1:].reshape(x.shape[0], -1, 2).sum(2)


def test_a_size_that_is_twice_an_open_one_and_one_more():
    sizes = {"x": {1: 2 * torch.export.Dim("half", min=1, max=20) + 1}}
    net = mx.torch.imports(OddLength(), torch.randn(2, 7), dynamic_shapes=sizes)
    net.hybridize()
    for length in (7, 3, 15):
        x = torch.randn(2, length)
        assert apart([net(nd.array(x.numpy())).asnumpy()], [OddLength()(x).numpy()]) <= 1e-6


# -- modes -----------------------------------------------------------------------------------------------------------


def test_dropout_follows_our_modes():
    net = mx.torch.imports(nn.Sequential(nn.Dropout(0.5), nn.Flatten()), torch.ones(4, 100))
    x = nd.ones((4, 100))
    for _ in range(2):
        assert (net(x).asnumpy() == 1).all()
        with autograd.record():
            y = net(x).asnumpy()
        assert set(np.unique(y)) == {0.0, 2.0}
        net.hybridize()


def test_attention_drops_in_training_alone():
    module = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
    x = torch.randn(2, 5, 8)
    net = mx.torch.imports(module, (x, x, x), example_kwargs={"need_weights": False})
    given = nd.array(x.numpy())
    calls = (given, given, given, False)
    assert (net(*calls)[0].asnumpy() == net(*calls)[0].asnumpy()).all()
    with autograd.record():
        assert (net(*calls)[0].asnumpy() != net(*calls)[0].asnumpy()).any()


class ByMode(nn.Module):
    """Computes otherwise in training, as stochastic depth does."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.extra = nn.Linear(3, 3)

    def forward(self, x):
        y = self.inner(x)
        return self.extra(y) if self.training else y


def test_code_that_asks_for_the_mode_has_a_graph_for_each(tmp_path):
    module = ByMode()
    x = torch.randn(2, 3)
    net = mx.torch.imports(module, x)
    path = str(tmp_path / "m.hlab")
    net.save(path)
    for each in (net, gluon.load(path)):
        for hybrid in (False, True):
            each.hybridize(hybrid)
            with autograd.record():
                trained = each(nd.array(x.numpy())).asnumpy()
            with torch.no_grad():
                assert apart([each(nd.array(x.numpy())).asnumpy()], [module.eval()(x).numpy()]) <= 1e-6
                assert apart([trained], [module.train()(x).numpy()]) <= 1e-6


class AlwaysDrops(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5)  # without training=self.training


def test_a_dropout_that_is_on_in_prediction_stays_on():
    net = mx.torch.imports(AlwaysDrops(), torch.ones(4, 100))
    for _ in range(2):
        assert set(np.unique(net(nd.ones((4, 100))).asnumpy())) == {0.0, 2.0}
        net.hybridize()


class AttentionDrops(nn.Module):
    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1)


def test_attention_that_drops_in_prediction_is_refused():
    with pytest.raises(mx.torch.TorchError, match=r"Write dropout_p=p if self.training"):
        mx.torch.imports(AttentionDrops(), torch.randn(2, 3, 4))


# -- engines and other files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["residual net", *(pytest.param(name, marks=pytest.mark.long) for name in ("lstm", "gpt"))]
)
def test_engines_and_onnx_files(name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    module, example, net = _imported(name)
    with torch.no_grad():
        theirs = [item.numpy() for item in torch.utils._pytree.tree_leaves(module(*example))]
    given = [nd.array(item.numpy(), dtype=item.numpy().dtype) for item in example]
    try:
        for engine in ("numpy", "torch", "onnxruntime"):
            net.hybridize(engine=engine)
            assert apart([item.asnumpy() for item in arrays(net(*given))], theirs) <= 1e-5
        mx.onnx.export(net, str(tmp_path / "net.onnx"))
    finally:
        net.hybridize(active=False)  # other tests share the Block
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
    feeds = {item.name: array.numpy() for item, array in zip(session.get_inputs(), example, strict=True)}
    assert apart(session.run(None, feeds), theirs) <= 1e-5


# -- memory ----------------------------------------------------------------------------------------------------------


def test_parameters_stay_in_the_memory_of_the_module():
    module = nn.Linear(3, 2)
    net = mx.torch.imports(module, torch.randn(4, 3))
    net.hybridize()
    x = nd.ones((4, 3))
    first = net(x).asnumpy()
    with torch.no_grad():
        module.weight += 1.0  # torch's step is seen here
    np.testing.assert_allclose(net(x).asnumpy(), first + 3.0, rtol=1e-5)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    before = module.weight.detach().clone()
    with autograd.record():
        loss = net(x).sum()
    loss.backward()
    trainer.step(1)  # and ours there
    np.testing.assert_allclose(module.weight.detach().numpy(), before.numpy() - 0.4, rtol=1e-4)


def test_copied_parameters_are_their_own():
    module = nn.Linear(3, 2)
    net = mx.torch.imports(module, torch.randn(4, 3), copy=True)
    before = module.weight.detach().clone()
    net.collect_params()["weight"].set_data(nd.zeros((2, 3)))
    assert (module.weight == before).all()


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "named"),
    [
        (3, "int"),
        (gluon.nn.Dense(2), "Dense"),
        (nn.Linear, "the class Linear; make a module"),
        (abs, "builtin"),
        (None, "NoneType"),
    ],
)
def test_what_is_no_module_is_refused(source, named):
    with pytest.raises(mx.torch.TorchError, match=rf"takes a torch.nn.Module or .*ExportedProgram, not {named}"):
        mx.torch.imports(source, nd.ones((2, 3)))


class WrongWidth(nn.Module):
    """Prints on its own, and adds arrays of other sizes."""

    def forward(self, x):
        print("of the module", file=sys.stderr)
        return x + torch.ones(7)


class Branch(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


@pytest.mark.parametrize("module", [nn.Linear(4, 2), WrongWidth(), Branch()])
def test_a_failed_export_is_the_error_alone(module, capfd, caplog):
    handlers = [logging.StreamHandler(sys.stderr) for _ in range(2)]
    for handler, name in zip(handlers, ("torch", "hybrid_lab"), strict=True):
        logging.getLogger(name).addHandler(handler)
    try:
        with pytest.raises(mx.torch.TorchError) as caught:
            mx.torch.imports(module, nd.ones((3, 5)))
        logging.getLogger("torch").warning("of the user")
    finally:
        for handler, name in zip(handlers, ("torch", "hybrid_lab"), strict=True):
            logging.getLogger(name).removeHandler(handler)
    assert type(module).__name__ in str(caught.value)
    assert set(capfd.readouterr().err.splitlines()) <= {"of the module", "of the user"}


class Missing(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inverse()

    def forward(self, x):
        return self.inner(x)


class Inverse(nn.Module):
    def forward(self, x):
        return torch.linalg.eigh(x)[0]


def test_operators_that_are_missing_are_named():
    with pytest.raises(mx.torch.UnsupportedOperatorError, match=r"inner \(aten._linalg_eigh.*not supported") as caught:
        mx.torch.imports(Missing(), torch.eye(3)[None])
    assert caught.value.operator == "aten._linalg_eigh"


class Nonzero(nn.Module):
    def forward(self, x):
        return x[x > 0].sum()


@pytest.mark.parametrize("module", [Branch(), Nonzero()])
def test_control_flow_and_shapes_by_the_data_are_refused(module):
    with pytest.raises(mx.torch.TorchError, match=r"torch\.where"):
        mx.torch.imports(module, torch.randn(4, 3))


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total.add_(x.sum(0))
        return x + self.total


def test_buffers_that_the_code_writes_to_are_refused():
    with pytest.raises(mx.torch.TorchError, match="buffer 'total'"):
        mx.torch.imports(Counts(), torch.randn(4, 3))
