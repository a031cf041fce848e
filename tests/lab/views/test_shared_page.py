"""One HTML file of the view: what it holds, what it may do, and where the panel writes it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.gluon import nn
from hybrid_lab.lab.kernel.session import Session
from hybrid_lab.lab.views.shared_page import page_file

STATIC = Path(mx.__file__).parent / "lab" / "static"
pytestmark = pytest.mark.skipif(not (STATIC / "page.js").exists(), reason="the front end is not built")


@pytest.fixture
def net() -> gluon.HybridBlock:
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=4, activation="relu"), nn.Dense(2))
    net.initialize()
    net.hybridize()
    net(nd.ones((5, 4)))
    return net


def parts(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of a page, and what is recorded in it."""
    text = path.read_text(encoding="utf-8")
    (packed,) = re.findall(r'id="hl-recorded">([A-Za-z0-9+/=]+)</script>', text)
    return text, json.loads(gzip.decompress(base64.b64decode(packed)))


def kinds(recorded: dict[str, Any]) -> set[tuple[str, ...]]:
    return {tuple(json.loads(key)[:4]) for key in recorded["replies"]}


def test_what_a_page_holds(net, tmp_path):
    page = mx.lab.share(net, tmp_path / "net.html", name="net")
    assert page.bytes == (tmp_path / "net.html").stat().st_size and page.left_out == 0
    text, recorded = parts(tmp_path / "net.html")
    assert {"tree", "findings", "explain", "curves", "graph", "overlay"} <= {kind for kind, *_ in kinds(recorded)}
    overlays = {key[3] for key in kinds(recorded) if key[0] == "overlay"}
    assert {"memory", "engine", "time", "values"} <= overlays
    for path in ("", "0", "1"):
        same = recorded["same"][json.dumps(["graph", path, *[""] * 7], separators=(",", ":"))]
        assert recorded["replies"][same]["nodes"]
    assert page.graphs == 4 and "4 graphs" in str(page)
    assert recorded["about"].startswith("net, as it was at ")
    assert "<title>net - Hybrid Lab</title>" in text
    assert mx.lab.share(net, tmp_path / "net.html", measure=False).path == str(tmp_path / "net.html")
    assert {key[3] for key in kinds(parts(tmp_path / "net.html")[1]) if key[0] == "overlay"} == {
        "memory", "engine", "gradients",
    }  # fmt: skip


def test_a_page_may_load_nothing_and_run_one_script(net, tmp_path):
    mx.lab.share(net, tmp_path / "net.html")
    text, _ = parts(tmp_path / "net.html")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'" and "connect-src" not in rules
    scripts = re.findall(r"<script(?: [^>]*)?>(.*?)</script>", text, re.DOTALL)
    code = scripts[-1]
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert rules["script-src"].split()[0] == f"'sha256-{digest}'"
    assert text.count("<script") == text.count("</script>") == 3
    assert not re.search(r"""(?:src|href)=["']?https?:""", text.replace(code, ""))


@pytest.mark.parametrize("name", ["</script><script>alert(1)</script>", "<!-- x", "\" onload='x'", "</title><b>"])
def test_names_are_inert(net, tmp_path, name):
    mx.lab.share(net, tmp_path / "net.html", name=name, measure=False)
    text, recorded = parts(tmp_path / "net.html")
    assert text.count("</script>") == 3 and text.count("<title>") == text.count("</title>") == 1
    assert name not in text.replace("<!--", "") or name == "<!-- x"
    assert name in json.dumps(recorded, ensure_ascii=False).replace("\\", "")


def test_beyond_the_limit_deeper_graphs_are_left_out_and_counted(tmp_path):
    net = nn.HybridSequential()
    for _ in range(4):
        inner = nn.HybridSequential()
        inner.add(nn.Dense(3), nn.Dense(4))
        net.add(inner)
    net.initialize()
    net.hybridize()
    net(nd.ones((5, 4)))
    whole = mx.lab.share(net, tmp_path / "whole.html", measure=False)
    cut = mx.lab.share(net, tmp_path / "cut.html", measure=False, limit=12_000)
    assert whole.left_out == 0 and 0 < cut.graphs < whole.graphs and cut.left_out > 0
    _, recorded = parts(tmp_path / "cut.html")
    assert '["graph","","","","","","","",""]' in recorded["same"] and "left out" in recorded["about"]


def test_a_model_without_a_graph_and_a_failed_one_can_be_shared(tmp_path):
    class Reads(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x * float(x.sum().asscalar())

    class Plain(gluon.Block):
        def forward(self, x):
            return x

    for net in (Reads(), Plain(), nn.Dense(3)):
        net.hybridize()
        page = mx.lab.share(net, tmp_path / "net.html")
        _, recorded = parts(tmp_path / "net.html")
        assert "tree" in {kind for kind, *_ in kinds(recorded)} and page.left_out == 0


def test_a_page_is_of_a_block_and_goes_to_a_file(tmp_path, net):
    with pytest.raises(HybridLabError, match="share needs a Block"):
        mx.lab.share(3, tmp_path / "x.html")
    with pytest.raises(HybridLabError):
        mx.lab.share(net, tmp_path / "no folder" / "x.html", measure=False)
    with pytest.raises(HybridLabError):
        mx.lab.share(net, tmp_path, measure=False)


def test_the_panel_writes_beside_the_notebook_and_replaces_pages_only(net, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = Session(lambda: {"net": net})
    entry = session.registry.show(net, "net")
    ask = lambda: session.answer("share", {"model": entry.id}, lambda *_: None)  # noqa: E731
    assert Path(ask()["path"]) == tmp_path / "net.html"
    assert Path(ask()["path"]) == tmp_path / "net.html"
    (tmp_path / "net.html").write_text("<html>mine</html>")
    assert Path(ask()["path"]) == tmp_path / "net-2.html"
    assert (tmp_path / "net.html").read_text() == "<html>mine</html>"


@pytest.mark.parametrize(
    ("name", "file"),
    [("net", "net.html"), ("models['a']/../x", "models_a_x.html"), ("..", "model.html"), ("é net", "é_net.html")],
)
def test_names_of_models_become_names_of_files(tmp_path, name, file):
    assert page_file(tmp_path, name) == tmp_path / file
    (tmp_path / file).mkdir()
    assert page_file(tmp_path, name).name == file.replace(".html", "-2.html")
