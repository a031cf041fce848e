"""Items handed to worker processes, one at a time each; a worker that hangs, dies or has lost its GPU is replaced."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_day.options import Budget, Item
from gpu_day.results import DIED, LATE, Results

#: Seconds in which a worker must have imported everything and found the GPU.
START_LIMIT = 180.0
#: So many workers in a row may fail to start before the stage gives up.
STARTS = 3
#: A killed process has so many seconds to end.
ENDING = 5.0


class WorkersFailed(RuntimeError):
    """No worker process could be started; the message says why."""


def end_process(process: subprocess.Popen[Any]) -> bool:
    """Kill a process that leads a session, and all that it has started; whether it has ended.

    A process that waits inside the driver of a GPU does not end before the driver answers. Such a process is left
    behind after ENDING seconds, because the driver of a broken GPU may never answer.
    """
    if process.returncode is None:  # else its number may be another process's by now
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(ENDING)
    except subprocess.TimeoutExpired:
        return False
    return True


class Worker:
    """One worker process. item : what it is at, None before it is ready; since : when that began"""

    def __init__(self, command: Sequence[str]):
        self.item: Item | None = None
        self.ready = False
        self.since = time.monotonic()
        self.errors = tempfile.TemporaryFile()
        self.pipe = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True
        )

    def give(self, item: Item, now: float) -> None:
        self.item, self.since = item, now
        assert self.pipe.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its end is seen at the other pipe
            self.pipe.stdin.write(json.dumps(item.name).encode() + b"\n")
            self.pipe.stdin.flush()

    def answer(self) -> dict[str, Any] | None:
        """The answer that has come; None where the process has ended instead."""
        assert self.pipe.stdout is not None
        try:
            return json.loads(self.pipe.stdout.readline())
        except ValueError:
            return None

    def end(self, log: Path) -> str:
        """End the process and what it has started, and put what it printed into the log; the last of it is returned."""
        has_ended = end_process(self.pipe)
        for stream in (self.pipe.stdin, self.pipe.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        with self.errors as file:
            file.seek(0)
            text = file.read().decode(errors="replace")
        if not has_ended:
            text += f"\nprocess {self.pipe.pid} was killed and has not ended: the driver may still be at work for it\n"
        with log.open("a", encoding="utf-8") as file:
            file.write(text)
        return "\n".join(text.strip().splitlines()[-15:])[-2000:]


def run_items(
    items: Sequence[Item], command: Sequence[str], results: Results, budget: Budget, jobs: int, fresh: bool = False
) -> bool:
    """Run the items in this order, `jobs` at a time; whether all were run before the time was up.

    fresh : every item has a worker process of its own
    Items that are still running when the time is up have no record, so that the next run begins with them; they are
    in `results.running`. Raises WorkersFailed.
    """
    results.path.parent.mkdir(parents=True, exist_ok=True)
    waiting, workers, failures, done = deque(items), list[Worker](), 0, 0
    with selectors.DefaultSelector() as selector:

        def start() -> None:
            worker = Worker(command)
            worker.since = budget.clock()
            workers.append(worker)
            selector.register(worker.pipe.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]

        def leave(worker: Worker) -> str:
            selector.unregister(worker.pipe.stdout)  # type: ignore[arg-type]
            workers.remove(worker)
            return worker.end(results.log)

        try:
            while (waiting or any(worker.item for worker in workers)) and budget.left() > 0:
                while len(workers) < min(jobs, len(waiting) + sum(worker.item is not None for worker in workers)):
                    start()
                ready = [key.data for key, _ in selector.select(min(0.5, max(budget.left(), 0)))]
                now = budget.clock()
                late = [each for each in workers if now - each.since > (each.item.limit if each.item else START_LIMIT)]
                for worker in dict.fromkeys([*ready, *(each for each in late if each.item or not each.ready)]):
                    answer = None if worker in late and worker not in ready else worker.answer()
                    item, seconds = worker.item, round(now - worker.since, 2)
                    if item is None and answer is not None and "machine" in answer:
                        worker.ready, failures = True, 0
                        results.describe(answer["machine"])
                    elif item is None:
                        said = leave(worker) if answer is None else (leave(worker) and "") + answer["error"]
                        failures += 1
                        if failures >= STARTS or (answer is not None and "error" in answer):
                            raise WorkersFailed(said or "a worker process did not start")
                        continue
                    elif answer is None:
                        status = LATE if worker in late else DIED
                        said = leave(worker)
                        if status == LATE:  # tables show the last line
                            said += f"\nit was ended after {seconds:.0f} s, its limit is {item.limit:.0f} s"
                        elif not said:
                            said = f"its process ended with status {worker.pipe.returncode} and said nothing"
                        done += 1
                        results.add(item.name, {"status": status, "seconds": seconds, "error": said})
                        continue
                    else:
                        worker.item = None
                        done += 1
                        lost = answer.pop("lost", False)
                        results.add(item.name, {"seconds": seconds, **answer})
                        if lost or fresh:
                            leave(worker)
                            continue
                    if waiting:
                        worker.give(waiting.popleft(), budget.clock())
                    else:
                        leave(worker)
        finally:
            now = budget.clock()
            results.running = {each.item.name: now - each.since for each in workers if each.item}
            for worker in list(workers):
                leave(worker)
    return done == len(items)
