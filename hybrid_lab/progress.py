"""Progress bars (tqdm) for work of more than a second: on a terminal's standard error, or as an output of a cell."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.display import DisplayHandle
    from tqdm import tqdm

PATIENCE = 1.0
"""Seconds before tqdm is loaded and a bar is drawn."""


class Progress:
    """title : "compiling for gfx942"; total : kernels, or other units. Draws nothing where standard error is a file or
    a pipe, and leaves nothing when it is closed.

    patience : seconds before the bar is drawn; 0 where the first step alone may take many
    """

    def __init__(self, title: str, total: int, unit: str = "kernels", patience: float = PATIENCE):
        self._title, self._total, self._unit, self._patience = title, total, unit, patience
        self._started = time.perf_counter()
        self._bar: tqdm | None = None
        self._output: DisplayHandle | None = None

    def step(self, done: int, current: str = "") -> None:
        """So many are done; `current` says what is under way."""
        if self._bar is None and time.perf_counter() - self._started >= self._patience:
            self._open(done)
        if self._bar is not None:
            self._bar.set_postfix_str(current, refresh=False)
            self._bar.update(done - self._bar.n)
            if not self._patience:
                self._bar.refresh()  # the next step may be far

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
        if self._output is not None:
            self._output.update({"text/plain": "", "text/html": ""}, raw=True)

    def _open(self, done: int) -> None:
        in_kernel = type(sys.stderr).__module__ == "ipykernel.iostream"
        if sys.stderr is None or in_kernel and threading.current_thread() is not threading.main_thread():
            return
        from tqdm.auto import tqdm  # the notebook form in a kernel, if ipywidgets is installed
        from tqdm.notebook import tqdm_notebook

        is_widget = issubclass(tqdm, tqdm_notebook)
        self._bar = tqdm(
            total=self._total,
            initial=done,
            desc=self._title,
            unit=f" {self._unit}",
            leave=False,
            disable=False if in_kernel else None,
            file=sys.stdout if in_kernel else sys.stderr,  # a notebook shows standard error in red
            **({"display": False} if is_widget else {}),
        )
        if is_widget:
            from IPython.display import display

            # With a handle, so that a saved notebook does not refer to the widget of a bar that is gone.
            self._output = display(self._bar.container, display_id=True)
