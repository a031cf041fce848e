"""Shows a training run while it is under way: below its cell, or as bars (tqdm) in a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from hybrid_lab.lab.training.curves import run_data
from hybrid_lab.lab.training.html import run_html, run_text
from hybrid_lab.lab.training.run import Loop, Run

if TYPE_CHECKING:
    from IPython.display import DisplayHandle
    from tqdm import tqdm


def views_of(earlier: Callable[[], list[Run]]) -> list[Callable[[Run], None]]:
    """What shows a new run. earlier : gives the runs before it"""
    if type(sys.stderr).__module__ == "ipykernel.iostream":
        return [CellView(earlier)]
    return [TerminalBars()] if sys.stderr is not None and sys.stderr.isatty() else []


class CellView:
    """An output of the cell, written again while the run goes on. The last one stays as a picture in the notebook."""

    def __init__(self, earlier: Callable[[], list[Run]]) -> None:
        self._earlier = earlier
        self._handle: DisplayHandle | None = None

    def __call__(self, run: Run) -> None:
        """Show the run, if it has a loop or a logged value; outputs belong to the main thread's cell."""
        if threading.current_thread() is not threading.main_thread() or not (run.loops or run.logged):
            return
        data = run_data(run)
        bundle = {
            "text/plain": run_text(data),
            "text/html": run_html(data, [run_data(each) for each in self._earlier() if each is not run]),
        }
        if self._handle is None:
            from IPython.display import display

            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


class TerminalBars:
    """One bar for each loop, with the last values of all curves."""

    def __init__(self) -> None:
        self._bars: dict[Loop, tqdm] = {}

    def __call__(self, run: Run) -> None:
        """Draw the bars of the loops under way, and close the bars of loops that ended."""
        from tqdm import tqdm

        for loop in run.loops:
            if loop not in self._bars and loop.ended is None:
                self._bars[loop] = tqdm(
                    total=loop.total,
                    desc=loop.title or None,
                    unit=f" {loop.unit}",
                    position=loop.depth,
                    leave=loop.depth == 0,
                )
        values = {name: series.last for name, series in run.series.items() if name not in ("step time",)}
        for loop, bar in list(self._bars.items()):
            bar.set_postfix(values if loop.depth == 0 else None, refresh=False)
            bar.update(loop.done - bar.n)
            bar.refresh()
            if loop.ended is not None:
                bar.close()
                del self._bars[loop]
