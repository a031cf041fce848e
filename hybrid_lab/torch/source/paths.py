"""Names in a module's source: MXNet's flat names as a tree of modules, and unused identifiers."""

from __future__ import annotations

import builtins
import keyword
import os
import re
from collections.abc import Collection, Iterable

#: Attributes of torch.nn.Module that a layer's name would hide, and those that `torch.nn.Module` refuses.
_OF_MODULES = frozenset({
    "add_module", "apply", "bfloat16", "buffers", "children", "compile", "cpu", "cuda", "double", "dump_patches",
    "eval", "extra_repr", "float", "forward", "half", "ipu", "load_state_dict", "modules", "mtia", "named_buffers",
    "named_children", "named_modules", "named_parameters", "parameters", "register_buffer", "register_module",
    "register_parameter", "requires_grad_", "share_memory", "state_dict", "to", "to_empty", "train", "training",
    "type", "xpu", "zero_grad", "T_destination", "call_super_init",
})  # fmt: skip
_NUMBERED = re.compile(r"[A-Za-z]\w*\d")
"""A part of a name that layers are grouped by: "stage1", "unit2", and not "batch"."""


def identifier(text: str) -> str:
    """The text as a Python name: "0-conv" -> "_0_conv"."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII) or "_"
    return f"_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name


def unused(name: str, taken: Collection[str]) -> str:
    """The name, or the name with the first number that makes it a new one. Names of Python's own are taken."""
    number, found = 2, name
    while found in taken or hasattr(builtins, found):
        found, number = f"{name}_{number}", number + 1
    return found


def tree(names: Iterable[str]) -> dict[str, str]:
    """A path for each name: "resnet0_stage1_conv0" -> "stage1.conv0".

    What all names begin with is left out. A part that ends in a digit groups the names that follow it, if there are
    several and none is the name of a layer itself.
    """
    names = list(dict.fromkeys(names))
    common = os.path.commonprefix(names) if len(names) > 1 else ""
    start = common.rfind("_") + 1
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        parts, path = name[start:].split("_"), ""
        begun = name[:start]
        kept: list[str] = []
        for place, part in enumerate(parts):
            begun += part
            kept.append(part)
            rest = "_".join(parts[place + 1 :])
            group = f"{begun}_"
            alike = sum(other.startswith(group) for other in names)
            joined = "_".join(kept)
            if rest and rest[0].isalpha() and _NUMBERED.fullmatch(joined) and alike > 1 and begun not in names:
                path += f"{_attribute(joined)}."
                kept = []
            begun = group
        path = f"{path}{_attribute('_'.join(kept))}"
        free, number = path, 2
        while free in taken:
            free, number = f"{path}_{number}", number + 1
        taken.add(free)
        found[name] = free
    return found


def _attribute(text: str) -> str:
    name = identifier(text)
    return f"{name}_" if name in _OF_MODULES else name
