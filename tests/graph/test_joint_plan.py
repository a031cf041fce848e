"""The memory of a forward and its backward in one arena: what is kept is overwritten once it has been read."""

from __future__ import annotations

from hybrid_lab.graph.memory.joint_plan import JointPlan, plan_jointly
from hybrid_lab.graph.specialize import specialize
from tests.graph.building import graph_of, program
from tests.graph.test_packing import overlaps


def planned(function, *shapes: tuple[int, ...]) -> JointPlan:
    """The plan of a training step: gradients for every input but the first."""
    graph = graph_of(function, *shapes, roles="data" + " param" * (len(shapes) - 1))
    wrt = range(1, len(shapes))
    parts = specialize(graph, shapes, ["float32"] * len(shapes), True, wrt)
    assert parts.split is not None and parts.split.num_outputs == len(graph.outputs)
    found = plan_jointly(parts.split)
    assert not overlaps([*found.forward.allocations, *found.backward.allocations])
    return found


def test_before_and_after():
    found = planned(lambda F, x, w: F.square(F.dot(x, w)), (4, 8), (8, 8))
    assert f"{found.forward.graph}\n\n{found.backward.graph}" == program("""
        graph net(%x0: f32[4,8], %x1: f32[8,8]):
          %0: f32[4,8] = dot(%x0, %x1)
          %1: f32[4,8] = square(%0)
          return %1, %0

        graph net backward(%x0: f32[4,8], %saved0: f32[4,8], %head_grad0: f32[4,8]):
          %0: f32[4,8] = broadcast_mul(%saved0, 2.0)
          %1: f32[4,8] = broadcast_mul(%head_grad0, %0)
          %2: f32[8,8] = _dot_rhs_grad(%1, %x0, shape(8, 8))
          return %2
    """)
    assert str(found) == program("""
        arena 128 bytes for forward and backward, 1.000 of the most alive at once; 128 bytes kept between them
        plan: arena 128 bytes for 128 bytes of values, at most 128 alive at once
           0  %0: f32[4,8] = dot     arena 0..128, until step 2
           1  %1: f32[4,8] = square  output 0
              return %1
              return %0
        plan: arena 128 bytes for 256 bytes of values, at most 128 alive at once
           0  %0: f32[4,8] = broadcast_mul  arena 0..128 in place of %saved0, until step 1
           1  %1: f32[4,8] = broadcast_mul  arena 0..128 in place of %0, until step 2
           2  %2: f32[8,8] = _dot_rhs_grad  output 0
              return %2
    """)


def test_what_the_caller_gets_is_not_kept_in_the_arena():
    # tanh's gradient reads its output, which the caller may write to: the tape has a copy.
    found = planned(lambda F, x, w: F.tanh(F.dot(x, w)), (4, 8), (8, 8))
    assert found.kept_bytes == 0 and found.forward.storage[found.forward.graph.outputs[0]] == "output"


def test_the_arena_is_as_small_as_the_busiest_moment_of_a_step():
    def function(F, x, *weights):
        for weight in weights:
            x = F.sin(F.dot(x, weight))
        return x

    found = planned(function, (16, 32), *[(32, 32)] * 6)
    assert found.ratio == 1.0 and found.kept_bytes < found.arena_bytes
