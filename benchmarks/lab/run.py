"""Benchmark of the lab (`make bench-lab`): how long the kernel and the browser take to draw graphs of real networks,
and how much the lab slows cells beside large models (blocks.py) and the steps of a training (training.py).

Writes results/lab.md. Needs the front end's node_modules and a Chromium.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from harness import Table, write_tables  # noqa: E402
from lab import blocks, training  # noqa: E402
from lab.networks import NETWORKS  # noqa: E402
from playwright.sync_api import Page, sync_playwright  # noqa: E402

from hybrid_lab.lab.kernel.comm import envelope, handle  # noqa: E402
from hybrid_lab.lab.kernel.session import Session  # noqa: E402
from tests.browser.jupyter import launch  # noqa: E402

#: Boxes of one network that are opened, one after the other.
BOXES = 60

#: Opens the boxes in their order, outer ones first; the milliseconds of each.
OPEN = """async count => {
  const times = [];
  for (const id of lab.boxes().slice(0, count)) {
    if (!lab.isOpen(id)) times.push(await lab.open(id));
  }
  return times;
}"""

#: Frames a second: panning where text can be read, panning the whole in sight, and zooming. The lowest of the three.
FRAMES = """async () => {
  const { canvas } = lab;
  canvas.start();
  const rates = [await lab.frames(() => canvas.look({ ...canvas.camera, y: canvas.camera.y - 12 }), 60)];
  canvas.fit();
  rates.push(await lab.frames(i => canvas.look({ ...canvas.camera, x: canvas.camera.x + (i % 2 ? 9 : -9) }), 60));
  rates.push(await lab.frames(i => canvas.zoom(i < 30 ? 1.06 : 1 / 1.06), 60));
  return Math.min(...rates);
}"""

ESBUILD = "--bundle --format=esm --target=es2022 --loader:.css=text --log-level=warning".split()


def build(folder: Path) -> None:
    """The page with the viewer, and Graphviz for its worker."""
    esbuild = str(ROOT / "node_modules" / ".bin" / "esbuild")
    for source, target in (("benchmarks/lab/page.ts", "page.js"), ("extension/src/graph/engine.ts", "graphviz.js")):
        subprocess.run([esbuild, source, *ESBUILD, "--minify", f"--outfile={folder / target}"], cwd=ROOT, check=True)
    (folder / "index.html").write_text(
        '<!doctype html><meta charset="utf-8"><script type="module" src="page.js"></script>'
    )


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


def measure(name: str, folder: Path, page: Page, rounds: int) -> list[str]:
    """One row: operators, bytes, milliseconds in the kernel and in the browser, of an opened box, frames a second."""
    session = Session(lambda net=NETWORKS[name](): {"net": net})  # type: ignore[misc]
    model = session.models()["models"][0]["id"]
    body = {"model": model, "path": "", "program": ""}
    request = envelope("r1", "graph", body) | {"kernel_id": session.kernel}
    kernel, texts = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        handle(session, request, lambda message: texts.append(json.dumps(message, ensure_ascii=False)))
        kernel.append((time.perf_counter() - start) * 1e3)
    reply = json.loads(texts[-1])["body"]
    text = json.dumps(reply)
    (folder / "reply.json").write_text(text)
    drawn = [page.evaluate("lab.show('reply.json')") for _ in range(rounds)]
    opened = page.evaluate(OPEN, BOXES) or [0.0]
    overlays = [overlay(kind, session, model, reply["program"], folder, page, rounds) for kind in ("memory", "values")]
    frames = page.evaluate(FRAMES)
    operators = sum(node["kind"] == "operator" for node in reply["nodes"])
    closed = statistics.median(kernel) + statistics.median(drawn)
    row = [
        name,
        f"{operators:,}",
        f"{len(text) / 1e6:.1f} MB",
        f"{statistics.median(kernel):.0f} ms",
        f"{statistics.median(drawn):.0f} ms",
        f"{closed:.0f} ms",
        f"{statistics.median(opened):.0f} ms, at most {max(opened):.0f} ms",
        *overlays,
        f"{frames:.0f}",
    ]
    print(" | ".join(row), flush=True)
    return row


def overlay(kind: str, session: Session, model: str, program: str, folder: Path, page: Page, rounds: int) -> str:
    """The time from the request of an overlay to the picture that shows it, with the boxes open that are open."""
    body = {"model": model, "path": "", "program": program, "kind": kind, "data": ""}
    request = envelope("r1", "overlay", body) | {"kernel_id": session.kernel}
    texts, seconds = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        handle(session, request, lambda message: texts.append(json.dumps(message, ensure_ascii=False)))
        seconds.append((time.perf_counter() - start) * 1e3)
    (folder / "overlay.json").write_text(json.dumps(json.loads(texts[-1])["body"]))
    shown = [page.evaluate("lab.measure('overlay.json')") for _ in range(rounds)]
    return f"{statistics.median(seconds):.0f} + {statistics.median(shown):.0f} ms"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--only", default="", help="a part of a network's name; no file is written")
    chosen = options.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright, served(Path(home)) as url:
        folder = Path(home)
        build(folder)
        browser = launch(playwright)
        for name in NETWORKS:
            if chosen.only in name:
                page = browser.new_page(viewport={"width": 1000, "height": 900})
                page.goto(url)
                page.wait_for_function("window.lab")
                rows.append(measure(name, folder, page, chosen.rounds))
                page.close()
        browser.close()
    if not chosen.only:
        header = ["graph", "operators", "reply", "kernel", "browser", "drawn, closed", "a box opened"]
        header += ["memory", "values", "frames/s"]
        notes = (
            f"Medians of {chosen.rounds}. Kernel: from the request to the text of the reply. Browser: from that text"
            " to the picture, in Chromium without a GPU. A box opened: from the double-click to the picture, for up"
            f" to {BOXES} boxes of the graph one after the other, all of which stay open. Memory, values: from the"
            " request of the overlay to its text, the measurement included, + from that to the picture with these"
            " boxes. Frames: the lowest rate of panning and zooming with these boxes open; 60 is the most."
        )
        command = [sys.executable, blocks.__file__, "--json", "--rounds", str(chosen.rounds)]
        cells = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1]
        steps = training.rows(chosen.rounds, training.SECONDS)
        tables = {
            "Graphs in the lab": Table(header, rows, notes),
            "Cells beside a model of 10,000 Blocks": Table(*json.loads(cells), blocks.NOTE),
            "Steps of a training": Table(training.HEADER, steps, training.NOTE),
        }
        write_tables("lab", tables)


if __name__ == "__main__":
    main()
