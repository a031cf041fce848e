"""Minimum cuts of small networks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hybrid_lab.graph.passes.flow import INFINITE, FlowNetwork


def cut(edges, vertices, source=0, sink=1):
    network = FlowNetwork(vertices)
    for tail, head, capacity in edges:
        network.add_edge(tail, head, capacity)
    return network.minimum_cut(source, sink)


def price(edges, behind):
    return sum(capacity for tail, head, capacity in edges if tail not in behind and head in behind)


def test_the_narrow_place_is_cut():
    assert cut([(0, 2, 5), (2, 3, 1), (3, 1, 5)], 4) == {1, 3}


def test_of_two_equal_cuts_the_one_near_the_sink_is_taken():
    assert cut([(0, 2, 1), (2, 3, 1), (3, 1, 1)], 4) == {1}


def test_a_network_without_a_finite_cut_is_refused():
    with pytest.raises(ValueError, match="no finite cut"):
        cut([(0, 2, INFINITE), (2, 1, INFINITE)], 3)


@pytest.mark.parametrize("seed", range(20))
def test_no_other_cut_is_cheaper(seed):
    random = np.random.RandomState(seed)
    vertices = 7
    edges = [
        (a, b, int(random.randint(0, 9))) for a, b in itertools.permutations(range(vertices), 2) if random.rand() < 0.4
    ]
    found = cut(edges, vertices)
    others = itertools.chain.from_iterable(
        itertools.combinations(range(2, vertices), size) for size in range(vertices - 1)
    )
    assert price(edges, found) == min(price(edges, {1, *other}) for other in others)


@pytest.mark.parametrize("seed", range(10))
def test_a_network_is_cut_again_with_other_capacities(seed):
    random = np.random.RandomState(seed)
    pairs = [pair for pair in itertools.permutations(range(8), 2) if random.rand() < 0.3]
    network = FlowNetwork(8)
    numbers = [network.add_edge(tail, head, 0) for tail, head in pairs]
    for _ in range(4):
        edges = [(*pair, int(random.randint(0, 9))) for pair in pairs]
        for number, (_, _, capacity) in zip(numbers, edges, strict=True):
            network.set_capacity(number, capacity)
        assert network.minimum_cut(0, 1) == cut(edges, 8)


def test_parts_that_only_the_ends_join_are_cut_apart():
    edges = [(0, 2, 3), (2, 1, 1), (0, 3, 1), (3, 1, 3), (0, 4, 2), (4, 5, 1), (5, 1, 2)]
    assert cut(edges, 6) == {1, 3, 5}
