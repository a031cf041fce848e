"""Product kernels: matrix products, batches, convolutions and their gradients, with several ragged tiles an axis."""

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

from hybrid_lab.engines.triton import kernel
from hybrid_lab.engines.triton.engine import kernels_of
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import input_node
from tests.engines.test_triton import interpreter  # noqa: F401
from tests.engines.test_triton_rows import agree, data, op


def inputs(**shapes):
    return [input_node(name, shape=shape, dtype="float32") for name, shape in shapes.items()]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Tiles of 16 x 16 x 16, so that small arrays have several along each axis."""
    usual = kernel.tile_sizes

    def tile_sizes(source):
        return dict.fromkeys(source.blocks, 16) if source.kind == "product" else usual(source)

    monkeypatch.setattr(kernel, "tile_sizes", tile_sizes)


def test_a_dense_layer_with_its_activation_is_one_kernel():
    x, w, b = inputs(x=(37, 45), w=(21, 45), b=(21,))
    graph = Graph([x, w, b], [op("relu", op("FullyConnected", x, w, b, num_hidden=21))])
    (source,) = kernels_of(graph)[2]
    assert source.kind == "product" and source.name == "fullyconnected_relu"
    agree(graph, x=data((37, 45)), w=data((21, 45), 1), b=data((21,), 2))


def test_views_of_factors_are_read_where_they_lie():
    """Attention's scores: heads cut from one array, transposed, multiplied, scaled."""
    x, y = inputs(x=(2, 19, 3, 20), y=(2, 17, 3, 20))
    left, right = (op("Reshape", op("transpose", v, axes=(0, 2, 1, 3)), shape=(-3, 0, 0)) for v in (x, y))
    scores = op("batch_dot", left, right, transpose_b=True)
    graph = Graph([x, y], [op("broadcast_mul", scores, 0.25)])
    assert [source.kind for source in kernels_of(graph)[2]] == ["product"]
    agree(graph, x=data((2, 19, 3, 20)), y=data((2, 17, 3, 20), 1))


@pytest.mark.parametrize(
    "stride, pad, dilate, groups", [(1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 2, 2), (2, 0, 1, 4), (3, 2, 1, 1)]
)
def test_convolutions_and_their_gradients(stride, pad, dilate, groups):
    attributes = {
        "kernel": (3, 3), "stride": (stride,) * 2, "pad": (pad,) * 2, "dilate": (dilate,) * 2, "num_filter": 8,
        "num_group": groups,
    }  # fmt: skip
    x, w = inputs(x=(3, 4, 11, 9), w=(8, 4 // groups, 3, 3))
    y = op("Convolution", x, w, no_bias=True, **attributes)
    dy = input_node("dy", shape=y.shape, dtype="float32")
    dx, dw = (op(name, dy, x, w, **attributes) for name in ("_conv_data_grad", "_conv_weight_grad"))
    graph = Graph([x, w, dy], [op("relu", y), op("broadcast_mul", dx, 2.0), dw])
    assert [source.kind for source in kernels_of(graph)[2]] == ["product"] * 3
    agree(graph, x=data((3, 4, 11, 9)), w=data((8, 4 // groups, 3, 3), 1), dy=data(y.shape, 2))


def test_what_reads_the_product_in_another_order_is_another_kernel():
    x, w = inputs(x=(18, 20), w=(20, 17))
    y = op("dot", x, w)
    graph = Graph([x, w], [op("exp", op("transpose", y)), op("softmax", op("tanh", y))])
    assert sorted(source.kind for source in kernels_of(graph)[2]) == ["pointwise", "product", "rows"]
    agree(graph, x=data((18, 20)), w=data((20, 17), 1))


def test_both_factors_and_a_residual_are_one_array():
    (x,) = inputs(x=(19, 19))
    agree(Graph([x], [op("broadcast_add", op("dot", x, x, transpose_b=True), x)]), x=data((19, 19)))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_dtypes(dtype):
    x, w = (input_node(name, shape=(20, 20), dtype=dtype) for name in ("x", "w"))
    graph = Graph([x, w], [op("tanh", op("dot", x, w))])
    agree(graph, x=data((20, 20)).astype(dtype), w=data((20, 20), 1).astype(dtype))


def test_an_axis_of_one():
    for rows, inner, columns in ((1, 20, 20), (20, 1, 20), (20, 20, 1), (1, 1, 1)):
        x, w = inputs(x=(rows, inner), w=(inner, columns))
        graph = Graph([x, w], [op("dot", x, w)])
        agree(graph, x=data((rows, inner)), w=data((inner, columns), 1))
