"""Write hybrid_lab/mxnet/compat/differences.json: the rows of docs/differences.md by the names that they are about.

`hybrid-lab migrate` tells a row only of code that the row is about. How the first column says this:

    `np.var`, `arange`                  every use of the name; without a module, in every module
    `Trainer(kvstore="dist_sync")`      calls with this argument; `num_outputs=...`: with any value
    `norm` with `out_dtype`             the same; all calls with "or" between arguments, or ", the default" after them
    `"adadelta"`                        calls with this text among their arguments
    `F.split`, inside `hybrid_forward`  uses in hybrid_forward
    under, inside, outside of, after, without `name`: not one of the row's names
    `x + y`, `y[0] = x`, `x.item()`     about no name: only operators, and names of the reader's own (OWN)

A cell that is written in another way, such as a keyword argument without its function, is an error that names it.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "docs" / "differences.md"
TARGET = ROOT / "hybrid_lab" / "mxnet" / "compat" / "differences.json"
_CODE = re.compile(r"`([^`]+)`")
#: "`norm` with `out_dtype`", "`SoftmaxOutput` with `multi_output` and `smooth_alpha`": the names, and the arguments.
_WITH = re.compile(
    r"((?:`[^`]+`(?:,| and)? ?)+)with (?:a |one |negative |number as |[0-9]+ in )*((?:`[^`]+`(?: and | or )?)+)"
)
_LINK = re.compile(r" \(\[[^\]]+\]\(([^)]+)\)\)")
#: Names that the page gives to arrays and objects of the reader's own: `x.asscalar()`, `net.cast(None)`.
OWN = {"x", "mask", "y", "a", "b", "net", "self", "block", "inputs", "symbol"}
#: What stands between backticks and is no code that uses a name: modules as a whole, and parts of file names.
NO_NAMES = {"mx.nd", "mx.np", "F.np", ".safetensors", "prefix-0003.states"}


class UnreadableRow(Exception):
    """A row of the page is not written as this script reads it."""


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
            if code in behind_with or (read := _read(code, cells[0])) is None:
                continue
            wanted = read["arguments"] | dict(_argument(each) for each in _behind(code, cells[0]))
            traced = row["traced"] or read["name"].startswith("F.")
            found.append({**read, "arguments": wanted, "traced": traced, "text": text})
    return sorted(found, key=lambda row: (row["name"].rpartition(".")[2], row["name"]))


def _read(code: str, row: str) -> dict[str, Any] | None:
    """The name that a code of the first column is about, with its texts and arguments; None if it is about none."""
    if code in NO_NAMES or not re.search(r"\w", code):
        return None
    try:
        (statement,) = ast.parse(code.replace("\\|", "|")).body
    except (SyntaxError, ValueError):
        raise UnreadableRow(f"`{code}` is no Python, in the row: {row}") from None
    if (
        isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id not in OWN
    ):
        raise UnreadableRow(f"`{code}` is an argument without its function, such as `f({code})`, in the row: {row}")
    node = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {"name": "", "strings": [node.value], "arguments": {}}
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and hasattr(builtins, node.func.id):
        node = node.args[0]  # len(IntervalSampler(...)) is about the sampler
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
        node = node.value  # Parameter(dtype=None).dtype is about the Parameter
    call = node if isinstance(node, ast.Call) else None
    path = node.func if call else node
    if isinstance(path, ast.Name | ast.Attribute):
        name = ast.unparse(path)
        if not re.fullmatch(r"[\w.]+", name):
            raise UnreadableRow(f"`{code}` is about no name of a module, in the row: {row}")
        if name.split(".")[0] in OWN or name.startswith("_"):
            return None
        texts = [each.value for each in (call.args if call else ()) if isinstance(each, ast.Constant)]
        given = {each.arg or "": _literal(each.value) for each in (call.keywords if call else ())}
        return {"name": name, "strings": [each for each in texts if isinstance(each, str)], "arguments": given}
    used = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)}
    if used <= OWN:
        return None
    raise UnreadableRow(f"`{code}`: it is not clear which name this is about, in the row: {row}")


def _literal(node: ast.expr) -> str | None:
    """The source of an argument's value; None for `...`, any value."""
    return None if isinstance(node, ast.Constant) and node.value is ... else ast.unparse(node)


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
