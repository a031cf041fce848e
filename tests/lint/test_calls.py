"""Calls of functions with findings: the places in hybrid_forward that lead to a finding in another function."""

from __future__ import annotations

import json
import sys
import textwrap
import types

import pytest

from hybrid_lab import lint

from .conftest import HEAD

HELPERS = HEAD + textwrap.dedent("""
    def scale(F, t):
        return t / t.asnumpy()

    def outer(F, t):
        return scale(F, t) * 2

    def apply(function, t):
        return function(t)

    size = lambda t: t.size

    class Base(gluon.HybridBlock):
        def half(self, t):
            return t / t.shape[0]

        @property
        def drawn(self):
            return random.random()
    """)


def net(body: str, name: str = "Net", signature: str = "self, F, x") -> str:
    body = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    return f"\nclass {name}(Base):\n    def hybrid_forward({signature}):\n{body}\n"


def calls(source: str) -> list[tuple[str, str]]:
    """The code of the finding, and the source text, of each call that leads to one."""
    lines = source.splitlines()
    marks = []
    for finding in lint.check(source, file="net.py"):
        for call in finding.calls:
            assert call.line == call.end_line
            marks.append((finding.code, lines[call.line - 1][call.col : call.end_col]))
    return marks


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return scale(F, x)", [("HL111", "scale")]),
        ("return scale(F, scale(F, x))", [("HL111", "scale")] * 2),
        ("return scale(F, F.relu(\n    x)) + scale(F, x)", [("HL111", "scale")] * 2),
        ("return outer(F, x)", [("HL111", "outer")]),
        ("return outer(F, x) + scale(F, x)", [("HL111", "outer"), ("HL111", "scale")]),
        ("return self.half(x)", [("HL101", "self.half")]),
        ("return super().half(x)", [("HL101", "super().half")]),
        ("return x * self.drawn", [("HL172", "self.drawn")]),
        ("return size(x)", [("HL102", "size")]),
        ("return apply(size, x)", [("HL102", "apply")]),
        ("return list(map(size, [x]))", [("HL102", "size")]),
        ("for i in range(3):\n    x = self.half(x)\nreturn x", [("HL101", "self.half")]),
        # A function inside hybrid_forward is part of it: its calls are marked, calls of it are not.
        ("def inner(t):\n    return scale(F, t)\nreturn inner(x)", [("HL111", "scale")]),
        ("def inner(t):\n    return t.asnumpy()\nreturn inner(x)", []),
        ("return apply(lambda t: t.asnumpy(), x)", []),
        ("return x.asnumpy()", []),
        ("return F.relu(x)", []),
    ],
)
def test_the_calls_that_lead_to_a_finding(body, expected):
    assert calls(HELPERS + net(body)) == expected


def test_a_function_called_by_two_classes_has_one_finding_with_the_calls_of_both():
    source = HELPERS + net("return self.half(x)", "One") + net("return self.half(x)", "Two")
    (finding,) = lint.check(source, file="net.py")
    assert (finding.code, [call.line for call in finding.calls]) == ("HL101", [29, 33])


def test_a_call_in_another_cell():
    cells = ["from mxnet import gluon", "def scale(t):\n    return t.asnumpy()", net("return scale(x)")]
    cells[0] += "\nBase = gluon.HybridBlock"
    _, (finding,), none = lint.check_cells(cells)
    assert [call.place for call in finding.calls] == ["<cell 3>:4:16"]
    assert none == []


def test_reports_show_the_calls_below_their_finding():
    source = HELPERS + net("return scale(F, x)")
    findings = lint.check(source, file="net.py")
    message = "`asnumpy()` of the tensor `t` reads numbers that do not exist while a graph is made."
    assert lint.text(findings).splitlines() == [
        f"net.py:9:16: HL111 {message}",
        "    net.py:29:16: calls `scale`",
        "1 error",
    ]
    (call,) = json.loads(lint.to_json(findings))[0]["calls"]
    assert [call[part] for part in ("function", "file", "line", "col", "end_col")] == ["scale", "net.py", 29, 15, 20]
    (related,) = lint.sarif(findings)["runs"][0]["results"][0]["relatedLocations"]
    assert related["message"]["text"] == f"calls `scale`, in which {message}"
    assert related["physicalLocation"]["region"]["startLine"] == 29
    (related,) = lint.jupyter(findings, source)[0]["relatedInformation"]
    assert related["location"]["range"]["start"] == {"line": 28, "character": 15}


def test_a_comment_silences_one_call():
    source = HELPERS + net("y = scale(F, x)  # hl: ignore[HL111] on purpose\nreturn scale(F, y)")
    assert calls(source) == [("HL111", "scale")]
    source = source.replace("t / t.asnumpy()", "t / t.asnumpy()  # hl: ignore[HL111] on purpose")
    assert lint.check(source) == []


@pytest.fixture
def library(tmp_path, monkeypatch):
    """An imported module with functions that do and do not become part of a graph."""
    text = textwrap.dedent("""
        def scale(t):
            if t.ndim > 1:
                print(t)
            return rest(t)

        def rest(t):
            return t / t.asnumpy()

        def fine(t):
            return t * 2
        """)
    file = tmp_path / "some_tensor_library.py"
    file.write_text(text)
    module = types.ModuleType(file.stem)
    exec(compile(text, str(file), "exec"), vars(module))
    monkeypatch.setitem(sys.modules, file.stem, module)
    return module


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("import some_tensor_library", "some_tensor_library.{}"),
        ("import some_tensor_library as tl", "tl.{}"),
        ("from some_tensor_library import scale, rest, fine", "{}"),
    ],
)
def test_a_function_of_another_file_is_reported_where_it_is_called(library, imports, call):
    def check(function: str, comment: str = "") -> list[str]:
        body = f"return {call.format(function)}(x){comment}"
        findings = lint.check(f"{HEAD}{imports}\nBase = gluon.HybridBlock\n{net(body)}", file="net.py")
        assert all((finding.file, finding.line, finding.fix) == ("net.py", 12, None) for finding in findings)
        return [f"{finding.code} {finding.message}" for finding in findings]

    assert check("fine") == []
    assert check("rest") == [
        f"HL111 calls `{call.format('rest')}`, in which `asnumpy()` of the tensor `t` reads numbers that do not exist "
        f"while a graph is made (line 8 of {library.rest.__code__.co_filename})."
    ]
    (several,) = check("scale")
    assert several.startswith("HL102 ") and several.endswith("2 more there.")
    (fewer,) = check("scale", "  # hl: ignore[HL102]")
    assert fewer.startswith("HL111 ") and fewer.endswith("1 more there.")
    (unknown,) = check("missing")
    assert unknown.startswith("HL199 ")


def test_a_module_that_imports_another_one_is_found_whole(tmp_path, monkeypatch):
    """Reading a base class's file while the derived class's is read must not lose the classes above."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "hl_lint_base.py").write_text("from hybrid_lab import gluon\nclass Base(gluon.HybridBlock): pass\n")
    (tmp_path / "hl_lint_net.py").write_text(
        "from hl_lint_base import *\nfrom hybrid_lab import gluon\n"
        "class First(gluon.HybridBlock):\n    def hybrid_forward(self, F, x):\n        return x.shape\n"
        "class Second(Base):\n    def hybrid_forward(self, F, x):\n        return x.shape\n"
    )
    import hl_lint_net

    try:
        assert [finding.code for finding in lint.check(hl_lint_net.First)] == ["HL101"]
        assert [finding.code for finding in lint.check(hl_lint_net.Second)] == ["HL101"]
    finally:
        del sys.modules["hl_lint_net"], sys.modules["hl_lint_base"]


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("from .ops import size", "size"),
        ("from . import ops", "ops.size"),
        ("from . import size", "size"),
        ("from ..layers import ops as o", "o.size"),
        ("from ..layers.ops import middle", "middle"),
        ("from package.layers.ops import size", "size"),
        ("import package.layers.ops", "package.layers.ops.size"),
        ("from package.layers import size", "size"),
    ],
)
def test_a_function_of_another_file_of_the_project(tmp_path, imports, call):
    files = {
        "package/__init__.py": "",
        "package/layers/__init__.py": "from .ops import size",
        "package/layers/ops.py": "from ..most import size\n\ndef middle(t):\n    return size(t)\n",
        "package/most.py": "def size(t):\n    return t.size\n",
        "package/layers/net.py": f"{HEAD}{imports}\nBase = gluon.HybridBlock\n{net(f'return {call}(x)')}",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (finding,) = lint.check(tmp_path / "package/layers/net.py")
    assert (finding.code, finding.line) == ("HL102", 12)
    assert finding.message.startswith(f"calls `{call}`, in which `.size` of the tensor `t`")
    assert finding.message.endswith(f"(line 2 of {tmp_path / 'package/most.py'}).")
    assert "package" not in sys.modules


def test_a_function_of_an_installed_library(tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "hl_lint_library.py").write_text("def size(t):\n    return t.size\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    source = f"{HEAD}import hl_lint_library as lib\nBase = gluon.HybridBlock\n{net('return lib.size(x)')}"
    (tmp_path / "net.py").write_text(source)
    (finding,) = lint.check(tmp_path / "net.py")
    assert (finding.code, finding.line) == ("HL102", 12)
    assert "hl_lint_library" not in sys.modules
    assert [finding.code for finding in lint.check(source)] == ["HL199"]  # text that is in no file
