"""Writes whole programs: classes, and a session with a net of them."""

from __future__ import annotations

import re
from collections.abc import Callable

import hybrid_lab as mx
from tests.random_programs.classes import HEADER, Module, write_class
from tests.random_programs.files import FILES
from tests.random_programs.inputs import Input, choose_batches, choose_input
from tests.random_programs.operators import FUNCTIONS, ZERO_WEIGHTS
from tests.random_programs.parts import ATTRIBUTES, LOSSES, OPTIMIZERS, PARTS
from tests.random_programs.writing import Chance

_PARTS = PARTS + FILES


def write_program(seed: int) -> str:
    """The text of a program; it defines `program(run)`."""
    mx.random.seed(seed)  # drafts draw masks, and what they give decides about lines
    return _Session(Chance(seed)).text()


class _Session:
    def __init__(self, chance: Chance):
        self.chance, self.module = chance, Module(chance, finite=not chance.often(0.08))
        self.batches = choose_batches(chance)
        self.inputs: dict[str, Input] = {}
        self.trained = self.reopened = False

    def text(self) -> str:
        chance = self.chance
        for index in range(chance.one_of([1, 1, 1, 2, 2, 3])):
            self.inputs[f"x{index}"] = choose_input(chance, self.module.finite, not index, max(self.batches))
        spaces = [[item.draft(batch) for item in self.inputs.values()] for batch in (2, 3)]
        top = write_class(self.module, chance.one_of([0, 0, 1, 1, 2, 3]), spaces, chance.often(0.7))
        self.arguments = top.call.format(*self.inputs)
        self.call = f"net({self.arguments})"
        own = self.module.texts[-1]
        self.attributes = [item for item in ATTRIBUTES if f"self.{item.split()[0]} " in own]
        self.plain = any("(Block):" in text for text in self.module.texts)
        self.children = re.findall(r"self\.(c\d+) = ", own) if "(Block):" in own else []
        start = ["run.hybridize(net)"] * 5
        start += ["run.hybridize(net, static_alloc=True)", f"run.see('y', {self.call})\nrun.hybridize(net)"]
        start += [f"run.hybridize(net.{child})" for child in re.findall(r"self\.(c\d+) = Net", own)]
        lines = ["mx.random.seed(3)", f"net = {top.name}()", "run.initialize(net)", *self._arrays(self.batches[0])]
        lines += ["with run.step('start'):", *_indented(chance.one_of(start))]
        for index in range(chance.randrange(2, 6)):
            part = chance.choices(_PARTS, [part.weight for part in _PARTS])[0]
            if text := self._part(part.lines):
                lines += [f"with run.step('{index} {part.name}'):", *_indented(text)]
        lines += ["with run.step('end'):", "    run.see_net(net)"]
        program = "\n".join(["def program(run):", *_indented("\n".join(lines))])
        texts = [HEADER.rstrip(), *self.module.texts, program]
        functions = [text for name, text in FUNCTIONS.items() if any(f"{name}()" in text for text in texts)]
        return "\n\n\n".join([texts[0], *functions, *texts[1:]]) + "\n"

    def _arrays(self, batch: int) -> list[str]:
        lines = []
        for name, item in self.inputs.items():
            if item.kind == "special" and ZERO_WEIGHTS.search("".join(self.module.texts)):
                item = item._replace(kind="plain")
            lines.append(f"{name} = {item.text(batch)}")
            if item.floating:
                lines.append(f"{name}.attach_grad()")
        return lines

    def _all_finite(self) -> bool:
        return self.module.finite and all(item.kind != "special" for item in self.inputs.values())

    def _part(self, template: str) -> str:
        """The lines of a part; empty where it does not fit the program."""
        floating = [name for name, item in self.inputs.items() if item.floating]
        if re.search(r"\$xs?\b|\$wrong|\$function|net\.cast", template) and not floating:
            return ""
        if "run.replaced" in template and (self.plain or "xs[0] = " in self.module.texts[-1]):
            return ""  # an archive holds no plain Block, and no graph of code that changes its arguments
        if re.search(r"run\.(exported|pinned)", template) and (self.plain or self.reopened):
            return ""
        if "run.exported" in template and "is_training" in "".join(self.module.texts):
            return ""  # a file holds the branch of one mode
        if "run.exported" in template and self.module.unused:
            return ""  # a file does not hold the parameters of what nobody uses
        if "$wrong" in template and self.module.unused:
            return ""  # dead code raises no error in a graph
        if "$child" in template and not self.children:
            return ""
        if "$inputs" in template and any(item.shape is None for item in self.inputs.values()):
            return ""  # samples are rows
        if self.reopened and re.search(r"net\.\$attribute|net\.fail|net\(\)|\$wrong|type\(net\)", template):
            return ""  # there is no code any more that would read it, or raise in its own way
        self.reopened |= re.search(r"run\.(replaced|pinned)", template) is not None
        if re.search(r"run\.threads|try:", template) and "xs[0] = " in "".join(self.module.texts):
            return ""  # code that changes its arguments is refused, and the part goes on where the eager one does not
        if "run.threads" in template and ".random." in "".join(self.module.texts):
            return ""  # which thread draws first is left to chance
        if "create_graph" in template and not self._all_finite():
            return ""  # where eagerly no gradient arrives, zeros may, and 0 times infinity is NaN
        if "$attribute" in template and not self.attributes:
            return ""
        if re.search(r"^trainer\.", template, re.M) and not (self.trained or "trainer = " in template):
            return ""
        self.trained |= "trainer = " in template
        one_of = self.chance.one_of
        optimizer, file = one_of(OPTIMIZERS), one_of(["'net.params'", "'net.safetensors'"])
        fill: dict[str, Callable[[], str]] = {
            "call": lambda: self.call,
            "x": lambda: one_of(floating),
            "wrong": lambda: re.sub(rf"\b({one_of(floating)})\b", r"\1[:, :0]", self.call),
            "xs": lambda: f"[{', '.join(floating)}]",
            "heads": lambda: one_of(["run.leaves(y)", "run.leaves(y)", "run.leaves(y)[:1]", "run.leaves(y)[-1]"]),
            "grads": lambda: f"run.see_grads({', '.join(f'{n}={n}' for n in floating)})\nrun.see_net(net)",
            "optimizer": lambda: optimizer,
            "file": lambda: file,
            "function": lambda: re.sub(rf"\b({one_of(floating)})\b", r"Scaled()(\1)", self.call),
            "arguments": lambda: self.arguments,
            "inputs": lambda: ", ".join(self.inputs),
            "unpacked": lambda: ", ".join([*self.inputs, ""]),
            "child": lambda: one_of(self.children),
            "other": lambda: self.call.replace("net(", "other(", 1),
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


def _indented(text: str) -> list[str]:
    return ["    " + line for line in text.split("\n")]
