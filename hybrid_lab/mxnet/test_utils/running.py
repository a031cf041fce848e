"""What tests run in: contexts, environment variables, repetitions, expected exceptions."""

from __future__ import annotations

import functools
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ParamSpec

from hybrid_lab.ndarray import waitall
from hybrid_lab.ndarray.context import Context, current_context, num_gpus, set_default_context

P = ParamSpec("P")

__all__ = [
    "assert_exception",
    "default_context",
    "discard_stderr",
    "environment",
    "has_tvm_ops",
    "is_aarch64_run",
    "is_cd_run",
    "is_op_runnable",
    "list_gpus",
    "retry",
    "set_default_context",
]


def default_context() -> Context:
    """The context that tests run in: the current one."""
    return current_context()


def list_gpus() -> range:
    """The numbers of the GPUs that can be used."""
    return range(num_gpus())


def retry(n: int) -> Callable[[Callable[P, object]], Callable[P, None]]:
    """Decorator of a random test: run it up to n times until it passes."""
    if n < 1:
        raise ValueError(f"a test cannot run {n} times")

    def decorate(test: Callable[P, object]) -> Callable[P, None]:
        @functools.wraps(test)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            for left in reversed(range(n)):
                try:
                    test(*args, **kwargs)
                    return
                except AssertionError:
                    if not left:
                        raise
                    waitall()

        return run

    return decorate


def assert_exception(
    f: Callable[P, object],
    exception_type: type[BaseException] | tuple[type[BaseException], ...],
    *args: P.args,
    **kwargs: P.kwargs,
) -> None:
    """Raise AssertionError where `f(*args, **kwargs)` does not raise `exception_type`."""
    try:
        f(*args, **kwargs)
        waitall()
    except exception_type:
        return
    raise AssertionError(f"{getattr(f, '__name__', f)} did not raise {exception_type}")


@contextmanager
def environment(*args: str | None | Mapping[str, str | None]) -> Iterator[None]:
    """Environment variables for a `with` statement: a name and a value, or a mapping; None removes a variable."""
    if len(args) == 1 and isinstance(args[0], Mapping):
        wanted: dict[str, str | None] = dict(args[0])
    elif len(args) == 2 and isinstance(args[0], str) and not isinstance(args[1], Mapping):
        wanted = {args[0]: args[1]}
    else:
        raise TypeError("environment takes a name and a value, or one mapping of names to values")
    before = {name: os.environ.get(name) for name in wanted}
    try:
        _set(wanted)
        yield
    finally:
        waitall()
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def discard_stderr() -> Iterator[None]:
    """Nothing that the process writes to standard error is seen."""
    try:
        number = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # in a notebook it is no file
        yield
        return
    saved = os.dup(number)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), number)
            yield
    finally:
        os.dup2(saved, number)
        os.close(saved)


def is_cd_run() -> bool:
    """Whether the environment variable CD_JOB is 1."""
    return os.environ.get("CD_JOB") == "1"


def is_aarch64_run() -> bool:
    """Whether this is a 64-bit ARM processor."""
    return platform.machine() == "aarch64"


def has_tvm_ops() -> bool:
    """Whether there are operators made by TVM: never."""
    return False


def is_op_runnable() -> bool:
    """Whether the operators that MXNet makes with TVM run here: all operators do."""
    return True
