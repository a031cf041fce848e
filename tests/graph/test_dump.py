"""HYBRID_LAB_DUMP prints graphs after the passes."""

from __future__ import annotations

from operator import attrgetter

import pytest

from hybrid_lab.graph.dump import PASSES
from hybrid_lab.graph.passes.bind_mode import bind_mode
from hybrid_lab.graph.passes.decompose import decompose
from hybrid_lab.graph.passes.fold_norm import fold_norm
from hybrid_lab.graph.passes.layout import layout
from hybrid_lab.graph.specialize import WORKS_ON, run_pass, specialize
from hybrid_lab.ops.framework.operator import Operator
from tests.graph.building import graph_of
from tests.onnx import one_operator
from tests.ops.cases import by_record


def test_the_passes_that_are_asked_for_are_printed(monkeypatch, capsys):
    graph = graph_of(lambda F, x: F.exp(F.identity(x)), None)
    specialize(graph, [(3,)], ["float32"], False)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("HYBRID_LAB_DUMP", "simplify,split")
    specialize(graph, [(3,)], ["float32"], True, [0])
    text = capsys.readouterr().err
    assert text.startswith("--- after simplify\ngraph net(%x0: f32[3], %head_grad0: f32[3]):\n  %0: f32[3] = exp(%x0)")
    assert "--- after split" in text and "inputs: output 0, head 0; 0 bytes are kept" in text
    assert "--- after infer" not in text


@pytest.mark.parametrize("name", WORKS_ON)
def test_what_a_pass_works_on_are_properties_of_operators(name):
    assert name in PASSES
    assert not any(getter(Operator) for getter in map(attrgetter, WORKS_ON[name]))


def test_a_graph_without_work_skips_the_pass_and_is_its_stage_all_the_same():
    entered, stages = [], []
    idle = graph_of(lambda F, x: F.exp(x), (3, 4))
    busy = graph_of(lambda F, x: F.transpose(x), (3, 4))
    for graph in (idle, busy):
        assert run_pass(stages, "layout", lambda graph: entered.append(graph) or graph, graph) is graph
    assert entered == [busy]
    assert [(stage.name, stage.changed) for stage in stages] == [("layout", False)] * 2


FUNCTIONS = {
    "bind_mode": lambda graph: bind_mode(graph, False),
    "layout": layout,
    "fold_norm": fold_norm,
    "decompose": decompose,
}


@pytest.mark.parametrize("name", WORKS_ON)
def test_a_pass_that_is_skipped_would_change_nothing(name):
    """The first sample of every record, in a graph of its own."""
    graphs = [one_operator.graph_of(cases[0].op, cases[0].inputs()) for cases in by_record().values()]
    idle = [graph for graph in graphs if not graph.has(*WORKS_ON[name])]
    assert len(idle) > 100
    assert [str(graph) for graph in idle if str(FUNCTIONS[name](graph)) != str(graph)] == []
