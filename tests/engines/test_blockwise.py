"""Blockwise programs: values written over the inputs that nobody reads any more, and what they refuse."""

import numpy as np
import pytest

from hybrid_lab.diagnostics import EngineError
from hybrid_lab.engines.numpy.blockwise import BLOCK, Temporaries, cut, write_blockwise
from hybrid_lab.graph.builder import Builder, Expr
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import input_node


def program(rule, arrays="ab", numbers=""):
    """Compile `rule(F, a, b, ..., s, t, ...) -> {name of an array: its new value}`."""
    builder = Builder()
    values = {name: Expr(builder, input_node(name, "param", shape=(BLOCK,), dtype="float32")) for name in arrays}
    scalars = {name: Expr(builder, input_node(name, "number", shape=(1,), dtype="float32")) for name in numbers}
    new = rule(builder, *values.values(), *scalars.values())
    inputs = [each.value for each in (*values.values(), *scalars.values())]
    return write_blockwise(Graph(inputs, (), [(values[name].value, each.value) for name, each in new.items()]))


def run(made, *arrays, numbers=()):
    """The arrays after one run, in blocks."""
    held = [np.array(array, "float32") for array in arrays]
    made.update(numbers, cut(held), [Temporaries()])
    return held


def test_an_old_value_is_read_before_it_is_overwritten():
    """b needs the old a, which is gone only after it: a's new value waits in a temporary and is copied at the end."""
    made = program(lambda F, a, b: {"a": (doubled := a * 2.0), "b": F.exp(doubled) + a})
    a, b = run(made, [1.0, 2.0], [0.0, 0.0])
    assert a.tolist() == [2.0, 4.0]
    np.testing.assert_allclose(b, np.exp([2.0, 4.0]) + [1.0, 2.0], rtol=1e-6)
    assert "copyto(a, " in str(made)


def test_an_array_that_is_overwritten_later_serves_as_a_temporary():
    made = program(lambda F, a, b: {"a": F.sqrt(F.exp(F.square(a * b) + 1.0)) - 1.0})
    (a, b) = run(made, [0.5, -1.0], [2.0, 0.5])
    np.testing.assert_allclose(a, np.sqrt(np.exp([2.0, 1.25])) - 1.0, rtol=1e-6)
    assert made.scratch == 0 and b.tolist() == [2.0, 0.5]


def test_one_value_for_two_arrays():
    made = program(lambda F, a, b: {"a": (mean := (a + b) * 0.5), "b": mean})
    assert [array.tolist() for array in run(made, [1.0, 3.0], [3.0, 5.0])] == [[2.0, 4.0]] * 2


def test_an_array_may_become_another_one():
    made = program(lambda F, a, b: {"a": b})
    assert [array.tolist() for array in run(made, [1.0], [3.0])] == [[3.0], [3.0]]
    with pytest.raises(EngineError, match="cannot exchange arrays"):
        program(lambda F, a, b: {"a": b, "b": a})


def test_arrays_of_every_size():
    made = program(lambda F, a, b, s: {"a": a - b * s}, numbers="s")
    for size in (0, 1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5):
        a, b = np.arange(size, dtype="float32"), np.ones(size, "float32")
        assert np.array_equal(run(made, a, b, numbers=(0.5,))[0], a - 0.5)


def test_numbers_are_rounded_once():
    """0.1 * 3 in double precision, then in the arrays' dtype."""
    made = program(lambda F, a, s, t: {"a": a * (s * t)}, "a", "st")
    (a,) = run(made, [1.0], numbers=(0.1, 3.0))
    assert a[0] == np.float32(0.1 * 3.0)


@pytest.mark.parametrize(
    "rule",
    [lambda F, a, b: {"a": F.sum(a, axis=0, keepdims=True) * b}, lambda F, a, b: {"a": F.softmax(a)}],
    ids=["sum", "softmax"],
)
def test_only_pointwise_operators(rule):
    with pytest.raises(EngineError, match="cannot be part of a blockwise program"):
        program(rule)


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_share_the_blocks(threads):
    """Every block once, whoever takes it; what the caller wants to hear of holds in all threads."""
    made = program(lambda F, a, b, s: {"a": (new := a * 0.5 + F.sqrt(b) * s), "b": new + a}, numbers="s")
    assert made.scratch
    rng = np.random.default_rng(0)
    start = [rng.uniform(1, 2, 9999).astype("float32") for _ in range(2)]
    alone = [array.copy() for array in start]
    made.update((0.3,), cut(alone), [Temporaries()])
    for size in (1000, 77, 9999):
        shared = [array.copy() for array in start]
        blocks = cut(shared, size)
        assert len(blocks) == -(-9999 // size) and max(len(block[0]) for block in blocks) <= size
        made.update((0.3,), blocks, [Temporaries() for _ in range(threads)])
        assert all(np.array_equal(one, two) for one, two in zip(shared, alone, strict=True))
    with np.errstate(invalid="raise"), pytest.raises(FloatingPointError):
        negative = [start[0], -start[1]]
        made.update((0.3,), cut(negative, 100), [Temporaries() for _ in range(threads)])
    with np.errstate(invalid="ignore"):
        made.update((0.3,), cut(negative, 100), [Temporaries() for _ in range(threads)])


def test_temporaries_serve_programs_of_all_sizes():
    few, many = program(lambda F, a, b: {"a": F.exp(a * b) + b * 2.0}), program(lambda F, a, b: {"a": a + b})
    own = Temporaries()
    first = own(few, 100)
    assert [array.size for array in first] == [100] * few.scratch and own(few, 100) is first
    assert all(not np.shares_memory(one, two) for one in own(few, 300) for two in own(few, 300) if one is not two)
    assert own(many, 100) == []
