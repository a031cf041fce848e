"""A wrong record is found when it is declared, or at its first answer; the error names the record and the member."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.diagnostics.errors import DTypeError, RecordError
from hybrid_lab.graph.passes.differentiate import differentiate
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ops.framework import operator
from hybrid_lab.ops.framework.lowering import run_lowering
from hybrid_lab.ops.framework.namespace import F
from hybrid_lab.ops.framework.onnx_emit import OnnxEmitter
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import infer, run_gradient, run_kernel
from hybrid_lab.ops.framework.sample import sample
from hybrid_lab.ops.framework.signature import Signature
from tests.graph.building import graph_of


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Records that a test declares are gone after it."""
    operator.load_all()
    monkeypatch.setattr(operator, "_REGISTRY", dict(operator._REGISTRY))
    monkeypatch.setattr(operator, "_RECORDS", list(operator._RECORDS))
    yield


def declare(**members):
    """A record `double` with some members replaced (None: left out)."""
    body = {
        "infer_shape": lambda self, data: data,
        "numpy": lambda self, data, out=None: np.multiply(data, 2, out=out),
        "grad": lambda self, F, x, y, dy: dy * 2.0,
        "samples": [sample((3, 4))],
        **members,
    }
    body = {name: member for name, member in body.items() if member is not None}
    return type("Double", (Operator,), body, name="double").bind()


def test_a_right_record():
    assert infer(declare(), ((2,),), (np.dtype("float32"),)) == (((2,),), (np.dtype("float32"),))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"numpy": None}, "'double': numpy is missing"),
        ({"infer_shape": None}, "'double': infer_shape is missing"),
        ({"numpy": lambda self, data, other, out=None: data}, "numpy takes data, other; .* the inputs are data"),
        (
            {"grad": lambda self, F, x, dy: dy},
            r"grad takes F and 2 values; .* 1 inputs, 1 outputs .* 1 output gradients",
        ),
        ({"signature": Signature(outputs=2)}, "grad takes F and 3 values; .* 2 outputs"),
        ({"signature": Signature(aux=("mean",))}, "signature names 'mean'; the inputs are data"),
        ({"shape_only": ("like",)}, "shape_only names 'like'; the inputs are data"),
        ({"samples": [(3, 4)]}, r"samples\[0\] is \(3, 4\); write sample"),
        ({"samples": [sample((3, 4)), sample((3,), (3,))]}, r"samples\[1\] has 2 inputs; the record takes data"),
        ({"samples": [sample((3, 4), axes=1)]}, r"samples\[0\] sets 'axes'; the attributes are none$"),
        (
            {"slope": 1.0, "samples": [sample((3, 4), slope=2.0)]},
            "sets 'slope'; the attributes are none; write `slope: float = ...`, with its type",
        ),
        ({"triton": "{0} * 2"}, r"triton is '\{0\} \* 2'; write Pointwise\('\{0\} \* 2'\)"),
        ({"triton": lambda self, dtype: "{0} * 2"}, "triton is none of the kinds .* no decorator: Pointwise, Reduce"),
        (
            {"__annotations__": {"axis": int}, "samples": [sample((3, 4))]},
            r"samples\[0\] leaves out the attribute 'axis', which has no default",
        ),
        ({"__annotations__": {"axis": list}, "axis": 0}, "axis has the annotation .*list.*; known are bool, int"),
        ({"__annotations__": {"axis": int}, "axis": "last"}, "axis='last'.*not"),
    ],
)
def test_what_is_seen_at_the_declaration(members, message):
    with pytest.raises(RecordError, match=message):
        declare(**members)


@pytest.mark.parametrize("answer", [[3, 4], 3, ((3, 4), (3,)), None, (3, None)])
def test_a_shape_that_is_none(answer):
    op = declare(infer_shape=lambda self, data: answer)
    with pytest.raises(RecordError, match="'double': infer_shape returned"):
        infer(op, ((3, 4),), (np.dtype("float32"),))


def test_more_shapes_than_outputs():
    op = declare(infer_shape=lambda self, data: [data, data])
    with pytest.raises(RecordError, match="infer_shape returned 2 shapes; signature.outputs is 1"):
        infer(op, ((3, 4),), (np.dtype("float32"),))


def test_more_dtypes_than_outputs():
    op = declare(infer_type=lambda self, *dtypes: [dtypes[0], dtypes[0]])
    with pytest.raises(RecordError, match="infer_type returned .* signature.outputs is 1"):
        infer(op, ((3, 4),), (np.dtype("float32"),))


def test_a_kernel_that_returns_too_much_or_nothing():
    x = np.ones(3, np.float32)
    with pytest.raises(RecordError, match="numpy returned 2 arrays; signature.outputs is 1"):
        run_kernel(declare(numpy=lambda self, data, out=None: (data, data)), [x])


def test_a_kernel_that_returns_nothing_also_in_an_eager_call():
    op = declare(numpy=lambda self, data, out=None: None)
    with pytest.raises(RecordError, match="numpy returned None"):
        run_kernel(op, [np.ones(3, np.float32)])
    with pytest.raises(RecordError, match="numpy returned None"):
        invoke(op, [nd.ones(3)])


def test_a_number_as_input_of_an_onnx_node():
    g = OnnxEmitter()
    op = declare(onnx=lambda self, g, data: g.Mul(data, 2.0))
    with pytest.raises(RecordError, match=r"'double': .*g.Mul .*g.const\(2.0, g.dtype\(x\)\)"):
        g.emit(op, [g.declare("x", (3, 4), "float32")])


def test_gradients_that_are_too_many():
    op = declare(grad=lambda self, F, x, y, dy: (dy, dy))
    x = np.ones(3, np.float32)
    with pytest.raises(RecordError, match="grad returned 2 values for 1 inputs"):
        run_gradient(op, F, [x], [x], [x])


def test_a_number_as_gradient():
    op = declare(grad=lambda self, F, x, y, dy: 0.0)
    x = np.ones(3, np.float32)
    with pytest.raises(RecordError, match="grad returned 0.0 for data; return F.zeros_like"):
        run_gradient(op, F, [x], [x], [x])


def test_a_gradient_of_another_shape_is_found_in_a_graph():
    declare(grad=lambda self, F, x, y, dy: F.sum(dy))
    graph = graph_of(lambda F, x: F.double(x), (2, 3))
    with pytest.raises(RecordError, match=r"grad gave data a gradient of shape \(1,\) .* the input has \(2, 3\)"):
        differentiate(graph, graph.inputs)


def test_dtypes_outside_of_dtype_kinds_are_the_users_mistake():
    op = declare(dtype_kinds="f")
    with pytest.raises(DTypeError, match="double: floating numbers are needed, not int32"):
        infer(op, ((3,),), (np.dtype("int32"),))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_lowering_keeps_the_dtype_of_arrays_without_dimensions(dtype):
    """NumPy makes numbers of them, and its float64 is a Python float."""
    op = declare(
        infer_shape=lambda self, a, b: a,
        numpy=run_lowering,
        lower=lambda self, F, a, b: F.broadcast_mul(a + b, 0.5),
        grad=None,
        samples=[sample((), ())],
    )
    (result,) = run_kernel(op, [np.array(1 + 2.0**-30, dtype), np.array(1.0, dtype)])
    assert result.dtype == dtype
    assert result == np.mean([1 + 2.0**-30, 1.0], dtype=dtype)
