"""Row kernels: reductions in one tile, in a loop and split, with what is fused around them; ragged tiles everywhere."""

import functools

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

from hybrid_lab import autograd, engines, gluon, nd
from hybrid_lab.engines.triton.build.compiling import divisible
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.run import kernel
from hybrid_lab.engines.triton.write.core import parts, reduction
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import input_node
from hybrid_lab.ops.framework.operator import get
from tests.engines.test_triton import interpreter  # noqa: F401
from tests.ops.cases import close


def op(name, *inputs, **attributes):
    return make_node(get(name).bind(**attributes), list(inputs)).outputs[0]


def run(graph, **arrays):
    """Outputs of the triton engine and of the numpy engine, and the sources of the kernels."""
    inputs = [arrays[value.node.name] for value in graph.inputs]
    return engines.get("triton").compile(graph)(inputs), engines.get("numpy").compile(graph)(inputs)


def agree(graph, **arrays):
    found, wanted = run(graph, **arrays)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        close(a, b)


def data(shape, seed=0):
    return np.random.RandomState(seed).randn(*shape).astype("float32")


def small_tiles(monkeypatch, tile=64, columns=16, one_tile=None):
    """So that small arrays have several tiles along each axis, the last one ragged."""
    monkeypatch.setattr(kernel, "INTERPRETER_TILE", tile)
    monkeypatch.setattr(reduction, "TILE", tile)
    monkeypatch.setattr(reduction, "COLUMNS", columns)
    if one_tile is not None:
        monkeypatch.setattr(reduction, "ONE_TILE", one_tile)


def softmax_graph(shape, axis):
    x = input_node("x", shape=shape, dtype="float32")
    return Graph([x], [op("softmax", x, axis=axis)])


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("shape, axis", [((5, 19), -1), ((3, 7, 5), 1), ((37, 3), 0), ((1, 20), 1), ((6, 1), 1)])
def test_softmax_is_one_kernel(shape, axis, looped, monkeypatch):
    small_tiles(monkeypatch, one_tile=4 if looped else None)
    graph = softmax_graph(shape, axis)
    if 1 not in shape:
        (source,) = kernels_of(graph)[2]
        assert source.kind == ("rows in a loop" if looped else "rows")
    agree(graph, x=data(shape))


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2, (0, 2), (0, 1), None])
@pytest.mark.parametrize("name", ["sum", "max", "min", "mean"])
def test_reductions_over_any_axes_with_what_is_around_them(name, axis, looped, monkeypatch):
    small_tiles(monkeypatch, one_tile=2 if looped else None)
    x = input_node("x", shape=(4, 6, 5), dtype="float32")
    y = op(name, op("exp", op("broadcast_mul", x, 0.5)), axis=axis, keepdims=True)
    whole = op("broadcast_sub", x, y)
    graph = Graph([x], [whole, op("tanh", y)])
    agree(graph, x=data((4, 6, 5)))


@pytest.mark.parametrize("looped", [False, True])
def test_layer_norm_with_gradient_shapes(looped, monkeypatch):
    small_tiles(monkeypatch, one_tile=4 if looped else None)
    x = input_node("x", shape=(7, 19), dtype="float32")
    gamma, beta = (input_node(name, shape=(19,), dtype="float32") for name in ("gamma", "beta"))
    mean = op("mean", x, axis=1, keepdims=True)
    centred = op("broadcast_sub", x, mean)
    variance = op("mean", op("square", centred), axis=1, keepdims=True)
    y = op("broadcast_mul", centred, op("rsqrt", op("broadcast_add", variance, 1e-5)))
    graph = Graph([x, gamma, beta], [op("broadcast_add", op("broadcast_mul", y, gamma), beta), mean])
    assert len(kernels_of(graph)[2]) == 1
    agree(graph, x=data((7, 19)), gamma=data((19,), 1), beta=data((19,), 2))


@pytest.mark.filterwarnings("error")
def test_elements_beside_the_data_warn_of_nothing():
    net = gluon.nn.LayerNorm()
    net.initialize()
    net.hybridize(engine="triton")
    with autograd.record():
        y = net(nd.array(data((3, 5))))
    y.backward()
    assert np.isfinite(net.gamma.grad().asnumpy()).all()


def test_nan_is_the_largest_and_the_smallest(monkeypatch):
    for one_tile in (4096, 4):
        small_tiles(monkeypatch, one_tile=one_tile)
        x = input_node("x", shape=(3, 19), dtype="float32")
        array = data((3, 19))
        array[1, 7] = np.nan
        agree(Graph([x], [op("max", x, axis=1), op("min", x, axis=1)]), x=array)


def test_views_on_the_way_are_only_other_places(monkeypatch):
    small_tiles(monkeypatch)
    x = input_node("x", shape=(4, 6, 5), dtype="float32")
    y = op("transpose", op("exp", x), axes=(2, 0, 1))
    z = op("Reshape", op("slice_axis", y, axis=0, begin=1, end=4), shape=(3, 24))
    graph = Graph([x], [op("sum", z, axis=1), op("broadcast_add", z, 1.0)])
    agree(graph, x=data((4, 6, 5)))


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
def test_other_dtypes(dtype, monkeypatch):
    small_tiles(monkeypatch)
    x = input_node("x", shape=(5, 19), dtype=dtype)
    array = (data((5, 19)) * 8).astype(dtype)
    agree(Graph([x], [op("sum", x, axis=1), op("max", x, axis=0)]), x=array)


@pytest.mark.parametrize("axes", [(0, 2), (0,), (0, 1, 2)])
def test_few_long_rows_are_split(axes, monkeypatch):
    """A layer's bias and statistics: several programs a row, the last part ragged, and what is made of the whole."""
    small_tiles(monkeypatch)
    for name, number in (("SPLIT", 20), ("PART", 32), ("MOST_PARTS", 4)):
        monkeypatch.setattr(reduction, name, number)
    x = input_node("x", shape=(7, 3, 11), dtype="float32")
    total = op("sum", op("square", x), axis=axes)
    graph = Graph([x], [op("sqrt", op("broadcast_add", total, 1.0)), op("max", x, axis=axes)])
    kinds = [source.kind for source in kernels_of(graph)[2]]
    assert kinds == (["parts of rows", "rows of parts"] if axes != (0,) else ["rows"])
    agree(graph, x=data((7, 3, 11)))


def test_mean_and_variance_of_split_rows_are_one_pass(monkeypatch):
    """The second sum needs the first one whole, and yet the data is read once for both and once more for the rest."""
    split_rows(monkeypatch)
    graph = normalized((7, 3, 11), (0, 2))
    sources = kernels_of(graph)[2]
    assert [source.kind for source in sources] == ["parts of rows", "rows of parts", "pointwise"]
    assert sources[0].sizes["parts"] > 2 and sources[0].sizes["columns"] % 16
    agree(graph, x=data((7, 3, 11)))
    far = data((7, 3, 11)) + 1000
    found, wanted = run(graph, x=far)
    exact = far - far.mean((0, 2), keepdims=True, dtype="float64")
    exact /= np.sqrt((exact**2).mean((0, 2), keepdims=True))
    assert abs(found[0] - exact).max() <= max(2 * abs(wanted[0] - exact).max(), 1e-3)


def split_rows(monkeypatch):
    small_tiles(monkeypatch)
    for name, number in (("SPLIT", 20), ("PART", 32)):
        monkeypatch.setattr(reduction, name, number)


def normalized(shape, axes):
    x = input_node("x", shape=shape, dtype="float32")
    mean = op("mean", x, axis=axes, keepdims=True)
    variance = op("mean", op("square", op("broadcast_sub", x, mean)), axis=axes, keepdims=True)
    return Graph([x], [op("broadcast_div", op("broadcast_sub", x, mean), op("sqrt", variance)), mean, variance])


def compiled_form(graph):
    """What decides whether a kernel is compiled again."""
    return [(source.code, source.blocks, divisible(source), source.warps) for source in kernels_of(graph)[2]]


@pytest.mark.parametrize(
    "shape, kind",
    [((6, 14, 14), "parts of rows"), ((320, 14, 14), "rows in a loop"), ((320, 16, 16), "rows in a loop")],
)
def test_statistics_of_another_batch_are_the_same_kernels(shape, kind):
    """A mean divides by an argument, and parts are put together by a tile that any number of them fits."""
    small, large = (normalized((batch, *shape), (0, 2, 3)) for batch in (32, 64))
    assert kind in [source.kind for source in kernels_of(small)[2]]
    assert compiled_form(small) == compiled_form(large)


def test_a_random_array_without_operands_beside_a_mean():
    x = input_node("x", shape=(5, 19), dtype="float32")
    noise = op("_random_uniform", shape=(5, 19))
    y = op("mean", op("broadcast_add", x, noise), axis=1)
    assert len(kernels_of(Graph([x], [y], draws=1))[2]) == 1


@pytest.mark.parametrize("columns", [1568, 6272])
def test_rows_of_many_loads_have_a_quarter_of_a_tile(columns):
    """So that their values fit into the registers of a program; a row that is too long for it is read in a loop."""
    counts = (2, reduction.MANY, reduction.MANY + 1)
    few, some, many = (kernels_of(windows(960, columns, count))[2][0] for count in counts)
    assert few.kind == some.kind == ("rows" if columns <= reduction.ONE_TILE else "rows in a loop")
    assert (np.prod(list(few.blocks.values())), few.warps) == (2048, 4)
    assert (some.blocks["ROWS"], some.warps) == (1, 8)
    assert many.kind == "rows in a loop" and many.blocks == {"ROWS": 1, "COLUMNS": 512} and many.warps == 8


def test_rows_of_many_loads_in_a_loop(monkeypatch):
    small_tiles(monkeypatch)
    graph = windows(3, 37, reduction.MANY + 1)
    (source,) = kernels_of(graph)[2]
    assert source.kind == "rows in a loop"
    agree(graph, x=data((3, 100)))


def windows(rows, columns, count):
    """Each element less the mean of the row, and that mean, of a sum of so many neighbours."""
    x = input_node("x", shape=(rows, columns + count if columns > 99 else 100), dtype="float32")
    parts = [op("slice_axis", x, axis=1, begin=start, end=start + columns) for start in range(count)]
    total = functools.reduce(lambda a, b: op("broadcast_add", a, b), parts)
    mean = op("mean", total, axis=1, keepdims=True)
    return Graph([x], [op("broadcast_sub", total, mean), mean])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_what_divides_by_the_elements_of_a_channel_takes_their_number_as_an_argument(dtype):
    def graph(batch, divisor):
        x = input_node("x", shape=(batch, 3, 64), dtype=dtype)
        total = input_node("total", shape=(1, 3, 1), dtype=dtype)
        return Graph([x, total], [op("broadcast_sub", x, op("broadcast_div", total, divisor))])

    assert compiled_form(graph(10, 640.0)) == compiled_form(graph(12, 768.0)) != compiled_form(graph(12, 7.0))
    assert compiled_form(graph(8, 512.0)) == compiled_form(graph(16, 1024.0)) != compiled_form(graph(16, 32.0))
    assert dict(kernels_of(graph(12, 7.0))[2][0].sizes) == {"n": 2304}
    for batch in (8, 10):
        (source,) = kernels_of(graph(batch, batch * 64.0))[2]
        assert dict(source.sizes) == {"n": batch * 192, "count": batch * 64}
        total = data((1, 3, 1), 1).astype(dtype) * 999
        agree(graph(batch, batch * 64.0), x=data((batch, 3, 64)).astype(dtype), total=total)


def test_a_mean_and_a_variance_in_a_loop_read_their_rows_twice(monkeypatch):
    small_tiles(monkeypatch, one_tile=4)
    graph = normalized((5, 37), 1)
    (source,) = kernels_of(graph)[2]
    assert source.kind == "rows in a loop" and dict(source.passes) == {graph.inputs[0]: 2}
    agree(graph, x=data((5, 37)))
    agree(graph, x=data((5, 37)) + 8)


def test_a_softmax_in_a_loop_reads_its_rows_twice(monkeypatch):
    small_tiles(monkeypatch, one_tile=4)
    graph = softmax_graph((5, 37), 1)
    (source,) = kernels_of(graph)[2]
    assert source.kind == "rows in a loop" and dict(source.passes) == {graph.inputs[0]: 2}


@pytest.mark.parametrize("kind", ["rows", "rows in a loop", "parts of rows"])
def test_tiles_of_sums_down_columns_are_as_wide_as_a_transfer(kind, monkeypatch):
    """Neighbours in memory are in different rows of the kernel: a tile has some of them."""
    x = input_node("x", shape=(50, 21), dtype="float32")
    graph = Graph([x], [op("sum", op("exp", x), axis=0)])
    small_tiles(monkeypatch, tile=256, one_tile=64 if kind == "rows" else 4)
    if kind == "parts of rows":
        split_rows(monkeypatch)
    source = kernels_of(graph)[2][0]
    assert source.kind == kind and source.blocks["ROWS"] >= 8
    monkeypatch.setattr(kernel, "tile_sizes", lambda source: dict(source.blocks))
    agree(graph, x=data((50, 21)))


#: Rows of one kind each: -inf in one place, in a whole tile, everywhere; inf; NaN; all equal; large.
ODD = {
    "one": lambda row: row.__setitem__(3, -np.inf),
    "most": lambda row: row.__setitem__(slice(0, 34), -np.inf),
    "last": lambda row: row.__setitem__(slice(5, None), -np.inf),
    "all": lambda row: row.__setitem__(slice(None), -np.inf),
    "inf": lambda row: row.__setitem__(20, np.inf),
    "nan": lambda row: row.__setitem__(36, np.nan),
    "equal": lambda row: row.__setitem__(slice(None), 3.0),
    "large": lambda row: row.__setitem__(slice(None, None, 2), 3e38),
}


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("build", ["softmax", "log_softmax", "normalized"])
def test_one_pass_of_odd_rows_is_as_two(build, split, monkeypatch):
    (split_rows if split else small_tiles)(monkeypatch, **({} if split else {"one_tile": 4}))
    array = data((len(ODD), 37))
    for row, change in zip(array, ODD.values(), strict=True):
        change(row)
    if build == "normalized":
        graph = normalized(array.shape, 1)
        array[-1] = data((37,))  # squares that overflow are inf in two passes, and need not be in one
    else:
        x = input_node("x", shape=array.shape, dtype="float32")
        graph = Graph([x], [op(build, x, axis=1)])
    kinds = [source.kind for source in kernels_of(graph)[2]]
    assert kinds == (["parts of rows", "rows of parts", "pointwise"] if split else ["rows in a loop"])
    with np.errstate(all="ignore"):
        agree(graph, x=array)


def test_elements_are_stored_on_the_way_of_a_split_sum(monkeypatch):
    """A gradient that products read too, and its sum for a bias: one pass, and the sum's other operators behind it."""
    split_rows(monkeypatch)
    x, w = (input_node(name, shape=(50, 21), dtype="float32") for name in ("x", "w"))
    y = op("broadcast_mul", op("tanh", x), w)
    total = op("broadcast_mul", op("sum", y, axis=0), 0.5)
    graph = Graph([x, w], [y, total])
    sources = kernels_of(graph)[2]
    assert [source.kind for source in sources] == ["parts of rows", "rows of parts"]
    assert "tanh" in sources[0].text and "tanh" not in sources[1].text
    agree(graph, x=data((50, 21)), w=data((50, 21), 1))


@pytest.mark.parametrize("kind", ["square", "exp"])
def test_split_rows_of_which_only_the_second_sum_is_needed(kind, monkeypatch):
    small_tiles(monkeypatch)
    for name in ("SPLIT", "SPLIT_ACROSS", "PART"):
        monkeypatch.setattr(reduction, name, 16)
    x = input_node("x", shape=(3, 90), dtype="float32")
    centre = op("mean" if kind == "square" else "max", x, axis=1, keepdims=True)
    graph = Graph([x], [op("sum", op(kind, op("broadcast_sub", x, centre)), axis=1)])
    sources = kernels_of(graph)[2]
    assert [source.kind for source in sources] == ["parts of rows", "rows of parts"]
    assert sources[0].sizes["parts"] > 2
    agree(graph, x=data((3, 90)))


def layer_norm_gradients(shape, axis=-1):
    """Those of data, scale and shift, and the sum of the first one, as a bias before the layer has it."""
    dy, x = (input_node(name, shape=shape, dtype="float32") for name in ("dy", "x"))
    gamma = input_node("gamma", shape=shape[-1:], dtype="float32")
    mean = op("mean", x, axis=axis, keepdims=True)
    centred = op("broadcast_sub", x, mean)
    variance = op("mean", op("square", centred), axis=axis, keepdims=True)
    away = op("broadcast_div", centred, op("sqrt", op("broadcast_add", variance, 1e-5)))
    g = op("broadcast_mul", dy, gamma)
    first = op("broadcast_sub", g, op("mean", g, axis=axis, keepdims=True))
    second = op("broadcast_mul", away, op("mean", op("broadcast_mul", g, away), axis=axis, keepdims=True))
    dx = op("broadcast_sub", first, second)
    rows = tuple(range(len(shape) - 1))
    sums = [op("sum", item, axis=rows) for item in (op("broadcast_mul", dy, away), dy, dx)]
    return Graph([dy, x, gamma], [dx, *sums])


@pytest.mark.parametrize("shape", [(37, 19), (3, 23, 20), (4, 1, 19)])
def test_sums_down_the_columns_of_rows_are_one_pass(shape, monkeypatch):
    small_tiles(monkeypatch)
    graph = layer_norm_gradients(shape)
    sources = kernels_of(graph)[2]
    rows = np.prod(shape[:-1])
    if rows > 4:
        assert [source.kind for source in sources] == ["rows and columns", "rows of parts"]
        assert sources[0].sizes["parts"] > 2 and rows % sources[0].sizes["per_part"]
        assert not sources[0].passes and sources[0].text.count("tl.load(dy_ptr") == 1
        monkeypatch.setattr(kernel, "tile_sizes", lambda source: dict(source.blocks))
    agree(graph, dy=data(shape), x=data(shape, 1), gamma=data(shape[-1:], 2))


def test_sums_down_square_columns(monkeypatch):
    small_tiles(monkeypatch)
    graph = layer_norm_gradients((20, 20))
    assert kernels_of(graph)[2][0].kind == "rows and columns"
    agree(graph, dy=data((20, 20)), x=data((20, 20), 1), gamma=data((20,), 2))


def test_no_tile_of_the_interpreter_goes_into_the_next_programs_rows(monkeypatch):
    monkeypatch.setattr(reduction, "TILE", 64)
    monkeypatch.setattr(parts, "PROGRAMS", 3)
    graph = layer_norm_gradients((34, 19))
    sources = kernels_of(graph)[2]
    assert sources[0].sizes["per_part"] == 12  # no power of two
    agree(graph, dy=data((34, 19)), x=data((34, 19), 1), gamma=data((19,), 2))


def test_sums_down_columns_of_another_batch_are_the_same_kernels():
    small, large = (layer_norm_gradients((batch, 128, 256)) for batch in (32, 64))
    assert kernels_of(small)[2][0].kind == "rows and columns"
    assert compiled_form(small) == compiled_form(large)
