"""The Jupyter server's half: lint and model files without a kernel. It runs no code of a notebook or of a file."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import ApiPath, ensure_async, to_os_path, url_path_join
from tornado import web

from hybrid_lab.lab.documents.pool import Workers
from hybrid_lab.lab.errors import RequestError

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

    from hybrid_lab.lab.messages.findings import LintReply

STATUS = {"too-large": 413, "failed": 500, "not-found": 404}
"""HTTP status by the protocol's error code; 400 for all others."""

_workers = Workers()
atexit.register(_workers.end)


class _Handler(APIHandler):
    """A POST whose body and answer are JSON, with the protocol's error body for what went wrong."""

    async def reply(self, answer: Callable[[], Awaitable[Mapping[str, object]]]) -> None:
        """Send what `answer` returns, or an error status with the error's body."""
        try:
            found = await answer()
        except RequestError as error:
            self.set_status(STATUS.get(error.code, 400))
            found = error.body()
        except Exception as error:  # a fault of this package: the front end gets the protocol's error, not HTML
            self.log.exception("hybrid_lab: a request failed")
            self.set_status(STATUS["failed"])
            found = RequestError("failed", f"{type(error).__name__}: {error}").body()
        self.finish(json.dumps(found))


class _Linter:
    """The one thread that lints, so that the threads which open files stay free however many requests there are."""

    MOST = 8
    """Requests that wait at one time."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "hybrid_lab-lint")
        self._waiting = 0

    async def answer(self, request: bytes) -> LintReply:
        """What `lint` returns. Raises RequestError if too many requests wait."""
        if self._waiting == self.MOST:
            raise RequestError("failed", f"{self.MOST} other notebooks are being checked; this one was not")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, lint, request)
        finally:
            self._waiting -= 1


_linter = _Linter()


class LintHandler(_Handler):
    """`POST hybrid-lab/lint`: body and reply of the protocol's `lint`."""

    @web.authenticated
    async def post(self) -> None:
        """Answer the request. In a thread: a large notebook must not hold up the server."""
        await self.reply(lambda: _linter.answer(self.request.body))


class DocumentHandler(_Handler):
    """`POST hybrid-lab/document`: a request about a file, `{"file": path on the server, "type": ..., "body": ...}`.

    The types of requests are in `messages.requests.DOCUMENT_REQUESTS`, and the protocol's requests about one model.
    """

    @web.authenticated
    @authorized("read", resource="contents")  # type: ignore[untyped-decorator]
    async def post(self) -> None:
        """Answer the request."""
        await self.reply(self._answer)

    async def _answer(self) -> Mapping[str, object]:
        request = parsed(self.request.body)
        file, kind, body = request.get("file"), request.get("type"), request.get("body")
        if not isinstance(file, str) or not isinstance(kind, str) or not isinstance(body, dict):
            raise RequestError("bad-request", "a request about a file has a file, a type and a body")
        path = await self.path_of(file)
        if isinstance(body.get("other"), str):
            body["other"] = await self.path_of(body["other"])
        return await asyncio.to_thread(_workers.ask, path, kind, body)

    async def path_of(self, file: str) -> str:
        """The absolute path of a file that the contents manager shows, inside of the server's folder.

        Raises RequestError for files that it does not show, such as hidden files, for links that lead out, and for
        anything but a regular file.
        """
        manager = self.contents_manager
        root = getattr(manager, "root_dir", None)
        if not isinstance(root, str):
            raise RequestError("failed", "this server keeps its files in no folder, so they cannot be shown here")
        try:
            if ".." in file.replace("\\", "/").split("/"):
                raise web.HTTPError(404)
            await ensure_async(manager.get(file, content=False))  # type: ignore[no-untyped-call]
            path, folder = os.path.realpath(to_os_path(ApiPath(file.strip("/")), root)), os.path.realpath(root)
            inside = os.path.commonpath([path, folder]) == folder
            is_file = os.path.isfile(path)
        except (web.HTTPError, ValueError, OSError):
            raise RequestError("not-found", f"there is no file {file!r} in this server's folder") from None
        if not inside:
            raise RequestError("bad-file-name", f"{file!r} is a link that leads out of this server's folder")
        if not is_file:
            raise RequestError("bad-file-name", f"{file!r} is not a regular file")
        return path


class GraphvizHandler(APIHandler):
    """`GET hybrid-lab/graphviz`: the JavaScript module that lays out graphs, as the kernel's `asset` gives it."""

    @web.authenticated
    async def get(self) -> None:
        """Send the module. It is the same until the package changes, so browsers keep it by its digest."""
        from hybrid_lab.lab.views.front_end_files import script

        try:
            text = script("graphviz")
        except RequestError as error:
            self.set_status(STATUS["failed"])
            self.finish(json.dumps(error.body()))
            return
        self.finish(
            text, set_content_type="text/javascript; charset=utf-8"
        )  # Tornado adds the digest, and answers 304 to who has it


def parsed(request: bytes) -> dict[str, Any]:
    """The object in the bytes of a request. Raises RequestError if there is none."""
    from hybrid_lab.lab.schema import MAX_BYTES

    if len(request) > MAX_BYTES:
        raise RequestError("too-large", f"the request is larger than {MAX_BYTES // 1024 // 1024} MiB")
    try:
        body = json.loads(request)
    except (ValueError, RecursionError):
        raise RequestError("bad-request", "the request is not JSON") from None
    if not isinstance(body, dict):
        raise RequestError("bad-request", "the request must be an object")
    return body


def lint(request: bytes) -> LintReply:
    """The reply to the bytes of a request. Raises RequestError for what is not the protocol's `lint`."""
    # Imported here because the linter loads the heavier half of the package.
    from hybrid_lab.lab.diagnostics import lint_cells
    from hybrid_lab.lab.messages.findings import LintRequest
    from hybrid_lab.lab.schema import check_fields

    checked = cast(LintRequest, check_fields(LintRequest, parsed(request)))
    return {"cells": lint_cells(checked)}


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "hybrid_lab.lab.server"}]


def _load_jupyter_server_extension(server_app: ServerApp) -> None:
    """Add the handlers to the server."""
    base = server_app.web_app.settings["base_url"]
    routes = {"lint": LintHandler, "document": DocumentHandler, "graphviz": GraphvizHandler}
    server_app.web_app.add_handlers(  # type: ignore[no-untyped-call]
        ".*$", [(url_path_join(base, "hybrid-lab", name), handler) for name, handler in routes.items()]
    )
