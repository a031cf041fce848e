"""Names that F, the namespaces and tensors do not have: marked with what serves in their place, and nothing else is."""

from __future__ import annotations

import re

import pytest

import hybrid_lab as mx
from hybrid_lab import lint
from hybrid_lab.diagnostics import foreign_names

from .conftest import net


def unknown(body: str, signature: str = "hybrid_forward(self, F, x)", **parts: str) -> list[lint.Finding]:
    return [finding for finding in lint.check(net(body, signature, **parts)) if finding.code == "HL166"]


@pytest.mark.parametrize(
    ("expression", "message", "rewrite"),
    [
        ("F.nosuchop(x)", "`F.nosuchop` does not exist.", "an operator that exists"),
        ("F.grid_sample(x, x)", "`F.grid_sample` does not exist; it is PyTorch's name.", "F.BilinearSampler(x, grid)"),
        ("F.reduce_sum(x)", "`F.reduce_sum` does not exist; it is TensorFlow's name.", "F.sum(x, axis=1)"),
        ("F.vstack(x)", "`F.vstack` does not exist; it is NumPy's name.", "F.concat(x, y, dim=0)"),
        ("F.convolution(x)", "`F.convolution` does not exist.", "F.Convolution"),
        ("F.fullyconnected(x)", "`F.fullyconnected` does not exist.", "F.FullyConnected"),
        ("F.box_nms(x)", "`F.box_nms` does not exist.", "F.contrib.box_nms"),
        ("F.contrib.box_nmss(x)", "`F.contrib.box_nmss` does not exist.", "F.contrib.box_nms"),
        ("F.linalg.softmax(x)", "`F.linalg.softmax` does not exist.", "F.softmax"),
        ("F.linalg.gem2(x, x)", "`F.linalg.gem2` does not exist.", "F.linalg.gemm2"),
        ("F.random.unifrm()", "`F.random.unifrm` does not exist.", "F.random.uniform"),
        ("F.np.einsumm('ij->j', x)", "`F.np.einsumm` does not exist.", "F.np.einsum"),
        ("F.npx.sofmax(x)", "`F.npx.sofmax` does not exist.", "F.npx.softmax"),
        ("x.view(2, -1)", "`x.view` does not exist; it is PyTorch's name.", "x.reshape((0, -1))"),
        ("(x * 2).permute(0, 1)", "`(x * 2).permute` does not exist; it is PyTorch's name.", "transpose"),
        ("F.relu(x).unsqueeze(1)", "`F.relu(x).unsqueeze` does not exist; it is PyTorch's name.", "expand_dims"),
        ("self.fc(x).contiguous()", "`self.fc(x).contiguous` does not exist; it is PyTorch's name.", "itself"),
        ("x.reshap((2, -1))", "`x.reshap` does not exist.", "x.reshape"),
        ("(x * 2).reshap((2, -1))", "`(x * 2).reshap` does not exist.", "(x * 2).reshape"),
        ("x.nosuchmethod()", "`x.nosuchmethod` does not exist.", ""),
        ("x.BilinearSampler2(x)", "`x.BilinearSampler2` does not exist.", "x.BilinearSampler"),
        ("x + x.tokens", "`x.tokens` does not exist.", ""),
    ],
)
def test_an_unknown_name_is_marked_with_what_serves(expression, message, rewrite):
    (finding,) = unknown(f"return {expression}")
    assert finding.message == message
    assert rewrite in finding.rewrite
    assert finding.severity == "error"


@pytest.mark.parametrize(
    ("statement", "rewrite"),
    [
        ("y = nd.nosuchop(x)", "an operator that exists"),
        ("y = mx.nd.contrib.box_nmss(x)", "mx.nd.contrib.box_nms"),
        ("y = sym.grid_sample(x)", "sym.BilinearSampler"),
        ("y = mx.np.einsumm('i,i', x, x)", "mx.np.einsum"),
        ("y = npx.sofmax(x)", "npx.softmax"),
        ("def f(x):\n    return nd.unsqueeze(x)", "nd.expand_dims(x, axis=1)"),
        ("class Plain:\n    def f(self, x):\n        return nd.cat(x)", "nd.concat"),
    ],
)
def test_names_outside_of_networks_are_marked(statement, rewrite):
    source = f"import mxnet as mx\nfrom mxnet import nd, sym, npx\n{statement}\n"
    (finding,) = lint.check(source)
    assert finding.code == "HL166" and rewrite in finding.rewrite


CLEAN = [
    "return F.Custom(x, op_type='mine')",
    "return F.contrib.box_nms(x)",
    "return F.relu.__name__, x",
    "if hasattr(F, 'grid_sample'):\n    return F.grid_sample(x, x)\nreturn x",
    "return getattr(F, 'grid_sample')(x, x)",
    "op = getattr(F, self.kind, None)\nreturn op(x)",
    "try:\n    x = F.grid_sample(x, x)\nexcept AttributeError:\n    pass\nreturn x",
    "x.tag = 1\nreturn x * x.tag",
    "ops = {'relu': F.relu}\nreturn ops.get('relu')(x)",
    "return F['relu'](x)",
    "return F._internal._nosuch(x) + F._nosuch(x) + x._nosuch",
    "return x.tokens",
    "return self.helper(F, x)",
    "return x.slice_axis(axis=0, begin=0, end=1).softmax()",
    "outs = F.split(x, num_outputs=2)\nouts.append(x)\nreturn outs[0]",
    "if F is nd:\n    return F.from_numpy(x)\nreturn x",
    "import torch.nn.functional as T\nreturn T.grid_sample(x)",
    "F = self.backend\nreturn F.grid_sample(x)",
]


@pytest.mark.parametrize("body", CLEAN)
def test_no_false_alarms(body):
    assert unknown(body) == []


@pytest.mark.parametrize(
    "other",
    [
        "nd.grid_sample = lambda *a: a",
        "setattr(sym, 'grid_sample', None)",
        "class GridSample(Operator, name='grid_sample'):\n    pass",
        "mx.operator.register('grid_sample')",
    ],
)
def test_names_that_another_cell_gives_are_not_marked(other):
    cells = ["from mxnet import nd, sym\nimport mxnet as mx", other, "nd.grid_sample(x)"]
    assert [code.code for found in lint.check_cells(cells) for code in found] == []


@pytest.mark.parametrize(
    "code",
    [
        "import torch as nd\nnd.grid_sample(x)",
        "def f(nd):\n    return nd.grid_sample(1)",
        "nd = some()\nnd.grid_sample(1)",
        "import numpy as np\nnp.nosuch(1)",
        "from mxnet import nd\ntry:\n    nd.nosuch\nexcept AttributeError:\n    pass",
        "from mxnet import nd\nhasattr(nd, 'nosuch') and nd.nosuch(1)",
        "from mxnet import nd\nnd.NDArray.nosuch\nnd.array([1]).nosuch",
        "from mxnet.ndarray import sparse\nsparse.csr_matrix",
    ],
)
def test_other_names_outside_of_networks_are_left_alone(code):
    assert lint.check(code) == []


def test_an_argument_of_a_class_of_the_user_may_have_any_field():
    assert unknown("return batch.tokens * 2", "hybrid_forward(self, F, batch)") == []
    assert unknown("return batch.view(1) + batch.tokens", "forward(self, batch: Batch)") == []
    assert len(unknown("return batch.view(1)", "hybrid_forward(self, F, batch)")) == 1


def test_a_misspelled_name_has_an_unsafe_fix():
    source = net("return F.convolution(x)", "hybrid_forward(self, F, x)")
    (finding,) = lint.check(source)
    assert finding.fix is not None and not finding.fix.safe
    assert "F.Convolution(x)" in lint.apply_fixes(source, [finding], unsafe=True)


def test_a_name_is_marked_once_and_can_be_silenced():
    source = net("return nd.nosuchop(x)", "hybrid_forward(self, F, x)")
    assert sorted(finding.code for finding in lint.check(source)) == ["HL163", "HL166"]
    source = source.replace("nosuchop(x)", "nosuchop(x)  # hl: ignore[HL163, HL166] made elsewhere")
    assert lint.check(source) == []


def _has(owner: object, path: str) -> bool:
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner is not None


@pytest.mark.parametrize("table", [foreign_names.OPERATORS, foreign_names.METHODS])
def test_what_the_tables_say_to_write_exists(table):
    x = mx.nd.ones((2, 3))
    for name, foreign in table.items():
        for operator in re.findall(r"\bF\.([\w.]+)", foreign.instead):
            assert _has(mx.nd, operator) and _has(mx.sym, operator), (name, operator)
        for method in re.findall(r"\bx\.(\w+)", foreign.instead):
            assert hasattr(x, method), (name, method)


def test_methods_in_the_table_do_not_exist_here():
    x = mx.nd.ones((2, 3))
    assert [name for name in foreign_names.METHODS if hasattr(x, name) and not hasattr(mx.nd, name)] == []
