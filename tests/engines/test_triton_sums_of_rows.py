"""Gradients that add up rows by number - of Embedding, take and gather_nd - by torch, which sorts the numbers.

torch's calls on the CPU stand in for those of a GPU.
"""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd, ops
from hybrid_lab.engines.launches import launches
from hybrid_lab.engines.memory import shared
from hybrid_lab.engines.triton.plan.by_vendor import VendorRule, rule_here
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.run.calls import CALLS
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import input_node
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.ops.framework.run import run_kernel
from tests.ops.cases import close
from tests.triton_device import use_triton

RANDOM = np.random.default_rng(5)
ROWS, WIDTH = 7, 3
NUMBERS = {
    "all different": np.arange(ROWS)[::-1],
    "repeated": RANDOM.integers(0, ROWS, 200),
    "all equal": np.full(200, 4),
    "one": np.array([2]),
    "outside": np.array([-1, -9, 0, 6, 7, 100, 3]),
    "of two axes": RANDOM.integers(0, ROWS, (4, 5)),
}
ODD = np.array([np.nan, np.inf, -np.inf, 1e30, 2.7, -0.5, 6.0], "float32")


def node_of(name, *arrays, **attributes):
    inputs = [input_node(f"x{index}", shape=item.shape, dtype=item.dtype) for index, item in enumerate(arrays)]
    return make_node(ops.get(name).bind(**attributes), inputs)


def by_torch(name, dy, numbers, like, **attributes):
    """The gradient by torch's call, and that of the record."""
    arrays = (dy, like, numbers) if name == "_take_grad" else (dy, numbers, like)
    node = node_of(name, *arrays, **attributes)
    call = CALLS[name](torch, node, False)
    (wanted,) = run_kernel(node.op, arrays)
    tensors = [shared(np.array(arrays[index])) for index, _ in call.reads]
    first, second = call.run(*tensors), call.run(*tensors)
    assert torch.equal(first, second) and first.is_contiguous()
    return first, wanted


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_the_gradient_of_take(numbers, mode, dtype):
    indices = NUMBERS[numbers].astype("int64")
    dy = RANDOM.normal(size=(*indices.shape, WIDTH)).astype(dtype_of(dtype))
    made, wanted = by_torch("_take_grad", dy, indices, np.zeros((ROWS, WIDTH), dy.dtype), mode=mode)
    assert str(made.dtype) == f"torch.{dtype}"
    close(made.float().numpy() if dtype == "bfloat16" else made.numpy(), wanted)


@pytest.mark.parametrize("kind", ["int32", "float32", "uint8"])
def test_numbers_of_other_dtypes(kind):
    indices = RANDOM.integers(0, ROWS, 50).astype(kind)
    dy = RANDOM.normal(size=(50, WIDTH)).astype("float32")
    close(*by_torch("_take_grad", dy, indices, np.zeros((ROWS, WIDTH), "float32")))


@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_numbers_that_are_no_whole_ones(mode):
    dy = RANDOM.normal(size=(len(ODD), WIDTH)).astype("float32")
    close(*by_torch("_take_grad", dy, ODD, np.zeros((ROWS, WIDTH), "float32"), mode=mode))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_gradient_of_take_along_other_axes(axis):
    like = np.zeros((5, 4, 6), "float32")
    indices = RANDOM.integers(-3, 9, (2, 3))
    shape = np.take(like, np.zeros((2, 3), int), axis).shape
    close(*by_torch("_take_grad", RANDOM.normal(size=shape).astype("float32"), indices, like, axis=axis))


@pytest.mark.parametrize("shape", [(5,), (5, 4), (5, 4, 3)])
@pytest.mark.parametrize("named", [1, 2])
def test_the_gradient_of_gather_nd(shape, named):
    if named > len(shape):
        pytest.skip("more coordinates than axes")
    places = np.stack([RANDOM.integers(-size, size, (6, 10)) for size in shape[:named]])
    dy = RANDOM.normal(size=(6, 10, *shape[named:])).astype("float32")
    close(*by_torch("_gather_nd_grad", dy, places, np.zeros(shape, "float32")))


# -- which are torch's -------------------------------------------------------------------------------------------------


def vendors(entries, rule, rows=ROWS, dtype="float32"):
    shapes = {"dy": ((entries, 4), dtype), "like": ((rows, 4), dtype), "indices": ((entries,), "int64")}
    inputs = [input_node(name, shape=shape, dtype=np.dtype(kind)) for name, (shape, kind) in shapes.items()]
    node = make_node(ops.get("_take_grad").bind(), inputs)
    fusion = kernels_of(Graph(inputs, node.outputs), "ieee", rule)[1]
    assert not fusion.refused or 0 in (entries, rows)
    return len(fusion.by_vendor)


def test_many_entries_are_torchs_by_rule_and_few_are_ours(monkeypatch):
    use_triton(monkeypatch)
    rule, all_of_them = VendorRule("nvidia", "ieee"), VendorRule(None, "ieee")
    assert [vendors(entries, rule) for entries in (1023, 1024)] == [0, 1]
    assert vendors(5, all_of_them) == 1 and vendors(5, None) == 0
    assert vendors(4096, rule, dtype="int32") == 0
    assert vendors(0, all_of_them) == 0 and vendors(4096, all_of_them, rows=0) == 0
    assert rule_here("own", False, "ieee") is None and rule_here(None, True, "ieee") is None


@pytest.mark.parametrize("products", ["own", "vendor"])
def test_an_embedding_learns_the_same_by_torch_and_by_our_kernel(products, monkeypatch):
    use_triton(monkeypatch)
    net = gluon.nn.Embedding(ROWS, WIDTH)
    net.initialize(mx.init.Uniform(), ctx=mx.gpu(0))
    net.hybridize(engine="triton", products=products)
    tokens = nd.array(NUMBERS["repeated"].astype("float32"), ctx=mx.gpu(0))
    with autograd.record():
        loss = (net(tokens) ** 2).sum()
    before = launches.vendor
    loss.backward()
    assert launches.vendor - before == (products == "vendor")
    weight, counts = net.weight.data().asnumpy(), np.bincount(NUMBERS["repeated"], minlength=ROWS)
    close(net.weight.grad().asnumpy(), 2 * weight * counts[:, None])
