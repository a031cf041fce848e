"""Hooks into IPython: the comm target, what happens before and after each cell, the magics. Registered once.

This file is imported by `import hybrid_lab` in a notebook, so it loads the rest of the lab only when a page connects, a
magic is used or a view is made.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics import formatting, location
from hybrid_lab.diagnostics.location import register_cell
from hybrid_lab.lab.kernel.numpy_warnings import UserLines
from hybrid_lab.lab.kernel.timed_cells import TimedCells
from hybrid_lab.lab.messages.connection import TARGET
from hybrid_lab.lab.places import cell_ids, lines_above, running_cell
from hybrid_lab.system.imports import alone

if TYPE_CHECKING:
    from comm.base_comm import BaseComm
    from IPython.core.interactiveshell import InteractiveShell

    from hybrid_lab.gluon.block import Block
    from hybrid_lab.lab.kernel.comm import Comms
    from hybrid_lab.lab.kernel.lifecycle import Redefinitions
    from hybrid_lab.lab.kernel.session import Session
    from hybrid_lab.lab.kernel.tracebacks import ShortTracebacks
    from hybrid_lab.lab.models.registry import Registry

OPT_OUT = "HYBRID_LAB_NO_HOOKS"
"""Environment variable: anything but "" and "0" keeps `import hybrid_lab` from registering the hooks."""

_logger = logging.getLogger("hybrid_lab")


def _quiet(hook: Callable[..., object]) -> Callable[..., object]:
    """Run a hook on the main thread only, and never raise into the user's cell: failures are this package's fault."""

    @functools.wraps(hook)
    def call(self: Lab, *args: object) -> None:
        if threading.current_thread() is threading.main_thread():
            try:
                hook(self, *args)
            except Exception as error:  # a fault of this package must not fail the user's cell
                _logger.debug(f"{hook.__name__} failed", exc_info=error)

    return call


class Lab:
    """The lab of one IPython shell. The session and the comms are created at first use."""

    def __init__(self, shell: InteractiveShell):
        self.shell = shell
        self._kernel = getattr(shell, "kernel", None)
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._comms: Comms | None = None
        #: of this process: what was meant for the kernel before a restart is refused
        self._kernel_id = os.urandom(8).hex()
        self._registry: Registry | None = None
        self._redefinitions: Redefinitions | None = None
        self._magics: Any = None
        self._user_lines = UserLines()
        self._timed_cells = TimedCells(shell, lambda: self._running_text, self._name_timed)
        self._tracebacks: ShortTracebacks | None = None
        #: the cells that are running, outer ones first; a cell that imported this package counts as one
        self._running: list[object] = [None] if _inside_cell(self._kernel) else []
        location.set_cell_runs(id(shell.user_ns) if self.is_busy() else 0)

    # -- parts --------------------------------------------------------------------------------------------------------

    @property
    def session(self) -> Session:
        """The session, which answers the requests of the pages and views; created at first use."""
        with self._lock:
            if self._session is None:
                with alone():  # this may be another thread than the cell's
                    from hybrid_lab.gluon.step import boundary
                    from hybrid_lab.lab.kernel.comm import Comms
                    from hybrid_lab.lab.kernel.session import Session

                    registry = self._registry_of_models()
                subshells = bool(getattr(self._kernel, "_supports_kernel_subshells", False))
                session = Session(self._namespace, self.push, subshells, self.is_busy, registry, self._kernel_id)
                boundary.busy = self.is_busy()
                self._comms, self._session = Comms(session), session
            return self._session

    @property
    def comms(self) -> Comms:
        """The pages that are connected."""
        assert self.session is not None and self._comms is not None
        return self._comms

    def _namespace(self) -> dict[str, object]:
        return self.shell.user_ns

    def _name_of(self, block: Block, path: str) -> str:
        """The name of a Block in messages, or of the Block at a path below it: the code that gives it."""
        return self._registry_of_models().called(block, path)

    def is_busy(self) -> bool:
        """Whether a cell is running."""
        return bool(self._running)

    # -- registration -------------------------------------------------------------------------------------------------

    def register(self) -> None:
        """Register everything with the shell."""
        self.name_earlier_cells()
        self._user_lines.install()
        formatting.set_known_as(self._name_of)
        if self._kernel is not None:
            self._timed_cells.install()
        self.shell.events.register("pre_run_cell", self.before_cell)
        self.shell.events.register("post_run_cell", self.after_cell)
        if self._kernel is not None:
            self._kernel.comm_manager.register_target(TARGET, self._opened)
            from hybrid_lab.lab.kernel.tracebacks import ShortTracebacks

            self._tracebacks = ShortTracebacks(self.shell, self._registry_of_models)
            self._tracebacks.install()
        from hybrid_lab.lab.kernel.magics import HybridMagics

        self._magics = HybridMagics(self.shell, self)
        self.shell.register_magics(self._magics)
        self._extensions().add(TARGET)  # so that %unload_ext works after a plain import, too

    def unregister(self) -> None:
        """Remove everything that `register` added."""
        self._extensions().discard(TARGET)
        self._user_lines.remove()
        if formatting.known_as == self._name_of:
            formatting.set_known_as(None)
        if self._kernel is not None:
            self._timed_cells.remove()
        for event, function in (("pre_run_cell", self.before_cell), ("post_run_cell", self.after_cell)):
            if function in self.shell.events.callbacks[event]:
                self.shell.events.unregister(event, function)
        if self._kernel is not None:
            self._kernel.comm_manager.unregister_target(TARGET, self._opened)
        if self._tracebacks is not None:
            self._tracebacks.remove()
        if self._registry is not None:
            from hybrid_lab.lab.models import registry

            if registry.of_notebook is self._registry:
                registry.set_of_notebook(None)
        if "hybrid_lab.gluon" in sys.modules:
            from hybrid_lab.gluon.call_record import cell

            cell.end()
        if self._comms is not None:
            self._comms.close()
        if self._session is not None:
            from hybrid_lab.gluon.step import boundary

            boundary.cell_ended()
        for kind, names in self._magics.magics.items():
            for name in names:
                self.shell.magics_manager.magics[kind].pop(name, None)

    def _extensions(self) -> set[str]:
        """The extensions that IPython counts as loaded."""
        loaded: set[str] = getattr(self.shell.extension_manager, "loaded", set())
        return loaded

    def _opened(self, comm: BaseComm, message: object) -> None:
        self.comms.opened(comm, message)

    # -- cells --------------------------------------------------------------------------------------------------------

    @_quiet
    def before_cell(self, info: object) -> None:
        """Note the cell's number and id, and that requests wait for step boundaries; drop what %autoreload changed."""
        nested = self.is_busy()
        self._running.append(info)
        self._name(info)
        if self._session is not None and not nested:
            from hybrid_lab.gluon.step import boundary

            boundary.cell_started()
        if not nested:
            location.set_cell_runs(id(self.shell.user_ns))
        if not nested and "hybrid_lab.gluon" in sys.modules:
            from hybrid_lab.gluon.call_record import cell
            from hybrid_lab.gluon.step import boundary
            from hybrid_lab.lab.kernel.lifecycle import drop_stale

            boundary.steps_before_cell = boundary.steps

            self._tell(drop_stale(values=False))
            cell.begin(location.cell_runs)

    def _name(self, info: object) -> None:
        """Register the cell of a file name: a kernel names files by the cell's text alone."""
        cell = getattr(info, "raw_cell", None)
        if self._kernel is not None and isinstance(cell, str):
            whole = getattr(self._running[0], "raw_cell", cell) if self._running else cell
            self._name_file(cell, running_cell(self.shell), getattr(info, "cell_id", None), lines_above(cell, whole))

    @property
    def _running_text(self) -> str | None:
        """The text of the innermost cell that runs."""
        cell = getattr(self._running[-1], "raw_cell", None) if self._running else None
        return cell if isinstance(cell, str) else None

    def _name_timed(self, code: str, above: int) -> str:
        """The file name of code that a magic of the running cell compiles itself."""
        number = running_cell(self.shell)
        self._name_file(code, number, getattr(self._running[-1], "cell_id", None), above)
        name: str = self.shell.compile.cache(code, number)
        return name

    def _name_file(self, cell: str, number: int, cell_id: str | None, above: int = 0) -> None:
        file = self.shell.compile.get_code_name(cell, cell, number)
        register_cell(file, number, above)
        cell_ids[file] = str(cell_id or "")

    @_quiet
    def name_earlier_cells(self) -> None:
        """Name the cells that ran before the hooks were there, and the one that imports this package just now."""
        if self._kernel is None:
            return
        for number, cell in enumerate(getattr(self.shell.history_manager, "input_hist_raw", ())):
            if number and cell:
                self._name_file(cell, number, None, lines_above(cell, cell))
        if self._running:
            parent = self._kernel.get_parent()
            cell_id = (parent.get("metadata") or {}).get("cellId")
            cell = parent["content"]["code"]
            self._name_file(cell, running_cell(self.shell), cell_id, lines_above(cell, cell))

    @_quiet
    def after_cell(self, result: object) -> None:
        """Run what waited, end the training run, drop graphs of code that changed, and tell the pages and views."""
        self._end(getattr(result, "info", None))
        if self.is_busy():
            return  # a cell that another one ran, as %%hybrid_lint does
        location.set_cell_runs(0)
        if "hybrid_lab.lab.training.current" in sys.modules:
            from hybrid_lab.lab.training.current import runs

            runs.finish(getattr(result, "error_in_exec", None))
        self._come_last()
        self._forget_nan(result)
        if "hybrid_lab.gluon" not in sys.modules:
            return
        from hybrid_lab.gluon.call_record import cell

        cell.end()
        if self._session is not None:
            from hybrid_lab.gluon.step import boundary

            boundary.cell_ended()
        from hybrid_lab.system.memory import without_collecting

        with without_collecting(collect=False):  # a collection takes longer than all else beside a large model
            self._drop_stale()
            self.push()

    def _forget_nan(self, result: object) -> None:
        """A cell that had stopped at a NaN ran to its end."""
        cell_id = getattr(getattr(result, "info", None), "cell_id", None)
        if "hybrid_lab.insight.last_nan" in sys.modules and cell_id and getattr(result, "success", False):
            from hybrid_lab.insight import last_nan

            for found in last_nan.all_found():
                if cell_ids.get(found.file) == cell_id:
                    last_nan.forget_cell(found.file)

    def _end(self, info: object) -> None:
        """Note that the cell of this info ended, and with it the cells that it ran."""
        places = [place for place, running in enumerate(self._running) if running is info and info is not None]
        if places:
            del self._running[places[-1] :]
        elif info is None or self._running[:1] == [None]:
            self._running.clear()  # else it is a blank cell, which is not announced, inside of another one

    def _come_last(self) -> None:
        """Move the hook to the end of the list: %autoreload, if it was loaded later, then reloads modules before it."""
        callbacks = self.shell.events.callbacks["pre_run_cell"]
        if callbacks and callbacks[-1] != self.before_cell:
            self.shell.events.unregister("pre_run_cell", self.before_cell)
            self.shell.events.register("pre_run_cell", self.before_cell)

    def _drop_stale(self) -> None:
        """Drop graphs of code that changed (%autoreload), and of models whose class was defined again."""
        from hybrid_lab.lab.kernel.lifecycle import Redefinitions, drop_stale

        if self._redefinitions is None:
            self._redefinitions = Redefinitions()
        entries = self._registry_of_models().refresh(look=False)
        named = [entry for entry in entries if not entry.is_unbound]
        models = [(entry.name, block) for entry in named if (block := entry.reference()) is not None]
        self._tell(drop_stale() + self._redefinitions.notes(self.shell.user_ns, models))

    def _registry_of_models(self) -> Registry:
        """The models of the user's namespace; the session's registry, as soon as there is a session."""
        from hybrid_lab.lab.models import registry

        if self._registry is None:
            self._registry = registry.Registry(self._namespace, self._kernel_id)
            registry.set_of_notebook(self._registry)
        return self._registry

    def _tell(self, notes: list[str]) -> None:
        """Send notes to the pages, or to the log if none is connected."""
        if self._comms is not None and self._comms.any_open:
            self.session.note(notes)
        else:
            for note in notes:
                _logger.info(note)

    def push(self) -> None:
        """Send the current models to the pages, and changes to the views."""
        if self._session is None or self._comms is None:
            return
        self._comms.push_models()
        for view in list(self._session.views):
            view.refresh()


def _inside_cell(kernel: object) -> bool:
    """Whether the kernel is running a cell. Silent code does not count: the hooks are not called when it ends."""
    parent = kernel.get_parent() if kernel is not None and hasattr(kernel, "get_parent") else None
    if not isinstance(parent, dict):
        return False
    header, content = parent.get("header") or {}, parent.get("content") or {}
    return header.get("msg_type") == "execute_request" and not content.get("silent")


_labs: dict[int, Lab] = {}


def lab_of(shell: object) -> Lab | None:
    """The lab that is registered with this shell."""
    return _labs.get(id(shell))


def register(shell: InteractiveShell) -> bool:
    """Register once; False if it was registered already."""
    if id(shell) in _labs:
        return False
    lab = Lab(shell)
    lab.register()
    _labs[id(shell)] = lab
    return True


def unregister(shell: object) -> None:
    """Remove the hooks, if there are any."""
    lab = _labs.pop(id(shell), None)
    if lab is not None:
        lab.unregister()


def register_when_interactive() -> None:
    """Called by `import hybrid_lab`: register with the running IPython, unless OPT_OUT is set. Never raises."""
    if os.environ.get(OPT_OUT, "") not in ("", "0"):
        return
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get_ipython() if get_ipython is not None else None
    if shell is not None:
        try:
            register(shell)
        except Exception as error:  # shells that are not IPython's own; `import hybrid_lab` works all the same
            _logger.warning(f"the lab's panel is not connected to this notebook: {type(error).__name__}: {error}")
