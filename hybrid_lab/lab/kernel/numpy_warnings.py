"""NumPy's warnings with the line of the user's code: NumPy names its caller, which is a function of this package."""

from __future__ import annotations

import sys
import threading
import warnings
from types import FrameType
from typing import TextIO

from hybrid_lab.diagnostics.location import is_own


class UserLines:
    """Puts the user's line into warnings that come from inside this package, between `install` and `remove`."""

    def install(self) -> None:
        """Start."""
        self._earlier = warnings.showwarning
        warnings.showwarning = self._show

    def remove(self) -> None:
        """End, unless something else has taken the place of the function that shows warnings."""
        if warnings.showwarning == self._show:
            warnings.showwarning = self._earlier

    def _show(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        # The stack of another thread begins in `threading`, not in the user's code.
        if _is_inside(filename) and threading.current_thread() is threading.main_thread():
            frame: FrameType | None = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename != filename:
                frame = frame.f_back
            while frame is not None and _is_inside(frame.f_code.co_filename):
                frame = frame.f_back
            if frame is not None:
                filename, lineno = frame.f_code.co_filename, frame.f_lineno
        self._earlier(message, category, filename, lineno, file, line)


def _is_inside(file: str) -> bool:
    """Whether a file is one of this package's, or names a program that an engine wrote."""
    return is_own(file) or (file.startswith("<") and file.endswith(">.py"))
