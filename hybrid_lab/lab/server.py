"""The Jupyter server's half: lint for notebooks whose kernel cannot answer. It reads source and runs none of it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

    from hybrid_lab.lab.messages import ErrorBody, LintReply

STATUS = {"too-large": 413, "failed": 500}
"""HTTP status by the protocol's error code; 400 for all others."""


class LintHandler(APIHandler):
    """`POST hybrid-lab/lint`: the body and the reply are those of the protocol's `lint`."""

    @web.authenticated
    async def post(self) -> None:
        """Answer, or say with an error status and the protocol's error body what is wrong."""
        # Imported here because lint loads the heavier half of the package.
        from hybrid_lab.lab.errors import RequestError

        try:
            # In a thread: a large notebook must not hold up the server.
            reply: LintReply | ErrorBody = await asyncio.to_thread(lint, self.request.body)
        except RequestError as error:
            self.set_status(STATUS.get(error.code, 400))
            reply = error.body()
        except Exception as error:  # a fault of a rule: the front end gets the protocol's error, not a page of HTML
            self.log.exception("hybrid_lab: lint failed")
            self.set_status(STATUS["failed"])
            reply = RequestError("failed", f"{type(error).__name__}: {error}").body()
        self.finish(json.dumps(reply))


def lint(request: bytes) -> LintReply:
    """The reply to the bytes of a request. Raises RequestError for what is not the protocol's `lint`."""
    from hybrid_lab.lab.diagnostics import lint_cells
    from hybrid_lab.lab.errors import RequestError
    from hybrid_lab.lab.messages import LintRequest
    from hybrid_lab.lab.schema import MAX_BYTES, check_fields

    if len(request) > MAX_BYTES:
        raise RequestError("too-large", f"the request is larger than {MAX_BYTES // 1024 // 1024} MiB")
    try:
        body = json.loads(request)
    except (ValueError, RecursionError):
        raise RequestError("bad-request", "the request is not JSON") from None
    if not isinstance(body, dict):
        raise RequestError("bad-request", "the request must be an object")
    checked = check_fields(LintRequest, body)
    return {"cells": lint_cells(checked["cells"], checked["only"])}


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "hybrid_lab.lab.server"}]


def _load_jupyter_server_extension(server_app: ServerApp) -> None:
    """Add the handler to the server."""
    base = server_app.web_app.settings["base_url"]
    server_app.web_app.add_handlers(  # type: ignore[no-untyped-call]
        ".*$", [(url_path_join(base, "hybrid-lab", "lint"), LintHandler)]
    )
