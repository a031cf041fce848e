"""The type stubs of nd, sym and the array methods are what the records give."""

from __future__ import annotations

import ast

import pytest

from hybrid_lab import nd
from hybrid_lab.ndarray import stubs

TEXTS = stubs.stub_files()


def test_stubs_are_current():
    stale = [path.name for path in stubs.stale_files()]
    assert not stale, f"{stale}: run `python -m hybrid_lab.ndarray.stubs`"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: "/".join(path.parts[-2:]))
def test_stubs_are_python(path):
    ast.parse(TEXTS[path])


def test_every_public_function_has_a_signature():
    text = next(text for path, text in TEXTS.items() if path.parts[-2:] == ("ndarray", "__init__.pyi"))
    tree = ast.parse(text)
    written = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    written |= {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
    written |= {alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    from hybrid_lab.ndarray.namespace import function_names

    assert set(function_names()) <= written
    softmax = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "softmax")
    assert ast.unparse(softmax).startswith("def softmax(data: NDArray")
    assert nd.softmax.__doc__.startswith(ast.get_docstring(softmax)[:20])
