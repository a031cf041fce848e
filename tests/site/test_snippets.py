"""Every Python snippet of the documents runs: those of a page in their order, in one namespace and an empty folder."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site import sources

ROOT = sources.ROOT
_SNIPPET = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

#: Pages whose snippets are tested elsewhere, or show code of others, and why.
ELSEWHERE = {
    "README.md": "tests/packaging/test_readme.py",
    "docs/saving.md": "tests/packaging/test_saving_doc.py",
    "docs/adding-an-operator.md": "tests/ops/test_adding_an_operator.py",
    "docs/name-maps.md": "tests/gluon/test_name_maps.py",
    "docs/kernels.md": "generated kernels, compared by tests/engines/test_triton_kernels_doc.py",
    "docs/rooms/operators.md": "a sketch with `...` in place of code",
    "CHANGELOG.md": "calls of past versions",
}
#: What a page supposes to be there: files, or names of the paragraph before.
BEFORE = {
    "docs/migrating.md": """
import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.gluon import nn
net = nn.HybridSequential(prefix="")
net.add(nn.Conv2D(2, 3, strides=8), nn.Dense(3))
net.initialize()
net.hybridize()
net(nd.ones((1, 3, 224, 224)))
net.export("model", epoch=10)
""",
    "docs/archive.md": """
import hybrid_lab as mx
from hybrid_lab import gluon, nd
net = gluon.nn.Dense(3, prefix="")
net.initialize()
net(nd.ones((2, 4)))
trainer = gluon.Trainer(net.collect_params(), "adam")
""",
    "docs/lab.md": """
import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
net = gluon.nn.Dense(3)
net.initialize()
loader = [(nd.ones((4, 5)), nd.zeros((4,)))] * 2
loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
trainer = gluon.Trainer(net.collect_params(), "adam")
accuracy = lambda net: 0.5
""",
    "docs/rooms/numpy.md": """
import sys
import hybrid_lab as mx
globals().update(vars(sys.modules[mx.np.outer.__module__]))
""",
}


def documents():
    """The documents with snippets, but for the pages of rules, whose snippets tests/lint/test_pages.py checks."""
    for source in (*sources.pages(), "README.md"):
        if source.endswith(".md") and not source.startswith(sources.RULES):
            snippets = _SNIPPET.findall((ROOT / source).read_text(encoding="utf-8"))
            if snippets:
                yield source, snippets


PAGES = dict(documents())


@pytest.mark.parametrize("source", [source for source in PAGES if source not in ELSEWHERE])
def test_the_snippets_of_a_page_run(source, tmp_path):
    for package in re.findall(r"^import (torch|onnxruntime|onnx)$", "".join(PAGES[source]), re.MULTILINE):
        pytest.importorskip(package)
    script = tmp_path / "page.py"
    script.write_text("\n".join([BEFORE.get(source, ""), *PAGES[source]]), encoding="utf-8")
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); exec(compile(open('page.py').read(), 'page.py', 'exec'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


def test_pages_that_are_left_out_exist():
    assert {source for source in ELSEWHERE if source not in PAGES} <= {"CHANGELOG.md"}
    assert all((ROOT / place).is_file() for place in ELSEWHERE.values() if place.startswith("tests/"))


@pytest.mark.parametrize("source", sorted(source for source in sources.pages() if source.startswith("docs/errors/")))
def test_a_page_of_an_error_says_what_to_do(source):
    text = (ROOT / source).read_text(encoding="utf-8")
    if not source.endswith("README.md"):
        index = (ROOT / "docs/errors/README.md").read_text(encoding="utf-8")
        assert f"({Path(source).name})" in index
        assert "hybrid_lab.compat" in text and "hybrid-lab convert" in text
