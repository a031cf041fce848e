"""A Jupyter server of its own for the tests, with the extension, and requests to it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Server(NamedTuple):
    """folder : the server's root"""

    address: str
    token: str
    folder: Path


@contextmanager
def serve(home: Path) -> Iterator[Server]:
    """Start a server whose settings and files lie below `home`, and end it afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = home / "root"
    folder.mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTER")}
    places = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_RUNTIME_DIR": "runtime", "JUPYTER_DATA_DIR": "data"}
    environment |= {name: str(home / place) for name, place in places.items()}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [
        *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", f"--port={port}"),
        *(f"--ServerApp.root_dir={folder}", "--IdentityProvider.token=secret", "--ServerApp.base_url=/some/base/"),
        "--ServerApp.jpserver_extensions={'hybrid_lab.lab.server': True}",
    ]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, cwd=home, stdout=log, stderr=log)
        address = f"http://127.0.0.1:{port}/some/base/"
        until = time.monotonic() + 120  # a busy machine takes its time
        while True:
            try:
                urllib.request.urlopen(f"{address}api", timeout=2).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < until, (home / "log").read_text()
                time.sleep(0.1)
        yield Server(address, "secret", folder)
        process.terminate()
        process.wait(20)


def post(server: Server, body: object, token: bool = True, endpoint: str = "lint") -> tuple[int, object]:
    """(status, answer) of one request."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"token {server.token}"} if token else {})
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"{server.address}hybrid-lab/{endpoint}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")
