"""Operators that kernels write element by element: windows, cuts and joints, borders, sequences; with ragged tiles."""

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

from hybrid_lab import engines
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.run import kernel
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import input_node
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.ops.framework.run import run_kernel
from tests.engines.test_triton import interpreter, one_node  # noqa: F401
from tests.engines.test_triton_rows import agree, data, op
from tests.ops.cases import CASES, close


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(kernel, "INTERPRETER_TILE", 64)


def inputs(**shapes):
    return [input_node(name, shape=shape, dtype="float32") for name, shape in shapes.items()]


def sources(graph):
    """The kernels of a graph that has kernels for everything."""
    _, fusion, made = kernels_of(graph)
    assert not [node.op.name for node in fusion.refused if not node.op.view]
    return made


WINDOWS = [
    {"kernel": (2, 2), "stride": (2, 2)},
    {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)},
    {"kernel": (3, 2), "stride": (1, 3), "pad": (2, 0)},
    {"kernel": (3, 3), "stride": (2, 2), "pooling_convention": "full"},
    {"kernel": (2, 2), "stride": (3, 3), "pad": (1, 1), "pooling_convention": "full"},
    {"kernel": (11, 1)},
]


@pytest.mark.each_value
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize(
    "kind",
    [
        {"pool_type": "max"},
        {"pool_type": "avg"},
        {"pool_type": "avg", "count_include_pad": False},
        {"pool_type": "sum"},
        {"pool_type": "lp", "p_value": 1},
        {"pool_type": "lp", "p_value": 3},
    ],
    ids=str,
)
def test_pooling_and_its_gradients(window, kind):
    (x,) = inputs(x=(3, 2, 11, 9))
    y = op("Pooling", op("broadcast_mul", x, 2.0), **window, **kind)
    dy = input_node("dy", shape=y.shape, dtype="float32")
    outputs = [op("tanh", y)]
    if kind["pool_type"] == "max":
        outputs.append(op("_max_pool_grad", dy, x, op("Pooling", x, **window, **kind), **window, **kind))
    elif kind["pool_type"] != "lp":
        outputs.append(op("_spread_pool_grad", dy, x, **window, **kind))
    graph = Graph([x, dy], outputs)
    sources(graph)
    agree(graph, x=data((3, 2, 11, 9)), dy=data(y.shape, 1))


@pytest.mark.parametrize(
    "kind", [{"pool_type": name} for name in ("max", "avg", "sum")] + [{"pool_type": "lp", "p_value": 2}]
)
def test_global_pooling_is_a_reduction(kind):
    (x,) = inputs(x=(5, 3, 11, 9))
    graph = Graph([x], [op("Pooling", op("exp", x), global_pool=True, kernel=(1, 1), **kind)])
    (source,) = sources(graph)
    assert source.kind.startswith("rows")
    agree(graph, x=data((5, 3, 11, 9)))


def test_a_gradient_of_global_means_is_read_where_it_lies():
    x, dy = inputs(x=(5, 3, 11, 9), dy=(5, 3, 1, 1))
    graph = Graph([x, dy], [op("_spread_pool_grad", dy, x, global_pool=True, kernel=(1, 1), pool_type="avg")])
    assert "for" not in sources(graph)[0].text
    agree(graph, x=data((5, 3, 11, 9)), dy=data((5, 3, 1, 1), 1))


@pytest.mark.parametrize("align_corners", [True, False])
def test_a_window_over_a_resized_image(align_corners):
    """Of an axis where one window is, each pixel is a place without variables."""
    (x,) = inputs(x=(1, 2, 4, 5))
    resized = op("_contrib_BilinearResize2D", x, height=7, width=3, align_corners=align_corners)
    graph = Graph([x], [op("Pooling", resized, kernel=(2, 2), stride=(2, 2), pool_type="avg")])
    sources(graph)
    agree(graph, x=data((1, 2, 4, 5)))


@pytest.mark.parametrize("k", [0, 1, -1])
def test_diagonals_of_one_element(k):
    (x,) = inputs(x=(1,))
    whole = op("diag", x, k=k)
    outputs = [op("slice", whole, begin=(0, 0), end=(1, 1)), op("diag", op("exp", whole), k=k)]
    agree(Graph([x], outputs), x=data((1,)))


def test_nan_is_the_maximum_and_takes_no_gradient():
    x, dy = inputs(x=(1, 2, 7, 9), dy=(1, 2, 3, 4))
    window = {"kernel": (3, 3), "stride": (2, 2)}
    y = op("Pooling", x, pool_type="max", **window)
    graph = Graph([x, dy], [y, op("_max_pool_grad", dy, x, y, pool_type="max", **window)])
    array = data((1, 2, 7, 9))
    array[0, 0, 2, 2] = array[0, 1, 6, 8] = np.nan
    array[0, 0, 4:7, :] = -np.inf
    agree(graph, x=array, dy=data((1, 2, 3, 4), 1))


def test_the_first_of_equal_maxima_takes_the_gradient():
    x, dy = inputs(x=(2, 2, 8, 8), dy=(2, 2, 4, 4))
    window = {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}
    graph = Graph([x, dy], [op("_max_pool_grad", dy, x, op("Pooling", x, **window), **window)])
    agree(graph, x=np.random.RandomState(0).randint(0, 3, (2, 2, 8, 8)).astype("float32"), dy=data((2, 2, 4, 4), 1))


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "uint8"])
def test_pooling_of_other_dtypes(dtype):
    x = input_node("x", shape=(2, 3, 7, 9), dtype=dtype)
    window = {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}
    graph = Graph([x], [op("Pooling", x, pool_type=kind, **window) for kind in ("max", "sum")])
    sources(graph)
    agree(graph, x=(abs(data((2, 3, 7, 9))) * 8).astype(dtype))


def test_what_a_window_overlaps_is_computed_once():
    """A pooling in a pooling: 81 reads an element are two kernels of 9."""
    (x,) = inputs(x=(2, 2, 13, 11))
    window = {"kernel": (3, 3), "stride": (1, 1), "pool_type": "max"}
    graph = Graph([x], [op("Pooling", op("Pooling", op("exp", x), **window), **window)])
    assert len(sources(graph)) == 2
    agree(graph, x=data((2, 2, 13, 11)))
    graph = Graph([x], [op("Pooling", op("exp", x), kernel=(2, 2), stride=(2, 2))])
    assert len(sources(graph)) == 1


def test_windows_of_many_places_stay_on_the_host():
    (x,) = inputs(x=(1, 1, 11, 11))
    graph = Graph([x], [op("Pooling", x, kernel=(9, 9), pool_type="sum")])
    _, fusion, _ = kernels_of(graph)
    assert list(fusion.refused.values()) == ["a window of 81 places; kernels have up to 64"]
    agree(graph, x=data((1, 1, 11, 11)))


@pytest.mark.parametrize("squeeze", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ["SliceChannel", "_split_v2"])
def test_parts_are_views(name, axis, squeeze):
    shape = [12, 12, 12]
    shape[axis] = 3 if squeeze else 6
    (x,) = inputs(x=tuple(shape))
    count = {"num_outputs": 3} if name == "SliceChannel" else {"indices": (), "sections": 3}

    parts = make_node(get(name).bind(axis=axis, squeeze_axis=squeeze, **count), [op("tanh", x)]).outputs
    total = op("broadcast_add", op("sigmoid", parts[0]), op("broadcast_mul", parts[1], parts[2]))
    graph = Graph([x], [total])
    (source,) = sources(graph)
    assert source.text.count("tl.load") == 3
    agree(graph, x=data(tuple(shape)))


def around(shape, name, **attributes):
    """A graph of one operator between a producer and a reader."""
    (x,) = inputs(x=shape)
    return Graph([x], [op("tanh", op(name, op("exp", x), **attributes))])


@pytest.mark.parametrize(
    "shape, name, attributes",
    [
        ((5, 7, 9), "reverse", {"axis": (0, 2)}),
        ((5, 7), "tile", {"reps": (2, 3, 2)}),
        ((5, 7), "repeat", {"repeats": 3, "axis": 0}),
        ((5, 7), "repeat", {"repeats": 3}),
        ((5, 7, 9), "repeat", {"repeats": 2, "axis": -1}),
        ((3, 2, 5, 7), "Pad", {"mode": "constant", "pad_width": (0, 0, 1, 0, 2, 1, 0, 4), "constant_value": 1.5}),
        ((3, 2, 5, 7), "Pad", {"mode": "edge", "pad_width": (0, 0, 0, 0, 2, 1, 0, 8)}),
        ((3, 2, 5, 7), "Pad", {"mode": "reflect", "pad_width": (0, 0, 0, 0, 2, 4, 6, 0)}),
        ((3, 2, 5, 7), "UpSampling", {"scale": 3, "sample_type": "nearest"}),
        ((3, 9, 5), "_channel_window_sum", {"nsize": 5}),
        ((13, 5, 2), "SequenceLast", {}),
        ((13, 5, 2), "SequenceReverse", {}),
    ],
)
def test_movements_are_fused_with_what_is_around_them(shape, name, attributes):
    graph = around(shape, name, **attributes)
    assert len(sources(graph)) == 1
    agree(graph, x=data(shape))


def test_gradients_of_movements():
    x, dy = inputs(x=(6, 7), dy=(3, 6, 7))
    graph = Graph([x, dy], [op("_sum_like", op("exp", dy), x)])
    assert [source.kind for source in sources(graph)] == ["rows"]
    agree(graph, x=data((6, 7)), dy=data((3, 6, 7), 1))


@pytest.mark.parametrize("begin, end, step", [((2, 1), (9, None), ()), ((8, None), (1, None), (-3, 2))])
def test_a_slices_gradient_is_read_behind_a_guard(begin, end, step):
    (x,) = inputs(x=(10, 11))
    attributes = {"begin": begin, "end": end, "step": step}
    y = op("slice", x, **attributes)
    dy = input_node("dy", shape=y.shape, dtype="float32")
    graph = Graph([x, dy], [op("broadcast_add", op("_slice_grad", op("exp", dy), x, **attributes), x)])
    assert len(sources(graph)) == 1
    agree(graph, x=data((10, 11)), dy=data(y.shape, 1))


def test_a_part_of_joined_arrays_reads_only_what_it_holds():
    a, b, c = inputs(a=(7, 3), b=(7, 5), c=(7, 4))
    joined = op("Concat", a, b, c, dim=1)
    graph = Graph([a, b, c], [op("exp", op("slice_axis", joined, axis=1, begin=4, end=7)), op("exp", joined)])
    texts = [source.text for source in sources(graph)]
    assert sorted(text.count("tl.load") for text in texts) == [1, 3]
    agree(graph, a=data((7, 3)), b=data((7, 5), 1), c=data((7, 4), 2))


def test_stacked_arrays():
    a, b, c = inputs(a=(7, 9), b=(7, 9), c=(7, 9))
    stacked = op("stack", op("exp", a), b, c, axis=1)
    graph = Graph([a, b, c], [op("tanh", stacked)])
    assert len(sources(graph)) == 1
    agree(graph, a=data((7, 9)), b=data((7, 9), 1), c=data((7, 9), 2))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("axis", [0, 1])
def test_sequences_of_their_own_lengths(axis, dtype):
    (x,) = inputs(x=(13, 13, 2))
    length = input_node("length", shape=(13,), dtype=dtype)
    flags = {"use_sequence_length": True, "axis": axis}
    last = op("SequenceLast", x, length, **flags)
    outputs = [op("SequenceMask", x, length, value=-1.0, **flags), op("_sequence_last_grad", last, x, length, **flags)]
    if axis == 0:
        outputs.append(op("SequenceReverse", x, length, use_sequence_length=True))
    graph = Graph([x, length], [*outputs, last])
    sources(graph)
    agree(graph, x=data((13, 13, 2)), length=np.arange(13).astype(dtype))


def test_guards_of_computed_places_stay():
    """Where an address moves with a computed place only, the condition on what that was computed of decides too."""
    x, w, dy = inputs(x=(1, 3, 9, 9), w=(4, 3, 3, 3), dy=(1, 4, 5, 5))
    attributes = {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "num_filter": 4}
    graph = Graph([x, w, dy], [op("_conv_data_grad", dy, x, w, **attributes)])
    agree(graph, x=data((1, 3, 9, 9)), w=data((4, 3, 3, 3), 1), dy=data((1, 4, 5, 5), 2))
    x, dy = inputs(x=(11,), dy=(4,))
    graph = Graph([x, dy], [op("_slice_grad", dy, x, begin=(3,), end=(None,), step=(2,))])
    assert "% 2 == 0" in next(line for line in sources(graph)[0].text.splitlines() if "dy = " in line)
    agree(graph, x=data((11,)), dy=data((4,), 1))


def test_what_a_window_has_in_common_is_loaded_once():
    """A condition on pixels decides nothing about what every pixel of a channel is multiplied by."""
    x, scale, w = inputs(x=(2, 3, 5, 6), scale=(1, 3, 1, 1), w=(3, 1, 3, 3))
    scaled = op("broadcast_mul", x, op("exp", scale))
    y = op("Convolution", scaled, w, kernel=(3, 3), pad=(1, 1), num_filter=3, num_group=3, no_bias=True)
    graph = Graph([x, scale, w], [op("sum", y, axis=(0, 2, 3))])
    (source,) = sources(graph)
    assert source.text.count("tl.load(scale_ptr") == source.text.count("tl.exp(") == 1
    agree(graph, x=data((2, 3, 5, 6)), scale=data((1, 3, 1, 1), 1), w=data((3, 1, 3, 3), 2))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_nan_goes_through_what_limits_numbers(dtype):
    x = input_node("x", shape=(8,), dtype=dtype)
    outputs = [
        op("relu", x),
        op("clip", x, a_min=-1.0, a_max=np.inf if dtype == "float32" else 2.0),
        op("broadcast_maximum", x, 1),
    ]
    graph = Graph([x], [*outputs, op("broadcast_minimum", x, op("negative", x))])
    sources(graph)
    agree(graph, x=np.array([1, -1, np.nan if dtype == "float32" else 7, 2, 3, -3, 0, -4], dtype))


TAKEN_APART = [
    case
    for case in CASES
    if case.op.name
    in {
        "SliceChannel", "_split_v2", "_sum_like", "_up_sampling_grad", "nansum",
        "SoftmaxOutput", "_softmax_output_grad", "LinearRegressionOutput", "LogisticRegressionOutput",
        "MAERegressionOutput", "_regression_output_grad", "SVMOutput", "MakeLoss", "_contrib_div_sqrt_dim",
        "_max_pool_grad", "LRN",
    }
    or (case.op.name == "Pooling" and case.op.global_pool)
]  # fmt: skip


@pytest.mark.parametrize("case", TAKEN_APART, ids=[case.id for case in TAKEN_APART])
def test_composites_have_kernels_for_all_their_parts(case):
    graph, arrays, _ = one_node(case)
    graph = Graph(graph.inputs, graph.outputs[: case.op.signature.visible])
    sources(graph)
    found = engines.get("triton").compile(graph)(arrays)
    for y, wanted in zip(found, run_kernel(case.op, case.inputs()), strict=False):
        close(y, wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_angles(dtype):
    """At 0, at the ends, beyond them, and where one formula follows on another."""
    x = input_node("x", shape=(14,), dtype=dtype)
    graph = Graph([x], [op(name, x) for name in ("arctan", "arcsin", "arccos")])
    assert len(sources(graph)) == 1
    numbers = [0, -1, 1, 0.66, 0.661, -0.3, 1e-4, 0.99, 2, -3, 2.42, np.inf, -np.inf, np.nan]
    found = engines.get("triton").compile(graph)([np.array(numbers, dtype)])
    with np.errstate(invalid="ignore"):
        wanted = [function(np.array(numbers, dtype)) for function in (np.arctan, np.arcsin, np.arccos)]
    for y, expected in zip(found, wanted, strict=True):
        close(y, expected, 1e-14 if dtype == "float64" else 2e-7)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("axis", [0, 1, (0, 2), None])
def test_products_over_axes(axis, dtype):
    x = input_node("x", shape=(5, 7, 3), dtype=dtype)
    graph = Graph([x], [op("prod", x, axis=axis)])
    assert [source.kind for source in sources(graph)] == ["rows"]
    array = np.random.RandomState(0).randint(-2, 4, (5, 7, 3)).astype(dtype)
    array[1, 2] = 1
    agree(graph, x=array)


@pytest.mark.parametrize("size", [1, (3, 2)])
def test_adaptive_pooling_of_equal_windows_is_pooling(size):
    (x,) = inputs(x=(2, 3, 9, 8))
    y = op("_contrib_AdaptiveAvgPooling2D", op("exp", x), output_size=size)
    dy = input_node("dy", shape=y.shape, dtype="float32")
    graph = Graph([x, dy], [y, op("_adaptive_avg_pool_grad", dy, x, output_size=size)])
    sources(graph)
    agree(graph, x=data((2, 3, 9, 8)), dy=data(y.shape, 1))


@pytest.mark.parametrize("mode", ["edge", "reflect"])
def test_the_gradient_of_borders(mode):
    x, dy = inputs(x=(2, 3, 5, 7), dy=(2, 3, 8, 12))
    widths = (0, 0, 0, 0, 1, 2, 4, 1)
    graph = Graph([x, dy], [op("_pad_grad", op("exp", dy), x, mode=mode, pad_width=widths)])
    sources(graph)
    agree(graph, x=data((2, 3, 5, 7)), dy=data((2, 3, 8, 12), 1))
