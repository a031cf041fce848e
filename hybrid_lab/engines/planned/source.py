"""Functions that engines write as text: made from it, and shown with it in tracebacks."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from types import CodeType, FunctionType, SimpleNamespace


def function_of(
    source: str, file: str, bound: dict[str, object], shown: Callable[[], str] | None = None
) -> FunctionType:
    """The function that a text defines.

    file : its name in tracebacks; bound : its globals
    shown : gives the text as people are to see it, which has the same lines; by default it is the text itself

    Tracebacks and debuggers ask `linecache` for lines, which asks the loader that a function's globals name. It skips
    names in angle brackets, so the file's name ends with ".py".
    """
    loader = SimpleNamespace(get_source=lambda name: source if shown is None else shown())
    # Globals without `__builtins__` fail where C code imports in their name, as torch does under a dispatch mode.
    bound |= {"__builtins__": builtins, "__name__": file, "__spec__": SimpleNamespace(name=file, loader=loader)}
    return FunctionType(_code(source).replace(co_filename=f"<{file}>.py"), bound)


@functools.lru_cache(maxsize=64)
def _code(source: str) -> CodeType:
    """The code of the one function in a text. Programs of one structure have one text, whatever their sizes."""
    return next(item for item in compile(source, "<program>", "exec").co_consts if isinstance(item, CodeType))
