"""`hybrid-lab lint`: findings in Python files, notebooks and folders of them; nothing of the code is run."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from hybrid_lab.diagnostics.errors import HybridLabError

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
    """The named files, and the files in the named folders (no hidden folders, environments or checkpoints), once
    each.
    """
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


def run_lint(arguments: Namespace) -> int:
    """Check every file; the findings of all of them make one report. A file that cannot be read takes no other's."""
    from hybrid_lab import lint
    from hybrid_lab.formats.atomic import atomic_write
    from hybrid_lab.lint.source import encoding_of, read_file

    if arguments.fix and "-" in arguments.paths:
        raise CommandError("--fix: standard input cannot be repaired; name the file in place of -, or leave --fix out")
    if arguments.rewrites and arguments.format == "sarif":
        raise CommandError("--rewrites: a SARIF log has no place for them; use --format text, or json, which has them")
    findings: list[lint.Finding] = []
    paths = [path for path in arguments.paths if path != "-"]
    unreadable = False
    if "-" in arguments.paths:
        given = sys.stdin.buffer.read() if hasattr(sys.stdin, "buffer") else sys.stdin.read().encode()
        findings += lint.check(given.decode("utf-8-sig", "surrogateescape"), arguments.target, file="<stdin>")
    for file in source_files(paths):
        try:
            text = read_file(str(file))
        except HybridLabError as error:
            print(f"hybrid-lab lint: {printable(str(error))}", file=sys.stderr)
            unreadable = True
            continue
        here = lint.check(text, arguments.target, file=str(file))
        if arguments.fix and (repaired := lint.apply_fixes(text, here)) != text:
            with atomic_write(file) as stream:
                stream.write(repaired.encode(encoding_of(str(file))))
            here = lint.check(repaired, arguments.target, file=str(file))
            print(f"{file}: repaired", file=sys.stderr)
        findings += here
    if arguments.format == "json":
        report = lint.to_json(findings)
    elif arguments.format == "sarif":
        report = json.dumps(lint.sarif(findings), indent=2, ensure_ascii=False)
    else:
        report = lint.text(findings, rewrites=arguments.rewrites)
    print(printable(report))
    if unreadable:
        return 2
    return 1 if any(finding.severity is lint.Severity.ERROR for finding in findings) else 0


def printable(text: str) -> str:
    """A text that standard output can encode: a file's name need not be Unicode, and a terminal may not know all
    characters.
    """
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
