"""A contest: the engines that could run one compiled call, compared on the call's own inputs; who leads, and why."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from hybrid_lab import forks
from hybrid_lab.diagnostics.words import first_line
from hybrid_lab.engines.choice import memory
from hybrid_lab.engines.choice.difference import difference
from hybrid_lab.engines.choice.executables import Clock, Executables
from hybrid_lab.engines.choice.trial import Trial
from hybrid_lab.engines.engine import Engine, Executable, Training
from hybrid_lab.engines.report import Report
from hybrid_lab.engines.threads import thread_count
from hybrid_lab.graph.graph import Graph
from hybrid_lab.log import logger

#: Calls faster than this (seconds) are left as they are: engines differ by less than the comparison costs.
SMALL = 2e-4
#: NumPy is compared in recorded calls without many convolutions, and below this (seconds) in others: in heavy ones
#: convolutions and products take the time, which NumPy does no faster, and comparing would hold one call up for long.
HEAVY = 5e-3
#: A call is compared when it comes for this many times after the first, which is slow for reasons of its own.
CALLS = 1
#: Recorded calls of more operators than this start in NumPy, whose programs are made in an instant; unless they have so
#: much to compute that another engine is done sooner all the same.
MANY = 150
#: An engine whose package still has to be imported is tried when the calls so far have taken this long (seconds), and
#: as long as so many calls; a third of both suffices where the disk says that it wins. Import and tuning take seconds,
#: or as long as ten calls where these are long: that pays only for work that goes on, and a script that is done in a
#: few seconds or a few calls never waits for it.
PATIENCE, PATIENT_CALLS = 3.0, 10
#: Where a part takes longer (seconds), calls are compared as they run: one rival at a time runs beside a call, which is
#: the leader's measurement too, and whoever loses is freed before the next one is built.
LONG = 0.05
#: There one disturbed run would decide: a rival that lost by less than this factor runs beside one more call.
CLOSE = 2
#: How much two engines may differ, relative to the largest value: forward, backward.
TOLERANCE = (1e-4, 1e-3)
#: A challenger takes over when it needs less than this part of the leader's time.
MARGIN = 0.97

#: Engine -> the package whose import takes long.
IMPORTS = {"torch": "torch"}

#: How the note begins on an engine that computes other numbers.
LEFT_OUT = "left out: "


class Contest:
    """One call: its graphs (forward; backward where it is recorded), compiled by the engine that leads.

    engines : name -> engine, the one to start with first; large recorded calls may start in NumPy
    options : of Engine.compile
    training : for a recorded call, `sources` and `num_outputs` of Engine.compile_training
    open : whether it is still to be decided who leads from then on
    settled : it is decided, and whoever lost has been freed
    built : the executables of those that take part
    """

    def __init__(
        self,
        graphs: Sequence[Graph],
        engines: dict[str, Engine],
        options: dict[str, Any],
        training: tuple[Any, int] | None = None,
        clock: Clock = time.perf_counter,
    ):
        self.graphs, self.engines, self.options, self.clock = tuple(graphs), engines, options, clock
        self.built, self._recorded = Executables(self.graphs, options, training), training is not None
        #: What everybody has to agree with; None: the leader decides.
        self._reference = engines.get("numpy")
        self._titles = {"numpy": "NumPy", **{name: engine.title for name, engine in engines.items()}}
        self.key = memory.key_of(self.graphs)
        self.seconds: dict[str, dict[int, float]] = {}
        self.notes: dict[str, str] = {}
        self.open, self.settled = True, False
        #: Every engine there was.
        self._everybody = list(engines.values())
        self._lock = forks.lock()
        self._spent, self._calls = 0.0, [0] * len(self.graphs)
        self._fastest = [float("inf")] * len(self.graphs)
        #: Rivals whose numbers were not the leader's: they are compared once more, with a judge.
        self._doubted: set[str] = set()
        #: Rivals that lost narrowly, and the seconds of their first round: they have a second, and no more.
        self._narrow: dict[str, dict[int, float]] = {}
        found = memory.recall(self.key)
        self.remembered = found["choice"] if found is not None and found["choice"] in engines else None
        large = training is not None and sum(len(graph.operators) for graph in self.graphs) > MANY
        self.leader = next(iter(engines))
        #: So many convolutions that NumPy is slower for sure; comparing it would take seconds.
        self._convolves = training is not None and engines[self.leader].pays_at_once(self.graphs)
        if large and "numpy" in engines and not self._convolves:
            self.leader = "numpy"
        if self.remembered is not None:
            assert found is not None
            self.notes = {name: f"{seconds * 1e3:.3g} ms before" for name, seconds in found["seconds"].items()}
            if self.remembered == self.leader or (self._ready(self.remembered) and not large):
                self.leader, self.open, self.settled = self.remembered, False, True
        self._compile(self.leader)

    def _compile(self, name: str) -> None:
        if not self._ready(name):
            title, graph = self._titles[name], self.graphs[0].name or "graph"
            logger.info(f"{graph}: compared with {title}, whose import takes a few seconds, once per process")
        self.built.compile(name, self.engines[name])

    @staticmethod
    def _ready(name: str) -> bool:
        """Whether the engine needs no long import."""
        return name not in IMPORTS or IMPORTS[name] in sys.modules

    def current(self, part: int) -> Executable:
        """What runs a part now."""
        return self.built.compiled[self.leader][part]

    @property
    def training(self) -> Training:
        """What runs recorded calls now. While engines are compared, all of them read what a forward keeps."""
        found = self.built.trainings[self.leader]
        return found.plain if self.open else found

    # -- while it is open ----------------------------------------------------------------------------------------

    def run(
        self,
        part: int,
        inputs: Sequence[np.ndarray],
        rng: tuple[int, int],
        run: Callable[[], Any],
        numbers: Callable[[Any], Sequence[np.ndarray]],
    ) -> Any:
        """Run a part for the caller; compare engines before it or beside it where the time has come.

        run : asks who leads and runs the part
        numbers : what that returned -> what the part's executable returns
        """
        if self._calls[part] >= CALLS and self._lock.acquire(blocking=False):
            try:
                if part == 0:
                    self._collect()
                trial = self._consider(part, inputs, rng) if self.open else None
                if trial is not None:
                    self.built.settle()
                    made, seconds = self._measured(part, run)
                    self._conclude(trial, part, numbers(made), seconds)
                    return made
            finally:
                self._lock.release()
        return self._measured(part, run)[0]

    def _measured(self, part: int, run: Callable[[], Any]) -> tuple[Any, float]:
        start = self.clock()
        made = run()
        seconds = self.clock() - start
        self._spent += seconds
        self._calls[part] += 1
        self._fastest[part] = min(self._fastest[part], seconds)
        return made, seconds

    def _consider(self, part: int, inputs: Sequence[np.ndarray], rng: tuple[int, int]) -> Trial | None:
        """End the contest where calls are short, compare where the time has come; or run one rival of a long call."""
        if self.built.packs and not self.built.packed and sum(self._fastest) >= SMALL:
            return None
        if self.remembered is not None:
            if part == 0 and self._may_import(self.remembered):
                self._adopt(self.remembered)
        elif sum(self._fastest) < SMALL:
            self._close(dict.fromkeys(self._rivals(), "not tried: the calls are short"))
        else:
            due, long = [name for name in self._rivals() if self._may_import(name)], self._is_long()
            if long or part in self.seconds.get(self.leader, ()):
                due = [name for name in due if part not in self.seconds.get(name, ())]
            doubted = [name for name in due if name in self._doubted]
            if doubted or (due and not long):
                self._compare(doubted or due, part, inputs, rng)
            elif due:
                return self._next(due, part, inputs, rng)
        return None

    def _is_long(self) -> bool:
        return any(LONG <= seconds < float("inf") for seconds in self._fastest)

    def _adopt(self, name: str) -> None:
        """Let the engine take over that the disk says is fastest."""
        try:
            self._compile(name)
        except Exception as error:  # what does not work here any more is compared anew
            self.remembered = None
            self._drop(name, f"not possible: {first_line(error)}")
            return
        self.leader = name
        self._keep_leader()

    # -- long calls: one rival at a time, beside the leader ------------------------------------------------------

    def _next(self, due: list[str], part: int, inputs: Sequence[np.ndarray], rng: tuple[int, int]) -> Trial | None:
        """Run the first rival that has a chance; None where nobody is to be compared with this part."""
        halfway = [name for name in self._rivals() if 0 < len(self.seconds.get(name, ())) < len(self.graphs)]
        for name in sorted(due, key=lambda name: name not in self._narrow):  # what is built goes first
            # Only who has run forward beside the leader runs backward, and before the next rival begins.
            if bool(part) != (name in halfway) or (halfway and not part):
                continue
            hopeless = self._hopeless(name, self._fastest[part])
            if hopeless:
                self._drop(name, hopeless)
                continue
            try:
                self._compile(name)
                return self.built.trial(name, part, inputs, rng, self.clock, LONG, 2 * self._fastest[part])
            except Exception as error:  # a challenger that fails must not fail the call
                self._drop(name, f"not possible: {first_line(error)}")
        self._decide()
        return None

    def _conclude(self, trial: Trial, part: int, wanted: Sequence[np.ndarray], seconds: float) -> None:
        """The leader has run beside a rival: compare their numbers and times."""
        name, leader = trial.name, self.leader
        text = difference(trial.results, wanted, TOLERANCE[min(part, 1)])
        trial.forget()
        self.built.release(name, part)
        if not self._is_long():
            self.seconds.clear()  # only the first call was: short calls are compared in more runs than one
        elif text:
            self._doubted.add(name)
        else:
            own = self.seconds.setdefault(leader, {})
            own[part] = min(seconds, own.get(part, seconds))
            theirs = self.seconds.setdefault(name, {})
            theirs[part] = min(trial.seconds, self._narrow.get(name, {}).get(part, trial.seconds))
            total = sum(theirs.values())
            if len(theirs) < len(self.graphs) and total * MARGIN > sum(self._fastest):
                self._drop(name, f"slower: {total * 1e3:.3g} ms for a part of the call")
            elif len(theirs) == len(self.graphs) and name not in self._narrow:
                leading = sum(own.values())
                if MARGIN * leading <= total < CLOSE * leading:
                    self._narrow[name] = self.seconds.pop(name)
            self._decide()
            if not self._recorded or self.leader == leader:
                # Else the backward of the old leader is still running for the caller.
                self._collect()

    # -- comparisons with further runs ---------------------------------------------------------------------------

    def _compare(self, due: list[str], part: int, inputs: Sequence[np.ndarray], rng: tuple[int, int]) -> None:
        """Time the leader and some rivals on this part; the fastest leads once all parts are timed."""
        results, seconds = self._timed(self.leader, part, inputs, rng)
        made = {self.leader: results}
        for name in due:
            hopeless = self._hopeless(name, seconds)
            if hopeless:
                self._drop(name, hopeless)
            else:
                self._challenge(name, part, inputs, rng, made, 2 * seconds)
        self._judge(part, inputs, rng, made)
        self._doubted.difference_update(due)
        self._decide()

    def _hopeless(self, name: str, seconds: float) -> str:
        """Why an engine need not be tried where the leader takes so long; "" where it is to be."""
        if name == "numpy" and seconds > HEAVY and (self._convolves or not self._recorded):
            return "not tried: too much work"
        if name == "numpy" and not any(found.report.regions for found in self.built.compiled[self.leader]):
            return f"not tried: {self.leader} leaves every operator to it"
        return ""

    def _decide(self) -> None:
        """Let the fastest lead once all parts are timed of all that have been tried."""
        waiting = self._narrow.keys() - self.seconds.keys()  # for a second round, and stay built for it
        if not self._rivals():
            self._close({})
        elif self.seconds and not waiting and all(len(found) == len(self.graphs) for found in self.seconds.values()):
            if all(name in self.seconds for name in self.engines):
                self._close({})
            else:
                self._lead()
                self.built.let_go(*(name for name in self.built.compiled if name != self.leader))

    def _rivals(self) -> list[str]:
        return [name for name in self.engines if name != self.leader]

    def _may_import(self, name: str) -> bool:
        a_call = sum(seconds for seconds in self._fastest if seconds < float("inf"))
        wanted = max(PATIENCE, PATIENT_CALLS * a_call)
        return self._ready(name) or self._spent >= (wanted / 3 if name == self.remembered else wanted)

    def _challenge(
        self,
        name: str,
        part: int,
        inputs: Sequence[np.ndarray],
        rng: tuple[int, int],
        made: dict[str, list[np.ndarray]],
        limit: float,
    ) -> None:
        """Time one rival; its results go into `made`."""
        try:
            self._compile(name)
            made[name], _ = self._timed(name, part, inputs, rng, limit)
        except Exception as error:  # a challenger that fails must not fail the call
            self._drop(name, f"not possible: {first_line(error)}")

    def _judge(
        self, part: int, inputs: Sequence[np.ndarray], rng: tuple[int, int], made: dict[str, list[np.ndarray]]
    ) -> None:
        """Leave out who computes other numbers than NumPy, the leader too; without NumPy, than the leader.

        made : name -> results. NumPy is asked only where some differ, if it has not run anyway.
        """
        tolerance = TOLERANCE[min(part, 1)]
        wanted, judge = made[self.leader], self.leader
        if not any(difference(results, wanted, tolerance) for results in made.values()):
            return
        if self._reference is not None:
            judge = "numpy"
            wanted = made.get(judge) or self._reference.compile(self.graphs[part], **self.options).run(inputs, rng)
        found = {name: difference(results, wanted, tolerance) for name, results in made.items() if name != judge}
        wrong = {name: text for name, text in found.items() if text}
        if self.leader in wrong:
            sound = [name for name in made if name not in wrong]
            if not sound:
                assert self._reference is not None
                self.engines = {**self.engines, judge: self._reference}
                self.notes.pop(judge, None)
                self._compile(judge)
            self.leader = min(sound, key=lambda name: self.seconds[name][part], default=judge)
        for name, text in wrong.items():
            logger.warning(
                f"{self.graphs[part].name or 'graph'}: {name} was left out: {text} "
                f"(the reference is {judge}; {self.leader} runs the call)"
            )
            self._drop(name, f"{LEFT_OUT}{text}")

    def _drop(self, name: str, note: str) -> None:
        self.notes[name] = note
        self.engines = {key: engine for key, engine in self.engines.items() if key != name}
        self.seconds.pop(name, None)
        self._narrow.pop(name, None)
        self.built.let_go(name)

    def _collect(self) -> None:
        """Free whom the contest has let go."""
        self.built.collect(self._everybody)
        self.settled = not self.open

    def _timed(
        self,
        name: str,
        part: int,
        inputs: Sequence[np.ndarray],
        rng: tuple[int, int],
        limit: float = float("inf"),
    ) -> tuple[list[np.ndarray], float]:
        """The results, and the fastest of a few runs, also of earlier ones. What is slower than `limit` runs once."""
        results, best = self.built.timed(name, part, inputs, rng, self.clock, limit)
        found = self.seconds.setdefault(name, {})
        found[part] = min(best, found.get(part, best))
        return results, found[part]

    def _lead(self) -> dict[str, float]:
        """Let the fastest of those that are timed lead; returns the seconds of each."""
        totals = {name: sum(found.values()) for name, found in self.seconds.items() if len(found) == len(self.graphs)}
        before = self.leader
        best = min(totals, key=totals.__getitem__, default=before)
        if best != before and before in totals and totals[best] < MARGIN * totals[before]:
            self.leader = best
            logger.info(
                f"{self.graphs[0].name or 'graph'}: {self._titles[best]} takes over from {self._titles[before]}: "
                f"{totals[best] * 1e3:.3g} instead of {totals[before] * 1e3:.3g} ms a call"
            )
        self.notes.update({name: f"{seconds * 1e3:.3g} ms" for name, seconds in totals.items()})
        return totals

    def _close(self, notes: dict[str, str]) -> None:
        """Decide, remember, and drop what lost."""
        self.notes.update(notes)
        totals = self._lead()
        if len(totals) > 1 and not _busy():
            memory.remember(self.key, self.leader, totals)
        self._keep_leader()

    def _keep_leader(self) -> None:
        self.built.keep(self.leader)
        self.open = False

    # -- what the executables pass on ------------------------------------------------------------------------------

    def pack(self, inputs: Sequence[np.ndarray], token: Hashable) -> None:
        with self._lock:
            self.built.pack(inputs, token, self.open)

    def unpack(self) -> None:
        with self._lock:
            self.built.unpack()

    def report(self, part: int) -> Report:
        """The report of what runs the part now, with what is known of the others."""
        found = self.current(part).report
        state = "to be compared" if self.open else "remembered" if self.remembered == self.leader else "measured"
        found.choice = f"{self.leader}, {state}"
        found.candidates = {name: note for name, note in self.notes.items() if not note.startswith(LEFT_OUT)}
        found.left_out = {
            name: note.removeprefix(LEFT_OUT) for name, note in self.notes.items() if note.startswith(LEFT_OUT)
        }
        return found

    def where(self) -> str:
        """The engines that have something to do, and the device."""
        busy: dict[str, None] = {}
        for executable in self.built.compiled[self.leader]:
            busy.update(dict.fromkeys(name for name, count in executable.report.operators.items() if count))
        titles = [self._titles.get(name, name) for name in busy] or [self._titles[self.leader]]
        return f"{' and '.join(titles)} on the CPU"


def _busy() -> bool:
    """Whether other work keeps the processors: what is measured now does not hold tomorrow."""
    try:
        return os.getloadavg()[0] > 1.5 * thread_count() + 0.5
    except (AttributeError, OSError):
        return False
