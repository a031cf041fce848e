"""A training in the panel and below its cell, while it runs and afterwards."""

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_ONE_FRONT_END

TRAIN = """import os
import time
import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn

net = nn.Dense(1, in_units=2)
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
x, y = nd.random.uniform(shape=(8, 2)), nd.random.uniform(shape=(8, 1))"""

LOOP = """for step in mx.lab.progress(range(60), "train"):
    with autograd.record():
        loss = gluon.loss.L2Loss()(net(x), y)
    loss.backward()
    trainer.step(8)
    mx.log(loss=loss)
    time.sleep(0.05)
    while step == 30 and not os.path.exists("go-on"):
        time.sleep(0.05)  # until the running loop has been looked at"""


@IN_ONE_FRONT_END
def test_curves_grow_while_the_cell_runs_and_stay(server, open_cells):
    notebook = open_cells([TRAIN, LOOP, LOOP + "\n    1 / (20 - step)"])
    panel = notebook.show_panel()
    notebook.run_cell(0)
    notebook.run_cell(1, wait=False)
    panel.get_by_role("tab", name="Training").click()
    training = panel.locator(".hl-training")
    expect(training.locator("summary").first).to_have_text("Training in cell 2: running", timeout=30_000)
    notebook.open_drawer("Training")
    expect(training.locator("progress")).to_be_visible()
    expect(training.locator(".hl-loop-text")).to_contain_text("left")
    output = notebook.show_cell(1).locator(".jp-OutputArea")
    expect(output).to_contain_text("left")  # the same, live, below the cell
    (server.folder / "go-on").touch()
    expect(training.locator("summary").first).to_have_text("Training in cell 2: done", timeout=30_000)
    expect(output.locator("svg[role=img]")).to_have_count(4)
    expect(output).to_contain_text("60 steps in")

    chart = training.locator("svg[role=img]").first
    chart.focus()
    notebook.page.keyboard.press("End")
    expect(training.locator(".hl-chart-readout").first).to_contain_text("step 60: loss")

    notebook.run_cell(2)
    expect(training.locator("summary").first).to_have_text("Training in cell 3: failed: ZeroDivisionError")
    expect(training.locator(".hl-loop-text")).to_contain_text("stopped after 20 of 60 steps")
    expect(training.locator(".hl-line-earlier").first).to_be_attached()
    expect(training.locator("svg[role=img]").first).to_be_visible()
    expect(notebook.show_cell(2).locator(".jp-OutputArea")).to_contain_text("failed: ZeroDivisionError")

    kept = panel.locator(".hl-kept-runs")
    expect(kept.locator("summary")).to_have_text("2 kept runs")
    kept.locator("summary").press("Enter")
    for box in (kept.get_by_role("checkbox").first, kept.get_by_role("checkbox").last):
        box.focus()
        notebook.page.keyboard.press("Space")
        expect(box).to_be_focused()
    compared = kept.get_by_role("img", name="loss: run 1")
    expect(compared.locator("path.hl-line")).to_have_count(2)


BAD = """import math
for step in mx.lab.progress(range(2000), "train"):
    mx.log(loss=math.nan if step in (57, 58, 59, 1200) else 1 / (1 + step / 50) + 0.1 * math.sin(step))"""


@pytest.mark.long
@IN_ONE_FRONT_END
def test_every_nan_is_marked_in_the_panel_and_below_the_cell(server, open_cells):
    notebook = open_cells(["import hybrid_lab as mx", BAD])
    panel = notebook.show_panel()
    notebook.run_cell(0)
    notebook.run_cell(1)
    panel.get_by_role("tab", name="Training").click()
    training = panel.locator(".hl-training")
    expect(training.locator("title")).to_have_text(["NaN at step 58 to 60 (3 values)", "NaN at step 1201"])
    expect(training.locator(".hl-chart-below")).to_have_text("4 not finite, first at step 58")
    expect(training.locator(".hl-band")).to_be_visible()
    output = notebook.show_cell(1).locator(".jp-OutputArea")
    expect(output.locator("svg[role=img] title")).to_have_text(["NaN at step 58 to 60", "NaN at step 1201"])
