"""A client of a language server, message by message, as an editor is one."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from typing import Any

#: What VS Code 1.10x sends of its capabilities that matter for marks, hovers, actions and notebooks.
VSCODE = {
    "workspace": {
        "applyEdit": True,
        "workspaceEdit": {
            "documentChanges": True,
            "resourceOperations": ["create", "rename", "delete"],
            "failureHandling": "textOnlyTransactional",
            "normalizesLineEndings": True,
            "changeAnnotationSupport": {"groupsOnLabel": True},
        },
        "configuration": True,
        "didChangeConfiguration": {"dynamicRegistration": True},
        "didChangeWatchedFiles": {"dynamicRegistration": True, "relativePatternSupport": True},
        "codeLens": {"refreshSupport": True},
        "workspaceFolders": True,
        "diagnostics": {"refreshSupport": True},
    },
    "textDocument": {
        "publishDiagnostics": {
            "relatedInformation": True,
            "versionSupport": False,
            "tagSupport": {"valueSet": [1, 2]},
            "codeDescriptionSupport": True,
            "dataSupport": True,
        },
        "synchronization": {"dynamicRegistration": True, "willSave": True, "willSaveWaitUntil": True, "didSave": True},
        "hover": {"dynamicRegistration": True, "contentFormat": ["markdown", "plaintext"]},
        "codeAction": {
            "dynamicRegistration": True,
            "isPreferredSupport": True,
            "disabledSupport": True,
            "dataSupport": True,
            "resolveSupport": {"properties": ["edit"]},
            "codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["", "quickfix", "source", "source.fixAll"]}},
            "honorsChangeAnnotations": True,
        },
        "diagnostic": {"dynamicRegistration": True, "relatedDocumentSupport": False},
    },
    "window": {"showMessage": {"messageActionItem": {"additionalPropertiesSupport": True}}, "workDoneProgress": True},
    "general": {
        "staleRequestSupport": {"cancel": True, "retryOnContentModified": []},
        "regularExpressions": {"engine": "ECMAScript", "version": "ES2020"},
        "markdown": {"parser": "marked", "version": "1.1.0"},
        "positionEncodings": ["utf-16"],
    },
    "notebookDocument": {"synchronization": {"dynamicRegistration": True, "executionSummarySupport": True}},
}


class Editor:
    """An editor with a running server. settings: what it answers when the server asks for its settings"""

    def __init__(
        self, *arguments: str, capabilities: dict[str, Any] | None = None, settings: object = None, **initialize: object
    ) -> None:
        command = [sys.executable, "-m", "hybrid_lab", "lsp", "--stdio", *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._settings = settings
        self._number = 0
        self._answers: dict[int, Any] = {}
        self._got: queue.Queue[dict[str, Any]] = queue.Queue()
        self.messages: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()
        params = {"processId": None, "rootUri": None, "workspaceFolders": None, "clientInfo": {"name": "a test"}}
        self.server = self.ask(
            "initialize", {**params, "capabilities": VSCODE if capabilities is None else capabilities, **initialize}
        )
        self.tell("initialized", {})

    def __enter__(self) -> Editor:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.ask("shutdown", None)
            self.tell("exit", None)
            assert self._process.wait(30) == 0
        finally:
            self._process.kill()

    def ask(self, method: str, params: object) -> Any:
        """The result of a request."""
        self._number += 1
        number = self._number
        self._send({"id": number, "method": method, "params": params})
        while number not in self._answers:
            self._take()
        answer = self._answers.pop(number)
        assert "error" not in answer, answer
        return answer["result"]

    def tell(self, method: str, params: object) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params})

    def marks(self, uri: str, version: int | None = None) -> list[dict[str, Any]]:
        """The next diagnostics of a document, of this version if one is given."""
        while True:
            for index, message in enumerate(self.messages):
                params = message["params"]
                if message["method"] == "textDocument/publishDiagnostics" and params["uri"] == uri:
                    if version in (None, params.get("version")):
                        del self.messages[index]
                        return params["diagnostics"]
            self._take()

    def _take(self) -> None:
        message = self._got.get(timeout=60)
        if "method" not in message:
            self._answers[message["id"]] = message
        elif "id" in message:  # the server asks
            result = [self._settings] if message["method"] == "workspace/configuration" else None
            self._send({"id": message["id"], "result": result})
        else:
            self.messages.append(message)

    def _send(self, message: dict[str, object]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        while header := stream.readline():
            length = 0
            while header.strip():
                name, _, value = header.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
                header = stream.readline()
            self._got.put(json.loads(stream.read(length)))
