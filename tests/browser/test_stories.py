"""The four questions as a new user asks them: each is answered by the banner, or by one click on it."""

import re
import time

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_LAB_ONLY
from tests.browser.test_bring_into_view import free, in_tab

IMPORTS = """import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.gluon import nn
x = mx.nd.random.uniform(shape=(8, 1, 28, 28))"""

MODEL = """net = nn.HybridSequential()
net.add(nn.Conv2D(6, 5, activation="relu"), nn.MaxPool2D(), nn.Conv2D(16, 3, activation="relu"), nn.Dense(10))
net.initialize()
net.hybridize()
y = net(x)"""

STUBBORN = """class Stubborn(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x.reshape((x.shape[0], -1))

net = nn.HybridSequential()
net.add(nn.Conv2D(6, 5), Stubborn(), nn.Dense(10))
net.initialize()
net.hybridize(strict=True)
net(x)"""

NAN = """class Risky(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.log(x - 2)

net = nn.HybridSequential()
net.add(nn.Dense(8, activation="relu"), Risky(), nn.Dense(2))
net.initialize()
net.hybridize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
for step in range(5):
    with autograd.record():
        loss = net(x).sum()
    loss.backward()
    trainer.step(8)
    mx.log(loss=loss)"""

TRAIN = """trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
with autograd.record():
    loss = (net(x) ** 2).sum()
loss.backward()
trainer.step(8)"""


class Story:
    """What a user does from the end of the cell on: counts clicks and seconds."""

    def __init__(self, panel):
        self.panel, self.clicks, self.started = panel, 0, time.monotonic()

    def answer(self, text):
        """An entry of the banner."""
        entry = self.panel.locator(".hl-answer").filter(has_text=re.compile(text))
        expect(entry).to_be_visible()
        return entry

    def click(self, text):
        self.clicks += 1
        self.answer(text).get_by_role("button").click()

    def ends(self, name):
        """One click at most; the time is printed, not asserted."""
        print(f"{name}: {self.clicks} clicks, {time.monotonic() - self.started:.1f} s")
        assert self.clicks <= 1


@pytest.mark.long
@IN_LAB_ONLY
def test_which_block_is_not_hybridized_and_why(open_cells):
    notebook = open_cells([IMPORTS, STUBBORN])
    panel = notebook.show_panel()
    notebook.run_cell(0)
    notebook.run_cell(1)
    story = Story(panel)
    story.answer("^1 Block failed: net\\[1\\] – HL101")
    story.ends("a Block that does not hybridize")

    # Its row is selected already; the error in the cell is short, and leads to Block and line.
    expect(notebook.row("1")).to_have_attribute("aria-selected", "true")
    output = notebook.show_cell(1).locator(".jp-OutputArea")
    expect(output.locator(".hl-error-links")).to_contain_text("Block net[1]")
    assert "hybrid_lab/gluon" not in output.locator(".jp-OutputArea-output").first.inner_text()
    expect(output.locator(".hl-error-whole pre")).to_be_hidden()
    output.get_by_text(re.compile("^Whole traceback")).click()
    expect(output.locator(".hl-error-whole pre")).to_contain_text("hybrid_lab")
    notebook.row("0").click()
    output.get_by_role("button", name="net[1]").click()
    expect(notebook.row("1")).to_have_attribute("aria-selected", "true")
    story.click("1 Block failed")
    expect(panel.locator(".hl-details")).to_contain_text("HL101")


@pytest.mark.long
@IN_LAB_ONLY
def test_which_operator_is_slow(open_cells):
    notebook = open_cells([IMPORTS, MODEL])
    panel = notebook.show_panel()
    notebook.run_all()
    story = Story(panel)
    story.click("^slowest: ")  # a small model is measured unasked
    expect(panel.locator(".hl-overlay-bar")).to_contain_text("Slowest:")
    expect(panel.locator("svg.hl-g .hl-g-selected.hl-g-measured")).to_be_visible()
    story.ends("a slow operator")
    free(panel)

    # In the tab the drawer is at the right of the graph.
    tab = in_tab(notebook)
    notebook.open_drawer("Details", tab)
    Story(tab).click("^slowest: ")
    expect(tab.locator("svg.hl-g .hl-g-selected.hl-g-measured")).to_be_visible()
    free(tab)


@IN_LAB_ONLY
def test_where_the_first_nan_is(open_cells):
    notebook = open_cells([IMPORTS, NAN])
    panel = notebook.show_panel()
    notebook.run_all()
    story = Story(panel)
    story.click("loss not finite at step 1: find where")
    # Its parameters hold NaN already.
    story.answer("create net again and train it; the cell then stops at the first NaN")
    notebook.run_cell(1)
    story.answer(r"NaN first in net\[1\] \(log\)")
    story.ends("a NaN in training")
    story.click(r"NaN first in net\[1\] \(log\)")
    expect(notebook.row("1")).to_have_attribute("aria-selected", "true")
    expect(notebook.show_cell(1).locator(".cm-line.hl-code-line")).to_contain_text("F.log(x - 2)")


@pytest.mark.long
@IN_LAB_ONLY
def test_what_changed_since_the_last_save(open_cells):
    notebook = open_cells([IMPORTS, MODEL, "net.save('net')", TRAIN])
    panel = notebook.show_panel()
    notebook.run_cell(0)
    notebook.run_cell(1)
    Story(panel).answer("^not saved yet$")
    notebook.run_cell(2)
    Story(panel).answer("^saved at ")
    notebook.run_cell(3)
    story = Story(panel)
    story.click("^6 tensors changed since the save$")
    expect(panel.locator(".hl-results-tab")).to_contain_text("6 tensors changed")
    story.ends("a changed model")
