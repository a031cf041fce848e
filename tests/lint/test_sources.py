"""Files, cells, notebooks, context, suppression comments."""

from __future__ import annotations

import json
import time

import pytest

from hybrid_lab import lint

NET = """\
class Net(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x.shape
"""
TUTORIAL = """\
import mxnet as mx
from mxnet import gluon
from mxnet.gluon import nn

mx.random.seed(42)

class Net(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super(Net, self).__init__(**kwargs)
        with self.name_scope():
            # layers created in name_scope will inherit name space
            # from parent layer.
            self.conv1 = nn.Conv2D(6, kernel_size=5)
            self.pool1 = nn.MaxPool2D(pool_size=2)
            self.conv2 = nn.Conv2D(16, kernel_size=5)
            self.pool2 = nn.MaxPool2D(pool_size=2)
            self.fc1 = nn.Dense(120)
            self.fc2 = nn.Dense(84)
            # You can use a Dense layer for fc3 but we do dot product manually
            # here for illustration purposes.
            self.fc3_weight = self.params.get('fc3_weight', shape=(10, 84))

    def hybrid_forward(self, F, x, fc3_weight):
        # Here `F` can be either mx.nd or mx.sym, x is the input data,
        # and fc3_weight is either self.fc3_weight.data() or
        # self.fc3_weight.var() depending on whether x is Symbol or NDArray
        print(x)
        x = self.pool1(F.relu(self.conv1(x)))
        x = self.pool2(F.relu(self.conv2(x)))
        # 0 means copy over size from corresponding dimension.
        # -1 means infer size from the rest of dimensions.
        x = x.reshape((0, -1))
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        x = F.dot(x, fc3_weight, transpose_b=True)
        return x
"""


def codes(findings: list[lint.Finding]) -> list[str]:
    return [finding.code for finding in findings]


def notebook(*cells: str, kind: str = "code") -> str:
    document = [{"cell_type": kind, "metadata": {}, "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"cells": document, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


# The tutorial


def test_the_tutorial_has_only_its_print():
    (finding,) = lint.check(TUTORIAL)
    assert (finding.code, finding.severity, finding.tensor) == ("HL171", "warning", "x")
    assert TUTORIAL.splitlines()[finding.line - 1].strip() == "print(x)"


def test_the_tutorial_for_mxnet():
    assert codes(lint.check(TUTORIAL, target="mxnet")) == ["HL171"]


def test_a_variant_that_reads_shapes_and_numbers():
    source = TUTORIAL.replace("print(x)", "n = x.shape[0]; scale = np.ones((2, 3)); print(scale.shape, x.asnumpy())")
    assert codes(lint.check(source)) == ["HL101", "HL111"]


# Where the source comes from


def test_a_path(tmp_path):
    file = tmp_path / "net.py"
    file.write_text("from mxnet import gluon\n" + NET)
    assert [str(finding) for finding in lint.check(file)] == [
        f"{file}:4:16: HL101 `.shape` of the tensor `x` cannot be read while a graph is made."
    ]
    assert lint.check(str(file)) == lint.check(file)


def test_a_name_for_the_source():
    assert lint.check(NET, file="net.py")[0].file == "net.py"


def test_columns_count_characters():
    source = NET.replace("return x.shape", "größe = 'größe'; return x.shape")
    (finding,) = lint.check(source)
    assert source.splitlines()[2][finding.col : finding.end_col] == "x.shape"


# Notebooks


def test_a_notebook_counts_code_cells():
    findings = lint.check(notebook("from mxnet import gluon", NET, "%matplotlib inline\n" + NET))
    assert [(finding.code, finding.cell, finding.line) for finding in findings] == [("HL101", 2, 3), ("HL101", 3, 4)]
    assert str(findings[0]).startswith("<notebook>:cell 2:3:16: HL101 ")


def test_a_notebook_file(tmp_path):
    file = tmp_path / "net.ipynb"
    file.write_text(notebook("from mxnet import gluon", NET))
    (finding,) = lint.check(file)
    assert (finding.file, finding.cell) == (str(file), 2)


def test_text_cells_are_not_code():
    assert lint.check(notebook(NET, kind="markdown")) == []


def test_a_broken_cell_does_not_hide_the_others():
    findings = lint.check(notebook("def broken(:", NET))
    assert [(finding.code, finding.cell) for finding in findings] == [("HL001", 1), ("HL101", 2)]


@pytest.mark.parametrize(
    "magic",
    [
        "%matplotlib inline",
        "!pip list",
        "?x",
        "x?",
        "x.shape??",
        "%%time",
        "files = !ls",
        "%timeit f(x)",
        "%%capture out",
    ],
)
def test_magics_keep_the_lines(magic):
    (finding,) = lint.check(f"{magic}\n{NET}")
    assert (finding.code, finding.line) == ("HL101", 4)


@pytest.mark.parametrize("magic", ["%%bash", "%%html", "%%writefile net.py", "%%javascript"])
def test_cells_in_other_languages_are_silent(magic):
    assert lint.check(f"{magic}\n{NET}<p>") == []


def test_magics_inside_code():
    source = "if True:\n    %matplotlib inline\n    !ls\n" + NET
    assert codes(lint.check(source)) == ["HL101"]


def test_the_rest_of_a_modulo_is_no_magic():
    source = "a = (7\n%3)\n" + NET
    assert codes(lint.check(source)) == ["HL101"]


# Context


def test_a_cell_sees_the_imports_of_others():
    cell = NET.replace("gluon.HybridBlock", "HB")
    assert codes(lint.check(cell, context=["from mxnet.gluon import Block as HB"])) == []
    assert codes(lint.check(cell, context=["from mxnet.gluon import HybridBlock as HB"])) == ["HL101"]


def test_a_base_class_in_another_cell():
    cell = "class Net(Base):\n    def forward(self, x):\n        return x.asnumpy()\n"
    base = "from mxnet import gluon\nclass Base(gluon.HybridBlock):\n    pass\n"
    assert codes(lint.check(cell, context=[base])) == ["HL111"]
    assert lint.check(cell, context=[base.replace("HybridBlock", "Block")]) == []
    assert lint.check(cell) == []


def test_a_helper_in_another_cell_is_followed():
    cell = NET.replace("x.shape", "size(x)")
    helper = "def size(t):\n    return t.ndim\n"
    assert lint.check(cell)[0].code == "HL199"
    assert lint.check(cell, context=[helper]) == []  # the finding stands in the other cell
    first, second = lint.check_cells([helper, cell])
    assert (codes(first), codes(second)) == (["HL102"], [])


def test_cells_are_checked_together():
    later = "from mxnet import gluon as g\nclass Base(g.HybridBlock):\n    pass\n"
    results = lint.check_cells([NET.replace("gluon.HybridBlock", "Base"), later, "x = 1"])
    assert [codes(findings) for findings in results] == [["HL101"], [], []]


def test_the_nearest_definition_above_counts():
    plain = "class Part(gluon.Block):\n    pass\n"
    hybrid = "class Part(gluon.HybridBlock):\n    pass\n"
    net = "class Net(Part):\n    def forward(self, x):\n        return x.asnumpy()\n"
    results = lint.check_cells(["from mxnet import gluon", plain, net, hybrid, net])
    assert [codes(findings) for findings in results] == [[], [], [], [], ["HL111"]]


# Suppression


def with_comment(comment: str, line: str = "return x.shape") -> list[lint.Finding]:
    return lint.check(NET.replace("return x.shape", f"{line}  {comment}"))


@pytest.mark.parametrize(
    "comment",
    [
        "# hl: ignore[HL101] the batch is fixed",
        "# hl: ignore[HL101]",
        "# hl:ignore[hl101]",
        "# hl: ignore",
        "# noqa # hl: ignore[HL101]",
    ],
)
def test_a_comment_silences_its_line(comment):
    assert with_comment(comment) == []


def test_a_comment_for_another_rule_is_stale():
    assert sorted(codes(with_comment("# hl: ignore[HL111] why"))) == ["HL101", "HL190"]


def test_a_comment_that_silences_nothing_is_stale():
    (finding,) = with_comment("# hl: ignore[HL101] why", line="return x")
    assert (finding.code, finding.severity) == ("HL190", "warning")
    assert finding.message == "`# hl: ignore[HL101]` silences nothing on this line."


def test_one_code_of_two_is_stale():
    (finding,) = with_comment("# hl: ignore[HL101, HL111] why")
    assert "`# hl: ignore[HL111]`" in finding.message
    source = NET.replace("return x.shape", "return x.shape  # hl: ignore[HL101, HL111] why")
    assert "# hl: ignore[HL101] why" in lint.apply_fixes(source, lint.check(source))


def test_a_comment_above_speaks_for_the_next_line():
    assert lint.check(NET.replace("return x", "# hl: ignore[HL101] fixed\n        return x")) == []


def test_a_comment_on_a_quiet_note_is_not_stale():
    assert with_comment("# hl: ignore[HL132] only here", line="return x[1]") == []


def test_a_string_is_no_comment():
    assert codes(with_comment("", line="s = '# hl: ignore[HL101]'; return x.shape")) == ["HL101"]


def test_only_its_own_line_is_silenced():
    source = NET.replace("return x.shape", "a = x.shape  # hl: ignore[HL101] here\n        return x.shape")
    assert [(finding.code, finding.line) for finding in lint.check(source)] == [("HL101", 4)]


def test_a_comment_at_the_end_of_a_long_expression():
    source = NET.replace("return x.shape", "return F.concat(\n            x, x).shape  # hl: ignore[HL101] two lines")
    assert lint.check(source) == []


def test_several_findings_of_one_line_are_ordered_by_column():
    source = NET.replace("return x.shape", "return x.ndim, x.shape, x.dtype")
    assert codes(lint.check(source)) == ["HL102", "HL101", "HL103"]


def test_a_long_cell_is_quick():
    """No figure is asserted; this only keeps the example at hand: `python -m pytest -s -k quick`."""
    methods = "\n".join(NET.replace("Net", f"Net{i}").replace("x.shape", "F.relu(x) + 1") for i in range(66))
    start = time.perf_counter()
    assert lint.check(methods) == []
    print(f"200 lines: {1000 * (time.perf_counter() - start):.1f} ms")
