"""What the lab says of Blocks that were imported from modules of PyTorch."""

import torch

import hybrid_lab as mx
from hybrid_lab.insight.states import block_state, walk
from hybrid_lab.lab.picture.graph_view import graph_view


def test_imported_modules_are_from_no_file(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU()))
    net = mx.torch.imports(module, torch.ones(2, 3))
    assert {block_state(block, path != "").state for path, _, block, _ in walk(net)} == {"imported"}
    assert "of a module of PyTorch" in graph_view(net, "")["summary"]
    assert "from the module" in str(mx.explain(net)) and "file" not in str(mx.explain(net))
    net.save(tmp_path / "net.hlab")
    assert block_state(mx.gluon.load(tmp_path / "net.hlab")).state == "file"
