"""`hybrid-lab lsp`: the linter as a language server, for editors outside of JupyterLab."""

from __future__ import annotations

from argparse import Namespace

from .command import CommandError, Commands, has_module, install_hint


def add_commands(commands: Commands) -> None:
    """Register `lsp`."""
    lsp = commands.add_parser(
        "lsp",
        help="a language server on standard input and output: marks, explanations and fixes in any editor",
        description="Speaks the Language Server Protocol on standard input and output. Editors start it themselves; "
        "docs/lab.md has the settings of some. Nothing of the code is run.",
        allow_abbrev=False,
    )
    lsp.add_argument("--stdio", action="store_true", help="what it does anyway; many editors add this argument")
    lsp.add_argument("--target", choices=("mxnet",), help="also report what MXNet itself could not run")
    lsp.set_defaults(run=run_lsp)


def run_lsp(arguments: Namespace) -> int:
    """Serve until the editor ends the connection."""
    if not has_module("pygls.lsp"):
        raise CommandError(f"the language server needs pygls 2: {install_hint('lsp')}")
    from hybrid_lab.lint.language_server import server

    server(arguments.target).start_io()
    return 0
