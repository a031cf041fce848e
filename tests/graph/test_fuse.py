"""Groups of pointwise operators that become one kernel each."""

from __future__ import annotations

from hybrid_lab.graph import Graph
from hybrid_lab.graph.fuse import MAX_NODES, Fusion, fuse_pointwise
from hybrid_lab.graph.partition import contract
from hybrid_lab.ops.pointwise import Pointwise
from tests.graph.building import Group, graph_of, program


def fusion_of(graph: Graph) -> Fusion:
    return fuse_pointwise(graph, lambda node: None if isinstance(node.op, Pointwise) else "not pointwise")


def fused(function, *shapes) -> Fusion:
    return fusion_of(graph_of(function, *shapes))


def groups(fusion: Fusion) -> list[list[str]]:
    return [[node.op.name for node in region.nodes] for region in fusion.groups]


def test_before_and_after():
    graph = graph_of(lambda F, x, b: F.sum(F.tanh(x + b) * 2.0, axis=1) + 1.0, (2, 3), (3,))
    assert str(graph) == program("""
        graph net(%x0: f32[2,3], %x1: f32[3]):
          %0: f32[2,3] = broadcast_add(%x0, %x1)
          %1: f32[2,3] = tanh(%0)
          %2: f32[2,3] = broadcast_mul(%1, 2.0)
          %3: f32[2] = sum(%2, axis=1)
          %4: f32[2] = broadcast_add(%3, 1.0)
          return %4
    """)
    found = fusion_of(graph)
    assert str(contract(graph, found.groups, Group)) == program("""
        graph net(%x0: f32[2,3], %x1: f32[3]):
          %0: f32[2,3] = group(%x0, %x1)
          %1: f32[2] = sum(%0, axis=1)
          %2: f32[2] = group(%1)
          return %2
    """)
    assert groups(found) == [["broadcast_add", "tanh", "broadcast_mul"], ["broadcast_add"]]
    assert {node.op.name: reason for node, reason in found.refused.items()} == {"sum": "not pointwise"}


def test_a_group_has_one_shape():
    found = fused(lambda F, x, b: F.exp(b) + x, (2, 3), (3,))
    assert groups(found) == [["exp"], ["broadcast_add"]]


def test_a_path_that_leaves_and_comes_back_makes_two_groups():
    def function(F, x):
        y = F.exp(x)
        return y + F.sum(y, axis=1, keepdims=True)

    assert groups(fused(function, (2, 3))) == [["exp"], ["broadcast_add"]]


def test_long_chains_are_cut():
    def function(F, x):
        for _ in range(MAX_NODES + 1):
            x = F.tanh(x)
        return x

    assert [len(region.nodes) for region in fused(function, (4,)).groups] == [MAX_NODES, 1]
