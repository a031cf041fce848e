"""Write hybrid_lab/mxnet/compat/differences.json: the rows of docs/differences.md by the names that they are about."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "docs" / "differences.md"
TARGET = ROOT / "hybrid_lab" / "mxnet" / "compat" / "differences.json"
_NAME = re.compile(r"`([^`]+)`")


def differences() -> dict[str, str]:
    """Last part of a name, "gather_nd" -> "MXNet: ...; here: ..." of the row in whose first column it stands."""
    found: dict[str, str] = {}
    for line in SOURCE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) < 3 or not cells[0] or set(cells[0]) <= set("- "):
            continue
        for text in _NAME.findall(cells[0]):
            called = re.match(r"(?:[\w.]*\.)?([A-Za-z_]\w{2,})(?:\(|$)", text)
            if called and cells[1] and cells[2]:
                found.setdefault(called[1], f"{cells[0]} - MXNet: {cells[1]}; here: {cells[2]}")
    return dict(sorted(found.items()))


def text() -> str:
    """The file."""
    return json.dumps(differences(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
