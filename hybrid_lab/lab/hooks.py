"""Hooks into IPython: the comm target, what happens before and after each cell, and HTML for Blocks. Registered once."""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any

from hybrid_lab.diagnostics.location import register_cell
from hybrid_lab.lab.tree import cell_ids


class Lab:
    """The lab of one IPython shell."""

    def __init__(self, shell: Any):
        from hybrid_lab.gluon.step import boundary
        from hybrid_lab.lab.comm import Comms
        from hybrid_lab.lab.session import Session

        self.shell = shell
        kernel = getattr(shell, "kernel", None)
        subshells = bool(getattr(kernel, "_supports_kernel_subshells", False))
        self.session = Session(lambda: shell.user_ns, self.push, subshells)
        self.comms = Comms(self.session)
        self._boundary = boundary
        self._classes: dict[str, weakref.ref[type]] = {}
        self._kernel = kernel

    # -- registration ----------------------------------------------------------------------------------------------------

    def register(self) -> None:
        from hybrid_lab.lab.comm import TARGET

        self.shell.events.register("pre_run_cell", self.before_cell)
        self.shell.events.register("post_run_cell", self.after_cell)
        formatter = self.shell.display_formatter.formatters["text/html"]
        formatter.for_type_by_name("hybrid_lab.gluon.block", "Block", _block_html)
        if self._kernel is not None:
            self._kernel.comm_manager.register_target(TARGET, self.comms.opened)
        from hybrid_lab.lab.magics import HybridMagics

        self.shell.register_magics(HybridMagics(self.shell, self))

    def unregister(self) -> None:
        from hybrid_lab.lab.comm import TARGET

        for event, function in (("pre_run_cell", self.before_cell), ("post_run_cell", self.after_cell)):
            try:
                self.shell.events.unregister(event, function)
            except ValueError:
                pass
        if self._kernel is not None:
            self._kernel.comm_manager.unregister_target(TARGET, self.comms.opened)
        self.comms.close()
        for kind in ("line", "cell"):
            for name in [name for name in self.shell.magics_manager.magics[kind] if name.startswith("hybrid_")]:
                del self.shell.magics_manager.magics[kind][name]

    # -- cells -----------------------------------------------------------------------------------------------------------

    def before_cell(self, info: Any) -> None:
        """Note the cell's number and the notebook's id of it, and that requests must wait for step boundaries from now on."""
        if not _on_main_thread():
            return
        file = self._cell_file(info)
        if file:
            register_cell(file, self.shell.execution_count)
            cell_ids[file] = str(getattr(info, "cell_id", None) or "")
        self._boundary.busy = True
        self.session.busy = True

    def _cell_file(self, info: Any) -> str:
        """The name under which IPython will compile the cell."""
        try:
            transformed = self.shell.transform_cell(info.raw_cell)
            return self.shell.compile.get_code_name(info.raw_cell, transformed, self.shell.execution_count)
        except Exception:  # a cell that does not parse has no file
            return ""

    def after_cell(self, result: Any) -> None:
        """Run what waited, drop graphs of code that changed, and tell the panel."""
        if not _on_main_thread():
            return
        self._boundary.busy = False
        self.session.busy = False
        self._boundary.passed()
        self.session.notes += self.drop_stale()
        self.push()

    def drop_stale(self) -> list[str]:
        """Graphs whose Blocks' code changed under them (%autoreload), and a note for models whose class was defined again."""
        from hybrid_lab.lab.lifecycle import drop_changed_code, redefined_classes

        entries = self.session.registry.refresh()
        notes = drop_changed_code([entry.block for entry in entries])
        return notes + redefined_classes(self.shell.user_ns, entries, self._classes)

    def push(self) -> None:
        """Send the models of now to the panel."""
        self.comms.push_models()


def _on_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


def _block_html(block: Any) -> str:
    from hybrid_lab.lab.static_html import block_html

    return block_html(block)


_labs: dict[int, Lab] = {}


def lab_of(shell: Any) -> Lab | None:
    """The lab that is registered with this shell."""
    return _labs.get(id(shell))


def register(shell: Any) -> bool:
    """Register once; False where it was registered already."""
    if id(shell) in _labs:
        return False
    lab = Lab(shell)
    lab.register()
    _labs[id(shell)] = lab
    return True


def unregister(shell: Any) -> None:
    lab = _labs.pop(id(shell), None)
    if lab is not None:
        lab.unregister()


def register_when_interactive() -> None:
    """Called by `import hybrid_lab`: register with the running IPython, unless HYBRID_LAB_NO_HOOKS is set."""
    if os.environ.get("HYBRID_LAB_NO_HOOKS"):
        return
    shell = sys.modules["IPython"].get_ipython()
    if shell is not None:
        register(shell)
