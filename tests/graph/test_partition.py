"""Regions: convex, as large as possible, and replaced by one node each."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab.graph import Graph
from hybrid_lab.graph.passes.partition import contract, partition
from tests.graph.building import Group, evaluate, graph_of, names, program, uniform


def regions_of(graph: Graph, *outside: str, worth=lambda region: None):
    return partition(graph, lambda node: "not wanted" if node.op.name in outside else None, worth)


def test_before_and_after():
    graph = graph_of(lambda F, x: F.sum(F.sin(F.exp(x) * 2.0), axis=1) + 1.0, (2, 3))
    assert str(graph) == program("""
        graph net(%x0: f32[2,3]):
          %0: f32[2,3] = exp(%x0)
          %1: f32[2,3] = broadcast_mul(%0, 2.0)
          %2: f32[2,3] = sin(%1)
          %3: f32[2] = sum(%2, axis=1)
          %4: f32[2] = broadcast_add(%3, 1.0)
          return %4
    """)
    assert str(contract(graph, regions_of(graph, "sin")[0], Group)) == program("""
        graph net(%x0: f32[2,3]):
          %0: f32[2,3] = group(%x0)
          %1: f32[2,3] = sin(%0)
          %2: f32[2] = group(%1)
          return %2
    """)


def test_everything_supported_is_one_region():
    graph = graph_of(lambda F, x, y: F.exp(x) + F.tanh(y) * F.exp(x), (3,), (3,))
    (region,) = regions_of(graph)[0]
    assert len(region.nodes) == 5
    assert (len(region.inputs), len(region.outputs)) == (2, 1)


def test_a_path_that_leaves_and_comes_back_makes_two_regions():
    def function(F, x):
        a = F.exp(x)
        return a + F.sin(a) * 2.0

    regions, refused = regions_of(graph_of(function, (3,)), "sin")
    assert [[node.op.name for node in region.nodes] for region in regions] == [
        ["exp"],
        ["broadcast_mul", "broadcast_add"],
    ]
    assert [node.op.name for node in refused] == ["sin"]


def test_parts_that_do_not_wait_for_one_another_are_one_region():
    graph = graph_of(lambda F, x, y: (F.exp(F.tanh(x)), F.exp(F.tanh(y))), (3,), (3,))
    assert [len(region.nodes) for region in regions_of(graph)[0]] == [4]


def test_what_only_a_later_region_reads_moves_there():
    graph = graph_of(lambda F, x, y: F.exp(F.sin(F.exp(x))) * F.tanh(y), (3,), (3,))
    assert [len(region.nodes) for region in regions_of(graph, "sin")[0]] == [1, 3]


def test_what_is_not_worth_it_is_refused_with_the_reason():
    graph = graph_of(lambda F, x: F.exp(F.sin(F.exp(F.tanh(F.exp(x))))), (3,))
    regions, refused = regions_of(graph, "sin", worth=lambda region: None if len(region.nodes) > 1 else "too small")
    assert [len(region.nodes) for region in regions] == [3]
    assert sorted(refused.values()) == ["not wanted", "too small"]


def random_graph(seed: int) -> Graph:
    random = np.random.RandomState(seed)
    kinds = ["exp", "sin", "tanh", "relu"]

    def function(F, x, y):
        pool = [x, y]
        for _ in range(20):
            if random.rand() < 0.5:
                pool.append(getattr(F, kinds[random.randint(4)])(pool[random.randint(len(pool))]))
            else:
                pool.append((pool[random.randint(len(pool))] + pool[-1]) * 0.4)
        return pool[-1], pool[random.randint(len(pool))]

    return graph_of(function, (3,), (3,))


@pytest.mark.parametrize("seed", range(25))
def test_random_graphs_give_the_same_numbers_after_contraction(seed):
    graph = random_graph(seed)
    regions, refused = regions_of(graph, "sin", "relu")
    arrays = uniform((3,), (3,), seed=seed)
    contracted = contract(graph, regions, Group)
    assert names(contracted).count("group") == len(regions)
    for a, b in zip(evaluate(graph, arrays), evaluate(contracted, arrays), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("seed", range(25))
def test_regions_are_convex(seed):
    graph = random_graph(seed)
    for region in regions_of(graph, "sin", "relu")[0]:
        inside = set(region.nodes)
        left: set = set()
        for node in graph.nodes:
            if node in inside:
                assert not any(value.node in left for value in node.values_in)
            elif any(value.node in inside or value.node in left for value in node.values_in):
                left.add(node)
