"""Names of variables: names to which the panel may bind a model, and names left behind by a loop."""

from __future__ import annotations

import ast
import builtins
import functools
import keyword
import unicodedata
import warnings
from collections.abc import Iterable, Sequence

IPYTHON_NAMES = frozenset({"In", "Out", "get_ipython", "exit", "quit", "open", "display"})
"""Names that IPython binds in every namespace, besides those with an underscore."""


def why_no_variable(variable: str) -> str | None:
    """The reason why a model cannot be bound to this name at all; None if it can."""
    if not variable.isidentifier() or keyword.iskeyword(variable):
        return f"{variable!r} is not a Python variable name: use letters, digits and underscores"
    if variable.startswith("_"):
        return f"{variable} starts with an underscore: IPython and the panel treat such names as hidden"
    if unicodedata.normalize("NFKC", variable) != variable:
        return f"{variable!r} cannot be typed as a variable: Python reads it as another name"
    if hasattr(builtins, variable):
        return f"{variable} is a builtin of Python, which a variable would hide from all code of the notebook"
    if variable in IPYTHON_NAMES:
        return f"{variable} is a name of IPython's own"
    return None


def is_leftover(name: str, sources: Sequence[str]) -> bool | None:
    """Whether a variable holds what a loop left in it, as `net` after `for net in nets.values(): ...`: the last
    statement that binds it at the top of these sources is a loop, or stands in one. None if none binds it.

    sources : the code that ran, the latest last, as IPython keeps it in `In`
    """
    for source in reversed(sources):
        found = _bound(source).get(name)
        if found is not None:
            return found
    return None


@functools.lru_cache(maxsize=1000)
def _bound(source: str) -> dict[str, bool]:
    """The variables that code binds, outside of functions and classes -> whether its last binding is of a loop."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's code, which Python gave when it ran
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, bool] = {}
    _collect(tree.body, False, found)
    return found


def _collect(nodes: Iterable[ast.AST], in_loop: bool, found: dict[str, bool]) -> None:
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = in_loop
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            _collect([*ast.iter_child_nodes(node)], True, found)
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            # Their own variables end with them; a variable that := sets in them does not.
            inner = [each.target for each in ast.walk(node) if isinstance(each, ast.NamedExpr)]
            _collect(inner, True, found)
        elif isinstance(node, ast.Call) and _cell_of_magic(node) is not None:
            found |= {name: in_loop or of_loop for name, of_loop in _bound(_cell_of_magic(node) or "").items()}
        else:
            _collect(ast.iter_child_nodes(node), in_loop, found)


def _cell_of_magic(call: ast.Call) -> str | None:
    """The code of a cell such as `%%time`, which IPython keeps as `get_ipython().run_cell_magic("time", "", code)`."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "run_cell_magic" and len(call.args) == 3:
        code = call.args[2]
        return code.value if isinstance(code, ast.Constant) and isinstance(code.value, str) else None
    return None
