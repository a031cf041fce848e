"""The command line of scripts/gpu_day.py."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from gpu_day import lease, prepare, report
from gpu_day.options import STAGES, Budget, Options, default_cache
from gpu_day.pool import WorkersFailed, run_items
from gpu_day.results import DIED, FAILED, LATE, Results

#: Of a stage's time, how much may go into compiling ahead.
COMPILING = 0.35
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gpu_day.py"


def main(arguments: list[str]) -> int:
    """0 where nothing failed, 1 where there is no GPU, 2 where an item failed."""
    if arguments[:1] == ["--worker"]:
        from gpu_day.worker import main as work

        work(Options.of(arguments[1]))
        return 0
    if arguments == ["--launchers"]:
        from gpu_day import launchers

        launchers.main()
        return 0
    if arguments[:1] in (["--list"], ["--item"]):
        _inside(arguments)
        return 0
    given = _parser().parse_args(arguments)
    out = Path(given.out).absolute()
    if given.stage == "prepare":
        return prepare.prepare(given.target, out, given.only, given.small)
    if given.stage == "report":
        return report.write(out, Path(given.tables) if given.tables else None)
    cache = Path(given.cache).absolute() if given.cache else default_cache()
    options = Options(
        given.stage, str(out), str(cache), given.minutes, given.jobs, given.only, given.again,
        given.small or bool(given.simulate), given.simulate,
    )  # fmt: skip
    prepare.unpack(sorted(out.glob("kernels-*.tar.xz")) + [Path(each) for each in given.kernels], cache)
    if given.stage in lease.PARTS:
        out.mkdir(parents=True, exist_ok=True)
        return lease.run(given.stage, options, given.seconds)
    failed = 0
    try:
        for stage in STAGES if given.stage == "all" else (given.stage,):
            counts = run_stage(replace(options, stage=stage)).counts()
            failed += sum(counts.get(status, 0) for status in (FAILED, LATE, DIED))
    except WorkersFailed as error:
        print(f"gpu_day: {error}", file=sys.stderr)
        return 1
    return 2 if failed else 0


def _inside(arguments: list[str]) -> None:
    """Processes that stages start besides workers: `--list OPTIONS` and `--item NAME OPTIONS`."""
    from gpu_day import sanitize, tests
    from gpu_day.worker import use_folders, use_gpu

    options = Options.of(arguments[-1])
    use_folders(options)
    if missing := use_gpu(options):
        raise SystemExit(missing)
    if arguments[0] == "--list":
        tests.collect(options)
    else:
        sanitize.run_one(arguments[1], options)


def run_stage(options: Options, budget: Budget | None = None) -> Results:
    """Run the items of a stage that have no record yet, as far as the time reaches, and print a summary."""
    budget = budget or Budget(options.minutes)
    stage = options.module()
    results = Results(Path(options.out), options.stage)
    every = [item for item in stage.items(options) if options.only in item.name]
    waiting = [item for item in every if not results.is_done(item.name, options.again)]
    cores = os.cpu_count() or 1
    jobs = options.jobs or min(getattr(stage, "JOBS", 1), cores)
    command = [sys.executable, str(SCRIPT), "--worker", options.text()]
    began = budget.clock()
    print(f"{options.stage}: {len(waiting)} of {len(every)} items to run, {jobs} at a time", flush=True)
    if waiting and hasattr(stage, "compile_items"):
        # Compiling takes all cores, measuring one: kernels are on disk before the first one is timed.
        due = {f"compile: {item.name}" for item in waiting}
        ahead = [item for item in stage.compile_items(options) if item.name in due]
        part = Budget(COMPILING * budget.left() / 60, budget.clock)
        run_items(ahead, command, results, part, options.jobs or max(cores - 1, 1))
    try:
        complete = run_items(waiting, command, results, budget, jobs, getattr(stage, "FRESH", False))
    finally:
        results.leave(item.name for item in waiting)
    counts = ", ".join(f"{number} {status}" for status, number in sorted(results.counts().items()))
    rest = sum(not results.is_done(item.name) for item in every)
    ending = "complete" if complete else f"the time was up, {rest} left: run it again to go on"
    print(f"{options.stage}: {counts or 'nothing run'}; {budget.clock() - began:.0f} s; {ending}", flush=True)
    for name, record in results.items.items():
        if record["status"] in (FAILED, LATE, DIED):
            last = (record.get("error") or "").strip().splitlines()
            print(f"  {record['status']:6} {name}: {last[-1][:150] if last else ''}", flush=True)
    for name, ran in results.running.items():
        print(f"  unfinished {name}: the time was up after {ran:.0f} s of it", flush=True)
    return results


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpu_day.py", description="What the Triton engine does on this machine's GPU")
    parser.add_argument("stage", choices=(*STAGES, "all", *lease.PARTS, "prepare", "report"))
    parser.add_argument("--out", required=True, help="folder of the results")
    parser.add_argument("--minutes", type=float, default=9.0, help="a stage ends after so many (9)")
    parser.add_argument("--seconds", type=float, default=0, help="right, fast: the part ends after so many (150, 420)")
    parser.add_argument("--jobs", type=int, default=0, help="worker processes; each stage has its own number")
    parser.add_argument("--only", default="", help="items whose name contains this")
    parser.add_argument("--again", action="store_true", help="run items again that did not pass")
    parser.add_argument("--cache", default="", help="folder of compiled kernels (a folder of temporary files)")
    parser.add_argument("--kernels", action="append", default=[], help="an archive that `prepare` has made, not in DIR")
    parser.add_argument("--target", default="sm90", help="prepare: the GPU to compile for, sm90 or gfx942")
    parser.add_argument("--tables", default="", help="report: folder of the tables (benchmarks/results)")
    parser.add_argument("--small", action="store_true", help="miniature sizes")
    parser.add_argument("--simulate", default="", help="a simulated GPU, sm90 or gfx942 (tests/simulated_gpu)")
    return parser
