"""Every door that writes a graph gives each variable a name of its own, or says which two variables have one name."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd, sym
from hybrid_lab.diagnostics import HybridLabError, Unmappable
from hybrid_lab.gluon import nn
from tests.formats.doors import check

pytestmark = pytest.mark.usefixtures("quick_disk")


class OfArray(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x * F.array([1.0, 2.0])


class OfRange(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.broadcast_add(x, F.arange(2)) * F.array([3.0, 4.0])


class OfConstant(gluon.HybridBlock):
    def __init__(self, **options):
        super().__init__(**options)
        self.shift = gluon.Constant(f"{self.prefix}shift", nd.array([1.0, 2.0]))

    def hybrid_forward(self, F, x, shift):
        return F.broadcast_add(x, shift)


class OfParameter(gluon.HybridBlock):
    def __init__(self, **options):
        super().__init__(**options)
        self.scale = gluon.Parameter("data", shape=(2,))  # the name of the input in every graph

    def hybrid_forward(self, F, x, scale):
        return F.broadcast_mul(x, scale)


class OfLoops(gluon.HybridBlock):
    """Arrays in two loops and outside of them."""

    def hybrid_forward(self, F, x):
        y = x * F.array([1.0, 2.0])
        first, _ = F.contrib.foreach(lambda row, states: (row * F.array([3.0, 4.0]), states), y, [x[0]])
        second, _ = F.contrib.foreach(lambda row, states: (row * F.array([5.0, 6.0]), states), y, [x[0]])
        return first + second * F.array([7.0, 8.0])


class OneNameForOperators(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.relu(x, name="same") + F.tanh(x, name="same") * F.array([1.0, 2.0])


MEMBERS = [OfArray, OfRange, OfConstant, OfParameter, OfLoops, OneNameForOperators]


class Twice(gluon.HybridBlock):
    """A Block that calls its child twice."""

    def __init__(self, member):
        super().__init__()
        self.inner = member()

    def hybrid_forward(self, F, x):
        return self.inner(self.inner(x) * 2)


class InScope(Twice):
    """The child lies in the parent's scope of names."""

    def __init__(self, member):
        gluon.HybridBlock.__init__(self)
        with self.name_scope():
            self.inner = member()


class OfOnePrefix(gluon.HybridBlock):
    """Two children of one prefix."""

    def __init__(self, member):
        super().__init__()
        self.one, self.two = member(prefix="same_"), member(prefix="same_")

    def hybrid_forward(self, F, x):
        return self.one(self.two(x) * 2)


PARENTS = {"twice": Twice, "in a scope": InScope, "two of one prefix": OfOnePrefix}
NETS = {
    f"{name}: {member.__name__}": (lambda parent=parent, member=member: parent(member))
    for name, parent in PARENTS.items()
    for member in MEMBERS
    if parent is not OfOnePrefix or member not in (OfConstant, OfParameter)  # Gluon refuses two Parameters of one name
}
NETS["twice of twice"] = lambda: Twice(lambda: Twice(OfArray))


@pytest.mark.each_value
@pytest.mark.parametrize("hybridized", [True, False])
@pytest.mark.parametrize("make", NETS.values(), ids=NETS)
def test_every_file(make, hybridized, tmp_path):
    x = nd.array([[1.0, 2.0], [3.0, 4.0], [5.0, -6.0]])
    check(lambda: [make()], [[x]], tmp_path, hybridized)
    net = make()
    net.initialize(mx.init.Uniform(1))
    net.hybridize()
    wanted = net(x).asnumpy()
    symbol_file, params_file = net.export(str(tmp_path / "net"))
    outputs = net(sym.var("data"))
    names = sym.load(symbol_file).list_inputs()
    assert len(set(names)) == len(names)
    for again in (
        gluon.SymbolBlock.imports(symbol_file, ["data"], params_file),
        gluon.SymbolBlock(outputs, sym.var("data"), params=net.collect_params()),
        gluon.SymbolBlock(sym.load_json(outputs.tojson()), sym.var("data"), params=net.collect_params()),
    ):
        np.testing.assert_allclose(again(x).asnumpy(), wanted, rtol=1e-6)


def test_parameters_of_one_name_that_were_initialized_apart(tmp_path):
    net = OfOnePrefix(lambda prefix: nn.Dense(2, in_units=2, prefix=prefix))
    net.one.initialize(mx.init.Uniform(1))
    net.two.initialize(mx.init.Uniform(1))
    net.hybridize()
    x = nd.ones((3, 2))
    wanted = net(x).asnumpy()
    again = gluon.SymbolBlock.imports(*_names(net.export(str(tmp_path / "net"))))
    np.testing.assert_allclose(again(x).asnumpy(), wanted, rtol=1e-6)
    net.save(tmp_path / "net.hlab")
    np.testing.assert_allclose(gluon.load(tmp_path / "net.hlab")(x).asnumpy(), wanted, rtol=1e-6)


def _names(files):
    return files[0], "data", files[1]


def test_variables_of_one_name_are_one_in_a_symbol_block_as_in_mxnet(tmp_path):
    two = sym.var("data") + sym.var("w", shape=(2,)) * sym.var("w")
    net = gluon.SymbolBlock(two, sym.var("data"))
    net.initialize(mx.init.Constant(3))
    net.hybridize()
    assert net(nd.ones((2,))).asnumpy().tolist() == [10, 10]
    again = gluon.SymbolBlock.imports(*_names(net.export(str(tmp_path / "net"))))
    assert again(nd.ones((2,))).asnumpy().tolist() == [10, 10]
    twice = gluon.SymbolBlock(sym.var("a") + sym.var("a") * 2, sym.var("a"))
    assert twice(nd.ones((2,))).asnumpy().tolist() == [3, 3]
    with pytest.raises(HybridLabError, match=r"two variables of the SymbolBlock are named 'w' and differ"):
        gluon.SymbolBlock(sym.var("w", shape=(2,)) + sym.var("w", shape=(3,)), [])


@pytest.mark.parametrize(
    "write",
    [
        lambda symbol, path: symbol.tojson(),
        lambda symbol, path: symbol.save(f"{path}.json"),
        lambda symbol, path: mx.model.save_checkpoint(path, 1, symbol, {}, {}),
    ],
)
def test_two_variables_of_one_name_are_named(write, tmp_path):
    with pytest.raises(Unmappable, match=r"named 'a'.*a = sym.var\('a'\)"):
        write(sym.var("a") + sym.var("a"), str(tmp_path / "symbol"))
    with pytest.raises(Unmappable, match=r"'ﬁ' and 'fi', which look alike"):
        write(sym.var("ﬁ") + sym.var("fi"), str(tmp_path / "symbol"))
    assert not list(tmp_path.iterdir())
