"""The Jupyter server's half: lint for notebooks whose kernel cannot answer. It reads source text and runs none of it."""

from __future__ import annotations

import json
from typing import Any

from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from hybrid_lab.lab.diagnostics import lint_cells
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.schema import MAX_BYTES, REQUESTS, check_fields


class LintHandler(APIHandler):
    """`POST hybrid-lab/lint`: the body and the reply are those of the protocol's `lint`."""

    @web.authenticated
    async def post(self) -> None:
        """Answer, or say with status 4xx and the protocol's error body what is wrong."""
        try:
            if len(self.request.body) > MAX_BYTES:
                raise RequestError("too-large", f"the request is larger than {MAX_BYTES // 1024 // 1024} MiB")
            try:
                body = json.loads(self.request.body)
            except (ValueError, RecursionError):
                raise RequestError("bad-request", "the request is no JSON") from None
            if not isinstance(body, dict):
                raise RequestError("bad-request", "the request must be an object")
            checked = check_fields(REQUESTS["lint"], body)
        except RequestError as error:
            self.set_status(413 if error.code == "too-large" else 400)
            self.finish(json.dumps(error.body()))
            return
        self.finish(json.dumps({"cells": lint_cells(checked["cells"], checked["only"])}))


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "hybrid_lab.lab.server"}]


def _load_jupyter_server_extension(server_app: Any) -> None:
    """Add the handler to the server."""
    base = server_app.web_app.settings["base_url"]
    server_app.web_app.add_handlers(".*$", [(url_path_join(base, "hybrid-lab", "lint"), LintHandler)])
