"""Files of parameters whose names differ in the prefix only: the error says so, and the call that it names works."""

import re

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics import LoadMismatchError
from hybrid_lab.gluon import nn
from hybrid_lab.gluon.files.loading import prefixes_of
from hybrid_lab.gluon.name_maps import NameMap


def made(prefix, count=2):
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        for _ in range(count):
            net.add(nn.Dense(3, in_units=3))
    net.initialize(mx.init.Uniform(1))
    return net


class Outer(gluon.HybridBlock):
    def __init__(self):
        super().__init__(prefix="outer_")
        self.body = made("body_")

    def hybrid_forward(self, F, x):
        return self.body(x)


def wrapped(net, path):
    net.save_parameters(path)
    nd.save(path, {f"module.{name}": value for name, value in nd.load(path).items()})


WRITERS = {
    "by names": lambda net, path: net.collect_params().save(path),
    "exported": lambda net, path: net.export(path.removesuffix("-0000.params")),
    "stripped": lambda net, path: net.collect_params().save(path, strip_prefix="theirs_"),
    "by paths": lambda net, path: net.save_parameters(path),
    "by paths of a wrapper": wrapped,
}
READERS = {
    "load_parameters": (lambda: made("ours_"), lambda net, path: net.load_parameters(path)),
    "load_parameters of an outer Block": (Outer, lambda net, path: net.load_parameters(path)),
    "collect_params().load": (lambda: made("ours_"), lambda net, path: net.collect_params().load(path)),
    "with restore_prefix": (
        lambda: made("ours_"), lambda net, path: net.collect_params().load(path, restore_prefix="ours_")
    ),
}  # fmt: skip


def values(net):
    return [each.data().asnumpy() for each in net._collect_params_with_prefix().values()]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("writer", WRITERS)
def test_the_error_names_a_call_that_works(writer, reader, tmp_path):
    theirs = made("theirs_")
    theirs.hybridize()
    theirs(nd.ones((1, 3)))
    path = str(tmp_path / "theirs-0000.params")
    WRITERS[writer](theirs, path)
    make, read = READERS[reader]
    net = make()
    try:
        read(net, path)
    except LoadMismatchError as error:
        text = str(error)
        calls = re.findall(r"net\.(load_parameters|collect_params\(\)\.load)\(file(?:, (\w+)=(.+?))?\)", text)
        assert calls and ("differ only in the prefix" in text or "are paths" in text), text
        for name, argument, value in calls:
            net = make()
            load = net.load_parameters if name == "load_parameters" else net.collect_params().load
            options = {argument: eval(value)} if argument else {}  # a dict or a text of the message
            if writer == "by paths of a wrapper" and not argument:
                with pytest.raises(LoadMismatchError, match="map={'module': ''}"):
                    load(path)
                options = {"map": {"module": ""}}
            load(path, **options)
    for mine, other in zip(values(net), values(theirs), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_import_of_a_graph_with_arrays_of_other_names(tmp_path):
    net = made("theirs_")
    net.hybridize()
    net(nd.ones((1, 3)))
    symbol_file, _ = net.export(str(tmp_path / "net"))
    net.collect_params().save(tmp_path / "stripped.params", strip_prefix="theirs_")
    with pytest.raises(LoadMismatchError, match="prefix, '' .*'theirs_'"):
        gluon.SymbolBlock.imports(symbol_file, "data", tmp_path / "stripped.params")
    block = gluon.SymbolBlock.imports(symbol_file, "data")
    block.load_parameters(tmp_path / "stripped.params", map={"": "theirs_"})
    np.testing.assert_array_equal(block(nd.ones((1, 3))).asnumpy(), net(nd.ones((1, 3))).asnumpy())


def test_names_that_differ_in_numbers_are_told_too(tmp_path):
    def plain():
        net = nn.Sequential()
        net.add(nn.Dense(3, in_units=3), nn.Dense(2, in_units=3))
        net.initialize()
        return net

    plain().collect_params().save(tmp_path / "net.params")
    with pytest.raises(LoadMismatchError, match=r"differ only in their numbers.*net\.save_parameters\(file\)"):
        plain().collect_params().load(tmp_path / "net.params")


def test_other_differences_keep_their_hints(tmp_path):
    made("a_", 3).collect_params().save(tmp_path / "net.params")
    with pytest.raises(LoadMismatchError, match=r"\(allow_missing=True keeps"):
        made("b_").collect_params().load(tmp_path / "net.params")


@pytest.mark.parametrize(
    ("theirs", "ours", "prefixes"),
    [
        (["net0_dense0_weight", "net0_dense0_bias"], ["net1_dense0_weight", "net1_dense0_bias"], ("net0_", "net1_")),
        (["weight", "bias"], ["d_weight", "d_bias"], ("", "d_")),
        (["0.weight"], ["body.0.weight"], ("", "body.")),
        (["a.0.weight", "a.1.weight"], ["b_0.weight", "b_1.weight"], ("a.", "b_")),
        (["a_weight"], ["a_weight"], None),
        (["a_weight"], ["b_bias"], None),
    ],
)
def test_prefixes(theirs, ours, prefixes):
    assert prefixes_of(theirs, ours) == prefixes


def test_maps_of_prefixes():
    assert NameMap({"net0_": "net1_"}).path("net0_dense0_weight") == "net1_dense0_weight"
    assert NameMap({"net0_": "", "net0_body_": "body."}).path("net0_body_0.weight") == "body.0.weight"
    assert NameMap({"": "body"}).path("0.weight") == "body.0.weight"
    assert NameMap({"": "net1_"}).path("dense0_weight") == "net1_dense0_weight"
    assert NameMap({"module.": ""}).path("module.0.weight") == "0.weight"
    assert NameMap({"net0_": "net1_"}).path("other_weight") == "other_weight"
