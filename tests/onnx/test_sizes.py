"""Sizes that an ONNX file declares: imported graphs refuse others, as ONNX Runtime does, unless they are asked for."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics.errors import ArchiveError, DeclaredSizeError, DTypeError
from hybrid_lab.onnx.errors import OnnxError


def _mean(path, *shapes, kind=TensorProto.FLOAT):
    """A file that divides the sum of all its inputs' rows by 6."""
    names = ["x", "y"][: len(shapes)]
    nodes = [helper.make_node("Add", names, ["s"])] if len(names) == 2 else [helper.make_node("Identity", names, ["s"])]
    nodes.append(helper.make_node("ReduceSum", ["s", "axes"], ["t"], keepdims=0))
    nodes.append(helper.make_node("Div", ["t", "six"], ["z"]))
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, shape in zip(names, shapes, strict=True)]
    constants = [helper.make_tensor("axes", TensorProto.INT64, [1], [1]), helper.make_tensor("six", kind, [], [6])]
    output = helper.make_tensor_value_info("z", kind, None)
    graph = helper.make_graph(nodes, "mean", inputs, [output], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


#: name -> (declared shapes, imports' arguments, shapes that compute, shapes that are refused)
CASES = {
    "numbers": ([(3, 6)], {}, [[(3, 6)]], [[(4, 6)], [(3, 8)]]),
    "a named batch": ([("b", 6)], {}, [[(1, 6)], [(4, 6)]], [[(3, 8)], [(3, 6, 1)]]),
    "one name twice": ([("b", 6), ("b", 6)], {}, [[(4, 6), (4, 6)]], [[(4, 6), (3, 6)], [(4, 6), (1, 6)]]),
    "a repeated row": ([("b", 6), (1, 6)], {}, [[(4, 6), (1, 6)]], [[(4, 6), (4, 6)]]),
    "an unknown size": ([(None, 6)], {}, [[(4, 6)]], [[(3, 8)]]),
    "given shapes": ([(3, 6)], {"shapes": {"x": (None, 6)}}, [[(4, 6)]], [[(3, 8)]]),
    "open sizes": ([(3, 6)], {"shapes": {"x": (None, None)}}, [[(4, 6)], [(4, 8)]], []),
    "named sizes": (
        [(3, 6), (3, 6)],
        {"shapes": {"x": ("b", 6), "y": ("b", 6)}},
        [[(4, 6), (4, 6)]],
        [[(4, 6), (3, 6)]],
    ),
}


def _holds(net, good, bad):
    for shapes in good:
        arrays = [np.random.default_rng(0).random(shape, np.float32) for shape in shapes]
        np.testing.assert_allclose(net(*map(nd.array, arrays)).asnumpy(), sum(arrays).sum(1) / 6, 1e-5)
    for shapes in bad:
        with pytest.raises(DeclaredSizeError, match="the input '[xy]' has"):
            net(*map(nd.ones, shapes))


class Model(mx.onnx.OnnxBlock):
    def forward(self, x, *args):
        return super().forward(x, *args) * 1.0


class Inside(mx.onnx.OnnxBlock):
    def forward(self, x):
        return super().forward(x, aux_output=["t"])[1]


@pytest.mark.parametrize("name", CASES)
def test_declared_sizes(name, tmp_path):
    shapes, options, good, bad = CASES[name]
    path = _mean(tmp_path / "m.onnx", *shapes)
    net = mx.onnx.imports(path, **options)
    _holds(net, good, bad)
    net.hybridize()
    _holds(net, good, bad)
    net.save(tmp_path / "a.hlab")
    _holds(gluon.load(tmp_path / "a.hlab"), good, bad)
    _holds(Model(path, **options), good, bad)
    mx.onnx.export(net, tmp_path / "again.onnx")
    again = mx.onnx.imports(tmp_path / "again.onnx")
    _holds(again, good[:1], bad)


def test_whole_numbers_stay_whole_numbers(tmp_path):
    net = mx.onnx.imports(_mean(tmp_path / "m.onnx", ("b", 6), kind=TensorProto.INT64))
    assert net(nd.ones((2, 6), dtype="int64") * 5).asnumpy().tolist() == [5, 5]
    with pytest.raises(DTypeError, match="'x' has the dtype float32"):
        net(nd.ones((2, 6)))


def test_a_size_that_the_user_names_must_be_a_name_or_a_number(tmp_path):
    with pytest.raises(OnnxError, match="shapes="):
        mx.onnx.imports(_mean(tmp_path / "m.onnx", ("b", 6)), shapes={"x": (2.5, 6)})


def test_results_inside_the_graph_are_checked_too(tmp_path):
    net = Inside(_mean(tmp_path / "m.onnx", ("b", 6)))
    assert net(nd.ones((2, 6))).asnumpy().tolist() == [6, 6]
    with pytest.raises(DeclaredSizeError):
        net(nd.ones((2, 8)))


class Reads(gluon.HybridBlock):
    def forward(self, x):
        return x.sum(axis=1) / x.shape[1]


class Around(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.inner = Reads()

    def hybrid_forward(self, F, x):
        return self.inner(x) * 1.0


@pytest.mark.parametrize("kind", [Reads, Around])
def test_code_that_reads_shapes_is_exported_with_its_sizes(kind, tmp_path):
    net = kind()
    net.hybridize()
    net(nd.ones((3, 6)))
    net.export(str(tmp_path / "m"))
    mx.onnx.export(net, tmp_path / "m.onnx")
    block = gluon.SymbolBlock.imports(f"{tmp_path}/m-symbol.json", ["data"], f"{tmp_path}/m-0000.params")
    for again in (block, mx.onnx.imports(tmp_path / "m.onnx")):
        assert again(nd.ones((3, 6))).asnumpy().tolist() == [1, 1, 1]
        with pytest.raises(DeclaredSizeError, match="'data' has the size 8 on axis 1"):
            again(nd.ones((3, 8)))


@pytest.mark.parametrize("damage", ["[1]", "{}", "[", '[{"inputs": ["no"], "declares": "[]"}]'])
def test_damaged_checks_in_mxnets_files_are_typed_errors(damage, tmp_path):
    net = Reads()
    net.hybridize()
    net(nd.ones((3, 6)))
    net.export(str(tmp_path / "m"))
    file = tmp_path / "m-symbol.json"
    document = json.loads(file.read_text())
    document["attrs"]["hybrid_lab_checked_inputs"] = ["str", damage]
    file.write_text(json.dumps(document))
    with pytest.raises(ArchiveError, match="checks of the graph's inputs"):
        mx.sym.load(str(file))
