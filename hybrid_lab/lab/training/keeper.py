"""What is kept of a training run: its parameters, model, code, versions and archives, gathered while it runs."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import platform
import socket
import sys
import time
import uuid
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid_lab._version import __version__
from hybrid_lab.diagnostics.formatting import count, visible
from hybrid_lab.distributed.worker_group import joined_workers
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.files.saved import save_listeners
from hybrid_lab.insight.states import class_name
from hybrid_lab.lab.training.curves import exact_curves
from hybrid_lab.lab.training.kept_runs import PATIENCE, KeptRun, RunArchive, RunsFile, RunsFileError, alive
from hybrid_lab.lab.training.run import Run
from hybrid_lab.system.logger import logger

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

SETTING = "HYBRID_LAB_RUNS"
"""Environment variable: "0" keeps no runs, "1" keeps all. By default the runs of notebooks are kept, not of scripts."""
FIRST, EVERY = 10.0, 30.0
"""Seconds until a run that is under way is written first, so that it is there if its kernel dies; and how often."""
LONGEST = 500
"""Most characters of one parameter."""
_VERSIONS = ("numpy", "onnxruntime", "torch", "triton")
"""Packages whose versions are kept, where they are loaded."""


class Setting:
    """Whether runs are kept. chosen : by `keep_runs`, else None"""

    chosen: bool | None = None

    @property
    def is_on(self) -> bool:
        """Whether a run that starts now is kept."""
        if self.chosen is not None:
            return self.chosen
        given = os.environ.get(SETTING, "")
        return given not in ("0", "false", "no", "off") if given else getattr(_shell(), "kernel", None) is not None


setting = Setting()


def keep_runs(on: bool) -> None:
    """Keep the training runs from now on in the file `.hybrid_lab_runs.sqlite` of the current folder, or keep none.

    By default a notebook's runs are kept, and a script's runs are not. The environment variable HYBRID_LAB_RUNS=0
    switches it off for all notebooks.
    """
    setting.chosen = bool(on)


class RunKeeper:
    """Writes a run into the file of its folder: now and then while it runs, and at its end. It is a view of the run.

    kept : what is written
    """

    def __init__(self, run: Run, title: str = "", parameters: Mapping[str, object] | None = None):
        self._run = run
        self._file = RunsFile()
        self._due = time.monotonic() + FIRST
        self._own = {key: _plain(value) for key, value in (parameters or {}).items()}
        self.kept = KeptRun(uuid.uuid4().hex, time.time(), title=title)
        self.kept.notebook, self.kept.code = notebook(), _code_digest()
        self.kept.cell = run.label.removesuffix(title).removesuffix(": ")
        self.kept.host, self.kept.process = socket.gethostname(), os.getpid()
        alive.add(self.kept.key)
        keepers.append(self)
        del keepers[:-KEEPERS]

    def note(self, text: str, parameters: Mapping[str, object]) -> None:
        """Take a remark and parameters of the user."""
        if text:
            self.kept.notes.append(text[:LONGEST])
        self._own.update({key: _plain(value) for key, value in parameters.items()})

    def __call__(self, run: Run) -> None:
        """Write the run, if it has values, when it is time or when it ends."""
        ended = run.state != "running"
        if ended:
            alive.discard(self.kept.key)
        if not run.series or not (ended or time.monotonic() >= self._due):
            return
        if joined_workers()[0]:
            return  # rank 0 keeps the run of all workers
        self._due = time.monotonic() + EVERY
        try:
            self._look(run)
            self._file.write(self.kept, PATIENCE if ended else 0.2)
            run.problem = ""
        except RunsFileError as error:
            if ended or "locked" not in str(error):
                run.problem = f"This run is not kept: {error}."
        except Exception as error:  # a fault of this package must not end a training
            logger.debug("a run could not be kept", exc_info=error)
            run.problem = f"This run is not kept: {type(error).__name__}: {error}."

    def _look(self, run: Run) -> None:
        kept, facts = self.kept, run.trainer_facts
        kept.seconds, kept.state, kept.reason = run.seconds, run.state, run.reason
        kept.curves = exact_curves(run)
        kept.last = f"{kept.curves[0]['name']} {kept.curves[0]['latest']}" if kept.curves else ""
        kept.steps = run.steps or max((each["last_step"] for each in kept.curves), default=0)
        if not kept.versions or run.ended is not None:
            kept.versions = _versions()
        settings = {} if facts is None else facts.settings
        kept.parameters = {**{key: _plain(value) for key, value in settings.items()}, **self._own}
        if facts is not None:
            kept.model = _model(facts.parameter()) or kept.model

    def trains(self, net: Block) -> bool:
        """Whether the run trains this model; without a Trainer, whether it is under way."""
        facts = self._run.trainer_facts
        if facts is None:
            return self._run.ended is None
        parameter = facts.parameter()
        return parameter is not None and any(each is parameter for each in net.collect_params().values())

    def saved(self, path: str) -> None:
        """The run's model was saved to this path."""
        with contextlib.suppress(ValueError):  # on another drive
            path = os.path.relpath(path, self._file.path.parent)
        others = [each for each in self.kept.archives if each.path != path]
        self.kept.archives = [*others, RunArchive(path, self._run.steps or self.kept.steps, time.time())]
        if self._run.ended is not None and self.kept.number:
            self._file.write(self.kept)


KEEPERS = 6
keepers: list[RunKeeper] = []
"""Of the current run and of the last ones, whose models may still be saved."""


def _saved(net: Block, path: str) -> None:
    """An archive was written: note it in the newest run that trained this model."""
    try:
        keeper = next((each for each in reversed(keepers) if each.trains(net)), None)
        if keeper is not None:
            keeper.saved(path)
    except Exception as error:  # a save must not fail because of this
        logger.debug("an archive could not be noted in its run", exc_info=error)


save_listeners.append(_saved)


def _plain(value: object) -> object:
    """A value that JSON has; others as text."""
    if value is None or isinstance(value, (bool, int, float)):
        return value if not isinstance(value, float) or value - value == 0 else str(value)
    return str(value)[:LONGEST]


def _model(parameter: object) -> str:
    """`net: LeNet, 44,426 weights` of the model that has this parameter; "" if no variable has it."""
    shell = _shell()
    namespace = vars(sys.modules["__main__"]) if shell is None else shell.user_ns
    found: list[tuple[int, str, Block]] = []
    for name, item in list(namespace.items()):
        if not name.startswith("_") and issubclass(type(item), Block):
            assert isinstance(item, Block)
            own = list(item.collect_params().values())
            if any(each is parameter for each in own):
                found.append((len(own), name, item))
    if not found:
        return ""
    _, name, net = max(found, key=lambda each: each[0])
    weights = sum(math.prod(each.shape or ()) for each in net.collect_params().values())
    return visible(f"{name}: {class_name(net)}, {count(weights, 'weight')}")


def notebook() -> str:
    """The notebook's name as far as the kernel knows it, or the script's name; "" if neither is known."""
    shell = _shell()
    given = "" if shell is None else shell.user_ns.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME", "")
    if shell is None and sys.argv:
        given = sys.argv[0]
    return visible(os.path.basename(str(given)))[:LONGEST]


def _code_digest() -> str:
    """The first digits of the SHA-256 of the cell's code, or of the script's."""
    shell = _shell()
    if shell is None:
        try:
            code = Path(sys.argv[0]).read_bytes()
        except (OSError, IndexError):
            return ""
    else:
        history = shell.history_manager
        code = str(history.input_hist_raw[-1] if history is not None else "").encode(errors="replace")
    return hashlib.sha256(code).hexdigest()[:16]


def _versions() -> dict[str, str]:
    found = {"hybrid_lab": __version__, "python": platform.python_version(), "platform": platform.platform()}
    for name in _VERSIONS:
        if name in sys.modules:
            with contextlib.suppress(metadata.PackageNotFoundError):
                found[name] = metadata.version(name)
    return found


def _shell() -> InteractiveShell | None:
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()
