"""Random clicks in three notebooks of one folder, whose models have the same names: every file holds the model that the
button named. `HYBRID_LAB_CLICKS=200` makes more of them, `HYBRID_LAB_SEED` others.
"""

from __future__ import annotations

import os
import random
import re
from dataclasses import dataclass, field

from playwright.sync_api import expect

from hybrid_lab.formats.archive import Archive
from tests import quick
from tests.browser.jupyter import IN_LAB_ONLY, NotebookPage, wait_for, write_notebook

CLICKS = quick.count("HYBRID_LAB_CLICKS", 15, 40)
SEED = int(os.environ.get("HYBRID_LAB_SEED", "34"))
MODELS = ("net", "big")

#: How long the panel may take to follow a click: a bound for a machine that does much else.
SECONDS = 120

MODEL = """import hybrid_lab as mx
from hybrid_lab.gluon import nn

def made(value):
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=2))
    net.initialize()
    give(net, value)
    net.hybridize()
    net(mx.nd.ones((1, 2)))
    return net

def give(net, value):
    for parameter in net.collect_params().values():
        parameter.set_data(mx.nd.full(parameter.shape, value))"""

#: What the panel shows: the notebook, the model, and of each outcome its text and whether it asks.
STATE = """() => {
  const panel = document.querySelector('#hybrid-lab-panel');
  const picker = panel.querySelector('select.hl-picker');
  return {
    notebook: panel.querySelector('.hl-notebook')?.textContent ?? '',
    model: picker && !picker.hidden ? picker.selectedOptions[0]?.textContent.split(':')[0] ?? '' : '',
    outcomes: [...panel.querySelectorAll('.hl-outcome')].map(each => ({
      text: each.textContent,
      asks: each.querySelector('.hl-confirm') !== null,
      done: each.querySelector('.hl-dismiss, .hl-alert') !== null,
      saved: [...each.querySelectorAll('.hl-saved li')].map(row => row.querySelector('code').textContent),
      unsaved: [...each.querySelectorAll('p')].map(line => line.textContent).filter(text => /was not saved/.test(text))
    }))
  };
}"""

ACTIVATE = """file => {
  const panel = [...window.jupyterapp.shell.widgets('main')].find(each => each.context?.path === file);
  window.jupyterapp.shell.activateById(panel.id);
}"""

RESTART = "() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel().then(() => null)"
RENAME = "name => window.jupyterapp.shell.currentWidget.context.rename(name).then(() => null)"


@dataclass
class Notebook:
    """file : its name; values : the constant of each model; undos : of each model the saves and the reload that can be
    undone, as (kind, file, what was there before); told : files that a question already told were saved
    """

    file: str
    values: dict[str, int] = field(default_factory=dict)
    undos: dict[str, list[tuple[str, str, int | None]]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)


class Clicker:
    """Clicks, and keeps what each file must hold."""

    def __init__(self, page, server, chance):
        self.page, self.server, self.chance = page, server, chance
        self.count = 0
        self.holds: dict[str, int | None] = {f"{name}.hlab": None for name in MODELS}
        self.notebooks = [Notebook(f"clicks_{name}.ipynb") for name in "abc"]
        for notebook in self.notebooks:
            write_notebook(server.folder / notebook.file, [MODEL])
        for name in self.holds:
            (server.folder / name).unlink(missing_ok=True)
        self.lab = NotebookPage(page, server, "lab", self.notebooks[0].file)
        self.lab.show_panel()
        for notebook in self.notebooks:
            page.evaluate(
                "file => window.jupyterapp.commands.execute('docmanager:open', { path: file }).then(() => null)",
                notebook.file,
            )
            self.current = notebook
            self.lab.wait_kernel()
            self.make_models()

    # -- what is there ------------------------------------------------------------------------------------------------

    def new_value(self):
        self.count += 1
        return self.count

    def value_in(self, file):
        """The constant in a file; None where there is none."""
        path = self.server.folder / file
        if not path.exists():
            return None
        values = {float(number) for array in Archive(path).weights.values() for number in array.ravel()}
        assert len(values) == 1, f"{file} holds {values}"
        return int(values.pop())

    def check(self, what):
        assert {file: self.value_in(file) for file in self.holds} == self.holds, what
        weights = ", ".join(f"int({name}[0].weight.data()[0, 0].asscalar())" for name in MODELS)
        found = map(int, self.lab.kernel(f"print({weights})").split())
        assert dict(zip(MODELS, found, strict=True)) == self.current.values, what

    @property
    def state(self):
        return self.page.evaluate(STATE)

    def settled(self):
        """The panel's state when nothing is under way."""
        wait_for(
            lambda: all(each["asks"] or each["done"] or each["text"] == "" for each in self.state["outcomes"]), SECONDS
        )
        return self.state

    def make_models(self):
        """Give the notebook in front new models."""
        notebook = self.current
        notebook.values = {name: self.new_value() for name in MODELS}
        notebook.undos = {name: [] for name in MODELS}
        notebook.told = []
        self.lab.kernel(MODEL + "".join(f"\n{name} = made({value})" for name, value in notebook.values.items()))
        self.in_front()

    def in_front(self):
        """Wait until the panel shows the notebook in front, with its models."""
        wait_for(lambda: self.state["notebook"] == self.current.file and self.state["model"] in MODELS, SECONDS)
        expect(self.lab.panel.get_by_role("button", name=re.compile("^Reload (net|big)$"))).to_be_visible(
            timeout=SECONDS * 1000
        )

    # -- clicks -------------------------------------------------------------------------------------------------------

    def dismiss(self):
        for dismiss in reversed(self.lab.panel.locator(".hl-outcome .hl-dismiss:visible").all()):
            dismiss.click()

    def click(self, name):
        """Whether there is such a button that can be clicked now; it was clicked then."""
        button = self.lab.panel.get_by_role("button", name=name, exact=True)
        if button.count() != 1 or not button.is_enabled():
            return False
        button.click()
        return True

    def in_menu(self, name):
        self.lab.panel.get_by_role("button", name="More actions").click()
        button = self.lab.panel.get_by_role("button", name=re.compile(f"^{name}"))
        if button.is_enabled():
            button.click()
            return True
        self.page.keyboard.press("Escape")
        return False

    def note_saves(self):
        """What the outcomes say was saved, which is all of the notebook in front."""
        for outcome in self.settled()["outcomes"]:
            alone = re.match(r"Saved (\w+):.*/(\w+\.hlab)", outcome["text"])
            every, told = outcome["saved"], self.current.told
            if every:
                self.current.told = every if outcome["asks"] else []
                every = [file for file in every if file not in told]
            for file in every or ([alone[2]] if alone else []):
                name = file.removesuffix(".hlab")
                assert alone is None or name == alone[1]
                self.current.undos[name].append(("save", file, self.holds[file]))
                self.current.undos[name] = self.at_most(self.current.undos[name])
                self.holds[file] = self.current.values[name]

    @staticmethod
    def at_most(undos):
        """As the kernel keeps them: five saves."""
        saves = [each for each in undos if each[0] == "save"]
        return [each for each in undos if each is not saves[0]] if len(saves) > 5 else undos

    def save(self):
        self.dismiss()
        if self.click(f"Save {self.state['model']}"):
            self.note_saves()

    def save_all(self):
        self.dismiss()
        if self.in_menu("Save every model"):
            self.note_saves()

    def answer(self):
        """Answer a question of the notebook in front, with yes or no."""
        questions = self.lab.panel.locator(".hl-confirm:visible")
        if questions.count() == 0:
            return
        self.dismiss()
        question = questions.nth(self.chance.randrange(questions.count()))
        for box in question.locator("input").all():
            if self.chance.random() < 0.6:
                box.check()
        yes = self.chance.random() < 0.7
        question.get_by_role("button", name=re.compile("^(Replace it|Save )") if yes else "Cancel").click()
        self.note_saves()

    def choose(self):
        picker = self.lab.panel.get_by_role("combobox", name="Model", exact=True)
        name = self.chance.choice(MODELS)
        picker.select_option(label=f"{name}: HybridSequential")
        wait_for(lambda: self.state["model"] == name)

    def train(self):
        name = self.chance.choice(MODELS)
        value = self.current.values[name] = self.new_value()
        self.lab.kernel(f"give({name}, {value})")

    def reload(self):
        name = self.state["model"]
        self.dismiss()
        if not self.click(f"Reload {name}"):
            return
        texts = " ".join(each["text"] for each in self.settled()["outcomes"])
        file = f"{name}.hlab"
        held = self.holds[file]
        if held is None:
            assert "there is no file" in texts
            return
        undos = [each for each in self.current.undos[name] if each[0] == "save"]
        self.current.undos[name] = [*undos, ("reload", file, self.current.values[name])]
        self.current.values[name] = held

    def undo(self):
        name = self.state["model"]
        self.dismiss()
        button = self.lab.panel.get_by_role("button", name="Undo", exact=True)
        assert button.count() == 1
        # The title follows the list of models, which comes a moment after the outcome.
        undos = self.current.undos[name]
        wanted = "Nothing to undo"
        if undos:
            kind, file, _ = undos[-1]
            wanted = f"Undo the save to {file}" if kind == "save" else f"Undo the reload of {file}"
        if any(each["asks"] for each in self.state["outcomes"]):
            return
        expect(button).to_have_attribute("title", wanted)
        if not undos:
            expect(button).to_be_disabled()
            return
        button.click()
        texts = " ".join(each["text"] for each in self.settled()["outcomes"])
        kind, file, before = undos.pop()
        if kind == "reload":
            self.current.values[name] = before
        elif "as it was before the save" in texts:
            self.holds[file] = before
        else:
            assert "so it stays as it is" in texts or "no longer kept" in texts, texts

    def switch(self):
        self.current = self.chance.choice([each for each in self.notebooks if each is not self.current])
        self.page.evaluate(ACTIVATE, self.current.file)
        self.in_front()

    def rename(self):
        self.current.file = f"clicks_{self.new_value()}.ipynb"
        self.page.evaluate(RENAME, self.current.file)
        self.in_front()

    def restart(self):
        self.page.evaluate(RESTART)
        self.lab.wait_kernel()
        wait_for(lambda: self.state["model"] == "", SECONDS)
        assert not any(each["text"] for each in self.state["outcomes"])
        self.make_models()


ACTIONS = {
    "save": 24, "answer": 18, "switch": 18, "choose": 8, "train": 12, "reload": 6, "undo": 8, "save_all": 6,
    "rename": 3, "restart": 3,
}  # fmt: skip


@IN_LAB_ONLY
def test_every_file_holds_the_model_that_its_button_named(page, server, front_end):
    chance = random.Random(SEED)
    clicker = Clicker(page, server, chance)
    done: list[str] = []
    for _ in range(CLICKS):
        action = chance.choices(list(ACTIONS), list(ACTIONS.values()))[0]
        done.append(f"{clicker.current.file} {clicker.state['model']}: {action}")
        try:
            getattr(clicker, action)()
            clicker.check("after " + "; ".join(done[-8:]))
        except Exception as error:
            raise AssertionError("; ".join(done[-12:])) from error
    assert sum(value is not None for value in clicker.holds.values()) >= 1
