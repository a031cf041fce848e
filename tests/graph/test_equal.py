"""equal: two graphs that compute the same, and all that makes them different."""

import numpy as np
import pytest

from hybrid_lab.graph.builder import Builder, Expr
from hybrid_lab.graph.equal import equal
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import constant_node, input_node


def graph(number=2.0, constant=1.0, axis=1, shape=(3, 4), dtype="float32", swap=False, effect=False, name="x"):
    """softmax(x * number + constant), y."""
    builder = Builder()
    x, y = (input_node(each, shape=shape, dtype=dtype) for each in (name, "y"))
    added = Expr(builder, constant_node(np.full(shape, constant, dtype)))
    z = builder.softmax(Expr(builder, x) * number + added, axis=axis)
    outputs = [y, z.value] if swap else [z.value, y]
    return Graph([x, y], outputs, [(y, z.value)] if effect else ())


def test_names_do_not_count():
    assert equal(graph(), graph(name="other"))


@pytest.mark.parametrize("what", ["number", "constant"])
def test_numbers_are_compared_by_their_bits(what):
    nan = float("nan")
    assert equal(graph(**{what: nan}), graph(**{what: float("nan")}))
    assert not equal(graph(**{what: 0.0}), graph(**{what: -0.0}))


@pytest.mark.parametrize(
    "change",
    [
        {"number": 2},  # an int is another immediate: int32 * 2.0 is not int32 * 2
        {"number": 3.0},
        {"constant": 2.0},
        {"axis": 0},
        {"shape": (3, 5)},
        {"dtype": "float64"},
        {"swap": True},
        {"effect": True},
    ],
    ids=str,
)
def test_what_makes_graphs_different(change):
    assert not equal(graph(), graph(**change))
