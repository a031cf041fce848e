"""Nets of mixed precision in files, and nets that are converted for it."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.contrib import amp
from hybrid_lab.diagnostics import HybridLabError, SettingError
from hybrid_lab.gluon import HybridBlock, nn
from tests.contrib.amp_nets import flat, lenet, made, uniform

# -- files -----------------------------------------------------------------------------------------------------------


def test_archives_of_a_net_used_in_mixed_precision_are_plain(tmp_path):
    x = nd.array(uniform(2, 1, 8, 8))
    net = made("lenet", x)
    net.hybridize(engine="numpy")
    plain = net(x).asnumpy()
    amp.init()
    assert net(x).dtype == np.float16
    net.save(tmp_path / "net")
    net.export(str(tmp_path / "net"))
    amp.disable()
    found = gluon.load(tmp_path / "net.hlab")
    assert {p.data().dtype for p in found.collect_params().values()} == {np.float32}
    np.testing.assert_allclose(found(x).asnumpy(), plain, atol=1e-6)
    live = lenet()
    live.load(tmp_path / "net")
    np.testing.assert_allclose(live(x).asnumpy(), plain, atol=1e-6)
    assert "cast" not in (tmp_path / "net-symbol.json").read_text().lower()
    amp.init()
    assert found(x).dtype == np.float16  # its graph is converted like any other
    eager = found(x).asnumpy()
    found.hybridize(engine="numpy")
    np.testing.assert_allclose(found(x).asnumpy(), eager, atol=2e-3)


# -- converted nets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cast_optional_params", [False, True])
def test_a_converted_net_computes_what_mixed_precision_computes(cast_optional_params, tmp_path):
    x = nd.array(uniform(2, 1, 8, 8))
    net = made("lenet", x)
    net.hybridize(engine="numpy")
    plain = net(x).asnumpy()
    converted = amp.convert_hybrid_block(net, cast_optional_params=cast_optional_params)
    found = converted(x)
    assert found.dtype == np.float16 and net(x).dtype == np.float32
    kinds = {p.name.rsplit("_", 1)[1]: np.dtype(p.dtype).name for p in converted.collect_params().values()}
    assert kinds["weight"] == kinds["bias"] == ("float16" if cast_optional_params else "float32")
    assert kinds["gamma"] == kinds["var"] == "float32"
    amp.init()
    np.testing.assert_array_equal(found.asnumpy(), net(x).asnumpy())
    np.testing.assert_array_equal(found.asnumpy(), converted(x).asnumpy())
    amp.disable()
    converted.hybridize(engine="numpy")
    np.testing.assert_allclose(converted(x).asnumpy(), found.asnumpy(), atol=2e-3)
    np.testing.assert_allclose(converted(x).asnumpy(), plain, atol=1e-2)

    converted.save(tmp_path / "small")
    loaded = gluon.load(tmp_path / "small.hlab")
    np.testing.assert_array_equal(loaded(x).asnumpy(), found.asnumpy())
    assert loaded(x).dtype == np.float16
    again = amp.convert_hybrid_block(net, cast_optional_params=cast_optional_params)
    again.load(tmp_path / "small", graphs="file")
    np.testing.assert_array_equal(again(x).asnumpy(), found.asnumpy())


def test_export_leaves_the_conversions_out_unless_asked(tmp_path):
    x = nd.array(uniform(2, 1, 8, 8))
    net = made("lenet", x)
    net.hybridize(engine="numpy")
    plain = net(x).asnumpy()
    converted = amp.convert_hybrid_block(net)
    for keep in (True, False):
        files = converted.export(str(tmp_path / "net"), remove_amp_cast=not keep)
        assert ("amp_cast" in (tmp_path / "net-symbol.json").read_text()) == keep
        found = gluon.SymbolBlock.imports(files[0], ["data"], files[1])(x)
        assert found.dtype == (np.float16 if keep else np.float32)
        np.testing.assert_array_equal(found.asnumpy(), converted(x).asnumpy() if keep else plain)
    narrow = amp.convert_hybrid_block(net, cast_optional_params=True)
    with pytest.raises(HybridLabError, match="are float16, so that the graph needs its conversions"):
        narrow.export(str(tmp_path / "narrow"))
    files = narrow.export(str(tmp_path / "narrow"), remove_amp_cast=False)
    np.testing.assert_array_equal(
        gluon.SymbolBlock.imports(files[0], ["data"], files[1])(x).asnumpy(), narrow(x).asnumpy()
    )


def test_a_converted_net_keeps_its_arrangement_of_arguments_and_results():
    class Pair(HybridBlock):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(2, in_units=3)

        def hybrid_forward(self, F, inputs):
            return {"sum": self.dense(inputs["a"]) + inputs["b"], "rest": (inputs["b"],)}

    net = Pair()
    net.initialize()
    net.hybridize(engine="numpy")
    inputs = {"a": nd.ones((1, 3)), "b": nd.ones((1, 2))}
    wanted = net(inputs)
    found = amp.convert_hybrid_block(net)(inputs)
    assert found["rest"][0].shape == (1, 2) and found["sum"].dtype == np.float32
    np.testing.assert_allclose(found["sum"].asnumpy(), wanted["sum"].asnumpy(), atol=1e-3)


def test_a_converted_loop(tmp_path):
    x = nd.array(uniform(3, 1, 3))
    net = made("scan", x)
    net.hybridize(engine="numpy")
    net(x)
    converted = amp.convert_hybrid_block(net)
    found = flat(converted(x))
    amp.init()
    for one, other in zip(found, flat(net(x)), strict=True):
        np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())
    amp.disable()
    converted.save(tmp_path / "loop")
    for one, other in zip(found, flat(gluon.load(tmp_path / "loop.hlab")(x)), strict=True):
        np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())


def test_what_convert_hybrid_block_refuses():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    with pytest.raises(HybridLabError, match="has no graph yet: call it once"):
        amp.convert_hybrid_block(net)
    net.hybridize(engine="numpy")
    net(nd.ones((1, 3)))
    with pytest.raises(SettingError, match="the graph has no node 'dense_fwd'"):
        amp.convert_hybrid_block(net, excluded_sym_names=["dense_fwd"])
    with pytest.raises(SettingError, match=r"must be a list of names, such as \['dense0'\]"):
        amp.convert_hybrid_block(net, excluded_sym_names="dense0")
    with pytest.raises(SettingError, match="target_dtype .*'int8'"):
        amp.convert_hybrid_block(net, "int8")
    with pytest.raises(TypeError, match="takes a HybridBlock, not Block"):
        amp.convert_hybrid_block(gluon.Block())
    name = net._graphs.first().graph.operators[-1].name
    assert amp.convert_hybrid_block(net, excluded_sym_names=[name])(nd.ones((1, 3))).dtype == np.float32


def test_convert_model():
    symbol = mx.sym.softmax(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc"), name="out")
    weights = {"fc_weight": nd.ones((2, 3)), "fc_bias": nd.ones(2)}
    for narrow in (False, True):
        made, arguments, states = amp.convert_model(symbol, weights, {}, cast_optional_params=narrow)
        assert {array.dtype for array in arguments.values()} == {np.float16 if narrow else np.float32} and not states
        assert made.list_arguments() == symbol.list_arguments() and made.list_outputs() == symbol.list_outputs()
        block = gluon.SymbolBlock(made, mx.sym.var("data"))
        block.cast("float16" if narrow else "float32")
        block.initialize()
        for name, array in arguments.items():
            block.params[name].set_data(array)
        assert block(nd.ones((1, 3))).dtype == np.float32
