"""Writes whole programs: classes, and a session with a net of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from hybrid_lab import nd
from tests.random_programs.classes import HEADER, Module, write_class
from tests.random_programs.parts import ATTRIBUTES, LOSSES, OPTIMIZERS, PARTS
from tests.random_programs.writing import Chance

#: Sizes of inputs behind the batch, by rank.
_SIZES = {1: (1, 3, 4, 5), 2: (1, 2, 4, 5), 3: (1, 2, 4, 6), 4: (1, 2, 4)}

#: What sums with weights of 0, in which NaN and infinities may be lost; docs/differences.md names these operators.
_ZERO_WEIGHTS = re.compile(r"Conv|Pool|LRN|Norm|Resize|linalg|softmax")


def write_program(seed: int) -> str:
    """The text of a program; it defines `program(run)`."""
    return _Session(Chance(seed)).text()


class _Session:
    def __init__(self, chance: Chance):
        self.chance, self.module = chance, Module(chance)
        self.batches = chance.one_of([(2, 3), (1, 2), (4, 2), (3, 1)])
        self.inputs: dict[str, tuple[int, tuple[int, ...], str]] = {}
        self.trained = self.reopened = False

    def text(self) -> str:
        chance = self.chance
        for index in range(chance.one_of([1, 1, 1, 2, 2, 3])):
            rank = chance.one_of([1, 1, 2, 2, 3, 3, 4, 0])
            shape = tuple(chance.one_of(_SIZES[rank]) for _ in range(rank))
            kind = chance.one_of(["plain"] * 6 + ["ties", "special"]) if rank else "whole"
            self.inputs[f"x{index}"] = chance.randrange(1000), shape or (3,), kind
        spaces = [[_draft(batch, *item) for item in self.inputs.values()] for batch in (2, 3)]
        top = write_class(self.module, chance.one_of([0, 0, 1, 1, 2, 3]), spaces, chance.often(0.7))
        self.call = f"net({top.call.format(*self.inputs)})"
        own = self.module.texts[-1]
        self.attributes = [item for item in ATTRIBUTES if f"self.{item.split()[0]} " in own]
        self.plain = any("(Block):" in text for text in self.module.texts)
        start = ["run.hybridize(net)"] * 5
        start += ["run.hybridize(net, static_alloc=True)", f"run.see('y', {self.call})\nrun.hybridize(net)"]
        start += [f"run.hybridize(net.{child})" for child in re.findall(r"self\.(c\d+) = Net", own)]
        lines = ["mx.random.seed(3)", f"net = {top.name}()", "run.initialize(net)", *self._arrays(self.batches[0])]
        lines += ["with run.step('start'):", *_indented(chance.one_of(start))]
        for index in range(chance.randrange(2, 7)):
            part = chance.choices(PARTS, [part.weight for part in PARTS])[0]
            if text := self._part(part.lines):
                lines += [f"with run.step('{index} {part.name}'):", *_indented(text)]
        lines += ["with run.step('end'):", "    run.see_net(net)"]
        program = "\n".join(["def program(run):", *_indented("\n".join(lines))])
        return "\n\n\n".join([HEADER.rstrip(), *self.module.texts, program]) + "\n"

    def _arrays(self, batch: int) -> list[str]:
        lines = []
        for name, (seed, shape, kind) in self.inputs.items():
            if kind == "special" and _ZERO_WEIGHTS.search("".join(self.module.texts)):
                kind = "plain"
            more = ", 'whole', 'int32'" if kind == "whole" else f", {kind!r}" if kind != "plain" else ""
            lines.append(f"{name} = run.array({seed}, {(batch, *shape)}{more})")
            if kind != "whole":
                lines.append(f"{name}.attach_grad()")
        return lines

    def _part(self, template: str) -> str:
        """The lines of a part; empty where it does not fit the program."""
        floating = [name for name, (_, _, kind) in self.inputs.items() if kind != "whole"]
        if re.search(r"\$xs?\b|\$wrong|net\.cast", template) and not floating:
            return ""
        if "run.replaced" in template and (self.plain or "xs[0] = " in self.module.texts[-1]):
            return ""  # an archive holds no plain Block, and no graph of code that changes its arguments
        if self.reopened and re.search(r"net\.\$attribute|net\.fail|net\(\)|\$wrong", template):
            return ""  # there is no code any more that would read it, or raise in its own way
        self.reopened |= "run.replaced" in template
        if re.search(r"run\.threads|try:", template) and "xs[0] = " in "".join(self.module.texts):
            return ""  # code that changes its arguments is refused, and the part goes on where the eager one does not
        if "run.threads" in template and ".random." in "".join(self.module.texts):
            return ""  # which thread draws first is left to chance
        if "create_graph" in template and any(kind == "special" for _, _, kind in self.inputs.values()):
            return ""  # where eagerly no gradient arrives, zeros may, and 0 times infinity is NaN
        if "$attribute" in template and not self.attributes:
            return ""
        if re.search(r"^trainer\.", template, re.M) and not (self.trained or "trainer = " in template):
            return ""
        self.trained |= "trainer = " in template
        one_of = self.chance.one_of
        fill: dict[str, Callable[[], str]] = {
            "call": lambda: self.call,
            "x": lambda: one_of(floating),
            "wrong": lambda: re.sub(rf"\b({one_of(floating)})\b", r"\1[:, :0]", self.call),
            "xs": lambda: f"[{', '.join(floating)}]",
            "heads": lambda: one_of(["run.leaves(y)", "run.leaves(y)", "run.leaves(y)[:1]", "run.leaves(y)[-1]"]),
            "grads": lambda: f"run.see_grads({', '.join(f'{n}={n}' for n in floating)})\nrun.see_net(net)",
            "optimizer": lambda: one_of(OPTIMIZERS),
            "loss": lambda: one_of(LOSSES),
            "batch": lambda: "\n".join(self._arrays(one_of([*self.batches, 5]))),
            "attribute": lambda: one_of(self.attributes),
        }
        text = re.sub(r"\$\{([^}]*)\}", lambda match: one_of(match[1].split("|")), template)
        if cast := re.search(r"net\.cast\('(\w+)'\)", text):
            made = [f"{name} = {name}.astype('{cast[1]}')\n{name}.attach_grad()" for name in floating]
            text = text.replace(cast[0], "\n".join([cast[0], *made]))
        # A slot in the middle of a line is one expression, one that is a line of its own may be several lines.
        return re.sub(r"\$(\w+)", lambda match: fill[match[1]](), text)


def _draft(batch: int, seed: int, shape: tuple[int, ...], kind: str) -> Any:
    """An input that classes are written on."""
    random = np.random.RandomState(seed)
    if kind == "whole":
        return nd.array(random.randint(0, 4, (batch, *shape)), dtype="int32")
    return nd.array(random.uniform(-1.5, 1.5, (batch, *shape)))


def _indented(text: str) -> list[str]:
    return ["    " + line for line in text.split("\n")]
