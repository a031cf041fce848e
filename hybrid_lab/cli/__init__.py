"""The command `hybrid-lab`: one module a subject, a plain message instead of a traceback for bad input."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from hybrid_lab import _version
from hybrid_lab.diagnostics.errors import HybridLabError

from . import archive, compile, convert, environment, jupyter, lint, lsp, migrate
from .command import CommandError

__all__ = ["CommandError", "main", "parser"]


def parser() -> argparse.ArgumentParser:
    """The argument parser; every command sets `run`, a function of the parsed arguments that gives the exit status."""
    top = argparse.ArgumentParser(
        prog="hybrid-lab",
        description="Gluon-style models in JupyterLab: the tutorial, checks of code, model files, code and models of "
        "MXNet, kernels for GPUs, and what this machine has.",
        epilog="`hybrid-lab COMMAND --help` explains a command. The first one: hybrid-lab tutorial",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"hybrid-lab {_version.__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for subject in (jupyter, lint, lsp, archive, convert, migrate, compile, environment):
        subject.add_commands(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status: 0, 1 (findings, differences, damage) or 2 (a bad request)."""
    top = parser()
    arguments, rest = top.parse_known_args(argv)
    if rest and not getattr(arguments, "passes_on", False):
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    arguments.rest = rest
    try:
        return arguments.run(arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (`| head`) has gone; closing quietly keeps Python from complaining at exit.
        sys.stderr.close()
        return 141
    except (CommandError, HybridLabError, OSError) as error:
        print(f"hybrid-lab {arguments.command}: {_plain(error)}", file=sys.stderr)
        return getattr(error, "status", 2)


def _plain(error: Exception) -> str:
    """The message; of the system's own errors without their number: `net.hlab: Permission denied`."""
    own = isinstance(error, HybridLabError)
    if not own and isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
