"""Writes Block classes: children, parameters and attributes in `__init__`, a forward in one of three styles."""

from __future__ import annotations

import re
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from tests.random_programs.bodies import KEEPING, LOOPS, WITH_BLOCKS, WITH_PARAMETERS
from tests.random_programs.bodies import NOT_FINITE as LOOPS_NOT_FINITE
from tests.random_programs.layers import LAYERS, Layer
from tests.random_programs.operators import (
    ANYWHERE,
    FUNCTIONS,
    IN_TRACES,
    NOT_FINITE,
    ON_ARRAYS,
    SIZES,
    WHOLE,
    WITH_ATTRIBUTES,
    ZERO_WEIGHTS,
)
from tests.random_programs.writing import Body, Chance, tensors_in

HEADER = """import copy
import os
import pickle
import numpy as np
import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import Block, HybridBlock, nn, rnn
"""

#: The base class, how the method is called, how its operators are called.
STYLES = {
    "1.x": ("HybridBlock", "hybrid_forward(self, F, ", "F"),
    "2.x": ("HybridBlock", "forward(self, ", "nd"),
    "plain": ("Block", "forward(self, ", "nd"),
}

_HELPER = "def mixed(self, F, x, k=1):\n    return x * k + self.scale"


@dataclass
class Module:
    """The classes written so far.

    finite : whether all values are; those that are not meet no sum with weights of 0
    unused : whether some class computes what it does not return
    """

    chance: Chance
    finite: bool = True
    unused: bool = False
    texts: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        exec(HEADER, self.names)
        self.names["__name__"] = "drafts"
        for text in FUNCTIONS.values():
            exec(text, self.names)

    def usable(self, rows: Sequence[Any]) -> list[Any]:
        """The rows of a table, or layers, that may meet the values of this program."""
        names = [row.name if isinstance(row, Layer) else row for row in rows]
        return [row for row, name in zip(rows, names, strict=True) if self.finite or not ZERO_WEIGHTS.search(name)]


@dataclass(frozen=True)
class Written:
    """A class: how it is called with the arrays it was written for, and what it returns.

    call : `{0}, [{1}, {2}]`, to be filled with the names of arrays; result : a pattern that its result unpacks into,
    with `{}` for each array, or None where it must be taken apart by keys
    """

    name: str
    hybrid: bool
    call: str
    result: str
    keys: tuple[str, ...] = ()


def write_class(module: Module, depth: int, spaces: Sequence[Sequence[Any]], hybrid: bool) -> Written:
    """A class that takes these arrays (once for each batch size), with classes nested `depth` deep inside it."""
    return _Class(module, depth, spaces, hybrid).written()


class _Class:
    def __init__(self, module: Module, depth: int, spaces: Sequence[Sequence[Any]], hybrid: bool):
        self.module, self.chance, self.depth, self.hybrid = module, module.chance, depth, hybrid
        self.style = self.chance.one_of(["1.x", "2.x"]) if hybrid else "plain"
        self.init: list[str] = []
        self.children: dict[str, tuple[Any, str]] = {}
        self.parameters: list[str] = []
        self.draft = gluon.Block()
        self.names = [f"x{index}" for index in range(len(spaces[0]))]
        self._attributes()
        shown = [
            dict(module.names, self=self.draft, F=mx.nd, **dict(zip(self.names, row, strict=True))) for row in spaces
        ]
        self.body = Body(self.chance, STYLES[self.style][2], shown, self.names, module.finite)

    def _attributes(self) -> None:
        values = {
            "scale": (0.5, 2.0, 1),
            "flag": (True, False),
            "times": (1, 2),
            "fail": (False,),
            "numbers": ([1, 2], [0.5]),
        }
        for name, options in values.items():
            value = self.chance.one_of(options)
            self.init.append(f"self.{name} = {value!r}")
            setattr(self.draft, name, value)
        scope: dict[str, Any] = {}
        exec(_HELPER, scope)
        self.draft.__dict__["mixed"] = types.MethodType(scope["mixed"], self.draft)

    # -- the forward -------------------------------------------------------------------------------------------------

    def written(self) -> Written:
        parameters, call = self._parameters()
        moves = [self._layer] * 8 + [self._line] * 10 + [self._again, self._own_parameter, self._stack, self._rows] * 2
        moves += [self._loop, self._body_of_blocks, self._sizes] + [self._whole] * (2 if "i" in self._kinds() else 0)
        moves += [] if self.module.finite else [self._not_finite] * 6
        moves += [self._nested] * 12 if self.depth else []
        wanted = self.chance.randrange(2, 7)
        with autograd.train_mode():
            for _ in range(4 * wanted):
                if wanted and self.chance.one_of(moves)():
                    wanted -= 1
            result, pattern, keys = self._result()
        name = f"Net{len(self.module.texts)}"
        text = self._text(name, parameters, result, pattern)
        exec(text, self.module.names)
        self.module.texts.append(text)
        return Written(name, self.hybrid, call, pattern, keys)

    def _line(self) -> bool:
        tables = [ANYWHERE, ANYWHERE, ANYWHERE, WITH_ATTRIBUTES]
        tables += {"plain": [ON_ARRAYS], "2.x": [IN_TRACES] if self.chance.often(0.1) else []}.get(self.style, [])
        return self._written_row(self.chance.one_of(tables))

    def _written_row(self, rows: Sequence[str]) -> bool:
        return self.body.write(self.chance.one_of(self.module.usable(rows)))

    def _loop(self) -> bool:
        return self._written_row(LOOPS)

    def _whole(self) -> bool:
        return self._written_row(WHOLE)

    def _sizes(self) -> bool:
        return self._written_row(SIZES)

    def _not_finite(self) -> bool:
        return self._written_row(self.chance.one_of([NOT_FINITE, NOT_FINITE, LOOPS_NOT_FINITE]))

    def _kinds(self) -> set[str]:
        """What the arguments are: "f" floating, "i" whole numbers or masks."""
        shown = [np.dtype(self.body.value(name).dtype).kind for name in self.body.tensors]
        return {"f" if kind in "fV" else "i" for kind in shown}

    def _layer(self) -> bool:
        layer = self.chance.one_of(self.module.usable(LAYERS))
        return self._child(layer.construct(self.chance), self.chance.one_of(layer.calls), _rank_slot(layer))

    def _body_of_blocks(self) -> bool:
        """A loop or branch that calls a child."""
        constructor = self.chance.one_of(self.module.usable(KEEPING))
        return self._child(constructor, self.chance.one_of(WITH_BLOCKS))

    def _child(self, constructor: str, call: str, slot: str = "x") -> bool:
        """A new child, and the line that calls it; sometimes with the parameters of one before it."""
        name = f"c{len(self.children)}"
        twins = [
            other for other, (_, before) in self.children.items() if before.split("(")[0] == constructor.split("(")[0]
        ]
        if twins and self.chance.often(0.7):
            constructor = f"{constructor[:-1]}, params=self.{self.chance.one_of(twins)}.params)".replace("(, ", "(")
        if not self._make(f"self.{name} = {constructor}", name):
            return False
        if call == "$child($x)":
            call = f"$child(${slot})"
        if self.body.write(call.replace("$child", f"self.{name}")):
            self.children[name] = call, constructor
            return True
        self._unmake(name)
        return False

    def _make(self, text: str, name: str) -> bool:
        try:
            exec(text, dict(self.module.names, self=self.draft))
            getattr(self.draft, name).initialize(mx.init.Uniform(0.5))
        except Exception:
            self._unmake(name, 0)
            return False
        self.init += text.split("\n")
        return True

    def _unmake(self, name: str, lines: int = 1) -> None:
        if hasattr(self.draft, name):
            delattr(self.draft, name)
            self.draft._children.pop(name, None)
        del self.init[len(self.init) - lines :]

    def _again(self) -> bool:
        """A child is called once more."""
        if not self.children:
            return False
        name = self.chance.one_of(sorted(self.children))
        if self.chance.often(0.2):  # in a loop or branch
            return self.body.write(self.chance.one_of(WITH_BLOCKS).replace("$child", f"self.{name}"))
        return self.body.write(self.children[name][0].replace("$child", f"self.{name}"))

    def _own_parameter(self) -> bool:
        """A parameter or a constant."""
        name = f"w{len(self.parameters)}"
        shape = self.chance.one_of([(1,), (1, 1)])
        options = ["", ", grad_req='add'", ", grad_req='null'", ", init='ones'", ", lr_mult=0.5", ", dtype=None"]
        more = self.chance.one_of(options)
        text = f"self.{name} = self.params.get({name!r}, shape={shape}{more})"
        if self.chance.often(0.3):
            value = self.chance.one_of(["[0.5]", "[[2.0]]", "np.array([[-1.5]], 'float32')", "nd.array([0.25])", "3.0"])
            text = f"self.{name} = self.params.get_constant({name!r}, {value})"
        if not self._make(text, name):
            return False
        for space in self.body.spaces:
            space[name] = getattr(self.draft, name).data()
        read = name if self.style == "1.x" else f"self.{name}.data()"
        rows = ["$F.broadcast_mul($x, $w)", "$F.broadcast_add($x, $w)", "$x * $w", self.chance.one_of(WITH_PARAMETERS)]
        if self.body.write(self.chance.one_of(rows), {"w": read}):
            self.parameters.append(name)
            return True
        self._unmake(name)
        return False

    def _stack(self) -> bool:
        """A container of layers."""
        rank = self.chance.one_of((2, 3, 4))
        layers = self.module.usable(LAYERS)
        fitting = [layer for layer in layers if rank in layer.ranks and layer.calls == ("$child($x)",)]
        inner = ", ".join(
            self.chance.one_of(fitting).construct(self.chance) for _ in range(self.chance.randrange(1, 4))
        )
        kind = "gluon.contrib.nn.HybridConcurrent(axis=1)" if self.chance.often(0.15) else "nn.HybridSequential()"
        name = f"c{len(self.children)}"
        first = f"self.{name} = {kind}"
        if not self._make(f"{first}\nself.{name}.add({inner})", name):
            return False
        if self.body.write(f"self.{name}($x{rank})"):
            self.children[name] = f"$child($x{rank})", first
            return True
        self._unmake(name, 2)
        return False

    def _rows(self) -> bool:
        """A list of children."""
        name = f"r{sum(line.startswith('self.r') for line in self.init)}"
        layers = ["nn.Dense(3, flatten=False)", "nn.BatchNorm()", "nn.Dropout(0.5)", "nn.PReLU()"]
        layer = self.chance.one_of(self.module.usable(layers))
        text = f"self.{name} = [{layer}, {layer}]\nfor block in self.{name}:\n    self.register_child(block)"
        scope = dict(self.module.names, self=self.draft)
        exec(text, scope)
        for block in getattr(self.draft, name):
            block.initialize(mx.init.Uniform(0.5))
        if self.body.write(f"$new = $x\nfor block in self.{name}:\n    $new = block($new)"):
            self.init += text.split("\n")
            return True
        delattr(self.draft, name)
        return False

    def _nested(self) -> bool:
        """A child of a class of its own."""
        if len(self.module.texts) > 4:
            return False
        count = min(self.chance.randrange(1, 4), len(self.body.tensors))
        chosen = [self.chance.one_of(self.body.tensors) for _ in range(count)]
        inputs = [[space[name] for name in chosen] for space in self.body.spaces]
        inner = write_class(self.module, self.depth - 1, inputs, self.hybrid or self.chance.often(0.7))
        name = f"c{len(self.children)}"
        if not self._make(f"self.{name} = {inner.name}()", name):
            return False
        arguments, before, after = inner.call.format(*chosen), "", ""
        if arguments[0] == "[" and arguments[-1] == "]" and self.chance.often(0.5):  # a list that the callee may change
            listed = self.body.new_name()
            before, after = f"{listed} = {arguments}\n", f"\n{self.body.new_name()} = {listed}[0]"
            arguments = listed
        if self.body.add(before + taken_apart(inner, f"self.{name}({arguments})", self.body.new_name) + after):
            self.children[name] = "$new = $x", f"{inner.name}("  # not called again with other arrays
            return True
        self._unmake(name)
        return False

    # -- arguments and results ---------------------------------------------------------------------------------------

    def _parameters(self) -> tuple[str, str]:
        """The arguments of the method, and how a caller fills them."""
        names, chance = self.names, self.chance
        slots = [f"{{{index}}}" for index in range(len(names))]
        if len(names) > 1 and chance.often(0.4):
            first = chance.randrange(0, len(names) - 1)
            grouped = names[first:]
            brackets = chance.one_of(["[]", "()"])
            call = [*slots[:first], f"{brackets[0]}{', '.join(slots[first:])}{brackets[1]}"]
            parameters = [*names[:first], "xs"]
            self.body.lines.append(f"{', '.join(grouped)} = xs")
            if chance.often(0.2) and brackets == "[]":  # the caller's list changes
                self.body.lines.append(f"xs[0] = {names[-1]}")
        else:
            parameters, call = list(names), slots
        if chance.often(0.25):
            value = chance.one_of(["None", "2", "0.5", "'twice'", "(1, None)"])
            parameters.append(f"more={value}")
            if chance.often(0.4):
                call.append(chance.one_of([value, "None", "3"]))
            for space in self.body.spaces:
                space["more"] = None
            self.body.add(f"if more is None:\n    v0 = {names[0]} + 1\nelse:\n    v0 = {names[0]} * 2")
        return ", ".join(parameters), ", ".join(call)

    def _result(self) -> tuple[str, str, tuple[str, ...]]:
        """What is returned, the pattern that unpacks it, or the keys of a dict."""
        body, chance = self.body, self.chance
        unread = body.unread() or body.tensors[-1:]
        count = chance.randrange(1, 4)
        chosen, rest = unread[-count:], unread[:-count]
        if rest and chance.often(0.1):
            self.module.unused = True
        elif rest:
            total, functions = body.new_name(), body.functions
            means = " + ".join(f"{functions}.cast({name}, dtype='float32').mean()" for name in rest)
            if chance.often(0.96) and body.add(f"{total} = {means}"):
                chosen.append(total)
            else:
                chosen += rest
        if chance.often(0.15):
            chosen.append(chance.one_of(body.tensors))
        if len(chosen) == 1:
            form = chance.one_of(["{}", "{}", "{}", "[{}]", "({},)"])
        else:
            inner = ", ".join(["{}"] * (len(chosen) - 1))
            form = chance.one_of(
                ["{}, " + inner, "[{}, " + inner + "]", "({}, [" + inner + "])", "[{}, (" + inner + ",)]"]
            )
        result = form.format(*chosen)
        if chance.often(0.06):
            keys = tuple(f"k{index}" for index in range(len(chosen)))
            return "{" + ", ".join(f"{key!r}: {name}" for key, name in zip(keys, chosen, strict=True)) + "}", "", keys
        if chance.often(0.06):
            return f"({result}), None", f"({form}), _", ()
        return result, form, ()

    def _text(self, name: str, parameters: str, result: str, pattern: str) -> str:
        base, head, _ = STYLES[self.style]
        own = ""
        if self.parameters and self.style == "1.x":
            own = ", " + ", ".join(f"{name}=None" if "=" in parameters else name for name in self.parameters)
        scoped = self.chance.often(0.6)
        init = ["super().__init__(**kwargs)"]
        init += ["with self.name_scope():", *_indented(self.init, 1)] if scoped else self.init
        lines = [f"class {name}({base}):", "    def __init__(self, **kwargs):", *_indented(init, 2)]
        lines += ["", f"    def {head}{parameters}{own}):", *_indented(self.body.lines, 2), f"        return {result}"]
        for method, share in (("forward", 0.12 if self.style == "1.x" else 0.0), ("__call__", 0.08)):
            if self.chance.often(share):
                lines += ["", *_indented(self._around(method, parameters, pattern), 1)]
        text = "\n".join(lines)
        if "self.mixed(" in text:
            text += "\n\n" + "\n".join(_indented(_HELPER.split("\n"), 1))
        return _without_unread_attributes(text)

    def _around(self, method: str, parameters: str, pattern: str) -> list[str]:
        """A method of the user's around the one that computes: it prepares an argument or the result."""
        first = parameters.partition(",")[0]
        given = self.body.spaces[0].get(first)
        floating = hasattr(given, "dtype") and np.dtype(given.dtype).kind in "fV" and first in self.names
        argument = f"{first} * {self.chance.one_of(['0.5', '0.75'])}" if floating else first
        after = self.chance.one_of([" * 2", " + 1", ""]) if pattern == "{}" else ""
        return [f"def {method}(self, {first}, *more):", f"    return super().{method}({argument}, *more){after}"]


def taken_apart(inner: Written, call: str, new_name: Any) -> str:
    """The lines that call a class and take its result apart."""
    if inner.keys:
        whole = new_name()
        return "\n".join([f"{whole} = {call}", *(f"{new_name()} = {whole}[{key!r}]" for key in inner.keys)])
    return f"{inner.result.format(*[new_name() for _ in range(inner.result.count('{}'))])} = {call}"


def _rank_slot(layer: Any) -> str:
    return f"x{layer.ranks[0]}" if len(layer.ranks) == 1 else "x"


def _indented(lines: Sequence[str], depth: int) -> list[str]:
    return ["    " * depth + line if line else line for line in lines]


def _without_unread_attributes(text: str) -> str:
    """Without the attributes that nothing reads but `__init__`."""
    kept = []
    for line in text.split("\n"):
        found = re.fullmatch(r"\s+self\.(scale|flag|times|fail|numbers) = .*", line)
        if not found or text.count(f"self.{found[1]}") > 1:
            kept.append(line)
    if any(
        line.endswith("name_scope():") and not kept[at + 1].startswith("            ") for at, line in enumerate(kept)
    ):
        kept = [line for line in kept if not line.endswith("name_scope():")]
    return "\n".join(kept)


__all__ = ["HEADER", "Module", "Written", "taken_apart", "tensors_in", "write_class"]
