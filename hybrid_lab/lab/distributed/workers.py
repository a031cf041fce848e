"""Workers of a notebook: processes of ipyparallel that train together, and the cells that run in all of them."""

from __future__ import annotations

import copy
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.errors import EngineUnavailable, SettingError
from hybrid_lab.diagnostics.formatting import first_line
from hybrid_lab.distributed.errors import WorkerLostError, WorkersError
from hybrid_lab.lab.distributed import process
from hybrid_lab.lab.distributed.board import board
from hybrid_lab.lab.distributed.news import KEY, News
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.messages.common import JsonObject
from hybrid_lab.lab.messages.workers import WorkerRow, WorkersReply, WorkerState
from hybrid_lab.lab.places import running_cell

_PATIENCE = 3.0
"""Seconds that workers may go on after one of them has failed: they may wait for it."""
_LOOK = 0.05
_TOGETHER = 1.0
"""Seconds that a line waits for the same line of the other workers."""
_SHOW = 0.5
"""Least seconds between two pictures of the workers in the panel."""
_WATCH = 1.0
"""Seconds between two looks at who is lost, while no cell runs."""
_DRAWN = 16
"""Workers whose curves the panel draws: the first ones."""
_ANSWER = 120.0
"""Seconds in which rank 0 answers a request about its models."""


class WorkerCellError(HybridLabError):
    """A cell raised in a worker; its traceback is shown above. ranks : the workers in which it did"""

    def __init__(self, message: str, ranks: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)


class Worker(NamedTuple):
    """One worker. state : "idle", "busy" or "lost" """

    rank: int
    host: str
    pid: int
    state: str


class Workers:
    """Processes that train together. `mx.lab.workers(2)` starts them; `%%workers` runs a cell in all of them.

        workers = mx.lab.workers(2)

        %%workers
        import hybrid_lab as mx
        store = mx.kv.create("dist_sync")
        print(store.rank, store.num_workers)

    `%%workers 0` runs a cell in one of them, `%%workers 1-3` in some. Text that all workers print is shown once; any
    other line has the numbers of the workers that printed it. The stop button stops all of them.
    """

    def __init__(self, client: Any, cluster: Any) -> None:
        self._client, self._cluster = client, cluster
        self._ids: list[int] = sorted(client.ids)
        self._lost: set[int] = set()
        facts = client[:].apply_sync(process.facts)
        self._places = [(host, pid) for host, pid, _, _ in facts]
        self._facts = [(device, memory) for _, _, device, memory in facts]
        self._news: dict[int, News] = {}
        self._problems: dict[int, str] = {}
        self._replies: dict[str, Any] = {}
        self._running: dict[int, Any] = {}
        self._shown = 0.0
        self._begin()
        board.connect(self)
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="workers", daemon=True).start()
        self._show()

    def _begin(self) -> None:
        near = self._cluster is not None
        address = "127.0.0.1" if near else self._places[0][0]
        port = self._client[self._ids[0]].apply_sync(process.free_port)
        local: dict[str, int] = {}
        for rank, engine in enumerate(self._ids):
            host = self._places[rank][0]
            local_rank = local[host] = local.get(host, -1) + 1
            place = {
                "RANK": rank,
                "WORLD_SIZE": len(self._ids),
                "LOCAL_RANK": local_rank,
                "LOCAL_WORLD_SIZE": sum(other == host for other, _ in self._places),
                "MASTER_ADDR": address,
                "MASTER_PORT": port,
            }
            parent = os.getpid() if near else 0
            controller = self._cluster.controller.process.pid if near else 0
            self._client[engine].apply_sync(process.begin, place, os.getcwd(), parent, controller)

    def __len__(self) -> int:
        return len(self._ids)

    def __repr__(self) -> str:
        lines = [f"{len(self)} workers"]
        lines += [f"  rank {row.rank}  {row.host}  process {row.pid}  {row.state}" for row in self.rows()]
        return "\n".join(lines)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def rows(self) -> list[Worker]:
        """The workers: rank, machine, process, and what each does."""
        there = set(self._client.ids)
        busy = {rank for rank, result in self._running.items() if not result.ready()}
        return [
            Worker(rank, *self._places[rank], "lost" if engine not in there else "busy" if rank in busy else "idle")
            for rank, engine in enumerate(self._ids)
        ]

    def run(self, code: str, ranks: Sequence[int] | None = None) -> None:
        """Run code in all workers, or in some, and show what they print.

        Raises WorkerCellError if the code raised, WorkerLostError if a worker ended. When one has failed, the others
        are interrupted, since they may wait for it.
        """
        chosen = list(range(len(self))) if ranks is None else list(ranks)
        for rank in chosen:
            if not 0 <= rank < len(self):
                raise SettingError(f"there is no worker {rank}; the ranks are 0 to {len(self) - 1}")
        self._check_lost()
        if len(chosen) == len(self):
            self._rejoin()
        for rank in chosen:
            self._problems.pop(rank, None)
        views = {rank: self._client[self._ids[rank]] for rank in chosen}
        for view in views.values():
            view.apply_async(process.number_cell, _number())
        running = {rank: view.execute(code, silent=False, block=False) for rank, view in views.items()}
        self._running |= running
        output = _Output(chosen)
        try:
            self._show()
            self._follow(running, output)
        except KeyboardInterrupt:
            self.interrupt()
            self._follow(running, output, time.monotonic() + _PATIENCE)
            output.end()
            raise
        finally:
            self._ended(running)
        output.end()
        self._report(running)

    def _follow(self, running: dict[int, Any], output: _Output, until: float = float("inf")) -> None:
        """Show what workers print until all have ended."""
        failed = float("inf")
        while time.monotonic() < until:
            for rank, result in running.items():
                output.take(rank, result.stdout or "", result.stderr or "")
            output.show()
            self._hear(running)
            ended = [rank for rank, result in running.items() if result.ready()]
            if len(ended) == len(running):
                for rank, result in running.items():  # what was printed last comes by another way
                    result.wait_for_output(_TOGETHER)
                    output.take(rank, result.stdout or "", result.stderr or "")
                return
            if failed == float("inf") and any(not running[rank].successful() for rank in ended):
                failed = time.monotonic()
            if time.monotonic() - failed > _PATIENCE:
                self.interrupt([rank for rank in running if rank not in ended])
                failed = float("inf")
                until = min(until, time.monotonic() + 2 * _PATIENCE)
            time.sleep(_LOOK)

    def _report(self, running: dict[int, Any]) -> None:
        """Raise for the cell's errors: first the workers' own errors, then the errors of workers that waited for
        them.
        """
        self._check_lost()
        errors = {rank: result.exception() for rank, result in running.items() if result.ready()}
        errors = {rank: error for rank, error in errors.items() if error is not None}
        missing = [rank for rank, result in running.items() if not result.ready()]
        if not errors and not missing:
            return
        own = {rank: error for rank, error in errors.items() if _kind(error) not in _FOLLOWING}
        shown: dict[str, list[int]] = {}
        for rank, error in (own or errors).items():
            shown.setdefault(f"{_kind(error)}: {_value(error)}", []).append(rank)
        for message, ranks in shown.items():
            trace = getattr(errors[ranks[0]], "traceback", "")
            print(f"{_named(ranks)} {message}\n{trace if isinstance(trace, str) else ''}", file=sys.stderr)
        told = "; ".join(f"{_named(ranks)} {message}" for message, ranks in shown.items())
        if missing:
            told += f"; {_named(missing)} did not end"
        raise WorkerCellError(told, sorted(own or errors))

    def _check_lost(self) -> None:
        gone = [rank for rank, engine in enumerate(self._ids) if engine not in self._client.ids]
        if gone:
            hosts = [self._places[rank][0] for rank in gone]
            raise WorkerLostError(
                f"{_named(gone)} ended ({', '.join(sorted(set(hosts)))}). workers.close(), then mx.lab.workers(...) "
                "starts new ones",
                gone,
                hosts,
            )

    def _rejoin(self) -> None:
        """Let workers whose exchange was interrupted join again; they keep their variables."""
        if any(self._client[:].apply_sync(process.broken)):
            port = self._client[self._ids[0]].apply_sync(process.free_port)
            self._client[:].apply_sync(process.rejoin, port)

    # -- the panel -----------------------------------------------------------------------------------------------

    def _hear(self, running: dict[int, Any]) -> None:
        """Take what workers have told of their training, and show it from time to time."""
        new = False
        for rank, result in running.items():
            news = (result.data or {}).get(KEY)
            if news is not None and news is not self._news.get(rank):
                self._news[rank], new = news, True
        if new and time.monotonic() - self._shown >= _SHOW:
            self._show()

    def _ended(self, running: dict[int, Any]) -> None:
        """A cell has ended in these workers: show their last news and errors, and the models of rank 0."""
        errors = {rank: result.exception() for rank, result in running.items() if result.ready()}
        for rank, error in errors.items():
            if error is not None:
                self._problems[rank] = ": ".join(filter(None, [_kind(error), _value(error)]))
        self._hear(running)
        if 0 in running and running[0].ready():
            self._replies.clear()
            board.look()
        self._show()

    def _show(self) -> None:
        self._shown = time.monotonic()
        board.show(self.data())

    def _watch(self) -> None:
        """Show workers that are lost while no cell runs."""
        there = set(self._client.ids)
        while not self._closed.wait(_WATCH):
            now = set(self._client.ids)
            if now != there:
                there = now
                self._show()

    def data(self) -> WorkersReply:
        """The workers as the panel shows them."""
        rows = [self._row(worker) for worker in self.rows()]
        samples = sum(self._news[row["rank"]]["samples"] for row in rows if row["rate"] and row["state"] == "busy")
        headline = f"{len(rows)} worker{'s' if len(rows) > 1 else ''}"
        if samples:
            headline += f", {_rate(samples)} samples/s"
        lost = [row["rank"] for row in rows if row["state"] == "lost"]
        if lost:
            headline += f"; {_named(lost)} ended"
        latest = max((news["number"] for news in self._news.values()), default=0)
        drawn = [rank for rank, news in sorted(self._news.items()) if news["curves"] and news["number"] == latest]
        note = "" if len(drawn) <= _DRAWN else f"the curves show the first {_DRAWN} workers"
        curves = [{"rank": rank, "curves": self._news[rank]["curves"]} for rank in drawn[:_DRAWN]]
        return {"headline": headline, "note": note, "workers": rows, "curves": curves}  # type: ignore[typeddict-item]

    def _row(self, worker: Worker) -> WorkerRow:
        rank = worker.rank
        device, memory = self._facts[rank]
        news = self._news.get(rank)
        problem, state = self._problems.get(rank, ""), cast(WorkerState, worker.state)
        if problem and state == "idle":
            state, problem = ("interrupted", "") if problem.startswith("KeyboardInterrupt") else ("failed", problem)
        return {
            "rank": rank,
            "host": worker.host,
            "process": worker.pid,
            "device": device if news is None else news["device"],
            "state": state,
            "step": 0 if news is None else news["step"],
            "loss": "" if news is None else news["loss"],
            "rate": "" if news is None or not news["samples"] else _rate(news["samples"]),
            "memory": memory if news is None else news["memory"],
            "problem": problem,
        }

    def ask_first(self, kind: str, body: JsonObject) -> dict[str, object]:
        """The answer of rank 0's lab to a request of the panel; while a cell runs there, its last answer.

        Raises RequestError.
        """
        key = json.dumps([kind, body], sort_keys=True)
        first = self.rows()[0]
        if first.state == "busy" and key in self._replies:
            return copy.deepcopy(self._replies[key])
        if first.state != "idle":
            why = "runs a cell" if first.state == "busy" else "has ended"
            raise RequestError(
                "busy", f"rank 0 {why}; its model answers when it is idle", "Look again when it has ended."
            )
        result = self._client[self._ids[0]].apply_async(process.answer, kind, body)
        try:
            is_reply, reply = result.get(_ANSWER)
        except Exception as error:  # of ipyparallel: a worker that was lost meanwhile, or a time-out
            raise RequestError("failed", f"rank 0 did not answer: {first_line(error)}") from None
        if not is_reply:
            raise RequestError(reply["code"], reply["message"], reply["next"], reply["details"])
        self._replies[key] = reply
        return copy.deepcopy(reply)

    # -- control -------------------------------------------------------------------------------------------------

    def interrupt(self, ranks: Sequence[int] | None = None) -> None:
        """Stop what workers run, as the stop button does."""
        for rank in range(len(self)) if ranks is None else ranks:
            if self._ids[rank] in self._client.ids:
                self._client.send_signal(signal.SIGINT, targets=self._ids[rank], block=False)

    def __getitem__(self, rank: int) -> Any:
        """One worker's variables: `workers[0]["loss"]` reads one, as ipyparallel's views do."""
        return self._client[self._ids[rank]]

    def close(self) -> None:
        """End all processes. Workers of a cluster that was running before stay, without the group."""
        global _workers
        self._closed.set()
        if _workers is self:
            _workers = None
            board.clear()
        if self._cluster is not None:
            self._client.close()
            self._cluster.stop_cluster_sync()
            self._cluster = None
        else:
            self._client.close()


_FOLLOWING = ("WorkerLostError", "WorkerTimeoutError", "KeyboardInterrupt", "WorkersError")
"""What workers raise because another one has failed."""
_workers: Workers | None = None


def workers(
    count: int | None = None, *, profile: str | None = None, cluster_id: str | None = None, threads: int | None = None
) -> Workers:
    """Start workers on this machine, or join the workers of a running cluster of ipyparallel.

    `%%workers` runs cells in them.

    count : how many to start
    profile, cluster_id : of a cluster that `ipcluster start` has started, by Slurm, MPI or ssh; then no count is given
    threads : threads of each worker; by default the processors are divided among them
    They end with `workers.close()`, when others are started, and when the kernel ends, however it ends.
    Raises EngineUnavailable without ipyparallel, WorkersError if workers do not start.
    """
    global _workers
    joins = profile is not None or cluster_id is not None
    if joins == (count is not None):
        raise SettingError("mx.lab.workers takes a number of workers, or profile= or cluster_id= of a running cluster")
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1024):
        raise SettingError(f"the number of workers is a whole number from 1 on, not {count!r}")
    if sys.platform == "emscripten":
        raise EngineUnavailable("mx.lab.workers: Python in a browser starts no processes; use a Jupyter server")
    try:
        import ipyparallel
    except ImportError:
        raise EngineUnavailable("mx.lab.workers needs ipyparallel: pip install 'hybrid-lab[dist]'") from None
    if _workers is not None:
        _workers.close()
    if joins:
        client, cluster = ipyparallel.Client(profile=profile, cluster_id=cluster_id or ""), None
        if not client.ids:
            raise WorkersError("the cluster has no engines yet; wait for them, or start some with ipcluster")
    else:
        client, cluster = _start(ipyparallel, count or 1, threads)
    _workers = Workers(client, cluster)
    _register()
    return _workers


def _start(ipyparallel: Any, count: int, threads: int | None) -> tuple[Any, Any]:
    share = threads or max((os.cpu_count() or 1) // count, 1)
    before = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "PYDEVD_DISABLE_FILE_VALIDATION")}
    os.environ |= {"OMP_NUM_THREADS": str(share), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    cluster = ipyparallel.Cluster(n=count, log_level=40, shutdown_atexit=True)
    try:
        return cluster.start_and_connect_sync(), cluster
    except (OSError, TimeoutError, RuntimeError) as error:
        cluster.stop_cluster_sync()
        raise WorkersError(f"{count} workers did not start: {error}") from None
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _register() -> None:
    """Let IPython know `%%workers`, in a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        shell.register_magic_function(_cell, "cell", "workers")


def _cell(line: str, cell: str) -> None:
    """`%%workers [RANKS]`: run the cell in all workers, or in some: `%%workers 0`, `%%workers 0,2`, `%%workers 1-3`."""
    if _workers is None:
        raise WorkersError("there are no workers; mx.lab.workers(2) starts two")
    # The line of the magic stays a line, so that errors name the lines of the notebook's cell.
    _workers.run(cell if cell.startswith("%%") else f"# %%workers {line}\n{cell}", _ranks(line))


def _number() -> int:
    """The number of the notebook's cell that runs; 0 if there is none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return 0 if shell is None else running_cell(shell)


def _ranks(line: str) -> list[int] | None:
    text = line.replace(" ", "")
    if not text:
        return None
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part)
        if match is None:
            raise SettingError(f"%%workers takes ranks such as 0, 0,2 or 1-3, not {line.strip()!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        found |= set(range(first, last + 1))
    return sorted(found)


def _kind(error: Any) -> str:
    return str(getattr(error, "ename", type(error).__name__))


def _value(error: Any) -> str:
    return str(getattr(error, "evalue", error)).split("\n")[0]


def _rate(samples: float) -> str:
    return f"{samples:,.0f}" if samples >= 10 else f"{samples:.2g}"


def _named(ranks: Sequence[int]) -> str:
    """ "rank 0", "ranks 0-2, 5" """
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and parts[-1][1] == rank - 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
    return f"rank{'s' if len(ranks) > 1 else ''} {text}"


class _Output:
    """What workers print: lines that all of them print are shown once."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self._ranks = list(ranks)
        self._lines: dict[int, list[tuple[str, Any]]] = {rank: [] for rank in ranks}
        self._read = {rank: [0, 0] for rank in ranks}
        self._rest = {rank: ["", ""] for rank in ranks}
        self._since: dict[int, float] = {}

    def take(self, rank: int, stdout: str, stderr: str) -> None:
        """Read what a worker has printed so far."""
        for number, (text, file) in enumerate(((stdout, sys.stdout), (stderr, sys.stderr))):
            new = self._rest[rank][number] + text[self._read[rank][number] :]
            self._read[rank][number] = len(text)
            *lines, self._rest[rank][number] = new.split("\n")
            if lines and not self._lines[rank]:
                self._since[rank] = time.monotonic()
            self._lines[rank] += [(line, file) for line in lines]

    def show(self, rest: bool = False) -> None:
        """Show the lines that all workers have, and lines that have waited long enough."""
        while any(self._lines.values()):
            waiting = [rank for rank in self._ranks if self._lines[rank]]
            late = any(time.monotonic() - self._since.get(rank, 0) > _TOGETHER for rank in waiting)
            if len(waiting) < len(self._ranks) and not (rest or late):
                return
            groups: dict[tuple[str, Any], list[int]] = {}
            for rank in waiting:
                groups.setdefault(self._lines[rank].pop(0), []).append(rank)
                self._since[rank] = time.monotonic()
            for (line, file), ranks in groups.items():
                label = "" if len(ranks) == len(self._ranks) else f"[{_named(ranks).split(' ', 1)[1]}] "
                print(f"{label}{line}", file=file, flush=True)

    def end(self) -> None:
        """Show all that is left."""
        for rank in self._ranks:
            for number, file in enumerate((sys.stdout, sys.stderr)):
                if self._rest[rank][number]:
                    self._lines[rank].append((self._rest[rank][number], file))
                    self._rest[rank][number] = ""
        self.show(rest=True)
