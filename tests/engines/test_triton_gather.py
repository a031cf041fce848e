"""Rows by number: tables with several tiles of rows, columns and entries, what is fused with them, and their order."""

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import hybrid_lab as mx
from hybrid_lab import autograd, engines, gluon
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.run import kernel
from hybrid_lab.engines.triton.write.special import collect
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import input_node
from tests.engines.test_triton import interpreter  # noqa: F401
from tests.engines.test_triton_rows import agree, data, op
from tests.triton_device import use_triton


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Several programs along each axis, the last one ragged, and numbers that are looked at in several tiles: 8 rows,
    8 columns, 16 entries.
    """
    monkeypatch.setattr(collect, "TILE", 64)
    monkeypatch.setattr(collect, "COLUMNS", 8)
    monkeypatch.setattr(collect, "ENTRIES", 16)
    monkeypatch.setattr(kernel, "INTERPRETER_TILE", 1024)


def inputs(**shapes):
    return [input_node(name, shape=shape, dtype="float32") for name, shape in shapes.items()]


def numbers(shape, limit, seed=0):
    return np.random.RandomState(seed).randint(-2, limit + 3, shape).astype("float32")


def the_kernel(graph):
    sources = kernels_of(graph)[2]
    assert [source.kind for source in sources] == ["collect"]
    return sources[0]


@pytest.mark.each_value
@pytest.mark.parametrize("entries", [(3, 7), (1,)])
@pytest.mark.parametrize("rows, width", [(19, 11), (1, 7), (11, 1)])
def test_embeddings_gradient(rows, width, entries):
    dy, place, weight = inputs(dy=(*entries, width), place=entries, weight=(rows, width))
    graph = Graph([dy, place, weight], [op("_take_grad", dy, weight, place)])
    the_kernel(graph)
    agree(graph, dy=data((*entries, width)), place=numbers(entries, rows), weight=data((rows, width)))


@pytest.mark.each_value
@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_gradient_of_take_along_any_axis(axis, mode):
    shape = (5, 6, 7)
    made = (*shape[:axis], 4, 9, *shape[axis + 1 :])
    dy, x, place = inputs(dy=made, x=shape, place=(4, 9))
    graph = Graph([dy, x, place], [op("_take_grad", dy, x, place, axis=axis, mode=mode)])
    the_kernel(graph)
    agree(graph, dy=data(made), x=data(shape), place=numbers((4, 9), shape[axis]))


@pytest.mark.parametrize("named", [1, 2])
def test_coordinates(named):
    """Read at them, added up at them, written at them: of a place that is named twice the last entry stays."""
    shape, entries = (5, 6, 3), (2, 9)
    places = [np.random.RandomState(axis).randint(-shape[axis], shape[axis], entries) for axis in range(named)]
    places = np.stack(places)
    assert len(np.unique(places.reshape(named, -1), axis=1).T) < 18
    x, dy = inputs(x=shape, dy=(*entries, *shape[named:]))
    place = input_node("place", shape=places.shape, dtype="int32")
    outputs = [op("gather_nd", x, place), op("_gather_nd_grad", dy, place, x), op("scatter_nd", dy, place, shape=shape)]
    graph = Graph([x, dy, place], [*outputs, op("_scatter_set_nd", x, dy, place, shape=shape)])
    assert sorted(source.kind for source in kernels_of(graph)[2]) == ["collect"] * 3 + ["pointwise"]
    agree(graph, x=data(shape), dy=data((*entries, *shape[named:]), 1), place=places.astype("int32"))


def test_what_makes_the_entries_and_what_reads_the_rows_is_in_the_kernel():
    dy, place, weight = inputs(dy=(13, 5), place=(13,), weight=(11, 5))
    gradient = op("_take_grad", op("broadcast_mul", op("exp", dy), 0.5), weight, place)
    new = op("broadcast_sub", weight, op("broadcast_mul", gradient, 0.1))
    graph = Graph([dy, place, weight], [new, gradient])
    assert len(the_kernel(graph).outputs) == 2
    agree(graph, dy=data((13, 5)), place=numbers((13,), 11), weight=data((11, 5), 1))


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
def test_other_dtypes(dtype):
    dy, weight = (input_node(name, shape=shape, dtype=dtype) for name, shape in (("dy", (13, 5)), ("weight", (11, 5))))
    place = input_node("place", shape=(13,), dtype="int64")
    graph = Graph([dy, place, weight], [op("_take_grad", dy, weight, place)])
    the_kernel(graph)
    arrays = {"dy": (data((13, 5)) * 8).astype(dtype), "weight": data((11, 5)).astype(dtype)}
    agree(graph, place=np.random.RandomState(0).randint(0, 11, 13), **arrays)


def test_entries_are_added_in_the_order_in_which_they_stand():
    """Numbers of very different size: any other order would round to another sum."""
    entries = (np.float32(10) ** np.random.RandomState(0).randint(-4, 8, (40, 1))).astype("float32")
    dy, place, weight = inputs(dy=(40, 1), place=(40,), weight=(3, 1))
    graph = Graph([dy, place, weight], [op("_take_grad", dy, weight, place)])
    rows = np.arange(40) % 3
    wanted = np.zeros((3, 1), "float32")
    for row, entry in zip(rows, entries, strict=True):
        wanted[row] += entry
    run = engines.get("triton").compile(graph)
    assert np.array_equal(run([entries, rows.astype("float32"), data((3, 1))])[0], wanted)


def test_a_table_of_words_of_a_usual_size(monkeypatch):
    """33,000 rows, of which 60 are read: a few large tiles here, 8,250 programs of a GPU."""
    monkeypatch.undo()
    use_triton(monkeypatch)
    net = gluon.nn.Embedding(33000, 2)
    net.initialize()
    words = mx.nd.array(np.random.RandomState(0).randint(0, 33000, (5, 12)))

    def gradient():
        with autograd.record():
            loss = (net(words) ** 2).sum()
        loss.backward()
        return net.weight.grad().asnumpy()

    eager = gradient()
    net.hybridize(engine="triton")
    found = gradient()
    assert np.array_equal(found != 0, eager != 0)
    np.testing.assert_allclose(found, eager, rtol=1e-5)
    assert not mx.explain(net).fallbacks
