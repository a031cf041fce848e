"""Kill a random worker at random moments of a training, which then resumes and is killed again, until it ends.

The training tells what it does, so that the moment lies where it was drawn: in a step, in a checkpoint, or in the
start. The other workers must notice in time, no process may be left, and the training must end with the bits of one
that was not killed.

python benchmarks/workers/kills.py [100] [--workers 2] [--seed 0] [--steps 48]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from benchmarks import harness  # noqa: E402
from tests.distributed.workers import environment, free_port  # noqa: E402

PLACES = {"start": 0.15, "step": 0.5, "checkpoint": 0.35}
"""Where a worker is killed -> how often."""
IN = {"start": "in a start", "step": "in a step", "checkpoint": "in a checkpoint", "end": "after its last step"}
WORDS = {"start": "started", "step": "step", "checkpoint": "save"}
"""Where a worker is killed -> what it tells there first."""
NOTICE = 10.0
"""Seconds in which the others must raise WorkerLostError."""
SLOW = 90.0
"""Seconds without a word of any worker after which the stacks of all are printed."""
PATIENCE = 400.0
"""Seconds without a word after which the training is a failure."""
MOST = 8
"""A worker is killed within so many steps of each start."""


class Worker:
    """One process, and what it has told: pairs of a moment and words."""

    def __init__(self, rank, size, port, folder, steps, kill=()):
        self.rank, self.told, self.log = rank, [], folder / f"rank{rank}.log"
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "killed.py"), str(folder), str(steps), *map(str, kill)],
            env=environment(rank, size, port) | {"PYTHONPATH": str(HERE.parents[1])},
            stdout=subprocess.PIPE,
            stderr=self.log.open("ab"),
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            moment, *words = line.decode().split()
            self.told.append((float(moment), words))

    def has_told(self, word):
        """The moment at which it told this word first, or None."""
        return next((moment for moment, words in [*self.told] if words[0] == word), None)

    @property
    def last(self):
        """The last line that the worker wrote about its training."""
        return next((words for _, words in self.told[::-1] if words[0] != "until"), ["started"])

    @property
    def place(self):
        """Where that was: a key of PLACES, or "end"."""
        places = {"started": "start", "imported": "start", "save": "checkpoint", "done": "end"}
        return places.get(self.last[0], "step")

    @property
    def killed(self):
        """The moment at which it was killed; None before, and where it was not."""
        if self.process.poll() != -signal.SIGALRM:
            return None
        self.reader.join()
        return next(float(words[1]) for _, words in self.told if words[0] == "until")

    @property
    def ended(self):
        return self.process.poll() is not None


class Campaign:
    """All kills of one command.

    lasts : what the training does -> how many seconds it has taken lately
    """

    def __init__(self, size, steps, seed, places):
        self.size, self.steps, self.draws, self.places = size, steps, random.Random(seed), places
        self.lasts = {"start": [4.0], "step": [0.02], "checkpoint": [0.02]}
        self.kills, self.problems, self.alone = Counter(), [], 0
        self.notices, self.ends = [], []
        self.phases = {"import": [0.0], "join": [0.0], "restore": [0.0]}
        self.left = self.trainings = 0

    def start(self, folder, victim=None, kill=()):
        port = free_port()
        ways = [kill if rank == victim else () for rank in range(self.size)]
        return [Worker(rank, self.size, port, folder, self.steps, way) for rank, way in enumerate(ways)]

    def uninterrupted(self, folder):
        """The values of a training that nobody kills, rank by rank."""
        workers = self.start(folder)
        self.wait(workers, lambda: all(each.ended for each in workers))
        self.learn(workers)
        return self.values(folder)

    def values(self, folder):
        return [dict(np.load(folder / f"rank{rank}.npz")) for rank in range(self.size)]

    def train(self, folder, expected, count):
        """Train in a folder, with up to so many kills; how many there were."""
        done = 0
        while self.run_until_killed(folder, done < count):
            done += 1
        self.trainings += 1
        try:
            values = self.values(folder)
        except OSError:
            self.problem("the training did not end")
            return done
        for rank, (own, other) in enumerate(zip(values, expected, strict=True)):
            differ = [name for name in other if not np.array_equal(own.get(name), other[name])]
            if differ:
                self.problem(f"rank {rank} ended with other values of {', '.join(differ)}")
        return done

    def run_until_killed(self, folder, kills):
        """Start the training, and kill one worker at a moment that is drawn; whether one was, before the end."""
        victim, place = self.draws.randrange(self.size), self.draws.choices([*self.places], self.places.values())[0]
        number = 1 if place == "start" else self.draws.randint(1, MOST)
        seconds = self.draws.uniform(0, statistics.median(self.lasts[place][-50:]))
        workers = self.start(folder, victim if kills else None, (WORDS[place], number, max(seconds, 1e-6)))
        self.wait(workers, lambda: workers[victim].killed or all(each.ended for each in workers))
        moment = workers[victim].killed
        if moment:
            lost, others = workers[victim], [each for each in workers if each.rank != victim]
            self.kills[lost.place] += 1
            self.end_others(others, lost, moment)
            noticed = [told - moment for each in others if (told := each.has_told("lost"))]
            print(
                f"{sum(self.kills.values())}: rank {victim} {IN[lost.place]} ({' '.join(lost.last)})"
                + (f", noticed after {max(noticed):.2f} s" if noticed else ""),
                flush=True,
            )
        self.learn(workers)
        for each in workers:
            each.process.kill()
            each.process.wait()
        return moment is not None

    def end_others(self, others, victim, moment):
        """Wait for the end of the other workers; note how long it took."""
        joined = all(each.has_told("joined") for each in others)
        if not joined:  # these know of no other worker yet: their launcher ends them, as torchrun does
            self.alone += 1
            for each in others:
                each.process.terminate()
        while time.time() - moment < 6 * NOTICE and not all(each.ended for each in others):
            time.sleep(0.01)
        self.ends.append(time.time() - moment)
        for each in others:
            if not each.ended:
                self.left += 1
                self.problem(f"rank {each.rank} is left {6 * NOTICE:g} s after the end of rank {victim.rank}")
                show_stacks([each])
                each.process.kill()
            each.process.wait()
            each.reader.join()
            noticed = each.has_told("lost")
            if noticed is not None:
                self.notices.append(noticed - moment)
                if noticed - moment > NOTICE:
                    self.problem(f"rank {each.rank} noticed after {noticed - moment:.1f} s")
            elif joined and each.has_told("done") is None:
                tail = each.log.read_text(errors="replace")[-1500:]
                self.problem(f"rank {each.rank} did not raise WorkerLostError:\n{tail}")

    def wait(self, workers, condition):
        """Until the condition holds; print the stacks of workers that say nothing for long."""
        told, since, shown = 0, time.time(), False
        while not condition():
            time.sleep(0.001)
            now = sum(len(each.told) for each in workers)
            if now != told:
                told, since, shown = now, time.time(), False
            if time.time() - since > SLOW and not shown:
                shown = True
                print(f"no word for {SLOW:g} s; the last ones: {[each.told[-1:] for each in workers]}", flush=True)
                show_stacks(workers)
            if time.time() - since > PATIENCE:
                self.problem(f"no word for {PATIENCE:g} s: a hang")
                for each in workers:
                    each.process.kill()
                return

    def learn(self, workers):
        """Note how long the start, steps and checkpoints take."""
        for each in workers:
            told = [pair for pair in each.told if pair[1][0] != "until"]
            for (then, (word, *_)), (now, _) in zip(told, told[1:], strict=False):
                if word in ("step", "save"):
                    self.lasts["checkpoint" if word == "save" else word].append(now - then)
            joined = each.has_told("joined")
            if joined is not None:
                self.lasts["start"].append(joined - told[0][0])
            words = ["started", "imported", "joined", "restored"]
            for name, first, then in zip(self.phases, words, words[1:], strict=False):
                if each.has_told(then):
                    self.phases[name].append(each.has_told(then) - each.has_told(first))

    def problem(self, text):
        self.problems.append(text)
        print(f"PROBLEM: {text}", flush=True)

    def table(self):
        """The figures, as the rows of the page."""
        return [
            ("kills", str(sum(self.kills.values()))),
            *((f"in a {place}", str(self.kills[place])) for place in ("step", "checkpoint", "start")),
            ("after its last step", str(self.kills["end"])),
            ("of those in a start, before the others had joined: the launcher ends them", str(self.alone)),
            ("longest time to WorkerLostError", f"{max(self.notices, default=0.0):.2f} s"),
            ("median time to WorkerLostError", f"{statistics.median(self.notices or [0.0]):.2f} s"),
            ("longest time to the end of all processes", f"{max(self.ends, default=0.0):.2f} s"),
            ("processes left", str(self.left)),
            *((f"longest time to {name}", f"{max(times):.1f} s") for name, times in self.phases.items()),
            ("trainings, each resumed until its end", str(self.trainings)),
            ("trainings that ended with other bits", str(sum("other values" in text for text in self.problems))),
            ("other problems", str(sum("other values" not in text for text in self.problems))),
        ]


def show_stacks(workers):
    """Print the Python stacks, and the native stacks of all threads if gdb is installed."""
    for each in workers:
        if each.ended:
            continue
        with open(f"/proc/{each.process.pid}/stat") as file:
            print(
                f"rank {each.rank}: ticks of the processor {file.read().rsplit(')', 1)[1].split()[11:13]}", flush=True
            )
        before = each.log.stat().st_size
        each.process.send_signal(signal.SIGUSR1)
        time.sleep(1)
        print(each.log.read_text(errors="replace")[before:], flush=True)
        if shutil.which("gdb"):
            command = ["gdb", "-p", str(each.process.pid), "-batch", "-ex", "thread apply all bt 12"]
            shown = subprocess.run(command, capture_output=True, text=True, timeout=120)
            print(shown.stdout[-12_000:], flush=True)


def campaign(count, size, steps, seed, places=PLACES):
    """Kill `count` workers."""
    each = Campaign(size, steps, seed, places)
    with tempfile.TemporaryDirectory() as home:
        whole = Path(home) / "whole"
        whole.mkdir()
        expected = each.uninterrupted(whole)
        while sum(each.kills.values()) < count:
            folder = Path(home) / f"training{each.trainings}"
            folder.mkdir()
            each.train(folder, expected, count - sum(each.kills.values()))
    return each


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    each = campaign(options.count, options.workers, options.steps, options.seed)
    rows = [[*row] for row in each.table()]
    if options.count >= 100:
        notes = (__doc__ or "").split("\n\n")[1].replace("\n", " ") + f" {options.workers} workers."
        harness.write_table("worker_kills", "Workers that are killed", ["", ""], rows, notes)
    else:
        print("\n".join(harness.Table(["", ""], rows).lines()))
    return len(each.problems)


if __name__ == "__main__":
    sys.exit(main())
