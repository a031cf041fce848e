"""Composites in primitives: the numbers stay, and every part says what it is a part of."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.graph import Graph, Value, input_node
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.passes.decompose import PRIMITIVES, decompose, lower
from hybrid_lab.graph.passes.differentiate import differentiate
from hybrid_lab.ops import get, records
from tests.graph.building import evaluate, graph_of, names, program

#: primitive -> the composites that were found to use it
USED: dict[str, set[str]] = {}
COMPOSITES = [record for record in records() if record.is_composite]


def test_before_and_after():
    graph = graph_of(lambda F, x, label: F.softmax_cross_entropy(x * 2.0, label), (2, 3), (2,))
    assert str(graph) == program("""
        graph net(%x0: f32[2,3], %x1: f32[2]):
          %0: f32[2,3] = broadcast_mul(%x0, 2.0)
          %1: f32[1] = softmax_cross_entropy(%0, %x1)
          return %1
    """)
    assert str(decompose(graph)) == program("""
        graph net(%x0: f32[2,3], %x1: f32[2]):
          %0: f32[2,3] = broadcast_mul(%x0, 2.0)
          %1: f32[2,1] = max(%0, axis=-1, keepdims=True)   # in softmax_cross_entropy0
          %2: f32[2,3] = broadcast_sub(%0, %1)             # in softmax_cross_entropy0
          %3: f32[2,3] = exp(%2)                           # in softmax_cross_entropy0
          %4: f32[2,1] = sum(%3, axis=-1, keepdims=True)   # in softmax_cross_entropy0
          %5: f32[2,1] = log(%4)                           # in softmax_cross_entropy0
          %6: f32[2,3] = broadcast_sub(%2, %5)             # in softmax_cross_entropy0
          %7: f32[2] = pick(%6, %x1)                       # in softmax_cross_entropy0
          %8: f32[1] = sum(%7)                             # in softmax_cross_entropy0
          %9: f32[1] = negative(%8)                        # in softmax_cross_entropy0
          return %9
    """)


def test_every_composite_has_a_name_of_its_own():
    graph = graph_of(lambda F, x: F.softmax(F.softmax(x)), (3,))
    found = {node.composite for node in decompose(graph).operators}
    assert found == {"softmax0", "softmax1"}
    named = graph.outputs[0].node.replace(name="attention_weights", scope="net.attention")
    graph = Graph(graph.inputs, named.outputs)
    last = decompose(graph).outputs[0].node
    assert (last.composite, last.scope) == ("attention_weights", "net.attention")


def test_a_composite_stays_whole_where_a_part_is_not_supported():
    graph = graph_of(lambda F, x: F.softmax(x), (2, 3))
    assert names(decompose(graph, lambda node: node.op.name not in ("softmax", "max"))) == ["softmax"]
    assert names(decompose(graph, lambda node: node.op.name != "softmax"))[0] == "max"


def test_what_an_engine_can_run_whole_stays():
    graph = graph_of(lambda F, x: F.softmax(x), (2, 3))
    assert names(decompose(graph, lambda node: True)) == ["softmax"]


def has_parts(node):
    """Whether a composite can be taken apart with these attributes."""
    try:
        return bool(lower(node, node.inputs))
    except Unmappable:
        return False


@pytest.mark.parametrize("record", COMPOSITES, ids=lambda record: record.name)
def test_nothing_but_primitives_is_left_and_numbers_agree(record):
    for number, sample in enumerate(record.samples):
        given = sample.arrays(record.name)
        inputs = [
            input_node(f"x{place}", shape=item.shape, dtype=item.dtype) if isinstance(item, np.ndarray) else item
            for place, item in enumerate(given)
        ]
        op = record.bind(**sample.attributes).bind_mode(False)
        node = make_node(op, inputs, draw=0 if op.random else None)
        values = [item for item in inputs if isinstance(item, Value)]
        arrays = [item for item in given if isinstance(item, np.ndarray)]
        graph = Graph(values, node.outputs[: op.signature.visible], draws=1)
        found = decompose(graph)
        for part in found.operators:
            USED.setdefault(part.op.name, set()).add(record.name)
            assert part.op.random or not part.op.is_composite or not has_parts(part), (number, part)
            assert part is node or part.composite.startswith(op.name.strip("_").lower())
        for one, two in zip(evaluate(found, arrays), evaluate(graph, arrays), strict=True):
            assert one.dtype == two.dtype and one.shape == two.shape
            tolerance = 2e-2 if one.dtype == np.float16 else 1e-5
            np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance * max(np.abs(two).max(initial=0), 1))


def test_what_several_composites_are_written_in_is_in_the_table():
    known = {name for group in PRIMITIVES.values() for name in group}
    used = {name for name, users in USED.items() if len(users) > 2}
    common = {name for name in used if not get(name).is_composite}
    assert common <= known, "add them to the table PRIMITIVES"


def test_the_table_of_primitives_names_primitives():
    for name in (name for group in PRIMITIVES.values() for name in group):
        assert not get(name).is_composite, name


def test_the_gradient_of_a_composite_belongs_together():
    graph = graph_of(lambda F, x: F.exp(F.softmax(x)), (2, 3))
    joint = decompose(differentiate(graph, graph.inputs))
    parts = [node.op.name for node in joint.operators if node.composite == "softmax0_backward"]
    assert parts == ["broadcast_mul", "sum", "broadcast_mul", "broadcast_sub"]
    assert {node.composite for node in joint.operators} == {"", "softmax0", "softmax0_backward"}
