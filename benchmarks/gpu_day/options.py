"""The settings of one run of a stage, handed from the command line to the worker processes."""

from __future__ import annotations

import importlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType

#: The stages that run on a GPU, in the order in which they are worth their time.
STAGES = ("smoke", "tests", "kernels", "steps", "sanitize")


@dataclass(frozen=True)
class Options:
    """stage : one of STAGES; out : folder of the results; cache : folder of compiled kernels
    minutes : the stage ends after so many; jobs : worker processes, 0 for the stage's own choice
    only : items whose name contains this text; again : items that did not pass are run again
    small : miniature sizes; simulate : target of a simulated GPU ("sm90"), "" for the real one
    """

    stage: str
    out: str
    cache: str = ""
    minutes: float = 9.0
    jobs: int = 0
    only: str = ""
    again: bool = False
    small: bool = False
    simulate: str = ""

    def module(self) -> ModuleType:
        """The stage's module: its items(options), run(name, options), LIMIT and the rest."""
        return importlib.import_module(f"gpu_day.{self.stage}")

    def text(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def of(text: str) -> Options:
        return Options(**json.loads(text))


@dataclass(frozen=True)
class Item:
    """One measurement or test. limit : seconds after which its worker process is ended"""

    name: str
    limit: float


class Budget:
    """The time of a stage. clock : seconds, as time.monotonic gives them"""

    def __init__(self, minutes: float, clock: Callable[[], float] = time.monotonic):
        self.clock = clock
        self.end = clock() + 60 * minutes

    def left(self) -> float:
        return self.end - self.clock()


def default_cache() -> Path:
    """A folder of this user's that lasts from stage to stage and is no part of the results."""
    return Path(tempfile.gettempdir()) / f"hybrid_lab_gpu_day_{os.getuid()}"
