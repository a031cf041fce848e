"""Which operators share a kernel, and what is said of those that do not."""

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

from hybrid_lab import nd
from hybrid_lab.engines.triton.plan import joining, other_batches
from hybrid_lab.engines.triton.plan.fusion import Fusion, fuse
from hybrid_lab.engines.triton.plan.groups import views_for_each_reader
from hybrid_lab.engines.triton.support import refusal
from hybrid_lab.engines.triton.write.body import Refused
from hybrid_lab.engines.triton.write.choose import write_kernels
from hybrid_lab.gluon import rnn
from hybrid_lab.graph import Graph
from hybrid_lab.graph.passes.partition import contract
from hybrid_lab.graph.specialize import specialize
from tests.engines.random_graphs import random_case
from tests.gluon.rnn.test_layers_and_cells import Unrolled
from tests.graph.building import Group, graph_of, program


def fusion_of(graph: Graph) -> Fusion:
    return fuse(graph, refusal, write_kernels)


def groups(function, *shapes) -> list[list[str]]:
    found = fusion_of(graph_of(function, *shapes))
    return [[node.op.name for node in region.nodes] for region in found.groups]


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
    assert str(contract(found.graph, found.groups, Group)) == program("""
        graph net(%x0: f32[2,3], %x1: f32[3]):
          %0: f32[2] = group(%x0, %x1)
          return %0
    """)


def test_a_view_is_made_again_for_each_reader():
    graph = views_for_each_reader(graph_of(lambda F, x: (F.exp(F.transpose(x)), F.tanh(F.transpose(x)) + 1.0), (2, 3)))
    assert [node.op.name for node in graph.operators].count("transpose") == 2
    assert len(fusion_of(graph).groups) == 1  # of one space, and they read the same


def test_a_path_that_leaves_and_comes_back_makes_two_groups():
    def function(F, x, i):
        y = F.exp(x)
        return y + F.take(F.topk(y, axis=1, k=3, ret_typ="value"), i)

    assert groups(function, (2, 3), (2,)) == [["exp"], ["take", "broadcast_add"]]


def test_a_reduction_of_what_is_stored_too_is_one_kernel():
    def function(F, x):
        y = F.exp(x)
        return y, F.sum(y, axis=0)

    assert groups(function, (4, 3)) == [["exp", "sum"]]


def test_one_product_a_kernel_and_no_costly_factors():
    names = groups(lambda F, x, y: F.relu(F.dot(F.exp(x), y)), (4, 3), (3, 5))
    assert names == [["exp"], ["dot", "relu"]]
    found = fusion_of(graph_of(lambda F, x, y: F.relu(F.dot(F.exp(x), y)), (4, 3), (3, 5)))
    assert {node.op.name: why for node, why in found.apart.items()} == {
        "exp": "exp would be computed again for each tile that reads it"
    }


def test_long_chains_are_cut(monkeypatch):
    monkeypatch.setattr(joining, "MAX_NODES", 4)

    def function(F, x):
        for _ in range(10):
            x = F.exp(x)
        return x

    assert [len(names) for names in groups(function, (2, 3))] == [2, 4, 4]


def test_kernels_take_so_many_arrays(monkeypatch):
    monkeypatch.setattr(joining, "MAX_POINTERS", 4)
    names = groups(lambda F, a, b, c, d, e: ((a + b) + c) + (d + e), *[(2, 3)] * 5)
    assert sum(map(len, names)) == 4 and len(names) > 1


def test_what_joins_without_a_text_is_written_in_at_most_so_many_lines(monkeypatch):
    """The writer, asked each time, agrees: random graphs with their gradients, and an unrolled cell."""
    known, inner = [], joining._lines_with

    def checked(grouping, node, group):
        lines = inner(grouping, node, group)
        if lines is not None:
            written = joining._lines_of(grouping.write(grouping.region((group,), (node,))))
            assert written is not None and written.total <= lines.total
            assert {value: min(times, lines.loads[value]) for value, times in written.loads.items()} == written.loads
            known.append(node)
        return lines

    monkeypatch.setattr(joining, "_lines_with", checked)
    for seed in range(10):
        case = random_case(seed)
        shapes, dtypes = [a.shape for a in case.arrays], [a.dtype for a in case.arrays]
        parts = specialize(case.graph, shapes, dtypes, True, case.wrt)
        for graph in filter(None, (parts.forward, parts.backward)):
            other_batches.kernels_of(graph)
    cell = rnn.GRUCell(4, input_size=3)
    cell.initialize()
    Unrolled(cell, steps=3).compile_for(inputs=nd.ones((2, 3, 3)), train=True)
    views = sum(node.op.view for node in known)
    assert views > 50 and len(known) - views > 50


def test_a_kernel_that_may_grow_too_long_is_written(monkeypatch):
    """Of long kernels the writer says how many lines they have."""
    asked = []
    monkeypatch.setattr(
        joining, "_lines_of", lambda kernels, inner=joining._lines_of: asked.append(1) or inner(kernels)
    )

    def function(F, x):
        for _ in range(20):
            x = F.exp(x)
        return x

    whole = groups(function, (2, 3))
    few = len(asked)
    monkeypatch.setattr(joining, "MOST_LINES", 30)
    assert groups(function, (2, 3)) == whole and few == 1 < len(asked) - few


def test_siblings_of_one_space_that_read_the_same_are_merged():
    assert groups(lambda F, x: (F.sum(x, axis=1), F.max(x * 2.0, axis=1)), (4, 3)) == [["sum", "broadcast_mul", "max"]]


def normalized(F, x):
    """Rows of 20."""
    centred = F.broadcast_sub(x, F.sum(x, axis=-1, keepdims=True) / 20.0)
    return F.broadcast_div(centred, F.sqrt(F.sum(F.square(centred), axis=-1, keepdims=True) / 20.0 + 1e-5))


def test_rows_are_not_normalized_again_where_other_rows_are_summed_up():
    """Their own kernel has them at hand: it stores them, and the others read them."""
    graph = graph_of(lambda F, x, y: F.sum(normalized(F, x + y), axis=1) / 8.0, (3, 8, 20), (3, 8, 20))
    found = fusion_of(graph)
    assert [[source.kind for source in found.kernels[group]] for group in found.groups] == [["rows"], ["rows"]]
    assert [node.op.name for node in found.groups[1].nodes if not node.op.view] == ["sum", "broadcast_div"]
    assert "the kernel of sum stores it" in found.apart.values()


def test_rows_are_normalized_once_for_a_product_and_a_residual():
    def function(F, x, w, v):
        y = normalized(F, x) * 3.0
        return normalized(F, y + F.dot(F.relu(F.dot(y, w)), v))

    names = groups(function, (16, 20), (20, 40), (40, 20))
    assert [names_in.count("sqrt") for names_in in names] == [1, 0, 0, 1]


def test_a_factor_is_computed_where_a_product_before_has_it_at_hand():
    assert groups(lambda F, x, y, z: F.dot(F.dot(x, y) * 0.5, z), (4, 3), (3, 5), (5, 4)) == [
        ["dot", "broadcast_mul"], ["dot"],
    ]  # fmt: skip


def test_what_is_stored_beside_a_sum_of_it_is_stored_by_the_product_before():
    def function(F, x, y, z):
        gradient = F.dot(x, y) * F.tanh(z)
        return gradient, F.sum(gradient, axis=1)

    assert groups(function, (16, 30), (30, 40), (16, 40)) == [["dot", "tanh", "broadcast_mul"], ["sum"]]


def test_operators_of_a_group_that_cannot_be_written_in_the_end_get_kernels_of_their_own():
    def write(region, run=None):
        names = [node.op.name for node in region.nodes]
        if run is not None and (("tanh" in names and len(names) > 1) or names == ["sqrt"]):
            raise Refused("as it is")
        return write_kernels(region)

    graph = graph_of(lambda F, x, y: F.exp(F.tanh(x)) + F.dot(F.sqrt(x), y), (4, 3), (3, 3))
    found = fuse(graph, refusal, write)
    assert [[node.op.name for node in region.nodes] for region in found.groups] == [
        ["tanh"], ["exp"], ["dot"], ["broadcast_add"],
    ]  # fmt: skip
    assert {node.op.name: why for node, why in found.refused.items()} == {"sqrt": "as it is"}
    assert {node.op.name: why for node, why in found.apart.items()} == {
        "tanh": "as it is", "exp": "as it is", "dot": "as it is",
    }  # fmt: skip
