"""The memory plan: nothing alive overlaps, little more than the ideal is used, outputs are never in the arena."""

from __future__ import annotations

from hybrid_lab.graph import Graph
from hybrid_lab.graph.memory.plan import MemoryPlan, plan
from hybrid_lab.graph.specialize import specialize
from tests.engines.random_graphs import random_case
from tests.graph.building import graph_of, program
from tests.graph.test_packing import overlaps


def simulate(found: MemoryPlan) -> None:
    """Run the plan with names instead of numbers: every reader must find what it expects in its bytes."""
    arena: dict[int, object] = {}

    def spot(value):
        while found.storage[value] == "view":
            value = value.node.values_in[0]
        return found.allocation_of[value] if found.storage[value] == "arena" else None

    for node in found.steps:
        for value in node.values_in:
            allocation = spot(value)
            if allocation is not None:
                assert all(
                    arena[byte] is allocation
                    for byte in range(allocation.offset, allocation.offset + allocation.nbytes)
                ), value
        for value in node.outputs:
            if found.storage[value] == "arena":
                allocation = found.allocation_of[value]
                arena.update(dict.fromkeys(range(allocation.offset, allocation.offset + allocation.nbytes), allocation))


def test_before_and_after():
    def function(F, x):
        y = F.exp(F.tanh(x * 2.0))
        return F.exp(F.Flatten(y)), F.sum(y), x

    graph = graph_of(function, (2, 3, 4))
    assert str(graph) == program("""
        graph net(%x0: f32[2,3,4]):
          %0: f32[2,3,4] = broadcast_mul(%x0, 2.0)
          %1: f32[2,3,4] = tanh(%0)
          %2: f32[2,3,4] = exp(%1)
          %3: f32[2,12] = Flatten(%2)
          %4: f32[2,12] = exp(%3)
          %5: f32[1] = sum(%2)
          return %4, %5, %x0
    """)
    assert str(plan(graph)) == program("""
        plan: arena 128 bytes for 384 bytes of values, at most 128 alive at once
           0  %0: f32[2,3,4] = broadcast_mul  arena 0..96, until step 1
           1  %1: f32[2,3,4] = tanh           arena 0..96 in place of %0, until step 2
           2  %2: f32[2,3,4] = exp            arena 0..96 in place of %1, until step 5
           3  %3: f32[2,12] = Flatten         view of %2
           4  %4: f32[2,12] = exp             output 0
           5  %5: f32[1] = sum                output 1
              return %4
              return %5
              return %x0 (copied)
    """)


def test_a_chain_runs_in_place():
    found = plan(graph_of(lambda F, x: F.exp(F.relu(F.tanh(x * 2.0))), (10,)))
    assert found.arena_bytes == 64
    assert [found.storage[node.outputs[0]] for node in found.steps] == ["arena", "arena", "arena", "output"]


def test_a_value_that_is_read_later_is_not_overwritten():
    found = plan(graph_of(lambda F, x: F.exp(F.tanh(x)) * F.tanh(x) + F.tanh(x), (10,)))
    simulate(found)


def test_views_keep_their_memory_alive():
    def function(F, x):
        y = F.tanh(x)
        flat = F.Flatten(y)
        return F.exp(F.sigmoid(y * 2.0) + 1.0) + F.Reshape(flat, shape=(2, 3, 4))

    found = plan(graph_of(function, (2, 3, 4)))
    simulate(found)
    assert sum(kind == "view" for kind in found.storage.values()) == 2


def test_outputs_inputs_and_effects_never_lie_in_the_arena():
    graph = graph_of(lambda F, x, s: (F.exp(x), F.Flatten(x), x, F.exp(x), s * 2.0), (2, 3), (3,))
    *outputs, update = graph.outputs
    found = plan(Graph(graph.inputs, outputs, [(graph.inputs[1], update)]))
    storage = [found.storage[value] for value in found.graph.roots]
    assert "arena" not in storage
    # An input given back and a value returned twice are copied, so that no two results share memory.
    assert found.copies == {2}
    twice = plan(Graph(graph.inputs, [outputs[0], outputs[0]]))
    assert twice.copies == {1}


def test_a_broadcast_operand_is_not_written_over():
    found = plan(graph_of(lambda F, x, y: F.exp(F.tanh(x) + F.tanh(y)), (1, 4), (3, 4)))
    simulate(found)
    added = found.steps[2]
    assert found.inplace[added.outputs[0]] is added.inputs[1]


def test_operators_that_must_not_alias_do_not():
    found = plan(graph_of(lambda F, x, w: F.exp(F.dot(F.tanh(x), F.tanh(w))), (4, 4), (4, 4)))
    assert found.steps[2].outputs[0] not in found.inplace
    simulate(found)


def test_empty_arrays_take_no_room():
    found = plan(graph_of(lambda F, x: F.exp(F.tanh(x)), (0, 3)))
    assert found.arena_bytes == 0


def test_plans_of_random_graphs_hold_and_come_close_to_the_ideal():
    arena = ideal = 0
    for seed in range(60):
        case = random_case(seed)
        wrt = [index for index, value in enumerate(case.graph.inputs) if value.node.op.role != "aux"]
        parts = specialize(case.graph, [a.shape for a in case.arrays], [a.dtype for a in case.arrays], True, wrt)
        for part in (parts.forward, parts.backward):
            found = plan(part)
            assert not overlaps(list(found.allocations))
            simulate(found)
            arena += found.arena_bytes
            ideal += found.ideal_bytes
    assert ideal <= arena <= 1.05 * ideal
