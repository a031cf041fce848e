"""Product kernels: matrix products, batches, convolutions and their gradients, with several ragged tiles an axis."""

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import hybrid_lab as mx
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.run import kernel
from hybrid_lab.engines.triton.write import tiles
from hybrid_lab.engines.triton.write.core import product
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
        return dict.fromkeys(source.blocks, 16) if "product" in source.kind else usual(source)

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
    "stride, pad, dilate, groups",
    [
        (2, 0, 1, 2),
        (1, 2, 2, 2),
        *(pytest.param(*each, marks=pytest.mark.long) for each in ((1, 1, 1, 1), (2, 1, 1, 1), (3, 2, 1, 1))),
    ],
)
def test_convolutions_and_their_gradients(stride, pad, dilate, groups):
    attributes = {
        "kernel": (3, 3), "stride": (stride,) * 2, "pad": (pad,) * 2, "dilate": (dilate,) * 2, "num_filter": 8,
        "num_group": groups,
    }  # fmt: skip
    x, w = inputs(x=(2, 4, 11, 9), w=(8, 4 // groups, 3, 3))
    y = op("Convolution", x, w, no_bias=True, **attributes)
    dy = input_node("dy", shape=y.shape, dtype="float32")
    dx, dw = (op(name, dy, x, w, **attributes) for name in ("_conv_data_grad", "_conv_weight_grad"))
    graph = Graph([x, w, dy], [op("relu", y), op("broadcast_mul", dx, 2.0), dw])
    assert [source.kind for source in kernels_of(graph)[2]] == ["product"] * 3
    agree(graph, x=data((2, 4, 11, 9)), w=data((8, 4 // groups, 3, 3), 1), dy=data(y.shape, 2))


def test_layers_of_other_sizes_share_a_kernel():
    """Dense layers, convolutions of single pixels, and sums of parts: strides are arguments, as are sizes."""

    def dense(rows, inner, columns):
        x, w = inputs(x=(rows, inner), w=(columns, inner))
        return Graph([x, w], [op("FullyConnected", x, w, num_hidden=columns, no_bias=True)])

    def pointwise(channels, filters):
        x, w = inputs(x=(8, channels, 8, 8), w=(filters, channels, 1, 1))
        y = op("Convolution", x, w, kernel=(1, 1), num_filter=filters, no_bias=True)
        dy = input_node("dy", shape=y.shape, dtype="float32")
        grads = [op(f"_conv_{which}_grad", dy, x, w, kernel=(1, 1), num_filter=filters) for which in ("data", "weight")]
        return Graph([x, w, dy], [y, *grads])

    def split(rows, columns):
        a, b = inputs(a=(4096, rows), b=(4096, columns))
        return Graph([a, b], [op("dot", a, b, transpose_a=True)])

    assert len(kernels_of(split(16, 32))[2]) == 2
    for graph, one, other in [
        (dense, (64, 784, 256), (128, 256, 64)), (pointwise, (64, 96), (96, 128)), (split, (16, 32), (48, 64))
    ]:  # fmt: skip
        first, second = (kernels_of(graph(*sizes))[2] for sizes in (one, other))
        assert [source.code for source in first] == [source.code for source in second]
    first, second = (kernels_of(split(*sizes))[2][1] for sizes in ((16, 32), (48, 64)))
    assert first.blocks == second.blocks


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


def split(monkeypatch):
    """Long sums begin at 32."""
    monkeypatch.setattr(product, "SPLIT", 32)
    monkeypatch.setattr(product, "PART", 16)
    monkeypatch.setattr(product, "BUSY", 12)


def test_long_sums_are_shared_by_programs_and_added_up(monkeypatch):
    """What is made of the factors goes into the first kernel, what is made of the sum into the second."""
    split(monkeypatch)
    x, w, b = inputs(x=(19, 75), w=(18, 75), b=(18,))
    y = op("FullyConnected", op("broadcast_add", x, 1.0), w, b, num_hidden=18)
    graph = Graph([x, w, b], [op("sigmoid", y), y])
    parts, total = kernels_of(graph)[2]
    assert (parts.name, total.name) == ("add_fullyconnected_parts", "fullyconnected_sigmoid")
    assert (parts.kind, total.kind) == ("parts of a product", "product of parts") and total.sizes["parts"] == 4
    agree(graph, x=data((19, 75)), w=data((18, 75), 1), b=data((18,), 2))


@pytest.mark.parametrize("groups", [1, 2])
def test_a_weight_gradient_in_parts(groups, monkeypatch):
    split(monkeypatch)
    attributes = {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "num_filter": 4, "num_group": groups}
    x, w, dy = inputs(x=(3, 4, 9, 11), w=(4, 4 // groups, 3, 3), dy=(3, 4, 5, 6))
    graph = Graph([x, w, dy], [op("broadcast_mul", op("_conv_weight_grad", dy, x, w, **attributes), 0.5)])
    assert [source.kind for source in kernels_of(graph)[2]] == ["parts of a product", "product of parts"]
    agree(graph, x=data((3, 4, 9, 11)), w=data((4, 4 // groups, 3, 3), 1), dy=data((3, 4, 5, 6), 2))


def test_many_tiles_are_taken_in_an_order_that_reads_the_same_things_soon(monkeypatch):
    monkeypatch.setattr(product, "NEAR", 2)
    monkeypatch.setattr(product.tiles, "_LADDER", ((16, 16, 4),))
    x, w = inputs(x=(75, 17), w=(17, 53))
    graph = Graph([x, w], [op("dot", x, w)])
    assert "tl.swizzle2d(" in kernels_of(graph)[2][0].text
    agree(graph, x=data((75, 17)), w=data((17, 53), 1))


def test_cheap_operators_before_a_convolution_are_computed_as_its_tiles_are_loaded():
    """The padding stays 0, whatever the operators make of 0."""
    x, w, b = inputs(x=(2, 3, 9, 7), w=(17, 3, 3, 3), b=(3, 1, 1))
    before = op("relu", op("broadcast_add", op("broadcast_mul", x, 0.5), b))
    graph = Graph([x, w, b], [op("Convolution", before, w, kernel=(3, 3), pad=(1, 1), num_filter=17, no_bias=True)])
    assert [source.name for source in kernels_of(graph)[2]] == ["mul_add_relu_convolution"]
    agree(graph, x=data((2, 3, 9, 7)), w=data((17, 3, 3, 3), 1), b=data((3, 1, 1), 2))


def test_what_is_not_finite_beyond_the_last_element_does_not_count():
    """The square of what stands in for a missing element is infinite; the other factor is 0 there."""
    x, w = inputs(x=(17, 19), w=(19, 18))
    graph = Graph([x, w], [op("dot", op("square", op("broadcast_sub", x, 2e19)), w)])
    assert len(kernels_of(graph)[2]) == 1
    agree(graph, x=(2e19 + 1e16 * data((17, 19))).astype("float32"), w=data((19, 18), 1))


def test_a_factor_that_others_read_or_that_is_dear_is_computed_once():
    x, w = inputs(x=(20, 20), w=(20, 20))
    factor = op("relu", x)
    shared = Graph([x, w], [op("dot", factor, w), factor])
    dear = Graph([x, w], [op("dot", op("tanh", x), w)])
    for graph in (shared, dear):
        assert sorted(source.kind for source in kernels_of(graph)[2]) == ["pointwise", "product"]


def test_float16_factors_are_computed_in_float32_and_rounded():
    x, w = (input_node(name, shape=(20, 20), dtype="float16") for name in ("x", "w"))
    graph = Graph([x, w], [op("dot", op("relu", op("broadcast_mul", x, 0.3)), op("transpose", w))])
    (source,) = kernels_of(graph)[2]
    assert ".to(tl.float16)\n" in source.text and "w, dot, input" in source.text
    agree(graph, x=data((20, 20)).astype("float16"), w=data((20, 20), 1).astype("float16"))


def test_a_factor_with_a_broadcast_axis():
    x, w = inputs(x=(1, 18), w=(18, 17))
    wide = op("broadcast_to", x, shape=(19, 18))
    graph = Graph([x, w], [op("dot", wide, w), op("dot", op("broadcast_to", w, shape=(18, 17)), op("transpose", w))])
    agree(graph, x=data((1, 18)), w=data((18, 17), 1))


@pytest.mark.parametrize("rank", [1, 3])
def test_convolutions_of_other_ranks(rank):
    sizes, kernel_size = (9, 5, 4)[:rank], (3, 2, 2)[:rank]
    attributes = {"kernel": kernel_size, "stride": (2, 1, 1)[:rank], "pad": (1,) * rank, "num_filter": 3}
    x, w, b = inputs(x=(2, 3, *sizes), w=(3, 3, *kernel_size), b=(3,))
    y = op("Convolution", x, w, b, **attributes)
    dy = input_node("dy", shape=y.shape, dtype="float32")
    dx, dw = (op(name, dy, x, w, **attributes) for name in ("_conv_data_grad", "_conv_weight_grad"))
    agree(
        Graph([x, w, b, dy], [y, dx, dw]),
        x=data(x.shape), w=data(w.shape, 1), b=data((3,), 2), dy=data(y.shape, 3),
    )  # fmt: skip


def test_tf32_only_where_it_is_asked_for_and_the_chip_has_it(monkeypatch):
    assert {chip: tiles.precision(True, chip) for chip in ("sm75", "sm80", "sm90", "gfx90a", "gfx942", "gfx1100")} == {
        "sm75": "ieee", "sm80": "tf32", "sm90": "tf32", "gfx90a": "ieee", "gfx942": "tf32", "gfx1100": "ieee",
    }  # fmt: skip
    assert tiles.precision(False, "sm90") == "ieee"
    x, w = inputs(x=(20, 20), w=(20, 20))
    (source,) = kernels_of(Graph([x, w], [op("dot", x, w)]), "tf32")[2]
    assert 'input_precision="tf32"' in source.text


def test_the_flag_reaches_the_engine(monkeypatch):
    asked = []
    monkeypatch.setattr(tiles, "precision", lambda tf32, chip: asked.append(tf32) or "ieee")
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    net.hybridize(engine="triton", tf32=True)
    net(mx.nd.ones((1, 3)))
    with mx.autograd.record():
        net(mx.nd.ones((1, 3)))
    net.hybridize(engine="triton")
    net(mx.nd.ones((1, 3)))
    net.hybridize(engine="numpy", tf32=True)
    net(mx.nd.ones((1, 3)))
    assert asked == [True] * (len(asked) - 1) + [False] and len(asked) > 3  # each program asks, some twice


def test_configurations_stay_within_the_arrays_and_are_six_at_most():
    x, w = inputs(x=(4096, 20), w=(20, 300))
    (source,) = kernels_of(Graph([x, w], [op("dot", x, w)]))[2]
    for chip in ("sm80", "gfx942", "gfx950", "gfx1100"):
        found = tiles.configurations(source, chip)
        assert 2 <= len(found) <= 6 and all(item.blocks["INNER"] <= 32 for item in found)
        assert all(item.stages == 1 for item in found) or chip != "gfx950"


def test_a_few_programs_at_least():
    """Tiles shrink with the product, down to 32 x 32; large float16 products have large ones."""

    def blocks(rows, columns, exact):
        return tuple(tiles.for_product(rows, columns, 512, 1, exact)[0].values())

    assert blocks(4096, 4096, False) == (128, 128, 32) and blocks(4096, 4096, True) == (64, 64, 16)
    assert blocks(256, 256, True) == (32, 32, 16) and blocks(4, 50000, True) == (16, 64, 16)


@pytest.mark.parametrize("stride, pad, dilate, filters", [(1, 1, 1, 4), (2, 1, 1, 4), (2, 0, 2, 8), (3, 2, 1, 12)])
def test_depthwise_convolutions_go_through_windows(stride, pad, dilate, filters):
    """No tiles of products with one row; the gradient of the weight is a sum over windows."""
    attributes = {
        "kernel": (3, 3), "stride": (stride,) * 2, "pad": (pad,) * 2, "dilate": (dilate,) * 2, "num_filter": filters,
        "num_group": 4,
    }  # fmt: skip
    x, w, b = inputs(x=(3, 4, 11, 9), w=(filters, 1, 3, 3), b=(filters,))
    y = op("Convolution", x, w, b, **attributes)
    dy = input_node("dy", shape=y.shape, dtype="float32")
    dx, dw = (op(name, dy, x, w, **attributes) for name in ("_conv_data_grad", "_conv_weight_grad"))
    graph = Graph([x, w, b, dy], [op("relu", y), dx, dw])
    sources = kernels_of(graph)[2]
    assert {source.kind for source in sources} == {"pointwise", "rows"} and "im2col_mul_sum" in {
        source.name for source in sources
    }
    agree(graph, x=data(x.shape), w=data(w.shape, 1), b=data(b.shape, 2), dy=data(y.shape, 3))


def test_the_padding_of_a_depthwise_convolution_stays_0_whatever_is_computed_before():
    x, w = inputs(x=(2, 3, 7), w=(3, 1, 3))
    y = op("Convolution", op("broadcast_add", x, 1.0), w, kernel=3, pad=2, num_filter=3, num_group=3, no_bias=True)
    graph = Graph([x, w], [y])
    assert len(kernels_of(graph)[2]) == 1
    agree(graph, x=data(x.shape), w=data(w.shape, 1))


def test_what_is_read_beside_a_product_from_a_batch_on():
    """The condition is on the program's number alone."""
    x, w, dy = inputs(x=(2, 20, 18), w=(3, 17, 20), dy=(3, 17, 18))
    behind = op("_slice_axis_grad", op("exp", x), op("batch_dot", w, dy, transpose_a=True), axis=0, begin=1, end=None)
    graph = Graph([x, w, dy], [op("broadcast_add", behind, op("batch_dot", w, dy, transpose_a=True))])
    assert "product" in [source.kind for source in kernels_of(graph)[2]]
    agree(graph, x=data(x.shape), w=data(w.shape, 1), dy=data(dy.shape, 2))


def test_a_large_depthwise_kernel_is_a_product():
    x, w = inputs(x=(1, 2, 12, 12), w=(2, 1, 9, 9))
    graph = Graph([x, w], [op("Convolution", x, w, kernel=(9, 9), num_filter=2, num_group=2, no_bias=True)])
    assert [source.kind for source in kernels_of(graph)[2]] == ["product"]
    agree(graph, x=data(x.shape), w=data(w.shape, 1))


@pytest.mark.parametrize("groups, given", [(1, {"adj": (1, 1)}), (2, {"pad": (0, 0), "target_shape": (9, 11)})])
def test_transposed_convolutions_and_their_gradients(groups, given):
    attributes = {"kernel": (3, 4), "stride": (2, 3), "pad": (1, 1), "num_filter": 4, "num_group": groups, **given}
    x, w, b = inputs(x=(2, 6, 5, 4), w=(6, 4 // groups, 3, 4), b=(4,))
    y = op("Deconvolution", x, w, b, no_bias=False, **attributes)
    dy = input_node("dy", shape=y.shape, dtype="float32")
    dx, dw = (op(name, dy, x, w, **attributes) for name in ("_deconv_data_grad", "_deconv_weight_grad"))
    graph = Graph([x, w, b, dy], [op("relu", y), dx, dw])
    assert [source.kind for source in kernels_of(graph)[2]] == ["product"] * 3
    agree(graph, x=data(x.shape), w=data(w.shape, 1), b=data(b.shape, 2), dy=data(y.shape, 3))
