"""Examples as an interactive session shows them: every statement with what it prints."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import random
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import numpy

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd, np, npx
from hybrid_lab.gluon import nn


class ExampleError(Exception):
    """An example does not run."""


def names() -> dict[str, Any]:
    """What every example has: the imports that the site shows at the top of the reference."""
    return {"mx": mx, "nd": nd, "gluon": gluon, "nn": nn, "autograd": autograd, "np": np, "npx": npx, "sym": mx.sym}


def session(code: str, scope: dict[str, Any] | None = None) -> str:
    """The statements of `code` behind `>>> `, each with what it prints and the value of an expression.

    Raises ExampleError where one fails.
    """
    scope = names() if scope is None else scope
    shown: list[str] = []
    with _own_folder(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mx.random.seed(1)
        numpy.random.seed(1)
        random.seed(1)
        for statement in ast.parse(code).body:
            lines = (ast.get_source_segment(code, statement) or "").splitlines()
            if getattr(statement, "decorator_list", None):
                lines = code.splitlines()[statement.decorator_list[0].lineno - 1 : statement.end_lineno]  # type: ignore[attr-defined]
            shown += [(">>> " if index == 0 else "... ") + line for index, line in enumerate(lines)]
            shown += _output(statement, scope, code)
    return "\n".join(line.rstrip() for line in shown)


def attempt(code: str) -> str | None:
    """The session of code, or None if the code needs variables that it does not make: a network, data, a trainer."""
    try:
        return session(code)
    except (ExampleError, SyntaxError):
        return None


def _output(statement: ast.stmt, scope: dict[str, Any], code: str) -> list[str]:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            if isinstance(statement, ast.Expr):
                value = eval(compile(ast.Expression(statement.value), "example", "eval"), scope)
                if value is not None:
                    print(repr(value))
            else:
                exec(compile(ast.Module([statement], []), "example", "exec"), scope)
    except Exception as error:
        raise ExampleError(f"{type(error).__name__}: {error}\nin the example\n{code}") from error
    return printed.getvalue().strip("\n").splitlines()


@contextlib.contextmanager
def _own_folder() -> Iterator[None]:
    """A working folder that is empty and removed afterwards, and the switches that an example may leave on."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
            npx.reset_np()
            autograd.set_recording(False)
            autograd.set_training(False)
