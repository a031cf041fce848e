"""HYBRID_LAB_DUMP prints graphs after the passes."""

from __future__ import annotations

from hybrid_lab.graph.specialize import specialize
from tests.graph.building import graph_of


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
