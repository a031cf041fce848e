"""docs/saving.md: every snippet runs, in order, and each call of its table is in one of them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from hybrid_lab.gluon import nn

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "saving.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_every_snippet_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nn.registry, "_classes", dict(nn.registry._classes))
    names: dict = {}
    for number, snippet in enumerate(SNIPPETS):
        exec(compile(snippet, f"snippet {number + 1} of saving.md", "exec"), names)
    assert names["aux"]["epoch"] == 3
    states = names["again"].get_states()
    for name, array in names["net"].get_states().items():
        assert np.array_equal(states[name].asnumpy(), array.asnumpy()), name
    assert type(names["opened"]) is type(names["same_class"]) is names["MyModel"]
    np.testing.assert_allclose(names["imported"](names["x"]).asnumpy(), names["net"](names["x"]).asnumpy(), rtol=1e-4)
    printed = capsys.readouterr().out
    assert "[5, 10, 15]" in printed and "['body.0.depthwise.weight', 'body.0.pointwise.weight']" in printed


def test_the_table_names_calls_that_the_snippets_make():
    code = "".join(SNIPPETS)
    table = [line for line in TEXT.splitlines() if line.startswith("| ")][1:]
    assert len(table) == 12
    for call in ("net.save(", ".load(", "gluon.load(", "MyModel(", "checkpoint.Manager(", "restore(", "save_states(",
                 "load_states(", "save_parameters(", "load_parameters(", "onnx.export(", "onnx.imports(", "net.export(",
                 "onnx.imports_training(", "torch.write_source(",
                 "SymbolBlock.imports("):  # fmt: skip
        assert call in code and any(call in line for line in table), call
