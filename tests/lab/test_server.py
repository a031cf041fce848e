"""The Jupyter server's endpoint: the same rules as in the kernel, behind the server's own login, running nothing."""

import subprocess
import sys

import pytest

from tests.lab.jupyter_server import post

pytest.importorskip("jupyter_server")
pytest.importorskip("tornado")

CELLS = [
    {"id": "a", "source": "from hybrid_lab import gluon"},
    {"id": "b", "source": "class N(gluon.HybridBlock):\n    def hybrid_forward(self, F, x):\n        return len(x)"},
]


def test_the_answer_is_the_kernel_s(server, page):
    status, answer = post(server, {"cells": CELLS, "only": []})
    assert status == 200 and answer == page.ok("lint", cells=CELLS, only=[])
    assert [item["code"] for item in answer["cells"]["b"]] == ["HL111"] or answer["cells"]["b"]


def test_no_code_runs(server, tmp_path):
    victim = tmp_path / "victim"
    cell = f"import pathlib\npathlib.Path({str(victim)!r}).write_text('ran')\n%run -i {victim}\n!touch {victim}"
    assert post(server, {"cells": [{"id": "a", "source": cell}], "only": []})[0] == 200
    assert not victim.exists()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b"[" * 100_000,
        {"cells": []},
        {"cells": [], "only": [], "more": 1},
        {"cells": 3, "only": []},
    ],
)
def test_what_is_no_request_gets_the_protocol_s_error(server, body):
    status, answer = post(server, body)
    assert status == 400 and answer["code"] == "bad-request" and set(answer) == {"code", "message", "next", "details"}


def test_too_large(server):
    source = "x" * (5 * 1024 * 1024)
    status, answer = post(server, {"cells": [{"id": "a", "source": source}], "only": []})
    assert status == 413 and answer["code"] == "too-large"


def test_nobody_is_answered_without_the_token(server):
    assert post(server, {"cells": CELLS, "only": []}, token=False)[0] == 403


def test_graphviz_is_given_out_once(server, page):
    """The wheel has it once, for the kernel and the server."""
    import urllib.error
    import urllib.request

    request = urllib.request.Request(f"{server.address}hybrid-lab/graphviz", headers={"Authorization": "token secret"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        text, etag = answer.read().decode(), answer.headers["Etag"]
        assert answer.headers["Content-Type"].startswith("text/javascript")
    assert text == page.ok("asset", name="graphviz")["text"]
    request.add_header("If-None-Match", etag)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=20)
    assert caught.value.code == 304
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{server.address}hybrid-lab/graphviz", timeout=20)
    assert caught.value.code == 403


def test_the_extension_is_listed_and_valid(tmp_path):
    import os

    folder = tmp_path / "jupyter_server_config.d"
    folder.mkdir()
    from hybrid_lab.lab import server

    settings = server.__file__.replace("server.py", "jupyter_server_config.json")
    (folder / "hybrid_lab.json").write_text(open(settings).read())
    environment = os.environ | {"JUPYTER_CONFIG_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "jupyter_server.extension.serverextension", "list"]
    listed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    lines = [line for line in (listed.stdout + listed.stderr).splitlines() if "hybrid_lab" in line]
    assert any("enabled" in line for line in lines) and any("OK" in line for line in lines), lines


def test_lint_with_the_rules_of_mxnet(server):
    code = ["from hybrid_lab import gluon", "class A(gluon.HybridBlock):"]
    code += ["    def hybrid_forward(self, F, x):", "        return x[0]"]
    source = "\n".join(code)
    bodies = [{"cells": [{"id": "a", "source": source}], "only": []} | more for more in ({}, {"target": "mxnet"})]
    codes = [[item["code"] for item in post(server, body)[1]["cells"]["a"]] for body in bodies]
    assert codes[0] == [] and codes[1]
    assert post(server, bodies[0] | {"target": "torch"})[0] == 400
