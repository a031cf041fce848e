"""SymbolBlock.imports of files that the real MXNet exported, eager and hybridized."""

from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.diagnostics import LoadMismatchError

GOLDEN = Path(__file__).parents[2] / "golden" / "formats"
SYMBOL, PARAMS = str(GOLDEN / "net-symbol.json"), str(GOLDEN / "net-0001.params")


@pytest.mark.parametrize("engine", ["eager", "numpy", "onnxruntime"])
def test_outputs_of_the_real_mxnet(engine):
    net = gluon.SymbolBlock.imports(SYMBOL, ["data"], PARAMS)
    if engine != "eager":
        net.hybridize(engine=engine)
    golden = np.load(GOLDEN / "net.npz")
    for index, output in enumerate(net(mx.nd.array(golden["x"]))):
        np.testing.assert_allclose(output.asnumpy(), golden[f"y{index}"], rtol=1e-5, atol=1e-6)


def test_it_exports_and_saves_again(tmp_path):
    net = gluon.SymbolBlock.imports(SYMBOL, ["data"], PARAMS)
    x = mx.nd.array(np.load(GOLDEN / "net.npz")["x"])
    expected = net(x)[0].asnumpy()
    again = gluon.SymbolBlock.imports(*_with_name(net.export(str(tmp_path / "again"), 3)))
    assert np.array_equal(again(x)[0].asnumpy(), expected)
    assert np.array_equal(gluon.load(net.save(tmp_path / "m"))(x)[0].asnumpy(), expected)


def _with_name(files):
    return files[0], "data", files[1]


def test_missing_and_extra_parameters_are_one_error(tmp_path):
    from hybrid_lab.formats.mxnet import read_params, write_params

    arrays = read_params(PARAMS)
    arrays["arg:other"] = arrays.pop("arg:net0_dense0_bias")
    write_params(tmp_path / "bad.params", arrays)
    with pytest.raises(LoadMismatchError) as caught:
        gluon.SymbolBlock.imports(SYMBOL, "data", str(tmp_path / "bad.params"))
    assert "net0_dense0_bias" in str(caught.value) and "other" in str(caught.value)
