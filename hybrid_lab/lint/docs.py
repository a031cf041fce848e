"""Writes `docs/rules/*.md` from the records: `python -m hybrid_lab.lint.docs [folder]`."""

from __future__ import annotations

import sys
from pathlib import Path

from ..diagnostics import rules

_TOPICS = {
    "HL00": "Source",
    "HL10": "Reading what is not known while a graph is traced",
    "HL11": "Reading values in Python",
    "HL12": "Control flow",
    "HL13": "Indexing",
    "HL14": "Writing into tensors",
    "HL15": "Broadcasting and operators (MXNet)",
    "HL16": "Constants, parameters and operator namespaces",
    "HL17": "Code that runs only once, while the graph is traced",
    "HL18": "Structure of a Block",
    "HL19": "Inputs, outputs and other rules",
}
_NOTICE = "<!-- Written by `python -m hybrid_lab.lint.docs` from hybrid_lab/diagnostics/rules; edit the record. -->"


def page(record: rules.Rule) -> str:
    """The page of one rule, in Markdown."""
    severity = str(record.severity) + (", only with `target='mxnet'`" if record.portability else "")
    parts = [
        _NOTICE,
        f"# {record.code} {record.name}",
        record.summary,
        f"Severity: {severity}." + (" A warning in a 2.x-style `forward`." if record.softer_in_forward else ""),
        f"**Why.** {record.reason}",
        f"## Bad\n\n```python\n{record.bad}\n```",
        f"## Instead\n\n```python\n{record.instead}\n```",
    ]
    parts += [f"## Fix\n\n{record.fix_text}"] if record.fix_text else []
    parts += [f"## Note\n\n{record.note}"] if record.note else []
    parts += [f"## Silence it\n\nEnd the line with `# hl: ignore[{record.code}] reason`."]
    return "\n\n".join(parts) + "\n"


def index() -> str:
    """The list of all rules, in Markdown."""
    purpose = "What the linter reports: code that cannot become part of a graph, or behaves differently in one."
    lines = [_NOTICE, "", "# Rules", "", purpose, ""]
    topic = None
    for record in rules.all():
        if record.code[:4] != topic:
            topic = record.code[:4]
            lines += ["", f"## {_TOPICS[topic]}", "", "| code | name | severity | |", "|---|---|---|---|"]
        severity = "note (MXNet)" if record.portability else str(record.severity)
        summary = record.summary.replace("|", "\\|").replace("\n", " ")
        lines.append(f"| [{record.code}]({record.code}.md) | {record.name} | {severity} | {summary} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """File name -> text of every page."""
    return {"index.md": index(), **{f"{record.code}.md": page(record) for record in rules.all()}}


def write(folder: Path) -> list[Path]:
    """Write all pages and remove those of rules that are gone; returns the files that changed."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = pages()
    changed = [path for path in folder.glob("*.md") if path.name not in texts]
    for path in changed:
        path.unlink()
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "docs" / "rules"
    print(f"{len(write(target))} pages changed in {target}")
