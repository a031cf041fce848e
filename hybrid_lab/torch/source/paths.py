"""Names in a module's source: MXNet's flat names as a tree of modules, and unused identifiers."""

from __future__ import annotations

import builtins
import keyword
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

#: Attributes of torch.nn.Module that a layer's name would hide, and names that `torch.nn.Module` refuses.
OF_MODULES = frozenset({
    "T_destination", "add_module", "apply", "bfloat16", "buffers", "call_super_init", "children", "compile", "cpu",
    "cuda", "double", "dump_patches", "eval", "extra_repr", "float", "forward", "get_buffer", "get_extra_state",
    "get_parameter", "get_submodule", "half", "ipu", "load_state_dict", "modules", "mtia", "named_buffers",
    "named_children", "named_modules", "named_parameters", "parameters", "register_buffer", "register_module",
    "register_parameter", "requires_grad_", "set_extra_state", "set_submodule", "share_memory", "state_dict", "to",
    "to_empty", "train", "training", "type", "xpu", "zero_grad",
})  # fmt: skip
_NUMBERED = re.compile(r"[A-Za-z]\w*\d")
"""A part of a name that layers are grouped by: "stage1", "unit2", and not "batch"."""


def identifier(text: str) -> str:
    """The text as a Python name: "0-conv" -> "_0_conv"."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII) or "_"
    return f"_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name


class UniqueNames:
    """Names that are in use: each call of `new` gives another one. Names of Python's own are in use."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken, self._last = set(taken), dict[str, int]()

    def new(self, name: str) -> str:
        """The name, or the name with the first number that makes it a new one."""
        found = name
        while found in self._taken or hasattr(builtins, found):
            number = self._last[name] = self._last.get(name, 1) + 1
            found = f"{name}_{number}"
        self._taken.add(found)
        return found


_MOST_PARTS = 30
"""A name of more parts stays one."""


def tree(names: Iterable[str], members: Collection[str] = OF_MODULES) -> dict[str, str]:
    """A path for each name: "resnet0_stage1_conv0" -> "stage1.conv0".

    What all names begin with is left out. A part that ends in a digit groups the names that follow it, if there are
    several and none is the name of a layer itself. members : names that a layer cannot have
    """
    whole = dict.fromkeys(names)
    common = os.path.commonprefix(list(whole)) if len(whole) > 1 else ""
    start = common.rfind("_") + 1
    parts = {name: name[start:].split("_", _MOST_PARTS) for name in whole}
    alike = Counter("_".join(each[:count]) for each in parts.values() for count in range(1, len(each)))
    layers = {name[start:] for name in whole}
    free = UniqueNames()
    return {name: free.new(".".join(_path(each, alike, layers, members))) for name, each in parts.items()}


def _path(
    parts: Sequence[str], alike: Mapping[str, int], layers: Collection[str], members: Collection[str]
) -> Iterator[str]:
    """The attributes that lead to a layer. alike : how many names begin with some parts"""
    kept: list[str] = []
    for place, part in enumerate(parts):
        kept.append(part)
        begun, joined = "_".join(parts[: place + 1]), "_".join(kept)
        rest = "_".join(parts[place + 1 :])
        if rest[:1].isalpha() and _NUMBERED.fullmatch(joined) and alike[begun] > 1 and begun not in layers:
            yield _attribute(joined, members)
            kept = []
    yield _attribute("_".join(kept), members)


def _attribute(text: str, members: Collection[str]) -> str:
    name = identifier(text)
    name = f"layer{name}" if name.startswith("_") else name  # such names are Module's own, or mangled in a class
    return f"{name}_" if name in members else name
