"""Names of variables that the panel may bind a model to."""

from __future__ import annotations

import builtins
import keyword
import unicodedata

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
