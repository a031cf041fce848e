"""How much there is to learn in the code: lines, imports against the order of rooms, types, private names, and what the
calls of the network in README.md run.

    python scripts/measure_code.py                  the table, as Markdown
    python scripts/measure_code.py --list KIND      each occurrence of upward, indirect, cycles, long, private or except
    python scripts/measure_code.py --list calls     the functions of each call, file by file

Everything but the calls is read from the source text; the calls are those of scripts/measure_calls.py.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent))
import measure_calls  # noqa: E402 - beside this file, which tests load by its path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "hybrid_lab"
#: The rooms from the lowest to the highest: a room imports from those before it. Names in one tuple are one level, and
#: of a folder the parts that are named here are rooms of their own.
ORDER = (
    ("_version", "aliases", "system", "mxnet", "mxnet.without_compat", "data"),
    ("diagnostics",),
    ("mxnet.base", "mxnet.engine", "mxnet.libinfo", "mxnet.registry"),
    ("ops",),
    ("graph",),
    ("formats",),
    ("engines",),
    ("context", "ndarray", "autograd", "random"),
    ("symbol.name", "symbol.attribute", "symbol.scopes"),
    ("symbol",),
    ("numpy", "mxnet.runtime", "mxnet.util"),
    ("initializer", "optimizer", "lr_scheduler", "metric", "mxnet.operator"),
    ("data.image_files",),
    ("data.io", "data.recordio"),
    ("data.image",),
    ("mxnet.contrib.text", "distributed.kvstore"),
    ("distributed",),
    ("hybridize",),
    ("gluon",),
    ("mxnet.executor",),
    ("mxnet.model",),
    ("mxnet.callback", "mxnet.monitor", "mxnet.module", "mxnet.rnn"),
    ("mxnet.contrib",),
    ("mxnet.test_utils",),
    ("insight", "mxnet.profiler", "mxnet.viz"),
    ("formats.archive",),
    ("formats.checkpoint",),
    ("onnx",),
    ("torch",),
    ("lint",),
    ("lab",),
    ("mxnet.compat",),
    ("cli",),
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
#: Folders of rooms that have no order among them: all that is in such a folder itself is its first file's docstring.
SHELVES = ("mxnet", "data")
LONG = 60
#: The lines of these are counted apart, too.
PARTS = ("engines", "graph", "ops", "gluon", "hybridize")


Node = TypeVar("Node", bound=ast.AST)


@dataclass
class Source:
    """One module. name : dotted, without the package; room : as ORDER names it"""

    name: str
    path: Path
    tree: ast.Module
    lines: int
    room: str = field(init=False)

    def __post_init__(self) -> None:
        self.room = room_of(self.name)

    @cached_property
    def _nodes(self) -> dict[type[ast.AST], list[Any]]:
        """Class -> the nodes of the module that it has, in the order of `ast.walk`; contexts are left out."""
        found: dict[type[ast.AST], list[Any]] = {}
        waiting: list[ast.AST] = [self.tree]
        for node in waiting:  # which grows meanwhile
            found.setdefault(type(node), []).append(node)
            for name in node._fields:
                item = getattr(node, name, None)
                if isinstance(item, list):
                    waiting += [each for each in item if isinstance(each, ast.AST)]
                elif name != "ctx" and isinstance(item, ast.AST):
                    waiting.append(item)
        return found

    def of(self, *classes: type[Node]) -> list[Node]:
        """The nodes of these classes, one class after the other."""
        return [node for each in classes for node in self._nodes.get(each, ())]

    @cached_property
    def names_of_package(self) -> dict[str, str]:
        """Each name that the module imports of the package -> the module, or its name, that it stands for."""
        return _names_of_package(self)

    @cached_property
    def imports_by_typing(self) -> dict[bool, list[tuple[ast.stmt, str, bool]]]:
        return {typing: list(_imports(self, typing)) for typing in (False, True)}

    def where(self, node: ast.AST) -> str:
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def room_of(module: str) -> str:
    """The longest start of a module's name that is a room; the first part of a name that ORDER lacks."""
    parts = module.split(".")
    starts = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((start for start in starts if start in LEVEL), parts[0])


def sources() -> list[Source]:
    """All modules of the package, but `__init__` and `__main__` of the package itself."""
    found = []
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name not in ("", "__main__"):
            text = path.read_text(encoding="utf-8")
            found.append(Source(name, path, ast.parse(text), text.count("\n")))
    return found


def imports(source: Source, typing: bool = False) -> list[tuple[ast.stmt, str, bool]]:
    """Imports of the package's own modules: statement, module, whether it runs when the module is imported.

    typing : also the imports for type checkers alone
    """
    return source.imports_by_typing[typing]


def _imports(source: Source, typing: bool) -> Iterator[tuple[ast.stmt, str, bool]]:

    def walk(body: list[ast.stmt], now: bool) -> Iterator[tuple[ast.stmt, str, bool]]:
        for node in body:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.startswith(f"{PACKAGE}."):
                        yield node, alias.name.removeprefix(f"{PACKAGE}."), now
            elif isinstance(node, ast.ImportFrom):
                base = _absolute(source, node)
                if base is not None:
                    for alias in node.names:
                        yield node, f"{base}.{alias.name}".strip("."), now
            elif isinstance(node, ast.If) and _for_type_checkers(node.test):
                yield from walk([*node.body, *node.orelse] if typing else node.orelse, now)
            else:
                inner = now and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
                for part in ("body", "orelse", "finalbody", "handlers", "cases"):
                    for child in getattr(node, part, []):
                        yield from walk(
                            child.body if hasattr(child, "body") and not isinstance(child, ast.stmt) else [child], inner
                        )

    return walk(source.tree.body, True)


def _for_type_checkers(test: ast.expr) -> bool:
    """Whether a condition is TYPE_CHECKING, or it and others."""
    parts = isinstance(test, (ast.BoolOp, ast.UnaryOp))
    return "TYPE_CHECKING" in ast.dump(test) if parts else _last(test) == "TYPE_CHECKING"


def _absolute(source: Source, node: ast.ImportFrom) -> str | None:
    """The module that names are imported from, without the package; None where it is not the package's."""
    if node.level:
        parts = source.name.split(".")
        keep = len(parts) - node.level + (source.path.stem == "__init__")
        return ".".join([*parts[: max(keep, 0)], *([node.module] if node.module else [])])
    if node.module == PACKAGE:
        return ""
    if node.module and node.module.startswith(f"{PACKAGE}."):
        return node.module.removeprefix(f"{PACKAGE}.")
    return None


def upward(modules: list[Source]) -> list[str]:
    """Imports of a room that stands higher in ORDER, those for type checkers and `import_module("...")` among them."""
    found = []
    for source in modules:
        named = [(node, target) for node, target, _ in imports(source, typing=True)]
        for node, target in [*named, *_imports_by_text(source)]:
            room = room_of(target)
            if room in LEVEL and source.room in LEVEL and LEVEL[room] > LEVEL[source.room]:
                found.append(f"{source.where(node)}: {source.room} imports {target}")
    return list(dict.fromkeys(found))


def _imports_by_text(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Calls of `import_module("hybrid_lab.room")`."""
    for node in source.of(ast.Call):
        if _last(node.func).endswith("import_module"):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and str(argument.value).startswith(f"{PACKAGE}."):
                    yield node, str(argument.value).removeprefix(f"{PACKAGE}.")


#: Methods with which a module adds a function of its own to a list that another module calls.
_ADDING = ("add", "append", "insert", "register", "setdefault")


def indirect(modules: list[Source]) -> list[str]:
    """Calls upward that no import shows: functions that a lower room calls and a higher one has.

    They are `Provided("name")`, an assignment `module.slot = function` from another module (also of the same room),
    and functions that a module adds to a list, a dict or a set of a lower room: `listeners.append(function)`.
    """
    providers = _table_of_provided()
    names = {source.name for source in modules}
    found = []
    for source in modules:
        here = source.names_of_package
        own = {each.name for each in source.of(ast.FunctionDef)}
        for node in source.of(ast.Call, ast.Assign, ast.AnnAssign):
            if isinstance(node, ast.Call) and _last(node.func) in ("Provided", "_Provided"):
                name = getattr(node.args[0], "value", None) if node.args else None
                room = room_of(providers[name]) if name in providers else None
                if room is not None and LEVEL[room] > LEVEL[source.room]:
                    found.append(f"{source.where(node)}: {source.room} calls {room} through Provided({name!r})")
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in (each for one in targets for each in getattr(one, "elts", [one])):
                    module = here.get(_root(target))
                    slot = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
                    if module in names if slot else module is not None and "listeners" in ast.unparse(target):
                        found.append(f"{source.where(node)}: {source.name} assigns {ast.unparse(target)} of {module}")
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr not in (*_ADDING, "listen"):
                    continue
                module, what = here.get(_root(node.func)), ast.unparse(node.func)
                if node.func.attr == "listen" and what != "events.listen":
                    continue
                arguments = [*node.args, *(keyword.value for keyword in node.keywords if what == "events.listen")]
                added = {each.id for item in arguments for each in ast.walk(item) if isinstance(each, ast.Name)}
                if module is not None and (added & own or "listeners" in what):
                    room = room_of(module)
                    if LEVEL[room] < LEVEL[source.room]:
                        found.append(f"{source.where(node)}: {source.room} adds a function to {room}: {what}")
    return found


def classes_assigned(modules: list[Source]) -> list[str]:
    """Assignments of another class to an object that is made already: `x.__class__ = ...`."""
    return [
        f"{source.name}: {ast.unparse(target)}"
        for source in modules
        for target in _targets(source)
        if isinstance(target, ast.Attribute) and target.attr == "__class__"
    ]


def modules_changed(modules: list[Source]) -> list[str]:
    """Assignments to an attribute of another module of the package: `location.cell_runs = 1`."""
    names, found = {source.name for source in modules}, []
    for source in modules:
        here = source.names_of_package
        for target in _targets(source):
            if isinstance(target, ast.Attribute) and here.get(ast.unparse(target.value)) in names:
                found.append(f"{source.name}: {ast.unparse(target)}")
    return found


def _targets(source: Source) -> Iterator[ast.expr]:
    """What assignments of a module write to, of `a, b = ...` each."""
    for node in source.of(ast.Assign, ast.AnnAssign, ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from getattr(target, "elts", [target])


def _root(node: ast.expr) -> str:
    """The name that an expression begins with: `a` of `a.b[0].c`."""
    first = node
    while isinstance(first, (ast.Attribute, ast.Subscript)):
        first = first.value
    return first.id if isinstance(first, ast.Name) else re.split(r"[.\[(]", ast.unparse(node))[0]


def _last(node: ast.expr) -> str:
    """The name that an expression ends with: `c` of `a.b.c`; nothing for what is no name."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _table_of_provided() -> dict[str, str]:
    """Name of a provided function -> its module, from the table in the package's `__init__`."""
    tree = ast.parse((ROOT / PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    tables = [
        node.args[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "_provided.register"
    ]
    return {name: module.removeprefix(f"{PACKAGE}.") for name, (module, _) in ast.literal_eval(tables[0]).items()}


def _names_of_package(source: Source) -> dict[str, str]:
    names = {}
    for node in source.of(ast.ImportFrom, ast.Import):
        if isinstance(node, ast.ImportFrom) and (base := _absolute(source, node)) is not None:
            names |= {alias.asname or alias.name: f"{base}.{alias.name}".strip(".") for alias in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith(f"{PACKAGE}.") and alias.asname:
                    names[alias.asname] = alias.name.removeprefix(f"{PACKAGE}.")
    return names


def cycles(modules: list[Source], every: bool = True, typing: bool = False) -> list[str]:
    """Groups of modules of which each imports each, directly or through others (Tarjan).

    every : also by imports in functions; typing : also by those for type checkers
    """
    names = {source.name for source in modules}
    edges: dict[str, set[str]] = {name: set() for name in names}
    for source in modules:
        for _, target, now in imports(source, typing):
            module = target if target in names else target.rpartition(".")[0]
            if module in names and module != source.name and (now or every):
                edges[source.name].add(module)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[str] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(edges[name]):
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            at = stack.index(name)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                found.append(", ".join(sorted(group)))

    sys.setrecursionlimit(10_000)
    for name in sorted(names):
        if name not in index:
            visit(name)
    return sorted(found, key=len, reverse=True)


def annotations_of(source: Source) -> Iterator[ast.expr]:
    for node in source.of(ast.FunctionDef, ast.AsyncFunctionDef, ast.AnnAssign):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = node.args
            for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
                if argument is not None and argument.annotation is not None:
                    yield argument.annotation
            if node.returns is not None:
                yield node.returns
        else:
            yield node.annotation


def has_any(annotation: ast.expr) -> bool:
    return any(
        (isinstance(node, ast.Name) and node.id == "Any")
        or (isinstance(node, ast.Attribute) and node.attr == "Any")
        or (isinstance(node, ast.Constant) and isinstance(node.value, str) and "Any" in node.value)
        for node in ast.walk(annotation)
    )


def any_share(modules: list[Source]) -> float:
    """The share of annotations that name Any."""
    found = [has_any(annotation) for source in modules for annotation in annotations_of(source)]
    return sum(found) / max(len(found), 1)


def long_functions(modules: list[Source]) -> list[str]:
    return [
        f"{source.where(node)}: {node.name} has {(node.end_lineno or 0) - node.lineno + 1} lines"
        for source in modules
        for node in source.of(ast.FunctionDef, ast.AsyncFunctionDef)
        if (node.end_lineno or 0) - node.lineno >= LONG
    ]


#: Methods of named tuples, which have an underscore so that they cannot be mistaken for fields.
_OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in {"_", *_OF_NAMED_TUPLES}


def private(modules: list[Source]) -> list[str]:
    """Names with an underscore that belong to another room: `x._name` that no module of the room has.

    Left out are a class's own names, which a base class in another room may have, operators (`F._sum_like`), and what
    other packages have: `torch._check`.
    """
    own: dict[str, set[str]] = {}
    operators = {
        keyword.value.value
        for source in modules
        for node in source.of(ast.ClassDef)
        for keyword in node.keywords
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant)
    }
    for source in modules:
        names = own.setdefault(source.room, set())
        names |= {node.name for node in source.of(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)}
        names |= {node.attr for node in source.of(ast.Attribute) if isinstance(node.ctx, ast.Store)}
        names |= {node.id for node in source.of(ast.Name) if isinstance(node.ctx, ast.Store)}
        names |= {node.value for node in source.of(ast.Constant) if isinstance(node.value, str)}  # of __slots__
    everywhere = set().union(*own.values())
    known = {room: names | operators for room, names in own.items()}
    found = []
    for source in modules:
        here = known[source.room]
        foreign = _names_of_others(source)
        for node in source.of(ast.Attribute, ast.ImportFrom):
            if isinstance(node, ast.Attribute):
                if not _private(node.attr) or node.attr in here or node.attr not in everywhere:
                    continue
                if _root(node) in foreign or ast.unparse(node.value) in ("self", "cls"):
                    continue
                found.append(f"{source.where(node)}: {ast.unparse(node)[:80]}")
            elif (base := _absolute(source, node)) is not None:
                if room_of(base) != source.room:
                    found += [
                        f"{source.where(node)}: {base}.{alias.name}"
                        for alias in node.names
                        if _private(alias.name) and alias.name not in LEVEL
                    ]
    return found


def _names_of_others(source: Source) -> set[str]:
    """The names that a module imports of other packages."""
    return {
        (alias.asname or alias.name).split(".")[0]
        for node in source.of(ast.Import, ast.ImportFrom)
        if isinstance(node, ast.Import) or _absolute(source, node) is None
        for alias in node.names
        if not alias.name.startswith(PACKAGE)
    }


def broad(modules: list[Source]) -> list[str]:
    """Handlers that catch Exception or everything."""
    return [
        f"{source.where(node)}: except {ast.unparse(node.type) if node.type else ''}"
        for source in modules
        for node in source.of(ast.ExceptHandler)
        if node.type is None
        or {"Exception", "BaseException"} & {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)}
    ]


def table(modules: list[Source]) -> str:
    rows: list[tuple[str, str]] = []
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for source in modules:
        parts = source.name.split(".")
        if source.path.stem == "__init__":
            parts.append("")
        lines[parts[0]] += source.lines
        files[parts[0]] += 1
        if parts[0] in PARTS and len(parts) > 2:
            lines[f"{parts[0]}/{parts[1]}"] += source.lines
            files[f"{parts[0]}/{parts[1]}"] += 1
    rows.append(("all: lines, files", f"{sum(source.lines for source in modules)}, {len(modules)}"))
    rows += [(f"{name}: lines, files", f"{lines[name]}, {files[name]}") for name in sorted(lines) if files[name] > 1]
    rows += [
        ("imports upward", str(len(upward(modules)))),
        ("calls upward through Provided, assigned slots and lists of listeners", str(len(indirect(modules)))),
        ("circles of modules, by imports when loaded", str(len(cycles(modules, every=False)))),
        ("circles with imports in functions: number, modules in them", _circles(cycles(modules))),
        ("and with imports for type checkers", _circles(cycles(modules, typing=True))),
        ("annotations with Any", f"{any_share(modules):.1%}"),
        ("annotations with Any in ops", f"{any_share([s for s in modules if s.room == 'ops']):.1%}"),
        (f"functions over {LONG} lines", str(len(long_functions(modules)))),
        ("private names of another room", str(len(private(modules)))),
        ("except Exception, all", str(len(broad(modules)))),
        (
            "except Exception in graph and engines",
            str(len(broad([s for s in modules if s.room in ("graph", "engines")]))),
        ),
    ]
    width = max(len(name) for name, _ in rows)
    counts = "\n".join(["| what | count |", "|---|---|", *(f"| {name:<{width}} | {value} |" for name, value in rows)])
    return f"{counts}\n\n{measure_calls.table(measure_calls.measured())}"


def _circles(found: list[str]) -> str:
    return f"{len(found)}, {sum(group.count(',') + 1 for group in found)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", choices=["upward", "indirect", "cycles", "long", "private", "except", "calls"])
    options = parser.parse_args()
    modules = sources()
    if options.list is None:
        print(table(modules))
    elif options.list == "calls":
        print(measure_calls.listing(measure_calls.measured()))
    else:
        lists = {"upward": upward, "indirect": indirect, "cycles": cycles, "long": long_functions, "private": private}
        print("\n".join({**lists, "except": broad}[options.list](modules)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
