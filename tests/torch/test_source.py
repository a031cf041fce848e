"""PyTorch source of models: each operator on the samples of its record, and whole networks with their weights."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, sym
from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.ops.framework.run import run_kernel
from hybrid_lab.torch.source.paths import tree
from hybrid_lab.torch.source.rules import RULES
from hybrid_lab.torch.source.write import source
from hybrid_lab.torch.source.writer import SourceWriter
from tests.onnx.one_operator import graph_of
from tests.ops.cases import CASES, RNG, close

torch = pytest.importorskip("torch")

BY_RECORD = {name: [case for case in CASES if case.record.name == name] for name in RULES}
#: Their weights must be parameters of the model.
LAYERS = {"BatchNorm", "BatchNorm_v1", "_contrib_BatchNormWithReLU", "GroupNorm", "InstanceNorm", "LayerNorm", "RNN"}
#: torch computes them otherwise at the edges: what a kernel gives for NaN or for an index outside.
LOOSE = {"erfinv": 1e-4, "gammaln": 1e-4}


def module_of(text, state):
    space = {}
    exec(compile(text, "<source>", "exec"), space)
    model = space["Model"]()
    model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in state.items()})
    return model.eval()


def outputs_of(case, with_weights):
    """What the source of one operator gives; its inputs behind the first are weights if asked."""
    op = case.record.bind(**case.sample.attributes).bind_mode(False)
    arrays = case.inputs()
    graph = graph_of(op, arrays)
    given = [item for item in arrays if isinstance(item, np.ndarray)]
    graph = infer(graph, *({value: kind(item) for value, item in zip(graph.inputs, given, strict=True)}
                           for kind in (np.shape, lambda item: item.dtype)))  # fmt: skip
    count = 1 if with_weights else len(given)
    weights = {value: (f"y_{value.node.name}", item)
               for value, item in list(zip(graph.inputs, given, strict=True))[count:]}  # fmt: skip
    made = SourceWriter(graph, [value.node.name for value in graph.inputs[:count]], weights).source(
        "One.", "w.safetensors"
    )
    model = module_of(made.text, made.state)
    found = model(*(torch.from_numpy(np.array(item)) for item in given[:count]))
    return [item.numpy() for item in (found if isinstance(found, tuple) else [found])], run_kernel(op, arrays, rng=RNG)


@pytest.mark.each_value
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("with_weights", [False, True], ids=["data", "weights"])
def test_the_source_of_an_operator_gives_what_its_kernel_gives(name, with_weights):
    cases, refused, failed = BY_RECORD[name], [], []
    assert cases, name
    for case in cases:
        if any(str(getattr(item, "dtype", "")) in ("float16", "bfloat16") for item in case.inputs()):
            continue
        try:
            with torch.no_grad():
                found, wanted = outputs_of(case, with_weights)
            for one, other in zip(found, wanted, strict=False):
                close(one, other, LOOSE.get(name, 1e-4))
        except Unmappable:
            refused.append(case)
        except Exception as error:
            failed.append(f"{case!r}: {type(error).__name__}: {str(error)[:300]}")
    assert not failed, "\n".join(failed)
    assert len(refused) < len(cases) or (name in LAYERS and not with_weights)


def written(symbol, **shapes):
    """The source of a Symbol whose other inputs are weights of ones."""
    inputs = list(shapes)
    arguments, _, _ = symbol.infer_shape(**shapes)
    net = gluon.SymbolBlock(symbol, [sym.var(name) for name in inputs])
    for name, shape in zip(symbol.list_arguments(), arguments, strict=True):
        if name not in shapes:
            net.collect_params()[name].shape = shape
    net.initialize(mx.init.One())
    return source(net, [tuple(shape) for shape in shapes.values()], title=HOSTILE)


HOSTILE = 'x"""\nimport os\nos.abort()\n"""\\'


def test_names_from_a_file_stay_names():
    """Text of a file that could end a string or a line, names of Python's and torch's own, and equal names."""
    names = [
        HOSTILE,
        "forward",
        "self",
        "torch",
        "x",
        "class",
        "take",
        "print",
        "__",
        "_modules",
        "_parameters",
        "a b",
        "a-b",
        "ß",
        "0",
        "inf",
    ]
    data = sym.var(HOSTILE)
    values = data
    for name in names:
        values = sym.FullyConnected(values, num_hidden=3, name=name)
        values = values + sym.exp(values, name=name)
    made = written(values, **{HOSTILE: (2, 3)})
    model = module_of(made.text, made.state)
    assert model(torch.ones(2, 3)).shape == (2, 3)
    assert "abort()" not in made.text.replace(made.text.splitlines()[0], "")


def test_numbers_that_are_not_finite():
    made = written(sym.clip(sym.var("data"), 0, float("inf")), data=(2,))
    assert module_of(made.text, made.state)(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]


def test_layers_that_share_weights_are_one_module():
    data, weight = sym.var("data"), sym.var("w_weight")
    one = sym.FullyConnected(data, weight, num_hidden=3, no_bias=True, name="a")
    made = written(sym.FullyConnected(one, weight, num_hidden=3, no_bias=True, name="b"), data=(2, 3))
    assert made.text.count("nn.Linear") == 1 and list(made.state) == ["w.weight"]


def test_the_time_grows_with_the_graph_and_not_with_its_paths():
    data = sym.var("data")
    for _ in range(60):  # 2 ** 60 paths
        data = sym.slice_axis(sym.Concat(data, data, dim=1), axis=1, begin=0, end=2)
    assert len(written(data, data=(1, 2)).text.splitlines()) < 200
    many = sym.var("data")
    for _ in range(3000):
        many = sym.relu(many, name="same") + 1
    assert written(many, data=(2,)).text.count("\n") > 3000


@pytest.mark.parametrize(
    ("names", "paths"),
    [
        (["net0_stage1_conv0", "net0_stage1_conv1", "net0_fc"], ["stage1.conv0", "stage1.conv1", "fc"]),
        (["conv1", "conv1_bn", "conv1_relu"], ["conv1", "conv1_bn", "conv1_relu"]),
        (["conv1_1", "conv1_2"], ["layer_1", "layer_2"]),
        (["a1_x", "b_x"], ["a1_x", "b_x"]),
        (["train", "a.b", "a b"], ["train_", "a_b", "a_b_2"]),
        (["only_one2"], ["only_one2"]),
    ],
)
def test_paths(names, paths):
    assert list(tree(names).values()) == paths
