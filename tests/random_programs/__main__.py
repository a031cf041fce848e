"""`python -m tests.random_programs SEED [ENGINE]`: one program, what differs, and the smallest script that shows it.

`python -m tests.random_programs FIRST-LAST ENGINE` checks many and prints a line for each that differs.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from hybrid_lab.engines import policy
from tests.random_programs import run as running
from tests.random_programs.compare import Verdict, compare, has_dead_code
from tests.random_programs.session import write_program
from tests.random_programs.shrink import shrink

ENGINES = ("numpy", "onnxruntime", "torch", "auto", "triton")


def engine_of(seed: int) -> str:
    """The engine that a program runs on: all in turn, Triton's interpreter, which is slow, once in fifty."""
    return "triton" if seed % 50 == 49 else ENGINES[seed % 4]


def _any_engine(graphs, installed, strict=False):
    """Stands for the policy: any engine that can run, by how many operators there are."""
    names = sorted(installed)
    return names[sum(len(graph.operators) for graph in graphs) % len(names)], "any engine"


@contextmanager
def ready(engine: str) -> Iterator[None]:
    """Settings for an engine: the automatic choice takes each in turn, and Triton runs in its interpreter."""
    from hybrid_lab import engines

    before = {name: os.environ.get(name) for name in ("HYBRID_LAB_CPU", "HYBRID_LAB_TRITON")}
    rules = policy.choose
    os.environ.pop("HYBRID_LAB_TRITON", None)
    os.environ["HYBRID_LAB_CPU"] = "auto"
    if engine == "triton":
        os.environ["HYBRID_LAB_TRITON"] = "interpret"
    policy.choose = _any_engine
    sessions = engines.get("onnxruntime") if engine in ("onnxruntime", "auto") else None
    worth = getattr(sessions, "worth", None)
    if sessions is not None:
        sessions.worth = lambda region: None  # every region is a session, however small
    try:
        yield
    finally:
        if sessions is not None:
            sessions.worth = worth
        policy.choose = rules
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def check(seed: int, engine: str, text: str | None = None) -> Verdict:
    with ready(engine):
        return compare(write_program(seed) if text is None else text, engine)


def failing(text: str, engine: str) -> str:
    """What is wrong with a program, in short; nothing if it is equal."""
    try:
        return check(0, engine, text).kind()
    except Exception as error:
        return f"crash {type(error).__name__}"


def smallest(text: str, engine: str, seconds: float = 60.0) -> str:
    """The smallest program that fails in the same way."""
    wanted = failing(text, engine)
    if not wanted:
        return text
    return shrink(text, lambda smaller: not has_dead_code(smaller) and failing(smaller, engine) == wanted, seconds)


def script(text: str, engine: str) -> str:
    """A program that runs by itself and prints what was seen eagerly and hybridized, where it is not the same."""
    tail = f"""
for eager, hybrid in zip(run_text(text).seen, run_text(text, {engine!r}).seen):
    if not np.array_equal(eager.value, hybrid.value):
        print(eager, hybrid, sep="\\n")
"""
    return f"{inspect.getsource(running)}\n\ntext = '''\n{text}\n'''\n{tail}"


def main(seeds: str, engine: str = "", seconds: str = "60") -> int:
    import warnings

    import hybrid_lab.system.logger

    warnings.simplefilter("ignore")

    hybrid_lab.system.logger.logger.setLevel("ERROR")
    first, _, last = seeds.partition("-")
    counts: Counter[str] = Counter()
    for seed in range(int(first), int(last or first) + 1):
        name = engine or engine_of(seed)
        text = write_program(seed)
        try:
            verdict = check(seed, name, text)
        except Exception as error:
            counts["crashes"] += 1
            print(f"seed {seed} {name}: CRASH {error!r}", flush=True)
            if not last:
                traceback.print_exc()
            continue
        counts["programs"] += 1
        counts["observations"] += verdict.observations
        counts.update(verdict.explained)
        counts["refused"] += verdict.refused is not None
        if verdict.differences:
            counts["different"] += 1
            print(f"seed {seed} {name}: {verdict}", flush=True)
        if not last:
            print(text)
            for line in verdict.differences:
                print(line)
            if verdict.differences:
                print(f"\n# the smallest that fails on {name}\n{smallest(text, name, float(seconds))}")
    print(dict(counts))
    return int(counts["different"] + counts["crashes"] > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
