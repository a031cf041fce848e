"""Write hybrid_lab/mxnet/compat/differences.json: the rows of docs/differences.md by the names that they are about.

`hybrid-lab migrate` tells a row only of code that the row is about. How the first column says this:

    `np.var`, `arange`                  every use of the name; without a module, in every module
    `Trainer(kvstore="dist_sync")`      calls with this argument; `num_outputs=...`: with any value
    `norm` with `out_dtype`             the same; all calls with "or" between arguments, or ", the default" after them
    `"adadelta"`                        calls with this text among their arguments
    `F.split`, inside `hybrid_forward`  uses in hybrid_forward
    under, inside, outside of, after, without `name`: not one of the row's names
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "docs" / "differences.md"
TARGET = ROOT / "hybrid_lab" / "mxnet" / "compat" / "differences.json"
_CODE = re.compile(r"`([^`]+)`")
_NAME = re.compile(r"(?P<path>(?:[A-Za-z_]\w*\.)*)(?P<last>[A-Za-z_]\w{2,})(?:\((?P<arguments>.*)\)|(?P<end>$))")
#: "`norm` with `out_dtype`", "`SoftmaxOutput` with `multi_output` and `smooth_alpha`": the names, and the arguments.
_WITH = re.compile(
    r"((?:`[^`]+`(?:,| and)? ?)+)with (?:a |one |negative |number as |[0-9]+ in )*((?:`[^`]+`(?: and | or )?)+)"
)
_LINK = re.compile(r" \(\[[^\]]+\]\(([^)]+)\)\)")
#: Names that the page gives to arrays and objects of the reader's own: `x.asscalar()`, `net.cast(None)`.
_OBJECTS = {"x", "y", "net", "self"}


def differences() -> list[dict[str, Any]]:
    """The rows, each once for each name in its first column.

    name : as the page writes it, "np.var"; strings : literals that the row is about, "dist_sync"; arguments : keyword
    arguments that a call must have for the row to matter, with their values, or None for any value; traced : whether
    the row is about code in hybrid_forward; text : the row
    """
    found = []
    for line in SOURCE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) < 3 or not cells[0] or set(cells[0]) <= set("- ") or not (cells[1] and cells[2]):
            continue
        text = _LINK.sub(r" (docs/\1)", f"{cells[0]} - MXNet: {cells[1]}; here: {cells[2]}")
        row = {"text": text, "traced": "inside `hybrid_forward`" in cells[0]}
        apart = set(re.findall(r"\b(?:under|inside|outside of|after|without) `([^`]+)`", cells[0]))
        behind_with = apart | {match for part in _WITH.finditer(cells[0]) for match in _CODE.findall(part[2])}
        for code in _CODE.findall(cells[0]):
            if code in behind_with:
                continue
            if re.fullmatch(r'"\w+"', code):
                found.append({"name": "", "strings": [code.strip('"')], "arguments": {}, **row})
                continue
            called = _NAME.match(code)
            if not called or called["path"].split(".")[0] in _OBJECTS or code.startswith("_"):
                continue
            arguments = called["arguments"] or ""
            wanted = dict(_argument(part) for part in re.findall(r"\w+=[^,]+", arguments))
            wanted |= dict(_argument(each) for each in _behind(code, cells[0]))
            strings = re.findall(r'(?<!=)"(\w+)"', arguments)
            name = called["path"] + called["last"]
            traced = row["traced"] or name.startswith("F.")
            found.append({"name": name, "strings": strings, "arguments": wanted, "traced": traced, "text": text})
    return sorted(found, key=lambda row: (row["name"].rpartition(".")[2], row["name"]))


def _behind(code: str, row: str) -> list[str]:
    """The arguments that stand behind a name and "with"; none if they are alternatives, or what calls do by default."""
    for part in _WITH.finditer(row):
        if code in _CODE.findall(part[1]) and " or " not in part[2] and "the default" not in row[part.end() :]:
            return [each for each in _CODE.findall(part[2]) if re.fullmatch(r"\w+(=.*)?", each)]
    return []


def _argument(text: str) -> tuple[str, str | None]:
    name, _, value = text.partition("=")
    return name, value if value and value != "..." else None


def text() -> str:
    """The file."""
    return json.dumps(differences(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
