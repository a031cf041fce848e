"""Which graphs an archive holds: of models that were called, called eagerly or never, one per structure and mode."""

import zipfile

import numpy as np
import pytest
import rfc_model

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.formats.archive import Container, diff
from hybrid_lab.formats.mxnet.operator_names import SCALAR_FORMS
from hybrid_lab.gluon import nn


def test_the_save_line_counts_all_hybrid_blocks_and_names_those_never_called(tmp_path, caplog):
    class Heads(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Dense(2), nn.Dense(2)

        def hybrid_forward(self, F, x):
            return self.used(x)

    net = Heads()
    net.initialize()
    net.hybridize(engine="numpy")
    net(mx.nd.ones((1, 2)))
    caplog.clear()
    net.save(tmp_path / "m")
    saved, rest = (record.message for record in caplog.records)
    assert "saved 2 graphs and 3 parameters (2 of 3 HybridBlocks have graphs, 1 parameter without values) to" in saved
    assert rest.endswith("saved without graphs, because they were never called: unused")
    net.unused(mx.nd.ones((1, 2)))
    caplog.clear()
    net.save(tmp_path / "m")
    (saved,) = (record.message for record in caplog.records if "saved" in record.message)
    assert "saved 3 graphs of 3 HybridBlocks and 4 parameters to" in saved
    assert "never called" not in caplog.text


def test_inputs_make_the_graphs_of_a_model_that_was_never_hybridized(tmp_path):
    net = rfc_model.Net()
    net.initialize()
    y = net(rfc_model.images())
    path = net.save(tmp_path / "eager", inputs=rfc_model.images())
    assert sum(name.startswith("graphs/") for name in zipfile.ZipFile(path).namelist()) == 9
    loaded = gluon.load(path)
    features = loaded.drop(loaded.body(rfc_model.images()))
    np.testing.assert_allclose(loaded.head((features, features * 2), None)["scores"].asnumpy(), y.asnumpy(), rtol=1e-5)


def test_a_model_that_only_ran_eagerly_is_saved_with_its_graphs_and_keeps_none(tmp_path):
    net = rfc_model.Net()
    net.initialize()
    net(rfc_model.images())
    path = net.save(tmp_path / "eager")
    assert sum(name.startswith("graphs/") for name in zipfile.ZipFile(path).namelist()) == 9
    assert net.body._graphs.graphs() == []


def test_code_that_does_not_trace_is_saved_without_its_graph(tmp_path, caplog):
    class Counting(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.dense = nn.Dense(2)

        def hybrid_forward(self, F, x):
            return self.dense(x) if x.shape[0] else x

    net = Counting()
    net.initialize()
    net(mx.nd.ones((1, 2)))
    path = net.save(tmp_path / "m")
    assert "graphs/dense.json" in zipfile.ZipFile(path).namelist()
    assert "graphs/__root__.json" not in zipfile.ZipFile(path).namelist()
    assert "no graph was saved of" in caplog.text and "HL101" in caplog.text


def test_a_hybrid_root_runs_whole_without_code(tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu"), nn.BatchNorm(), nn.HybridLambda(lambda F, x: F.tanh(x) * 2), nn.Dense(2))
    net.initialize()
    net.hybridize(engine="numpy", static_alloc=True)
    x = mx.nd.array(np.random.RandomState(0).rand(3, 5))
    y = net(x)
    path = net.save(tmp_path / "m.hlab")
    assert "graphs/__root__.json" in zipfile.ZipFile(path).namelist()
    loaded = gluon.load(path)
    assert np.array_equal(loaded(x).asnumpy(), y.asnumpy())
    assert loaded._active and loaded._flags["static_alloc"] is True
    loaded[0].weight.set_data(mx.nd.zeros((4, 5)))
    loaded.load(path)
    again = gluon.load(loaded.save(tmp_path / "again.hlab"))
    assert np.array_equal(again(x).asnumpy(), y.asnumpy())


def test_a_second_input_structure_and_guarded_graphs_are_variants(tmp_path):
    class TwoWays(gluon.HybridBlock):
        def forward(self, x, y=None):
            x = x + 1 if mx.autograd.is_training() else x * 3
            return x if y is None else x - y

    net = TwoWays()
    net.hybridize(engine="numpy")
    x = mx.nd.array([1.0, 2.0])
    net(x), net(x, x)
    with mx.autograd.train_mode():
        net(x)
    path = net.save(tmp_path / "m")
    assert [name for name in zipfile.ZipFile(path).namelist() if "graphs/" in name] == [
        "graphs/__root__.json",
        "graphs/__root__@2.json",
        "graphs/__root__@3.json",
    ]
    for loaded in (gluon.load(path), TwoWays()):
        loaded.load(path) if isinstance(loaded, TwoWays) else None
        assert loaded(x).asnumpy().tolist() == [3, 6] and loaded(x, x).asnumpy().tolist() == [2, 4]
        with mx.autograd.train_mode():
            assert loaded(x).asnumpy().tolist() == [2, 3]
    with mx.autograd.train_mode(), pytest.raises(HybridLabError, match="in training"):
        gluon.load(path)(x, x)


def test_graphs_for_recorded_calls_are_variants(tmp_path):
    class TwoWays(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x * 2 if mx.autograd.is_recording() else x * 3

    net = TwoWays()
    net.hybridize(engine="numpy")
    x = mx.nd.ones((1,))
    x.attach_grad()
    net(x)
    with mx.autograd.record(train_mode=False):
        net(x)
    path = net.save(tmp_path / "m")
    for loaded in (gluon.load(path), TwoWays()):
        loaded.load(path) if isinstance(loaded, TwoWays) else None
        with mx.autograd.record(train_mode=False):
            assert loaded(x).asscalar() == 2
        assert loaded(x).asscalar() == 3


#: A number on the left of every operator that files have with a number, and attributes that files rewrite.
AS_FILES_HAVE_IT = {
    **{name: lambda F, x, name=name: getattr(F, name)(2.0, x) for name in SCALAR_FORMS},
    "2 * x": lambda F, x: 2 * x,
    "2 > x": lambda F, x: F.broadcast_greater(2, x),
    "negative axes": lambda F, x: F.transpose(x, axes=(-1, 0)),
}


@pytest.mark.parametrize("name", AS_FILES_HAVE_IT)
@pytest.mark.parametrize("style", ["1.x", "2.x"])
def test_a_model_loads_what_it_saved_however_its_file_writes_an_operator(name, style, tmp_path):
    compute = AS_FILES_HAVE_IT[name]

    class First(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return compute(F, x)

    class Second(gluon.HybridBlock):
        def forward(self, x):
            return compute(mx.nd, x)

    net = {"1.x": First, "2.x": Second}[style]()
    net.initialize()
    net(mx.nd.ones((2, 3)))
    net.save(tmp_path / "m")
    assert not net.load(tmp_path / "m").differences


class Twice(gluon.HybridBlock):
    """A normalization that is called three times, on what the outputs need in another order."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        first, second, third = self.norm(x + 1), self.norm(x * 3), self.norm(x - 5)
        return third, [mx.nd.tanh(second) + first, x + self.norm.running_var.data().reshape((1, -1, 1, 1))]


@pytest.mark.parametrize("norm", [nn.BatchNorm, nn.BatchNormReLU, gluon.contrib.nn.SyncBatchNorm])
@pytest.mark.parametrize("way", ["opened", "loaded", "imported", "sym.load"])
def test_states_are_updated_and_read_in_the_order_of_the_code_whatever_order_a_file_has(norm, way, tmp_path):
    def trained(net):
        net.hybridize(engine="numpy")
        with mx.autograd.record():
            y = net(x)
        arrays = [y[0], *y[1]] if len(y) == 2 else y
        states = {key.split("_")[-1]: p.data() for key, p in net.collect_params().items() if "running" in key}
        return [item.asnumpy() for item in [*arrays, states["mean"], states["var"]]]

    x = mx.nd.array(np.random.RandomState(0).uniform(-1, 1, (3, 2, 2, 2)))
    net = Twice(norm(in_channels=2, momentum=0.5))
    net.initialize()
    with mx.autograd.record():
        y = net(x)
    wanted = [item.asnumpy() for item in [y[0], *y[1], net.norm.running_mean.data(), net.norm.running_var.data()]]
    net.initialize(force_reinit=True)
    net.hybridize(engine="numpy")
    net(x)
    net.save(tmp_path / "net")
    files = net.export(str(tmp_path / "net"))
    if way == "opened":
        net = gluon.load(tmp_path / "net.hlab")
    elif way == "loaded":
        net.load(tmp_path / "net.hlab", graphs="file")
    elif way == "imported":
        net = gluon.SymbolBlock.imports(files[0], ["data"], files[1])
    else:
        again = mx.sym.load(files[0])
        net = gluon.SymbolBlock(again, mx.sym.var("data"))
        net.load_parameters(files[1])
    for found, expected in zip(trained(net), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


BODIES = {
    "foreach": lambda F, child, x: F.contrib.foreach(lambda a, b: (child(a), b), F.expand_dims(x, axis=0), x)[0],
    "while_loop": lambda F, child, x: F.contrib.while_loop(
        lambda i, s: i < 1, lambda i, s: (child(s), (i + 1, s)), (F.zeros((1,)), x), max_iterations=1
    )[0],
    "cond": lambda F, child, x: F.contrib.cond(F.sum(x) > 0, lambda: child(x), lambda: child(-x)),
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("layer", ["Dense(4, flatten=False)", "BatchNorm()", "LayerNorm()", "PReLU()"])
def test_a_model_opened_without_code_loads_what_it_saved_of_blocks_in_loops(layer, body, tmp_path):
    class Net(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.child = eval(f"nn.{layer}")

        def hybrid_forward(self, F, x):
            return BODIES[body](F, self.child, x)

    net, x = Net(), mx.nd.ones((3, 4))
    net.initialize()
    net.hybridize()
    wanted = net(x)
    net.save(tmp_path / "net")
    opened = gluon.load(tmp_path / "net.hlab")
    opened.save(tmp_path / "again")
    opened.load(tmp_path / "again")
    np.testing.assert_array_equal(opened(x).asnumpy(), wanted.asnumpy())


class NeverCalled(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x


class Plain(gluon.Block):
    def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize("parent", [Plain, NeverCalled])
def test_a_block_without_a_graph_is_a_stub_of_its_own_kind_which_is_saved_as_such(parent, tmp_path):
    net = parent(prefix="net_")
    net.inner = NeverCalled(prefix="inner_")
    stub = gluon.load(net.save(tmp_path / "m.hlab"))
    assert isinstance(stub, gluon.HybridBlock) == issubclass(parent, gluon.HybridBlock)
    assert isinstance(stub.inner, gluon.HybridBlock)
    for block, name in ((stub, parent.__name__), (stub.inner, "NeverCalled")):
        with pytest.raises(NotImplementedError, match=f"the class {name} is missing"):
            block(mx.nd.ones(1))
    assert not diff(Container.open(net.save(tmp_path / "m.hlab")), Container.open(stub.save(tmp_path / "n.hlab")))
    stub.hybridize()
    with pytest.raises(NotImplementedError, match="the class NeverCalled is missing"):
        stub.inner(mx.nd.ones(1))


@pytest.mark.parametrize("called", [False, True])
def test_a_model_whose_graphs_are_a_files_fits_its_own_archive_after_a_cast(called, tmp_path):
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net(mx.nd.ones((1, 3)))
    net.save(tmp_path / "net.hlab")
    net.load(tmp_path / "net.hlab", graphs="file")
    net.cast("bfloat16")
    x = mx.nd.ones((1, 3), dtype="bfloat16")
    if called:
        net(x)
    net.save(tmp_path / "cast.hlab")
    net.load(tmp_path / "cast.hlab")
    assert net(x).dtype == x.dtype
