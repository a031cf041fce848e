"""The operators of control flow as graph nodes: rules, programs, gradients, printing."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import engines
from hybrid_lab import symbol as sym
from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.graph import Graph
from hybrid_lab.graph.loops.body import KEPT
from hybrid_lab.graph.partial import PartialShapes
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.symbol.symbol import var


def graph_of(outputs, *inputs) -> Graph:
    leaves = [leaf for item in outputs for leaf in item.outputs]
    draws = [node.draw for value in leaves for node in (value.node,) if node.draw is not None]
    return Graph([item.outputs[0] for item in inputs], leaves, draws=max(draws, default=-1) + 1)


def scan():
    """Running sums of x, scaled by a tensor from outside."""
    x, h, scale = var("x"), var("h"), var("scale")
    outputs, last = sym.contrib.foreach(lambda entry, state: (state * 2.0, state + entry * scale), x, h)
    return graph_of([outputs, last], x, h, scale)


def run(graph: Graph, *arrays, wrt=()):
    engine = engines.get("numpy")
    parts = specialize(graph, [a.shape for a in arrays], [a.dtype for a in arrays], True, wrt)
    kept = engine.compile(parts.forward)(list(arrays), (3, 0))
    outputs = kept[: len(graph.outputs)]
    if not wrt:
        return outputs
    heads = [np.ones_like(y) for y in outputs]
    given = {"input": arrays, "output": kept, "saved": kept[len(outputs) :], "head": heads}
    operands = [given[kind][index] for kind, index in parts.sources]
    return outputs, engine.compile(parts.backward)(operands, (3, 0))


def arrays(*shapes, dtype="float64"):
    generator = np.random.RandomState(1)
    return [generator.uniform(0.5, 1.0, shape).astype(dtype) for shape in shapes]


def test_a_loop_is_one_node_whose_captures_are_inputs():
    graph = scan()
    (node,) = graph.operators
    assert node.op.name == "_foreach" and node.op.subgraphs[0][0] == "body"
    assert [value.node.name for value in node.values_in] == ["x", "h", "scale"]
    assert [value.node.name for value in node.op.subgraphs[0][1].inputs][-1] == "scale"


def test_printed_with_its_body():
    text = str(scan())
    assert "= _foreach(%x, %h, %scale, num_out=1, num_states=1)" in text
    assert "    body:\n      graph foreach" in text
    assert "broadcast_mul(%foreach" in text and "return" in text


def test_an_inferred_body_is_printed_with_its_types():
    graph = scan()
    given = arrays((4, 2), (2,), (2,))
    typed = infer(graph, *({v: getattr(a, key) for v, a in zip(graph.inputs, given)} for key in ("shape", "dtype")))
    assert "%0: f64[4,2], f64[2], f64[4,2], i64[1] = _foreach(%x, %h, %scale" in str(typed)
    assert "f64[2] = broadcast_mul(%foreach" in str(typed) and "?[?]" not in str(typed)


def test_foreach_and_its_gradient():
    x, h, scale = arrays((4, 2), (2,), (2,))
    (outputs, last), (dx, dh, dscale) = run(scan(), x, h, scale, wrt=(0, 1, 2))
    before = h + np.concatenate([np.zeros((1, 2)), np.cumsum(x * scale, axis=0)[:-1]])
    np.testing.assert_allclose(outputs, before * 2)
    np.testing.assert_allclose(last, h + (x * scale).sum(0))
    # Entry t reaches the outputs behind it, two each, and the last state.
    weight = (2 * (3 - np.arange(4)) + 1)[:, None]
    np.testing.assert_allclose(dx, weight * scale)
    np.testing.assert_allclose(dh, np.full(2, 9.0))
    np.testing.assert_allclose(dscale, (weight * x).sum(0))


def test_while_loop_and_its_gradient():
    i, x = var("i"), var("x")
    outputs, (_, last) = sym.contrib.while_loop(
        lambda i, x: i < 3, lambda i, x: (x * i, [i + 1, x * x]), [i, x], max_iterations=5
    )
    graph = graph_of([outputs, last], i, x)
    (value,) = arrays((2,))
    (made, end), (dx,) = run(graph, np.ones(1), value, wrt=(1,))
    np.testing.assert_allclose(made, [value, 2 * value**2, *np.zeros((3, 2))])
    np.testing.assert_allclose(end, value**4)
    np.testing.assert_allclose(dx, 1 + 4 * value + 4 * value**3)
    (made, end), (dx,) = run(graph, np.full(1, 7.0), value, wrt=(1,))  # not a single step
    assert not made.any()
    np.testing.assert_array_equal(end, value)
    np.testing.assert_array_equal(dx, np.ones(2))


def test_cond_and_its_gradient():
    number, x, y = var("number"), var("x"), var("y")
    chosen = sym.contrib.cond(number > 0, lambda: x * y, lambda: x - 3.0)
    graph = graph_of([chosen], number, x, y)
    a, b = arrays((2,), (2,))
    for sign, wanted, gradients in ((1, a * b, (b, a)), (-1, a - 3, (np.ones(2), np.zeros(2)))):
        (found,), (dx, dy) = run(graph, np.array([float(sign)]), a, b, wrt=(1, 2))
        np.testing.assert_allclose(found, wanted)
        np.testing.assert_allclose(dx, gradients[0])
        np.testing.assert_allclose(dy, gradients[1])


def test_a_loop_inside_a_loop():
    x, rows, h = var("x"), var("rows"), var("h")

    def step(entry, state):
        inner, total = sym.contrib.foreach(lambda row, sums: (row * entry, sums + row * state), rows, entry)
        return inner, total

    outputs, last = sym.contrib.foreach(step, x, h)
    graph = graph_of([outputs, last], x, rows, h)
    given = arrays((3, 2), (4, 2), (2,))
    (made, end), gradients = run(graph, *given, wrt=(0, 1, 2))
    assert made.shape == (3, 4, 2)

    def loss(x, rows, state):
        total = 0.0
        for entry in x:
            sums = entry
            for row in rows:
                total += (row * entry).sum()
                sums = sums + row * state
            state = sums
        return total + state.sum()

    assert np.isclose(made.sum() + end.sum(), loss(*given))
    for index, gradient in enumerate(gradients):
        numeric = np.zeros_like(gradient)
        for place in np.ndindex(*gradient.shape):
            moved = [[np.array(item) for item in given] for _ in range(2)]
            moved[0][index][place] += 1e-6
            moved[1][index][place] -= 1e-6
            numeric[place] = (loss(*moved[0]) - loss(*moved[1])) / 2e-6
        np.testing.assert_allclose(gradient, numeric, rtol=1e-6)


def test_nothing_is_left_unwritten_behind_the_last_step():
    # A backward is handed all rows that a loop may take, and engines are compared by them.
    count, x = var("count"), var("x")
    outputs, states = sym.contrib.while_loop(
        lambda i, _: i < 2, lambda i, x: (x, (i + 1, x * 2.0)), (count, x), max_iterations=4
    )
    op = graph_of([outputs, *states], count, x).outputs[0].node.op
    types = op.infer_type(np.dtype("float64"), np.dtype("float64"))
    rubbish = [np.full(shape, 77, dtype) for shape, dtype in zip(op.infer_shape((1,), (2,)), types, strict=True)]
    given = [np.zeros(1), np.array([3.0, 5.0])]
    made, _, _, counts, rows, steps, _ = op.numpy(*given, out=tuple(rubbish), rng=(0, 0))
    np.testing.assert_array_equal(made, [[3, 5], [6, 10], [0, 0], [0, 0]])
    np.testing.assert_array_equal(rows, made)
    np.testing.assert_array_equal(counts.ravel(), [0, 1, 0, 0])
    assert steps.tolist() == [2]


def test_entries_of_numbers_have_the_shape_of_one():
    x, h = var("x"), var("h")
    outputs, last = sym.contrib.foreach(lambda entry, state: (state, state + entry), x, h)
    (made, end), (dx, _) = run(graph_of([outputs, last], x, h), np.arange(3.0), np.zeros(1), wrt=(0, 1))
    np.testing.assert_array_equal(made, [[0], [0], [1]])
    np.testing.assert_array_equal(end, [3])
    np.testing.assert_array_equal(dx, [3, 2, 1])


def test_a_loop_over_nothing():
    x, h, scale = arrays((0, 2), (2,), (2,))
    (outputs, last), (dx, dh, dscale) = run(scan(), x, h, scale, wrt=(0, 1, 2))
    assert outputs.shape == (0, 2) and dx.shape == (0, 2) and not dscale.any()
    np.testing.assert_array_equal(last, h)
    np.testing.assert_array_equal(dh, np.ones(2))


def test_whole_numbers_as_states():
    x, count = var("x"), var("count")
    outputs, last = sym.contrib.foreach(lambda entry, n: (entry * 2.0, n + 1), x, count)
    graph = graph_of([outputs, last], x, count)
    (_, last), (dx,) = run(graph, *arrays((3, 2)), np.array([4], "int32"), wrt=(0,))
    assert last == 7 and last.dtype == np.int32
    np.testing.assert_array_equal(dx, np.full((3, 2), 2.0))


def test_shapes_of_parameters_inside_are_found():
    x, h, weight = var("x"), var("h"), var("weight", shape=(5, 0))
    outputs, _ = sym.contrib.foreach(
        lambda entry, state: (state, sym.FullyConnected(entry, weight, no_bias=True, num_hidden=5)), x, h
    )
    graph = graph_of([outputs], x, h, weight)
    shapes = PartialShapes(graph, {graph.inputs[0]: (4, 2, 3), graph.inputs[2]: (5, None)}).shapes
    assert shapes[graph.inputs[2]] == (5, 3)
    _, (shape,), _ = outputs.infer_shape(x=(4, 2, 3), h=(2, 5))
    assert shape == (4, 2, 5)


def inferred(graph, *given):
    types = {value: (a.shape, a.dtype) for value, a in zip(graph.inputs, given)}
    infer(graph, {v: t[0] for v, t in types.items()}, {v: t[1] for v, t in types.items()})


def test_errors_name_the_state_and_the_line():
    x, h = var("x"), var("h")
    grown, _ = sym.contrib.foreach(lambda entry, state: (entry, sym.concat(state, entry, dim=0)), x, h)
    with pytest.raises(ShapeError, match=r"foreach: state 0 has shape \(2,\) before a step and \(4,\) after it"):
        inferred(graph_of([grown], x, h), *arrays((3, 2), (2,)))
    cast, _ = sym.contrib.foreach(lambda entry, state: (entry, sym.cast(state, dtype="float32")), x, h)
    with pytest.raises(DTypeError, match="state 0 .*float64 .*float32"):
        inferred(graph_of([cast], x, h), *arrays((3, 2), (2,)))
    wrong, _ = sym.contrib.foreach(lambda entry, state: (sym.dot(entry, state), state), x, h)
    with pytest.raises(ShapeError, match="dot.*\n.*test_control_flow.py"):
        inferred(graph_of([wrong], x, h), *arrays((3, 2, 2), (3, 2)))
    s = var("s")
    uneven, _ = sym.contrib.foreach(lambda both, state: (both[0], state), [x, h], s)
    with pytest.raises(ShapeError, match="data have 3 and 4 entries"):
        inferred(graph_of([uneven], x, h, s), *arrays((3, 2), (4, 2), (2,)))
    branches = sym.contrib.cond(x, lambda: h, lambda: sym.sum(h))
    with pytest.raises(ShapeError, match=r"cond: output 0 .*\(2,\) .*then .*\(1,\) .*else"):
        inferred(graph_of([branches], x, h), *arrays((1,), (2,)))
    with pytest.raises(ShapeError, match=r"cond: the condition has shape \(3,\); one number is needed"):
        inferred(graph_of([sym.contrib.cond(x, lambda: h, lambda: h)], x, h), *arrays((3,), (2,)))
    with pytest.raises(ValueError, match="max_iterations must be given"):
        sym.contrib.while_loop(lambda i: i < 3, lambda i: (i, i), x)
    with pytest.raises(ShapeError, match="a step returned 2"):
        sym.contrib.foreach(lambda entry, state: (entry, [state[0], entry]), x, [h])


def test_bodies_keep_the_programs_that_ran_last_and_count_all():
    x, h = var("x"), var("h")
    graph = graph_of([sym.contrib.foreach(lambda entry, state: (entry, state + entry), x, h)[0]], x, h)
    inside = graph.outputs[0].node.op.bodies[0]
    for width in (*range(1, KEPT + 5), 1, KEPT + 4):  # the second of the last two is kept, the first was dropped
        inside.program((np.ones(width), np.ones(width)))
    assert len(inside._compiled) == KEPT
    assert inside.compiles == KEPT + 5


def test_a_report_counts_the_programs_of_loops():
    special = specialize(scan(), [(4, 2), (2,), (2,)], [np.dtype(np.float64)] * 3, False)
    executable = engines.get("numpy").compile(special.forward)
    assert executable.report.body_programs == 0
    executable(arrays((4, 2), (2,), (2,)))
    assert executable.report.data()["body_programs"] == 1
    assert "loops and branches: 1 program compiled so far" in str(executable.report)


def test_a_report_counts_the_programs_of_inner_loops():
    x, h = var("x"), var("h")

    def step(rows, state):
        return sym.contrib.foreach(lambda row, inner: (row, inner + row), rows, state)

    graph = graph_of([sym.contrib.foreach(step, x, h)[1]], x, h)
    special = specialize(graph, [(4, 3, 2), (2,)], [np.dtype(np.float64)] * 2, False)
    executable = engines.get("numpy").compile(special.forward)
    executable(arrays((4, 3, 2), (2,)))
    assert executable.report.body_programs == 2


@pytest.mark.parametrize("quantized", [False, True])
def test_a_graph_is_in_8_bits_if_the_body_of_a_loop_is(quantized: bool):
    def body(entry, state):
        return (sym.contrib.quantize_v2(entry, out_type="int8")[0] if quantized else entry), state

    outputs, _ = sym.contrib.foreach(body, sym.var("x"), sym.var("h"))
    assert outputs.graph().has_eight_bits == quantized
