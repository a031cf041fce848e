"""The Triton engine: graphs as generated kernels on a GPU (or in Triton's interpreter), the rest as fallbacks.

The engine is loaded when it is asked for: most machines only ask whether it can run (`run.availability`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hybrid_lab.engines.triton.engine import TritonEngine

    ENGINE: TritonEngine

__all__ = ["ENGINE"]


def __getattr__(name: str) -> object:
    if name == "ENGINE":
        from hybrid_lab.engines.triton.engine import ENGINE

        return ENGINE
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
