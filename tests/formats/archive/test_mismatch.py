"""A file that does not fit the model: one error lists every difference and nothing is loaded, unless asked for."""

import numpy as np
import pytest
import rfc_model

from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import HybridLabError, LoadMismatchError
from hybrid_lab.gluon import nn


class Renamed(rfc_model.Inner):
    pass


class Changed(rfc_model.Net):
    """Another class in one place, a child less, a child more, another size, another dtype."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body.inner = Renamed()
            self.head.out = nn.Dense(4)
            self.shared.cast("float64")
            self.extra = nn.Dense(2)
        del self.unused


def test_one_error_lists_everything_and_nothing_is_loaded(saved):
    other = Changed()
    other.initialize()
    before = rfc_model.values(other)
    with pytest.raises(LoadMismatchError) as caught:
        other.load(saved)
    text = str(caught.value)
    for part in (
        "class: body.inner is a Inner in the file, a Renamed in the model",
        "missing block: unused (Dense)",
        "unexpected block: extra (Dense)",
        "shape: head.out.weight is (3, 6) in the file, (4, 0) in the model",
        "shape: head.out.bias is (3,) in the file, (4,) in the model",
        "dtype: shared.weight is float32 in the file, float64 in the model",
        "graph: head.out: the model has",
        "nothing was loaded",
        str(saved),
    ):
        assert part in text, text
    assert rfc_model.equal(rfc_model.values(other), before)


def test_without_strict_what_fits_is_loaded(net, saved):
    other = Changed()
    other.initialize()
    report = other.load(saved, strict=False)
    assert any("head.out.weight" in line for line in report.differences)
    assert np.array_equal(other.body.stem.weight.data().asnumpy(), net.body.stem.weight.data().asnumpy())
    assert other.head.out.bias.shape == (4,)


class Pair(gluon.HybridBlock):
    """Two layers; the first one has the given name."""

    def __init__(self, first):
        super().__init__()
        self.first = first
        setattr(self, first, nn.HybridSequential())
        getattr(self, first).add(nn.Dense(3, in_units=2))
        self.out = nn.Dense(2, in_units=3)

    def hybrid_forward(self, F, x):
        return self.out(getattr(self, self.first)(x))


def test_a_block_of_another_name_is_proposed_and_its_graph_is_no_further_difference(tmp_path):
    net, other = Pair("features"), Pair("body")
    net.initialize()
    other.initialize()
    path = net.save(tmp_path / "m", inputs=nd.ones((1, 2)))
    with pytest.raises(LoadMismatchError) as caught:
        other.load(path)
    missing, unexpected = caught.value.differences
    assert missing.endswith("is it body in the model? Then give map={'features': 'body'}")
    assert unexpected.startswith("unexpected block: body")
    other.load(path, map={"features": "body"})
    assert np.array_equal(other(nd.ones((1, 2))).asnumpy(), net(nd.ones((1, 2))).asnumpy())


def test_map_counts_paths_from_subtree(saved):
    body = rfc_model.Net().body
    body.initialize()
    with pytest.raises(HybridLabError, match="map names 'body.inner'; below subtree='body' it is 'inner'"):
        body.load(saved, subtree="body", map={"body.inner": "within"})


def test_the_report_of_a_load_shows_itself_as_it_prints(saved):
    other = Changed()
    other.initialize()
    report = other.load(saved, strict=False)
    assert repr(report) == str(report) and "difference: missing block: unused" in repr(report)


class OtherCode(rfc_model.Inner):
    def hybrid_forward(self, F, x):
        return F.sigmoid(self.norm(self.conv(x))) * 0.5


OtherCode.__name__ = "Inner"


class OtherNet(rfc_model.Net):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.body.name_scope():
            self.body.inner = OtherCode()

    def forward(self, x):
        return super().forward(x) + 1


OtherNet.__name__ = "Net"


def test_changed_code_is_a_difference_and_the_files_graph_may_win(net, saved):
    other = OtherNet()
    with pytest.raises(LoadMismatchError, match=r"graph: body\.inner: the model has '%\d = sigmoid"):
        other.load(saved)
    report = other.load(saved, graphs="file")
    assert any("forward()" in note for note in report.notes)
    expected = net(rfc_model.images()).asnumpy() + 1
    for active in (False, True):
        other.hybridize(active, engine="numpy") if active else None
        np.testing.assert_allclose(other(rfc_model.images()).asnumpy(), expected, rtol=1e-5)
    with other.body.name_scope():
        other.body.inner = OtherCode()
    other.body.inner.initialize()
    assert other.body._graphs.pinned == {}, "a replaced child gives the code its say again"


def test_code_that_does_not_trace_is_one_of_the_differences(saved):
    class Inner(rfc_model.Inner):
        def hybrid_forward(self, F, x):
            return x if x.shape[0] > 2 else x * 2

    other = rfc_model.Net()
    with other.body.name_scope():
        other.body.inner = Inner()
    with pytest.raises(LoadMismatchError, match="graph: body.inner: tracing the code raised.*HL101"):
        other.load(saved)


def test_a_different_sharing_is_a_difference(saved):
    other = rfc_model.Net()
    with other.head.name_scope():
        other.head.shared = nn.Dense(6)
    with pytest.raises(LoadMismatchError, match="sharing: shared and head.shared"):
        other.load(saved)


def test_an_example_that_does_not_come_out_is_refused(net, tmp_path, monkeypatch):
    monkeypatch.setattr("hybrid_lab.formats.archive.examples._numbers", lambda shape, dtype: np.full(shape, 0.5, dtype))
    real = __import__("hybrid_lab.formats.archive.examples", fromlist=["run"]).run
    monkeypatch.setattr("hybrid_lab.formats.archive.examples.run", lambda *args: [y + 0.1 for y in real(*args)])
    path = net.save(tmp_path / "lies")
    monkeypatch.setattr("hybrid_lab.formats.archive.examples.run", real)
    with pytest.raises(LoadMismatchError, match="graphs/body.json: output 0 of its example differs"):
        gluon.load(path)


# -- cast models, and modes -----------------------------------------------------------------------------------------


class Tripled(gluon.HybridBlock):
    def __init__(self, **named):
        super().__init__(**named)
        self.dense = gluon.nn.Dense(3, in_units=4)

    def hybrid_forward(self, F, x):
        return self.dense(x) * 3


@pytest.mark.parametrize("again", [False, True])
def test_a_cast_model_is_saved_with_its_graph(tmp_path, again):
    """Called in float32, cast, and called again or not: the save traces it with the numbers that it has now."""
    net = Tripled()
    net.initialize()
    net(nd.ones((2, 4)))
    net.cast("float64")
    x = nd.ones((2, 4), dtype="float64")
    if again:
        net(x)
    net.save(tmp_path / "net.hlab")
    np.testing.assert_allclose(gluon.load(tmp_path / "net.hlab")(x).asnumpy(), net(x).asnumpy())


def test_parameters_cast_one_by_one_count_too(tmp_path):
    net = Tripled()
    net.initialize()
    net(nd.ones((2, 4)))
    for parameter in net.collect_params().values():
        parameter.cast("float64")
    x = nd.ones((2, 4), dtype="float64")
    expected = net(x).asnumpy()
    net.save(tmp_path / "net.hlab")
    np.testing.assert_allclose(gluon.load(tmp_path / "net.hlab")(x).asnumpy(), expected)


class ByMode(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x * 2 if autograd.is_training() else x


def test_a_graph_of_one_mode_names_the_mode_that_it_is_asked_for(tmp_path):
    net = ByMode()
    net.hybridize()
    net(nd.ones((2, 4)))
    net.save(tmp_path / "net.hlab")
    again = ByMode()
    again.load(tmp_path / "net.hlab", graphs="file")
    again.hybridize()
    with pytest.raises(HybridLabError, match=r"takes \(tensor,\) in prediction, not \(tensor,\) in training"):
        with autograd.record():
            again(nd.ones((2, 4)))


class NamedByItself(gluon.Block):
    """Adds its children under the names that Gluon gave them, which count all Blocks of the process."""

    def __init__(self):
        super().__init__()
        for child in (nn.Dense(3), nn.BatchNorm(), nn.Dense(2)):
            self._children[child.name] = child

    def forward(self, x):
        for child in self._children.values():
            x = child(x)
        return x


class Around(gluon.Block):
    def __init__(self):
        super().__init__()
        inner = NamedByItself()
        self._children[inner.name] = inner

    def forward(self, x):
        return next(iter(self._children.values()))(x)


@pytest.mark.parametrize("graphs", ["code", "file"])
def test_names_that_differ_in_numbers_only_are_matched_in_order(tmp_path, graphs):
    net, x = Around(), nd.array([[1.0, 2.0]])
    net.initialize()
    net.hybridize()
    expected = net(x)
    path = net.save(tmp_path / "m")
    other = Around()  # dense2 and dense3 where the file has dense0 and dense1
    report = other.load(path, graphs=graphs)
    assert np.array_equal(other(x).asnumpy(), expected.asnumpy())
    assert "matched in order (file -> model): namedbyitself" in str(report.notes)


def test_names_that_overlap_are_matched_in_order_too(tmp_path):
    first, second = nn.HybridSequential(), nn.HybridSequential()
    for net, names in ((first, ("dense0", "dense1")), (second, ("dense1", "dense2"))):
        for name in names:
            net._children[name] = nn.Dense(2, in_units=2)
        net.initialize()
    second.load(first.save(tmp_path / "m", inputs=nd.ones((1, 2))))
    for child, other in zip(first._children.values(), second._children.values(), strict=True):
        assert np.array_equal(child.weight.data().asnumpy(), other.weight.data().asnumpy())


def test_more_children_of_such_names_are_no_match(tmp_path):
    first, second = nn.HybridSequential(), nn.HybridSequential()
    for net, names in ((first, ("dense0", "dense1")), (second, ("dense1", "dense2", "dense3"))):
        for name in names:
            net._children[name] = nn.Dense(2, in_units=2)
        net.initialize()
    path = first.save(tmp_path / "m", inputs=nd.ones((1, 2)))
    with pytest.raises(LoadMismatchError, match="missing block: dense0"):
        second.load(path)
