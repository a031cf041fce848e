"""What every benchmark shares: interleaved medians, peers in processes of their own, and the table with machine and
versions.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent


def median_ms(function: Callable[[], Any], repeats: int) -> float:
    """Median of single runs, in milliseconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


class Peer:
    """A peer's benchmark in its own Python; `median_ms(case, repeats)` runs one there while this process waits."""

    def __init__(self, python: Path, script: str):
        self.process = subprocess.Popen(
            [str(python), str(HERE / "peers" / script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, **request: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the peer's process ended")
        return json.loads(line)

    def median_ms(self, case: str, repeats: int) -> float:
        return self.ask(case=case, repeats=repeats)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


class Worker(Peer):
    """A process that answers requests (see serve.py). Once it has died, every answer is None."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]):
        # A file, not a pipe that nobody reads: compilers write a lot there.
        self.complaints = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.complaints, text=True, env=environment
        )

    def ask(self, **request: Any) -> Any:
        try:
            return super().ask(**request)
        except (RuntimeError, BrokenPipeError):
            return None

    def end(self) -> str:
        """Close it; the last line of its complaints where it died, else ""."""
        with contextlib.suppress(BrokenPipeError):
            self.close()
        with self.complaints as file:
            file.seek(0)
            lines = [line for line in file.read().splitlines() if line.strip()]
        return (lines or ["it died"])[-1] if self.process.wait() else ""


def oracle() -> Path | None:
    """The Python of the environment with the real MXNet, if `make oracle` has made it."""
    path = Path(os.environ.get("ORACLE", HERE.parent / ".oracle")) / "bin" / "python"
    return path if path.exists() else None


def interleaved(cases: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Each case's median over rounds; in a round every case runs once, so that a busy machine slows all alike."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, measure in cases.items():
            found[name].append(measure())
    return {name: statistics.median(times) for name, times in found.items()}


def machine() -> str:
    """Processor, cores, system and versions in one line."""
    import numpy

    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    versions = [f"Python {platform.python_version()}", f"numpy {numpy.__version__}"]
    for module in ("onnxruntime", "torch", "triton"):
        if module in sys.modules:
            versions.append(f"{module} {sys.modules[module].__version__}")
    return f"{model}, {os.cpu_count()} cores, {platform.system()}; {', '.join(versions)}"


class Table(NamedTuple):
    """notes : below the table"""

    header: list[str]
    rows: list[list[str]]
    notes: str = ""

    def lines(self) -> list[str]:
        """The table in Markdown."""
        lines = ["| " + " | ".join(self.header) + " |", "|" + "---|" * len(self.header)]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return [*lines, *(["", self.notes] if self.notes else [])]


def write_table(name: str, title: str, header: list[str], rows: list[list[str]], notes: str = "") -> None:
    """Print the table and write it to results/<name>.md."""
    write_tables(name, {title: Table(header, rows, notes)})


def write_tables(name: str, tables: Mapping[str, Table]) -> None:
    """Print tables by title, the first of them that of the page, and write them to results/<name>.md."""
    lines: list[str] = []
    for title, table in tables.items():
        lines += ["", f"## {title}", "", *table.lines()] if lines else [f"# {title}", "", machine(), "", *table.lines()]
    text = "\n".join(lines) + "\n"
    print(text)
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / f"{name}.md").write_text(text, encoding="utf-8")
