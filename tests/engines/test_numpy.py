"""The NumPy engine: planned memory, fresh outputs, threads, and the program a person can read."""

from __future__ import annotations

import re
import threading
import traceback
import tracemalloc

import numpy as np
import pytest

from hybrid_lab.engines import get
from hybrid_lab.engines.planned.arena import FIRST_PIECES, Arena, ArenaPool
from hybrid_lab.graph import Graph, input_node
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.passes.simplify import simplify
from hybrid_lab.ops.framework.operator import get as operator
from tests.graph.building import evaluate, graph_of, uniform


def compiled(graph, **options):
    return get("numpy").compile(simplify(graph), **options)


def mlp(F, x, w1, b1, w2, b2):
    hidden = F.relu(F.FullyConnected(x, w1, b1, num_hidden=32))
    return F.softmax(F.tanh(F.FullyConnected(hidden, w2, b2, num_hidden=10)) * 0.5, axis=-1)


MLP = [(64, 20), (32, 20), (32,), (10, 32), (10,)]


@pytest.mark.parametrize("static_alloc", [False, True])
def test_equal_to_the_kernels_one_by_one(static_alloc):
    graph, arrays = graph_of(mlp, *MLP), uniform(*MLP)
    executable = compiled(graph, static_alloc=static_alloc)
    for _ in range(3):
        assert np.array_equal(executable(arrays)[0], evaluate(graph, arrays)[0])


@pytest.mark.parametrize("static_alloc", [False, True])
def test_outputs_are_untouched_by_later_calls(static_alloc):
    executable = compiled(graph_of(mlp, *MLP), static_alloc=static_alloc)
    first, second = uniform(*MLP), uniform(*MLP, seed=1)
    y1 = executable(first)[0]
    before = y1.copy()
    y2 = executable(second)[0]
    assert np.array_equal(y1, before)
    assert not np.array_equal(y1, y2)
    assert y1.flags.owndata and y2.flags.owndata


def test_results_never_share_memory_with_inputs_or_one_another():
    def function(F, x):
        y = F.exp(x)
        return x, F.Flatten(x), y, y, F.Flatten(y), F.Reshape(F.Flatten(y), shape=(3, 2))

    (x,) = uniform((2, 3))
    results = compiled(graph_of(function, (2, 3)))([x])
    for index, result in enumerate(results):
        assert not any(np.shares_memory(result, other) for other in [x, *results[:index]])


def test_static_alloc_allocates_nothing_outside_arena_and_outputs():
    shapes = [(2048, 128), (128, 128), (128,)]

    def function(F, x, w, b):
        y = F.relu(F.FullyConnected(x, w, b, num_hidden=128))
        y = F.softmax(F.FullyConnected(y, w, b, num_hidden=128) * 0.5, axis=-1)
        return F.sum(F.broadcast_greater(y, 0.01) * F.log_softmax(y, axis=-1), axis=1)

    executable = compiled(graph_of(function, *shapes), static_alloc=True)
    arrays = uniform(*shapes)
    for _ in range(3):
        executable(arrays)
    tracemalloc.start()
    try:
        for _ in range(3):
            kept = executable(arrays)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    outputs = 2 * sum(array.nbytes for array in kept)
    # One array of this graph takes 1 MiB. NumPy's ufuncs buffer up to 8192 numbers of a broadcast operand on their own.
    assert executable.report.arena_bytes >= 1 << 20
    assert peak - outputs < 100_000


def test_large_graphs_share_one_borrowed_arena():
    shape = (200, 500)
    first = compiled(graph_of(lambda F, x: F.sin(F.dot(F.tanh(x), F.tanh(F.transpose(x)))), shape))
    second = compiled(graph_of(lambda F, x: F.sum(F.dot(F.sin(F.transpose(x)), F.tanh(x))), shape))
    (x,) = uniform(shape)
    a, b = first([x])[0], second([x])[0]
    assert np.array_equal(first([x])[0], a)
    assert np.array_equal(second([x])[0], b)


def test_an_arena_of_many_programs_remembers_few_places():
    borrowed = Arena(np.zeros(1 << 20, np.uint8))
    for size in range(1, 3 * FIRST_PIECES):
        first = borrowed.scratch(64)((size,))
        assert borrowed.scratch(64)((size,)) is first
        assert np.shares_memory(first, borrowed.memory)
    assert len(borrowed._first) <= FIRST_PIECES


def test_the_pool_gives_an_arena_to_one_borrower_at_a_time():
    pool = ArenaPool()
    first, second = pool.take(1000), pool.take(1000)
    assert not np.shares_memory(first.memory, second.memory)
    pool.give(first)
    assert pool.take(500) is first
    pool.give(second)
    assert pool.nbytes == 1000
    assert pool.take(4000).nbytes == 4000
    assert pool.nbytes == 0


@pytest.mark.parametrize("static_alloc", [False, True])
@pytest.mark.parametrize("keep_bytes", [1 << 18, 0])
def test_several_threads_may_call_the_same_executable(static_alloc, keep_bytes, monkeypatch):
    monkeypatch.setattr("hybrid_lab.engines.planned.program.KEEP_BYTES", keep_bytes)
    graph = graph_of(mlp, *MLP)
    executable = compiled(graph, static_alloc=static_alloc)
    cases = [uniform(*MLP, seed=seed) for seed in range(4)]
    wanted = [evaluate(graph, arrays)[0] for arrays in cases]
    wrong = []

    def work(index):
        for _ in range(50):
            if not np.array_equal(executable(cases[index])[0], wanted[index]):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_strided_inputs_are_fine():
    graph = graph_of(lambda F, x: F.Flatten(F.exp(F.Flatten(x))), (3, 4))
    (x,) = uniform((4, 3))
    assert np.array_equal(compiled(graph)([x.T])[0], np.exp(x.T))


def test_a_value_that_its_kernel_allocated_may_be_read_twice_by_its_last_reader(monkeypatch):
    monkeypatch.setattr(operator("exp"), "run_keywords", frozenset())
    graph, arrays = graph_of(lambda F, x: F.Concat(*[F.exp(x)] * 2, dim=0), (2, 3)), uniform((2, 3))
    assert np.array_equal(compiled(graph)(arrays)[0], evaluate(graph, arrays)[0])


def test_random_nodes_draw_from_the_call_and_their_number():
    x = input_node("x", shape=(50,), dtype="float32")
    dropout = operator("Dropout").bind(p=0.5).bind_mode(True)
    nodes = [make_node(dropout, [x], draw=number) for number in (0, 1)]
    graph = Graph([x], [node.outputs[0] for node in nodes], draws=2)
    executable = get("numpy").compile(graph)
    ones = np.ones(50, np.float32)
    a0, a1 = executable([ones], (7, 0))
    b0, b1 = executable([ones], (7, 1))
    assert np.array_equal(a1, b0)
    assert not np.array_equal(a0, a1)
    assert np.array_equal(executable([ones], (7, 0))[0], a0)


def test_effects_come_after_the_outputs():
    graph = graph_of(lambda F, x, s: (x + s, s * 0.5), (3,), (3,))
    updating = Graph(graph.inputs, graph.outputs[:1], [(graph.inputs[1], graph.outputs[1])])
    x, s = uniform((3,), (3,))
    y, new = get("numpy").compile(updating)([x, s])
    assert np.array_equal(y, x + s)
    assert np.array_equal(new, s * np.float32(0.5))


def test_a_failing_kernel_is_named():
    graph = graph_of(lambda F, x, i: F.exp(F.take(F.tanh(x), i, mode="raise")), (3, 2), (2,))
    executable = compiled(graph)
    with pytest.raises(Exception) as caught:
        executable([np.ones((3, 2), np.float32), np.array([0, 9], np.float32)])
    assert "take(mode='raise')" in "".join(getattr(caught.value, "__notes__", []))
    shown = "".join(traceback.format_exception(caught.value))  # with the program's line, and the operator behind it
    assert re.search(r"take\(.*# %\d: f32\[2,2\] = take\(", shown)
    assert np.isfinite(executable([np.ones((3, 2), np.float32), np.zeros(2, np.float32)])[0]).all()


def test_names_from_files_cannot_become_code():
    x = input_node("x\n    raise SystemExit", shape=(3,), dtype="float32")
    node = make_node(operator("exp").bind(), [x]).replace(scope="a\nimport os")
    executable = get("numpy").compile(Graph([x], node.outputs, name="b\nimport os"))
    assert "import os" not in [line.strip() for line in executable.report.program.splitlines()]
    assert np.array_equal(executable([np.zeros(3, np.float32)])[0], np.ones(3, np.float32))


def test_the_program_and_the_report_can_be_read():
    executable = compiled(graph_of(lambda F, x, w: F.relu(F.exp(x) * w), (2, 3), (3,), name="net.head"))
    assert "multiply(t0, x_x1, out=t0)" in executable.report.program
    assert "# %1: f32[2,3] = broadcast_mul(%0, %x1)" in executable.report.program
    assert str(executable.report).startswith("net.head: 3 operators (3 on numpy), engine numpy, compiled in")
    data = executable.report.data()
    assert data["operators"] == {"numpy": 3}
    assert data["arena_bytes"] == 64


def test_a_graph_without_operators():
    graph = graph_of(lambda F, x: x, (3,))
    (x,) = uniform((3,))
    (y,) = get("numpy").compile(graph)([x])
    assert np.array_equal(x, y) and y is not x
