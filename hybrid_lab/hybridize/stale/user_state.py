"""The Python state that a Block's code may change while it is traced: attributes of Blocks and classes, globals,
containers, and the generators of random numbers.

`UserState` copies this state before a trace, compares it after the trace, and restores it if the trace was refused.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from hybrid_lab.hybridize.block import OWN, AnyBlock
from hybrid_lab.hybridize.stale.code import bases_of_user, facts_of, functions_of, of_user
from hybrid_lab.hybridize.structure import contents, same_objects
from hybrid_lab.symbol import tracing

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Tree

_ABSENT = object()


class Name(NamedTuple):
    """A name that the code of a Block may assign: `self.text`, an attribute of its class or of a base, or a global.

    owner : of a class attribute the class that has it; of a global the dict of its module; of `self.text` nothing
    """

    block: Tree
    sort: Literal["attribute", "class", "global"]
    text: str
    owner: Any = None

    def __str__(self) -> str:
        """As the code writes it."""
        if self.sort == "global":
            return self.text
        return f"{'self' if self.sort == 'attribute' else self.owner.__name__}.{self.text}"


#: The object of a name and, if it is a mutable container, its contents. The parts stay alive, so that identity tells
#: them apart.
_Content = tuple[object, ...]
_MUTABLE = (list, set, deque, dict)
_Container = list[object] | set[object] | deque[object] | dict[object, object]


class UserState:
    """The objects of all names that the code of some Blocks may assign, and what their containers hold, as of now.

    blocks : Blocks of the user's own classes
    """

    def __init__(self, blocks: list[Tree]) -> None:
        self._blocks = blocks
        self._before = self._now()
        values = [content[0] for _, content in self._before.values()]
        self._containers = _containers([*values, *map(_attributes_of, values)])
        self._random = random.getstate(), np.random.get_state()

    def changed(self) -> list[Name]:
        """The names assigned or deleted since, and the names of containers with other objects."""
        now = self._now()
        nothing: tuple[None, _Content] = (None, ())
        return [
            name
            for key, (name, _) in {**self._before, **now}.items()
            if not same_objects(self._before.get(key, nothing)[1], now.get(key, nothing)[1])
        ]

    def name_of_a_tensor(self) -> Name | None:
        """A name whose object is a tensor of a trace, or holds one."""
        for name, (value, *_) in self._now().values():
            attributes = _attributes_of(value)
            if tracing.holds_symbols(value if attributes is None else [*attributes.values()]):
                return name
        return None

    def restore(self) -> None:
        """Give names, containers, attributes of named objects, and the global generators of random numbers what they
        had. Child Blocks stay as they are.
        """
        now = self._now()
        nothing: tuple[None, _Content] = (None, (_ABSENT,))
        for key, (name, _) in {**self._before, **now}.items():
            value = self._before.get(key, nothing)[1][0]
            if value is not now.get(key, nothing)[1][0] and not isinstance(value, AnyBlock):
                _assign(name, value)
        for container, parts in self._containers:
            if not same_objects(contents(container), parts):
                _refill(container, parts)
        self.restore_random()

    def restore_random(self) -> None:
        """Give the global generators of random numbers of Python and NumPy their states again."""
        random.setstate(self._random[0])
        np.random.set_state(self._random[1])

    def _now(self) -> dict[object, tuple[Name, _Content]]:
        """Key -> (name, its object and contents). The keys of two names differ."""
        named: list[tuple[Name, object]] = []
        for block in self._blocks:
            attributes = list(vars(block).items())
            named += [(Name(block, "attribute", text), value) for text, value in attributes if text not in OWN]
        seen: set[tuple[int, str]] = set()  # a global belongs to one Block
        for kind, block in {type(each): each for each in reversed(self._blocks)}.items():
            named += [(Name(block, "class", text, owner), value) for owner, text, value in _class_attributes(kind)]
            for function in functions_of(kind):
                names, used = function.__globals__, {*facts_of(function.__code__).names}
                new = [text for text in sorted(used & names.keys()) if (id(names), text) not in seen]
                named += [(Name(block, "global", text, names), names[text]) for text in new]
                seen.update((id(names), text) for text in new)
        return {
            # By identity: globals have no hash, and neither have Blocks of a class that defines `__eq__`.
            (id(name.block), name.sort, name.text, id(name.owner)): (
                name,
                (value, *(contents(value) if isinstance(value, _MUTABLE) else ())),
            )
            for name, value in named
        }


def _attributes_of(value: object) -> dict[str, object] | None:
    """The attributes of an object of a class of the user's; None for Blocks and for what else has none."""
    if isinstance(value, AnyBlock) or not hasattr(value, "__dict__") or not of_user(type(value).__module__):
        return None
    return vars(value) if isinstance(vars(value), dict) else None


def _class_attributes(kind: type) -> list[tuple[type, str, object]]:
    """The attributes of a class and its user-written bases, except functions and what Python wraps them in, with the
    defining class.
    """
    return [
        (owner, name, value)
        for owner in bases_of_user(kind)
        for name, value in vars(owner).items()
        if not name.startswith("__")
        and (of_user(type(value).__module__) or not (callable(value) or hasattr(value, "__get__")))
    ]


def _containers(values: Iterable[object]) -> list[tuple[_Container, list[object]]]:
    """The mutable containers among some values and inside them, each with its contents."""
    found: list[tuple[_Container, list[object]]] = []
    pending, visited = list(values), set[int]()
    while pending:
        item = pending.pop()
        if isinstance(item, (list, tuple, set, deque, dict)) and id(item) not in visited:
            visited.add(id(item))
            parts = contents(item)
            if not isinstance(item, tuple):
                found.append((item, parts))
            pending += parts
    return found


def _assign(name: Name, value: object) -> None:
    """Give a name its object again, or delete it if it had none."""
    block, sort, text, owner = name
    if sort == "attribute":
        object.__setattr__(block, text, value) if value is not _ABSENT else object.__delattr__(block, text)
    elif sort == "class" and value is not _ABSENT:
        setattr(owner, text, value)
    elif sort == "class":
        if text in vars(owner):  # not deleted yet for a Block of another class with this base
            delattr(owner, text)
    elif value is not _ABSENT:
        owner[text] = value
    else:
        owner.pop(text, None)


def _refill(container: _Container, parts: list[object]) -> None:
    """Let a container hold these objects again; of a dict, keys and values in turn."""
    container.clear()
    if isinstance(container, dict):
        container.update(zip(parts[::2], parts[1::2], strict=True))
    elif isinstance(container, set):
        container.update(parts)
    else:
        container.extend(parts)
