"""Gluon source of models: each operator on the samples of its record, and whole networks with their weights."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import gluon, nd, sym
from hybrid_lab.cli import main
from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.formats.safetensors import write_safetensors
from hybrid_lab.gluon import nn, rnn
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.ops.framework.run import run_kernel
from hybrid_lab.torch.source.gluon_layers import LAYERS
from hybrid_lab.torch.source.gluon_writer import GluonWriter
from hybrid_lab.torch.source.write import source, write_source
from tests.cli.test_convert import FOLDER, MODELS, arrays, check
from tests.onnx.one_operator import graph_of
from tests.ops.cases import CASES, RNG, close
from tests.written import written_module

BY_RECORD = {
    name: [case for case in CASES if case.record.name == name] for name in {case.record.name for case in CASES}
}


def outputs_of(case, with_weights, folder):
    """What the source of one operator gives, eagerly and hybridized, and what its kernel gives."""
    op = case.record.bind(**case.sample.attributes).bind_mode(False)
    items = case.inputs()
    graph = graph_of(op, items)
    given = [item for item in items if isinstance(item, np.ndarray)]
    graph = infer(graph, *({value: kind(item) for value, item in zip(graph.inputs, given, strict=True)}
                           for kind in (np.shape, lambda item: item.dtype)))  # fmt: skip
    count = 1 if with_weights else len(given)
    weights = {value: (f"y_{value.node.name}", item)
               for value, item in list(zip(graph.inputs, given, strict=True))[count:]}  # fmt: skip
    names = [value.node.name for value in graph.inputs[:count]]
    made = GluonWriter(graph, names, weights).source("One.", "model.safetensors")
    (folder / "model.py").write_text(made.text)
    write_safetensors(folder / "model.safetensors", {name: np.asarray(item) for name, item in made.state.items()})
    net = written_module(folder / "model.py").load()
    results = []
    for hybrid in (False, True):
        if hybrid:
            net.hybridize()
        found = net(*(nd.array(item, dtype=item.dtype) for item in given[:count]))
        results.append([item.asnumpy() for item in (found if isinstance(found, (list, tuple)) else [found])])
    return results, run_kernel(op, items, rng=RNG)


def is_plain(case):
    """Samples of networks, not of optimizers, whose result follows from tensors, none of them empty or without axes."""
    given = [item for item in case.inputs() if isinstance(item, np.ndarray)]
    is_update = case.record.name.endswith("_update") or "_update_phase" in case.record.name
    return bool(given) and all(item.size and item.ndim for item in given) and not (is_update or case.record.random)


def names():
    """All operators; those that are no layers, and most of which are written in one way, only in `make test-all`."""
    return [
        pytest.param(name, marks=[] if name in LAYERS or number % 20 == 0 else pytest.mark.long)
        for number, name in enumerate(sorted(BY_RECORD))
    ]


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("with_weights", [False, True], ids=["data", "weights"])
def test_the_source_of_an_operator_gives_what_its_kernel_gives(name, with_weights, tmp_path):
    failed, refused = [], []
    for case in filter(is_plain, BY_RECORD[name]):
        try:
            results, wanted = outputs_of(case, with_weights, tmp_path)
            for found in results:
                for one, other in zip(found, wanted, strict=False):
                    close(one, other, 1e-4)
        except Unmappable:
            refused.append(case)
        except Exception as error:
            failed.append(f"{case!r}: {type(error).__name__}: {str(error)[:300]}")
    assert not failed, "\n".join(failed)
    assert name not in LAYERS or not refused


@pytest.mark.parametrize("name", MODELS)
def test_gluon_source_gives_what_mxnet_gave(name, tmp_path, capsys):
    inputs, outputs = arrays(name)
    shapes = [f"--shape={key}={','.join(map(str, array.shape))}" for key, array in inputs.items()]
    target = tmp_path / "model.py"
    assert main(["convert", str(FOLDER / f"{name}-symbol.json"), str(target), "--style", "gluon", *shapes]) == 0
    assert "compared in a fresh Block with random inputs: the largest difference is " in capsys.readouterr().out
    net = written_module(target).load()
    net.hybridize()
    found = net(*map(nd.array, inputs.values()))
    check([item.asnumpy() for item in (found if isinstance(found, (list, tuple)) else [found])], outputs)


def test_source_is_a_tree_by_names_with_one_line_for_each_layer(tmp_path):
    shape = "--shape=data=2,3,32,32"
    assert main(["convert", str(FOLDER / "resnet-symbol.json"), str(tmp_path / "m.py"), "--style=gluon", shape]) == 0
    text = (tmp_path / "m.py").read_text()
    line = "self.stage2.unit1.conv1 = nn.Conv2D(8, 3, strides=2, padding=1, use_bias=False, in_channels=4)"
    assert f"        {line}\n" in text and "        x = self.stage2.unit1.conv1(" in text
    assert max(map(len, text.splitlines())) <= 120


def test_the_written_block_trains(tmp_path):
    from hybrid_lab import autograd

    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Activation("relu"), nn.Dense(3))
    net.initialize()
    x = nd.random.normal(shape=(2, 1, 5, 5))
    net.hybridize()
    net(x)
    write_source(net, tmp_path / "m.py", x, style="gluon")
    again = written_module(tmp_path / "m.py").load()
    results = []
    for each in (net, again):
        trainer = gluon.Trainer(each.collect_params(), "sgd", {"learning_rate": 0.1})
        for _ in range(3):
            with autograd.record():
                loss = (each(x) ** 2).mean()
            loss.backward()
            trainer.step(1)
        results.append(each(x).asnumpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [rnn.LSTM, rnn.GRU, rnn.RNN])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers_with_given_states(kind, bidirectional, tmp_path):
    layer = kind(4, num_layers=2, bidirectional=bidirectional, input_size=3)
    layer.initialize()
    x = nd.random.normal(shape=(5, 2, 3))
    states = layer.begin_state(2)
    for state in states:
        state[:] = 0.5
    layer.hybridize()
    wanted = layer(x, states)[0].asnumpy()
    layer(x)
    for inputs in ([x], [x, *states]):
        data = [sym.var(f"data{index}") for index in range(len(inputs))]
        block = gluon.SymbolBlock(
            layer(data[0]) if len(inputs) == 1 else layer(data[0], data[1:])[0], data, params=layer.collect_params()
        )
        write_source(block, tmp_path / "m.py", inputs, style="gluon")
        text = (tmp_path / "m.py").read_text()
        assert f"rnn.{kind.__name__}(4, num_layers=2" in text and "F.RNN" not in text
        found = written_module(tmp_path / "m.py").load()(*inputs)
        want = wanted if len(inputs) > 1 else layer(x).asnumpy()
        np.testing.assert_allclose(found.asnumpy(), want, rtol=1e-5, atol=1e-6)


def test_names_from_a_file_stay_names(tmp_path):
    """Text of a file that could end a string or a line, names of Python's, of Blocks', of the file's own."""
    hostile = 'x"""\nimport os\nos.abort()\n"""\\'
    names = [
        hostile,
        "forward",
        "self",
        "F",
        "nn",
        "x",
        "class",
        "params",
        "name",
        "hybridize",
        "__",
        "a b",
        "a-b",
        "0",
    ]
    data = values = sym.var(hostile)
    for name in names:
        values = sym.FullyConnected(values, num_hidden=3, name=name)
        values = values + sym.exp(values, name=name)
        values = values * sym.var(f"{name}_scale", shape=(2, 3))
    net = gluon.SymbolBlock(values, data)
    net.initialize()
    x = nd.ones((2, 3))
    wanted = net(x).asnumpy()
    made = source(net, x, title=hostile, style="gluon")
    assert "abort()" not in made.text.replace(made.text.splitlines()[0], "")
    write_source(net, tmp_path / "m.py", x, title=hostile, style="gluon")
    np.testing.assert_allclose(written_module(tmp_path / "m.py").load()(x).asnumpy(), wanted, rtol=1e-5)


def test_narrow_weights_keep_their_dtypes(tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=24), nn.BatchNorm(in_channels=4), nn.Dense(2, in_units=4))
    net.initialize()
    net.cast("float16")
    net.hybridize()
    x = nd.ones((3, 24), dtype="float16")
    wanted = net(x).asnumpy()
    write_source(net, tmp_path / "m.py", x, style="gluon")
    found = written_module(tmp_path / "m.py").load()(x)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-2, atol=1e-3)


def test_a_graph_inside_an_operator_has_no_source(tmp_path):
    from hybrid_lab.symbol import contrib

    data = sym.var("data")
    out, _ = contrib.foreach(lambda row, state: (row + state, state), data, sym.var("state"))
    net = gluon.SymbolBlock(out, [data, sym.var("state")])
    net.initialize()
    with pytest.raises(Unmappable, match="foreach"):
        write_source(net, tmp_path / "m.py", [(3, 2), (2,)], style="gluon")
    assert not list(tmp_path.iterdir())


def test_unknown_styles_are_refused(tmp_path):
    with pytest.raises(ValueError, match="style"):
        write_source(nn.Dense(1, in_units=1), tmp_path / "m.py", (1, 1), style="keras")
