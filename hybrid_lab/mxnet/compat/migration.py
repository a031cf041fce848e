"""The changes that a script or notebook written for MXNet needs to run here: missing names, findings, differences.

Nothing of the code is run. `hybrid-lab migrate` prints the reports.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

from hybrid_lab import lint
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.lint.source import Source, notebook_cells, read_file, read_notebook
from hybrid_lab.ndarray.namespace import OperatorNamespace
from hybrid_lab.numpy.rooms import SymbolicRoom

from .finder import THEIRS, install

LINE = "import hybrid_lab.compat"
"""The line that makes `import mxnet` this package."""
OPERATORS = f"{THEIRS}.F"
"""The name of `F` in hybrid_forward, which is `mx.nd` or `mx.sym`."""
UNKNOWN_NAME = "HL166"
"""The finding of the linter for a name that does not exist: the report has it already."""


@dataclass(frozen=True)
class LineLocation:
    """A line of a script, or of a cell in a notebook.

    line : from 1; cell : the number of the cell in a notebook, from 1, or None
    """

    line: int
    cell: int | None = None

    def __str__(self) -> str:
        return f"line {self.line}" if self.cell is None else f"cell {self.cell}, line {self.line}"


@dataclass(frozen=True)
class Missing:
    """A name of MXNet's that is not here. name : "mxnet.nd.foo"; advice : the package's text about it"""

    name: str
    place: LineLocation
    advice: str


@dataclass(frozen=True)
class Report:
    """The needs of one file.

    imports : whether it imports mxnet; prepared : whether it imports hybrid_lab.compat already; uses : name of MXNet's
    -> how often the file uses it; missing : the names that this package lacks; findings : of the linter; differences :
    name -> how this package differs from MXNet on purpose, a text for each row of docs/differences.md; error : why the
    file could not be read, or None
    """

    path: str
    imports: bool
    prepared: bool
    uses: Mapping[str, int]
    missing: tuple[Missing, ...]
    findings: tuple[lint.Finding, ...]
    differences: Mapping[str, Sequence[str]]
    error: str | None = None

    @property
    def runs(self) -> bool:
        """Whether all names that the file uses are here; their arguments are not checked."""
        return self.error is None and not self.missing

    def data(self) -> dict[str, Any]:
        """The report as JSON holds it."""
        return {
            "path": self.path,
            "imports_mxnet": self.imports,
            "imports_compat": self.prepared,
            "runs": self.runs,
            "uses": dict(self.uses),
            "missing": [asdict(item) for item in self.missing],
            "findings": json.loads(lint.to_json(list(self.findings))),
            "differences": {name: list(texts) for name, texts in self.differences.items()},
            "error": self.error,
        }


def examine(path: Path) -> Report:
    """The report on one .py or .ipynb file. Raises nothing for a file that cannot be read: `error` says why."""
    try:
        text = read_file(str(path))
    except HybridLabError as error:
        return Report(str(path), False, False, {}, (), (), {}, str(error))
    document = read_notebook(text)
    sources = [Source(text, str(path))] if document is None else notebook_cells(document, str(path))
    unread = next((why for source in sources if (why := _unread(source)) is not None), None)
    if unread is not None and document is None:
        return Report(str(path), THEIRS in text, False, {}, (), (), {}, unread)
    names: dict[str, str] = {}
    for source in sources:
        names |= _names(source.tree)
    uses: dict[str, int] = {}
    missing: dict[tuple[str, LineLocation], Missing] = {}
    told: dict[tuple[str, str], str] = {}
    visitor = _Uses(names)
    for source in sources:
        visitor.found = []
        visitor.visit(source.tree)
        for use in visitor.found:
            found, advice = _resolved(use.name)
            uses[found] = uses.get(found, 0) + 1
            told |= {(found, row.text): row.text for row in _differences() if row.is_about(found, use)}
            if advice is not None:
                place = LineLocation(getattr(use.node, "lineno", 1), source.cell)
                missing.setdefault((found, place), Missing(found, place, advice))
    order = [kind for source in sources for kind in _order(source.tree)]
    prepared, imports = order[:1] == ["compat"], "mxnet" in order or unread is not None
    places = {(str(item.place.cell), item.place.line) for item in missing.values()}
    findings = tuple(
        finding
        for finding in (lint.check(text, file=str(path)) if imports else ())
        if finding.code != UNKNOWN_NAME or (str(finding.cell), finding.line) not in places
    )
    differences: dict[str, list[str]] = {}
    for name, difference in sorted(told):
        differences.setdefault(name, []).append(difference)
    used = dict(sorted(uses.items()))
    return Report(str(path), imports, prepared, used, tuple(missing.values()), findings, differences, unread)


def _unread(source: Source) -> str | None:
    """Why code that names mxnet could not be looked at, or None."""
    if THEIRS not in source.text or (source.error is None and source.unchecked is None):
        return None
    where = "it" if source.cell is None else f"cell {source.cell}"
    return f"{where} {source.unchecked}" if source.error is None else f"{where} is no Python: {source.error}"


def prepared_text(text: str) -> str | None:
    """The text of a script or notebook with the line that makes `import mxnet` this package before its first import of
    mxnet; None if there is no such import, the line is there already, or no line can stand there. Nothing else of
    the text changes.
    """
    document = read_notebook(text)
    if document is None:
        return _with_line(text)
    cells = [(index, "".join(source) if isinstance(source, list) else source)
             for index, cell in enumerate(document.get("cells") or [])
             if isinstance(cell, dict) and cell.get("cell_type") == "code"
             and isinstance(source := cell.get("source"), (str, list))]  # fmt: skip
    for index, whole in cells:
        if "compat" in _order(Source(whole, "").tree):
            return None
        changed = _with_line(whole)
        if changed is not None:
            return _with_source(text, index, whole, changed)
    return None


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def _with_source(text: str, cell: int, old: str, new: str) -> str | None:
    """The text of a notebook with another source of one cell. Only that source's own strings are written anew."""
    strings: list[tuple[str, tuple[object, ...]]] = []

    def walk(value: object, path: tuple[object, ...]) -> None:
        if isinstance(value, _Pairs):
            for key, item in value:
                strings.append((key, ()))
                walk(item, (*path, key))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, (*path, index))
        elif isinstance(value, str):
            strings.append((value, path))

    walk(json.loads(text, object_pairs_hook=_Pairs), ())
    tokens = list(_STRING.finditer(text))
    own = [place for place, (_, path) in enumerate(strings) if path[:3] == ("cells", cell, "source")]
    if len(tokens) != len(strings) or "".join(strings[place][0] for place in own) != old:
        return None
    begun, choices = 0, []
    for place in own:
        value, path = strings[place]
        before, after = old[:begun], old[begun + len(value) :]
        if new.startswith(before) and new.endswith(after):
            made = new[len(before) : len(new) - len(after)]
            is_line = len(path) > 3 and made.endswith(value)  # the new line stands before this one, in a list of lines
            choices.append((not is_line, tokens[place], made.removesuffix(value) if is_line else made))
        begun += len(value)
    if not choices:
        return None
    is_whole, token, made = min(choices, key=lambda choice: choice[0])
    written = json.dumps(made, ensure_ascii=text.isascii())
    if is_whole:
        return text[: token.start()] + written + text[token.end() :]
    between = re.search(r"\s*\Z", text[: token.start()])
    return f"{text[: token.start()]}{written},{(between and between[0]) or ' '}{text[token.start() :]}"


class _Pairs(list[tuple[str, object]]):
    """The pairs of a JSON object, in order, repeated keys too."""


def _with_line(text: str) -> str | None:
    tree = Source(text, "").tree
    if "compat" in _order(tree):
        return None
    statements = [
        node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)) and _is_of_mxnet(node)
    ]
    for statement in sorted(statements, key=lambda node: (node.lineno, node.col_offset))[:1]:
        lines = re.split(r"(\r\n|\r|\n)", text)  # lines as Python has them, and their ends
        place = 2 * (statement.lineno - 1)
        first = lines[place]
        indent = first[: len(first) - len(first.lstrip())]
        if statement.col_offset != len(indent.encode()) or (place and lines[place - 2].endswith("\\")):
            return None  # behind another statement on its line, or the rest of one
        end = next((lines[each] for each in (place + 1, place - 1) if 0 < each < len(lines)), "\n")
        lines[place] = f"{indent}{LINE}{end}{first}"
        changed = "".join(lines)
        return changed if _order(Source(changed, "").tree)[:2] == ["compat", "mxnet"] else None
    return None


def _order(tree: ast.AST) -> list[str]:
    """Imports of hybrid_lab.compat and of mxnet, in the order of the text: ["compat", "mxnet", "mxnet"]."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            kinds = ["compat"] if "hybrid_lab.compat" in _imported(node) else ["mxnet"] if _is_of_mxnet(node) else []
            found += [((node.lineno, node.col_offset), kind) for kind in kinds]
    return [kind for _, kind in sorted(found)]


# -- names -----------------------------------------------------------------------------------------------------------


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if node.level or not node.module:
        return []
    return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]


def _is_of_mxnet(statement: ast.Import | ast.ImportFrom) -> bool:
    if isinstance(statement, ast.Import):
        return any(alias.name.partition(".")[0] == THEIRS for alias in statement.names)
    return not statement.level and (statement.module or "").partition(".")[0] == THEIRS


def _names(tree: ast.AST) -> dict[str, str]:
    """Names that imports of mxnet bind -> their meaning: {"mx": "mxnet", "nn": "mxnet.gluon.nn"}."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and _is_of_mxnet(node):
            for alias in node.names:
                if alias.name.partition(".")[0] == THEIRS:
                    found[alias.asname or THEIRS] = alias.name if alias.asname else THEIRS
        elif isinstance(node, ast.ImportFrom) and _is_of_mxnet(node):
            for alias in node.names:
                if alias.name != "*":
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


@dataclass(frozen=True)
class _Use:
    """One use of a name. call : the call of it, if it is called; traced : whether it stands in hybrid_forward"""

    name: str
    node: ast.AST
    call: ast.Call | None = None
    traced: bool = False


class _Uses(ast.NodeVisitor):
    """MXNet's dotted names in the code, each in its full length, and the imported names, in the order of the text.

    names : of imports -> their meaning; a name no longer counts after the code assigns it another value
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.found: list[_Use] = []
        self._names = dict(names)
        self._traced = 0
        self._scopes: list[set[str]] = []
        """The names that each function or class around the code binds itself; none at the top level."""

    def visit_Import(self, node: ast.Import) -> None:
        self.found += [_Use(alias.name, node) for alias in node.names if alias.name.partition(".")[0] == THEIRS]
        self._names |= _names(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if _is_of_mxnet(node):
            module = node.module or THEIRS
            names = [module if alias.name == "*" else f"{module}.{alias.name}" for alias in node.names]
            self.found += [_Use(name, node) for name in names]
            self._names |= _names(node)

    def visit_Call(self, node: ast.Call) -> None:
        if (name := self._dotted(node.func)) is not None:
            self.found.append(_Use(name, node.func, node, self._traced > 0))
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _TRAINING:
            self.found.append(_Use(THEIRS, node.func, node))
            self.visit(node.func)
        else:
            self.visit(node.func)
        self._visit_all(*node.args, *node.keywords)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if (name := self._dotted(node)) is not None:
            self.found.append(_Use(name, node, None, self._traced > 0))
            return
        value: ast.expr = node
        while isinstance(value, ast.Attribute):
            value = value.value
        if not isinstance(value, ast.Name):
            self.visit(value)

    def _dotted(self, node: ast.expr) -> str | None:
        """The name of MXNet's that an expression is: "mxnet.nd.ones" for `nd.ones`; None for other expressions."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._names:
            return None
        if any(node.id in scope for scope in self._scopes):
            return None
        return ".".join([self._names[node.id], *reversed(parts)])

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store) and not self._scopes:
            self._names.pop(node.id, None)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        if isinstance(node.value, ast.Constant):  # `mx = None` after an import that failed
            return
        module = self._dotted(node.value)
        for target in node.targets:
            self.visit(target)
            if module is not None and isinstance(target, ast.Name) and not self._scopes and _is_module(module):
                self._names[target.id] = module  # `nd = mx.nd`

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._visit_all(node.target, *node.body, *node.orelse)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = node.args
        outer = [*node.decorator_list, *arguments.defaults, *arguments.kw_defaults, node.returns]
        self._visit_all(*outer, *(argument.annotation for argument in _arguments(arguments)))
        if node.name != "hybrid_forward" or len(arguments.args) < 2:
            self._visit_inside(_bound(node), *node.body)
            return
        names, operators = self._names, arguments.args[1].arg  # F
        self._names, self._traced = names | {operators: OPERATORS}, self._traced + 1
        self._visit_inside(_bound(node) - {operators}, *node.body)
        self._names, self._traced = names, self._traced - 1

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - a name of ast's

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_all(*node.args.defaults, *node.args.kw_defaults)
        self._visit_inside({argument.arg for argument in _arguments(node.args)}, node.body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all(*node.decorator_list, *node.bases, *node.keywords)
        self._visit_inside(set(), *node.body)

    def _visit_comprehension(self, node: ast.AST) -> None:
        self._scopes.append({item.id for item in ast.walk(node) if _is_bound(item)})
        self.generic_visit(node)
        self._scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension  # noqa: N815

    def _visit_inside(self, bound: set[str], *nodes: ast.AST) -> None:
        self._scopes.append(bound)
        self._visit_all(*nodes)
        self._scopes.pop()

    def _visit_all(self, *nodes: ast.AST | None) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    several = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return [argument for argument in several if argument is not None]


def _is_bound(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _bound(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The names that a function binds itself: arguments and assigned names, without global ones."""
    nodes = list(ast.walk(function))
    bound = {node.id for node in nodes if _is_bound(node)} | {node.arg for node in _arguments(function.args)}
    shared = {name for node in nodes if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    return bound - shared - set(_names(function))


@cache
def _resolved(name: str) -> tuple[str, str | None]:
    """The part of a dotted name that is a name of a module, and why it is not here, or None."""
    if name == OPERATORS or name.startswith(f"{OPERATORS}."):
        either = [_resolved(name.replace(OPERATORS, f"{THEIRS}.{module}", 1)) for module in ("sym", "nd")]
        return next((found for found in either if found[1] is None), either[1])
    install()
    parts = name.split(".")
    value: object = importlib.import_module(THEIRS)
    known = THEIRS
    for part in parts[1:]:
        if isinstance(value, types.FunctionType) and not hasattr(value, part):
            return f"{known}.{part}", f"{known} is a function here; {_INSTEAD.get(known, 'MXNet has a module there')}"
        if not _has_names(value):
            break  # an attribute of a class or function
        known = f"{known}.{part}"
        try:
            value = getattr(value, part)
        except (AttributeError, ImportError) as error:
            try:
                value = importlib.import_module(known)
            except ImportError:
                return known, str(error)
    return known, None


_INSTEAD = {f"{THEIRS}.log": "use logging.getLogger"}
"""Modules of MXNet's whose names are functions here -> what to use."""


def _has_names(value: object) -> bool:
    """Whether an object is a module, or holds operators as one: `mx.nd.contrib`."""
    return isinstance(value, types.ModuleType | OperatorNamespace | SymbolicRoom)


def _is_module(name: str) -> bool:
    """Whether a dotted name is a module of this package."""
    install()
    value: object = importlib.import_module(THEIRS)
    for part in name.split(".")[1:]:
        value = getattr(value, part, None)
    return _has_names(value)


# -- differences -----------------------------------------------------------------------------------------------------

_TRAINING = {"fit", "init_optimizer"}
"""Methods of a Module, whose arguments name stores and optimizers."""
_SHORT = {"initializer": "init", "kvstore": "kv", "module": "mod", "ndarray": "nd", "numpy": "np",
          "numpy_extension": "npx", "symbol": "sym", "visualization": "viz"}  # fmt: skip
"""Modules by the name that docs/differences.md has for them."""


@dataclass(frozen=True)
class _Difference:
    """A row of docs/differences.md, for one name in it: the fields of scripts/write_differences.py."""

    name: str
    strings: tuple[str, ...]
    arguments: Mapping[str, str | None]
    traced: bool
    text: str

    def is_about(self, name: str, use: _Use) -> bool:
        """Whether the row may matter for this use. name : the part of it that is a name of a module"""
        if self.strings and not set(self.strings) & _strings(use.call):
            return False
        if self.traced and not use.traced:
            return False
        return (not self.name or self._names(name)) and self._has_arguments(use.call)

    def _names(self, name: str) -> bool:
        parts = [_SHORT.get(part, part) for part in name.split(".")[1:]]
        own = self.name.removeprefix("mx.").removeprefix("F.").split(".")
        if len(own) == 1 and not self.name.startswith("mx."):
            return parts[-1:] == own and not _is_module(name)
        begins = (0,) if self.name.startswith("mx.") else range(len(parts))
        return any(parts[begin : begin + len(own)] == own for begin in begins)

    def _has_arguments(self, call: ast.Call | None) -> bool:
        if not self.arguments:
            return True
        given = {keyword.arg: keyword.value for keyword in call.keywords} if call is not None else {}
        return all(name in given and _may_be(given[name], value) for name, value in self.arguments.items())


def _strings(call: ast.Call | None) -> set[str]:
    """The texts in the arguments of a call."""
    parts = [*call.args, *call.keywords] if call is not None else []
    return {
        node.value
        for part in parts
        for node in ast.walk(part)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _may_be(node: ast.expr, value: str | None) -> bool:
    """Whether an argument may have a value, given as code; None: any value."""
    if value is None or not isinstance(node, ast.Constant):
        return True
    try:
        return bool(node.value == ast.literal_eval(value))
    except (ValueError, SyntaxError):
        return True


@cache
def _differences() -> Sequence[_Difference]:
    """The rows of docs/differences.md: scripts/write_differences.py writes the file from the page."""
    text = (Path(__file__).parent / "differences.json").read_text(encoding="utf-8")
    return [_Difference(**row | {"strings": tuple(row["strings"])}) for row in json.loads(text)]
