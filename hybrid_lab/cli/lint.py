"""`hybrid-lab lint`: findings in Python files, notebooks and folders of them; nothing of the code is run."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from .command import CommandError, Commands

SUFFIXES = (".py", ".ipynb")
SKIPPED = {"__pycache__", "node_modules", "site-packages"}


def add_commands(commands: Commands) -> None:
    """Register `lint`."""
    lint = commands.add_parser(
        "lint",
        help="mark code that cannot be hybridized, in Python files and notebooks",
        description="Exit status: 0 no errors, 1 at least one error, 2 a file that cannot be read. Warnings and notes "
        "do not change it.",
        allow_abbrev=False,
    )
    lint.add_argument(
        "paths", nargs="+", metavar="PATH", help="a .py or .ipynb file, a folder, or - for standard input"
    )
    lint.add_argument("--format", choices=("text", "json", "sarif"), default="text", help="default: text")
    lint.add_argument("--rewrites", action="store_true", help="text: also show what to write instead")
    lint.add_argument("--fix", action="store_true", help="apply the safe repairs to the files, report what remains")
    lint.add_argument("--target", choices=("mxnet",), help="also report what MXNet itself could not run")
    lint.set_defaults(run=run_lint)


def source_files(paths: list[str]) -> Iterator[Path]:
    """The files named, and those in the folders named (no hidden folders, environments or checkpoints), once each."""
    seen: set[Path] = set()
    for path in map(Path, paths):
        if path.is_dir():
            sources = [file for file in sorted(path.rglob("*")) if file.suffix in SUFFIXES and file.is_file()]
            files = [file for file in sources if not _skipped(file.relative_to(path))]
        elif not path.exists():
            raise CommandError(f"{path}: no such file or folder")
        elif not path.is_file():
            raise CommandError(f"{path}: neither a file nor a folder")
        elif path.suffix not in SUFFIXES:
            raise CommandError(f"{path}: neither a .py nor an .ipynb file")
        else:
            files = [path]
        for file in files:
            if (key := file.resolve()) not in seen:
                seen.add(key)
                yield file


def _skipped(relative: Path) -> bool:
    return any(part in SKIPPED or part.startswith(".") for part in relative.parts)


def read_source(file: Path) -> str:
    """A file's text with its line ends as they are. Raises CommandError for what is not UTF-8."""
    try:
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandError(f"{file}: not a UTF-8 text ({error.reason} at byte {error.start})") from None


def run_lint(arguments: Namespace) -> int:
    """Check every file; the findings of all of them make one report."""
    from .. import lint
    from ..formats.atomic import atomic_write

    findings: list[lint.Finding] = []
    paths = [path for path in arguments.paths if path != "-"]
    if "-" in arguments.paths:
        findings += lint.check(sys.stdin.read(), arguments.target, file="<stdin>")
    for file in source_files(paths):
        text = read_source(file)
        here = lint.check(text, arguments.target, file=str(file))
        if arguments.fix and (repaired := lint.apply_fixes(text, here)) != text:
            with atomic_write(file) as stream:
                stream.write(repaired.encode())
            here = lint.check(repaired, arguments.target, file=str(file))
            print(f"{file}: repaired", file=sys.stderr)
        findings += here
    if arguments.format == "json":
        print(lint.to_json(findings))
    elif arguments.format == "sarif":
        print(json.dumps(lint.sarif(findings), indent=2, ensure_ascii=False))
    else:
        print(lint.text(findings, rewrites=arguments.rewrites))
    return 1 if any(finding.severity is lint.Severity.ERROR for finding in findings) else 0
