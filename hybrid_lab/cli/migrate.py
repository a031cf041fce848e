"""`hybrid-lab migrate`: what scripts and notebooks written for MXNet need to run here."""

from __future__ import annotations

import html
import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.formatting import count

from .command import Commands
from .lint import printable, source_files

if TYPE_CHECKING:
    from hybrid_lab.diagnostics.finding import Finding
    from hybrid_lab.mxnet.compat.migration import Report


def add_commands(commands: Commands) -> None:
    """Register `migrate`."""
    migrate = commands.add_parser(
        "migrate",
        help="what scripts and notebooks written for MXNet need to run here",
        description="Looks at each file that imports mxnet: names that are not here, findings of the linter, and where "
        "this package differs on purpose. Nothing of the code is run. Exit status: 0 all names are here, 1 some are "
        "missing, 2 a file that cannot be read.",
        allow_abbrev=False,
    )
    migrate.add_argument("paths", nargs="+", metavar="PATH", help="a .py or .ipynb file, or a folder")
    migrate.add_argument("--format", choices=("text", "json", "html"), default="text", help="default: text")
    migrate.add_argument("--write", action="store_true", help="put `import hybrid_lab.compat` before `import mxnet`")
    migrate.set_defaults(run=run_migrate)


def run_migrate(arguments: Namespace) -> int:
    """Examine every file; with --write also put the line into files that import mxnet without it."""
    from hybrid_lab.mxnet.compat.migration import examine

    reports = [report for file in source_files(arguments.paths)
               if (report := examine(file)).imports or report.error]  # fmt: skip
    if arguments.write:
        for report in reports:
            _write(report)
        reports = [examine(Path(report.path)) for report in reports]
    made = {"json": _json, "html": _html, "text": _text}[arguments.format](reports)
    print(printable(made))
    if any(report.error for report in reports):
        return 2
    return 0 if all(report.runs for report in reports) else 1


def _write(report: Report) -> None:
    from hybrid_lab.formats.atomic import atomic_write
    from hybrid_lab.lint.source import encoding_of, read_file
    from hybrid_lab.mxnet.compat.migration import prepared_text

    if report.error or report.prepared:
        return
    changed = prepared_text(read_file(report.path))
    if changed is None:
        print(f"{report.path}: left as it is; add import hybrid_lab.compat by hand", file=sys.stderr)
    else:
        with atomic_write(report.path) as stream:
            stream.write(changed.encode(encoding_of(report.path)))
        print(f"{report.path}: import hybrid_lab.compat added", file=sys.stderr)


def _verdict(report: Report) -> str:
    if report.error:
        return report.error
    if report.missing:
        return f"{count(len({item.name for item in report.missing}), 'name')} missing"
    if report.prepared:
        return "all names are here; runs as it is"
    return "all names are here; run it with `python -m hybrid_lab.compat`, or add `import hybrid_lab.compat` (--write)"


def _summary(reports: Sequence[Report]) -> str:
    able = sum(report.runs for report in reports)
    return f"{count(len(reports), 'file')} with MXNet, {able} of them with all names here"


def _place(finding: Finding) -> str:
    return f"line {finding.line}" if finding.cell is None else f"cell {finding.cell}, line {finding.line}"


def _differences(report: Report) -> list[str]:
    """The texts about differences, each once."""
    return list(dict.fromkeys(text for texts in report.differences.values() for text in texts))


def _text(reports: Sequence[Report]) -> str:
    lines = []
    for report in reports:
        lines.append(f"{report.path}: {_verdict(report)}")
        lines += [f"  {item.place}: {item.name}: {item.advice}" for item in report.missing]
        lines += [f"  {_place(finding)}: {finding.code} {finding.message}" for finding in report.findings]
        lines += [f"  differs on purpose: {text}" for text in _differences(report)]
    return "\n".join([*lines, _summary(reports)])


def _json(reports: Sequence[Report]) -> str:
    return json.dumps([report.data() for report in reports], indent=2, ensure_ascii=False)


_STYLE = """:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { font-size: 1rem; margin: 2rem 0 0; overflow-wrap: anywhere; }
p { margin: 0; } li { overflow-wrap: anywhere; }
.missing, .error { color: light-dark(#b3261e, #f2b8b5); } .here { color: light-dark(#1b6b32, #8fd6a3); }"""


def _html(reports: Sequence[Report]) -> str:
    parts = ['<!doctype html><html lang="en"><head><meta charset="utf-8"><title>From MXNet to Hybrid Lab</title>'
             f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>',
             f"<h1>From MXNet to Hybrid Lab</h1><p>{html.escape(_summary(reports))}</p>"]  # fmt: skip
    for report in reports:
        kind = "error" if report.error else "here" if report.runs else "missing"
        rows = [f"{item.place}: <code>{html.escape(item.name)}</code>: {html.escape(item.advice)}"
                for item in report.missing]  # fmt: skip
        rows += [html.escape(f"{_place(finding)}: {finding.code} {finding.message}") for finding in report.findings]
        rows += [html.escape(f"differs on purpose: {text}") for text in _differences(report)]
        items = "".join(f"<li>{row}</li>" for row in rows)
        parts.append(f'<h2>{html.escape(report.path)}</h2><p class="{kind}">{html.escape(_verdict(report))}</p>'
                     + (f"<ul>{items}</ul>" if items else ""))  # fmt: skip
    return "\n".join([*parts, "</body></html>"])
