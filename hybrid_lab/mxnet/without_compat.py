"""Says what to do where `import mxnet` finds nothing: import `hybrid_lab.compat` first."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_MESSAGE = (
    "No module named 'mxnet'. `import hybrid_lab.compat` before it makes mxnet this package; "
    "`%load_ext hybrid_lab.compat` does so in a notebook, and `python -m hybrid_lab.compat script.py` for a script "
    "without a change to it"
)


class Advice:
    """The last finder of modules: asked for `mxnet` only if no other one has it, neither compat nor a real MXNet."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None. Raises ModuleNotFoundError if an import statement wants `mxnet`.

        `importlib.util.find_spec("mxnet")`, by which libraries ask whether it is there, gives None as ever.
        """
        if fullname == "mxnet" and _is_import():
            raise ModuleNotFoundError(_MESSAGE, name=fullname)
        return None


def _is_import() -> bool:
    """Whether the import system is about to load the module that it looks for."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename == "<frozen importlib._bootstrap>":
        if frame.f_code.co_name == "_find_and_load":
            return True
        frame = frame.f_back
    return False


def install() -> None:
    """Give the advice from now on."""
    if not any(isinstance(finder, Advice) for finder in sys.meta_path):
        sys.meta_path.append(Advice())
