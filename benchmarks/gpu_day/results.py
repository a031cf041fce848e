"""The results of one stage: a file of JSON lines, one appended for each item as soon as it is done.

A stage that is started again skips the items that its file has. A last line that was cut off does not count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

#: What can become of an item. "late" took longer than its limit; "died" ended its worker process.
PASSED, FAILED, SKIPPED, LATE, DIED = "passed", "failed", "skipped", "late", "died"


class Results:
    """machine : what the workers said of the GPU and the versions; items : name -> the item's latest record
    running : name -> seconds that the item had run when the time was up; it has no record, so it is run again
    unreached : items without a record that a run of the stage was to run -> seconds that they had run, 0 if not begun

    A record has "status", "seconds", and "result" or "error".
    """

    def __init__(self, folder: Path, stage: str):
        self.path = folder / f"{stage}.jsonl"
        self.log = folder / f"{stage}.log"
        self.machine: dict[str, Any] = {}
        self.items: dict[str, dict[str, Any]] = {}
        self.running: dict[str, float] = {}
        self.unreached: dict[str, float] = {}
        for entry in _entries(self.path):
            if "machine" in entry:
                self.machine = entry["machine"]
            elif "item" in entry:
                self.items[entry["item"]] = {name: value for name, value in entry.items() if name != "item"}
            elif "left" in entry:
                self.unreached |= entry["left"]
        self.unreached = {name: ran for name, ran in self.unreached.items() if name not in self.items}

    def is_done(self, name: str, again: bool = False) -> bool:
        """Whether the item has a record; with `again`, whether it passed or was skipped."""
        record = self.items.get(name)
        return record is not None and (not again or record["status"] in (PASSED, SKIPPED))

    def add(self, name: str, record: dict[str, Any]) -> None:
        self.items[name] = record
        self._append({"item": name, **record})

    def describe(self, machine: dict[str, Any]) -> None:
        """Note the machine, unless it is noted already."""
        if machine != self.machine:
            self.machine = machine
            self._append({"machine": machine})

    def leave(self, names: Iterable[str]) -> None:
        """Note which of the items were not reached, and for how long the items in `running` had run."""
        left = {name: round(self.running.get(name, 0.0), 1) for name in names if name not in self.items}
        self.unreached |= left
        if left:
            self._append({"left": left})

    def counts(self) -> dict[str, int]:
        """status -> number of items."""
        found: dict[str, int] = {}
        for record in self.items.values():
            found[record["status"]] = found.get(record["status"], 0) + 1
        return found

    def _append(self, entry: dict[str, Any]) -> None:
        """One write for one line, so that a reader sees it whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(entry).encode() + b"\n"
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(file).st_size
            cut_off = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            os.write(file, b"\n" * cut_off + line)
        finally:
            os.close(file)


def _entries(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:  # cut off when the run before was ended
            continue
    return found
