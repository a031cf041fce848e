"""What the lab must show in a living notebook, in JupyterLab and in Notebook 7."""

import re
import zipfile

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_ONE_FRONT_END

MODEL = """import numpy as np
import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn"""

CLASS = """class Net(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(nn.Dense(8, activation="relu"), nn.Dense(8))
            self.head = nn.Dense(3)

    def hybrid_forward(self, F, x):
        return self.head(self.body(x))"""

RUN = """net = Net()
net.initialize()
net.hybridize()
x = mx.nd.array(np.random.RandomState(0).rand(4, 5).astype("float32"))
before = net(x).asnumpy()"""

WEIGHTS = """def weights(block):
    return [parameter.data().asnumpy() for parameter in block.collect_params().values()]"""

STUBBORN = """class Stubborn(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        host = np.ones((2, 3))
        x = x.reshape((x.shape[0], -1))
        if host.shape[0] > 100:
            return x
        return x.asnumpy()

class Plain(gluon.Block):
    def forward(self, x):
        return x.reshape((x.shape[0], -1)).asnumpy()"""


BELOW = """class Below(Stubborn):
    def hybrid_forward(self, F, x):
        return x + 1"""


def test_tutorial(tutorial):
    panel = tutorial.show_panel()
    sources = tutorial.page.evaluate(
        "() => [...window.jupyterapp.shell.currentWidget.content.model.cells].map(cell => cell.sharedModel.getSource())"
    )
    stubborn = next(i for i, source in enumerate(sources) if source.startswith("class Stubborn"))
    view = next(i for i, source in enumerate(sources) if source == "mx.view(net)")

    # Before anything ran the server marks the code.
    tutorial.expect_marks(stubborn, ["x.shape", "x.asnumpy()"])

    tutorial.run_all()
    picker = panel.get_by_role("combobox", name="Model", exact=True)
    picker.select_option(label="net: Net")
    for name in ("conv1", "pool1", "conv2", "pool2", "fc1", "fc2"):
        expect(tutorial.row(name)).to_be_visible()
    expect(panel.locator("svg.hl-g .hl-g-node").first).to_be_visible()
    picker.select_option(label="model: Model")
    expect(tutorial.row("left")).to_be_visible()

    # In the kernel the same marks, from the same rules.
    tutorial.expect_marks(stubborn, ["x.shape", "x.asnumpy()"])

    widget = tutorial.show_cell(view).locator(".hl-wide")
    expect(widget.get_by_role("treeitem").filter(has_text="conv1")).to_be_visible()
    node = widget.locator("svg.hl-g .hl-g-node").first
    expect(node).to_be_visible()
    node.click()
    tutorial.open_drawer("Details", widget)
    expect(widget.locator(".hl-details")).to_contain_text("Kind")


def test_marks_follow_the_typing(open_cells):
    notebook = open_cells([MODEL, STUBBORN, BELOW])
    notebook.expect_marks(1, ["x.shape", "x.asnumpy()"])
    notebook.run_cell(0)
    notebook.expect_marks(1, ["x.shape", "x.asnumpy()"])
    notebook.set_source(1, STUBBORN.replace("x.shape[0]", "0", 1))
    notebook.expect_marks(1, ["x.asnumpy()"])
    notebook.set_source(2, BELOW.replace("x + 1", "x * len(x)"))
    notebook.expect_marks(2, ["len(x)"])


@pytest.mark.long
def test_a_finding_in_the_panel_leads_to_its_line(open_cells):
    notebook = open_cells([MODEL, "pass", STUBBORN])
    panel = notebook.show_panel()
    notebook.run_cell(0)
    notebook.open_drawer("Findings")
    panel.get_by_role("button", name=re.compile("line 4$")).click()
    notebook.page.wait_for_function("() => window.jupyterapp.shell.currentWidget.content.activeCellIndex === 2")
    line = "() => window.jupyterapp.shell.currentWidget.content.activeCell.editor.getCursorPosition().line"
    assert notebook.page.evaluate(line) == 3


@pytest.mark.long
@IN_ONE_FRONT_END
def test_hover_explains_and_repairs(open_cells):
    notebook = open_cells([MODEL, STUBBORN])
    notebook.expect_marks(1, ["x.shape", "x.asnumpy()"])
    mark = notebook.page.locator(".hl-lint").first
    mark.hover()
    hover = notebook.page.locator(".cm-tooltip .hl-hover")
    expect(hover).to_contain_text("HL101")
    expect(hover.locator("pre, code").first).to_be_visible()
    notebook.page.locator(".cm-diagnosticAction").first.click()
    notebook.expect_marks(1, ["x.asnumpy()"])


def test_save_change_reload_undo(open_cells):
    notebook = open_cells([MODEL, CLASS, RUN, WEIGHTS])
    panel = notebook.show_panel()
    notebook.run_all()
    expect(notebook.row("head")).to_be_visible()
    archive = notebook.server.folder / f"{notebook.front_end}_net.hlab"
    notebook.name_file(archive.name)

    notebook.click("Save net")
    notebook.result(str(archive))
    assert archive.exists()
    assert "graphs/body.json" in zipfile.ZipFile(archive).namelist()

    notebook.kernel("net.head.weight.set_data(net.head.weight.data() * 0)\nchanged = net(x).asnumpy()")
    notebook.click("Reload net")
    notebook.result("Undo takes them back")
    assert notebook.kernel("print(np.array_equal(net(x).asnumpy(), before))") == "True"
    notebook.click("Undo")
    expect(panel.get_by_role("button", name="Save net", exact=True)).to_be_enabled(timeout=15_000)
    undo = panel.get_by_role("button", name="Undo", exact=True)
    expect(undo).to_have_attribute("title", f"Undo the save to {archive.name}")  # what was done before the reload
    assert notebook.kernel("print(np.array_equal(net(x).asnumpy(), changed))") == "True"

    # A second save, from the toolbar, replaces the file.
    notebook.page.locator('.jp-Toolbar [data-jp-item-name="hybrid-lab-save-all"] >> jp-button, button').first.click()
    notebook.result("Saved 1 model")


@pytest.mark.long
@IN_ONE_FRONT_END
def test_a_name_with_a_folder_is_refused(open_cells):
    notebook = open_cells([MODEL, CLASS, RUN])
    panel = notebook.show_panel()
    notebook.run_all()
    expect(notebook.row("head")).to_be_visible()
    notebook.name_file("../outside.hlab")
    notebook.click("Save net")
    expect(panel.get_by_role("alert")).to_contain_text("outside.hlab")
    assert not (notebook.server.folder.parent / "outside.hlab").exists()


@pytest.mark.long
def test_save_while_training_is_a_completed_step(open_cells, front_end):
    enough = f"{front_end}_saved"
    training = f"""from hybrid_lab import autograd
import time
from pathlib import Path
steps = []
trainer = gluon.Trainer(net.collect_params(), "sgd", {{"learning_rate": 0.1}})
while len(steps) < 600 and not Path("{enough}").exists():
    with autograd.record():
        loss = (net(x) ** 2).sum()
    loss.backward()
    trainer.step(4)
    steps.append(weights(net))
    time.sleep(0.1)"""
    notebook = open_cells([MODEL, CLASS, RUN, WEIGHTS, training])
    notebook.needs_answers_of_busy_kernels()
    notebook.show_panel()
    for index in range(4):
        notebook.run_cell(index)
    expect(notebook.row("head")).to_be_visible()
    name = f"{notebook.front_end}_training.hlab"
    notebook.name_file(name)
    notebook.run_cell(4, wait=False)
    notebook.page.wait_for_timeout(1500)
    notebook.click("Save net")
    notebook.result("Saved net")
    assert notebook.is_running(4), "the save came only after the training"
    (notebook.server.folder / enough).touch()
    notebook.wait_run()
    check = (
        f"saved = gluon.load('{name}')\n"
        "equal = [all(np.array_equal(a, b) for a, b in zip(weights(saved), step)) for step in steps]\n"
        "print(sum(equal))"
    )
    assert notebook.kernel(check) == "1"


def test_running_the_class_cell_again_leaves_no_stale_graph(open_cells):
    notebook = open_cells([MODEL, CLASS, RUN])
    panel = notebook.show_panel()
    notebook.run_all()
    expect(notebook.row("head")).to_contain_text("(4, 3)")
    notebook.set_source(1, CLASS.replace("nn.Dense(3)", "nn.Dense(30)").replace("self.head", "self.top"))
    notebook.run_cell(1)
    expect(panel.locator(".hl-notes")).to_contain_text("Net")  # the model is of the older class: the panel says so
    notebook.run_cell(2)
    expect(notebook.row("top")).to_be_visible()
    expect(notebook.row("head")).to_have_count(0)
    assert notebook.kernel("import gc; gc.collect(); print(net(x).shape)") == "(4, 30)"
    expect(panel.get_by_role("combobox", name="Model", exact=True).locator("option")).to_have_count(1)


@IN_ONE_FRONT_END
def test_a_reloaded_page_finds_its_models_again(open_cells):
    notebook = open_cells([MODEL, CLASS, RUN])
    notebook.show_panel()
    notebook.run_all()
    expect(notebook.row("head")).to_be_visible()
    notebook.command("docmanager:save")
    notebook.page.wait_for_timeout(1000)
    notebook.page.reload()
    notebook.wait_kernel()
    notebook.show_panel()
    expect(notebook.row("head")).to_be_visible(timeout=20_000)


def test_open_without_code_after_a_restart(open_cells):
    notebook = open_cells([MODEL, CLASS, RUN])
    panel = notebook.show_panel()
    notebook.run_all()
    expect(notebook.row("head")).to_be_visible()
    name = f"{notebook.front_end}_open.hlab"
    notebook.name_file(name)
    notebook.click("Save net")
    notebook.result(name)
    notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
    notebook.wait_idle()
    expect(panel).to_contain_text("not imported")
    notebook.run_cell(0)
    expect(panel).to_contain_text("No model in this kernel yet")
    notebook.click("Open without code")
    panel.get_by_role("combobox", name="Archive", exact=True).select_option(name)
    panel.get_by_role("textbox", name="Variable", exact=True).fill("opened")
    notebook.click("Open")
    expect(notebook.row("head")).to_be_visible()
    shape = notebook.kernel("print(opened(mx.nd.ones((2, 5))).shape)")
    assert shape == "(2, 3)"


NEVER_ANSWERED = """() => {
  const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
  kernel.createComm = () => {
    delete kernel.createComm;
    const nothing = () => undefined;
    return (window.comm = { isDisposed: false, open: nothing, send: nothing, close: nothing, dispose: nothing });
  };
}"""


@pytest.mark.long
@IN_ONE_FRONT_END
def test_the_panel_connects_after_an_import_that_ran_while_it_asked(open_cells):
    notebook = open_cells([MODEL])
    panel = notebook.show_panel()
    expect(panel).to_contain_text("not imported")
    notebook.page.evaluate(NEVER_ANSWERED)
    notebook.click("Connect")
    expect(panel).to_contain_text("Asking the kernel")
    notebook.run_cell(0)
    notebook.page.evaluate("() => window.comm.onClose()")  # what a kernel does that has not imported hybrid_lab
    expect(panel).to_contain_text("No model in this kernel yet")


def test_requests_are_answered_while_a_cell_runs(open_cells, front_end):
    enough = f"{front_end}_answered"
    waiting = f"""import time
from pathlib import Path
for _ in range(600):
    if Path("{enough}").exists():
        break
    time.sleep(0.1)"""
    notebook = open_cells([MODEL, CLASS, RUN, waiting])
    notebook.needs_answers_of_busy_kernels()
    panel = notebook.show_panel()
    notebook.run_all(wait=False)
    expect(notebook.row("body")).to_be_visible(timeout=20_000)
    notebook.row("body").dblclick()
    expect(panel.locator(".hl-details .hl-title")).to_have_text("net.body")
    expect(panel).to_contain_text("a cell is running")
    assert notebook.is_running(3), "the answers came only after the last cell"
    (notebook.server.folder / enough).touch()
    notebook.wait_run()
