"""Operators that several kernels compute, what they weigh, and what kernels then move beside what they must."""

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

from benchmarks import traffic
from hybrid_lab import engines
from hybrid_lab.engines.triton.plan import prices
from hybrid_lab.engines.triton.plan.fusion import fuse
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.support import refusal
from hybrid_lab.engines.triton.write.body import Refused
from hybrid_lab.engines.triton.write.choose import write_kernels
from hybrid_lab.engines.triton.write.core import reduction
from hybrid_lab.gluon import nn
from hybrid_lab.gluon.ahead import graphs_of
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.passes.decompose import decompose
from hybrid_lab.graph.passes.simplify import simplify
from tests.engines.test_triton import interpreter  # noqa: F401
from tests.engines.test_triton_rows import small_tiles
from tests.graph.building import graph_of
from tests.ops.cases import close


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch):
    """Arrays of tests are weighed as large ones are."""
    monkeypatch.setattr(prices, "SMALL", 0)


def lowered(graph: Graph) -> Graph:
    return simplify(decompose(graph, lambda node: refusal(node) is None))


def fused(graph: Graph):
    return fuse(lowered(graph), refusal, write_kernels)


def names(found):
    return [[node.op.name for node in region.nodes] for region in found.groups]


def agree(graph: Graph, seed=0):
    """The Triton engine gives what the NumPy engine gives."""
    random = np.random.RandomState(seed)
    arrays = [random.uniform(0.5, 2, value.shape).astype("float32") for value in graph.inputs]
    for one, other in zip(*(engines.get(name).compile(graph)(arrays) for name in ("triton", "numpy")), strict=True):
        close(one, other)


def both_ways(F, y):
    return F.sum(y, axis=0), F.sum(y, axis=1)


def test_a_cheap_operator_is_computed_where_it_is_read():
    graph = graph_of(lambda F, x: both_ways(F, x * 2.0 + 1.0), (6, 5))
    found = fused(graph)
    assert names(found) == [["broadcast_mul", "broadcast_add", "sum"]] * 2
    assert len(found.graph.operators) == 4
    assert {node for region in found.groups for node in region.nodes} == set(found.graph.operators)
    agree(graph)


def test_what_is_made_of_more_is_stored():
    graph = graph_of(lambda F, x, y: both_ways(F, x * y), (6, 5), (6, 5))
    assert names(fused(graph)) == [["broadcast_mul", "sum"], ["sum"]]
    agree(graph)


def test_what_is_read_anyway_makes_a_copy_free():
    def function(F, x, y):
        z = x * y
        return F.sum(z, axis=0), F.sum(z + x + y, axis=1)

    graph = graph_of(function, (6, 5), (6, 5))
    assert [row.count("broadcast_mul") for row in names(fused(graph))] == [1, 1]
    agree(graph)


def test_a_stored_value_is_computed_again_where_it_is_made_of_less():
    def function(F, x, b):
        y = F.broadcast_like(b, x) * b
        return y, F.sum(y, axis=0), F.sum(y, axis=1)

    graph = graph_of(function, (6, 50), (1, 50))
    found = fused(graph)
    assert [row.count("broadcast_mul") for row in names(found)] == [1, 1]
    agree(graph)


def test_random_numbers_are_drawn_once():
    def function(F, x):
        return both_ways(F, F.Dropout(x, p=0.5, mode="always"))

    graph = graph_of(function, (6, 5))
    assert sum("draw" in source.text and bool(source.draws) for source in kernels_of(graph)[2]) == 1


def test_operators_with_copies_go_through_views():
    def function(F, x):
        y = F.transpose(F.reshape(x * 2.0, shape=(5, 6)))
        return F.sum(y, axis=0), F.sum(y, axis=1), F.max(F.reshape(x * 2.0, shape=(3, 10)), axis=1)

    graph = graph_of(function, (6, 5))
    assert not any(row == ["broadcast_mul"] for row in names(fused(graph)))
    agree(graph)


def test_a_row_that_is_stored_stays_with_its_elements():
    """LayerNorm in training: what the backward needs has an element per row, and the rest one per element."""

    def function(F, x, gamma):
        centred = x - F.mean(x, axis=-1, keepdims=True)
        deviation = F.sqrt(F.mean(F.square(centred), axis=-1, keepdims=True) + 1e-5)
        return centred / deviation * gamma, deviation

    graph = graph_of(function, (6, 50), (50,))
    assert len(fused(graph).groups) == 1
    agree(graph)


def test_a_kernel_that_cannot_be_after_all_is_taken_apart():
    def write(region, run=None):  # the kernels of final groups are written with a run
        if run is not None and len(region.nodes) > 2:
            raise Refused("too many for this test")
        return write_kernels(region, run)

    found = fuse(graph_of(lambda F, x: F.exp(F.tanh(F.sqrt(x) + 1.0)), (6, 5)), refusal, write)
    assert names(found) == [["sqrt"], ["broadcast_add"], ["tanh"], ["exp"]]
    assert not found.refused and set(found.apart.values()) == {"too many for this test"}


def test_equal_kernels_are_tried_once():
    calls = []

    def write(region, run=None):
        calls.append(region)
        return write_kernels(region, run)

    def function(F, x):
        for _ in range(20):
            x = F.sort(F.softmax(F.tanh(x) * 2.0), axis=1)
        return x

    found = fuse(lowered(graph_of(function, (6, 5))), refusal, write)
    assert len(found.groups) == 20 and len(calls) < 40


# -- traffic -----------------------------------------------------------------------------------------------------------


def moved(function, *shapes):
    return traffic.of(fused(graph_of(function, *shapes)))


def test_one_kernel_moves_what_it_must():
    found = moved(lambda F, x, b: F.tanh(x + b), (6, 5), (5,))
    assert found == traffic.Traffic(moved=4 * (30 + 5 + 30), ideal=4 * (30 + 5 + 30), kernels=1, operators=2)
    assert "1 kernels of 2.0 operators" in str(found) and found.ratio == 1


def test_a_slice_is_read_and_not_the_rest():
    assert moved(lambda F, x: F.exp(F.slice_axis(x, axis=1, begin=1, end=3)), (6, 5)).moved == 4 * (12 + 12)


def test_a_table_is_read_where_it_is_looked_at():
    assert moved(lambda F, table, i: F.take(table, i) * 2.0, (1000, 5), (3,)).moved == 4 * (15 + 3 + 15)


def test_what_lies_between_two_products_is_written_and_read():
    found = moved(lambda F, x, v, w: F.dot(F.exp(F.dot(x, v)), w), (6, 5), (5, 7), (7, 3))
    assert found.moved == found.ideal == 4 * (30 + 35 + 42 + 42 + 21 + 18)


def test_rows_in_a_loop_are_read_once_for_each(monkeypatch):
    small_tiles(monkeypatch, one_tile=4)
    found = moved(lambda F, x: F.broadcast_div(x, F.sum(x, axis=1, keepdims=True)), (6, 50))
    assert (found.moved, found.ideal) == (4 * 900, 4 * 600)


def test_sums_of_split_rows_are_a_cut(monkeypatch):
    """What needs a whole sum at every element reads its data again, however the kernels are cut."""
    small_tiles(monkeypatch)
    for name, number in (("SPLIT", 20), ("PART", 32)):
        monkeypatch.setattr(reduction, name, number)

    def function(F, x):
        mean = F.mean(x, axis=(0, 2), keepdims=True)
        variance = F.mean(F.square(x - mean), axis=(0, 2), keepdims=True)
        return (x - mean) / F.sqrt(variance)

    found = traffic.of(fused(graph_of(function, (7, 3, 40))))
    assert found.kernels == 3
    assert 4 * 840 * 3 <= found.ideal <= found.moved < 4 * 840 * 3.5


def convolutions():
    net = nn.HybridSequential()
    for channels in (16, 32):
        net.add(nn.Conv2D(channels, 3, padding=1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
    net.add(nn.MaxPool2D(2), nn.Dense(10))
    return net, (16, 3, 32, 32)


def test_a_turned_output_is_a_copy():
    plain, turned, cut = (
        traffic.of(kernels_of(graph_of(lambda F, x, view=view: view(F, F.exp(x)), (30, 40)))[1]).moved
        for view in (
            lambda F, e: F.reshape(e, shape=(40, 30)),
            lambda F, e: F.transpose(F.sort(e)),
            lambda F, e: F.sort(e),
        )
    )
    assert turned == cut + 2 * 4 * 30 * 40 and plain == 2 * 4 * 30 * 40


def norms():
    net = nn.HybridSequential()
    net.add(nn.Dense(96, flatten=False), nn.LayerNorm(), nn.GELU(), nn.Dense(64, flatten=False), nn.LayerNorm())
    return net, (8, 64, 64)


@pytest.mark.parametrize("build", [convolutions, norms])
def test_training_graphs_move_little_more_than_they_must(build, monkeypatch):
    monkeypatch.setattr(prices, "SMALL", 1 << 16)
    net, shape = build()
    net.initialize()
    graphs = graphs_of(net, shape, train=True)
    assert {"forward", "backward"} <= set(graphs)
    for part, graph in graphs.items():
        found = traffic.of(kernels_of(graph)[1])
        assert found.ratio <= 1.2, (part, str(found))
