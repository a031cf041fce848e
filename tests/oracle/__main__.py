"""`python -m tests.oracle FIRST-LAST`: many cases, with a table; `python -m tests.oracle SEED`: one, with a script."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections import Counter, defaultdict
from typing import Any

from tests.oracle.cases import case_of, engine_of
from tests.oracle.compare import Comparison, compare
from tests.oracle.oracle import Oracle, python
from tests.oracle.shrink import shrink

OUTCOMES = ("equal", "both refuse", "explained", "different")
WORST = {name: place for place, name in enumerate(OUTCOMES)}


def shown(case: dict[str, Any]) -> str:
    """A case in a line."""
    arrays = {
        name: f"{spec['dtype']}{spec['shape']} {spec.get('values', 'data')}" for name, spec in case["arrays"].items()
    }
    return " ".join(str(part) for part in (case.get("net", ""), case["text"], arrays) if part)


def script(case: dict[str, Any]) -> str:
    """A script that shows both answers."""
    return (
        "import hybrid_lab\nfrom tests.oracle.execute import answer\nfrom tests.oracle.oracle import Oracle\n\n"
        f"case = {case!r}\nprint('Hybrid Lab', answer(hybrid_lab, case))\nprint('MXNet', Oracle().answer(case))\n"
    )


class Oracles:
    """The process without oneDNN, and the one with it for recurrent layers."""

    def __init__(self) -> None:
        self.plain, self.onednn = Oracle(), Oracle(onednn=True)

    def for_case(self, case: dict[str, Any]) -> Oracle:
        return self.onednn if case.get("onednn") else self.plain

    def close(self) -> None:
        self.plain.close()
        self.onednn.close()


def check(seed: int, oracles: Oracles, kind: str = "") -> list[Comparison]:
    """A case, eagerly and hybridized."""
    case = case_of(seed, kind)
    return compare(case, oracles.for_case(case), engine_of(seed, case))


def main(seeds: str, kind: str = "") -> int:
    warnings.simplefilter("ignore")
    import hybrid_lab.system.logger

    hybrid_lab.system.logger.logger.setLevel("ERROR")
    if not python().exists():
        print(f"{python()} is missing: make oracle")
        return 2
    oracles = Oracles()
    first, _, last = seeds.partition("-")
    table: dict[str, Counter[str]] = defaultdict(Counter)
    rules: Counter[str] = Counter()
    start = time.perf_counter()
    count = int(last or first) + 1 - int(first)
    for number, seed in enumerate(range(int(first), int(last or first) + 1), 1):
        found = check(seed, oracles, kind)
        worst = max(found, key=lambda item: WORST[item.outcome])
        table[found[0].case["kind"]][worst.outcome] += 1
        rules.update({name for item in found for name in item.explained})
        if worst.differences:
            report(seed, worst)
        if not last:
            detail(seed, found, oracles)
        if number % 500 == 0:
            print(f"# {number} of {count} cases, {number / (time.perf_counter() - start):.1f} a second", flush=True)
    oracles.close()
    summary(table, rules, time.perf_counter() - start)
    return int(any(row["different"] for row in table.values()))


def report(seed: int, item: Comparison) -> None:
    """The lines of a case that differs."""
    print(f"seed {seed} {item.engine or 'eager'}: {shown(item.case)}")
    for line in item.differences[:4]:
        print(f"    {line.kind} {line.name}: {line.text}")
    sys.stdout.flush()


def detail(seed: int, found: list[Comparison], oracles: Oracles) -> None:
    """One case: what was answered, and the smallest case that differs."""
    for item in found:
        print(item.engine or "eager", item.outcome, item.explained)
    print("ours ", found[0].ours)
    print("MXNet", found[0].theirs)
    worst = max(found, key=lambda item: WORST[item.outcome])
    case = worst.case
    if worst.differences:
        case = shrink(worst, oracles.for_case(case))
        print("\n# the smallest case that differs in this way\n# " + shown(case))
    print("\n" + script(json.loads(json.dumps(case))))


def summary(table: dict[str, Counter[str]], rules: Counter[str], seconds: float) -> None:
    """The table by kind, and the rules that explained something."""
    total: Counter[str] = Counter()
    print(f"\n{'kind':<14}{'cases':>8}" + "".join(f"{name:>13}" for name in OUTCOMES))
    for kind, row in sorted(table.items()):
        print(f"{kind:<14}{row.total():>8}" + "".join(f"{row[name]:>13}" for name in OUTCOMES))
        total.update(row)
    print(f"{'all':<14}{total.total():>8}" + "".join(f"{total[name]:>13}" for name in OUTCOMES))
    for name, count in rules.most_common():
        print(f"{count:>8}  {name}")
    print(f"{seconds:.0f} seconds, {total.total() / seconds:.1f} cases a second")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
