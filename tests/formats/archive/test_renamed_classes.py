"""Archives of classes that have another name now, and of Blocks that were never called."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics import HybridLabError, LoadMismatchError, SettingError
from hybrid_lab.gluon import nn

X = nd.array(np.random.RandomState(0).uniform(-1, 1, (3, 4)))


class Body(gluon.HybridBlock):
    def __init__(self, units=5, **options):
        super().__init__(**options)
        with self.name_scope():
            self.dense = nn.Dense(units, activation="tanh")

    def hybrid_forward(self, F, x):
        return self.dense(x) * 2


class NewBody(Body):
    pass


class OldBody(Body):
    pass


class Top(gluon.Block):
    def __init__(self, body=Body):
        super().__init__()
        self.body = body()
        self.head = nn.Dense(2)

    def forward(self, x):
        return self.head(self.body(x))


class NewTop(Top):
    def __init__(self):
        super().__init__(NewBody)


class OldTop(Top):
    def __init__(self):
        super().__init__(OldBody)


RENAMED = {
    "classes": {"OldTop": NewTop, "OldBody": NewBody},
    "names": {"OldTop": "NewTop", "OldBody": "NewBody"},
}


def called(make):
    net = make()
    net.initialize(mx.init.Uniform(1))
    net.hybridize()
    return net, net(X).asnumpy()


@pytest.mark.parametrize("classes", RENAMED.values(), ids=RENAMED)
@pytest.mark.parametrize("graphs", ["code", "file"])
def test_load_into_a_model_of_renamed_classes(classes, graphs, tmp_path):
    net, wanted = called(OldTop)
    net.save(tmp_path / "old.hlab")
    again = NewTop()
    with pytest.raises(LoadMismatchError, match="body .*OldBody .*NewBody"):
        again.load(tmp_path / "old.hlab", graphs=graphs)
    assert not again.load(tmp_path / "old.hlab", graphs=graphs, classes=classes).differences
    np.testing.assert_array_equal(again(X).asnumpy(), wanted)
    assert not mx.load_cached_graphs(again, tmp_path / "old.hlab", classes=classes, graphs=graphs).differences


def test_open_without_the_old_code(tmp_path):
    net, wanted = called(OldTop)
    net.save(tmp_path / "old.hlab")
    again = gluon.load(tmp_path / "old.hlab", classes=RENAMED["classes"])
    assert type(again) is NewTop and type(again.body) is NewBody
    np.testing.assert_array_equal(again(X).asnumpy(), wanted)
    again.save(tmp_path / "new.hlab")
    assert not NewTop().load(tmp_path / "new.hlab").differences
    named = gluon.load(tmp_path / "old.hlab", classes=RENAMED["names"])  # names say nothing about code
    assert repr(named).startswith("NewTop [code missing]")
    np.testing.assert_array_equal(named.head(named.body(X)).asnumpy(), wanted)


def test_a_registered_class_keeps_its_arguments(tmp_path):
    @gluon.register
    class RegisteredBody(Body):
        pass

    net, wanted = called(lambda: RegisteredBody(units=7))
    net.save(tmp_path / "old.hlab")

    class Renamed(Body):
        pass

    again = gluon.load(tmp_path / "old.hlab", classes={"RegisteredBody": Renamed})
    assert type(again) is Renamed and again.dense.weight.shape == (7, 4)
    np.testing.assert_array_equal(again(X).asnumpy(), wanted)


@pytest.mark.parametrize(
    ("classes", "error", "text"),
    [
        ({"OldTopp": NewTop}, HybridLabError, "no Block of that class; it has OldTop"),
        ({"OldTop": NewTop()}, SettingError, "a class of Blocks or its name for 'OldTop'"),
        ({"OldTop": int}, SettingError, "a class of Blocks or its name for 'OldTop'"),
        ([("OldTop", NewTop)], SettingError, "takes a dict"),
    ],
)
def test_wrong_classes(classes, error, text, tmp_path):
    net, _ = called(OldTop)
    net.save(tmp_path / "old.hlab")
    for load in (NewTop().load, gluon.load):
        with pytest.raises(error, match=text):
            load(tmp_path / "old.hlab", classes=classes)


# -- Blocks that were never called -------------------------------------------------------------------------------------


class Never(gluon.Block):
    """Blocks of known and of open shapes."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.known, self.open = nn.Dense(3, in_units=4), nn.Dense(2)
            self.norm = nn.BatchNorm()
            self.scale = self.params.get("scale", shape=(2,))

    def forward(self, x):
        return self.norm(self.open(self.known(x))) * self.scale.data()


def values(net):
    found = {}
    for path, parameter in net._collect_params_with_prefix().items():
        found[path] = parameter.data().asnumpy() if parameter._data is not None else None
    return found


@pytest.mark.parametrize("fresh", ["uninitialized", "initialized"])
@pytest.mark.parametrize("hybridized", [True, False])
def test_a_model_that_was_never_called_comes_back(fresh, hybridized, tmp_path):
    net = Never()
    net.initialize(mx.init.Constant(0.25))
    if hybridized:
        net.hybridize()
    net.save(tmp_path / "never.hlab")
    again = Never()
    if fresh == "initialized":
        again.initialize(mx.init.Constant(0.25))
    again.load(tmp_path / "never.hlab")
    opened = gluon.load(tmp_path / "never.hlab")
    for model in (again, opened):
        for path, array in values(net).items():
            if array is not None:
                np.testing.assert_array_equal(values(model)[path], array)
    wanted = net(X).asnumpy()  # completes the open shapes
    np.testing.assert_array_equal(again(X).asnumpy(), wanted)
    known = opened.known(X)
    np.testing.assert_array_equal(opened.open(known).asnumpy(), again.open(again.known(X)).asnumpy())
    assert (opened.open.weight.data().asnumpy() == 0.25).all()  # the initializer that was waiting


def test_a_failed_load_initializes_nothing(tmp_path):
    net = Never()
    net.initialize()
    net.save(tmp_path / "never.hlab")
    other = Never()
    other.open = nn.Dense(4)
    other.more = nn.Dense(1)
    with pytest.raises(LoadMismatchError):
        other.load(tmp_path / "never.hlab")
    assert all(each._deferred_init is None and each._data is None for each in other.collect_params().values())


def test_a_model_that_has_values_keeps_them(tmp_path):
    net = Never()
    net.initialize()
    net.save(tmp_path / "never.hlab")
    other = Never()
    other.initialize(mx.init.Constant(3))
    other(X)
    report = other.load(tmp_path / "never.hlab")
    assert (other.open.weight.data().asnumpy() == 3).all()
    assert "open.weight had no values when the file was saved; the model keeps its own" in report.notes
