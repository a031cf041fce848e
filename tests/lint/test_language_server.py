"""`hybrid-lab lsp` with real clients: one that sends what VS Code sends, pygls's own, and jupyter-lsp."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hybrid_lab import lint
from hybrid_lab.diagnostics import rules
from hybrid_lab.lint.editor_text import UTF_8, UTF_16, UTF_32, EditorText

from .conftest import HEAD, net
from .json_rpc import VSCODE, Editor

pytest.importorskip("pygls")

URI = "file:///tmp/net.py"
LARGE = "file:///tmp/large.py"
BAD = net("y = x.wait_to_read()\nx.wait_to_read()\nreturn F.convolution(x) * x.shape[0]", "hybrid_forward(self, F, x)")


def document(text: str, uri: str = URI, version: int = 1, language: str = "python") -> dict[str, Any]:
    return {"textDocument": {"uri": uri, "languageId": language, "version": version, "text": text}}


def codes(marks: list[dict[str, Any]]) -> list[str]:
    return [mark["code"] for mark in marks]


def place(text: str, part: str) -> dict[str, int]:
    line = next(number for number, each in enumerate(text.split("\n")) if part in each)
    return {"line": line, "character": text.split("\n")[line].index(part)}


def edited(text: str, edits: list[dict[str, Any]], encoding: str = UTF_16) -> str:
    for edit in sorted(edits, key=lambda e: e["range"]["start"]["line"], reverse=True):
        places = [(edit["range"][side]["line"], edit["range"][side]["character"]) for side in ("start", "end")]
        text = EditorText(text, 1, encoding).changed(*places, edit["newText"], 2).text
    return text


@pytest.fixture(scope="module")
def editor():
    with Editor() as editor:
        yield editor


def test_what_it_offers(editor):
    offered = editor.server["capabilities"]
    assert editor.server["serverInfo"]["name"] == "hybrid-lab"
    assert offered["textDocumentSync"]["openClose"] and offered["hoverProvider"]
    assert "source.fixAll.hybrid-lab" in offered["codeActionProvider"]["codeActionKinds"]
    assert offered["notebookDocumentSync"]["notebookSelector"][0]["cells"] == [{"language": "python"}]


def test_marks_come_and_go_as_the_text_changes(editor):
    editor.tell("textDocument/didOpen", document(BAD))
    marks = editor.marks(URI, 1)
    assert codes(marks) == [finding.code for finding in lint.check(BAD)]
    convolution = next(mark for mark in marks if mark["code"] == "HL166")
    assert convolution["range"]["start"] == place(BAD, "F.convolution")
    assert convolution["severity"] == 1 and convolution["source"] == "hybrid-lab"
    start = place(BAD, "convolution")
    change = {"range": {"start": start, "end": {**start, "character": start["character"] + 1}}, "text": "C"}
    params = {"textDocument": {"uri": URI, "version": 2}, "contentChanges": [change]}
    editor.tell("textDocument/didChange", params)
    assert "HL166" not in codes(editor.marks(URI, 2))
    editor.tell("textDocument/didClose", {"textDocument": {"uri": URI}})
    assert editor.marks(URI) == []


def test_a_hover_has_the_page_of_the_rule(editor):
    editor.tell("textDocument/didOpen", document(BAD))
    params = {"textDocument": {"uri": URI}, "position": place(BAD, "x.shape")}
    hover = editor.ask("textDocument/hover", params)
    assert hover["contents"]["kind"] == "markdown"
    assert rules.page("HL101") in hover["contents"]["value"]
    assert editor.ask("textDocument/hover", {**params, "position": {"line": 0, "character": 0}}) is None
    editor.tell("textDocument/didClose", {"textDocument": {"uri": URI}})


def test_actions_repair_one_place_or_all_safe_ones(editor):
    editor.tell("textDocument/didOpen", document(BAD))
    marks = editor.marks(URI, 1)
    at = place(BAD, "F.convolution")
    params = {"textDocument": {"uri": URI}, "range": {"start": at, "end": at}, "context": {"diagnostics": marks}}
    actions = editor.ask("textDocument/codeAction", params)
    (fix,) = [action for action in actions if action["kind"] == "quickfix"]
    assert "HL166" in fix["title"] and not fix.get("isPreferred") and codes(fix["diagnostics"]) == ["HL166"]
    (change,) = fix["edit"]["documentChanges"]
    assert change["textDocument"] == {"uri": URI, "version": 1}
    assert edited(BAD, change["edits"]) == BAD.replace("F.convolution", "F.Convolution")
    params["context"] = {"diagnostics": [], "only": ["source.fixAll"]}
    (all_fixes,) = editor.ask("textDocument/codeAction", params)
    assert all_fixes["kind"] == "source.fixAll.hybrid-lab"
    repaired = edited(BAD, all_fixes["edit"]["documentChanges"][0]["edits"])
    assert repaired == lint.apply_fixes(BAD, lint.check(BAD)) != BAD
    params["context"] = {"diagnostics": [], "only": ["refactor"]}
    assert editor.ask("textDocument/codeAction", params) == []
    editor.tell("textDocument/didClose", {"textDocument": {"uri": URI}})


def notebook(cells: list[str], kinds: list[int] | None = None) -> dict[str, Any]:
    uris = [f"vscode-notebook-cell:/tmp/n.ipynb#{number}" for number in range(len(cells))]
    kinds = kinds or [2] * len(cells)
    items = [document(cell, uri)["textDocument"] for cell, uri in zip(cells, uris, strict=True)]
    described = [{"kind": kind, "document": uri} for uri, kind in zip(uris, kinds, strict=True)]
    about = {"uri": "file:///tmp/n.ipynb", "notebookType": "jupyter-notebook", "version": 1, "cells": described}
    return {"notebookDocument": about, "cellTextDocuments": items}


def test_the_cells_of_a_notebook_are_checked_together(editor):
    head, body = HEAD, BAD.removeprefix(HEAD)
    opened = notebook([head, "# *no code*", body], [2, 1, 2])
    opened["cellTextDocuments"][1]["languageId"] = "markdown"
    uris = [cell["document"] for cell in opened["notebookDocument"]["cells"]]
    editor.tell("notebookDocument/didOpen", opened)
    assert editor.marks(uris[0]) == []
    marks = editor.marks(uris[2])
    assert {"HL101", "HL166"} <= set(codes(marks))
    shape = next(mark for mark in marks if mark["code"] == "HL101")
    assert shape["range"]["start"] == place(body, "x.shape")
    # A text change, as VS Code sends it: a range in one cell.
    at = place(body, "F.convolution")
    change = {"range": {"start": at, "end": {**at, "character": at["character"] + 13}}, "text": "F.relu"}
    document_change = {"document": {"uri": uris[2], "version": 2}, "changes": [change]}
    params = {
        "notebookDocument": {"uri": "file:///tmp/n.ipynb", "version": 2},
        "change": {"cells": {"textContent": [document_change]}},
    }
    editor.tell("notebookDocument/didChange", params)
    assert "HL166" not in codes(editor.marks(uris[2], 2))
    # All safe fixes of the notebook; then the first two cells are deleted, and a new one comes at the end.
    params = {
        "textDocument": {"uri": uris[0]},
        "range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}},
        "context": {"diagnostics": [], "only": ["notebook.source.fixAll"]},
    }
    (action,) = editor.ask("textDocument/codeAction", params)
    assert [change["textDocument"]["uri"] for change in action["edit"]["documentChanges"]] == [uris[2]]
    new = document("import mxnet as mx\nmx.nd.nosuch(1)", "vscode-notebook-cell:/tmp/n.ipynb#new")["textDocument"]
    structure = {
        "array": {"start": 0, "deleteCount": 2, "cells": []},
        "didClose": [{"uri": uris[0]}, {"uri": uris[1]}],
    }
    added = {
        "array": {"start": 1, "deleteCount": 0, "cells": [{"kind": 2, "document": new["uri"]}]},
        "didOpen": [new],
    }
    for version, change in enumerate((structure, added), 3):
        params = {
            "notebookDocument": {"uri": "file:///tmp/n.ipynb", "version": version},
            "change": {"cells": {"structure": change}},
        }
        editor.tell("notebookDocument/didChange", params)
    assert codes(editor.marks(new["uri"])) == ["HL166"]
    editor.tell("notebookDocument/didClose", {
        "notebookDocument": {"uri": "file:///tmp/n.ipynb"},
        "cellTextDocuments": [{"uri": uris[2]}, {"uri": new["uri"]}],
    })  # fmt: skip
    assert editor.marks(new["uri"]) == []


PORTABLE = net("return F.moveaxis(x, 0, 1)", "hybrid_forward(self, F, x)")


@pytest.mark.parametrize(
    ("arguments", "details"),
    [
        (["--target", "mxnet"], {}),
        ([], {"initializationOptions": {"target": "mxnet"}}),
        ([], {"initializationOptions": {"hybridLab": {"target": "mxnet"}}}),
        ([], {"settings": {"target": "mxnet"}}),
    ],
)
def test_the_target_is_a_setting(arguments, details):
    with Editor(*arguments, **details) as editor:
        editor.tell("textDocument/didOpen", document(PORTABLE))
        while codes(editor.marks(URI)) != ["HL154"]:
            pass


def test_the_target_changes_with_the_settings():
    with Editor(capabilities={}) as editor:
        editor.tell("textDocument/didOpen", document(PORTABLE))
        assert editor.marks(URI) == []
        for target, found in (("mxnet", ["HL154"]), ("", [])):
            settings = {"settings": {"hybridLab": {"target": target}}}
            editor.tell("workspace/didChangeConfiguration", settings)
            assert codes(editor.marks(URI)) == found
        editor.tell("workspace/didChangeConfiguration", {"settings": {"hybridLab": {"target": "torch"}}})
        editor.ask("textDocument/hover", {"textDocument": {"uri": URI}, "position": {"line": 0, "character": 0}})
        (message,) = [each for each in editor.messages if each["method"] == "window/showMessage"]
        assert "'torch'" in message["params"]["message"]


def test_clients_that_know_less_get_plain_changes():
    with Editor(capabilities={"general": {"positionEncodings": ["utf-8"]}}) as editor:
        text = BAD.replace("y = x.wait", "y = '\N{GRINNING FACE}ä', x.wait")
        editor.tell("textDocument/didOpen", document(text))
        encoding = editor.server["capabilities"].get("positionEncoding", UTF_16)
        everything = {"start": {"line": 0, "character": 0}, "end": {"line": 999, "character": 0}}
        params = {"textDocument": {"uri": URI}, "range": everything, "context": {"diagnostics": []}}
        actions = editor.ask("textDocument/codeAction", params)
        fixes = [action for action in actions if action["kind"] == "quickfix"]
        for action in fixes:
            repaired = edited(text, action["edit"]["changes"][URI], encoding)
            assert len(lint.check(repaired)) == len(lint.check(text)) - 1
        assert len(fixes) >= 2


def test_nothing_of_the_code_runs(tmp_path):
    file = tmp_path / "net.py"
    code = f"import mxnet as mx\nfrom helper import f\nopen({str(tmp_path / 'ran')!r}, 'w')\n"
    (tmp_path / "helper.py").write_text(code + "def f(x):\n    return x.shape\n")
    text = code + net("return f(x)", "hybrid_forward(self, F, x)").removeprefix(HEAD).replace("gluon.", "mx.gluon.")
    text = text.replace("nn.", "mx.gluon.nn.").replace("rnn.", "mx.gluon.rnn.")
    file.write_text(text)
    with Editor() as editor:
        editor.tell("textDocument/didOpen", document(text, file.as_uri()))
        assert "HL101" in codes(editor.marks(file.as_uri()))
    assert not (tmp_path / "ran").exists()


def test_what_is_too_large_is_said_and_the_server_lives(editor):
    editor.tell("textDocument/didOpen", document("x = 1\n" * 200_000, LARGE))
    assert codes(editor.marks(LARGE)) == ["HL002"]
    editor.tell("textDocument/didChange", {
        "textDocument": {"uri": LARGE, "version": 2}, "contentChanges": [{"text": "def broken(:\n"}],
    })  # fmt: skip
    assert editor.marks(LARGE, 2) == []
    editor.tell("textDocument/didClose", {"textDocument": {"uri": LARGE}})


def test_other_languages_and_notebook_files_as_json_have_no_marks(editor):
    editor.tell("textDocument/didOpen", document(json.dumps({"cells": []}), "file:///tmp/n.ipynb", language="json"))
    assert editor.ask("textDocument/hover", {
        "textDocument": {"uri": "file:///tmp/n.ipynb"}, "position": {"line": 0, "character": 0},
    }) is None  # fmt: skip


@pytest.mark.parametrize("encoding", [UTF_8, UTF_16, UTF_32])
def test_positions_of_an_editor(encoding):
    text = EditorText("a\N{GRINNING FACE}b\fc\r\nä\N{LINE SEPARATOR}x\n", 1, encoding)
    assert text.line_count == 3
    width = {UTF_8: (4, 2), UTF_16: (2, 1), UTF_32: (1, 1)}[encoding]
    assert text.position(1, 2) == (0, 1 + width[0])
    assert text.position(2, 1) == (1, width[1])
    for offset in range(len(text.text)):
        if text.text[offset - 1 : offset + 1] != "\r\n":
            assert text.offset(*text.position_of(offset)) == offset
    assert text.changed((0, 1 + width[0]), (1, 0), "-", 2).text == "a\N{GRINNING FACE}-ä\N{LINE SEPARATOR}x\n"
    assert text.offset(99, 0) == len(text.text) and text.offset(0, 99) == 5


def test_the_client_of_pygls():
    from lsprotocol import types
    from pygls.lsp.client import LanguageClient

    async def session() -> list[types.Diagnostic]:
        client = LanguageClient("test", "1")
        published: asyncio.Future[list[types.Diagnostic]] = asyncio.get_running_loop().create_future()

        @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def marks(params: types.PublishDiagnosticsParams) -> None:
            published.set_result(list(params.diagnostics))

        await client.start_io(sys.executable, "-m", "hybrid_lab", "lsp")
        await client.initialize_async(types.InitializeParams(capabilities=types.ClientCapabilities()))
        client.initialized(types.InitializedParams())
        item = types.TextDocumentItem(URI, "python", 1, BAD)
        client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        found = await asyncio.wait_for(published, 60)
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()
        return found

    assert [mark.code for mark in asyncio.run(session())] == [finding.code for finding in lint.check(BAD)]


@pytest.fixture
def entry_point(tmp_path, monkeypatch):
    """The entry point of pyproject.toml, as an installed package has it."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (line,) = [f"{name} = {to}" for name, to in project["entry-points"]["jupyter_lsp_spec_v1"].items()]
    info = tmp_path / "hybrid_lab_of_a_test-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hybrid_lab_of_a_test\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[jupyter_lsp_spec_v1]\n{line}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()


def test_jupyter_lsp_finds_the_server_and_passes_its_marks_on(entry_point):
    manager_module = pytest.importorskip("jupyter_lsp.manager")
    from tornado.websocket import WebSocketHandler

    class Handler(WebSocketHandler):
        """Stands for the connection of a page of JupyterLab."""

        language_server = "hybrid-lab"

        def __init__(self) -> None:
            self.got: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        def write_message(self, message: str) -> None:
            self.got.put_nowait(json.loads(message))

    async def session() -> list[dict[str, Any]]:
        manager = manager_module.LanguageServerManager()
        manager.initialize()
        assert manager.language_servers["hybrid-lab"]["languages"] == ["python"]
        handler = Handler()
        manager.subscribe(handler)

        async def send(**message: object) -> None:
            await manager.on_client_message(json.dumps({"jsonrpc": "2.0", **message}), handler)

        await send(id=1, method="initialize", params={"processId": None, "rootUri": None, "capabilities": VSCODE})
        while "result" not in await asyncio.wait_for(handler.got.get(), 60):
            pass
        await send(method="initialized", params={})
        # jupyterlab-lsp sends the code cells of a notebook as one text.
        opened = document(BAD, "file:///tmp/.virtual_documents/n.ipynb")
        await send(method="textDocument/didOpen", params=opened)
        while True:
            message = await asyncio.wait_for(handler.got.get(), 60)
            if message.get("method") == "textDocument/publishDiagnostics":
                break
        manager.unsubscribe(handler)
        return message["params"]["diagnostics"]

    assert codes(asyncio.run(session())) == [finding.code for finding in lint.check(BAD)]
