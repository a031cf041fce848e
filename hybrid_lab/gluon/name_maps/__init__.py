"""Maps from the names that other libraries give the parameters of well-known networks to paths in Blocks: one JSON file
each. `net.load_parameters(path, map="torchvision-resnet50")` takes one by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from hybrid_lab.diagnostics import SettingError


@dataclass(frozen=True)
class NameMap:
    """How the names of a file become paths.

    paths : beginning of a name -> the beginning of the path; `*` is any one part of a name, between dots. The longest
        beginning counts; other names are not changed. A beginning that ends with `_` is a prefix of Gluon's names,
        {"net0_": "net1_"}, and "" stands before all names
    about : the map's source and target
    names : by which `load_parameters` knows the map
    prefixes : first parts that some files put before all names
    left_out, transposed : patterns, as of file names, of arrays that the Blocks lack or have transposed
    """

    paths: Mapping[str, str]
    about: str = ""
    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    transposed: tuple[str, ...] = ()
    _patterns: list[tuple[list[str], str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        patterns = [(source.removesuffix(".").split("."), target) for source, target in self.paths.items()]
        for parts, target in patterns:
            if target.split(".").count("*") > parts.count("*"):
                raise SettingError(f"map: {'.'.join(parts)!r} has fewer * than {target!r}, which it becomes")
        patterns.sort(key=lambda item: (-len(item[0]), item[0].count("*")))
        object.__setattr__(self, "_patterns", patterns)

    def stripped(self, name: str) -> str:
        """The name without a first part that only some files have."""
        start, _, rest = name.partition(".")
        return rest if start in self.prefixes else name

    def path(self, name: str) -> str:
        """The path of an array that the file calls `name`."""
        parts = name.split(".")
        for pattern, target in self._patterns:
            if len(pattern) <= len(parts) and all(one in ("*", part) for one, part in zip(pattern, parts)):
                variable = iter([part for one, part in zip(pattern, parts) if one == "*"])
                found = [next(variable) if part == "*" else part for part in target.split(".")]
                return ".".join([part for part in [*found, *parts[len(pattern) :]] if part])
        for prefix in sorted((each for each in self.paths if not each or each.endswith("_")), key=len, reverse=True):
            if name.startswith(prefix):
                target = self.paths[prefix]
                dot = "" if prefix or not target or target.endswith(("_", ".")) else "."
                return f"{target}{dot}{name[len(prefix) :]}"
        return name

    def leaves_out(self, name: str) -> bool:
        """Whether the Blocks have nothing for this array."""
        return any(fnmatchcase(name, pattern) for pattern in self.left_out)

    def transposes(self, name: str) -> bool:
        """Whether the Blocks have this matrix transposed."""
        return any(fnmatchcase(name, pattern) for pattern in self.transposed)


@cache
def name_maps() -> dict[str, NameMap]:
    """All maps of this package by name."""
    found: dict[str, NameMap] = {}
    for file in sorted(Path(__file__).parent.glob("*.json")):
        text = file.read_text(encoding="utf-8")
        entries: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in json.loads(text).items()
        }
        item = NameMap(**entries)
        found.update(dict.fromkeys(item.names, item))
    return found


def name_map(name: str) -> NameMap:
    """The map of this name. Raises SettingError, naming the nearest maps, for an unknown name."""
    maps = name_maps()
    if name not in maps:
        near = get_close_matches(name, maps, 3) or list(maps)
        raise SettingError(f"there is no map {name!r}; there are {', '.join(near)}, or a dict of names of your own")
    return maps[name]
