"""Kept runs: a SQLite file in the notebook's folder with the parameters and curves of each training run."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.lab.messages.training import Curve

if TYPE_CHECKING:
    import sqlite3

FILE = ".hybrid_lab_runs.sqlite"
"""In the kernel's working folder, which is the notebook's."""
APPLICATION, VERSION = 0x686C7275, 1
"""What SQLite's header says of the file: whose it is (`hlru`), and the version of its tables."""
STATES = ("running", "done", "stopped", "interrupted", "failed")
PATIENCE = 10.0
"""Seconds to wait while other kernels write."""
SILENT = 120.0
"""A run of another machine that is under way writes at least that often, in seconds."""

_TABLES = """
CREATE TABLE runs(
    number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, started REAL NOT NULL, updated REAL NOT NULL,
    state TEXT NOT NULL, record TEXT NOT NULL
);
CREATE TABLE curves(
    run INTEGER NOT NULL REFERENCES runs(number) ON DELETE CASCADE, place INTEGER NOT NULL, name TEXT NOT NULL,
    data TEXT NOT NULL, PRIMARY KEY(run, place)
);
"""


class RunsFileError(HybridLabError):
    """The file of the kept runs cannot be read or written."""


@dataclass
class RunArchive:
    """An archive of the run's model. step : of the training, when it was saved; saved : seconds since 1970"""

    path: str
    step: int
    saved: float


@dataclass
class KeptRun:
    """One kept run.

    key : unique everywhere; number : in the file, 0 before it is written; started, updated : seconds since 1970
    state : as of a TrainingRun, and "lost" if its kernel ended; reason : the error that ended it
    title : the title given to `mx.lab.new_run`; code : digest of the cell's code; parameters : of the optimizer, and
    the user's
    last : the last value of the first curve, in words
    """

    key: str
    started: float
    number: int = 0
    updated: float = 0.0
    seconds: float = 0.0
    state: str = "running"
    reason: str = ""
    title: str = ""
    notebook: str = ""
    cell: str = ""
    code: str = ""
    model: str = ""
    last: str = ""
    steps: int = 0
    host: str = ""
    process: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    archives: list[RunArchive] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)

    def curve(self, name: str) -> Curve | None:
        """The curve of this name."""
        return next((each for each in self.curves if each["name"] == name), None)


_FIELDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("state", "reason", "title", "notebook", "cell", "code", "model", "last", "host"), str),
    **dict.fromkeys(("seconds",), (int, float)),
    **dict.fromkeys(("steps", "process"), int),
    **dict.fromkeys(("parameters", "versions"), dict),
    **dict.fromkeys(("notes", "archives"), list),
}
"""The fields of a KeptRun that are kept as JSON, and their types."""


class RunsFile:
    """The file of a folder, by default of the current one. Any number of kernels may use it at once; each call opens it
    anew.
    """

    def __init__(self, path: str | os.PathLike[str] = FILE):
        self.path = Path(path).absolute()

    def write(self, run: KeptRun, patience: float = PATIENCE) -> int:
        """Write a run, or write it again; its number. Raises RunsFileError."""
        run.updated = time.time()
        record = {name: value for name, value in vars(run).items() if name in _FIELDS}
        record["archives"] = [asdict(each) for each in run.archives]
        with self._opened(patience) as file:
            file.execute("BEGIN IMMEDIATE")
            self._prepare(file)
            now = (run.updated, run.state, json.dumps(record, default=str), run.key)
            # Not one INSERT with ON CONFLICT, which would use up a number each time that the run is written again.
            if not file.execute("UPDATE runs SET updated = ?, state = ?, record = ? WHERE key = ?", now).rowcount:
                file.execute(
                    "INSERT INTO runs(updated, state, record, key, started) VALUES(?, ?, ?, ?, ?)", (*now, run.started)
                )
            (run.number,) = file.execute("SELECT number FROM runs WHERE key = ?", (run.key,)).fetchone()
            file.execute("DELETE FROM curves WHERE run = ?", (run.number,))
            rows = [(run.number, place, each["name"], _packed(each)) for place, each in enumerate(run.curves)]
            file.executemany("INSERT INTO curves(run, place, name, data) VALUES(?, ?, ?, ?)", rows)
            file.execute("COMMIT")
        return run.number

    def read(self, numbers: Iterable[int] | None = None, with_curves: bool = True) -> list[KeptRun]:
        """The runs with these numbers, or all, oldest first; empty if there is no file. Raises RunsFileError."""
        if not os.path.lexists(self.path):
            return []
        wanted = None if numbers is None else set(numbers)
        with self._opened(PATIENCE) as file:
            if not self._is_prepared(file):
                return []
            rows = file.execute("SELECT number, key, started, updated, state, record FROM runs ORDER BY number")
            runs = [_unpacked(self.path, *row) for row in rows if wanted is None or row[0] in wanted]
            for run in runs if with_curves else ():
                found = file.execute("SELECT name, data FROM curves WHERE run = ? ORDER BY place", (run.number,))
                run.curves = [_curve(self.path, run.number, *each) for each in found]
        return runs

    def delete(self, numbers: Sequence[int]) -> None:
        """Delete these runs. Raises RunsFileError."""
        if os.path.lexists(self.path):
            with self._opened(PATIENCE) as file:
                file.execute("BEGIN IMMEDIATE")
                if self._is_prepared(file):
                    for table, column in (("curves", "run"), ("runs", "number")):
                        file.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(each,) for each in numbers])
                file.execute("COMMIT")

    @contextlib.contextmanager
    def _opened(self, patience: float) -> Iterator[sqlite3.Connection]:
        """A connection; nothing of a write that fails stays. Errors of SQLite are raised as RunsFileErrors."""
        try:
            import sqlite3
        except ImportError:
            raise RunsFileError("runs are kept by Python's sqlite3, which this Python was built without") from None
        if os.path.lexists(self.path) and not os.path.isfile(self.path):
            raise RunsFileError(f"{self.path} is no file, so runs are not kept; remove it")
        try:
            with contextlib.closing(sqlite3.connect(self.path, timeout=patience, isolation_level=None)) as file:
                yield file
        except sqlite3.OperationalError as error:
            raise RunsFileError(f"{self.path} cannot be used: {error}{_advice(str(error))}") from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise RunsFileError(
                f"{self.path} is damaged or no file of runs ({error}); move it away, and a new one is begun"
            ) from None

    def _is_prepared(self, file: sqlite3.Connection) -> bool:
        """Whether the file has our tables; False if it is empty. Raises RunsFileError for a file of others."""
        application, version = (
            file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        if application == APPLICATION and version == VERSION:
            return True
        if application == APPLICATION:
            raise RunsFileError(
                f"{self.path} is of a newer hybrid_lab (version {version} of its tables); upgrade this one"
            )
        if application or file.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            raise RunsFileError(f"{self.path} is a database of another program; move it away, and a new one is begun")
        return False

    def _prepare(self, file: sqlite3.Connection) -> None:
        if not self._is_prepared(file):
            for statement in _TABLES.split(";\n"):
                file.execute(statement)
            file.execute(f"PRAGMA application_id = {APPLICATION}")
            file.execute(f"PRAGMA user_version = {VERSION}")


def _advice(error: str) -> str:
    if "locked" in error:
        return "; another program holds it"
    return "; its folder may be read-only, or the disk full" if "open" in error or "full" in error else ""


#: Columns of a curve -> the column kept in place of both if they are equal.
_SAME = {"starts": "steps", "lows": "means", "highs": "means", "firsts": "means", "lasts": "means"}


def _packed(curve: Curve) -> str:
    data = cast("dict[str, Any]", curve)
    return json.dumps({key: value for key, value in data.items() if not (key in _SAME and value == data[_SAME[key]])})


_COLUMNS = ("starts", "steps", "counts", "means", "lows", "highs", "firsts", "lasts")


def _unpacked(
    path: Path, number: int, key: object, started: object, updated: object, state: object, text: str
) -> KeptRun:
    """A row of the table of runs. What another program may have written is checked. Raises RunsFileError."""
    try:
        record = {name: value for name, value in json.loads(text).items() if name in _FIELDS}
        _check(all(isinstance(value, _FIELDS[name]) for name, value in record.items()))
        _check(isinstance(key, str) and isinstance(started, float) and isinstance(updated, float) and state in STATES)
        _check(all(isinstance(value, str) for value in [*record["notes"], *record["versions"].values()]))
        record["archives"] = [
            RunArchive(str(each["path"]), int(each["step"]), float(each["saved"])) for each in record["archives"]
        ]
        run = KeptRun(cast(str, key), cast(float, started), number, cast(float, updated), **record)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RunsFileError(f"{path}: run {number} is damaged; mx.lab.runs().delete({number}) removes it") from None
    if run.state == "running" and not _is_alive(run):
        run.state, run.reason = "lost", "its kernel ended"
    return run


def _curve(path: Path, number: int, name: str, text: str) -> Curve:
    try:
        data = json.loads(text)
        full: dict[str, Any] = {**{key: data[other] for key, other in _SAME.items()}, **data}
        _check(full.keys() == Curve.__annotations__.keys() and full["name"] == name)
        _check(all(len(full[key]) == len(full["steps"]) for key in _COLUMNS))
        _check(all(map(_is_number, (number for key in _COLUMNS for number in full[key]))))
        _check(all(isinstance(full[key], str) for key in ("name", "unit", "bad_text", "latest", "note", "text")))
        _check(all(isinstance(full[key], int) for key in ("count", "last_step", "bad_count")))
        _check(full["last"] is None or _is_number(full["last"]))
        for span in full["bad"]:
            _check(
                span["what"] in ("NaN", "inf", "-inf")
                and all(map(_is_number, map(span.get, ("first", "last", "count"))))
            )
        return cast("Curve", full)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RunsFileError(
            f"{path}: the curve {name!r} of run {number} is damaged; mx.lab.runs().delete({number}) removes the run"
        ) from None


def _check(holds: bool) -> None:
    if not holds:
        raise ValueError


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_alive(run: KeptRun) -> bool:
    """Whether the kernel of a run that is under way is still there."""
    if run.host != socket.gethostname() or not run.process:
        return time.time() - run.updated < SILENT
    if run.process == os.getpid():
        return run.key in alive
    try:
        os.kill(run.process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


alive: set[str] = set()
"""Keys of the runs of this process that are under way."""
