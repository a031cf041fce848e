"""Kernels with memory handed to them allocate none: planned programs run in their arena alone."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from hybrid_lab.ops import get
from hybrid_lab.ops.framework.memory import Workspace
from hybrid_lab.ops.framework.run import infer, run_kernel

X = (16, 16, 32, 32)
#: NumPy itself buffers up to 8192 elements of each strided or converted operand.
NUMPY_BUFFERS = 4 * 8192 * 4 + 8192 * 2
CALLS = {
    "broadcast_add": ({}, [X, X]),
    "broadcast_mul": ({}, [X, 2.0]),
    "broadcast_power": ({}, [X, 2.0]),
    "broadcast_maximum": ({}, [X, X]),
    "broadcast_greater": ({}, [X, 0.0]),
    "negative": ({}, [X]),
    "exp": ({}, [X]),
    "square": ({}, [X]),
    "rsqrt": ({}, [X]),
    "tanh": ({}, [X]),
    "sigmoid": ({}, [X]),
    "relu": ({}, [X]),
    "_relu_grad": ({}, [X, X]),
    "Activation": ({"act_type": "softsign"}, [X]),
    "erf": ({}, [X]),
    "clip": ({"a_min": -0.5, "a_max": 0.5}, [X]),
    "_clip_grad": ({"a_min": -0.5, "a_max": 0.5}, [X, X]),
    "Cast": ({"dtype": "float64"}, [X]),
    "sum": ({"axis": 1, "exclude": True}, [X]),
    "mean": ({"axis": 3}, [X]),
    "max": ({"axis": 3}, [X]),
    "norm": ({"axis": 1}, [X]),
    "_sum_like": ({}, [X, (1, 16, 1, 1)]),
    "broadcast_like": ({}, [(16, 16, 1, 1), X]),
    "transpose": ({}, [X]),
    "Reshape": ({"shape": (0, -1)}, [X]),
    "Concat": ({}, [X, X]),
    "_concat_part": ({"dim": 1, "index": 1}, [(16, 32, 32, 32), X, X]),
    "SliceChannel": ({"num_outputs": 4}, [X]),
    "slice_axis": ({"axis": 2, "begin": 1, "end": 20}, [X]),
    "_slice_axis_grad": ({"axis": 2, "begin": 1, "end": 21}, [(16, 16, 20, 32), X]),
    "stack": ({}, [X, X]),
    "where": ({}, [X, X, X]),
    "dot": ({}, [(300, 400), (400, 500)]),
    "_dot_rhs_grad": ({}, [(300, 500), (300, 400), (400, 500)]),
    "_dot_lhs_grad": ({}, [(300, 500), (300, 400), (400, 500)]),
    "batch_dot": ({}, [(8, 90, 90), (8, 90, 90)]),
    "FullyConnected": ({"num_hidden": 300}, [(128, 400), (300, 400), (300,)]),
    "Convolution": ({"kernel": (3, 3), "pad": (1, 1), "num_filter": 16}, [X, (16, 16, 3, 3), (16,)]),
    "_conv_data_grad": ({"kernel": (3, 3), "pad": (1, 1), "num_filter": 16}, [X, X, (16, 16, 3, 3)]),
    "_conv_weight_grad": (
        {"kernel": (3, 3), "pad": (1, 1), "num_filter": 256},
        [(2, 256, 8, 8), (2, 64, 8, 8), (256, 64, 3, 3)],
    ),
    "Pooling": ({"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "pool_type": "max"}, [X]),
    "_max_pool_grad": ({"kernel": (2, 2), "stride": (2, 2)}, [(16, 16, 16, 16), X, (16, 16, 16, 16)]),
    "_spread_pool_grad": (
        {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "pool_type": "avg"},
        [(16, 16, 16, 16), X],
    ),
    "BatchNorm": ({"fix_gamma": False}, [X, (16,), (16,), (16,), (16,)]),
    "LayerNorm": ({}, [X, (32,), (32,)]),
    "softmax": ({}, [(300, 400)]),
    "log_softmax": ({}, [(300, 400)]),
    "Dropout": ({}, [X]),
    "_dropout_mask": ({}, [X]),
    "_masked_scale": ({"scale": 2.0}, [X, ("bool", X)]),
    "Embedding": ({"input_dim": 50, "output_dim": 200}, [("index", (40, 20)), (50, 200)]),
    "zeros_like": ({}, [X]),
    "identity": ({}, [X]),
}


def _array(spec):
    if isinstance(spec, float):
        return spec
    kind, shape = spec if isinstance(spec[0], str) else ("f", spec)
    generator = np.random.RandomState(0)
    if kind == "bool":
        return generator.rand(*shape) > 0.5
    if kind == "index":
        return generator.randint(0, 50, shape).astype(np.float32)
    return generator.uniform(0.1, 1.0, shape).astype(np.float32)


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_allocated(name):
    attributes, specs = CALLS[name]
    op = get(name).bind(**attributes).bind_mode(True)
    inputs = [_array(spec) for spec in specs]
    dtypes = tuple(getattr(item, "dtype", None) for item in inputs)
    shapes, out_dtypes = infer(op, tuple(np.shape(item) for item in inputs), dtypes)
    out = tuple(np.empty(shape, dtype) for shape, dtype in zip(shapes, out_dtypes))
    workspace = Workspace()

    def call():
        mark = workspace.mark()
        run_kernel(op, inputs, out=out, rng=(1, 2), scratch=workspace)
        workspace.release(mark)

    for _ in range(2):
        call()
    tracemalloc.start()
    try:
        call()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < NUMPY_BUFFERS, f"{peak} bytes, outputs {[y.nbytes for y in out]}"


def test_a_workspace_lends_the_same_memory_again():
    workspace = Workspace()
    for _ in range(2):
        mark = workspace.mark()
        first, second = workspace((100,), np.float32), workspace((50,), np.uint8)
        assert not np.shares_memory(first, second)
        workspace.release(mark)
    mark = workspace.mark()
    assert np.shares_memory(workspace((100,), np.float32), first)
    workspace.release(mark)
