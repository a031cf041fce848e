"""Code that is written by trying it: a line enters a method when it runs on arrays of two batch sizes."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from hybrid_lab.ndarray import NDArray

_T = TypeVar("_T")
#: `$name`, or `${one|other}`.
_SLOT = re.compile(r"\$(?:\{([^}]*)\}|([a-z]+\d?|F))")
#: Values above this are not kept: products of them would overflow in half precision.
_LARGE, _ELEMENTS = 30.0, 8000


class Chance(random.Random):
    """The choices of one program; all of them follow from its seed."""

    def one_of(self, options: Sequence[_T]) -> _T:
        return options[self.randrange(len(options))]

    def often(self, share: float) -> bool:
        return self.random() < share


class Unwritable(Exception):
    """A template asks for a value that the method does not have."""


def tensors_in(item: Any) -> list[Any]:
    """The arrays in nested tuples, lists and dicts."""
    if isinstance(item, dict):
        item = list(item.values())
    if isinstance(item, (tuple, list)):
        return [leaf for part in item for leaf in tensors_in(part)]
    return [item] if isinstance(item, NDArray) else []


def parts_of(name: str, item: Any) -> list[str]:
    """Expressions for the arrays in a variable."""
    if isinstance(item, dict):
        return [part for key, value in item.items() for part in parts_of(f"{name}[{key!r}]", value)]
    if isinstance(item, (tuple, list)):
        return [part for index, value in enumerate(item) for part in parts_of(f"{name}[{index}]", value)]
    return [name] if isinstance(item, NDArray) else []


def is_tame(array: Any, finite: bool = True) -> bool:
    """Whether a value is worth going on with: some elements, all small, and finite if they shall be."""
    values = array.asnumpy().astype(np.float64)
    if not 0 < values.size <= _ELEMENTS:
        return False
    known = np.isfinite(values)
    return bool((known.all() or not finite) and np.abs(values[known]).max(initial=0) <= _LARGE)


class Body:
    """The lines of one method.

    functions : how operators are called there: "F" or "nd"
    spaces : its variables and their values, once for each batch size
    finite : values that are not finite are not kept
    """

    def __init__(
        self,
        chance: Chance,
        functions: str,
        spaces: list[dict[str, Any]],
        arguments: Sequence[str],
        finite: bool = True,
    ):
        self.chance, self.functions, self.spaces, self.finite = chance, functions, spaces, finite
        self.lines: list[str] = []
        self.tensors: list[str] = [name for name in arguments if isinstance(spaces[0][name], NDArray)]
        self.read: set[str] = set()
        self._numbers = 0

    def new_name(self) -> str:
        self._numbers += 1
        return f"v{self._numbers}"

    def unread(self) -> list[str]:
        """Expressions for all arrays that no line reads."""
        names = [name for name in self.spaces[0] if re.fullmatch(r"[vx]\d+", name) and name not in self.read]
        return [part for name in names for part in parts_of(name, self.value(name))]

    def value(self, name: str) -> Any:
        return self.spaces[0][name]

    def tensor(self, rank: int | None = None, kind: str = "f", like: str | None = None) -> str:
        """A variable; recent ones more often. like : a variable that it has the shape of, for each batch size

        Raises Unwritable where there is none.
        """
        fitting = [
            name
            for name in self.tensors
            if (np.dtype(self.value(name).dtype).kind in "fV") == (kind == "f")
            and (rank is None or self.value(name).ndim == rank)
            and (like is None or all(space[name].shape == space[like].shape for space in self.spaces))
        ]
        if not fitting:
            raise Unwritable
        if self.chance.often(0.6):
            fitting = fitting[-2:]
        return self.chance.one_of(fitting)

    def fill(self, template: str, given: dict[str, str] | None = None) -> str:
        """The template with variables in its slots; the same slot is the same variable throughout.

        $x a floating array, $x3 one of rank 3, $same one of the shape of $x, $i whole numbers, $axis an axis of $x
        behind the batch, $new a new variable, $F the namespace of operators, ${a|b} one of several texts.
        """
        filled = dict(given or {})

        def slot(match: re.Match[str]) -> str:
            options, name = match.groups()
            if options is not None:
                return self.chance.one_of(options.split("|"))
            if name not in filled:
                filled[name] = self._choose(name, filled)
            return filled[name]

        while _SLOT.search(template):  # an option may have slots of its own
            template = _SLOT.sub(slot, template)
        return template

    def _choose(self, name: str, filled: dict[str, str]) -> str:
        if name == "F":
            return self.functions
        if name.startswith("new"):
            return self.new_name()
        if name == "i":
            return self.tensor(kind="i")
        if name == "same":
            return self.tensor(like=filled["x"])
        if name in ("axis", "size"):
            x = self.value(filled.get("x") or self.tensor())
            if x.ndim < 2 or "x" not in filled:
                raise Unwritable
            axis = self.chance.randrange(1, x.ndim)
            filled["axis"], filled["size"] = str(axis), str(x.shape[axis])
            return filled[name]
        if name[0] in "xyz" and len(name) <= 2:
            found = self.tensor(int(name[1:]) if name[1:] else None)
            filled.setdefault("x", found)
            return found
        raise KeyError(name)

    def write(self, template: str, given: dict[str, str] | None = None) -> bool:
        """Add what the template says, if it runs and gives tame values."""
        if not re.search(r"\$new\d? = |\$new\d?, |^(if|for|while|def|with) |\$new\d? ?\[", template):
            template = f"$new = {template}"
        try:
            text = self.fill(template, given)
        except Unwritable:
            return False
        return self.add(text)

    def add(self, text: str) -> bool:
        """Add these lines, if they run and give tame values."""
        code = compile(text, "<draft>", "exec")
        results = [dict(space) for space in self.spaces]
        try:
            for space in results:
                exec(code, space)
        except Exception:
            return False
        made = [name for name, value in results[0].items() if value is not self.spaces[0].get(name, self)]
        made = [name for name in made if name != "__builtins__" and tensors_in(results[0][name])]
        for name in made:
            pairs = [tensors_in(space[name]) for space in results]
            if {len(pair) for pair in pairs} != {len(pairs[0])} or not all(
                is_tame(item, self.finite) for item in sum(pairs, [])
            ):
                return False
            if any(a.ndim != b.ndim or a.dtype != b.dtype for a, b in zip(*pairs, strict=True)):
                return False
        self.spaces = results
        self.read |= {name for name in re.findall(r"\b[vx]\d+\b", text) if name not in made}
        self.tensors += [name for name in made if isinstance(results[0][name], NDArray) and name not in self.tensors]
        self.lines += text.split("\n")
        return True
