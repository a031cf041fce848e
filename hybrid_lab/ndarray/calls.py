"""The functions behind the methods of NDArray. They make NDArrays, so their modules import the class; each hands its
own to `provide` when it is imported, which `hybrid_lab.ndarray` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Of `invoke`: an operator on arrays and numbers; the same for two operands; a step on the tape for a finished view.
invoke: Callable[..., Any]
invoke_pair: Callable[..., object]
note_operator: Callable[..., None]
#: Of `indexing`: `array[key]`, `array[key] = value`.
getitem: Callable[..., Any]
setitem: Callable[..., None]
#: Of `backward`: from heads to the leaves behind them.
backward: Callable[..., None]


def provide(**functions: Callable[..., Any]) -> None:
    """Let the methods of NDArray call these functions, by their names above."""
    globals().update(functions)
