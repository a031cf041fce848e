"""`hybrid-lab migrate`: what scripts and notebooks written for MXNet need."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hybrid_lab.cli import main

RUNS = '''"""Trains."""
from __future__ import annotations

import numpy as np
import mxnet as mx
from mxnet import gluon, nd
from mxnet.gluon import nn


def train():
    net = nn.Dense(2)
    net.initialize(mx.init.Xavier())
    return net(nd.ones((1, 3))), gluon.Trainer(net.collect_params(), "sgd"), nd.gather_nd
'''
MISSING = """import mxnet as mx
from mxnet.contrib import quantization
x = mx.nd.nosuch(3)
y = mx.gluon.metric.Accuracy()
z = mx.gluon.nn.Dense.anything
"""
OTHER = "import torch\n"


def notebook(*sources):
    cells = [{"cell_type": "code", "source": text.splitlines(keepends=True), "metadata": {}, "outputs": [],
              "execution_count": None} for text in sources]  # fmt: skip
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {"runs.py": RUNS, "missing.py": MISSING, "other.py": OTHER, "broken.py": "import mxnet as (",
                       "book.ipynb": notebook("%matplotlib inline\nx = 1", "import mxnet as mx\n", "mx.nd.nosuch()"),
                       }.items():  # fmt: skip
        Path(name).write_text(text)
    return tmp_path


def reports(capsys, *paths):
    """The status and the reports by file name."""
    status = main(["migrate", "--format", "json", *paths])
    return status, {Path(each["path"]).name: each for each in json.loads(capsys.readouterr().out)}


def test_each_file_that_imports_mxnet_has_a_report(folder, capsys):
    status, found = reports(capsys, ".")
    assert status == 2
    assert sorted(found) == ["book.ipynb", "broken.py", "missing.py", "runs.py"]
    assert found["runs.py"]["runs"] and not found["runs.py"]["missing"]
    assert found["runs.py"]["uses"]["mxnet.gluon.nn.Dense"] == 1
    assert "here: an error on the CPU" in found["runs.py"]["differences"]["mxnet.nd.gather_nd"][0]
    assert [(each["name"], each["place"]["line"]) for each in found["missing.py"]["missing"]] == [
        ("mxnet.contrib.quantization", 2), ("mxnet.nd.nosuch", 3), ("mxnet.gluon.metric", 4),
    ]  # fmt: skip
    assert "use mx.metric" in found["missing.py"]["missing"][2]["advice"]
    assert found["book.ipynb"]["missing"][0]["place"] == {"line": 1, "cell": 3}
    assert "it is no Python" in found["broken.py"]["error"]


@pytest.mark.parametrize(
    "text",
    [
        "def run(image):\n    return image.nosuch()",
        "def run():\n    image = open('a')\n    return image.nosuch()",
        "def run():\n    return [image.nosuch() for image in ()]",
        "run = lambda image: image.nosuch()",
        "image = open('a')\nimage.nosuch()",
        "for image in ():\n    image.nosuch()",
    ],
)
def test_a_name_that_the_code_gives_another_value_is_not_mxnets(folder, text, capsys):
    """`image` of `from mxnet import image` is a module until then: the call before the text, and in `later`, counts."""
    before = "from mxnet import image\nimage.nosuch()\n"
    later = "\ndef later():\n    from mxnet import image\n    return image.nosuch()\n"
    Path("shadow.py").write_text(before + text + later)
    Path("book.ipynb").write_text(notebook(before, text, "image.nosuch()", later))
    found = reports(capsys, "shadow.py")[1]["shadow.py"]["missing"]
    lines = (before + text + later).count("\n")
    assert [each["place"]["line"] for each in found] == [2, lines]
    cells = [each["place"]["cell"] for each in reports(capsys, "book.ipynb")[1]["book.ipynb"]["missing"]]
    assert cells == ([1, 4] if text.startswith(("image", "for")) else [1, 3, 4])


def test_an_import_that_may_fail_is_mxnets(folder, capsys):
    Path("try.py").write_text("try:\n    import mxnet as mx\nexcept ImportError:\n    mx = None\nmx.nosuch\n")
    assert len(reports(capsys, "try.py")[1]["try.py"]["missing"]) == 1


@pytest.mark.parametrize(
    ("name", "advice"), [("amp", "use mx.contrib.amp"), ("gluon.data.batchify.Stack", "default_batchify_fn")]
)
def test_names_of_mxnet_2_lead_to_what_serves(folder, name, advice, capsys):
    Path("two.py").write_text(f"import mxnet as mx\nmx.{name}\n")
    assert advice in reports(capsys, "two.py")[1]["two.py"]["missing"][0]["advice"]


@pytest.mark.parametrize("name", ["nd.contrib.nosuch", "sym.linalg.nosuch", "sym.np.nosuch", "nd.image.nosuch"])
def test_names_of_namespaces_are_looked_up(folder, name, capsys):
    Path("inside.py").write_text(f"import mxnet as mx\nmx.{name}(1)\n")
    status, found = reports(capsys, "inside.py")
    assert status == 1 and [each["name"] for each in found["inside.py"]["missing"]] == [f"mxnet.{name}"]
    assert not found["inside.py"]["findings"]  # the linter's finding of the same name says no more


def test_a_module_of_mxnets_that_is_a_function_here_is_missing(folder, capsys):
    Path("log.py").write_text("import mxnet as mx\nlogger = mx.log.get_logger('x')\n")
    (missing,) = reports(capsys, "log.py")[1]["log.py"]["missing"]
    assert missing["name"] == "mxnet.log.get_logger" and "use logging.getLogger" in missing["advice"]


def test_a_method_named_as_a_module_s_is_no_use_of_a_name(folder, capsys):
    Path("fit.py").write_text("import mxnet as mx\nfrom other import model\nmodel.fit(1)\n")
    assert reports(capsys, "fit.py")[1]["fit.py"]["uses"] == {"mxnet": 1}


def test_another_name_of_a_module_is_followed(folder, capsys):
    Path("alias.py").write_text("import mxnet as mx\nnd = mx.nd\nx = nd.ones((1,))\nnd.nosuch(x)\nx.nosuch()\n")
    found = reports(capsys, "alias.py")[1]["alias.py"]
    assert [(each["name"], each["place"]["line"]) for each in found["missing"]] == [("mxnet.nd.nosuch", 4)]


def test_operators_of_hybrid_forward_are_looked_up(folder, capsys):
    body = "        F.nosuch(x), F.relu(x), F.contrib.nosuch(x), F.np.ones(3), F.NDArray, F.zeros((0,))\n"
    Path("net.py").write_text(
        "import mxnet as mx\nclass Net(mx.gluon.HybridBlock):\n    def hybrid_forward(self, F, x):\n" + body
        + "def other(F):\n    return F.nosuch2\nmx.nd.ones((1,))\n"
    )  # fmt: skip
    found = reports(capsys, "net.py")[1]["net.py"]
    assert {each["name"] for each in found["missing"]} == {"mxnet.nd.nosuch", "mxnet.nd.contrib.nosuch"}
    assert any("a size of 0" in text for text in found["differences"]["mxnet.sym.zeros"])
    assert "mxnet.nd.ones" not in found["differences"]


@pytest.mark.parametrize(
    ("code", "differs"),
    [
        ("mx.sym.var('a')", None),
        ("mx.np.var(1)", "gradients of `np.rot90`, `np.var`"),
        ("mx.init.Xavier()", None),
        ("mx.contrib.amp.init()", "when `amp.init()` may be called"),
        ("mx.nd.log(0)", "`log(0)`"),
        ("mx.nd.arange(3)", None),
        ("mx.nd.arange(3, infer_range=True)", "`arange` with `infer_range`"),
        ("mx.sym.SoftmaxOutput(1, multi_output=True)", "and similar layers"),
        ("mx.nd.LeakyReLU(1, act_type='leaky')", "the sign of a zero"),
        ("mx.gluon.Trainer({}, 'sgd')", None),
        ("mx.gluon.Trainer({}, 'sgd', kvstore='device')", None),
        ("mx.gluon.Trainer({}, 'sgd', kvstore='dist_sync')", "by the same sums (docs/distributed.md)"),
        ("mx.gluon.Trainer({}, 'sgd', kvstore=args.kv)", "every worker updates by the same sums"),
        ("mx.gluon.Trainer({}, 'adadelta')", '`"adadelta"` with a learning rate'),
        ("mx.kv.create('local')", None),
        ("mx.kv.create('dist_async')", '"dist_async"'),
        ("model.fit(data, kvstore='dist_async')", '"dist_async"'),
        ("mx.io.CSVIter(data_csv='a')", "has all rows"),
        ("mx.gluon.model_zoo.vision.resnet18_v1()", None),
        ("mx.gluon.model_zoo.vision.resnet18_v1(pretrained=False)", None),
        ("mx.gluon.model_zoo.vision.resnet18_v1(pretrained=True)", "the file of the weights"),
        ("mx.profiler.set_config()", "`mx.profiler`"),
    ],
)  # fmt: skip
def test_differences_are_about_what_the_code_calls(folder, code, differs, capsys):
    Path("one.py").write_text(f"import mxnet as mx\n{code}\n")
    found = reports(capsys, "one.py")[1]["one.py"]
    assert not found["missing"]
    texts = [text for each in found["differences"].values() for text in each]
    assert (differs is None and not texts) or any(differs in text for text in texts), texts


def test_text_and_html_say_the_same(folder, capsys):
    assert main(["migrate", "runs.py", "missing.py"]) == 1
    text = capsys.readouterr().out
    assert "runs.py: all names are here" in text and "missing.py: 3 names missing" in text
    assert "line 4: mxnet.gluon.metric: gluon has no 'metric'; use mx.metric" in text
    assert text.splitlines()[-1] == "2 files with MXNet, 1 of them with all names here"
    assert main(["migrate", "--format", "html", "runs.py", "missing.py"]) == 1
    page = capsys.readouterr().out
    assert page.startswith("<!doctype html>") and "mxnet.gluon.metric" in page and "<script" not in page


def test_names_in_a_page_are_text(folder, capsys):
    Path("<b>.py").write_text("import mxnet as mx\nmx.nd.nosuch\n")
    main(["migrate", "--format", "html", "<b>.py"])
    assert "&lt;b&gt;.py" in capsys.readouterr().out


def test_write_puts_one_line_in_and_the_script_runs(folder, capsys):
    assert main(["migrate", "--write", "runs.py"]) == 0
    changed = Path("runs.py").read_text()
    assert changed == RUNS.replace("import mxnet as mx\n", "import hybrid_lab.compat\nimport mxnet as mx\n")
    assert "runs.py: all names are here; runs as it is" in capsys.readouterr().out
    assert main(["migrate", "--write", "runs.py"]) == 0
    assert Path("runs.py").read_text() == changed
    done = subprocess.run(
        [sys.executable, "-c", "import runs; print(runs.train()[0].shape)"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([".", *filter(None, sys.path)])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "(1, 2)\n", done.stderr


def test_write_changes_one_cell_of_a_notebook(folder):
    before = json.loads(Path("book.ipynb").read_text())
    main(["migrate", "--write", "book.ipynb"])
    after = json.loads(Path("book.ipynb").read_text())
    assert after["cells"][1]["source"] == ["import hybrid_lab.compat\n", "import mxnet as mx\n"]
    after["cells"][1]["source"] = before["cells"][1]["source"]
    assert after == before


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("def f():\n    import mxnet\n", "def f():\n    import hybrid_lab.compat\n    import mxnet\n"),
        ("import os\r\nfrom mxnet import nd\r\n", "import os\r\nimport hybrid_lab.compat\r\nfrom mxnet import nd\r\n"),
        ("import mxnet", "import hybrid_lab.compat\nimport mxnet"),
        ("x = 1; import mxnet\n", None),
        ("import hybrid_lab.compat\nimport mxnet\n", None),
        ("from .mxnet import x\n", None),
        ("import mxnetx\n", None),
        (
            's = """a\x0c\nb\u2028\n"""\nimport mxnet\n',
            's = """a\x0c\nb\u2028\n"""\nimport hybrid_lab.compat\nimport mxnet\n',
        ),
        ("x = '\x85'\nimport mxnet\n", "x = '\x85'\nimport hybrid_lab.compat\nimport mxnet\n"),
        ("if True: \\\n    import mxnet\n", None),
        (
            "try:\n    import mxnet\nexcept OSError:\n    pass\nfrom mxnet import nd\n",
            "try:\n    import hybrid_lab.compat\n    import mxnet\nexcept OSError:\n    pass\nfrom mxnet import nd\n",
        ),
        ("import mxnet\nimport hybrid_lab.compat\n", None),
    ],
)
def test_where_the_line_goes(text, changed):
    from hybrid_lab.mxnet.compat.migration import prepared_text

    assert prepared_text(text) == changed


@pytest.fixture(scope="module")
def rows_of_the_page():
    """The script that reads docs/differences.md."""
    import importlib.util

    root = Path(__file__).parent.parent.parent
    spec = importlib.util.spec_from_file_location("write_differences", root / "scripts" / "write_differences.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_differences_are_those_of_the_page(rows_of_the_page):
    wanted = rows_of_the_page.text()
    assert rows_of_the_page.TARGET.read_text(encoding="utf-8") == wanted, "run python scripts/write_differences.py"
    assert len(rows_of_the_page.differences()) > 200


@pytest.mark.parametrize("cell", ["`dtype='float32'`", "`image.flip_*`", "sums: `x + weight`", "`f().g().h`", "`a b`"])
def test_a_row_that_cannot_be_read_is_an_error(rows_of_the_page, cell, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(f"| `np.var` | gives 1 | gives 2 | |\n| {cell} | gives 1 | gives 2 | |\n")
    monkeypatch.setattr(rows_of_the_page, "SOURCE", page)
    with pytest.raises(rows_of_the_page.UnreadableRow, match=re.escape(cell)):
        rows_of_the_page.differences()


def test_a_row_names_functions_with_their_arguments(rows_of_the_page, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    cell = '`len(f.Sampler(x, k=...))`, `y[0] = x`, `//`, `Trainer("lars", kvstore="a")`, `linalg.qr`'
    page.write_text(f"| {cell} | gives 1 | gives 2 | |\n")
    monkeypatch.setattr(rows_of_the_page, "SOURCE", page)
    found = [(row["name"], row["strings"], row["arguments"]) for row in rows_of_the_page.differences()]
    assert sorted(found) == [
        ("Trainer", ["lars"], {"kvstore": "'a'"}),
        ("f.Sampler", [], {"k": None}),
        ("linalg.qr", [], {}),
    ]


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("as_list", [True, False])
def test_of_a_notebook_only_the_lines_of_one_cell_change(indent, end, as_list):
    from hybrid_lab.mxnet.compat.migration import prepared_text

    document = json.loads(notebook("x = 'é'\n", "y = 1\nimport mxnet as mx\nmx.nd.ones(3)"))
    document["metadata"] = {"twice": 1e5, "name": "\u00e9\u2028"}
    if not as_list:
        for cell in document["cells"]:
            cell["source"] = "".join(cell["source"])
    for ascii_only in (True, False):
        before = (
            json.dumps(document, indent=indent, ensure_ascii=ascii_only).replace("100000.0", "1e5").replace("\n", end)
        )
        after = prepared_text(before)
        wanted = json.loads(before)
        source = "y = 1\nimport hybrid_lab.compat\nimport mxnet as mx\nmx.nd.ones(3)"
        wanted["cells"][1]["source"] = source.splitlines(keepends=True) if as_list else source
        assert json.loads(after) == wanted
        line = "import hybrid_lab.compat\\n"
        assert after.startswith(before[: before.index("import mxnet") - 1]) or not as_list
        assert len(after) - len(before) <= len(line) + 4 + 24 and after.count("1e5") == 1
        assert prepared_text(after) is None


def test_no_file_with_mxnet_is_left_out(folder, capsys):
    Path("star.py").write_text("from mxnet.gluon.nn import *\nDense(3)\n")
    Path("two.ipynb").write_text(notebook("import mxnet as mx\nprint mx", "x = 1"))
    Path("long.py").write_text("import mxnet\nx = " + "-" * 100_000 + "1\n")
    status, found = reports(capsys, "star.py", "two.ipynb", "long.py")
    assert status == 2 and sorted(found) == ["long.py", "star.py", "two.ipynb"]
    assert found["star.py"]["runs"] and "cell 1 is no Python" in found["two.ipynb"]["error"]
    assert not found["long.py"]["runs"]


def test_the_order_of_the_two_imports_counts(folder, capsys):
    Path("late.py").write_text("import mxnet\nimport hybrid_lab.compat\n")
    Path("early.py").write_text("import hybrid_lab.compat\nimport mxnet\n")
    _, found = reports(capsys, "late.py", "early.py")
    assert not found["late.py"]["imports_compat"] and found["early.py"]["imports_compat"]
