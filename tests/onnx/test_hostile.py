"""Damaged and hostile ONNX files: typed errors, little memory, nothing outside the file's folder."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.onnx.errors import OnnxError
from tests.onnx import mutations

onnx = pytest.importorskip("onnx")
helper, numpy_helper, FLOAT = onnx.helper, onnx.numpy_helper, onnx.TensorProto.FLOAT


def model(nodes, weights=(), shape=(2, 3), opset=17, ir=10, functions=(), inputs=("x",), outputs=("y",)):
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info(name, FLOAT, shape) for name in inputs],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs], list(weights),
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir, functions=functions)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, name="bad", **attributes)


def numbers(name, *values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def function(name, nodes):
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["b"], nodes, opsets)


def calls(name, source="a", target="b"):
    return helper.make_node(name, [source], [target], domain="own")


RELU = helper.make_node("Relu", ["x"], ["y"])


def _dims(*dims):
    tensor = numpy_helper.from_array(np.ones(3, np.float32), "w")
    del tensor.dims[:]
    tensor.dims.extend(dims)
    return model([node("Add", ["x", "w"], ["y"])], [tensor])


def _external(location, **more):
    tensor = onnx.TensorProto(name="w", data_type=FLOAT, dims=[3], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in {"location": location, **more}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return model([node("Add", ["x", "w"], ["y"])], [tensor])


CASES = {
    "unsorted": (model([node("Relu", ["a"], ["y"]), helper.make_node("Neg", ["x"], ["a"])]), "no output of an earlier"),
    "a cycle": (model([node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"])], outputs=("b",)), "a cycle"),
    "a name twice": (model([RELU, node("Neg", ["x"], ["y"])]), "'y' twice"),
    "an output named as an input": (model([node("Neg", ["x"], ["x"])], outputs=("x",)), "'x' twice"),
    "unknown operator": (model([node("Rellu", ["x"], ["y"])]), "Rellu.*nearest.*Relu"),
    "unknown domain": (model([helper.make_node("Relu", ["x"], ["y"], domain="mine")]), "no opset of the domain 'mine'"),
    "too few inputs": (model([node("Add", ["x"], ["y"])]), "1 inputs.*takes 2"),
    "too many inputs": (model([node("Relu", ["x", "x"], ["y"])]), "2 inputs.*takes 1"),
    "too many outputs": (model([node("Relu", ["x"], ["y", "z"])]), "2 outputs"),
    "unknown attribute": (model([node("Relu", ["x"], ["y"], wild=1)]), "'wild' is not known"),
    "output of no node": (model([RELU], outputs=("z",)), "'z'"),
    "duplicate initializer": (model([RELU], [numbers("w", 1), numbers("w", 2)]), "'w' appears twice"),
    "duplicate input": (model([RELU], inputs=("x", "x")), "'x' appears twice"),
    "negative dims": (_dims(-3), "negative size"),
    "huge dims": (_dims(2**40, 2**20), "no array of shape|do not fit"),
    "dims that do not fit": (_dims(4), "no array of shape"),
    "negative input": (model([RELU], shape=(-2, 3)), "a size of -2"),
    "huge input": (model([RELU], shape=(2**62, 3)), "a size of"),
    "opset 999": (model([RELU], opset=999), "opset 999"),
    "opset 1": (model([RELU], opset=1), "7 is the oldest"),
    "IR 999": (model([RELU], ir=999), "IR version 999"),
    "a function that calls itself": (
        model([calls("F", "x", "y")], functions=[function("F", [calls("F")])]), "'F' calls itself"),
    "functions that call one another": (
        model([calls("F", "x", "y")], functions=[function("F", [calls("G")]), function("G", [calls("F")])]),
        "calls itself"),
    "functions that double thirty times": (
        model([calls("F0", "x", "y")], functions=[
            function("F30", [helper.make_node("Neg", ["a"], ["b"])]),
            *(function(f"F{k}", [calls(f"F{k + 1}", "a", "c"), calls(f"F{k + 1}", "c", "b")]) for k in range(30))]),
        "unfold to more nodes"),
    "a loop of 2**60 steps": (
        model([node("Loop", ["n", "", "x"], ["y"], body=mutations.models()[2].graph.node[0].attribute[0].g)],
              [numbers("n", 2**60), numpy_helper.from_array(np.ones(1, np.float32), "one")]),
        "unfold to more nodes|one number"),
    "a constant of 2**60 elements": (
        model([node("ConstantOfShape", ["n"], ["a"]), node("Add", ["x", "a"], ["y"])], [numbers("n", 2**30, 2**30)]),
        "broadcast"),
    "an array repeated 2**40 times": (
        model([node("Tile", ["x", "n"], ["a"]), node("Add", ["x", "a"], ["y"])], [numbers("n", 2**40, 1)]),
        "broadcast"),
    "external data above the folder": (_external("../secret"), "own folder"),
    "external data at an absolute path": (_external(os.path.abspath("secret")), "own folder"),
    "external data through a link": (_external("link"), "own folder"),
    "external data in a linked folder": (_external("linked/secret"), "own folder"),
    "external data beyond the file": (_external("near", offset="4"), "12 bytes at 4 are needed"),
    "external data at a negative place": (_external("near", offset="-4"), "are needed"),
    "external data at no number": (_external("near", offset="x"), "must be numbers"),
    "external data of another length": (_external("near", length="8"), "are needed"),
    "a text that is not UTF-8": (
        model([node("Pad", ["x"], ["y"], mode=b"const\xffant")]), "'mode' is not UTF-8 text",
    ),
    "external data of a device": (_external("/dev/zero"), "own folder"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_is_refused_by_a_typed_error(tmp_path, name):
    made, words = CASES[name]
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(bytes(12))
    (inside / "near").write_bytes(bytes(12))
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "linked").symlink_to(tmp_path)
    path = inside / "model.onnx"
    path.write_bytes(made.SerializeToString())
    with pytest.raises(OnnxError, match=words) as caught:
        mx.onnx.imports(path)
    assert str(path) in str(caught.value)
    assert sorted(os.listdir(inside)) == ["link", "linked", "model.onnx", "near"]


def test_external_data_in_the_folder_are_read(tmp_path):
    (tmp_path / "near").write_bytes(np.array([9, 1, 2, 3], np.float32).tobytes())
    (tmp_path / "model.onnx").write_bytes(_external("near", offset="4", length="12").SerializeToString())
    block = mx.onnx.imports(tmp_path / "model.onnx")
    assert block(mx.nd.zeros((2, 3))).asnumpy()[0].tolist() == [1, 2, 3]


def test_an_open_size_that_must_be_a_number_is_a_typed_error(tmp_path):
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], end=1), node("TopK", ["x", "s"], ["v", "y"]),
    ]  # fmt: skip
    (tmp_path / "m.onnx").write_bytes(model(nodes, shape=("n", 3)).SerializeToString())
    with pytest.raises(OnnxError, match=r"TopK"):
        mx.onnx.imports(tmp_path / "m.onnx")
    assert mx.onnx.imports(tmp_path / "m.onnx", shapes={"x": (2, 3)})(mx.nd.ones((2, 3))).shape == (2, 2)


@pytest.mark.parametrize("data", [b"", b"\x08", b"not a model", b"\xff" * 100, b"PK\x03\x04"])
def test_what_is_no_onnx_file(tmp_path, data):
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(OnnxError, match=r"not (a readable|an) ONNX file"):
        mx.onnx.imports(tmp_path / "m.onnx")


@pytest.mark.parametrize("part", range(6))
def test_mutations_are_read_or_refused(tmp_path, part):
    originals = [item.SerializeToString() for item in mutations.models()]
    for number in range(60):
        rng = random.Random(part * 1000 + number)
        error, _ = mutations.read(tmp_path / "m.onnx", mutations.mutated(rng.choice(originals), rng))
        assert error is None or isinstance(error, HybridLabError)


def test_the_models_that_are_mutated_are_sound(tmp_path):
    for item in mutations.models():
        assert mutations.read(tmp_path / "m.onnx", item.SerializeToString())[0] is None


# -- sizes that a file only states -------------------------------------------------------------------------------------

HUGE = 3_000_000


def stated(nodes, ints=None, **inputs):
    """A model whose inputs have these shapes; a name that begins with i is one of whole numbers."""
    infos = [
        helper.make_tensor_value_info(name, onnx.TensorProto.INT64 if name[0] == "i" else FLOAT, shape)
        for name, shape in inputs.items()
    ]
    output = helper.make_tensor_value_info(nodes[-1].output[0], FLOAT, None)
    weights = [numbers(name, *values) for name, values in (ints or {}).items()]
    graph = helper.make_graph(nodes, "net", infos, [output], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def step(op, inputs, **attributes):
    return [node(op, inputs, ["y"], **attributes)]


#: For each operator whose importer makes tables of positions or weights: a file of some hundred bytes that asks for
#: millions of numbers.
TABLES = {
    "GatherElements": stated(step("GatherElements", ["x", "i"], axis=1), x=(HUGE, 9), i=(HUGE, 7)),
    "GatherND": stated(step("GatherND", ["x", "i"], batch_dims=1), x=(HUGE, 9, 2), i=(HUGE, 1)),
    "ScatterElements": stated(step("ScatterElements", ["x", "i", "u"]), x=(HUGE, 9), i=(HUGE, 7), u=(HUGE, 7)),
    "ScatterElements, max": stated(
        step("ScatterElements", ["x", "i", "u"], reduction="max"), x=(HUGE, 9), i=(1, 1), u=(1, 1)),
    "ScatterND": stated(step("ScatterND", ["x", "i", "u"]), x=(3, HUGE, 9), i=(1, 1), u=(1, HUGE, 9)),
    "Resize": stated(
        step("Resize", ["x", "", "", "s"], mode="linear"), {"s": (1, 1, 60_000, 60_000)}, x=(1, 1, 8, 60_001)),
    "GridSample": stated(step("GridSample", ["x", "g"]), x=(HUGE, 1, 2, 2), g=(HUGE, 2, 2, 2)),
    "MaxPool": stated(step("MaxPool", ["x"], kernel_shape=[2], dilations=[2]), x=(1, 1, HUGE)),
    "MaxPool of many windows": stated(
        step("MaxPool", ["x"], kernel_shape=[2000, 2000], dilations=[2, 2]), x=(1, 1, 9000, 9000)),
    "AveragePool": stated(
        step("AveragePool", ["x"], kernel_shape=[3, 3], dilations=[2, 2]), x=(1, 1, 90000, 90000)),
    "MaxUnpool": stated(
        step("MaxUnpool", ["x", "i", "is"], kernel_shape=[2, 2]), {"is": (1, 1, 9000, 9000)},
        x=(1, 1, 4000, 4000), i=(1, 1, 4000, 4000)),
    "DFT": stated(step("DFT", ["x", "n"]), {"n": (4000,)}, x=(1, 4000, 1)),
    "STFT": stated(step("STFT", ["x", "h", "", "n"]), {"h": (1,), "n": (4000,)}, x=(1, HUGE, 1)),
    "HannWindow": stated(step("HannWindow", ["n"]), {"n": (1 << 24,)}, x=(1,)),
    "MelWeightMatrix": stated(
        [helper.make_node("Constant", [], ["l"], value_float=1.0),
         helper.make_node("Constant", [], ["h"], value_float=9e3), *step("MelWeightMatrix", ["n", "d", "r", "l", "h"])],
        {"n": (4000,), "d": (8000,), "r": (22050,)}, x=(1,)),
    "Pad": stated(step("Pad", ["x", "p"], mode="edge"), {"p": (1 << 26, 0)}, x=(4,)),
    "Trilu": stated(step("Trilu", ["x"]), x=(8000, 8000)),
    "EyeLike": stated(step("EyeLike", ["x"]), x=(HUGE, HUGE)),
    "LRN": stated(step("LRN", ["x"], size=4), x=(1, HUGE, 2, 2)),
    "LSTM": stated(
        step("LSTM", ["x", "w", "r"], hidden_size=HUGE), x=(1, 1, 3), w=(1, 4 * HUGE, 3), r=(1, 4 * HUGE, HUGE)),
    "OneHot": stated(step("OneHot", ["i", "d", "v"]), {"d": (1 << 40,)}, i=(3,), v=(2,)),
    "Range": stated(step("Range", ["z", "d", "o"]), {"z": (0,), "d": (1 << 40,), "o": (1,)}, x=(1,)),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_sizes_that_a_small_file_states_take_little_memory(tmp_path, name):
    path = tmp_path / "m.onnx"
    path.write_bytes(TABLES[name].SerializeToString())
    tracemalloc.start()
    try:
        mx.onnx.imports(path)
    except OnnxError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 2 * path.stat().st_size + (64 << 20)


def test_many_tables_of_a_small_file_take_little_memory_together(tmp_path):
    nodes = [helper.make_node("Expand", ["one", "s"], [f"e{k}"]) for k in range(40)]
    nodes += [helper.make_node("Sum", [f"e{k}" for k in range(40)], ["y"])]
    made = stated(nodes, {"one": (1,), "s": (1 << 20,)}, x=(1,))
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    tracemalloc.start()
    mx.onnx.imports(tmp_path / "m.onnx")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


LARGE = """
import sys
import hybrid_lab as mx

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) << 10

import onnx, numpy  # what is needed anyway
mx.onnx.imports(sys.argv[2])  # a small model of the same kind
before = peak()
block = mx.onnx.imports(sys.argv[1])
print(peak() - before)
"""


@pytest.mark.long
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="only Linux tells a process's largest size")
@pytest.mark.parametrize("external", [False, True], ids=["one file", "external data"])
def test_a_large_file_takes_twice_its_size_and_little_more(tmp_path, external):
    megabytes = int(os.environ.get("HYBRID_LAB_LARGE_ONNX", "100"))
    for name, size in (("large", megabytes << 20), ("small", 1 << 12)):
        part = np.zeros(size // 8 // 4, np.float32)
        weights = [numpy_helper.from_array(part, f"w{k}") for k in range(8)]
        nodes = [helper.make_node("Add", [f"a{k}" if k else "x", f"w{k}"], [f"a{k + 1}"]) for k in range(8)]
        made = model(nodes, weights, (len(part),), outputs=("a8",))
        onnx.save(made, tmp_path / f"{name}.onnx", save_as_external_data=external, location=f"{name}.data")
        del made, weights
    files = [path for path in tmp_path.iterdir() if path.name.startswith("large")]
    command = [sys.executable, "-c", LARGE, str(tmp_path / "large.onnx"), str(tmp_path / "small.onnx")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) < 2 * sum(path.stat().st_size for path in files) + (64 << 20)
