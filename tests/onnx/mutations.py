"""Damaged ONNX files: small models, and mutations of them.

`test_hostile.py` reads some hundred; `make test-onnx-mutations` 100,000 (tests/hostile/mutations.py).
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.onnx import own_graph
from hybrid_lab.ops.framework.operator import registered_names

OPERATORS = [name for name in registered_names() if not name.startswith("_np")]
TEXTS = ("0", "1", "-1", "7", "2147483647", "(2147483647,)", "(1, 1)", "(65536, 65536)", "()", "None", "True")
NUMBERS = (0, 1, -1, 2, 3, 7, 2**31 - 1, -(2**31), 2**62, -(2**63), 2**63 - 1)


def models():
    """Models that use most of what the reader knows: weights, functions, subgraphs, loops, shapes, metadata."""
    from onnx import TensorProto, helper, numpy_helper

    def initializer(name, array):
        return numpy_helper.from_array(np.asarray(array), name)

    def model(nodes, inputs, weights, functions=(), outputs=("y",)):
        graph = helper.make_graph(
            nodes, "net", [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs], weights,
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)

    rng = np.random.default_rng(0)
    floats = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    images = model(
        [
            helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
            helper.make_node("BatchNormalization", ["a", "s", "b", "m", "v"], ["n"]),
            helper.make_node("MaxPool", ["n"], ["p"], kernel_shape=[2, 2], ceil_mode=1),
            helper.make_node("Resize", ["p", "", "scales"], ["r"], mode="linear"),
            helper.make_node("Flatten", ["r"], ["f"]),
            helper.make_node("Gemm", ["f", "g"], ["y"], transB=1),
        ],
        [("x", ("n", 3, 8, 8))],
        [initializer("w", floats(4, 3, 3, 3)), *(initializer(name, np.ones(4, np.float32)) for name in "sbmv"),
         initializer("scales", np.array([1, 1, 2, 2], np.float32)), initializer("g", floats(5, 144))],
    )  # fmt: skip
    shapes = model(
        [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Gather", ["s", "zero"], ["n"]),
            helper.make_node("Concat", ["n", "rest"], ["t"], axis=0),
            helper.make_node("Reshape", ["x", "t"], ["r"]),
            helper.make_node("Slice", ["r", "zero", "two", "one"], ["c"]),
            helper.make_node("Expand", ["c", "size"], ["e"]),
            helper.make_node("Pad", ["e", "pads"], ["p"]),
            helper.make_node("ReduceSum", ["p", "one"], ["y"]),
        ],
        [("x", ("n", 3, 4))],
        [initializer(name, np.array(value, np.int64)) for name, value in (
            ("zero", [0]), ("one", [1]), ("two", [2]), ("rest", [-1]), ("size", [1, 2]), ("pads", [0, 1, 0, 1]))],
    )  # fmt: skip
    body = helper.make_graph(
        [helper.make_node("Add", ["before", "one"], ["after"]), helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [helper.make_tensor_value_info("step", TensorProto.INT64, ()),
         helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
         helper.make_tensor_value_info("before", TensorProto.FLOAT, (3,))],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, ()),
         helper.make_tensor_value_info("after", TensorProto.FLOAT, (3,))],
    )  # fmt: skip
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    loops = model(
        [
            helper.make_node("Loop", ["count", "", "x"], ["l"], body=body),
            helper.make_node("Twice", ["l"], ["t"], domain="own"),
            helper.make_node("LSTM", ["seq", "W", "R"], ["q", "h"], hidden_size=2),
            helper.make_node("ReduceMax", ["h"], ["k"], keepdims=0),
            helper.make_node("Tile", ["t", "reps"], ["u"]),
            helper.make_node("Mul", ["u", "k"], ["y"]),
        ],
        [("x", (3,)), ("seq", (4, 1, 3))],
        [initializer("count", np.array(3, np.int64)), initializer("one", np.ones(1, np.float32)),
         initializer("reps", np.array([2], np.int64)), initializer("W", floats(1, 8, 3)),
         initializer("R", floats(1, 8, 2))],
        [twice],
    )  # fmt: skip
    return [images, shapes, loops, trained()]


def trained():
    """A small network with its training information."""
    import onnx

    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(3, in_units=2), gluon.nn.BatchNorm(in_channels=3), gluon.nn.Dropout(0.5))
    net.initialize(mx.init.Normal())
    loss, trainer = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.Trainer(net.collect_params(), "adam")
    with TemporaryDirectory() as folder:
        report = mx.onnx.export(
            net, Path(folder) / "net.onnx", ("n", 2), training=True, loss=loss, trainer=trainer, label=("n",)
        )
        return onnx.load(report.path)


def mutated(data, rng):
    """The bytes of a file with some change: of single bytes, or of fields of the parsed message."""
    if rng.random() < 0.4:
        return _bytes(bytearray(data), rng)
    import onnx

    model = onnx.ModelProto.FromString(data)
    try:
        told = [item for item in model.metadata_props if item.key == own_graph.METADATA]
        if told and rng.random() < 0.5:
            told[0].value = _told(told[0].value, rng)
            return model.SerializeToString()
        for _ in range(rng.choice((1, 1, 2, 4))):
            _field(model, rng)
        return model.SerializeToString()
    except ValueError:  # a number that the field cannot hold
        return data


def _bytes(data, rng):
    for _ in range(rng.choice((1, 2, 8))):
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at : at + rng.randrange(1, 20)]
        elif kind == 2:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 8)))
        else:
            del data[at:]
        if not data:
            data = bytearray(b"\x08")
    return bytes(data)


def _field(message, rng):
    """Change one field somewhere in a message."""
    while True:
        fields = [(field, value) for field, value in message.ListFields() if field.name != "doc_string"]
        if not fields:
            return
        field, value = rng.choice(fields)
        repeated = hasattr(value, "extend")
        if field.message_type is not None:
            if repeated:
                if rng.random() < 0.25:
                    _rearrange(value, rng)
                    return
                message = rng.choice(value)
            else:
                message = value
            continue
        if repeated:
            at = rng.randrange(len(value))
            if rng.random() < 0.3:
                del value[at]
            else:
                value[at] = _other(value[at], value, rng)
        else:
            setattr(message, field.name, _other(value, [value], rng))
        return


def _told(text, rng):
    """The graph in a file's metadata with other operators, attributes or inputs."""
    try:
        document = json.loads(text)
        nodes = [node for node in document["nodes"] if node["op"] != "null"]
        for _ in range(rng.choice((1, 1, 2, 4))):
            node = rng.choice(nodes)
            kind, attributes = rng.randrange(5), node.setdefault("attrs", {})
            if kind == 0:
                node["op"] = rng.choice(OPERATORS)
                attributes.clear()
            elif kind == 1:
                attributes[rng.choice([*attributes, "axis", "shape", "k", "depth", "kernel"])] = rng.choice(TEXTS)
            elif kind == 2:
                place = rng.randrange(len(document["nodes"]))
                node["inputs"] = [rng.choice((item, [place, 0, 0])) for item in node["inputs"]]
            elif kind == 3:
                document["nodes"].insert(rng.randrange(len(document["nodes"])), dict(node))
            else:
                document["heads"] = [[rng.randrange(len(document["nodes"])), 0, 0] for _ in document["heads"]]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):  # it is damaged already
        return text + "x"
    return json.dumps(document)


def _rearrange(items, rng):
    kind, at = rng.randrange(3), rng.randrange(len(items))
    if kind == 0:
        del items[at]
    elif kind == 1:
        items.add().CopyFrom(items[at])
    else:
        copies = [type(item).FromString(item.SerializeToString()) for item in items]
        rng.shuffle(copies)
        del items[:]
        items.extend(copies)


def _other(value, others, rng):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        small = abs(value) < 40 and rng.random() < 0.5
        return rng.choice([number for number in NUMBERS if abs(number) <= 2**31] if small else NUMBERS)
    if isinstance(value, float):
        return rng.choice((0.0, -1.0, 1e30, float("inf"), float("nan")))
    if isinstance(value, str):
        return rng.choice(("", value + "x", "../x", *others, "Relu", "Reshape", "y", "x", "Twice"))
    return rng.choice((b"", value[:-1], value * 2, b"\0" * len(value)))


def read(path, data):
    """Read a damaged file: what was raised, or None, and how long it took."""
    path.write_bytes(data)
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mx.onnx.imports(path)
            if b"ai.onnx.preview.training" in data:
                mx.onnx.imports_training(path)
    except HybridLabError as error:
        return error, time.process_time() - start
    return None, time.process_time() - start
